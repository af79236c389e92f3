use serde_json::{Value, json};

use super::*;
use crate::cluster::pods::Trouble;

fn newest(revision: &str) -> Newest {
    let image = format!("image-{revision}");
    Newest { revision: revision.into(), image, deadline: "10m".into() }
}

/// The last good revision, if there is one, and the one that has failed.
fn record(good: Option<&str>, failed: Option<&str>) -> RolloutStatus {
    RolloutStatus {
        deployment: "uid".into(),
        last_good: good.map(|revision| GoodRevision {
            revision: revision.into(),
            image: format!("image-{revision}"),
            replica_set: format!("set-{revision}"),
            config_map: Some(format!("map-{revision}")),
        }),
        failed: failed.map(|revision| FailedRevision {
            revision: revision.into(),
            image: format!("image-{revision}"),
            reason: "CrashLoopBackOff".into(),
            message: "pod p: it ends".into(),
            at: Some(format!("late-{revision}")),
        }),
    }
}

fn available(revision: &str) -> Found {
    let good = record(Some(revision), None).last_good.expect("one");
    Found::Available(GoodRevision { revision: String::new(), ..good })
}

fn exceeded(revision: &str) -> Found {
    let failed = record(None, Some(revision)).failed.expect("one");
    Found::Exceeded(FailedRevision { revision: String::new(), ..failed })
}

#[test]
fn a10_a_rollout_that_is_not_available_in_time_goes_back_and_is_not_tried_again() {
    // What is remembered, what is wanted, what the Deployment does, what is remembered then.
    let table = [
        ("the first one is available", (None, None), "a", available("a"), (Some("a"), None)),
        ("the first one fails", (None, None), "a", exceeded("a"), (None, None)),
        ("a new one is on its way", (Some("a"), None), "b", Found::Nothing, (Some("a"), None)),
        ("a new one is available", (Some("a"), None), "b", available("b"), (Some("b"), None)),
        ("a new one fails", (Some("a"), None), "b", exceeded("b"), (Some("a"), Some("b"))),
        ("it has gone back", (Some("a"), Some("b")), "b", Found::Nothing, (Some("a"), Some("b"))),
        ("still told", (Some("a"), Some("b")), "b", exceeded("a"), (Some("a"), Some("b"))),
        ("the next one", (Some("a"), Some("b")), "c", Found::Nothing, (Some("a"), Some("b"))),
        ("it fails, too", (Some("a"), Some("b")), "c", exceeded("c"), (Some("a"), Some("c"))),
        ("it is available", (Some("a"), Some("b")), "c", available("c"), (Some("c"), None)),
        ("the one before again", (Some("a"), Some("b")), "a", available("a"), (Some("a"), None)),
        ("told of before", (Some("a"), Some("b")), "c", exceeded("b"), (Some("a"), Some("b"))),
        ("not by its own", (Some("a"), None), "a", exceeded("a"), (Some("a"), None)),
    ];
    for (what, (good, failed), wanted, found, (then_good, then_failed)) in table {
        let after = decide(&record(good, failed), &newest(wanted), found);
        assert_eq!(after, record(then_good, then_failed), "{what}");
        let goes_back = then_failed == Some(wanted);
        assert_eq!(has_failed(&after, &newest(wanted)), goes_back, "{what}");
        // Nothing changes when nothing happens, also after a start of the operator.
        assert_eq!(decide(&after, &newest(wanted), Found::Nothing), after, "{what}");
    }
}

#[test]
fn a10_the_last_good_one_stays_itself_when_its_pods_are_replaced_after_going_back() {
    let before = record(Some("a"), Some("b"));
    let after = decide(&before, &newest("b"), available("other"));
    let good = after.last_good.expect("one");
    assert_eq!((&*good.revision, &*good.replica_set), ("a", "set-other"));
    assert_eq!((good.image.as_str(), good.config_map.as_deref()), ("image-a", Some("map-a")));
    assert_eq!(after.failed, before.failed);
}

