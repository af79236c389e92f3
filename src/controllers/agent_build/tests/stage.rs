use serde_json::json;

use super::*;

fn made(name: &str, yaml: &str) -> Result<Stage, Vec<String>> {
    let task_spec: Value = serde_saphyr::from_str(yaml).expect("YAML");
    let names = task_spec["params"].as_array().cloned().unwrap_or_default();
    let declared = names.iter().map(|parameter| {
        let list = parameter["type"] == "array";
        let type_ = if list { ParameterType::List } else { ParameterType::Text };
        (parameter["name"].as_str().expect("a name").to_owned(), type_)
    });
    stage(name, &task_spec, &declared.collect())
}

#[test]
fn b3_names_get_the_name_of_the_step_in_front_and_references_follow() {
    let stage = made(
        "scan",
        "
params:
  - {name: level, default: low, description: how bad}
  - {name: with.dot}
  - {name: list, type: array}
volumes: [{name: work, emptyDir: {}}, {name: map, configMap: {name: '$(params.level)'}}]
workspaces: [{name: source, description: the files}, {name: git-auth, optional: true, readOnly: true}]
results: [{name: found, description: how many}]
steps:
  - name: first
    image: $(params.level)
    args: ['$(params[\"with.dot\"])', \"$(params['level'])\", '$(params.list[*])', '$(params.list[0])', '$(results.found.path)']
    env: [{name: HERE, value: 'a $(workspaces.source.path) b $(context.taskRun.name) $(HOME) $('}]
    volumeMounts: [{name: work, mountPath: /work}]
  - image: x
    args: ['$(steps.first.results.a)']
    script: echo $(steps-of-mine)
",
    )
    .expect("a stage");
    let [first, second] = &stage.steps[..] else { panic!("{:?}", stage.steps) };
    assert_eq!((&first["name"], &second["name"]), (&json!("scan-first"), &json!("scan-2")));
    assert_eq!(first["image"], "$(params.scan_level)");
    let args = [
        "$(params[\"scan_with.dot\"])",
        "$(params.scan_level)",
        "$(params.scan_list[*])",
        "$(params.scan_list[0])",
        "$(results.found.path)",
    ];
    assert_eq!(first["args"], json!(args));
    let kept = "a $(workspaces.source.path) b $(context.taskRun.name) $(HOME) $(";
    assert_eq!(first["env"][0]["value"], kept);
    assert_eq!(first["volumeMounts"][0]["name"], "scan-work");
    assert_eq!(second["args"], json!(["$(steps.scan-first.results.a)"]));
    assert_eq!(second["script"], "echo $(steps-of-mine)");
    assert_eq!(stage.volumes[0]["name"], "scan-work");
    assert_eq!(stage.volumes[1]["configMap"]["name"], "$(params.scan_level)");
    let level = json!({"name": "scan_level", "type": "string", "default": "low"});
    assert_eq!(stage.params[0], level);
    assert_eq!(stage.params[2]["type"], "array");
    assert_eq!(stage.results["found"], json!({"name": "found"}));
    assert_eq!(stage.workspaces.keys().collect::<Vec<_>>(), ["git-auth", "source"]);
}

#[test]
fn b3_what_is_inside_of_another_reference_follows_too() {
    let yaml = "
params: [{name: level}]
steps:
  - name: a
    image: x
    args: ['$(cmd $(params.level))', 'a $( b $(params.level) c', '$$(params.level)', '$(steps.step-b.exitCode.path)']
  - {name: b, image: x}
";
    let stage = made("scan", yaml).expect("a stage");
    let args = [
        "$(cmd $(params.scan_level))",
        "a $( b $(params.scan_level) c",
        "$$(params.scan_level)",
        "$(steps.step-scan-b.exitCode.path)",
    ];
    assert_eq!(stage.steps[0]["args"], json!(args));
}

#[test]
fn b3_a_step_alone_has_the_name_of_the_templates_step() {
    let stage = made("clone", "{steps: [{name: anything, image: x}]}").expect("a stage");
    assert_eq!(stage.steps[0]["name"], "clone");
}

#[test]
fn b3_what_refers_to_nothing_is_told() {
    let long = "s".repeat(40);
    for (yaml, said) in [
        ("{steps: [{image: $(params.levle)}]}", "$(params.levle): it declares no such parameter"),
        ("{steps: [{image: $(inputs.params.x)}]}", "write $(params.NAME)"),
        ("{steps: [{image: '$(params[x])'}]}", "write $(params.NAME)"),
        ("{steps: [{image: $(tasks.clone.results.x)}]}", "a step of a build sees no other task"),
        ("{steps: [{image: $(steps.other.results.x)}]}", "it has no such step"),
        (
            "{steps: [{name: a, image: $(steps.a.exitCode.path)}]}",
            "write $(steps.step-NAME.exitCode.path)",
        ),
        ("{steps: [{image: $(workspaces.push-auth.path)}]}", "it declares no such workspace"),
        (
            "{workspaces: [{name: source, mountPath: /w/$(params.x)}], steps: [{image: x}]}",
            "must not contain",
        ),
        ("{steps: [{image: $(a $(params.x))}]}", "it declares no such parameter"),
        (
            "{steps: [{image: x, volumeMounts: [{name: nowhere}]}]}",
            "a volume that is not among its volumes: \"nowhere\"",
        ),
        (
            "{volumes: [{name: v, configMap: {name: $(params.x)}}], steps: [{image: x}]}",
            "it declares no such parameter",
        ),
        (
            &format!("{{steps: [{{name: {long}, image: x}}, {{image: y}}]}}"),
            "more than 58 characters",
        ),
    ] {
        let errors = made("a-name-that-is-long", yaml).expect_err(yaml);
        assert!(errors.iter().any(|error| error.contains(said)), "{yaml}: {errors:?}");
    }
}
