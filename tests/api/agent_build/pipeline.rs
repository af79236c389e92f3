//! `spec.pipeline` of an AgentBuild: steps and parameters of its own (B3, B4).

use super::team::*;
use super::*;

/// A step of the team's own, which takes a parameter.
fn install_lint(team: &Team<'_>, parameter: &str) {
    let task = format!(
        "params:\n  - {{name: {parameter}, default: low}}\nsteps:\n  - {{name: lint, image: lint:1, env: [{{name: LEVEL, value: $(params.{parameter})}}], script: echo lint}}\n"
    );
    team.cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "lint", "namespace": team.namespace, "labels": {"convoke.dev/step": "true"}},
        "data": {"task-spec.yaml": task},
    }));
}

fn own(lint: &Value) -> Value {
    json!({"pipeline": {"steps": [
        {"name": "clone", "configMap": "convoke-step-clone"},
        {"name": "verify", "configMap": "convoke-step-verify", "enabled": false},
        {"name": "lint", "configMap": "lint", "parameters": lint},
        {"name": "build", "configMap": "convoke-step-build"},
        {"name": "push", "configMap": "convoke-step-push"},
    ]}})
}

fn level(value: &str) -> Value {
    json!([{"name": "level", "value": value}])
}

/// The names of the steps of a run, and the values of the parameters of its task.
fn made(run: &DynamicObject) -> (Vec<String>, BTreeMap<String, Value>) {
    let task = &run.data["spec"]["pipelineSpec"]["tasks"][0];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |item: &Value| item["name"].as_str().unwrap_or_default().to_owned();
    let steps = list(&task["taskSpec"]["steps"]).iter().map(name).collect();
    let parameters = list(&task["params"]);
    (steps, parameters.iter().map(|p| (name(p), p["value"].clone())).collect())
}

#[tokio::test]
async fn b3_b4_steps_and_parameters_of_an_agent_build_run_in_place_of_the_templates() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    install_lint(&team, "level");
    let controller = team.start();
    let hostile = "high'; rm -rf / #\n`id`";
    team.apply_build("reviewer", &own(&level(hostile)));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let first = team.until("reviewer", "it builds", |s| s.pipeline_run.is_some()).await;
    let run = &team.runs().await[0];
    let (steps, parameters) = made(run);
    assert_eq!(steps, ["clone", "lint", "build", "push"]);
    assert_eq!(parameters["lint_level"], hostile);
    assert_eq!(first.parameters_hash.as_ref().map(String::len), Some(64));
    team.end(first.pipeline_run.as_deref().expect("a run"), true).await;
    let built = |s: &AgentBuildStatus| s.phase == Some(BuildPhase::Succeeded);
    team.until("reviewer", "it is built", built).await;

    // Another value is another image.
    team.apply_build("reviewer", &own(&level("low")));
    let other = |s: &AgentBuildStatus| s.build_key != first.build_key && s.pipeline_run.is_some();
    let second = team.until("reviewer", "it builds again", other).await;
    assert_ne!(second.parameters_hash, first.parameters_hash);
    team.end(second.pipeline_run.as_deref().expect("a run"), true).await;
    team.until("reviewer", "it is built", built).await;

    // The one from before is there already.
    team.apply_build("reviewer", &own(&level(hostile)));
    let back = |s: &AgentBuildStatus| built(s) && s.build_key == first.build_key;
    let third = team.until("reviewer", "it is used again", back).await;
    assert_eq!(third.parameters_hash, first.parameters_hash);
    assert_eq!(team.runs().await.len(), 2);
}

#[tokio::test]
async fn b4_a_parameter_that_no_step_knows_is_told_and_heals() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();
    let said = |reason: &'static str, text: &'static str| {
        move |s: &AgentBuildStatus| {
            let message = s.message.as_deref().unwrap_or_default();
            condition(s, "Ready") == Some(("False", reason)) && message.contains(text)
        }
    };
    let with = |name: &str| json!({"pipeline": {"parameters": [{"name": name, "value": "x"}]}});
    team.apply_build("reviewer", &with("levle"));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let unknown = said(
        "UnknownParameter",
        "spec.pipeline.parameters: the pipeline has no parameter levle; those to set are build-args, buildah-image, dockerfile",
    );
    let status = team.until("reviewer", "it is unknown", unknown).await;
    assert_eq!((status.build_key, status.parameters_hash), (None, None));

    // The image of a step with credentials is not for a commit to choose.
    team.apply_build("reviewer", &with("git-image"));
    let refused = said("ParameterNotAllowed", "the step has credentials (workspace git-auth)");
    team.until("reviewer", "it is refused", refused).await;
    assert_eq!(team.runs().await.len(), 0);

    team.apply_build("reviewer", &with("buildah-image"));
    team.until("reviewer", "it builds", |s| s.pipeline_run.is_some()).await;
    let (_, parameters) = made(&team.runs().await[0]);
    assert_eq!(parameters["build_buildah-image"], "x");

    // The API server refuses what says which build it is.
    let api: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    for (parameter, said) in [
        (json!({"name": "image", "value": "other/image"}), "set by Convoke"),
        (json!({"name": "dockerfile", "value": "$(params.tag)"}), "must not contain"),
        (json!({"name": "dockerfile"}), "exactly one of value and values"),
    ] {
        let patch = Patch::Merge(json!({"spec": {"pipeline": {"parameters": [parameter]}}}));
        let error = api.patch("reviewer", &PatchParams::default(), &patch).await;
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[tokio::test]
async fn b3_of_many_missing_steps_eight_are_looked_for_and_three_are_named() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();
    let names: Vec<_> = (1..=9).map(|number| format!("missing-{number}")).collect();
    let steps: Vec<_> = names.iter().map(|name| json!({"name": name, "configMap": name})).collect();
    let since = cluster.audit_mark();
    team.apply_build("reviewer", &json!({"pipeline": {"steps": steps}}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let told = |s: &AgentBuildStatus| condition(s, "Ready") == Some(("False", "StepNotFound"));
    let message = team.until("reviewer", "it is told", told).await.message.unwrap_or_default();
    let named = names.iter().filter(|name| message.contains(*name)).count();
    assert_eq!(named, 3, "{message}");
    let asked = cluster.requests_by(&team.operator_user, since).into_iter();
    let asked: BTreeSet<_> = asked
        .filter(|record| record.verb == "get" && record.resource == "configmaps")
        .filter(|record| record.name.starts_with("missing-"))
        .map(|record| record.name)
        .collect();
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), names[..8]);
}