#[test]
fn a10_a_revision_is_the_image_and_the_spec_and_not_how_many_pods_there_are() {
    let of = |spec: Value, image: &str, retry: Option<&str>| {
        let annotations = retry.map(|value| [(keys::RETRY.to_owned(), value.to_owned())].into());
        let meta = ObjectMeta { annotations, ..ObjectMeta::default() };
        Newest::of(&meta, &spec, Some(image), None).revision
    };
    let one = of(json!({"model": "m", "replicas": 1}), "i:1", None);
    assert_eq!(of(json!({"model": "m", "replicas": 5, "suspend": true}), "i:1", None), one);
    let others = [
        of(json!({"model": "m"}), "i:2", None),
        of(json!({"model": "n"}), "i:1", None),
        of(json!({"model": "m", "progressDeadline": "1h"}), "i:1", None),
        of(json!({"model": "m"}), "i:1", Some("once more")),
    ];
    for other in &others {
        assert_ne!(*other, one);
    }
}

fn deployment(replicas: i32, status: &Value) -> Deployment {
    let live = json!({
        "metadata": {"name": "agent-a", "generation": 2,
            "annotations": {"convoke.dev/build": "two", "convoke.dev/key-digest": "k2"}},
        "spec": {"replicas": replicas, "progressDeadlineSeconds": 60, "selector": {}, "template": {
            "metadata": {"labels": {"app": "a"}, "annotations": {"convoke.dev/key-digest": "k2"}},
            "spec": {"containers": [{"name": "agent", "image": "i:2"}]}}},
        "status": status,
    });
    serde_json::from_value(live).expect("Deployment")
}

fn progressing(seen: i64, status: &str, reason: &str, counts: [i32; 3]) -> Value {
    let message = "ReplicaSet \"agent-a-7c9f\" has something";
    let since = "2026-11-28T10:00:00Z";
    json!({"observedGeneration": seen, "replicas": counts[0], "updatedReplicas": counts[1], "availableReplicas": counts[2],
        "conditions": [{"type": "Progressing", "status": status, "reason": reason,
            "message": message, "lastTransitionTime": since}]})
}

#[test]
fn a10_only_the_deadline_of_the_newest_pods_counts() {
    let set = || "agent-a-7c9f".to_owned();
    let late = |seen, counts| progressing(seen, "False", "ProgressDeadlineExceeded", counts);
    let since = Some("2026-11-28T10:00:00Z".to_owned());
    assert_eq!(says(&deployment(1, &late(2, [2, 1, 1]))), Says::Exceeded(set(), since));
    assert_eq!(says(&deployment(1, &late(1, [2, 1, 1]))), Says::Nothing, "of the one before");
    assert_eq!(says(&deployment(0, &late(2, [0, 0, 0]))), Says::Nothing, "no pods are wanted");
    let done = |seen| progressing(seen, "True", "NewReplicaSetAvailable", [1, 1, 1]);
    assert_eq!(says(&deployment(1, &done(2))), Says::Available(set()));
    assert_eq!(says(&deployment(1, &done(1))), Says::Nothing);
    assert_eq!(says(&deployment(0, &done(2))), Says::Nothing, "scaled to zero");
    let paused = progressing(2, "Unknown", "DeploymentPaused", [2, 1, 1]);
    assert_eq!(says(&deployment(1, &paused)), Says::Nothing);
    assert_eq!(says(&deployment(1, &json!({}))), Says::Nothing);
}

fn replica_set(annotations: Value, key: Option<&str>) -> ReplicaSet {
    let mut set = json!({
        "metadata": {"name": "agent-a-1", "annotations": annotations},
        "spec": {"selector": {}, "template": {
            "metadata": {"labels": {"app": "a", "pod-template-hash": "1"}},
            "spec": {"containers": [{"name": "agent", "image": "i:1"}]}}},
    });
    if let Some(key) = key {
        set["spec"]["template"]["metadata"]["annotations"] = json!({"convoke.dev/key-digest": key});
    }
    serde_json::from_value(set).expect("ReplicaSet")
}

#[test]
fn a10_what_goes_back_is_the_whole_pod_template_and_nothing_else() {
    let wanted = deployment(3, &json!({}));
    let set = replica_set(json!({"convoke.dev/build": "one"}), Some("k1"));
    let back = back(&wanted, &set).expect("a way back");
    let spec = back.spec.as_ref().expect("spec");
    assert_eq!((spec.replicas, spec.progress_deadline_seconds), (Some(3), Some(60)));
    let template = serde_json::to_value(&spec.template).expect("JSON");
    let expected = json!({
        "metadata": {"labels": {"app": "a"}, "annotations": {"convoke.dev/key-digest": "k2"}},
        "spec": {"containers": [{"name": "agent", "image": "i:1"}]}});
    assert_eq!(template, expected, "with the newest key");
    assert_eq!(annotation(&back.metadata, keys::BUILD), Some("one"));
    assert_ne!(
        annotation(&back.metadata, keys::CHILD_HASH),
        annotation(&wanted.metadata, keys::CHILD_HASH)
    );
    assert!(!is_of_template(&set, &wanted));
    let live = Deployment { spec: Some(spec.clone()), ..back };
    assert!(!is_of_template(&set, &live), "another key makes another ReplicaSet");
    assert!(is_of_template(&replica_set(json!({}), Some("k2")), &live));
}

