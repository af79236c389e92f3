use serde_json::{Value, json};

use super::super::resolve_template::{Bound, BuildArgs, Inputs, ResolvedTemplate, resolve};
use super::super::template::{StepSource, parse};
use super::*;

const PLAIN: &str = "
params: [{name: level, default: low}, {name: dockerfile, default: x}, {name: strategy, default: x}]
results: [{name: IMAGE_DIGEST}]
steps: [{name: s, image: i, script: echo}]
";

/// A TaskSpec with credentials.
fn with(workspace: &str) -> String {
    format!(
        "
params: [{{name: {workspace}-image, default: i}}]
workspaces: [{{name: {workspace}, optional: true}}]
steps: [{{name: s, image: $(params.{workspace}-image), script: echo}}]
"
    )
}

fn sources() -> BTreeMap<String, StepSource> {
    let source = |task: String| StepSource {
        labelled: true,
        task_spec: Some(task),
        version: None,
        profile: None,
    };
    let all =
        [("plain", PLAIN.to_owned()), ("clone", with("git-auth")), ("push", with("push-auth"))];
    all.into_iter().map(|(name, task)| (name.to_owned(), source(task))).collect()
}

fn resolved(template: &Value, pipeline: &Value) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    let steps = ["clone", "plain", "push"].map(|name| json!({"name": name, "configMap": name}));
    let mut whole = json!({"name": "t", "steps": steps});
    for (key, value) in template.as_object().expect("a map") {
        whole[key] = value.clone();
    }
    let mut template = parse("cm", Some(&whole.to_string())).expect("a template");
    let pipeline: BuildPipeline = serde_json::from_value(pipeline.clone()).expect("a pipeline");
    let overrides = apply(&mut template, Some(&pipeline))?;
    let inputs =
        Inputs { build_args: BuildArgs::None, overrides: &overrides, operator_image: "convoke:1" };
    resolve(&template, &sources(), "team", inputs)
}

fn problems(template: &Value, pipeline: &Value) -> Vec<String> {
    let errors = resolved(template, pipeline).expect_err("problems");
    errors.iter().map(|error| format!("{}: {error}", error.reason())).collect()
}

/// Steps that are called as their ConfigMaps.
fn steps(names: &[&str]) -> Value {
    let one = |name: &&str| json!({"name": name, "configMap": name});
    json!({"steps": names.iter().map(one).collect::<Vec<_>>()})
}

fn parameter(name: &str) -> Value {
    json!([{"name": name, "value": "evil"}])
}

#[test]
fn b3_steps_of_the_agent_build_replace_those_of_the_template() {
    let names = |pipeline: &Value| -> Vec<_> {
        let resolved = resolved(&json!({}), pipeline).expect("resolved");
        resolved.steps.into_iter().map(|step| step.name).collect()
    };
    assert_eq!(names(&json!({})), ["clone", "plain", "push"]);
    assert_eq!(names(&steps(&["clone", "plain"])), ["clone", "plain"]);
    let mut off = steps(&["clone", "plain", "push"]);
    off["steps"][2]["enabled"] = json!(false);
    assert_eq!(names(&off), ["clone", "plain"]);
    // What the template sets for all of its steps need not be taken by those.
    let global = json!({"globalParameters": parameter("push-auth-image")});
    assert!(resolved(&global, &steps(&["plain"])).is_ok());
    assert_eq!(
        problems(&json!({}), &steps(&["plain", "mine"])),
        ["StepNotFound: step mine: no ConfigMap mine in team"]
    );
    // The schema sees to these as well.
    for (pipeline, said) in [
        (
            json!({"steps": [{"name": "a", "configMap": "plain", "enabled": false}]}),
            "no step is enabled",
        ),
        (steps(&["plain", "plain"]), "two steps are called plain"),
        (
            json!({"steps": [{"name": "a", "configMap": "../x"}]}),
            "\"../x\" is no name of a ConfigMap",
        ),
    ] {
        assert_eq!(
            problems(&json!({}), &pipeline),
            [format!("PipelineInvalid: spec.pipeline: {said}")]
        );
    }
}

#[test]
fn b3_conditions_of_own_steps_are_decided_by_their_parameters() {
    let mut pipeline = steps(&["plain"]);
    pipeline["parameters"] =
        json!([{"name": "level", "value": "high"}, {"name": "dockerfile", "value": "Other"}]);
    let input = "$(params.level)/$(params.dockerfile)/$(params.image)";
    pipeline["steps"][0]["when"] = json!([{"input": input, "operator": "notin", "values": ["x"]}]);
    let resolved = resolved(&json!({"globalParameters": parameter("level")}), &pipeline);
    let when = &resolved.expect("resolved").steps[0].when[0];
    assert_eq!(when.input, "high/Other/$(params.image)");
    assert!(when.holds("y") && !when.holds("x"));
}

