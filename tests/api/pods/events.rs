//! Events tell what becomes of an object, each once.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::json;

use super::stage_on;
use crate::support::stage::{SOON, Stage};
use crate::support::team::ARGS;
use crate::support::{Cluster, eventually};

/// The events about an agent.
async fn events(stage: &Stage, agent: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let mut all = api.list(&ListParams::default()).await.expect("events").items;
    all.retain(|event| {
        let about = &event.involved_object;
        about.kind.as_deref() == Some("Agent") && about.name.as_deref() == Some(agent)
    });
    all
}

/// How often what was told of an agent, sorted: what is told again within minutes is counted in one event.
async fn told(stage: &Stage, agent: &str) -> Vec<String> {
    let told = events(stage, agent).await.into_iter().map(|event| {
        let count = event.series.and_then(|series| series.count).unwrap_or(1);
        let text = |text: Option<String>| text.unwrap_or_default();
        format!("{count} {} {}", text(event.type_), text(event.reason))
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

/// Waits until just this was told of an agent.
async fn comes_to(stage: &Stage, agent: &str, expected: &[&str]) {
    eventually(SOON, &format!("{agent}: {expected:?}"), || async {
        let told = told(stage, agent).await;
        if told == expected { Ok(()) } else { Err(told) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_a_rollout_a_failure_a_conflict_and_a_recovery_are_told_by_one_event_each() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let stage = stage_on(&cluster, "events").await;
    let namespace = ["-n", stage.namespace.as_str()];
    let kubectl = |args: &[&str]| cluster.kubectl(&[&namespace[..], args].concat());
    // One that fails, and stays so.
    stage.agent("broken", json!({})).await;
    let pod = stage.pods_of("broken", 1).await.remove(0);
    stage.cannot_pull(&pod).await;
    stage.told("broken", "Failed", "ImagePullBackOff").await;

    stage.agent("helper", json!({"image": "reg/agent:1"})).await;
    let old = stage.pods_of("helper", 1).await.remove(0);
    stage.serves(&old).await;
    stage.told("helper", "Ready", "Available").await;
    comes_to(&stage, "helper", &["1 Normal Available"]).await;

    stage.agent("helper", json!({"image": "reg/agent:9"})).await;
    let mut pods = stage.pods_of("helper", 2).await;
    pods.retain(|pod| *pod != old);
    stage.cannot_pull(&pods[0]).await;
    stage.told("helper", "Failed", "ImagePullBackOff").await;
    stage.serves(&pods[0]).await;
    stage.told("helper", "Ready", "Available").await;

    // Its Service becomes somebody else's, and goes.
    let disown = r#"{"metadata": {"ownerReferences": null}}"#;
    kubectl(&["patch", "service", "agent-helper", "--type=merge", "-p", disown]);
    stage.told("helper", "Failed", "Conflict").await;
    kubectl(&["delete", "service", "agent-helper"]);
    kubectl(&["annotate", "agents.convoke.dev", "helper", "example.com/look=again"]);
    stage.told("helper", "Ready", "Available").await;
    let all = [
        "1 Normal RollingOut",
        "1 Warning Conflict",
        "1 Warning ImagePullBackOff",
        "3 Normal Available",
    ];
    let failed = ["1 Warning ImagePullBackOff"];
    comes_to(&stage, "helper", &all).await;
    comes_to(&stage, "broken", &failed).await;
    let notes: Vec<_> =
        events(&stage, "helper").await.into_iter().filter_map(|event| event.message).collect();
    for note in [
        "Deployment agent-helper is changed, and replaces its pods",
        "Service agent-helper exists and is not ours",
        "1 of 1 replicas available",
    ] {
        assert!(notes.iter().any(|told| told == note), "{note}: {notes:#?}");
    }

    // What is so already is told by no start; what comes is.
    operator.restart();
    operator.ready(SOON).await;
    stage.agent("late", json!({})).await;
    let pod = stage.pods_of("late", 1).await.remove(0);
    stage.cannot_pull(&pod).await;
    comes_to(&stage, "late", &["1 Warning ImagePullBackOff"]).await;
    assert_eq!(told(&stage, "helper").await, all);
    assert_eq!(told(&stage, "broken").await, failed);
}
