//! Statuses are true against the world of pods.
//!
//! Without a node, on a real API server with the shipped rights: here the test writes what a kubelet would write into
//! the status of a pod, and Kubernetes' own controllers count. With a node: see `tests/node/pods.rs`.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod events;
mod refused;
mod rollback;

use crate::support;

use convoke::api::Kind;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::cluster::cluster;
use support::stage::{self, SOON, Stage, shown};
use support::team::{AGENT, ARGS, shared_operator};
use support::{AuditMark, Cluster, eventually};

/// A fresh namespace on the shared cluster, whose operator runs.
async fn stage(prefix: &str) -> Stage {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    stage_on(cluster, prefix).await
}

async fn stage_on(cluster: &Cluster, prefix: &str) -> Stage {
    let (client, namespace) = (cluster.client().await, cluster.namespace(prefix).await);
    Stage { client, namespace, patience: SOON }
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T10:00:00Z"}})
}

fn ended(code: i32) -> Value {
    json!({"terminated": {"exitCode": code, "reason": "Error", "startedAt": "2026-01-01T10:00:00Z",
        "finishedAt": "2026-01-01T10:00:00Z", "containerID": "containerd://1"}})
}

impl Stage {
    /// Lets the shared operator write keys for model proxies here.
    async fn may_have_keys(&self) {
        let cluster = cluster().await;
        cluster.grant_keys(&self.namespace, &[shared_operator(cluster).await]);
    }

    /// Writes what a kubelet would write of a pod whose only container is in this state.
    async fn is(&self, pod: &str, state: &Value, last: &Value, ready: bool, restarts: i32) {
        let container =
            if pod.starts_with("agent-") { "agent" } else { pod.split('-').next().expect("kind") };
        let good = if ready { "True" } else { "False" };
        let condition = |type_: &str| json!({"type": type_, "status": good, "lastTransitionTime": "2026-01-01T09:00:00Z"});
        let status = json!({
            "phase": if state["waiting"].is_null() { "Running" } else { "Pending" },
            "conditions": [condition("ContainersReady"), condition("Ready")],
            "containerStatuses": [{"name": container, "image": "reg/agent:9", "imageID": "", "ready": ready,
                "restartCount": restarts, "state": state, "lastState": last}],
        });
        let patch = Patch::Merge(json!({"status": status}));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.expect("patch");
    }

    async fn serves(&self, pod: &str) {
        self.is(pod, &running(), &json!({}), true, 0).await;
    }

    async fn cannot_pull(&self, pod: &str) {
        let said = waiting("ErrImagePull", "reg/agent:9: not found");
        self.is(pod, &said, &json!({}), false, 0).await;
    }

    /// Waits until the operator has seen all that was written to pods so far.
    async fn seen(&self, agent: &str, pod: &str, code: i32) {
        self.is(pod, &ended(code), &json!({}), false, 0).await;
        let text = format!("ends with exit code {code};");
        let is = |s: &Value| s["message"].as_str().is_some_and(|m| m.contains(&text));
        self.status(Kind::Agent, agent, "the last event is seen", is).await;
    }

