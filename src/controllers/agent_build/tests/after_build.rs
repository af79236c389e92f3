use std::collections::BTreeMap;

use super::super::stage::stage;
use super::*;

/// A stage whose TaskSpec has one step and these workspaces.
fn made(name: &str, workspaces: &[&str]) -> Stage {
    let mentioned: Vec<_> =
        workspaces.iter().map(|name| format!("--at=$(workspaces.{name}.path)/x")).collect();
    let script: Vec<_> =
        workspaces.iter().map(|name| format!("ls $(workspaces.{name}.path)")).collect();
    let script = script.concat();
    let task_spec = json!({
        "workspaces": workspaces.iter().map(|name| json!({"name": name, "optional": name.ends_with("-auth")})).collect::<Vec<_>>(),
        "steps": [{"name": "s", "image": "i", "args": mentioned, "script": script}],
    });
    stage(name, &task_spec, &BTreeMap::new()).expect("a stage")
}

/// The workspaces that each step sees by name, and what it mentions.
fn seen(stages: &[Cow<'_, Stage>]) -> Vec<(Value, Value)> {
    let steps = stages.iter().flat_map(|stage| &stage.steps);
    steps.map(|step| (step["workspaces"].clone(), step["args"].clone())).collect()
}

#[test]
fn b3_what_was_before_the_copy_is_not_seen_after_it_nor_the_other_way_round() {
    let all = [
        made("clone", &["source", "git-auth"]),
        made("build", &["source"]),
        made("copy", &["source", "after-build"]),
        made("alone", &[]),
        made("push", &["source", "push-auth"]),
    ];
    let stages = separated(all.iter());
    let name = |name: &str| json!({"name": name});
    let at = |name: &str| format!("--at=$(workspaces.{name}.path)/x");
    assert_eq!(
        seen(&stages),
        [
            (json!([name("git-auth"), name("source")]), json!([at("source"), at("git-auth")])),
            (json!([name("source")]), json!([at("source")])),
            (
                json!([name("source"), name("after-build")]),
                json!([at("source"), at("after-build")])
            ),
            (Value::Null, json!([])),
            (
                json!([name("push-auth"), name("after-build")]),
                json!([at("after-build"), at("push-auth")])
            ),
        ]
    );
    let script = stages[4].steps[0]["script"].as_str().expect("a script");
    assert_eq!(script, "ls $(workspaces.after-build.path)ls $(workspaces.push-auth.path)");
    // All steps may write to /workspace: a mount below it could be taken away by another step.
    for stage in &stages[2..] {
        if let Some(declared) = stage.workspaces.get("after-build") {
            assert_eq!(*declared, json!({"name": "after-build", "mountPath": "/after-build"}));
        }
    }
    assert!(!stages[4].workspaces.contains_key("source"));
    assert!(stages[4].workspaces.contains_key("after-build"));
}

#[test]
fn b3_without_a_step_that_fills_it_there_is_no_wall() {
    let all = [made("clone", &["source", "git-auth"]), made("push", &["source", "push-auth"])];
    let same = separated(all.iter());
    assert!(same.iter().zip(&all).all(|(one, other)| **one == *other));
}
