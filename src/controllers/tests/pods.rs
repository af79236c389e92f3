use serde_json::json;

use super::*;
use crate::cluster::children::Child;
use crate::cluster::fake::Fake;

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "agent-a", "namespace": "team", "generation": 1},
        "status": {"observedGeneration": 1},
    }))
    .expect("deployment")
}

/// A pod of agent `a` that waits for this reason, in this version.
fn shown(pods: &Pods, version: u64, reason: &str) {
    let pod = json!({
        "metadata": {"name": "agent-a-1-x", "namespace": "team", "uid": "u", "resourceVersion": version.to_string(),
            "labels": {"convoke.dev/kind": "agent", "convoke.dev/name": "a"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "agent-a-1", "controller": true}]},
        "status": {"containerStatuses": [{"name": "agent", "image": "i", "state": {"waiting": {"reason": reason}}}]},
    });
    match read(&pod.to_string()).expect("a pod") {
        (key, Some(entry)) => pods.store.applied(key, entry),
        (key, None) => pods.store.left(&key),
    }
}

#[tokio::test]
async fn a8_only_what_changes_what_is_told_wakes_the_owner() {
    let (pods, queue) = (Pods::new(), Queue::new());
    pods.notify(BTreeMap::from([(Kind::Agent, queue.clone())]));
    pods.listen();
    let owner = Key::new("team", "a");
    let woken = async || {
        assert_eq!((queue.len(), queue.next().await), (1, owner.clone()));
        queue.done(&owner);
    };
    shown(&pods, 1, "ContainerCreating");
    assert!(pods.store.is_empty() && queue.is_empty(), "nothing is wrong with it");
    shown(&pods, 2, "ErrImagePull");
    woken().await;
    shown(&pods, 3, "ImagePullBackOff");
    assert!(queue.is_empty(), "the same trouble");

    // What the watch has shown is told while it can be relied on.
    let told = || pods.trouble(Kind::Agent, &owner, &deployment()).map(|t| t.reason);
    assert_eq!((pods.is_pending(), told()), (true, None));
    pods.see(Visibility::Clear);
    woken().await;
    assert_eq!((pods.is_pending(), told()), (false, Some("ImagePullBackOff")));
    pods.see(Visibility::Forbidden);
    woken().await;
    assert_eq!((told(), pods.is_forbidden()), (None, true), "pods may not be seen any more");
    pods.see(Visibility::Clear);
    woken().await;
    shown(&pods, 4, "ContainerCreating");
    woken().await;
    assert_eq!((told(), pods.store.len()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a8_nobody_waits_long_for_a_watch_that_shows_nothing() {
    let pods = Pods::new();
    pods.settled().await;
    assert!(!pods.is_pending() && !pods.is_forbidden());
    pods.settled().await;
}

/// UIDs of what stands between pod `p` and agent `a`, as the tests make them.
const OBJECT: &str = "u-agent";
const DEPLOYMENT: &str = "u-deployment";
const SET: &str = "u-set";

/// The stores that hold the Deployment of agent `a`, with this owner.
fn children(owner: &str) -> ChildStores {
    let mut live = deployment();
    live.metadata.uid = Some(DEPLOYMENT.into());
    live.metadata.resource_version = Some("1".into());
    live.metadata.owner_references =
        serde_json::from_value(json!([{"apiVersion": "convoke.dev/v1alpha1",
        "kind": "Agent", "name": "a", "uid": owner, "controller": true}]))
        .expect("owners");
    let children = ChildStores::new();
    let (key, entry) = reflector::entry::<Child<Deployment>>(live);
    children.deployments.wrote(key, entry);
    children
}

/// A ready pod of agent `a`, in this version.
fn ready(pods: &Pods, version: u64) {
    show(
        pods,
        version,
        json!({"phase": "Running", "podIP": "10.1.2.3", "hostIP": "192.168.0.1",
        "conditions": [{"type": "Ready", "status": "True"}]}),
    );
}

fn show(pods: &Pods, version: u64, status: serde_json::Value) {
    let pod = json!({
        "metadata": {"name": "agent-a-1-x", "namespace": "team", "uid": "u-pod", "resourceVersion": version.to_string(),
            "labels": {"convoke.dev/kind": "agent", "convoke.dev/name": "a"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "agent-a-1", "uid": SET, "controller": true}]},
        "status": status,
    });
    match read(&pod.to_string()).expect("a pod") {
        (key, Some(entry)) => pods.store.applied(key, entry),
        (key, None) => pods.store.left(&key),
    }
}

/// An API server that has a ReplicaSet with this UID, whose controller is of this kind and has this UID.
fn with_set(uid: &str, kind: &str, controller: &str) -> Fake {
    let fake = Fake::default();
    fake.reply(json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "agent-a-1", "namespace": "team", "uid": uid,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "agent-a", "uid": controller, "controller": true}]}}));
    fake
}

