use serde_json::json;

use super::super::pipeline::apply;
use super::super::resolve_template::{BuildArgs, ResolvedTemplate, resolve};
use super::super::template::{StepSource, parse};
use super::*;
use crate::api::build_pipeline::BuildPipeline;

/// The parameter `dockerfile` has all levels: it is one from the spec that an AgentBuild may set.
const TASK: &str = "
params:
  - {name: dockerfile, default: of the TaskSpec}
  - {name: level, default: of the TaskSpec}
results: [{name: IMAGE_DIGEST}]
steps: [{name: s, image: i, script: echo}]
";

/// A template with one step, and what an AgentBuild makes of it.
fn resolved(
    task: &str,
    template: &Value,
    pipeline: &Value,
) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    let mut whole = json!({"name": "t", "steps": [{"name": "build", "configMap": "cm"}]});
    for (key, value) in template.as_object().expect("a map") {
        whole[key] = value.clone();
    }
    let mut template = parse("cm", Some(&whole.to_string())).expect("a template");
    let pipeline: BuildPipeline = serde_json::from_value(pipeline.clone()).expect("a pipeline");
    let overrides = apply(&mut template, Some(&pipeline))?;
    let source =
        StepSource { labelled: true, task_spec: Some(task.into()), version: None, profile: None };
    let inputs =
        Inputs { build_args: BuildArgs::None, overrides: &overrides, operator_image: "convoke:1" };
    resolve(&template, &BTreeMap::from([("cm".to_owned(), source)]), "team", inputs)
}

fn set(value: &str) -> Value {
    json!([{"name": "level", "value": value}, {"name": "dockerfile", "value": value}])
}

#[test]
fn b4_each_level_wins_over_those_below() {
    let text = |value: &str| ParameterValue::Text(value.into());
    let (template, build) =
        (|value| Some(Bound::Template(text(value))), |value| Some(Bound::Build(text(value))));
    let globals = json!({"globalParameters": set("global")});
    let both = json!({
        "globalParameters": set("global"),
        "steps": [{"name": "build", "configMap": "cm", "parameters": set("of the step")}],
    });
    let over = json!({"parameters": set("over")});
    let own = |parameters: &Value| json!([{"name": "build", "configMap": "cm", "parameters": parameters}]);
    let all = json!({"parameters": set("over"), "steps": own(&set("own"))});
    let steps = json!({"steps": own(&json!([]))});
    let spec = || Some(Bound::Spec);
    for (of_template, of_build, level, dockerfile) in [
        (json!({}), json!({}), None, spec()),
        (globals.clone(), json!({}), template("global"), spec()),
        (both.clone(), json!({}), template("of the step"), spec()),
        (json!({}), over.clone(), build("over"), build("over")),
        (both.clone(), over, build("over"), build("over")),
        (both.clone(), all, build("own"), build("own")),
        // The steps of the template are replaced, and their parameters with them.
        (both, steps, template("global"), spec()),
    ] {
        let resolved = resolved(TASK, &of_template, &of_build).expect("resolved");
        let parameters = &resolved.steps[0].parameters;
        let said = format!("{of_template} {of_build}");
        assert_eq!(parameters.get("level"), level.as_ref(), "{said}");
        assert_eq!(parameters.get("dockerfile"), dockerfile.as_ref(), "{said}");
    }
}

fn problems(task: &str, template: &Value, pipeline: &Value) -> Vec<String> {
    let errors = resolved(task, template, pipeline).expect_err("problems");
    errors.iter().map(|error| format!("{}: {error}", error.reason())).collect()
}

