use super::settled::MIN_CLEAN_UP;
use super::*;
use crate::cluster::fake::Fake;
use crate::cluster::reflector;

/// A ConfigMap of agent `a` with this text, as it is wanted.
fn map(text: &str) -> ConfigMap {
    let meta = json!({"name": "agent-a-1", "namespace": "team", "labels": meta::labels(Kind::Agent, "a"), "annotations": {}});
    let map = json!({"metadata": meta, "immutable": true, "data": {"k": text, "empty": ""}});
    meta::with_hash(serde_json::from_value(map).expect("a ConfigMap"))
}

#[test]
fn a13_what_is_known_of_objects_that_are_gone_is_forgotten() {
    let mut settled = settled::Settled::default();
    let key = |number: u64| Key::new("team", name(number));
    // One after the other comes and goes; ten stay.
    for number in 0..100_000 {
        let lives = |key: &Key, version: u64| version < 10 || key.name >= name(number);
        settled.insert("Deployment", key(number), (number, String::new()), lives);
        assert!(settled.known.len() <= MIN_CLEAN_UP * 2);
    }
    assert!((0..10).all(|number| settled.known.contains_key(&("Deployment", key(number)))));
}

fn name(number: u64) -> String {
    format!("d{number:06}")
}

#[test]
fn a13_of_a_config_map_only_a_digest_is_kept_and_it_tells_what_changed() {
    let wanted = map(&"x".repeat(1_000_000));
    let hash = wanted.metadata.annotations.as_ref().expect("some")[keys::CHILD_HASH].clone();
    let live = |change: &dyn Fn(&mut Value)| {
        let mut live = value_of(&wanted);
        change(&mut live);
        let (_, read) = Child::<ConfigMap>::read(&live.to_string()).expect("a ConfigMap");
        let typed = serde_json::from_value(live).expect("a ConfigMap");
        let (_, typed) = reflector::entry::<Child<ConfigMap>>(typed);
        let like = read.value.is_like(&wanted, &hash);
        assert_eq!(like, typed.value.is_like(&wanted, &hash), "however it was read");
        assert!(matches!(read.value.content, Content::Digest(_)));
        like
    };
    assert!(live(&|_| {}));
    assert!(live(&|map| map["metadata"]["labels"]["example.com/x"] = "y".into()));
    assert!(live(&|map| map["binaryData"] = json!({})));
    assert!(live(&|map| map["metadata"]["managedFields"] = json!([{"manager": "m"}])));
    assert!(!live(&|map| map["data"]["k"] = "y".into()));
    assert!(!live(&|map| map["data"]["more"] = "y".into()));
    assert!(!live(&|map| map["immutable"] = false.into()));
    assert!(!live(&|map| map["metadata"]["labels"][keys::OWNER_NAME] = "b".into()));
    assert!(!live(&|map| map["metadata"]["annotations"] = json!({})));

    let mut long = value_of(&wanted);
    long["metadata"]["annotations"][keys::CHILD_HASH] = "x".repeat(200_000).into();
    let (_, long) = Child::<ConfigMap>::read(&long.to_string()).expect("a ConfigMap");
    assert_eq!(long.value.about(HASH), None, "that is no hash");
}

#[tokio::test]
async fn a13_what_is_kept_without_content_is_compared_by_an_apply_and_shown_by_its_reply() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "agent-a", "namespace": "team",
        "uid": "u", "resourceVersion": "7", "annotations": {keys::CHILD_HASH: "h"}, "labels": {},
        "ownerReferences": [{"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": "a", "uid": "a", "controller": true}]}});
    let service: Service = serde_json::from_value(service).expect("a Service");
    let (fake, store) = (Fake::default(), ChildStores::new().services);
    fake.reply(value_of(&service));
    let writer = ChildWriter::new(fake.client());
    let (key, mut entry) = reflector::entry::<Child<Service>>(service.clone());
    entry.value.forget_content();
    store.applied(key.clone(), entry);
    for round in 1..=2 {
        let brought = writer.bring(&store, "a", &service).await.expect("an answer");
        let Brought::Ours(entry, wrote) = brought else { panic!("it is ours") };
        assert!(entry.value.object().is_some(), "as the reply shows it");
        assert_eq!(wrote, Wrote::Nothing, "it was so before");
        assert_eq!(fake.lists().len(), round, "asked each time");
    }
    // With content nobody asks.
    store.deleted(&key, "u");
    let mut again = service.clone();
    again.metadata.uid = Some("v".into());
    let (key, entry) = reflector::entry::<Child<Service>>(again);
    store.applied(key, entry);
    writer.bring(&store, "a", &service).await.expect("no answer needed");
    assert_eq!(fake.lists().len(), 2);
}