/// The pod of agent `a` with this UID, if one is found.
async fn owned(
    pods: &Pods,
    fake: &Fake,
    children: &ChildStores,
    before: Option<&OwnedPod>,
) -> Option<OwnedPod> {
    let key = Key::new("team", "a");
    let owner =
        PodOwner { kind: Kind::Agent, key: &key, uid: OBJECT, deployment: "agent-a", port: 8000 };
    pods.owned(&fake.client(), children, owner, before).await.expect("an answer")
}

#[tokio::test]
async fn o11_a_pod_is_asked_only_if_it_belongs_to_the_object_by_uid() {
    let pods = Pods::new();
    ready(&pods, 1);
    let (ours, fake) = (children(OBJECT), with_set(SET, "Deployment", DEPLOYMENT));
    assert_eq!(owned(&pods, &fake, &ours, None).await, None, "pods may not be seen yet");
    pods.see(Visibility::Clear);

    let pod = owned(&pods, &fake, &ours, None).await.expect("the pod");
    assert_eq!((pod.uid(), pod.revision()), ("u-pod", "1"));
    assert_eq!(pod.address.to_string(), "10.1.2.3:8000");
    assert_eq!(pod.at_port(9000).address.to_string(), "10.1.2.3:9000");
    assert_eq!(fake.lists().len(), 1);
    assert!(fake.lists()[0].contains("/namespaces/team/replicasets/agent-a-1"));

    // What is proven is not asked for again.
    assert_eq!(owned(&pods, &fake, &ours, Some(&pod)).await.as_ref(), Some(&pod));
    assert_eq!(fake.lists().len(), 1);

    // A pod that only names the ReplicaSet is passed over.
    let forged = json!({
        "metadata": {"name": "agent-a-1-a", "namespace": "team", "uid": "u-forged", "resourceVersion": "9",
            "labels": {"convoke.dev/kind": "agent", "convoke.dev/name": "a"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "agent-a-1", "uid": "u-none", "controller": true}]},
        "status": {"phase": "Running", "podIP": "10.6.6.6", "hostIP": "192.168.0.1",
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    if let (key, Some(entry)) = read(&forged.to_string()).expect("a pod") {
        pods.store.applied(key, entry);
    }
    let found = owned(&pods, &fake, &ours, None).await.expect("a pod");
    assert_eq!((found.uid(), pods.store.len()), ("u-pod", 2));

    // Each link that leads elsewhere.
    assert_eq!(owned(&pods, &fake, &children("u-other"), Some(&pod)).await, None);
    for (set, kind, controller) in [
        ("u-other", "Deployment", DEPLOYMENT),
        (SET, "Deployment", "u-other"),
        (SET, "StatefulSet", DEPLOYMENT),
    ] {
        let fake = with_set(set, kind, controller);
        let found = owned(&pods, &fake, &ours, None).await;
        assert_eq!(found, None, "{set} {kind} {controller}");
    }
    let stranger = ChildStores::new();
    assert_eq!(owned(&pods, &fake, &stranger, Some(&pod)).await, None, "no Deployment");
}

#[tokio::test]
async fn a9_m5_a_pod_that_becomes_ready_or_unready_is_told_and_only_the_first_wakes_the_owner() {
    let (pods, queue) = (Pods::new(), Queue::new());
    pods.notify(BTreeMap::from([(Kind::Agent, queue.clone())]));
    let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let sink = heard.clone();
    pods.on_ready(move |kind, key, news| {
        assert_eq!((kind, key), (Kind::Agent, &Key::new("team", "a")));
        sink.lock().push(match news {
            PodNews::Ready => "ready".to_owned(),
            PodNews::Seen => "seen".to_owned(),
            PodNews::Lost(uid) => format!("lost {uid}"),
        });
    });
    pods.listen();
    let heard = || std::mem::take(&mut *heard.lock());
    let newest = || pods.newest_ready(Kind::Agent, &Key::new("team", "a"));
    assert_eq!(newest(), 0);
    ready(&pods, 1);
    assert_eq!(heard(), ["seen"], "it may have been ready for long");
    pods.see(Visibility::Clear);
    assert_eq!(heard(), ["seen"]);
    ready(&pods, 2);
    assert!(heard().is_empty(), "it is ready as before");
    show(
        &pods,
        3,
        json!({"phase": "Running", "podIP": "10.1.2.3", "hostIP": "192.168.0.1",
        "conditions": [{"type": "Ready", "status": "False"}]}),
    );
    assert_eq!((heard(), newest(), queue.len()), (vec!["lost u-pod".to_owned()], 0, 0));
    ready(&pods, 4);
    assert_eq!((heard(), newest()), (vec!["ready".to_owned()], 4));
    assert_eq!(queue.next().await, Key::new("team", "a"), "its Secret is looked at again");
    queue.done(&Key::new("team", "a"));
    pods.store.left(&Key::new("team", "agent-a-1-x"));
    assert_eq!(heard(), ["lost u-pod"]);
    assert!(pods.store.is_empty() && queue.is_empty());
}
