//! The shipped template where the operator has a build profile.

use super::*;

const ALL: [BuildProfile; 4] = [
    BuildProfile::Baseline,
    BuildProfile::Userns,
    BuildProfile::Rootless,
    BuildProfile::Privileged,
];

fn under(profile: BuildProfile, pipeline: &Value) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    let pipeline = serde_json::from_value(pipeline.clone()).expect("a pipeline");
    resolved_under(profile, "dev", &config_map(TEMPLATE), &pipeline)
}

fn template_under(profile: BuildProfile) -> ResolvedTemplate {
    under(profile, &json!({})).expect("resolved")
}

#[test]
fn b3_a_profile_changes_the_step_that_builds_and_no_other() {
    let baseline = rendered(&spec(), &template_under(BuildProfile::Baseline)).expect("rendered");
    for profile in ALL {
        let mut run = rendered(&spec(), &template_under(profile)).expect("rendered");
        let pod = &mut run["spec"]["taskRunTemplate"]["podTemplate"];
        let host_users = pod.as_object_mut().expect("a map").remove("hostUsers");
        let is_userns = profile == BuildProfile::Userns;
        assert_eq!(host_users, is_userns.then_some(json!(false)), "{profile}");
        let contexts = |run: &Value| -> Vec<Value> {
            steps_of(run).iter().map(|step| step["securityContext"].clone()).collect()
        };
        let (have, want) = (contexts(&run), contexts(&baseline));
        assert_eq!(have[2] != want[2], profile != BuildProfile::Baseline, "{profile}");
        let steps = &mut run["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"];
        steps[2]["securityContext"] = want[2].clone();
        assert_eq!(run, baseline, "{profile}");
    }
}

#[test]
fn b3_b11_what_builds_no_dockerfile_needs_no_profile() {
    let template = template_under(BuildProfile::Userns);
    let run = rendered(&appending(), &template).expect("rendered");
    assert_eq!(run, rendered(&appending(), &shipped()).expect("rendered"));
    assert!(in_user_namespace(&template, &spec(), "r"));
    assert!(!in_user_namespace(&template, &appending(), "r"));
    assert!(!in_user_namespace(&template_under(BuildProfile::Rootless), &spec(), "r"));
}

#[test]
fn b1_a_profile_builds_nothing_anew() {
    let keys = |with_version: bool| -> BTreeSet<String> {
        let hash = |profile| {
            let mut template = template_under(profile);
            if !with_version {
                template.version = None;
                template.steps.iter_mut().for_each(|step| step.version = None);
            }
            template_hash(&template, &spec(), "r") + &parameters_hash(&template, &spec(), "r")
        };
        ALL.into_iter().map(hash).collect()
    };
    assert_eq!(keys(true).len(), 1);
    assert_eq!(keys(false).len(), 1);
    assert_ne!(keys(true), keys(false));
}

#[test]
fn b4_an_agent_build_does_not_choose_what_runs_with_privileges() {
    let image = json!({"parameters": [{"name": "buildah-image", "value": "evil"}]});
    let steps = ["clone", "verify", "build", "push"]
        .map(|name| json!({"name": name, "configMap": format!("convoke-step-{name}")}));
    let mut own = json!({"steps": steps});
    under(BuildProfile::Privileged, &own).expect("its order of the shipped steps");
    own["steps"][2]["parameters"] = json!([{"name": "buildah-image", "value": "evil"}]);
    let tests = json!({"name": "test", "configMap": "convoke-step-test", "parameters": [
        {"name": "test-command", "values": ["true"]},
    ]});
    let mut tested = json!({"steps": steps});
    tested["steps"].as_array_mut().expect("a list").insert(3, tests);
    under(BuildProfile::Privileged, &tested).expect("what its tests run");
    tested["steps"][3]["parameters"] = json!([
        {"name": "test-command", "values": ["true"]}, {"name": "buildah-image", "value": "evil"},
    ]);
    let errors = under(BuildProfile::Privileged, &tested).expect_err("and not with which program");
    let said = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(said.starts_with("step test: parameter buildah-image must not be set"), "{said}");
    let data = json!({"parameters": [
        {"name": "dockerfile", "value": "other"}, {"name": "build-args", "values": ["A=b"]},
    ]});
    for profile in ALL {
        under(profile, &data).expect("a Dockerfile and its arguments");
        for pipeline in [&image, &own] {
            let have = under(profile, pipeline);
            if profile == BuildProfile::Baseline {
                have.expect("it may");
                continue;
            }
            let errors = have.expect_err("it must not");
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            let why = format!(
                "the step runs with the operator's --build-profile={profile}, so only the template sets it"
            );
            assert_eq!(
                errors,
                [format!("step build: parameter buildah-image must not be set: {why}")]
            );
        }
    }
}
