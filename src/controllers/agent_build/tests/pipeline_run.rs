use std::collections::BTreeSet;

use super::super::key::build_key;
use super::super::pipeline;
use super::super::profile::{BuildProfile, PROFILES_KEY, StepProfile, in_user_namespace};
use super::super::resolve_template::{BuildArgs, Inputs, resolve};
use super::super::template::{self, StepSource};
use super::super::template_error::TemplateError;
use super::*;
use crate::api::agent_build::BuildAppend;
use crate::api::build_pipeline::BuildPipeline;
use crate::api::git_sync::GitSyncSpec;

const TEMPLATE: &str = include_str!("../../../../deploy/pipelines/template-dev.yaml");
/// The other shipped templates.
const MORE: [(&str, &str); 3] = [
    ("dev-external", include_str!("../../../../deploy/pipelines/template-dev-external.yaml")),
    ("preprod", include_str!("../../../../deploy/pipelines/template-preprod.yaml")),
    ("prod", include_str!("../../../../deploy/pipelines/template-prod.yaml")),
];
const STEPS: [&str; 17] = [
    include_str!("../../../../deploy/pipelines/step-clone.yaml"),
    include_str!("../../../../deploy/pipelines/step-verify.yaml"),
    include_str!("../../../../deploy/pipelines/step-build.yaml"),
    include_str!("../../../../deploy/pipelines/step-push.yaml"),
    include_str!("../../../../deploy/pipelines/step-fetch-layers.yaml"),
    include_str!("../../../../deploy/pipelines/step-push-layers.yaml"),
    include_str!("../../../../deploy/pipelines/step-dependencies.yaml"),
    include_str!("../../../../deploy/pipelines/step-append.yaml"),
    include_str!("../../../../deploy/pipelines/step-append-layout.yaml"),
    include_str!("../../../../deploy/pipelines/step-copy.yaml"),
    include_str!("../../../../deploy/pipelines/step-test.yaml"),
    include_str!("../../../../deploy/pipelines/step-scan-secrets.yaml"),
    include_str!("../../../../deploy/pipelines/step-scan-dependencies.yaml"),
    include_str!("../../../../deploy/pipelines/step-scan-image.yaml"),
    include_str!("../../../../deploy/pipelines/step-policy.yaml"),
    include_str!("../../../../deploy/pipelines/step-sbom.yaml"),
    include_str!("../../../../deploy/pipelines/step-push-sbom.yaml"),
];

fn config_map(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("a ConfigMap")
}

fn shipped() -> ResolvedTemplate {
    resolved(&config_map(TEMPLATE)).expect("resolved")
}

fn resolved(template: &Value) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    resolved_with("dev", template, &BuildPipeline::default())
}

fn resolved_as(mode: &str, template: &Value) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    resolved_with(mode, template, &BuildPipeline::default())
}

/// The template of a mode, as an AgentBuild changes it.
fn resolved_with(
    mode: &str,
    template: &Value,
    pipeline: &BuildPipeline,
) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    resolved_under(BuildProfile::Baseline, mode, template, pipeline)
}

/// The same where the operator has a build profile.
fn resolved_under(
    profile: BuildProfile,
    mode: &str,
    template: &Value,
    pipeline: &BuildPipeline,
) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    assert_eq!(template["metadata"]["name"], template::config_map_name(mode));
    let sources: BTreeMap<_, _> = STEPS
        .iter()
        .map(|text| {
            let step = config_map(text);
            let source = StepSource {
                labelled: step["metadata"]["labels"][template::STEP_LABEL] == "true",
                task_spec: step["data"][template::STEP_KEY].as_str().map(str::to_owned),
                version: step["data"][template::VERSION_KEY].as_str().map(str::to_owned),
                profile: StepProfile::new(
                    profile,
                    step["data"][PROFILES_KEY].as_str().map(str::to_owned),
                ),
            };
            (step["metadata"]["name"].as_str().expect("a name").to_owned(), source)
        })
        .collect();
    let mut parsed = template::parse(mode, template["data"][template::TEMPLATE_KEY].as_str())
        .expect("a template");
    let overrides = pipeline::apply(&mut parsed, Some(pipeline))?;
    let inputs = Inputs {
        build_args: BuildArgs::Given,
        overrides: &overrides,
        operator_image: "mirror.example.com/convoke:2",
    };
    resolve(&parsed, &sources, "convoke-system", inputs)
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
        dockerfile: None,
        base_images: BTreeMap::new(),
        applied: None,
    }
}

