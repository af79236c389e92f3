//! The shipped modes besides `dev`.

use super::*;

fn shipped_mode(mode: &str) -> Value {
    let found = MORE.iter().find(|(name, _)| *name == mode);
    config_map(found.expect("a shipped mode").1)
}

/// The template of `mode: preprod` with the image of a vulnerability database.
fn preprod() -> ResolvedTemplate {
    scanning("preprod")
}

/// The template of a mode with the image of a vulnerability database.
fn scanning(mode: &str) -> ResolvedTemplate {
    let mut template = shipped_mode(mode);
    let text = template["data"][template::TEMPLATE_KEY].as_str().expect("a text").to_owned();
    let mut parsed: Value = serde_json::from_str(&text).expect("JSON");
    for parameter in parsed["globalParameters"].as_array_mut().expect("a list") {
        if parameter["name"] == "vulnerability-database-image" {
            parameter["value"] = json!("mirror.example.com/vulnerabilities:daily");
        }
    }
    template["data"][template::TEMPLATE_KEY] = parsed.to_string().into();
    resolved_with(mode, &template, &asked(mode)).expect("resolved")
}

/// What an AgentBuild of a mode has to say.
fn asked(mode: &str) -> BuildPipeline {
    let tests = json!({"parameters": [{"name": "test-command", "values": ["true"]}]});
    let pipeline = if mode == "prod" { tests } else { json!({}) };
    serde_json::from_value(pipeline).expect("a pipeline")
}

fn names_of(run: &Value) -> Vec<String> {
    let name = |step: &&Value| step["name"].as_str().expect("a name").to_owned();
    steps_of(run).iter().map(name).collect()
}

#[test]
fn b3_dev_external_is_dev_with_a_registry_that_the_build_names() {
    let template = resolved_as("dev-external", &shipped_mode("dev-external")).expect("resolved");
    let error = rendered(&spec(), &template).expect_err("no registry is named");
    assert_eq!(
        (error.to_string().as_str(), error.reason()),
        ("the template asks for spec.output.registry, which is empty", "MissingParameter")
    );
    let mut external = spec();
    external.output.registry = Some("registry.example.com".into());
    let run = rendered(&external, &template).expect("rendered");
    let dev = rendered(&external, &shipped()).expect("rendered");
    assert_eq!(steps_of(&run), steps_of(&dev));
    let value = |name: &str| {
        let params = run["spec"]["params"].as_array().expect("a list");
        params.iter().find(|param| param["name"] == name).map(|param| param["value"].clone())
    };
    assert_eq!(value("output-registry"), Some(json!("registry.example.com")));
}

#[test]
fn b4_a_required_parameter_of_the_build_may_be_empty_where_only_other_steps_take_it() {
    let mut template = shipped();
    template.from_spec.push("base-image".into());
    rendered(&spec(), &template).expect("nothing is appended");
    template.steps.iter_mut().for_each(|step| step.when.clear());
    let error = rendered(&spec(), &template).expect_err("a step takes it");
    assert_eq!(error.to_string(), "the template asks for spec.append.baseImage, which is empty");
}

#[test]
fn b3_preprod_scans_before_it_builds_and_before_it_pushes() {
    let template = preprod();
    let run = rendered(&spec(), &template).expect("rendered");
    let want = [
        "clone",
        "verify",
        "scan-secrets",
        "scan-dependencies-database",
        "scan-dependencies-scan",
        "scan-dependencies-check",
        "build",
        "copy",
        "scan-image-export",
        "scan-image-database",
        "scan-image-scan",
        "scan-image-check",
        "push",
    ];
    assert_eq!(names_of(&run), want);
    let appended = rendered(&appending(), &template).expect("rendered");
    let want: Vec<_> = want.map(|name| if name == "build" { "append-layout" } else { name }).into();
    assert_eq!(names_of(&appended), want);
    let results = appended["spec"]["pipelineSpec"]["results"].as_array().expect("results");
    let results: Vec<_> = results.iter().map(|one| one["name"].clone()).collect();
    assert_eq!(results, ["IMAGE_DIGEST", "IMAGE_URL", "BASE_DIGEST"]);
    insta::assert_snapshot!(serde_json::to_string_pretty(&run).expect("JSON"));
}

/// What appends, with a change of `spec.append`.
fn appending_with(change: impl Fn(&mut BuildAppend)) -> AgentBuildSpec {
    let mut spec = appending();
    spec.append.iter_mut().for_each(change);
    spec
}

