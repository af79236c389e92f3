use serde_json::json;

use super::*;

fn paths(spec: &Value) -> Vec<String> {
    refused(spec).into_iter().map(|refused| refused.path).collect()
}

#[test]
fn b3_what_a_build_needs_is_allowed() {
    let spec = json!({
        "description": "builds", "params": [{"name": "image"}], "results": [{"name": "IMAGE_DIGEST"}],
        "workspaces": [{"name": "source"}],
        "volumes": [{"name": "containers", "emptyDir": {}}, {"name": "p", "projected": {"sources": [{"configMap": {"name": "x"}}]}}],
        "steps": [{
            "name": "build", "image": "$(params.builder)", "script": "#!/bin/sh\necho $(results.IMAGE_DIGEST.path) $(workspaces.source.path)",
            "args": ["$(params.build-args[*])"], "env": [{"name": "IMAGE", "value": "$(params.image)"}],
            "securityContext": {"runAsUser": 0, "privileged": false, "capabilities": {"drop": ["ALL"], "add": ["SETFCAP"]},
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "volumeMounts": [{"name": "containers", "mountPath": "/var/lib/containers"}],
        }],
    });
    assert_eq!(paths(&spec), Vec::<String>::new());
}

#[test]
fn b3_what_reaches_beyond_the_pod_is_refused_with_its_path() {
    for (spec, path) in [
        (
            json!({"steps": [{"securityContext": {"privileged": true}}]}),
            "steps[0].securityContext.privileged",
        ),
        (
            json!({"steps": [{"securityContext": {"privileged": "true"}}]}),
            "steps[0].securityContext.privileged",
        ),
        (
            json!({"steps": [{}, {"securityContext": {"capabilities": {"add": ["SETFCAP", "SYS_ADMIN"]}}}]}),
            "steps[1].securityContext.capabilities.add[1]",
        ),
        (
            json!({"steps": [{"securityContext": {"capabilities": {"add": ["$(params.cap)"]}}}]}),
            "steps[0].securityContext.capabilities.add[0]",
        ),
        (
            json!({"steps": [{"securityContext": {"capabilities": {"add": "ALL"}}}]}),
            "steps[0].securityContext.capabilities.add",
        ),
        (
            json!({"steps": [{"securityContext": {"seccompProfile": {"type": "Unconfined"}}}]}),
            "steps[0].securityContext.seccompProfile.type",
        ),
        (
            json!({"steps": [{"securityContext": {"procMount": "Unmasked"}}]}),
            "steps[0].securityContext.procMount",
        ),
        (json!({"steps": [{"ports": [{"containerPort": 1, "hostPort": 1}]}]}), "steps[0].ports"),
        (json!({"stepTemplate": {}}), "stepTemplate"),
        (json!({"steps": [{"workspaces": [{"name": "push-auth"}]}]}), "steps[0].workspaces"),
        (
            json!({"steps": [{"script": "", "command": ["sh"], "args": ["-c", "$(params.subfolder)"]}]}),
            "steps[0].args[1]",
        ),
        (json!({"sidecars": []}), "sidecars"),
        (json!({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}), "volumes[0].hostPath"),
        (json!({"volumes": [{"name": "x", "secret": {"secretName": "y"}}]}), "volumes[0].secret"),
        (json!({"volumes": [{"name": "x", "csi": {"driver": "y"}}]}), "volumes[0].csi"),
        (
            json!({"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
            "volumes[0].projected.sources[0].serviceAccountToken",
        ),
        (
            json!({"steps": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "y", "key": "z"}}}]}]}),
            "steps[0].env[0].valueFrom.secretKeyRef",
        ),
        (
            json!({"steps": [{"envFrom": [{"secretRef": {"name": "y"}}]}]}),
            "steps[0].envFrom[0].secretRef",
        ),
        (json!({"steps": [{"ref": {"name": "unseen-step-action"}}]}), "steps[0].ref"),
        (json!({"hostNetwork": true}), "hostNetwork"),
        (json!({"serviceAccountName": "admin"}), "serviceAccountName"),
        (json!({"podTemplate": {"hostPID": true}}), "podTemplate"),
        (json!({"steps": [{"volumeDevices": []}]}), "steps[0].volumeDevices"),
        (json!({"steps": {"0": {"securityContext": {"privileged": true}}}}), "steps"),
    ] {
        assert_eq!(paths(&spec), [path], "{spec}");
    }
}

#[test]
fn b4_values_never_enter_program_text() {
    for step in [
        json!({"script": "echo $(params.x)"}),
        json!({"script": "echo $(params['x'])"}),
        json!({"script": "echo $(inputs.params.x)"}),
        json!({"script": "echo $(tasks.clone.results.x)"}),
        json!({"command": ["$(params.x)"]}),
        json!({"command": ["sh", "-c"], "args": ["echo $(params.x)"]}),
        json!({"command": ["bash"], "args": ["-euc", "echo $(params[\"x\"])"]}),
        json!({"command": ["perl", "-e", "print '$(params.x)'"]}),
    ] {
        assert_eq!(refused(&json!({"steps": [step]})).len(), 1, "{step}");
    }
    for step in [
        json!({"script": "echo $(date) $(parameters) \"$X\"", "args": ["-c", "$(params.x)"]}),
        json!({"command": ["git"], "args": ["clone", "--", "$(params.url)"]}),
        json!({"command": ["sh", "-c", "echo \"$X\""], "env": [{"name": "X", "value": "$(params.x)"}]}),
    ] {
        assert_eq!(refused(&json!({"steps": [step]})), [], "{step}");
    }
}
