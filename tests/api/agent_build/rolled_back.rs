//! An AgentBuild shows what went back from its image (A10).

use convoke::api::{Agent, MCPServer};

use super::team::*;
use super::*;

fn agent(team: &Team<'_>, name: &str, build: &str) {
    team.cluster.apply(&json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": name, "namespace": team.namespace},
        "spec": {"modelAPI": {"name": "gpt"}, "model": "m", "waitForDependencies": false, "buildRef": {"name": build}},
    }));
}

async fn fails(team: &Team<'_>, name: &str, failed: Value) {
    let api: Api<Agent> = Api::namespaced(team.client.clone(), &team.namespace);
    let status = json!({"status": {"rollout": {"deployment": "u-i-d", "failed": failed}}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("patch");
}

#[tokio::test]
async fn a10_a_build_names_the_agents_that_went_back_from_its_image() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();
    let watches = [
        tokio::spawn({
            let (api, store) = (Api::all(team.operator.clone()), controller.stores.agents.clone());
            reflector::run::<Managed<Agent>>(api, store, None)
        }),
        tokio::spawn({
            let store = controller.stores.mcp_servers.clone();
            reflector::run::<Managed<MCPServer>>(Api::all(team.operator.clone()), store, None)
        }),
    ];
    for name in ["reviewer", "other"] {
        team.apply_build(name, &json!({}));
        team.commit(&controller, name, '1', Some('a'));
        let building = |s: &AgentBuildStatus| s.pipeline_run.is_some();
        let status = team.until(name, "it builds", building).await;
        team.end(status.pipeline_run.as_deref().expect("a run"), true).await;
        let built = |s: &AgentBuildStatus| s.built_image.is_some();
        team.until(name, "it is built", built).await;
    }
    let image = team.status("reviewer").await.built_image.expect("an image");
    agent(&team, "first", "reviewer");
    agent(&team, "second", "other");
    let failed = json!({"revision": "r", "image": image, "reason": "CrashLoopBackOff", "message": "it ends"});
    fails(&team, "first", failed).await;
    let back = |s: &AgentBuildStatus| condition(s, "RolledBack") == Some(("True", "RolledBack"));
    let status = team.until("reviewer", "it is told", back).await;
    let told = status.conditions.iter().find(|one| one.type_ == "RolledBack").expect("it");
    assert!(told.message.ends_with(": agent/first"), "{}", told.message);
    assert_eq!(condition(&status, "Ready"), Some(("True", "Built")));
    assert_eq!(condition(&team.status("other").await, "RolledBack"), None);

    // The agent has another revision.
    fails(&team, "first", Value::Null).await;
    let over = |s: &AgentBuildStatus| condition(s, "RolledBack").is_none();
    team.until("reviewer", "it is over", over).await;
    watches.iter().for_each(tokio::task::JoinHandle::abort);
}
