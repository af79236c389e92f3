//! What is as it should be causes no write.

use std::time::Duration;

use convoke::api::Kind;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use super::support::eventually;
use super::support::team::{AGENT, SOON, model};
use super::{REMOTE, agent, condition, team};

#[tokio::test(flavor = "multi_thread")]
async fn p11_settled_children_cause_no_write() {
    let agent = agent("calm", "");
    let team = team(
        "calm",
        &[("m.yaml", &model("gpt")), ("s.yaml", REMOTE), ("a.yaml", &agent), ("prompt.md", "p")],
    )
    .await;
    team.deployment("agent-calm").await;
    team.agent_is("calm", "settled", |s| s["phase"] == "Pending").await;
    // What is asked outside of the cluster is told when there is an answer, or none for the second time.
    for (kind, name, type_) in
        [(Kind::MCPServer, "search", "ToolsDiscovered"), (Kind::ModelAPI, "gpt", "Reachable")]
    {
        eventually(SOON, &format!("{type_} of {name}"), || async {
            let object = team.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let status = object.data["status"].clone();
            if condition(&status, type_).is_null() { Err(status) } else { Ok(()) }
        })
        .await;
    }
    // Quiet: no write in this namespace for a second.
    let mut mark = team.cluster.audit_mark();
    let writes = |mark| {
        let mut writes = team.cluster.writes_by(AGENT, mark);
        writes.retain(|r| r.namespace == team.namespace);
        writes
    };
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if writes(mark).is_empty() {
            break;
        }
        mark = team.cluster.audit_mark();
    }
    assert_eq!(writes(mark), []);
    // A touch that changes nothing of ours wakes every controller, and none of them writes.
    let patch = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
    for (kind, name) in
        [(Kind::Agent, "calm"), (Kind::ModelAPI, "gpt"), (Kind::MCPServer, "search")]
    {
        team.api(kind)
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("touch");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(writes(mark), []);
    let maps = team
        .config_maps()
        .list(&ListParams::default().labels("convoke.dev/kind=agent"))
        .await
        .expect("maps");
    assert_eq!(maps.items.len(), 1);
}
