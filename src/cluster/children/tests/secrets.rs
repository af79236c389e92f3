use super::*;
use crate::cluster::fake::Fake;

fn owner(uid: &str) -> Value {
    json!([{"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": "a", "uid": uid, "controller": true}])
}

fn secret() -> OwnSecret {
    let meta =
        json!({"name": "agent-a-model-key", "namespace": "team", "ownerReferences": owner("u1")});
    OwnSecret {
        meta: serde_json::from_value(meta).expect("metadata"),
        data: BTreeMap::from([("key", Hidden::new("canary".to_owned()))]),
        hash: "h".into(),
        digest: "d".into(),
        given: false,
    }
}

/// The metadata of the Secret as the API server shows it, with a change.
fn live(change: impl Fn(&mut Value)) -> ObjectMeta {
    let fields = json!({"f:data": {".": {}, "f:key": {}}, "f:type": {}});
    let mut meta = json!({"name": "agent-a-model-key", "namespace": "team", "uid": "s1", "resourceVersion": "7",
        "ownerReferences": owner("u1"), "annotations": {keys::CHILD_HASH: "h"},
        "managedFields": [{"manager": "convoke", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}]});
    change(&mut meta);
    serde_json::from_value(meta).expect("metadata")
}

#[test]
fn m5_a_secret_is_never_printed_and_is_sent_whole() {
    let secret = secret();
    assert!(!format!("{secret:?}").contains("canary"));
    let sent = secret.manifest();
    assert_eq!(sent["data"], json!({"key": "Y2FuYXJ5"}));
    assert_eq!(sent["metadata"]["annotations"][keys::CHILD_HASH], "h");
    assert_eq!(sent["metadata"]["annotations"][keys::KEY_DIGEST], "d");
    assert_eq!(sent["type"], "Opaque");
}

#[test]
fn m5_a_secret_is_written_when_its_hash_or_somebody_elses_hand_says_so() {
    let secret = secret();
    let as_wanted = |change: &dyn Fn(&mut Value)| is_as_wanted(&live(change), &secret);
    assert!(as_wanted(&|_| {}));
    assert!(as_wanted(&|meta| meta["labels"] = json!({"team": "blue"})));
    assert!(!as_wanted(&|meta| meta["annotations"][keys::CHILD_HASH] = "other".into()));
    assert!(!as_wanted(&|meta| meta["annotations"] = json!({})));
    // Who changes a value by hand owns it from then on.
    assert!(!as_wanted(&|meta| meta["managedFields"][0]["fieldsV1"]["f:data"] = json!({".": {}})));
    assert!(!as_wanted(&|meta| meta["managedFields"][0]["manager"] = "kubectl-edit".into()));
    assert!(!as_wanted(&|meta| meta["managedFields"] = json!([])));
}

#[test]
fn m5_a11_a_secret_of_somebody_else_is_told_from_one_of_an_earlier_owner() {
    let wanted = secret().meta;
    let of = |change: &dyn Fn(&mut Value)| Relation::of(&live(change), &wanted);
    assert_eq!(of(&|_| {}), Relation::Own);
    let earlier = of(&|meta| meta["ownerReferences"] = owner("u0"));
    assert!(matches!(earlier, Relation::Left(left) if left.uid == "u0"));
    // The owner reference alone proves nothing: anybody may write one.
    let forged = |meta: &mut Value| {
        meta["ownerReferences"] = owner("u0");
        meta["managedFields"] = json!([]);
    };
    assert_eq!(of(&forged), Relation::Foreign(Some("a".into())));
    let other = |meta: &mut Value| {
        meta["ownerReferences"] = owner("u0");
        meta["ownerReferences"][0]["name"] = "b".into();
    };
    assert_eq!(of(&other), Relation::Foreign(Some("b".into())));
    assert_eq!(of(&|meta| meta["ownerReferences"] = json!([])), Relation::Foreign(None));
}

#[test]
fn m5_only_other_values_are_told_as_such() {
    let secret = secret();
    let differs = |change: &dyn Fn(&mut Value)| has_other_values(&live(change), &secret);
    let digest = |digest: &'static str| {
        move |meta: &mut Value| meta["annotations"] = json!({keys::KEY_DIGEST: digest})
    };
    assert!(!differs(&|_| {}));
    assert!(!differs(&digest("d")), "only its labels, or its owner, are others");
    assert!(differs(&digest("other")));
    assert!(differs(&|meta| meta["managedFields"][0]["fieldsV1"]["f:data"] = json!({".": {}})));
}

#[tokio::test]
async fn m5_other_values_than_pods_were_given_are_told_and_left() {
    let (fake, mut secret) = (Fake::default(), secret());
    let writer = ChildWriter::new(fake.client());
    let by_hand = live(|meta| meta["managedFields"][0]["manager"] = "kubectl-edit".into());
    let shown = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": by_hand});
    fake.reply(shown);
    secret.given = true;
    for looks in 1..3 {
        assert_eq!(writer.bring_secret(&secret, 0).await.expect("an answer"), Secured::Differs);
        assert_eq!(fake.lists().len(), looks, "read, not written: {:?}", fake.lists());
    }
    secret.given = false;
    assert_eq!(writer.bring_secret(&secret, 0).await.expect("an answer"), Secured::Ours);
    assert_eq!(fake.lists().len(), 4, "read and written: {:?}", fake.lists());
}

#[tokio::test]
async fn m5_a_secret_that_is_as_wanted_is_asked_for_once_and_not_written() {
    let (fake, mut secret) = (Fake::default(), secret());
    let writer = ChildWriter::new(fake.client());
    let shown = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": live(|_| {})});
    fake.reply(shown);
    for _ in 0..3 {
        assert_eq!(writer.bring_secret(&secret, 7).await.expect("an answer"), Secured::Ours);
    }
    assert_eq!(fake.lists().len(), 1, "its metadata, once: {:?}", fake.lists());
    // Another key is another hash: it is looked at again, and written.
    secret.hash = "other".into();
    assert_eq!(writer.bring_secret(&secret, 7).await.expect("an answer"), Secured::Ours);
    assert_eq!(fake.lists().len(), 3, "{:?}", fake.lists());
    assert!(fake.lists()[2].contains("fieldManager=convoke"), "{:?}", fake.lists());
}

#[tokio::test]
async fn m5_after_a_refusal_a_namespace_is_left_alone_for_a_moment() {
    let (secrets, now) = (Secrets::default(), Instant::now());
    secrets.refuse("team", now);
    assert!(secrets.is_refused("team", now) && !secrets.is_refused("other", now));
    assert!(!secrets.is_refused("team", now + REFUSED_FOR));
    secrets.refuse("other", now + REFUSED_FOR);
    assert_eq!(secrets.refused.lock().len(), 1, "what is over is forgotten");
    let key = Key::new("team", "s");
    let seen = Seen { hash: "h".into(), newest_pod: 7, at: Some(now) };
    secrets.known.lock().insert(key.clone(), seen);
    assert!(secrets.is_settled(&key, "h", 7, now) && !secrets.is_settled(&key, "i", 7, now));
    assert!(secrets.is_settled(&key, "h", 0, now), "that pod has gone");
    assert!(!secrets.is_settled(&key, "h", 8, now), "a pod has read it since");
    assert!(!secrets.is_settled(&key, "h", 7, now + SEEN_FOR), "it is looked at again");
    secrets.doubt(&key);
    assert!(!secrets.is_settled(&key, "h", 7, now), "its pods cannot read it");
    assert!(secrets.known.lock().contains_key(&key), "what was written is removed in the end");
}
