//! `--build-profile`: which steps get it (B3).

use super::team::*;
use super::*;

/// A ConfigMap of the operator, under another name in the namespace of the team.
fn copy(team: &Team<'_>, name: &str, to: &str) {
    let found =
        team.cluster.kubectl(&["get", "-n", "convoke-system", "configmap", name, "-o", "json"]);
    let found: Value = serde_json::from_str(&found).expect("a ConfigMap");
    assert!(found["data"].is_object(), "{found}");
    team.cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": found["data"],
        "metadata": {"name": to, "namespace": team.namespace, "labels": {"convoke.dev/step": "true"}},
    }));
}

/// `hostUsers` of the pod of a run, and the capabilities that its step `build` adds.
fn asked(run: &DynamicObject) -> (Value, Value) {
    let spec = &run.data["spec"];
    let steps = spec["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"].as_array().expect("steps");
    let build = steps.iter().find(|step| step["name"] == "build").expect("the step");
    let added = build["securityContext"]["capabilities"]["add"].clone();
    (spec["taskRunTemplate"]["podTemplate"]["hostUsers"].clone(), added)
}

#[tokio::test]
async fn b3_a_profile_counts_for_steps_and_templates_of_the_operator_only() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    copy(&team, "pipeline-template-dev", "pipeline-template-own");
    copy(&team, "convoke-step-build", "own-build");
    let step = |name: &str, map: &str| json!({"name": name, "configMap": map});
    let steps = json!([
        step("clone", "convoke-step-clone"),
        step("verify", "convoke-step-verify"),
        step("build", "own-build"),
        step("push", "convoke-step-push"),
    ]);
    let controller = team.start_under(BuildProfile::Userns);
    let with = (json!(false), json!(["SETFCAP", "SYS_ADMIN"]));
    let without = (Value::Null, json!(["SETFCAP"]));
    for (name, spec, want) in [
        ("shipped", json!({}), with),
        ("own-template", json!({"mode": "own"}), without.clone()),
        ("own-step", json!({"pipeline": {"steps": steps}}), without),
    ] {
        team.apply_build(name, &spec);
        team.commit(&controller, name, '1', Some('a'));
        let status = team.until(name, "it builds", |s| s.pipeline_run.is_some()).await;
        let run = team.runs_api().get(&status.pipeline_run.expect("a run")).await.expect("the run");
        assert_eq!(asked(&run), want, "{name}");
    }
    // An image of its own would run with the privileges.
    let image = json!({"pipeline": {"parameters": [{"name": "buildah-image", "value": "evil:1"}]}});
    team.apply_build("own-image", &image);
    team.commit(&controller, "own-image", '1', Some('a'));
    let refused =
        |s: &AgentBuildStatus| condition(s, "Ready") == Some(("False", "ParameterNotAllowed"));
    let status = team.until("own-image", "it is refused", refused).await;
    assert!(status.message.is_some_and(|said| said.contains("--build-profile=userns")));
    assert_eq!(team.runs().await.len(), 3);
}