#[test]
fn b11_packages_of_a_lock_file_are_installed_before_the_folder_is_appended() {
    let spec = appending_with(|append| append.lock_file = Some("requirements.txt".into()));
    for (template, before) in [(shipped(), 2), (preprod(), 6)] {
        let run = rendered(&spec, &template).expect("rendered");
        let names = names_of(&run);
        let appends = names[before + 2].as_str();
        assert_eq!(names[before..before + 2], ["dependencies-check", "dependencies-install"]);
        assert!(["append", "append-layout"].contains(&appends), "{names:?}");
        let steps = steps_of(&run);
        let install = steps[before + 1];
        assert_eq!(install["image"], "$(params.dependencies_base-image)");
        let seen = install["workspaces"].to_string();
        assert!(!seen.contains("auth"), "without credentials: {install}");
        let context = &install["securityContext"];
        assert_eq!(
            (&context["runAsUser"], &context["readOnlyRootFilesystem"]),
            (&json!(65532), &json!(true))
        );
        let args = steps[before + 2]["args"].as_array().expect("args");
        assert!(
            args.contains(&json!(format!("--lock-file=$(params.{appends}_append-lock-file)"))),
            "{args:?}"
        );
    }
    // The key of what has no lock file knows nothing of the step.
    let hash = |spec: &AgentBuildSpec| template_hash(&shipped(), spec, "registry:5000");
    let mut without = shipped();
    without.steps.retain(|step| step.name != "dependencies");
    assert_eq!(hash(&appending()), template_hash(&without, &appending(), "registry:5000"));
    assert_ne!(hash(&spec), hash(&appending()));
}

#[test]
fn b11_what_no_step_does_for_an_append_is_an_error() {
    let mut template = shipped();
    let lacks = |step: &mut ResolvedStep| {
        step.parameters.remove("append-lock-file");
        step.parameters.remove("append-platform");
    };
    template.steps.iter_mut().for_each(lacks);
    rendered(&appending(), &template).expect("nothing is asked for");
    for (spec, message) in [
        (
            appending_with(|append| append.lock_file = Some("requirements.txt".into())),
            "spec.append.lockFile is set, but no step that runs has the parameter append-lock-file",
        ),
        (
            appending_with(|append| append.platform = Some("linux/arm64".into())),
            "spec.append.platform is set, but no step that runs has the parameter append-platform",
        ),
    ] {
        let error = rendered(&spec, &template).expect_err("no step does it");
        assert_eq!((error.to_string().as_str(), error.reason()), (message, "StrategyNotSupported"));
    }
}

#[test]
fn b4_preprod_fixes_the_package_index() {
    let pipeline = serde_json::from_value(
        json!({"parameters": [{"name": "index-url", "value": "https://x.example/simple"}]}),
    )
    .expect("a pipeline");
    let errors = resolved_with("preprod", &shipped_mode("preprod"), &pipeline).expect_err("fixed");
    assert!(
        errors.iter().any(|error| error.to_string().contains("index-url must not be set")),
        "{errors:?}"
    );
    resolved_with("dev", &config_map(TEMPLATE), &pipeline).expect("the index of a team");
}

#[test]
fn b3_prod_is_preprod_with_tests_rules_a_list_of_packages_and_provenance() {
    let template = scanning("prod");
    let run = rendered(&spec(), &template).expect("rendered");
    let mut want = names_of(&rendered(&spec(), &preprod()).expect("rendered"));
    let push = want.pop();
    let more = [
        "policy-describe",
        "policy-evaluate",
        "policy-check",
        "sbom-export",
        "sbom-list",
        "sbom-check",
    ];
    want.extend(more.map(str::to_owned).into_iter().chain(push));
    let copy = want.iter().position(|name| name == "copy").expect("a copy");
    want.insert(copy, "test".into());
    assert_eq!(names_of(&run), want);
    assert!(template.provenance);
    let results = &run["spec"]["pipelineSpec"]["results"];
    let names: Vec<_> = results.as_array().expect("a list").iter().map(|r| &r["name"]).collect();
    assert_eq!(names, ["IMAGE_DIGEST", "IMAGE_URL", "BASE_DIGEST", "SBOM_DIGEST"]);
    // What pushes attaches what the step before has written.
    let steps = steps_of(&run);
    let push = steps.last().expect("a step")["args"].to_string();
    let list = steps[steps.len() - 2]["args"].to_string();
    for text in [push, list] {
        assert!(text.contains("$(workspaces.after-build.path)/sbom.spdx.json"), "{text}");
    }
    let appended = rendered(&appending(), &template).expect("rendered");
    let want: Vec<_> = want
        .into_iter()
        .map(|name| if name == "build" { "append-layout".to_owned() } else { name })
        .collect();
    assert_eq!(names_of(&appended), want);
}