fn rendered(spec: &AgentBuildSpec, template: &ResolvedTemplate) -> Result<Value, SpecError> {
    rendered_with(spec, template, None)
}

fn rendered_with(
    spec: &AgentBuildSpec,
    template: &ResolvedTemplate,
    secrets: Option<&RunSecrets>,
) -> Result<Value, SpecError> {
    let source = source();
    let key =
        build_key(spec, &source, "registry.example.com:5000", "template", None).expect("a key");
    render(&Build {
        namespace: "team",
        at: None,
        name: "reviewer",
        uid: "11111111-2222-3333-4444-555555555555",
        spec,
        source: &source,
        registry: "registry.example.com:5000",
        key: &key,
        attempt: 1,
        cache: None,
        template,
        secrets,
    })
}

#[test]
fn b5_credentials_are_mounted_in_the_step_that_uses_them_and_in_no_other() {
    let nonce = "0123456789abcdef".to_owned();
    let secrets = RunSecrets { workspaces: vec!["git-auth", "push-auth"], nonce };
    let run = rendered_with(&spec(), &shipped(), Some(&secrets)).expect("rendered");
    assert_eq!(run["spec"]["status"], "PipelineRunPending", "it waits for its Secrets");
    let name = run["metadata"]["name"].as_str().expect("a name");
    let mut want = json!([{"name": "source", "emptyDir": {}}]);
    for workspace in ["git-auth", "push-auth"] {
        let secret = json!({"secretName": format!("{name}-0123456789abcdef-{workspace}")});
        want.as_array_mut().expect("a list").push(json!({"name": workspace, "secret": secret}));
    }
    assert_eq!(run["spec"]["workspaces"], want);
    let task = &run["spec"]["pipelineSpec"]["tasks"][0];
    for named in [&run["spec"]["pipelineSpec"]["workspaces"], &task["workspaces"]] {
        let names: Vec<_> =
            named.as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["source", "git-auth", "push-auth"]);
    }
    // Tekton mounts what steps name in those steps alone, and all else in every step.
    let steps = task["taskSpec"]["steps"].as_array().expect("steps");
    let having = |workspace: &str| -> Vec<&str> {
        let named = |step: &&Value| {
            let all = step["workspaces"].as_array();
            all.is_some_and(|all| all.iter().any(|one| one["name"] == workspace))
        };
        steps.iter().filter(named).filter_map(|step| step["name"].as_str()).collect()
    };
    assert_eq!(having("git-auth"), ["clone"]);
    assert_eq!(having("push-auth"), ["push"]);
    let none = rendered(&spec(), &shipped()).expect("rendered");
    assert_eq!(none["spec"]["status"], Value::Null);
    assert_eq!(none["spec"]["workspaces"], json!([{"name": "source", "emptyDir": {}}]));
    let nonce = String::new();
    let git = RunSecrets { workspaces: vec!["git-auth"], nonce };
    let mut without = shipped();
    without.steps.retain(|step| step.name != "clone");
    let none = rendered_with(&spec(), &without, Some(&git)).expect("rendered");
    assert_eq!(none["spec"]["status"], Value::Null, "no step asks for them");
}

#[test]
fn b3_the_shipped_template_renders() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    insta::assert_snapshot!(serde_json::to_string_pretty(&run).expect("JSON"));
}

fn appending() -> AgentBuildSpec {
    serde_json::from_value(json!({
        "source": {"gitSync": {}, "subfolder": "images/reviewer"},
        "output": {"image": "newsroom/reviewer"},
        "strategy": "Append",
        "append": {"baseImage": "docker.io/library/python:3.13-slim", "command": ["python", "-m", "a 'b' $X; rm -rf /"], "user": "65532"},
    }))
    .expect("a spec")
}

