use std::collections::BTreeSet;

use super::super::key::build_key;
use super::super::resolve_template::{BuildArgs, resolve};
use super::super::template::{self, StepSource};
use super::*;

const TEMPLATE: &str = include_str!("../../../../deploy/pipelines/template-dev.yaml");
const STEPS: [&str; 3] = [
    include_str!("../../../../deploy/pipelines/step-clone.yaml"),
    include_str!("../../../../deploy/pipelines/step-verify.yaml"),
    include_str!("../../../../deploy/pipelines/step-build.yaml"),
];

fn config_map(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("a ConfigMap")
}

fn shipped() -> ResolvedTemplate {
    let template = config_map(TEMPLATE);
    assert_eq!(template["metadata"]["name"], template::config_map_name("dev"));
    let sources: BTreeMap<_, _> = STEPS
        .iter()
        .map(|text| {
            let step = config_map(text);
            let source = StepSource {
                labelled: step["metadata"]["labels"][template::STEP_LABEL] == "true",
                task_spec: step["data"][template::STEP_KEY].as_str().map(str::to_owned),
            };
            (step["metadata"]["name"].as_str().expect("a name").to_owned(), source)
        })
        .collect();
    let parsed = template::parse("dev", template["data"][template::TEMPLATE_KEY].as_str())
        .expect("a template");
    resolve(&parsed, &sources, "convoke-system", BuildArgs::Given).expect("resolved")
}

fn spec() -> AgentBuildSpec {
    serde_json::from_value(json!({
        "source": {"gitSync": {}, "subfolder": "images/reviewer"},
        "output": {"image": "newsroom/reviewer"},
        "buildArgs": {"PYTHON_VERSION": "3.13", "QUOTED": "a 'b' \"c\"; rm -rf /"},
        "timeout": "15m",
    }))
    .expect("a spec")
}

fn source() -> SourceAt {
    SourceAt {
        sync: "newsroom".into(),
        url: "https://git.example.com/newsroom.git".into(),
        commit: "0123456789abcdef0123456789abcdef01234567".into(),
        subfolder_tree: Some("f".repeat(40)),
        paths: BTreeMap::new(),
        applied: None,
    }
}

fn rendered(spec: &AgentBuildSpec, template: &ResolvedTemplate) -> Result<Value, SpecError> {
    let source = source();
    let key =
        build_key(spec, &source, "registry.example.com:5000", "template", None).expect("a key");
    render(&Build {
        namespace: "team",
        name: "reviewer",
        uid: "11111111-2222-3333-4444-555555555555",
        spec,
        source: &source,
        registry: "registry.example.com:5000",
        key: &key,
        attempt: 1,
        template,
    })
}

#[test]
fn b3_the_shipped_template_renders() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    insta::assert_snapshot!(serde_json::to_string_pretty(&run).expect("JSON"));
}

#[test]
fn b4_every_parameter_from_the_spec_has_its_value_and_type() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    let declared: BTreeSet<_> =
        FROM_SPEC.iter().map(|(name, type_)| ((*name).to_owned(), type_.to_string())).collect();
    let params = run["spec"]["pipelineSpec"]["params"].as_array().expect("a list");
    let have: BTreeSet<_> = params
        .iter()
        .map(|p| {
            (
                p["name"].as_str().expect("a name").to_owned(),
                p["type"].as_str().expect("a type").to_owned(),
            )
        })
        .collect();
    assert_eq!(have, declared);
    assert_eq!(run["spec"]["params"].as_array().map(Vec::len), Some(FROM_SPEC.len()));
}

#[test]
fn b4_values_reach_no_script() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    let task = &run["spec"]["pipelineSpec"]["tasks"][0];
    let steps = task["taskSpec"]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 3);
    for step in steps {
        let script = step["script"].as_str().expect("a script");
        assert!(
            !script.contains("rm -rf /\"")
                && !script.contains("$(params")
                && !script.contains("newsroom")
        );
    }
    let mut evil = spec();
    evil.build_args.insert("X".into(), "$(TOKEN)".into());
    assert_eq!(rendered(&evil, &shipped()), Err(SpecError::UnsafeValue("build-args")));
    let mut evil = spec();
    evil.source.subfolder = "$(context.pipelineRun.uid)".into();
    assert_eq!(rendered(&evil, &shipped()), Err(SpecError::UnsafeValue("subfolder")));
}

#[test]
fn b3_a_build_is_one_pod_without_a_storage_class() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    assert_eq!(run["spec"]["workspaces"], json!([{"name": "source", "emptyDir": {}}]));
    let tasks = run["spec"]["pipelineSpec"]["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 1);
    let names: Vec<_> = tasks[0]["taskSpec"]["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| step["name"].clone())
        .collect();
    assert_eq!(names, ["clone", "verify", "build"]);
    assert!(!run.to_string().contains("volumeClaimTemplate"));
}

#[test]
fn b3_conditions_are_decided_when_the_run_is_made() {
    let when = |input: &str, values: &[&str]| {
        let mut template = shipped();
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let operator = template::Operator::In;
        template.steps[1].when = vec![template::When { input: input.into(), operator, values }];
        template
    };
    let names = |template: &ResolvedTemplate| -> Vec<String> {
        let run = rendered(&spec(), template).expect("rendered");
        let steps = &run["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"];
        let steps = steps.as_array().expect("steps").iter();
        steps.map(|step| step["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&when("is $(params.insecure)", &["is false"])), ["clone", "verify", "build"]);
    assert_eq!(names(&when("$(params.insecure)", &["true"])), ["clone", "build"]);
    let mut never = when("a", &["b"]);
    never.steps.swap(1, 2);
    never.steps[1].when = never.steps[2].when.clone();
    assert_eq!(rendered(&spec(), &never), Err(SpecError::NoDigest));
}

#[test]
fn tags_are_checked_after_replacement() {
    let commit = source().commit;
    assert_eq!(tag("{short}", &commit).as_deref(), Ok("0123456"));
    assert_eq!(tag("v1-{commit}", &commit), Ok(format!("v1-{commit}")));
    for bad in ["{branch}", "{short", "-x", "", "a b"] {
        assert!(tag(bad, &commit).is_err(), "{bad}");
    }
    assert!(tag(&"{commit}".repeat(4), &commit).is_err(), "too long");
}

#[test]
fn a_timeout_of_zero_would_be_no_timeout() {
    let mut endless = spec();
    endless.timeout = "0m0s".into();
    assert_eq!(rendered(&endless, &shipped()), Err(SpecError::InvalidTimeout));
}

#[test]
fn b1_the_name_is_the_build_the_key_and_the_attempt() {
    let key = build_key(&spec(), &source(), "r", "t", None).expect("a key");
    let name = run_name("reviewer", &key, 1);
    assert_eq!(name, format!("reviewer-{}-1", key.short()));
    let long = "b".repeat(63);
    let other = format!("{}c", "b".repeat(62));
    for build in [&long, &other, &format!("{}-{}", "b".repeat(40), "c".repeat(22))] {
        assert!(run_name(build, &key, 10).len() <= 63);
    }
    assert_ne!(run_name(&long, &key, 1), run_name(&other, &key, 1));
}