#[test]
fn b5_where_a_build_runs_follows_from_its_steps() {
    use crate::controllers::agent_build::needs::{Level, of_run, of_template};
    let needs = |template: &ResolvedTemplate, spec: &AgentBuildSpec| {
        let level = of_template(template, spec, "r");
        // What is asked later of the run is the same.
        assert_eq!(of_run(&rendered(spec, template).expect("rendered")["spec"]), level);
        level
    };
    let (dev, prod) = (shipped(), scanning("prod"));
    assert_eq!(needs(&dev, &appending()), Level::Restricted);
    assert_eq!(needs(&preprod(), &appending()), Level::Restricted);
    assert_eq!(needs(&dev, &spec()), Level::Baseline);
    // Its tests run as root.
    assert_eq!(needs(&prod, &appending()), Level::Baseline);
    let with = |profile| {
        resolved_under(profile, "dev", &config_map(TEMPLATE), &BuildPipeline::default())
            .expect("resolved")
    };
    for profile in [BuildProfile::Userns, BuildProfile::Rootless, BuildProfile::Privileged] {
        assert_eq!(needs(&with(profile), &spec()), Level::Privileged, "{profile}");
        assert_eq!(needs(&with(profile), &appending()), Level::Restricted, "{profile}");
    }
}

#[test]
fn b3_the_shipped_rules_pass_unchanged_through_kubernetes() {
    // It makes one of two dollar signs, and a value of what is in parentheses behind one.
    let step =
        config_map(STEPS.iter().find(|text| text.contains("convoke-step-policy")).expect("it"));
    let task: Value =
        serde_saphyr::from_str(step["data"][template::STEP_KEY].as_str().expect("a text"))
            .expect("a TaskSpec");
    let rules = task["params"][0]["default"].as_str().expect("a text");
    assert!(rules.starts_with("package convoke\n") && rules.contains("deny contains"), "{rules}");
    assert!(!rules.contains("$$") && !rules.contains("$("), "{rules}");
}

#[test]
fn b3_b5_scans_have_no_credentials_and_no_privileges() {
    let nonce = "0123456789abcdef".to_owned();
    let secrets = RunSecrets { workspaces: vec!["git-auth", "push-auth"], nonce };
    let run = rendered_with(&spec(), &scanning("prod"), Some(&secrets)).expect("rendered");
    let scans: Vec<_> = steps_of(&run)
        .into_iter()
        .filter(|step| {
            let name = step["name"].as_str().expect("a name");
            ["scan-", "policy-", "sbom-"].iter().any(|start| name.starts_with(start))
        })
        .collect();
    assert_eq!(scans.len(), 14);
    for step in scans {
        // Of workspaces that other steps name, Tekton mounts none that it does not name.
        assert!(!step["workspaces"].to_string().contains("auth"), "{step}");
        let context = &step["securityContext"];
        assert_eq!(
            json!([
                context["runAsNonRoot"],
                context["allowPrivilegeEscalation"],
                context["capabilities"],
                context["seccompProfile"]
            ]),
            json!([true, false, {"drop": ["ALL"]}, {"type": "RuntimeDefault"}]),
            "{step}"
        );
    }
}

#[test]
fn b5_b11_where_an_image_is_appended_only_what_pulls_and_pushes_has_credentials() {
    let nonce = "0123456789abcdef".to_owned();
    let secrets = RunSecrets { workspaces: vec!["git-auth", "push-auth"], nonce };
    let run = rendered_with(&appending(), &preprod(), Some(&secrets)).expect("rendered");
    let having = |workspace: &str| -> Vec<_> {
        let has = |step: &&&Value| step["workspaces"].to_string().contains(workspace);
        let steps = steps_of(&run);
        steps.iter().filter(has).map(|step| step["name"].clone()).collect()
    };
    assert_eq!(having("git-auth"), ["clone"]);
    assert_eq!(having("push-auth"), ["append-layout", "push"]);
    // Nothing in the pod needs more than Pod Security "restricted" admits.
    for step in steps_of(&run) {
        let context = &step["securityContext"];
        assert_eq!(
            json!([context["runAsNonRoot"], context["capabilities"]]),
            json!([true, {"drop": ["ALL"]}]),
            "{step}"
        );
    }
}

#[test]
fn b4_preprod_and_prod_without_a_vulnerability_database_are_refused() {
    for mode in ["preprod", "prod"] {
        let errors = resolved_with(mode, &shipped_mode(mode), &asked(mode));
        let errors = errors.expect_err("there is none");
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let want =
            format!("template {mode} needs a value for parameter vulnerability-database-image");
        assert_eq!(texts, [want]);
    }
}

#[test]
fn b3_b4_prod_without_tests_is_refused() {
    let errors = resolved_as("prod", &shipped_mode("prod")).expect_err("there are none");
    assert!(errors.iter().any(|error| error.to_string().contains("test-command")), "{errors:?}");
}

