use serde_json::json;

use super::*;

/// As the shipped steps that need nothing.
fn restricted() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": 65532, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    })
}

fn with(change: impl Fn(&mut Value)) -> Value {
    let mut context = restricted();
    change(&mut context);
    context
}

#[test]
fn b5_the_level_of_a_step_is_that_of_pod_security() {
    let cases = [
        (restricted(), Level::Restricted),
        (with(|c| c["capabilities"]["add"] = json!(["NET_BIND_SERVICE"])), Level::Restricted),
        (with(|c| c["seccompProfile"] = json!({"type": "Localhost"})), Level::Restricted),
        (Value::Null, Level::Baseline),
        (with(|c| c["runAsUser"] = json!(0)), Level::Baseline),
        (with(|c| c["runAsNonRoot"] = json!(false)), Level::Baseline),
        (with(|c| c["allowPrivilegeEscalation"] = Value::Null), Level::Baseline),
        (with(|c| c["capabilities"]["drop"] = json!(["CHOWN"])), Level::Baseline),
        (with(|c| c["capabilities"]["add"] = json!(["SETFCAP"])), Level::Baseline),
        (with(|c| c["seccompProfile"] = Value::Null), Level::Baseline),
        (with(|c| c["capabilities"]["add"] = json!(["SYS_ADMIN"])), Level::Privileged),
        (with(|c| c["privileged"] = json!(true)), Level::Privileged),
        (with(|c| c["seccompProfile"] = json!({"type": "Unconfined"})), Level::Privileged),
        (with(|c| c["appArmorProfile"] = json!({"type": "Unconfined"})), Level::Privileged),
    ];
    for (context, want) in cases {
        assert_eq!(of(&context), want, "{context}");
    }
}

#[test]
fn b5_a_pod_needs_what_its_worst_step_needs() {
    let run = |contexts: &[Value]| {
        let steps: Vec<_> = contexts.iter().map(|one| json!({"securityContext": one})).collect();
        of_run(&json!({"pipelineSpec": {"tasks": [{"taskSpec": {"steps": steps}}]}}))
    };
    assert_eq!(run(&[restricted(), restricted()]), Level::Restricted);
    assert_eq!(run(&[restricted(), Value::Null]), Level::Baseline);
    assert_eq!(run(&[json!({"privileged": true}), restricted(), Value::Null]), Level::Privileged);
    assert_eq!(of_run(&Value::Null), Level::Restricted, "no step needs anything");
}
