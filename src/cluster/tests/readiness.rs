use serde_json::json;

use super::*;

fn health(status: serde_json::Value) -> Health {
    let deployment = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status});
    observe(&serde_json::from_value(deployment).expect("deployment")).health
}

#[test]
fn a8_health_follows_the_newest_revision() {
    let full = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
    assert_eq!(health(full.clone()), Health::Available);
    for (field, value) in [
        ("observedGeneration", 1),
        ("updatedReplicas", 1),
        ("availableReplicas", 1),
        ("replicas", 3),
    ] {
        let mut status = full.clone();
        status[field] = json!(value);
        assert_eq!(health(status), Health::Progressing, "{field}");
    }
    assert_eq!(health(json!({})), Health::Progressing);
    let mut failed = full;
    failed["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]);
    assert_eq!(health(failed), Health::Failed("FailedCreate".into(), "quota".into()));
}

#[test]
fn a8_a_deadline_that_passed_is_a_failure_of_this_generation_only() {
    let mut status = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 1,
        "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}]});
    let failed = Health::Failed("ProgressDeadlineExceeded".into(), "late".into());
    assert_eq!(health(status.clone()), failed);
    status["observedGeneration"] = json!(1);
    assert_eq!(health(status), Health::Progressing);
}

#[test]
fn a8_a_replica_set_that_is_refused_is_a_failure_though_its_controller_has_seen_nothing() {
    let mut status = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
        "conditions": [{"type": "Progressing", "status": "False", "reason": REPLICA_SET_REFUSED, "message": "quota"}]});
    let of = |status: &serde_json::Value| {
        let deployment = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status});
        observe(&serde_json::from_value(deployment).expect("deployment"))
    };
    let failed = Health::Failed(REPLICA_SET_REFUSED.into(), "quota".into());
    let seen = of(&status);
    assert_eq!((&seen.health, seen.updated, seen.is_available()), (&failed, 0, true));
    assert_eq!(seen.progress(), "0 of 2 replicas updated");
    // The first revision.
    let conditions = json!({"conditions": status["conditions"]});
    let first = of(&conditions);
    assert_eq!((first.health, first.unavailable), (failed.clone(), 2));
    // Scaled meanwhile: the generation is seen, and there is still no ReplicaSet.
    status["observedGeneration"] = json!(2);
    status["updatedReplicas"] = json!(0);
    assert_eq!(of(&status).health, failed);
    // Back to a revision that has one.
    status["updatedReplicas"] = json!(2);
    assert_eq!(of(&status).health, Health::Available);
}

#[test]
fn a8_old_pods_that_serve_are_available_while_new_ones_come() {
    let rolling = Observed { wanted: 2, replicas: 3, ready: 2, updated: 1, ..Observed::default() };
    assert!(rolling.is_available());
    assert_eq!(rolling.progress(), "1 of 2 replicas updated");
    let last = Observed { updated: 2, ..rolling };
    let text = "2 of 2 replicas updated, 1 of earlier revisions left";
    assert_eq!((last.is_available(), last.progress().as_str()), (true, text));
    let starting = Observed { wanted: 2, updated: 2, unavailable: 1, ..Observed::default() };
    assert!(!starting.is_available());
    assert_eq!(starting.progress(), "1 of 2 replicas available");
    assert!(!Observed::default().is_available());
}