#[test]
fn b3_b4_an_agent_build_cannot_change_what_prod_asks() {
    let template = shipped_mode("prod");
    let names = ["policy", "opa-image", "minimum-severity", "vulnerability-database-image"];
    // The statement names the Dockerfile of the spec.
    for name in names.into_iter().chain(["dockerfile", "build-args"]) {
        let pipeline: BuildPipeline =
            serde_json::from_value(json!({"parameters": [{"name": name, "value": "x"}]}))
                .expect("a pipeline");
        let errors = resolved_with("prod", &template, &pipeline).expect_err(name);
        assert!(errors.iter().any(|error| error.to_string().contains(name)), "{errors:?}");
    }
}

#[test]
fn b3_b12_after_the_build_no_step_sees_what_a_dockerfile_can_change() {
    let nonce = "0123456789abcdef".to_owned();
    let secrets = RunSecrets { workspaces: vec!["git-auth", "push-auth"], nonce };
    for (mode, spec) in [("preprod", spec()), ("prod", spec()), ("prod", appending())] {
        let run = rendered_with(&spec, &scanning(mode), Some(&secrets)).expect("rendered");
        let steps = steps_of(&run);
        let copy = steps.iter().position(|step| step["name"] == "copy").expect("a copy");
        for (at, step) in steps.iter().enumerate() {
            let text = step.to_string();
            // These run what a source brings.
            if step["name"]
                .as_str()
                .is_some_and(|name| ["build", "append-layout", "test"].contains(&name))
            {
                assert!(at < copy, "{step}");
            }
            assert_eq!(text.contains("after-build"), at >= copy, "{step}");
            assert_eq!(text.contains(r#"{"name":"source"}"#), at <= copy, "{step}");
            // Results in the folder of all steps are texts for people.
            if at > copy {
                assert!(!text.contains("workspaces.source."), "{step}");
                assert_eq!(
                    text.contains("$(results."),
                    text.contains("$(results.FINDING.path)"),
                    "{step}"
                );
            }
        }
        assert!(copy + 1 < steps.len());
        let task = &run["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"];
        let results = task["results"].as_array().expect("results");
        for name in ["IMAGE_DIGEST", "IMAGE_URL"] {
            let result = results.iter().find(|one| one["name"] == name).expect(name);
            assert_eq!(result["value"], format!("$(steps.push.results.{name})"));
        }
        let workspaces = run["spec"]["workspaces"].as_array().expect("workspaces");
        let folders = workspaces.iter().filter(|one| one["emptyDir"].is_object());
        let folders: Vec<_> = folders.map(|one| &one["name"]).collect();
        assert_eq!(folders, ["source", "after-build"]);
    }
}

/// An AgentBuild with a cache of layers.
fn cached() -> AgentBuildSpec {
    AgentBuildSpec { layer_cache: true, ..spec() }
}

#[test]
fn b13_with_a_cache_steps_without_user_code_fetch_and_keep_it() {
    let template = shipped();
    let names = |spec: &AgentBuildSpec| names_of(&rendered(spec, &template).expect("rendered"));
    assert_eq!(names(&spec()), ["clone", "verify", "build", "push"]);
    let run = rendered(&cached(), &template).expect("rendered");
    let with = ["clone", "verify", "fetch-layers", "build", "push", "push-layers"];
    assert_eq!(names_of(&run), with);
    let results = run["spec"]["pipelineSpec"]["results"].as_array().expect("a list");
    assert!(results.iter().any(|result| result["name"] == "CACHE_DIGEST"), "{results:?}");
    // Who runs a Dockerfile has no credentials, and who has them runs `convoke`.
    for step in steps_of(&run) {
        let has = step.to_string().contains("workspaces.push-auth.path");
        let name = step["name"].as_str().expect("a name");
        assert_eq!(has, ["fetch-layers", "push", "push-layers"].contains(&name), "{step}");
        assert!(!has || step["command"][0] == "convoke", "{step}");
    }
    // Without it the hash of the template, and so the key, is that of the steps that run.
    let hash = |spec: &AgentBuildSpec| template_hash(&template, spec, "registry");
    assert_ne!(hash(&spec()), hash(&cached()));
    assert_eq!(hash(&spec()), hash(&AgentBuildSpec { layer_cache: false, ..cached() }));
}

#[test]
fn b13_where_a_mode_has_no_cache_it_says_so() {
    let error = rendered(&cached(), &preprod()).expect_err("no step takes it");
    assert_eq!(error.reason(), "StrategyNotSupported");
    let said = "spec.layerCache is true, but no step that runs has the parameter cache-digest";
    assert_eq!(error.to_string(), said);
    let error = rendered(&cached(), &scanning("prod")).expect_err("it is attested");
    assert_eq!(error.reason(), "StrategyNotSupported");
    assert!(error.to_string().starts_with("spec.layerCache must not be true with provenance"));
    // Not only the shipped one.
    let attested = ResolvedTemplate { provenance: true, ..shipped() };
    rendered(&cached(), &attested).expect_err("it is attested");
    rendered(&spec(), &attested).expect("rendered");
}
