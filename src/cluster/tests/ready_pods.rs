//! Which pods are kept to be asked, and which one is.

use serde_json::{Value, json};

use super::super::pods::read;
use super::*;

/// A running pod of agent `a` in its ReplicaSet `agent-a-new`, changed.
fn pod(name: &str, change: impl FnOnce(&mut Value)) -> (Key, Option<Arc<Entry<SeenPod>>>) {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "team", "uid": format!("u-{name}"), "resourceVersion": "7",
            "labels": {"convoke.dev/kind": "agent", "convoke.dev/name": "a"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "agent-a-new", "controller": true, "uid": "r"}],
        },
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": "Running", "podIP": "10.1.2.3", "hostIP": "192.168.1.1",
            "conditions": [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "agent", "image": "i", "ready": true, "state": {"running": {}}}],
        },
    });
    change(&mut pod);
    let (key, entry) = read(&pod.to_string()).expect("a pod");
    (key, entry.map(Arc::new))
}

fn is_kept(change: impl FnOnce(&mut Value)) -> bool {
    let (_, entry) = pod("p", change);
    entry.is_some_and(|entry| matches!(entry.value, SeenPod::Ready(_)))
}

#[test]
fn a9_a_ready_pod_is_kept_with_its_address_and_its_replica_set() {
    let (_, entry) = pod("p", |_| {});
    let entry = entry.expect("kept");
    let SeenPod::Ready(ready) = &entry.value else { panic!("not ready: {entry:?}") };
    assert_eq!(ready.ip.to_string(), "10.1.2.3");
    assert_eq!((ready.set(), ready.set_uid()), ("agent-a-new", "r"));
    assert_eq!(entry.value.terms(), ["agent/a"]);
    assert!(is_kept(|pod| pod["status"]["podIP"] = json!("fd12::7")));
}

#[test]
fn o11_a_pod_whose_address_may_be_another_ones_is_not_kept() {
    assert!(!is_kept(|pod| pod["spec"]["hostNetwork"] = json!(true)));
    assert!(!is_kept(|pod| pod["status"]["podIP"] = json!("192.168.1.1")), "that of its host");
    for never in ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1", "0.0.0.0"] {
        assert!(!is_kept(|pod| pod["status"]["podIP"] = json!(never)), "{never}");
    }
    assert!(!is_kept(|pod| pod["status"]["podIP"] = json!("a.example")), "a name");
    assert!(!is_kept(|pod| pod["status"]["podIP"] = json!(null)));
}

#[test]
fn a9_a_pod_that_is_not_ready_or_ends_or_has_another_controller_is_not_kept() {
    assert!(!is_kept(|pod| pod["status"]["conditions"][1]["status"] = json!("False")));
    assert!(!is_kept(|pod| pod["status"]["phase"] = json!("Succeeded")));
    assert!(!is_kept(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")));
    assert!(!is_kept(|pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false)));
    assert!(!is_kept(|pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("StatefulSet")));
}

fn deployment(seen: i64) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "agent-a", "namespace": "team", "generation": 2},
        "status": {"observedGeneration": seen, "conditions": [{"type": "Progressing", "status": "True",
            "message": "ReplicaSet \"agent-a-new\" is progressing."}]},
    }))
    .expect("deployment")
}

#[test]
fn a9_one_pod_of_the_newest_revision_is_asked_and_stays_the_one() {
    let old = |pod: &mut Value| {
        pod["metadata"]["ownerReferences"][0]["name"] = json!("agent-a-old");
    };
    let seen = [pod("p1", old), pod("p3", |_| {}), pod("p2", |_| {})];
    let seen = seen.map(|(key, entry)| (key, entry.expect("kept")));
    let asked = |before| chosen(&deployment(2), &seen, before, None).map(|(key, ..)| key.name);
    assert_eq!(asked(None).as_deref(), Some("p2"));
    assert_eq!(asked(Some("u-p3")).as_deref(), Some("p3"));
    assert_eq!(asked(Some("u-p1")).as_deref(), Some("p2"), "of an earlier revision");
    let of_set = |uid| chosen(&deployment(2), &seen, None, Some(uid)).map(|(key, ..)| key.name);
    assert_eq!((of_set("r").as_deref(), of_set("another")), (Some("p2"), None));
    let nobody = chosen(&deployment(1), &seen, None, None);
    assert!(nobody.is_none(), "nobody knows the newest revision yet");
}