#[test]
fn b4_what_names_the_build_is_not_for_an_agent_build_to_set() {
    let mut refused = 0;
    for (name, _) in FROM_SPEC {
        let wrong = |place: &str| {
            format!(
                "ParameterNotAllowed: {place}: parameter {name} must not be set: it is set by Convoke, from spec.source, spec.output, spec.strategy, spec.append or spec.layerCache"
            )
        };
        if OVERRIDABLE.contains(&name) {
            continue;
        }
        refused += 1;
        let all = json!({"parameters": parameter(name)});
        assert_eq!(problems(&json!({}), &all), [wrong("spec.pipeline.parameters")]);
        let own =
            json!({"steps": [{"name": "a", "configMap": "plain", "parameters": parameter(name)}]});
        assert_eq!(problems(&json!({}), &own), [wrong("step a of spec.pipeline")]);
    }
    assert_eq!(refused, 19);
    for (path, is_refused) in [
        ("test/.docker/Dockerfile", false),
        ("Dockerfile..old", false),
        ("", true),
        ("/Dockerfile", true),
        ("../shared/Dockerfile", true),
        ("a/../../shared/Dockerfile", true),
        ("a/..", true),
    ] {
        let all = json!({"parameters": [{"name": "dockerfile", "value": path}]});
        let said = resolved(&json!({}), &all).err().unwrap_or_default();
        let is_told =
            said.iter().any(|one| one.to_string().contains("inside of the source folder"));
        assert_eq!(is_told, is_refused, "{path}: {said:?}");
    }
    let may = json!({"parameters": parameter("dockerfile")});
    assert!(resolved(&json!({}), &may).is_ok());
}

#[test]
fn b4_b5_a_step_with_credentials_takes_nothing_from_an_agent_build() {
    for (step, workspace) in [("clone", "git-auth"), ("push", "push-auth")] {
        let name = format!("{workspace}-image");
        let said = format!(
            "ParameterNotAllowed: step {step}: parameter {name} must not be set: the step has credentials (workspace {workspace}), so only the template sets its parameters"
        );
        let all = json!({"parameters": parameter(&name)});
        assert_eq!(problems(&json!({}), &all), [said.as_str()]);
        let mut own = steps(&[step]);
        own["steps"][0]["parameters"] = parameter(&name);
        assert!(problems(&json!({}), &own).contains(&said), "{:?}", problems(&json!({}), &own));
        // The template may.
        let global = json!({"globalParameters": parameter(&name)});
        assert!(resolved(&global, &json!({})).is_ok());
    }
    // They are not offered either.
    assert_eq!(
        problems(&json!({}), &json!({"parameters": parameter("x")})),
        [
            "UnknownParameter: spec.pipeline.parameters: the pipeline has no parameter x; those to set are dockerfile, level"
        ]
    );
}

#[test]
fn b5_nothing_of_the_repository_runs_before_the_step_with_its_credentials() {
    let late = |names: &[&str]| problems(&json!({}), &steps(names));
    let said = [
        "StepOrderNotAllowed: step clone has the workspace git-auth: only steps that have it, too, may come before it",
    ];
    assert_eq!(late(&["plain", "clone"]), said);
    assert_eq!(late(&["push", "clone", "plain"]), said);
    let mut twice = steps(&["clone", "clone", "plain"]);
    twice["steps"][1]["name"] = json!("again");
    assert!(resolved(&json!({}), &twice).is_ok());
    // One that is left out does not count.
    let mut off = steps(&["plain", "clone"]);
    off["steps"][1]["enabled"] = json!(false);
    assert!(resolved(&json!({}), &off).is_ok());
}

#[test]
fn b3_a_template_fixes_its_steps_and_parameters() {
    let fixed = json!({"fixedSteps": true, "fixedParameters": ["level"]});
    assert!(resolved(&fixed, &json!({"parameters": parameter("dockerfile")})).is_ok());
    assert_eq!(
        problems(&fixed, &steps(&["plain"])),
        ["StepsNotAllowed: template t lets no AgentBuild name steps of its own (fixedSteps)"]
    );
    assert_eq!(
        problems(&fixed, &json!({"parameters": parameter("level")})),
        [
            "ParameterNotAllowed: spec.pipeline.parameters: parameter level must not be set: template t fixes it"
        ]
    );
    assert_eq!(
        problems(&json!({"fixedParameters": ["levle"]}), &json!({})),
        ["UnknownParameter: template t has no parameter levle"]
    );
    let only = json!({"fixedParameters": ["level"]});
    let mut own = steps(&["plain"]);
    own["steps"][0]["parameters"] = parameter("level");
    assert_eq!(
        problems(&only, &own),
        [
            "ParameterNotAllowed: step plain of spec.pipeline: parameter level must not be set: template t fixes it"
        ]
    );
}

#[test]
fn b4_what_looks_like_a_program_is_data() {
    for hostile in ["'; rm -rf / #", "$HOME `id` \"", "a\nb\r\n", "$params.x)", "--push", "$"] {
        let pipeline = json!({"parameters": [{"name": "level", "value": hostile}]});
        let resolved = resolved(&json!({}), &pipeline).expect("resolved");
        let step = &resolved.steps[1];
        assert_eq!(step.parameters["level"], Bound::Build(ParameterValue::Text(hostile.into())));
        let script = step.stage.steps[0]["script"].as_str().expect("a script");
        assert_eq!(script, "echo", "{hostile}");
    }
    // What Tekton or Kubernetes would change cannot be kept.
    for changed in ["$(params.x)", "costs $$5"] {
        let pipeline = json!({"parameters": [{"name": "level", "value": changed}]});
        let refused = resolved(&json!({}), &pipeline).expect_err("refused");
        assert!(matches!(&refused[..], [TemplateError::UnsafeValue { .. }]), "{refused:?}");
    }
}
