//! Peers that go while nobody looks.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::support::gate::Gate;
use super::support::team::{ARGS, SOON, Team, model};
use super::support::{Cluster, eventually};
use super::{REMOTE, agent, condition, env};

/// A team whose agent `one` is wired to `two`, and the gate before its repository. No commit says anything about `two`, which is
/// made by hand.
async fn wired<'a>(cluster: &'a Cluster, prefix: &str) -> (Team<'a>, Gate) {
    let one = agent("one", "  agentNetwork:\n    access: [two]\n  replicas: 0\n");
    let gpt = model("gpt");
    let files = [
        ("m.yaml", gpt.as_str()),
        ("s.yaml", REMOTE),
        ("one.yaml", one.as_str()),
        ("prompt.md", "p"),
    ];
    let team = Team::new(cluster, prefix, &files).await;
    let two = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "two"}, "spec": {"modelAPI": {"name": "gpt"}, "replicas": 0}});
    let two = serde_json::from_value(two).expect("agent");
    team.agents().create(&PostParams::default(), &two).await.expect("create");
    let (gate, url) = team.gate();
    team.sync_with(json!({"url": url, "timeout": "10m"})).await;
    told(&team, Some("two")).await;
    team.agent_is("one", "its peer", |s| condition(s, "PeersResolved")["status"] == "True").await;
    (team, gate)
}

/// Waits until the pods of agent `one` are told of these peers.
async fn told(team: &Team<'_>, peers: Option<&str>) {
    eventually(SOON, &format!("{}: the peers are {peers:?}", team.namespace), || async {
        let told = env(&team.deployment("agent-one").await, "PEER_AGENTS");
        if told.as_deref() == peers { Ok(()) } else { Err(told) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_a_peer_that_went_while_the_operator_was_away_is_unwired_soon() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let teams = [
        wired(&cluster, "read").await,
        wired(&cluster, "suspended").await,
        wired(&cluster, "deleted").await,
    ];
    operator.kill9();
    for (team, gate) in &teams {
        gate.hold();
        team.agents().delete("two", &DeleteParams::default()).await.expect("delete");
    }
    operator.restart();
    for (team, _) in &teams {
        team.agent_is("one", "no peer", |s| {
            condition(s, "PeersResolved")["message"] == "missing: two"
        })
        .await;
        // A commit that nobody has read yet may bring it back.
        told(team, Some("two")).await;
    }

    // It is known what is wanted in each of these ways, and none of them is an event of the peer.
    let [(_, gate), (suspended, _), (deleted, _)] = &teams;
    gate.release();
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    suspended.syncs.patch("main", &PatchParams::default(), &suspend).await.expect("suspend");
    deleted.syncs.delete("main", &DeleteParams::default()).await.expect("delete");
    for (team, gate) in &teams {
        told(team, None).await;
        gate.release();
    }
}