/// The names of the steps of a run.
fn steps_of(run: &Value) -> Vec<&Value> {
    let steps = run["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"].as_array();
    steps.expect("steps").iter().collect()
}

#[test]
fn b11_what_appends_runs_no_step_that_builds_and_none_with_privileges() {
    let template = shipped();
    let run = rendered(&appending(), &template).expect("rendered");
    let names: Vec<_> = steps_of(&run).iter().map(|step| step["name"].clone()).collect();
    assert_eq!(names, ["clone", "verify", "append"]);
    for step in steps_of(&run) {
        let context = &step["securityContext"];
        let restricted = json!([
            context["runAsNonRoot"],
            context["allowPrivilegeEscalation"],
            context["capabilities"],
            context["seccompProfile"]
        ]);
        assert_eq!(
            restricted,
            json!([true, false, {"drop": ["ALL"]}, {"type": "RuntimeDefault"}]),
            "{step}"
        );
    }
    let value = |name: &str| {
        let params = run["spec"]["params"].as_array().expect("a list");
        params.iter().find(|param| param["name"] == name).map(|param| param["value"].clone())
    };
    for (name, want) in [
        ("strategy", json!("Append")),
        ("base-image", json!("docker.io/library/python:3.13-slim")),
        ("append-into", json!("/app")),
        ("append-command", json!(["python", "-m", "a 'b' $X; rm -rf /"])),
        ("append-user", json!("65532")),
        ("dockerfile", json!("")),
        ("build-args", json!([])),
    ] {
        assert_eq!(value(name), Some(want), "{name}");
    }
    let results: Vec<_> = run["spec"]["pipelineSpec"]["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(results, ["IMAGE_DIGEST", "IMAGE_URL", "BASE_DIGEST"]);
    // The other strategy has none of it.
    let run = rendered(&spec(), &template).expect("rendered");
    let names: Vec<_> = steps_of(&run).iter().map(|step| step["name"].clone()).collect();
    assert_eq!(names, ["clone", "verify", "build", "push"]);
    let mut odd = appending();
    if let Some(append) = &mut odd.append {
        append.command = vec!["$(cat /etc/passwd)".into()];
    }
    assert_eq!(rendered(&odd, &template), Err(SpecError::UnsafeValue("append-command")));
    let mut wrong = appending();
    if let Some(append) = &mut wrong.append {
        append.base_image = "Team/Base:1".into();
    }
    let error = rendered(&wrong, &template).expect_err("it is no image");
    assert_eq!(error.reason(), "InvalidBaseImage");
    assert!(error.to_string().starts_with("spec.append.baseImage: it must look like"), "{error}");
    let mut without = template;
    without.steps.retain(|step| !step.parameters.contains_key("base-image"));
    for step in &mut without.steps {
        step.when.clear();
    }
    let error = rendered(&appending(), &without).expect_err("nothing appends");
    assert_eq!(
        (error.to_string().as_str(), error.reason()),
        (
            "spec.strategy is Append, but no step that runs has the parameter base-image",
            "StrategyNotSupported"
        )
    );
}

#[test]
fn b4_b11_an_empty_parameter_is_missing_where_its_step_runs() {
    let emptied = |name: &str| {
        let mut template = config_map(TEMPLATE);
        let text = template["data"][template::TEMPLATE_KEY].as_str().expect("a text").to_owned();
        let mut parsed: Value = serde_json::from_str(&text).expect("JSON");
        for parameter in parsed["globalParameters"].as_array_mut().expect("a list") {
            if parameter["name"] == name {
                parameter["value"] = json!("");
            }
        }
        template["data"][template::TEMPLATE_KEY] = parsed.to_string().into();
        resolved(&template)
    };
    // Who never builds with a Dockerfile needs no image for that.
    let template = emptied("buildah-image").expect("resolved");
    rendered(&appending(), &template).expect("rendered");
    let error = rendered(&spec(), &template).expect_err("it is missing");
    assert_eq!(
        error.to_string(),
        "step build needs a value for parameter buildah-image, which the template leaves empty"
    );
    assert_eq!(error.reason(), "MissingParameter");
    // Every build clones.
    let errors = emptied("git-image").expect_err("it is missing");
    assert_eq!(errors[0].to_string(), "template dev needs a value for parameter git-image");
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
fn b5_credentials_that_no_step_uses_are_not_asked_for() {
    let sync = |more: Value| -> GitSyncSpec {
        let mut whole = json!({"url": "https://git.example.com/newsroom.git"});
        whole.as_object_mut().expect("a map").extend(more.as_object().cloned().expect("a map"));
        serde_json::from_value(whole).expect("a spec")
    };
    let (public, private) = (sync(json!({})), sync(json!({"secretRef": {"name": "s"}})));
    let proxied = sync(json!({"proxySecretRef": {"name": "s"}}));
    let mut pushing = spec();
    pushing.output.secret_ref = private.secret_ref.clone();
    let mut cloned_otherwise = shipped();
    cloned_otherwise.steps.retain(|step| step.name != "clone");
    for (sync, spec, template, want) in [
        (&public, &spec(), &shipped(), &[][..]),
        (&private, &spec(), &shipped(), &["git-auth"]),
        (&proxied, &spec(), &shipped(), &["git-auth"]),
        (&public, &pushing, &shipped(), &["push-auth"]),
        (&private, &pushing, &shipped(), &["git-auth", "push-auth"]),
        (&private, &pushing, &cloned_otherwise, &["push-auth"]),
    ] {
        let access = Access::of_sync(sync);
        assert_eq!(workspaces_with_credentials(&access, spec, template), want);
    }
}

#[test]
fn b5_the_image_that_pushes_is_the_one_of_the_operator() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    let task = &run["spec"]["pipelineSpec"]["tasks"][0];
    let params = task["params"].as_array().expect("a list");
    let image = params.iter().find(|param| param["name"] == "push_convoke-image");
    assert_eq!(image.expect("the parameter")["value"], "mirror.example.com/convoke:2");
}

#[test]
fn b1_a_change_of_what_is_shipped_says_whether_images_are_built_anew() {
    // When a digest here changes and what is in an image does not, the version stays. Otherwise it gets a new one.
    let mut all = Vec::new();
    let templates = [TEMPLATE].into_iter().chain(MORE.map(|(_, text)| text));
    for text in templates.chain(STEPS) {
        let map = config_map(text);
        let data = map["data"].as_object().expect("data");
        let version = match data.get(template::TEMPLATE_KEY) {
            Some(text) => template::parse("dev", text.as_str()).expect("a template").version,
            None => data[template::VERSION_KEY].as_str().map(str::to_owned),
        };
        let content = [template::TEMPLATE_KEY, template::STEP_KEY]
            .iter()
            .filter_map(|key| data.get(*key)?.as_str())
            .collect::<String>();
        let digest = convoke_core::text::hex(&Sha256::digest(content.as_bytes()));
        all.push(format!(
            "{} {} {}",
            map["metadata"]["name"].as_str().expect("a name"),
            version.expect("a version"),
            &digest[..12]
        ));
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn b4_values_reach_no_script() {
    let run = rendered(&spec(), &shipped()).expect("rendered");
    let task = &run["spec"]["pipelineSpec"]["tasks"][0];
    let steps = task["taskSpec"]["steps"].as_array().expect("steps");
    assert_eq!(steps.len(), 4);
    for step in steps {
        let script = step["script"].as_str().unwrap_or_default();
        assert_ne!(script.is_empty(), step["command"].is_null(), "{step}");
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
    assert_eq!(names, ["clone", "verify", "build", "push"]);
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
    assert_eq!(
        names(&when("is $(params.insecure)", &["is false"])),
        ["clone", "verify", "build", "push"]
    );
    assert_eq!(names(&when("$(params.insecure)", &["true"])), ["clone", "build", "push"]);
    let mut never = when("a", &["b"]);
    never.steps.swap(1, 4);
    never.steps[1].when = never.steps[4].when.clone();
    assert_eq!(rendered(&spec(), &never), Err(SpecError::NoDigest));
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

#[path = "build_profiles.rs"]
mod build_profiles;
#[path = "modes.rs"]
mod modes;
#[path = "own_pipeline.rs"]
mod own_pipeline;
