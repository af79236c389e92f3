use serde_json::json;

use super::*;

fn read(status: Value) -> Run {
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "annotations": {BUILD_KEY: "k", keys::COMMIT: "c", ATTEMPT: "2", IMAGE: "r:5000/i"}, "ownerReferences": [
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
fn b5_a_run_that_waits_for_its_secrets_names_them() {
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r"},
        "spec": {"status": "PipelineRunPending", "workspaces": [
            {"name": "source", "emptyDir": {}},
            {"name": "git-auth", "secret": {"secretName": "r-1-git-auth"}},
        ]},
        "status": {"conditions": [{"type": "Succeeded", "status": "Unknown", "reason": "PipelineRunPending"}]},
    });
    let run = Run::read(&serde_json::from_value(object).expect("an object"));
    assert!(run.held && run.is_running() && !run.stopping);
    assert_eq!(run.secrets, BTreeMap::from([("git-auth".into(), "r-1-git-auth".into())]));
    assert!(!read(json!(null)).held);
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
        let results = json!([{"name": name, "value": format!("{digest}\n")}, {"name": "IMAGE_URL", "value": "r:5000/i:t"}]);
        assert_eq!(ended("True", results), RunOutcome::Built { digest: digest.clone() });
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

#[test]
fn b6_an_image_under_another_name_is_not_taken() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (url, taken) in [
        ("r:5000/i:t".to_owned(), true),
        ("r:5000/i".to_owned(), true),
        (format!("r:5000/i@sha256:{}", "b".repeat(64)), true),
        ("r:5000/other:t".into(), false),
        ("evil.example.com/i:t".into(), false),
    ] {
        let results =
            json!([{"name": "IMAGE_DIGEST", "value": digest}, {"name": "IMAGE_URL", "value": url}]);
        match ended("True", results) {
            RunOutcome::Built { .. } => assert!(taken, "{url}"),
            RunOutcome::Failed { reason, .. } => {
                assert!(!taken, "{url}");
                assert_eq!(reason, "ImageMismatch");
            }
            RunOutcome::Running | RunOutcome::Unattested { .. } => panic!("{url} runs"),
        }
    }
}

#[test]
fn b7_what_stops_a_run_and_which_try_it_is() {
    let run = read(
        json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z",
        "childReferences": [{"kind": "CustomRun", "name": "x"}, {"kind": "TaskRun", "name": "r-build"}]}),
    );
    assert_eq!((run.attempt, run.task_run.as_deref()), (2, Some("r-build")));
    let (began, ended) = (run.began.expect("a time"), run.ended.expect("a time"));
    assert_eq!(ended.duration_since(began).as_secs(), 90);
    assert!(!run.stopping && run.superseded_by.is_none());
    for (word, stops) in
        [("Cancelled", true), ("StoppedRunFinally", true), ("PipelineRunPending", false)]
    {
        let object = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "spec": {"status": word},
            "metadata": {"name": "r", "annotations": {SUPERSEDED_BY: "k", SUPERSEDED_BY_COMMIT: "c"}},
        });
        let run = Run::read(&serde_json::from_value(object).expect("an object"));
        let newer = NewerBuild { key: "k".into(), commit: Some("c".into()) };
        assert_eq!((run.stopping, run.superseded_by), (stops, Some(newer)), "{word}");
    }
}

#[test]
fn b3_b11_the_digests_of_the_base_image_and_of_the_list_of_packages_are_read() {
    let of = |results: Value| {
        let run = read(json!({"results": results}));
        (run.base_digest, run.sbom_digest)
    };
    let digest = |letter: &str| format!("sha256:{}", letter.repeat(64));
    let results = json!([
        {"name": "SBOM_DIGEST", "value": digest("b")},
        {"name": "BASE_DIGEST", "value": format!("{}\n", digest("a"))},
    ]);
    assert_eq!(of(results), (Some(digest("a")), Some(digest("b"))));
    for results in [
        json!(null),
        json!([]),
        json!([{"name": "BASE_DIGEST", "value": "x"}, {"name": "SBOM_DIGEST", "value": ""}]),
        json!([{"name": "BASE_DIGEST", "value": 7}, {"name": "SBOM_DIGEST", "value": {}}]),
    ] {
        assert_eq!(of(results.clone()), (None, None), "{results}");
    }
}

#[test]
fn b13_the_digest_of_what_was_kept_is_read() {
    let of = |value: &str| {
        read(json!({"results": [{"name": "CACHE_DIGEST", "value": value}]})).cache_digest
    };
    let digest = format!("sha256:{}", "c".repeat(64));
    assert_eq!(of(&digest), Some(digest.clone()));
    assert_eq!((of("none"), of(""), of("sha256:../x")), (None, None, None));
}

#[test]
fn b12_a_run_that_is_to_be_attested_has_built_nothing_before_it_is() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let read = |asks: bool, marked: bool, status: &str| {
        let mut object = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": "r", "annotations": {}},
            "spec": {"params": [{"name": "repo-url", "value": "u"}]},
            "status": {"conditions": [{"type": "Succeeded", "status": status}], "results": [{"name": "IMAGE_DIGEST", "value": digest}]},
        });
        if asks {
            let asked = json!({"name": "provenance", "value": "{}"});
            object["spec"]["params"].as_array_mut().expect("params").push(asked);
        }
        if marked {
            object["metadata"]["annotations"][PROVENANCE] = json!("sha256:1");
        }
        Run::read(&serde_json::from_value(object).expect("an object"))
    };
    let built = RunOutcome::Built { digest: digest.clone() };
    assert_eq!(read(false, false, "True").outcome, built);
    assert_eq!(read(true, true, "True").outcome, built);
    let waits = read(true, false, "True");
    assert_eq!(waits.outcome, RunOutcome::Unattested { digest: digest.clone() });
    assert!(waits.is_unattested() && !waits.is_running());
    // What failed or was stopped gets none.
    for marked in [true, false] {
        assert!(matches!(read(true, marked, "False").outcome, RunOutcome::Failed { .. }));
        assert!(read(true, marked, "Unknown").is_running());
    }
}