#[tokio::test]
async fn a11_children_of_a_namesake_that_is_gone_are_waited_for() {
    let service = |kind: &str, name: &str, uid: &str| -> Service {
        let owner = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "agent-a", "namespace": "team",
            "uid": format!("of-{uid}"), "resourceVersion": "7", "annotations": {keys::CHILD_HASH: "h"}, "labels": {},
            "ownerReferences": [owner]}});
        serde_json::from_value(service).expect("a Service")
    };
    let (fake, wanted) = (Fake::default(), service("Agent", "a", "new"));
    fake.reply(value_of(&wanted));
    let writer = ChildWriter::new(fake.client());
    for (kind, name, waited_for) in
        [("ModelAPI", "a", false), ("Agent", "b", false), ("Agent", "a", true)]
    {
        let store = ChildStores::new().services;
        let (key, entry) = reflector::entry::<Child<Service>>(service(kind, name, "old"));
        store.applied(key.clone(), entry);
        let before = fake.lists().len();
        match writer.bring(&store, "new", &wanted).await.expect("no answer needed") {
            Brought::Leftover(text) if waited_for => {
                let words =
                    "Service agent-a is left from an earlier Agent a: waiting until it is deleted";
                assert_eq!(text, words);
            }
            Brought::Conflict(_) if !waited_for => {}
            other => panic!("{kind} {name}: {other:?}"),
        }
        assert_eq!(fake.lists().len(), before, "nobody else's is touched");
        store.removed(&key, "of-old");
        let brought = writer.bring(&store, "new", &wanted).await.expect("an answer");
        assert!(matches!(brought, Brought::Ours(..)), "its name is free: {brought:?}");
    }
}

#[tokio::test]
#[allow(clippy::large_stack_arrays)] // a table
async fn a8_a_write_tells_whether_pods_are_replaced() {
    let deployment = |version: u8, image: &str, replicas: u8, hash: &str| -> Deployment {
        let owner = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": "a", "uid": "a", "controller": true});
        let pod = json!({"spec": {"containers": [{"name": "agent", "image": image}]}});
        let deployment = json!({"metadata": {"name": "agent-a", "namespace": "team", "uid": "u", "resourceVersion": version.to_string(),
            "annotations": {keys::CHILD_HASH: hash}, "labels": {}, "ownerReferences": [owner]},
            "spec": {"replicas": replicas, "selector": {}, "template": pod}});
        serde_json::from_value(deployment).expect("a Deployment")
    };
    let before = || deployment(7, "i:1", 1, "old");
    // What is there, whether it is kept whole, what is wanted and comes back.
    for (live, whole, wanted, expected) in [
        (None, true, deployment(8, "i:1", 1, "new"), Wrote::Created),
        (Some(before()), true, deployment(8, "i:2", 1, "new"), Wrote::Pods),
        (Some(before()), true, deployment(8, "i:1", 2, "new"), Wrote::Rest),
        (Some(before()), true, deployment(7, "i:1", 1, "new"), Wrote::Nothing),
        // Somebody has changed the image.
        (Some(before()), true, deployment(8, "i:0", 1, "old"), Wrote::Pods),
        (Some(before()), false, deployment(8, "i:2", 1, "new"), Wrote::Pods),
        (Some(before()), false, deployment(8, "i:1", 1, "old"), Wrote::Rest),
    ] {
        let (fake, store) = (Fake::default(), ChildStores::new().deployments);
        fake.reply(value_of(&wanted));
        if let Some(live) = live {
            let (key, mut entry) = reflector::entry::<Child<Deployment>>(live);
            if !whole {
                entry.value.forget_content();
            }
            store.applied(key, entry);
        }
        let writer = ChildWriter::new(fake.client());
        for wrote in [expected, Wrote::Nothing] {
            let brought = writer.bring(&store, "a", &wanted).await.expect("an answer");
            let Brought::Ours(_, told) = brought else { panic!("it is ours") };
            assert_eq!(told, wrote, "{wanted:?}");
        }
    }
}