#[test]
fn a10_there_is_no_way_back_to_another_model_proxy() {
    let with = |proxy: Option<&str>| match proxy {
        Some(proxy) => json!({"convoke.dev/key-proxy": proxy}),
        None => json!({}),
    };
    for (now, before, is_open) in [
        (Some("p"), Some("p"), true),
        (None, None, true),
        (Some("p"), Some("q"), false),
        (Some("p"), None, false),
        (None, Some("q"), false),
    ] {
        let mut wanted = deployment(1, &json!({}));
        let annotations = wanted.metadata.annotations.as_mut().expect("annotations");
        annotations.extend(now.map(|now| (keys::KEY_PROXY.to_owned(), now.to_owned())));
        let set = replica_set(with(before), Some("k1"));
        assert_eq!(back(&wanted, &set).is_some(), is_open, "{now:?} {before:?}");
    }
}

#[test]
fn a10_it_is_told_what_failed_and_why_and_what_runs() {
    let observed =
        Observed { wanted: 1, updated: 1, health: Health::Available, ..Observed::default() };
    let (both, wanted) = (record(Some("a"), Some("b")), newest("b"));
    let failure =
        "the newest image image-b was not available within 10m (CrashLoopBackOff: pod p: it ends)";
    let told = |record: &RolloutStatus, is_back, observed: &Observed| {
        told(record, &wanted, is_back, observed)
    };
    let going = format!("{failure}; going back to image-a");
    assert_eq!(told(&both, false, &observed), Some(going));
    let again = format!("{failure}; image-a runs again: 1 of 1 replicas available");
    assert_eq!(told(&both, true, &observed), Some(again));
    assert_eq!(told(&record(Some("a"), None), false, &observed), None);
    assert_eq!(told(&record(Some("a"), Some("c")), false, &observed), None, "of another one");

    // The same image with another spec.
    let mut same = both;
    same.failed.as_mut().expect("failed").image = "image-a".into();
    let text = told(&same, true, &observed).expect("a text");
    let begins = "the newest spec with image-a was not available within 10m (";
    assert!(text.starts_with(begins) && text.contains("; the spec before runs again: "), "{text}");
}

#[test]
fn a10_why_it_failed_is_what_its_pods_said() {
    let trouble = |message: &str| Trouble {
        reason: "CrashLoopBackOff",
        lasting: true,
        message: message.to_owned(),
    };
    let late = Health::Failed(DEADLINE_EXCEEDED.into(), "ReplicaSet \"x\" has timed out".into());
    let observed = |health: &Health, trouble: Option<Trouble>| Observed {
        wanted: 1,
        unavailable: 1,
        health: health.clone(),
        trouble,
        ..Observed::default()
    };
    let of = |observed: &Observed| {
        let (reason, message) = why(observed);
        format!("{reason}: {message}")
    };
    let ends = trouble("pod p: container agent ends with exit code 3; its log: kubectl logs p");
    let expected = "CrashLoopBackOff: pod p: container agent ends with exit code 3";
    assert_eq!(of(&observed(&late, Some(ends))), expected);
    let expected = "ProgressDeadlineExceeded: none of its pods says why";
    assert_eq!(of(&observed(&late, None)), expected);
    let refused = Health::Failed(
        "FailedCreate".into(),
        "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1".into(),
    );
    let expected =
        "QuotaExceeded: the API server refuses new pods: exceeded quota: q, requested: pods=1";
    assert_eq!(of(&observed(&refused, None)), expected);
}

#[test]
fn a10_a_deadline_changes_no_pods_and_none_changes_nothing() {
    let before = deployment(1, &json!({}));
    assert_eq!(with_deadline(before.clone(), None), before);
    let after = with_deadline(before.clone(), Some("1m30s")).spec.expect("spec");
    assert_eq!(after.progress_deadline_seconds, Some(90));
    assert_eq!(Some(after.template), before.spec.map(|spec| spec.template));
}
