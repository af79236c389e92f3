//! PipelineRuns of AgentBuilds with `spec.pipeline`. B3, B4.

use super::*;

/// The shipped template and the spec, with this `spec.pipeline`.
fn with_pipeline(
    pipeline: Value,
) -> (AgentBuildSpec, Result<ResolvedTemplate, Vec<TemplateError>>) {
    let pipeline: BuildPipeline = serde_json::from_value(pipeline).expect("a pipeline");
    let template = resolved_with("dev", &config_map(TEMPLATE), &pipeline);
    (AgentBuildSpec { pipeline: Some(pipeline), ..spec() }, template)
}

fn task_parameters(run: &Value) -> BTreeMap<String, Value> {
    let list = run["spec"]["pipelineSpec"]["tasks"][0]["params"].as_array().expect("a list");
    let one = |p: &Value| (p["name"].as_str().expect("a name").to_owned(), p["value"].clone());
    list.iter().map(one).collect()
}

#[test]
fn b4_a_run_that_could_not_be_stored_is_not_made() {
    let step = |n: usize| {
        json!({"name": format!("s{n}"), "configMap": "convoke-step-build", "parameters": [
            {"name": "build-args", "values": vec!["ä".repeat(500); 32]},
        ]})
    };
    let clone = json!({"name": "clone", "configMap": "convoke-step-clone"});
    let push = json!({"name": "push", "configMap": "convoke-step-push"});
    let steps: Vec<_> = std::iter::once(clone).chain((0..20).map(step)).chain([push]).collect();
    let (spec, template) = with_pipeline(json!({"steps": steps}));
    let error = rendered(&spec, &template.expect("resolved")).expect_err("too large");
    assert_eq!(error.reason(), "PipelineRunTooLarge");
    assert!(error.to_string().contains("use fewer steps"), "{error}");
}

#[test]
fn b3_b4_an_agent_build_changes_the_shipped_pipeline() {
    let hostile = "quay.io/x/buildah:1 \"; rm -rf /\n#";
    let (spec, template) = with_pipeline(json!({
        "parameters": [{"name": "buildah-image", "value": hostile}],
        "steps": [
            {"name": "clone", "configMap": "convoke-step-clone"},
            {"name": "try", "configMap": "convoke-step-build", "parameters": [
                {"name": "dockerfile", "value": "Dockerfile.test"}, {"name": "build-args", "values": ["A=1"]},
            ]},
            {"name": "build", "configMap": "convoke-step-build"},
            {"name": "verify", "configMap": "convoke-step-verify", "enabled": false},
            {"name": "push", "configMap": "convoke-step-push"},
        ],
    }));
    let run = rendered(&spec, &template.expect("resolved")).expect("rendered");
    let task = &run["spec"]["pipelineSpec"]["tasks"][0];
    let steps: Vec<_> = task["taskSpec"]["steps"].as_array().expect("a list").iter().collect();
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["clone", "try", "build", "push"]);
    let parameters = task_parameters(&run);
    assert_eq!(parameters["try_dockerfile"], "Dockerfile.test");
    assert_eq!(parameters["try_build-args"], json!(["A=1"]));
    assert_eq!(parameters["build_dockerfile"], "$(params.dockerfile)");
    assert_eq!(parameters["build_build-args"], json!(["$(params.build-args[*])"]));
    assert_eq!(parameters["try_buildah-image"], hostile);
    // It is a value, and nowhere else.
    let text = run.to_string();
    assert_eq!(text.matches("rm -rf /\\n#").count(), 2, "{text}");
    assert!(steps.iter().all(|step| !step["script"].to_string().contains("buildah:1")));
}

#[test]
fn b4_b5_what_an_agent_build_must_not_choose_in_the_shipped_pipeline() {
    // Their images run with credentials.
    for (name, step) in [("git-image", "clone"), ("convoke-image", "push")] {
        let (_, template) = with_pipeline(json!({"parameters": [{"name": name, "value": "evil"}]}));
        let errors = template.expect_err("refused");
        let said = errors[0].to_string();
        assert_eq!(errors[0].reason(), "ParameterNotAllowed");
        assert!(
            errors
                .iter()
                .any(|error| error.to_string().contains(&format!("step {step}: parameter {name}"))),
            "{said}"
        );
    }
}

#[test]
fn b4_the_hash_of_the_parameters_says_what_they_are() {
    let hash = |pipeline: Value, change: fn(&mut AgentBuildSpec)| {
        let (mut spec, template) = with_pipeline(pipeline);
        change(&mut spec);
        parameters_hash(&template.expect("resolved"), &spec, "registry.example.com")
    };
    let base = hash(json!({}), |_| {});
    assert_eq!(base.len(), 64);
    assert_eq!(
        hash(json!({}), |spec| spec.output.tag = "v1".into()),
        base,
        "no step has it for the image"
    );
    let set = |name: &str, value: &str| json!({"parameters": [{"name": name, "value": value}]});
    let all = BTreeSet::from([
        base.clone(),
        hash(set("buildah-image", "mirror/buildah:1"), |_| {}),
        hash(set("dockerfile", "Other"), |_| {}),
        hash(json!({}), |spec| spec.dockerfile = "Third".into()),
        hash(json!({}), |spec| spec.build_args = BTreeMap::new()),
    ]);
    assert_eq!(all.len(), 5);
    // It is about values, whoever sets them.
    assert_eq!(hash(set("dockerfile", "Dockerfile"), |_| {}), base);
}

#[test]
fn b3_b4_b5_an_image_is_tested_before_it_is_pushed_and_without_credentials() {
    let hostile = "'; rm -rf / #\n$HOME `id`";
    let pipeline = |parameters: Value| {
        with_pipeline(json!({"steps": [
            {"name": "clone", "configMap": "convoke-step-clone"},
            {"name": "build", "configMap": "convoke-step-build"},
            {"name": "test", "configMap": "convoke-step-test", "parameters": parameters},
            {"name": "push", "configMap": "convoke-step-push"},
        ]}))
    };
    let command = |values: Value| json!([{"name": "test-command", "values": values}]);
    let (spec, template) = pipeline(command(json!(["/test", hostile, "--push"])));
    let nonce = "0123456789abcdef".to_owned();
    let secrets = RunSecrets { workspaces: vec!["git-auth", "push-auth"], nonce };
    let run = rendered_with(&spec, &template.expect("resolved"), Some(&secrets)).expect("rendered");
    let steps = steps_of(&run);
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["clone", "build", "test", "push"]);
    let parameters = task_parameters(&run);
    assert_eq!(parameters["test_test-command"], json!(["/test", hostile, "--push"]));
    let test = steps[2];
    // What a step does not name, Tekton does not mount there.
    assert_eq!(test["workspaces"], Value::Null);
    assert_eq!(test["args"], json!(["$(params.test_test-command[*])"]));
    assert!(!test["script"].as_str().expect("a script").contains("rm -rf"), "{test}");
    assert_eq!(test["securityContext"]["allowPrivilegeEscalation"], false);
    // There is no command that would do for all images.
    let (_, template) = pipeline(json!([]));
    let errors = template.expect_err("no command");
    assert_eq!(errors[0].reason(), "MissingParameter");
    assert_eq!(errors[0].to_string(), "step test needs a value for parameter test-command");
}