#[test]
fn b4_what_an_agent_build_sets_wrongly_is_told_by_name() {
    let none = json!({});
    let own = |parameters: Value| json!({"steps": [{"name": "mine", "configMap": "cm", "parameters": parameters}]});
    for (pipeline, said) in [
        (
            json!({"parameters": [{"name": "levle", "value": "x"}]}),
            "UnknownParameter: spec.pipeline.parameters: the pipeline has no parameter levle; those to set are dockerfile, level",
        ),
        (
            own(json!([{"name": "levle", "value": "x"}])),
            "UnknownParameter: step mine has no parameter levle; those to set are dockerfile, level",
        ),
        (
            json!({"parameters": [{"name": "level", "values": ["x"]}]}),
            "WrongParameterType: step build: parameter level must be of type string",
        ),
        (
            json!({"parameters": [{"name": "level", "value": "$(context.pipelineRun.uid)"}]}),
            "UnsafeValue: step build: the value of parameter level must not contain \"$(\" or \"$$\"",
        ),
    ] {
        assert_eq!(problems(TASK, &none, &pipeline), [said], "{pipeline}");
    }
    // A value that the template requires cannot be taken away.
    let required = json!({"requiredParameters": ["level"], "globalParameters": [{"name": "level", "value": "high"}]});
    let empty = json!([{"name": "level", "value": ""}]);
    assert!(resolved(TASK, &required, &none).is_ok());
    assert_eq!(
        problems(TASK, &required, &json!({"parameters": empty})),
        ["MissingParameter: step build needs a value for parameter level"]
    );
    assert_eq!(
        problems(TASK, &required, &own(empty)),
        ["MissingParameter: step mine needs a value for parameter level"]
    );
    // But it can be given.
    let needs = TASK.replace("level, default: of the TaskSpec", "level");
    assert_eq!(
        problems(&needs, &none, &none),
        ["MissingParameter: step build needs a value for parameter level"]
    );
    let given = json!({"parameters": [{"name": "level", "value": "x"}]});
    let required = json!({"requiredParameters": ["level"]});
    assert!(resolved(&needs, &required, &given).is_ok());
}

#[test]
fn b4_arrays_are_values() {
    let task = TASK.replace("level, default: of the TaskSpec", "level, type: array");
    let pipeline = json!({"parameters": [{"name": "level", "values": ["a", "b c"]}]});
    let resolved = resolved(&task, &json!({}), &pipeline).expect("resolved");
    let values = ParameterValue::List(vec!["a".into(), "b c".into()]);
    assert_eq!(resolved.steps[0].parameters["level"], Bound::Build(values));
}

#[test]
fn b1_b4_parameters_count_in_the_key_and_their_order_does_not() {
    let hash = |template: &Value, pipeline: &Value| {
        resolved(TASK, template, pipeline).expect("resolved").hash("t", |_| true)
    };
    let set = |level: &str, dockerfile: &str| json!([{"name": "level", "value": level}, {"name": "dockerfile", "value": dockerfile}]);
    let turned = json!([{"name": "dockerfile", "value": "b"}, {"name": "level", "value": "a"}]);
    let own = |name: &str, parameters: &Value| {
        json!({"steps": [
            {"name": name, "configMap": "cm", "parameters": parameters},
            {"name": "off", "configMap": "none", "enabled": false, "parameters": parameters},
        ]})
    };
    // With a version, what the template says counts by that.
    for template in [json!({}), json!({"version": "1"})] {
        let hash = |pipeline: &Value| hash(&template, pipeline);
        let base = hash(&json!({}));
        assert_eq!(hash(&json!({"parameters": [], "steps": []})), base);
        let first = hash(&json!({"parameters": set("a", "b")}));
        assert_eq!(first, hash(&json!({"parameters": turned})));
        // A version stands for what the template sets for its own steps, too.
        let same = template.get("version").is_none();
        assert_eq!(
            hash(&own("build", &json!([]))) == base,
            same,
            "a step that is left out does not count"
        );
        assert_eq!(hash(&own("build", &turned)), hash(&own("build", &set("a", "b"))));
        let all = BTreeSet::from([
            base,
            first,
            hash(&json!({"parameters": set("b", "a")})),
            hash(&json!({"parameters": set("a", "c")})),
            hash(&own("other", &json!([]))),
            hash(&own("other", &set("a", "c"))),
        ]);
        assert_eq!(all.len(), 6, "{template}");
    }
}

#[test]
fn b1_b3_a_version_does_not_stand_for_what_own_steps_lack() {
    let step =
        |parameters: Value| json!([{"name": "build", "configMap": "cm", "parameters": parameters}]);
    let template = json!({"version": "1", "steps": step(set("high"))});
    let of = |pipeline: &Value| resolved(TASK, &template, pipeline).expect("resolved");
    let (shipped, own) = (of(&json!({})), of(&json!({"steps": step(json!([]))})));
    assert_ne!(shipped.steps[0].parameters, own.steps[0].parameters);
    assert_ne!(shipped.hash("t", |_| true), own.hash("t", |_| true));
}
