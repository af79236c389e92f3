//! Runs in other namespaces that nobody wants any more, and finalizers that somebody else writes or refuses (B5).

use super::elsewhere::finalizer;
use super::forged::Refusal;
use super::*;

fn builds_of(team: &Team<'_>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("convoke.dev", "v1alpha1", "AgentBuild");
    let resource = ApiResource::from_gvk_with_plural(&kind, "agentbuilds");
    Api::namespaced_with(team.client.clone(), &team.namespace, &resource)
}

/// Takes all finalizers away from an AgentBuild, and deletes it.
async fn strip(team: &Team<'_>, build: &str) {
    let api = builds_of(team);
    eventually(SOON, "it is gone", || async {
        let none = json!({"metadata": {"finalizers": null}});
        let _ = api.delete(build, &DeleteParams::default()).await;
        let _ = api.patch(build, &PatchParams::default(), &Patch::Merge(&none)).await;
        match api.get_opt(build).await.expect("an answer") {
            None => Ok(()),
            Some(left) => Err(left.metadata),
        }
    })
    .await;
}

#[tokio::test]
async fn b5_runs_of_an_agent_build_that_is_gone_are_removed_and_no_others() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let other = team.in_namespace(&cluster.namespace("team").await);
    let there = team.in_namespace(&cluster.namespace("builds").await);
    team.let_hold();
    let mut controller = team.start_in(Some(&there.namespace));
    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let (_, run) = team.runs_elsewhere("reviewer", &there).await;
    other.apply_build("reviewer", &json!({}));
    other.commit(&controller, "reviewer", '1', Some('a'));
    let (_, kept) = other.runs_elsewhere("reviewer", &there).await;

    // What only looks like one of its runs stays: its name does not follow from its labels.
    let mut forged = run.clone();
    forged.metadata = kube::api::ObjectMeta {
        name: Some("forged".into()),
        labels: run.metadata.labels.clone(),
        annotations: run.metadata.annotations.clone(),
        ..kube::api::ObjectMeta::default()
    };
    forged.data["status"] = Value::Null;
    there.runs_api().create(&PostParams::default(), &forged).await.expect("a run");

    // While no operator is there, so that none sees it go.
    drop(controller);
    strip(&team, "reviewer").await;
    assert_eq!(there.runs().await.len(), 3);
    controller = team.start_in(Some(&there.namespace));
    let names = async || {
        let mut names: Vec<_> = there.runs().await.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    };
    let mut want = vec!["forged".to_owned(), kept.name_any()];
    want.sort();
    let is_clean = async |want: &[String]| {
        eventually(3 * SOON, "what is nobody's is removed", || async {
            let left = names().await;
            if left == want { Ok(()) } else { Err(left) }
        })
        .await;
    };
    is_clean(&want).await;

    // One that was made anew meanwhile keeps its own. The turn is free for it.
    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let (_, anew) = team.runs_elsewhere("reviewer", &there).await;
    let uid = anew.labels()["convoke.dev/uid"].clone();
    assert_ne!(uid, run.labels()["convoke.dev/uid"]);
    strip(&team, "reviewer").await;
    team.apply_build("reviewer", &json!({"buildArgs": {"A": "2"}}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    eventually(3 * SOON, "the run of the one before is removed", || async {
        let all = there.runs().await;
        let old = all.iter().filter(|run| run.labels()["convoke.dev/uid"] == uid).count();
        if old == 0 { Ok(()) } else { Err(old) }
    })
    .await;
    let (_, last) = team.runs_elsewhere("reviewer", &there).await;
    want.push(last.name_any());
    want.sort();
    is_clean(&want).await;
    drop(controller);
}

#[tokio::test]
async fn b5_a_finalizer_that_cannot_be_removed_is_told_and_builds_go_on() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.let_hold();
    team.apply_build("reviewer", &json!({}));
    // Whoever may write AgentBuilds may write this.
    let forged = json!({"metadata": {"finalizers": [finalizer("nowhere")]}});
    let api = builds_of(&team);
    api.patch("reviewer", &PatchParams::default(), &Patch::Merge(&forged)).await.expect("patched");
    let none = json!({"metadata": {"finalizers": []}});
    let rule = "has(object.metadata.finalizers) && size(object.metadata.finalizers) > 0";
    let refusal =
        Refusal::of(&team, &api, ("convoke.dev", "agentbuilds"), rule, ("reviewer", none)).await;
    let controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let is_told = |s: &AgentBuildStatus| {
        s.phase == Some(BuildPhase::Building)
            && condition(s, "CleanupFailed") == Some(("True", "CleanupFailed"))
    };
    let status = team.until("reviewer", "it builds, and says what is wrong", is_told).await;
    let said = status.conditions.iter().find(|one| one.type_ == "CleanupFailed");
    let said = &said.expect("the condition").message;
    assert!(said.contains("nowhere") && said.contains("the house says no"), "{said}");
    let run = status.pipeline_run.expect("a run");
    team.end(&run, true).await;
    let built =
        team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert_eq!(condition(&built, "Ready"), Some(("True", "Built")));
    assert!(condition(&built, "CleanupFailed").is_some());

    drop(refusal);
    let is_over = |s: &AgentBuildStatus| condition(s, "CleanupFailed").is_none();
    team.until("reviewer", "it is tried again", is_over).await;
    assert!(team.finalizers("reviewer").await.is_empty());
    drop(controller);
}

#[tokio::test]
async fn b5_runs_of_an_agent_build_that_is_gone_are_removed_when_tekton_is_served_late() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let there = team.in_namespace(&cluster.namespace("builds").await);
    team.let_hold();
    let controller = team.start_in(Some(&there.namespace));
    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    team.runs_elsewhere("reviewer", &there).await;
    drop(controller);
    strip(&team, "reviewer").await;

    // The next operator works for a while before it knows of any run.
    serve(&team, false).await;
    let controller = team.start_in(Some(&there.namespace));
    team.apply_build("barrier", &json!({}));
    let is_missing = |s: &AgentBuildStatus| {
        condition(s, "BuilderAvailable") == Some(("False", "TektonNotInstalled"))
    };
    team.commit(&controller, "barrier", '1', Some('a'));
    team.until("barrier", "the operator works", is_missing).await;
    serve(&team, true).await;
    eventually(3 * SOON, "what is nobody's is removed", || async {
        let left =
            there.runs_api().list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let of = |run: &&DynamicObject| run.labels()["convoke.dev/name"] == "reviewer";
        let names: Vec<_> = left.iter().filter(of).map(ResourceExt::name_any).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    drop(controller);
}

/// Has the API server serve `v1` of PipelineRuns, or not. They stay.
async fn serve(team: &Team<'_>, served: bool) {
    let api: Api<CustomResourceDefinition> = Api::all(team.client.clone());
    let definition = api.get("pipelineruns.tekton.dev").await.expect("a definition");
    let at = definition.spec.versions.iter().position(|version| version.name == "v1");
    let at = at.expect("v1");
    let patch =
        json!([{"op": "replace", "path": format!("/spec/versions/{at}/served"), "value": served}]);
    let patch: json_patch::Patch = serde_json::from_value(patch).expect("a patch");
    let (patch, params) = (Patch::<()>::Json(patch), PatchParams::default());
    api.patch("pipelineruns.tekton.dev", &params, &patch).await.expect("patched");
}
