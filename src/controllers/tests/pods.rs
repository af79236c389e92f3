use serde_json::json;

use super::*;

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
    pods.see(Visibility::None);
    woken().await;
    assert_eq!(told(), None, "pods may not be seen any more");
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
    assert!(!pods.is_pending());
    pods.settled().await;
}
