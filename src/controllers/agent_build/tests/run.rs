use serde_json::json;

use super::*;

fn read(status: Value) -> Run {
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "annotations": {BUILD_KEY: "k", keys::COMMIT: "c"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "y"},
            {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "name": "b", "uid": "u", "controller": true},
        ]},
        "status": status,
    });
    Run::read(&serde_json::from_value(object).expect("an object"))
}

fn ended(status: &str, results: Value) -> RunOutcome {
    read(json!({"conditions": [{"type": "Succeeded", "status": status, "reason": "Why", "message": "because"}], "results": results})).outcome
}

#[test]
fn b6_a_run_is_done_when_its_condition_says_so() {
    assert!(!read(json!(null)).started);
    let running = read(
        json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Succeeded", "status": "Unknown", "reason": "Running"}]}),
    );
    assert!(running.started);
    assert_eq!(running.outcome, RunOutcome::Running);
    assert_eq!(
        (running.owner_name.as_deref(), running.owner_uid.as_deref()),
        (Some("b"), Some("u"))
    );
    let digest = format!("sha256:{}", "a".repeat(64));
    for name in ["IMAGE_DIGEST", "digest"] {
        let results = json!([{"name": name, "value": format!("{digest}\n")}, {"name": "IMAGE_URL", "value": "r/i:t"}]);
        assert_eq!(
            ended("True", results),
            RunOutcome::Built { digest: digest.clone(), url: Some("r/i:t".into()) }
        );
    }
    assert_eq!(
        ended("False", json!([])),
        RunOutcome::Failed { reason: "Why".into(), message: "because".into() }
    );
}

#[test]
fn b6_a_success_without_a_digest_is_a_failure() {
    for (results, want) in [
        (json!(null), "DigestMissing"),
        (json!([{"name": "IMAGE_DIGEST", "value": ["x"]}]), "DigestMissing"),
        (json!([{"name": "IMAGE_DIGEST", "value": "latest"}]), "DigestInvalid"),
        (json!([{"name": "IMAGE_DIGEST", "value": "sha256:abc"}]), "DigestInvalid"),
    ] {
        let RunOutcome::Failed { reason, .. } = ended("True", results.clone()) else {
            panic!("{results} is a success")
        };
        assert_eq!(reason, want);
    }
}

#[test]
fn odd_objects_do_no_harm() {
    for status in [
        json!("x"),
        json!({"conditions": {}}),
        json!({"conditions": [1, {"type": "Succeeded", "status": 5}]}),
        json!([]),
    ] {
        assert_eq!(read(status).outcome, RunOutcome::Running);
    }
    let long = json!({"conditions": [{"type": "Succeeded", "status": "False", "reason": "not a reason", "message": "ä".repeat(4000)}]});
    let RunOutcome::Failed { reason, message } = read(long).outcome else { panic!("failed") };
    assert_eq!((reason.as_str(), message.len()), ("BuildFailed", 1024));
}
