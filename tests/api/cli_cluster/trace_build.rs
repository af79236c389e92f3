//! `convoke trace` through a build of the operator's own: its PipelineRun is a real one, and the test writes what Tekton and a kubelet would write.

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::Run;
use super::trace::{IMAGE, agent, on_call, serves, shown, stage, traced};
use crate::agent_build::team::{install_tekton, install_templates};
use crate::support::team::{ARGS, SOON, Team, model};
use crate::support::{Cluster, eventually};

const BUILD: &str = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: one\nspec:\n  source:\n    gitSync: {}\n    subfolder: image\n  output:\n    image: ${NS}/one\n";

/// Writes what Tekton would write of a run.
async fn says(runs: &Api<DynamicObject>, name: &str, status: &str, reason: &str, results: Value) {
    // A run that goes on for longer than it may is told as one with which Tekton does nothing.
    let began = k8s_openapi::jiff::Timestamp::now().to_string();
    let patch = json!({"status": {"startTime": began, "results": results,
        "conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": "Tasks"}]}});
    let patch = Patch::Merge(&patch);
    runs.patch_status(name, &PatchParams::default(), &patch).await.expect("a status");
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_d8_each_stage_is_there_while_a_build_runs_and_after_it() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let args: Vec<_> = ARGS.iter().copied().chain(["--internal-registry=registry.test"]).collect();
    let operator = cluster.operator(&args).await;
    operator.ready(SOON).await;
    let (gpt, helper) = (model("gpt"), agent("buildRef: one"));
    let files = [
        ("team/gpt.yaml", gpt.as_str()),
        ("team/a.yaml", helper.as_str()),
        ("team/build.yaml", BUILD),
        ("image/Dockerfile", "FROM scratch\n"),
    ];
    let team = Team::new(&cluster, "tracerun", &files).await;
    let jane = on_call(&team, &operator).await;
    let variables = json!({"inline": {"NS": team.namespace}});
    team.sync_with(json!({"path": "team", "variables": variables})).await;
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
    let runs: Api<DynamicObject> =
        Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
    let name = eventually(SOON, "a PipelineRun", || async {
        let mut runs = runs.list(&ListParams::default()).await.expect("a list of runs").items;
        runs.pop().map(|run| run.name_any()).ok_or("none yet")
    })
    .await;
    let key = name.split('-').nth(1).expect("a key").to_owned();
    // The trace without what differs from run to run.
    let commit = &team.repo.head()[..12];
    let text = |pod: &str, run: &Run| {
        shown(&team, pod, run).replace(&key, "KEY").replace(commit, "COMMIT")
    };

    says(&runs, &name, "Unknown", "Running", json!([])).await;
    let run = eventually(SOON, "the run runs", || async {
        let begin = "does not run yet: AgentBuild one is under way";
        let run = traced(&team, &jane, 1, begin).await;
        if run.out.contains(&format!("PipelineRun {name} runs")) { Ok(run) } else { Err(run) }
    })
    .await;
    insta::assert_snapshot!(text("", &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | not Ready (WaitingForBuild) | team/a.yaml:1; Waiting for AgentBuild one
    AgentBuild | one | COMMIT | Building | key KEY; PipelineRun one-KEY-1 runs; building commit COMMIT in PipelineRun one-KEY-1
    image | - | - | missing | nothing was built yet
    Deployment | - | - | missing | there is no Deployment agent-helper

    commit COMMIT does not run yet: AgentBuild one is under way (Building): building commit COMMIT in PipelineRun one-KEY-1; next: convoke logs build/one -n NAMESPACE -f
    ");

    let image = format!("registry.test/{}/one", team.namespace);
    let (_, digest) = IMAGE.split_once('@').expect("a digest");
    let results = json!([{"name": "IMAGE_URL", "value": format!("{image}:t")}, {"name": "IMAGE_DIGEST", "value": digest}]);
    says(&runs, &name, "True", "Succeeded", results).await;
    let stage = stage(&team);
    let pod = stage.pods_of("helper", 1).await.remove(0);
    let run = traced(&team, &jane, 1, "does not run yet: 0 of 1 replicas available; pod").await;
    insta::assert_snapshot!(text(&pod, &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | not Ready (RollingOut) | team/a.yaml:1; 0 of 1 replicas available
    AgentBuild | one | COMMIT | Succeeded (Built) | key KEY; PipelineRun one-KEY-1 succeeded
    image | registry.test/NAMESPACE/one | COMMIT | built | sha256:111111111111
    Deployment | agent-helper | - | 0/1 available | sha256:111111111111; generation 1 observed
    pod | POD | - | not ready (Pending) | no image yet; 0 restarts

    commit COMMIT does not run yet: 0 of 1 replicas available; pod POD is not ready (Pending); next: kubectl -n NAMESPACE describe pod POD
    ");
    serves(&stage, &pod).await;
    let run = traced(&team, &jane, 0, "runs").await;
    insta::assert_snapshot!(text(&pod, &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | Ready (Available) | team/a.yaml:1
    AgentBuild | one | COMMIT | Succeeded (Built) | key KEY; PipelineRun one-KEY-1 succeeded
    image | registry.test/NAMESPACE/one | COMMIT | built | sha256:111111111111
    Deployment | agent-helper | - | 1/1 available | sha256:111111111111; generation 1 observed
    pod | POD | - | ready | sha256:111111111111; 0 restarts

    commit COMMIT runs: 1 of 1 pods ready with sha256:111111111111
    ");
    assert_eq!(run.err, "");
}
