//! The schema of AgentBuilds.

use super::*;

#[test]
fn b11_g10_what_does_not_go_with_append_is_refused_offline() {
    let build = |change: Value| {
        let mut spec = json!({"source": {"gitSync": {}}, "output": {"image": "a"}, "strategy": "Append", "append": {"baseImage": "python:3.13"}});
        for (field, value) in change.as_object().expect("a map") {
            spec[field] = value.clone();
        }
        findings(Kind::AgentBuild, spec)
    };
    assert_eq!(
        build(json!({"buildArgs": {}, "dockerfile": "Dockerfile", "layerCache": false})),
        []
    );
    for (change, at, code) in [
        (json!({"strategy": "Dockerfile"}), "/spec", code::RULE),
        (json!({"buildArgs": {"A": "1"}}), "/spec/buildArgs", code::RULE),
        (json!({"dockerfile": "Other"}), "/spec/dockerfile", code::RULE),
        (json!({"layerCache": true}), "/spec/layerCache", code::RULE),
        (json!({"append": {"baseImage": "python"}}), "/spec/append/baseImage", code::RULE),
        (json!({"append": {"baseImage": "a:1", "into": "/proc"}}), "/spec/append/into", code::RULE),
        (json!({"append": {"baseImage": "a:1", "into": "app"}}), "/spec/append/into", code::VALUE),
        (
            json!({"append": {"baseImage": "a:1", "lockFile": "uv.lock"}}),
            "/spec/append/lockFile",
            code::RULE,
        ),
        (
            json!({"append": {"baseImage": "a:1", "lockFile": "../requirements.txt"}}),
            "/spec/append/lockFile",
            code::VALUE,
        ),
        (
            json!({"append": {"baseImage": "a:1", "lockFile": "requirements.txt", "platform": "linux/arm64"}}),
            "/spec/append",
            code::RULE,
        ),
        (
            json!({"append": {"baseImage": "a:1", "platform": "windows/amd64"}}),
            "/spec/append/platform",
            code::VALUE,
        ),
    ] {
        assert_eq!(build(change.clone()), [(at.to_owned(), code)], "{change}");
    }
}

#[test]
fn b1_g10_a_dockerfile_outside_of_the_source_folder_is_refused_offline() {
    let build = |dockerfile: &str| {
        let spec =
            json!({"source": {"gitSync": {}}, "output": {"image": "a"}, "dockerfile": dockerfile});
        findings(Kind::AgentBuild, spec)
    };
    for path in ["Dockerfile", "a/.docker/Dockerfile", "a/b-c_d/Dockerfile..old"] {
        assert_eq!(build(path), [], "{path}");
    }
    for path in ["../Dockerfile", "a/../../Dockerfile", "a/..", "/Dockerfile", "a//b", "a/"] {
        assert_eq!(build(path), [("/spec/dockerfile".to_owned(), code::VALUE)], "{path}");
    }
}

#[test]
fn b3_b4_g10_a_pipeline_that_is_not_allowed_is_refused_offline() {
    let build = |pipeline: Value| {
        let spec =
            json!({"source": {"gitSync": {}}, "output": {"image": "a"}, "pipeline": pipeline});
        findings(Kind::AgentBuild, spec)
    };
    let step = |change: Value| {
        let mut step = json!({"name": "scan", "configMap": "scan"});
        for (field, value) in change.as_object().expect("a map") {
            step[field] = value.clone();
        }
        json!({"steps": [step]})
    };
    let many = |count: usize| -> Vec<_> {
        (0..count).map(|n| json!({"name": format!("p{n}"), "value": "x"})).collect()
    };
    let whole = json!({
        "parameters": [{"name": "dockerfile", "value": "x\n$y"}, {"name": "build-args", "values": []}],
        "steps": [{"name": "a", "configMap": "a.b"}, {"name": "b", "configMap": "b", "enabled": false,
            "parameters": [{"name": "p", "value": ""}], "when": [{"input": "$(params.p)", "operator": "notin", "values": ["x"]}]}],
    });
    assert_eq!(build(whole), []);
    assert_eq!(build(json!({})), []);
    assert_eq!(build(json!({"parameters": many(64)})), []);
    let at = "/spec/pipeline/parameters";
    let first = "/spec/pipeline/steps/0";
    for (pipeline, at, code) in [
        (json!({"parameters": many(65)}), at.to_owned(), code::VALUE),
        (step(json!({"parameters": many(33)})), format!("{first}/parameters"), code::VALUE),
        (json!({"parameters": ([many(1), many(1)].concat())}), format!("{at}/1"), code::VALUE),
        (json!({"parameters": [{"name": "a"}]}), format!("{at}/0"), code::RULE),
        (
            json!({"parameters": [{"name": "a", "value": "", "values": []}]}),
            format!("{at}/0"),
            code::RULE,
        ),
        (
            json!({"parameters": [{"name": "a b", "value": ""}]}),
            format!("{at}/0/name"),
            code::VALUE,
        ),
        (
            json!({"parameters": [{"name": "revision", "value": ""}]}),
            format!("{at}/0/name"),
            code::RULE,
        ),
        (
            step(json!({"parameters": [{"name": "image", "value": ""}]})),
            format!("{first}/parameters/0/name"),
            code::RULE,
        ),
        (
            json!({"parameters": [{"name": "a", "value": "$(x)"}]}),
            format!("{at}/0/value"),
            code::RULE,
        ),
        (
            json!({"parameters": [{"name": "a", "values": ["$(x)"]}]}),
            format!("{at}/0/values"),
            code::RULE,
        ),
        (
            json!({"parameters": [{"name": "a", "value": "x".repeat(4097)}]}),
            format!("{at}/0/value"),
            code::VALUE,
        ),
        (json!({"parameters": [{"name": "a", "value": 5}]}), format!("{at}/0/value"), code::TYPE),
        (step(json!({"enabled": false})), "/spec/pipeline/steps".into(), code::RULE),
        (step(json!({"name": "A"})), format!("{first}/name"), code::VALUE),
        (step(json!({"configMap": "../x"})), format!("{first}/configMap"), code::VALUE),
        (
            step(json!({"when": [{"input": "x", "operator": "is", "values": ["x"]}]})),
            format!("{first}/when/0/operator"),
            code::VALUE,
        ),
        (step(json!({"taskSpec": {}})), format!("{first}/taskSpec"), code::UNKNOWN_FIELD),
    ] {
        assert_eq!(build(pipeline.clone()), [(at, code)], "{pipeline}");
    }
}

#[test]
fn g10_b1_a_duration_without_a_unit_is_told_how_to_write_it() {
    let spec = json!({"source": {"gitSync": {}}, "output": {"image": "a"}, "timeout": 20});
    let all = Schemas::shared().check(Kind::AgentBuild, "x", &spec);
    let finding = all.iter().find(|one| one.pointer == "/spec/timeout").expect("a finding");
    assert_eq!(finding.code, code::TYPE);
    assert_eq!(finding.hint.as_deref(), Some("a duration has a unit (ms, s, m, h): write 20m"));
}
