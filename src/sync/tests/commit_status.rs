use super::*;

use serde_json::{Value, json};

const COMMIT: &str = "0123456789012345678901234567890123456789";

/// What is told of a GitSync with this status, merged over one of a commit that was applied.
fn told(status: Value) -> Option<(State, String)> {
    let mut all = json!({
        "observedGeneration": 3,
        "lastAttemptedRevision": format!("main@sha1:{COMMIT}"),
        "lastAppliedRevision": format!("main@sha1:{COMMIT}"),
        "objects": {"total": 12, "ready": 3, "failed": 0},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    for (key, value) in status.as_object().expect("an object") {
        all[key] = value.clone();
    }
    let sync = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": "main", "namespace": "team", "generation": 3},
        "spec": {"url": "https://github.com/team/agents"}, "status": all});
    let sync: GitSync = serde_json::from_value(sync).expect("a GitSync");
    let (status, _) = wanted(&sync)?;
    assert_eq!((status.commit.as_str(), status.context.as_str()), (COMMIT, "convoke/team/main"));
    Some((status.state, status.description))
}

fn because(reason: &str) -> Value {
    json!([{"type": "Ready", "status": "False", "reason": reason, "message": "canary",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

#[test]
fn g19_the_end_of_a_sync_is_told_in_one_line() {
    assert_eq!(told(json!({})), Some((State::Success, "applied: 12 objects".into())));
    let held = json!({"conditions": because("PruneHeld"),
        "pendingPrune": {"digest": "d", "count": 2, "objects": [], "reason": ""}});
    assert_eq!(told(held), Some((State::Pending, "2 deletes wait for an approval".into())));
    let problem = json!({"severity": "Error", "path": "team/a.yaml", "line": 9, "column": 3,
        "code": "CVK0102", "message": "canary"});
    let broken =
        json!({"conditions": because("ProblemsFound"), "problems": [problem], "problemCount": 2});
    let expected = "2 problems, the first in team/a.yaml:9:3 (CVK0102)";
    assert_eq!(told(broken), Some((State::Failure, expected.into())));
    let failed = told(json!({"conditions": because("ApplyFailed")}));
    assert_eq!(failed, Some((State::Failure, "ApplyFailed: see the status of the GitSync".into())));
}

#[test]
fn g19_nothing_is_told_of_a_commit_while_nothing_certain_is_known_of_it() {
    // Its repository cannot be read: that says nothing of the commit that was applied before.
    for reason in
        ["AuthenticationFailed", "Timeout", "Progressing", "DependencyNotReady", "Suspended"]
    {
        assert_eq!(told(json!({"conditions": because(reason)})), None, "{reason}");
    }
    let other = format!("main@sha1:{}", "f".repeat(40));
    assert_eq!(told(json!({"lastAppliedRevision": other})), None);
    assert_eq!(told(json!({"observedGeneration": 2})), None, "the status is of an earlier spec");
    assert_eq!(told(json!({"lastAttemptedRevision": "local@state"})), None);
}
