//! What the API server refuses: rules as admins write them, and the words of the API server itself.

use convoke::api::Kind;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::cluster::cluster;
use crate::support::eventually;
use crate::support::stage::{SEES_THE_NODE, SOON, Stage, shown};

impl Stage {
    /// Allows no more than this of something in the namespace; returns when the quota is in force.
    async fn allow(&self, what: &str, most: &str) {
        let cluster = cluster().await;
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": self.namespace}, "spec": {"hard": {what: most}}});
        cluster.apply(&quota);
        // What there is must be counted, too.
        let get = ["-n", &self.namespace, "get", "resourcequota", "few", "-o", "json"];
        eventually(SOON, "the quota is in force", || async {
            let quota: Value = serde_json::from_str(&cluster.kubectl(&get)).expect("JSON");
            let status = &quota["status"];
            let all = [&status["hard"][what], &status["used"][what]];
            if all == [most; 2] { Ok(()) } else { Err(status.clone()) }
        })
        .await;
    }

    async fn allow_all(&self) {
        let delete = ["-n", &self.namespace, "delete", "resourcequota", "few"];
        cluster().await.kubectl(&delete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_pods_that_a_quota_refuses_are_told_and_heal() {
    let stage = super::stage("quota").await;
    stage.allow("pods", "0").await;
    stage.agent("helper", json!({})).await;
    let status = stage.told("helper", "Failed", "QuotaExceeded").await;
    let text = "0 of 1 replicas available; the API server refuses new pods: exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0";
    assert_eq!(status["message"], text);
    stage.allow_all().await;
    let pod = stage.pods_of("helper", 1).await.remove(0);
    stage.told("helper", "Pending", "RollingOut").await;
    stage.serves(&pod).await;
    stage.told("helper", "Ready", "Available").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_m4_replica_sets_that_a_quota_refuses_are_told_and_heal() {
    const WHAT: &str = "count/replicasets.apps";
    let stage = super::stage("sets").await;
    stage.may_have_keys().await;
    let refused = |begin: &str, used: u8| {
        format!(
            "{begin}; the API server refuses the ReplicaSet of new pods: exceeded quota: few, requested: {WHAT}=1, used: {WHAT}={used}, limited: {WHAT}={used}"
        )
    };
    // The first revision.
    stage.allow(WHAT, "0").await;
    stage.agent("helper", json!({})).await;
    let proxy = json!({"mode": "Proxy", "proxy": {"models": ["m"]}});
    stage.apply(Kind::ModelAPI, "other", proxy).await;
    let status = stage.told("helper", "Failed", "QuotaExceeded").await;
    assert_eq!(status["message"], refused("0 of 1 replicas available", 0));
    assert_eq!(shown(&status, "Progressing"), "False(Stuck)");
    let is = |s: &Value| shown(s, "Ready") == "False(QuotaExceeded)";
    stage.status(Kind::ModelAPI, "other", "QuotaExceeded", is).await;
    stage.allow_all().await;
    let pod = stage.pods_of("helper", 1).await.remove(0);
    stage.told("helper", "Pending", "RollingOut").await;
    stage.serves(&pod).await;
    stage.told("helper", "Ready", "Available").await;
    let is = |s: &Value| shown(s, "Ready") == "False(RollingOut)";
    stage.status(Kind::ModelAPI, "other", "RollingOut", is).await;

    // A later one: the old pod serves on, and is not taken for a new one.
    stage.allow(WHAT, "2").await;
    stage.agent("helper", json!({"image": "reg/agent:9"})).await;
    let status = stage.told("helper", "Failed", "QuotaExceeded").await;
    assert_eq!(status["message"], refused("0 of 1 replicas updated", 2));
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    assert_eq!(shown(&status, "Progressing"), "False(Stuck)");
    assert_eq!((&status["updatedReplicas"], &status["readyReplicas"]), (&json!(0), &json!(1)));
    assert_eq!(stage.pods_of("helper", 1).await, [pod]);
    // Back to what runs, which has its ReplicaSet.
    stage.agent("helper", json!({})).await;
    stage.told("helper", "Ready", "Available").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a8_pods_that_pod_security_refuses_are_told_and_heal() {
    let stage = super::stage("security").await;
    let label =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    let params = PatchParams::default();
    namespaces.patch(&stage.namespace, &params, &Patch::Merge(&label)).await.expect("label");
    let careless = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "careless"},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let careless: Pod = serde_json::from_value(careless).expect("pod");
    eventually(SOON, "the rule is in force", || async {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        stage.pods().create(&dry, &careless).await.err()
    })
    .await;
    stage.agent("helper", json!({})).await;
    let pod = stage.pods_of("helper", 1).await.remove(0);
    stage.serves(&pod).await;
    stage.told("helper", "Ready", "Available").await;

    stage.sees_the_node("agent-helper", true).await;
    let status = stage.told("helper", "Failed", "PodSecurityViolation").await;
    let text = format!("0 of 1 replicas updated; the API server refuses new pods: {SEES_THE_NODE}");
    assert_eq!(status["message"], text);
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    assert_eq!(stage.pods_of("helper", 1).await, [pod]);
    stage.sees_the_node("agent-helper", false).await;
    stage.told("helper", "Ready", "Available").await;
}
