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
    let key = build_key(spec, &source, "registry.example.com:5000", "template").expect("a key");
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
    for task in run["spec"]["pipelineSpec"]["tasks"].as_array().expect("tasks") {
        for step in task["taskSpec"]["steps"].as_array().expect("steps") {
            let script = step["script"].as_str().expect("a script");
            assert!(
                !script.contains("rm -rf /\"")
                    && !script.contains("$(params")
                    && !script.contains("newsroom")
            );
        }
    }
    let mut evil = spec();
    evil.build_args.insert("X".into(), "$(TOKEN)".into());
    assert_eq!(rendered(&evil, &shipped()), Err(SpecError::UnsafeValue("build-args")));
    let mut evil = spec();
    evil.source.subfolder = "$(context.pipelineRun.uid)".into();
    assert_eq!(rendered(&evil, &shipped()), Err(SpecError::UnsafeValue("subfolder")));
}

#[test]
fn a_pipeline_of_one_pod_needs_no_storage_class() {
    let mut template = shipped();
    template.steps.drain(..2);
    let run = rendered(&spec(), &template).expect("rendered");
    assert_eq!(run["spec"]["workspaces"], json!([{"name": "source", "emptyDir": {}}]));
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
    let key = build_key(&spec(), &source(), "r", "t").expect("a key");
    let name = run_name("reviewer", &key, 1);
    assert_eq!(name, format!("reviewer-{}-1", key.short()));
    let long = "b".repeat(63);
    let other = format!("{}c", "b".repeat(62));
    for build in [&long, &other, &format!("{}-{}", "b".repeat(40), "c".repeat(22))] {
        assert!(run_name(build, &key, 10).len() <= 63);
    }
    assert_ne!(run_name(&long, &key, 1), run_name(&other, &key, 1));
}
