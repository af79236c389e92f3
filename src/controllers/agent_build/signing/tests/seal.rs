use kube::api::DynamicObject;
use serde_json::json;

use super::*;

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn operator(byte: u8) -> SealKey {
    SealKey::of(&MacKey::new(&[byte; 32]))
}

/// A run that is to be attested, as the API server has stored it; `change` makes it another one.
fn stored(change: impl FnOnce(&mut Value)) -> Run {
    let owner = json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "name": "reviewer", "uid": "u", "controller": true,
    });
    let mut object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {
            "namespace": "team", "name": "reviewer-1", "ownerReferences": [owner],
            "annotations": {
                "convoke.dev/build-key": "a".repeat(64), "convoke.dev/image": "r/team/reviewer", "convoke.dev/commit": "1".repeat(40),
            },
        },
        "spec": {
            "status": "PipelineRunPending",
            "params": [{"name": "provenance", "value": "{}"}],
            "pipelineSpec": {"tasks": [{"name": "build", "taskSpec": {"steps": [{"name": "build", "image": "buildah"}]}}]},
            "taskRunTemplate": {"serviceAccountName": "default"},
        },
    });
    change(&mut object);
    Run::read(&serde_json::from_value::<DynamicObject>(object).expect("an object"))
}

#[test]
fn b12_a_seal_is_of_one_run_and_of_what_it_does() {
    let key = operator(1);
    let seal = key.seal(&stored(|_| {}), UID).expect("a seal");
    let with = |change: &dyn Fn(&mut Value)| {
        stored(|run| {
            change(run);
            run["metadata"]["annotations"][SEAL] = seal.as_str().into();
        })
    };
    let ours = with(&|_| {});
    assert!(key.is_right(&ours, UID));
    assert!(!key.is_right(&ours, "another"), "a copy");
    assert!(!operator(2).is_right(&ours, UID), "of another operator");
    assert!(!key.is_right(&stored(|_| {}), UID), "without one");
    // It begins, it is stopped, and it ends.
    let goes_on: [&dyn Fn(&mut Value); 4] = [
        &|run| drop(run["spec"].as_object_mut().expect("a map").remove("status")),
        &|run| run["spec"]["status"] = "Cancelled".into(),
        &|run| run["status"] = json!({"conditions": []}),
        &|run| run["metadata"]["labels"] = json!({"other": "label"}),
    ];
    for (at, change) in goes_on.iter().enumerate() {
        assert!(key.is_right(&with(change), UID), "{at}");
    }
    let forged: [&dyn Fn(&mut Value); 9] = [
        &|run| {
            run["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"][0]["image"] =
                "evil".into();
        },
        &|run| run["spec"]["taskRunTemplate"]["serviceAccountName"] = "evil".into(),
        &|run| run["spec"]["params"][0]["value"] = "{\"mode\":\"prod\"}".into(),
        &|run| run["metadata"]["annotations"]["convoke.dev/image"] = "r/team/other".into(),
        &|run| run["metadata"]["annotations"]["convoke.dev/build-key"] = "b".repeat(64).into(),
        &|run| run["metadata"]["annotations"]["convoke.dev/commit"] = "2".repeat(40).into(),
        &|run| run["metadata"]["ownerReferences"][0]["uid"] = "another".into(),
        &|run| run["metadata"]["name"] = "reviewer-2".into(),
        &|run| run["metadata"]["namespace"] = "evil".into(),
    ];
    for (at, change) in forged.iter().enumerate() {
        assert!(!key.is_right(&with(change), UID), "{at}");
    }
    for seal in ["", "0", "zz", "é", &seal[..62], &format!("{seal}00")] {
        let run = stored(|run| run["metadata"]["annotations"][SEAL] = seal.into());
        assert!(!key.is_right(&run, UID), "{seal}");
    }
}

#[test]
fn b12_only_what_is_to_be_attested_has_a_seal() {
    let plain = stored(|run| run["spec"]["params"] = json!([]));
    assert_eq!((operator(1).seal(&plain, UID), plain.spec), (None, None));
    assert_eq!(format!("{:?}", operator(1)), "SealKey(…)");
}

#[test]
fn b7_a_digest_of_secrets_is_of_their_parts_and_of_one_operator() {
    let digest = |operator: &SealKey, parts: &[&str]| {
        let parts: Vec<_> = parts.iter().map(|part| part.as_bytes().to_vec()).collect();
        operator.of_credentials(&parts)
    };
    let key = operator(1);
    let one = digest(&key, &["push", "name", "password"]);
    assert_eq!(one, digest(&key, &["push", "name", "password"]));
    assert_eq!(one.len(), 32);
    for other in [&["push", "namep", "assword"][..], &["push", "name"], &[], &["password"]] {
        assert_ne!(one, digest(&key, other), "{other:?}");
    }
    assert_ne!(one, digest(&operator(2), &["push", "name", "password"]));
}
