//! What one namespace holds for agents costs the operator little, and nobody else anything.

use std::time::Duration;

use convoke::api::Kind;
use convoke::api::keys::OWNER_KIND;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::support::Cluster;
use super::support::team::{ARGS, SOON, Team};
use super::{ALLOWED, inputs, reads, team};

/// ConfigMaps of the hoarder.
const MANY: usize = 120;
/// Bytes of each: what the API server takes is 1 MiB.
const LARGE: usize = 1_000_000;
/// Most memory that the operator may ever have, in MiB; all of them at once would be more than twice that.
const MOST_MIB: u64 = 192;

/// Makes many large ConfigMaps.
async fn hoard(team: &Team<'_>) {
    let api: Api<ConfigMap> = Api::namespaced(team.client.clone(), &team.namespace);
    let one = |number: usize| {
        let api = api.clone();
        async move {
            let text = format!("{number:08}").repeat(LARGE / 8);
            // As if it were a child, too.
            let labels = json!({ALLOWED.0: ALLOWED.1, OWNER_KIND: "agent"});
            let map = json!({"metadata": {"name": format!("hoard-{number:03}"), "labels": labels}, "data": {"k": text}});
            let map = serde_json::from_value(map).expect("a ConfigMap");
            api.create(&PostParams::default(), &map).await
        }
    };
    let made = futures::stream::iter(0..MANY).map(one).buffer_unordered(8);
    made.try_collect::<Vec<_>>().await.expect("ConfigMaps");
}

/// The most memory that a process ever had resident, in MiB.
fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_what_one_namespace_hoards_costs_little_memory_and_is_told_there_and_nowhere_else() {
    let cluster = Cluster::exclusive().await;
    let first = ("first.yaml", reads("first", "configMap", "hoard-000", "k"));
    let last = format!("hoard-{:03}", MANY - 1);
    let last = ("last.yaml", reads("last", "configMap", &last, "k"));
    let hoarder = team(&cluster, "hoarder", &[first, last]).await;
    hoard(&hoarder).await;
    let calm = team(&cluster, "calm", &[("c.yaml", reads("calm", "configMap", "mine", "k"))]).await;
    calm.put_map("mine", &[ALLOWED], json!({"k": "1"})).await;

    // Each counts two: itself and its key.
    let args: Vec<_> = ARGS.iter().copied().chain(["--inputs-max-keys=100"]).collect();
    let mut operator = cluster.operator(&args).await;
    operator.ready(Duration::from_secs(120)).await;
    for team in [&hoarder, &calm] {
        team.sync_with(json!({})).await;
    }
    let told = hoarder
        .condition(Kind::Agent, "last", "InputsFollowed", |c| c["reason"] == "BudgetExceeded")
        .await;
    let message = told["message"].as_str().expect("a message");
    assert!(message.contains("ConfigMap hoard-119") && message.contains("--inputs-max-keys"));
    let peak = peak_mib(operator.pid());
    eprintln!("the operator's peak with {MANY} ConfigMaps of {LARGE} bytes: {peak} MiB");
    assert!(peak < MOST_MIB, "{peak} MiB");

    // What fits is followed, there and elsewhere.
    for (team, agent) in [(&hoarder, "first"), (&calm, "calm")] {
        team.condition(Kind::Agent, agent, "InputsFollowed", Value::is_null).await;
        let deployment = team.deployment(&format!("agent-{agent}")).await;
        assert!(inputs(&deployment).is_some(), "{agent} is followed");
    }
    let without = hoarder.deployment("agent-last").await;
    assert_eq!(inputs(&without), None);
    let before = calm.deployment("agent-calm").await;
    calm.put_map("mine", &[ALLOWED], json!({"k": "2"})).await;
    calm.rolled(&before).await;
    assert!(peak_mib(operator.pid()) < MOST_MIB, "with changes");

    // With room it is followed.
    let api: Api<ConfigMap> = Api::namespaced(hoarder.client.clone(), &hoarder.namespace);
    for number in 1..MANY - 1 {
        let name = format!("hoard-{number:03}");
        api.delete(&name, &DeleteParams::default()).await.expect("delete");
    }
    operator.restart();
    operator.ready(SOON).await;
    hoarder.condition(Kind::Agent, "last", "InputsFollowed", Value::is_null).await;
    assert!(inputs(&hoarder.rolled(&without).await).is_some());
}