    /// How often the status of an agent was written since then.
    async fn writes(&self, agent: &str, since: AuditMark) -> usize {
        let mut writes = cluster().await.writes_by(AGENT, since);
        writes.retain(|w| w.namespace == self.namespace && w.name == agent);
        writes.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_what_keeps_a_pod_from_running_is_told_once_and_heals() {
    let stage = stage("trouble").await;
    stage.agent("helper", json!({})).await;
    stage.agent("other", json!({})).await;
    let (pod, other) = (&stage.pods_of("helper", 1).await[0], &stage.pods_of("other", 1).await[0]);
    stage.told("helper", "Pending", "RollingOut").await;

    stage.cannot_pull(pod).await;
    let status = stage.told("helper", "Failed", "ImagePullBackOff").await;
    let text = format!(
        "0 of 1 replicas available; pod {pod}: container agent cannot have its image reg/agent:9: the registry does not have it; more: kubectl -n {} describe pod {pod}",
        stage.namespace
    );
    assert_eq!(status["message"], text);
    assert_eq!(stage::condition(&status, "Ready")["message"], text);
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
    assert_eq!(shown(&status, "Progressing"), "False(Stuck)");

    // The kubelet tries again and again: nothing new, so nothing is written.
    stage.seen("other", other, 1).await;
    let mark = cluster().await.audit_mark();
    for n in 0..6 {
        let said =
            format!("Back-off pulling image \"reg/agent:9\": ErrImagePull: try {n}: not found");
        stage.is(pod, &waiting("ImagePullBackOff", &said), &json!({}), false, 0).await;
        stage.cannot_pull(pod).await;
    }
    stage.seen("other", other, 2).await;
    assert_eq!(stage.writes("helper", mark).await, 0);

    // It starts, and dies again and again: one write.
    for n in 0..6 {
        stage.is(pod, &running(), &ended(7), false, n).await;
        stage.is(pod, &ended(7), &ended(7), false, n).await;
        let said = format!("back-off {n}0s restarting failed container=agent");
        stage.is(pod, &waiting("CrashLoopBackOff", &said), &ended(7), false, n).await;
    }
    stage.seen("other", other, 3).await;
    let status = stage.told("helper", "Failed", "CrashLoopBackOff").await;
    let log = format!("kubectl -n {} logs {pod} -c agent --previous", stage.namespace);
    assert!(status["message"].as_str().is_some_and(|m| m.ends_with(&log)), "{status}");
    assert_eq!(stage.writes("helper", mark).await, 1);

    stage.serves(pod).await;
    let status = stage.told("helper", "Ready", "Available").await;
    assert_eq!(
        status["message"], "1 of 1 replicas available; not ready: ModelAPI gpt (missing)",
        "what keeps a ready one from answering is told beside"
    );
    assert_eq!((&status["readyReplicas"], &status["unavailableReplicas"]), (&json!(1), &json!(0)));

    // Gone is gone: at once, and with true numbers.
    stage.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.expect("delete");
    let status = stage.told("helper", "Pending", "RollingOut").await;
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
    assert_eq!(status["message"], "0 of 1 replicas available");
    assert_eq!(status["unavailableReplicas"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_the_newest_revision_is_judged_and_old_pods_serve_on() {
    let stage = stage("revisions").await;
    stage.agent("helper", json!({"image": "reg/agent:1"})).await;
    let old = stage.pods_of("helper", 1).await.remove(0);
    stage.serves(&old).await;
    stage.told("helper", "Ready", "Available").await;

    stage.agent("helper", json!({"image": "reg/agent:9"})).await;
    let mut pods = stage.pods_of("helper", 2).await;
    pods.retain(|pod| *pod != old);
    let new = &pods[0];
    stage.cannot_pull(new).await;
    let status = stage.told("helper", "Failed", "ImagePullBackOff").await;
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    let begin =
        format!("1 of 1 replicas updated, 1 of earlier revisions left; pod {new}: container agent");
    let is = |s: &Value| s["message"].as_str().is_some_and(|m| m.starts_with(&begin));
    stage.status(Kind::Agent, "helper", "how far it is", is).await;

    // The old one dies, too: that nobody serves is told, and the reason stays that of the newest.
    stage.is(&old, &ended(1), &json!({}), false, 1).await;
    let gone = |s: &Value| shown(s, "Available").starts_with("False");
    let status = stage.status(Kind::Agent, "helper", "nobody serves", gone).await;
    assert_eq!(shown(&status, "Ready"), "False(ImagePullBackOff)");

    // The new one starts: the old one is on its way out, and no trouble of anybody.
    stage.is(new, &running(), &json!({}), false, 0).await;
    let status = stage.told("helper", "Pending", "RollingOut").await;
    assert!(gone(&status), "{status}");
    stage.serves(new).await;
    stage.told("helper", "Ready", "Available").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_of_many_pods_the_count_and_one_trouble_are_told() {
    let stage = stage("many").await;
    stage.agent("helper", json!({"replicas": 3})).await;
    let mut pods = stage.pods_of("helper", 3).await;
    pods.sort();
    stage.serves(&pods[1]).await;
    stage.is(&pods[2], &ended(1), &json!({}), false, 1).await;
    // The Deployment counts in its own time.
    let begin = format!("1 of 3 replicas available; pod {}: container agent ends", pods[2]);
    let is = |s: &Value| s["message"].as_str().is_some_and(|m| m.starts_with(&begin));
    let status = stage.status(Kind::Agent, "helper", "count and trouble", is).await;
    assert_eq!((&status["readyReplicas"], &status["phase"]), (&json!(1), &json!("Failed")));
    assert_eq!(shown(&status, "Ready"), "False(CrashLoopBackOff)");
    // What is told does not depend on who comes last.
    stage.cannot_pull(&pods[0]).await;
    stage.told("helper", "Failed", "ImagePullBackOff").await;
    stage.is(&pods[2], &ended(4), &json!({}), false, 2).await;
    stage.serves(&pods[0]).await;
    let status = stage.told("helper", "Failed", "CrashLoopBackOff").await;
    assert!(status["message"].as_str().is_some_and(|m| m.contains("exit code 4")), "{status}");

    // What is not to run is in no trouble.
    stage.agent("helper", json!({"replicas": 3, "suspend": true})).await;
    let status = stage.told("helper", "Stopped", "Suspended").await;
    assert_eq!(status["message"], "Suspended");
}

#[tokio::test(flavor = "multi_thread")]
async fn m4_t_models_and_tools_say_why_their_pods_do_not_run() {
    let stage = stage("servers").await;
    stage.may_have_keys().await;
    stage
        .apply(
            Kind::ModelAPI,
            "gpt",
            json!({"mode": "Proxy", "proxy": {"provider": "openai", "models": ["m"]}}),
        )
        .await;
    stage
        .apply(
            Kind::MCPServer,
            "tools",
            json!({"toolsString": "def one() -> int:\n    return 1\n"}),
        )
        .await;
    for (kind, name) in [(Kind::ModelAPI, "gpt"), (Kind::MCPServer, "tools")] {
        let pod = eventually(SOON, "a pod", || async { stage.names(kind, name).await.pop() }).await;
        let said = waiting("CreateContainerConfigError", "secret \"keys\" not found");
        stage.is(&pod, &said, &json!({}), false, 0).await;
        let is = |s: &Value| shown(s, "Ready") == "False(CreateContainerConfigError)";
        let status = stage.status(kind, name, "the Secret is missing", is).await;
        let end = "cannot be made: secret \"keys\" not found";
        assert!(status["message"].as_str().is_some_and(|m| m.ends_with(end)), "{status}");
        assert_eq!(status["phase"], "Failed");
        stage.serves(&pod).await;
        stage.status(kind, name, "Ready", |s| s["phase"] == "Ready").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_without_the_right_to_see_pods_statuses_say_what_deployments_say() {
    let cluster = Cluster::exclusive().await;
    let mut role: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "clusterrole", "convoke", "-o", "json"]))
            .expect("JSON");
    role["metadata"] = json!({"name": "convoke"});
    let whole = role.clone();
    let rules = role["rules"].as_array_mut().expect("rules");
    let before = rules.len();
    rules.retain(|rule| rule["resources"] != json!(["pods"]));
    assert_eq!(rules.len(), before - 1, "the shipped rights have a rule for pods");
    cluster.kubectl(&["delete", "clusterrole", "convoke"]);
    cluster.apply(&role);
    let operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let stage = stage_on(&cluster, "blind").await;
    stage.agent("helper", json!({})).await;
    let pod = stage.pods_of("helper", 1).await.remove(0);
    stage.cannot_pull(&pod).await;
    let status = stage.told("helper", "Pending", "RollingOut").await;
    assert_eq!(status["message"], "0 of 1 replicas available");
    assert!(operator.log().contains("pods may not be seen"), "{}", operator.log());
    stage.serves(&pod).await;
    stage.told("helper", "Ready", "Available").await;

    // With the right, it heals by itself.
    stage.cannot_pull(&pod).await;
    stage.told("helper", "Pending", "RollingOut").await;
    cluster.kubectl(&["delete", "clusterrole", "convoke"]);
    cluster.apply(&whole);
    stage.told("helper", "Failed", "ImagePullBackOff").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_u01_a_rollout_that_is_paused_by_hand_goes_on() {
    let stage = stage("paused").await;
    let cluster = cluster().await;
    stage.agent("helper", json!({})).await;
    let old = stage.pods_of("helper", 1).await.remove(0);
    stage.serves(&old).await;
    stage.told("helper", "Ready", "Available").await;
    let mark = cluster.audit_mark();
    cluster.kubectl(&["-n", &stage.namespace, "rollout", "pause", "deployment/agent-helper"]);
    stage.agent("helper", json!({"image": "reg/agent:9"})).await;
    let mut pods = stage.pods_of("helper", 2).await;
    pods.retain(|pod| *pod != old);
    stage.serves(&pods[0]).await;
    stage.told("helper", "Ready", "Available").await;
    let path = "jsonpath={.spec.paused}";
    let get = ["-n", &stage.namespace, "get", "deployment", "agent-helper", "-o", path];
    assert_eq!(cluster.kubectl(&get), "");
    // The pause and the image, maybe in one write. That the API server does not say `paused: false` is no reason for more.
    let mut writes = cluster.writes_by(AGENT, mark);
    writes.retain(|w| w.namespace == stage.namespace && w.resource == "deployments");
    assert!((1..=2).contains(&writes.len()), "{writes:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_after_a_start_nothing_is_taken_back_that_is_still_true() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let stage = stage_on(&cluster, "again").await;
    stage.agent("helper", json!({})).await;
    stage.agent("other", json!({})).await;
    let pod = stage.pods_of("helper", 1).await.remove(0);
    let other = stage.pods_of("other", 1).await.remove(0);
    stage.cannot_pull(&pod).await;
    stage.told("helper", "Failed", "ImagePullBackOff").await;
    // The Deployment counts in its own time.
    let numbers = ["replicas", "updatedReplicas", "unavailableReplicas"];
    let counted = |s: &Value| numbers.iter().all(|field| s[field] == 1);
    stage.status(Kind::Agent, "helper", "it is counted", counted).await;
    operator.kill9();
    stage.is(&other, &ended(5), &json!({}), false, 1).await;
    let mark = cluster.audit_mark();
    operator.restart();
    stage.told("other", "Failed", "CrashLoopBackOff").await;
    operator.ready(SOON).await;
    let mut writes = cluster.writes_by(AGENT, mark);
    writes.retain(|w| w.resource == "agents");
    let names: Vec<_> = writes.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["other"], "what happened meanwhile, and nothing else");
}
