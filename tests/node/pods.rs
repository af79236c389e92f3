//! On a node, where pods really run, die and are refused.
//!
//! They need root and take minutes: `scripts/test` runs them, or
//! `sudo -E cargo test --test node -- --ignored`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use convoke::api::Kind;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::cluster::{IMAGE, node, told_after};
use crate::support::git_http::{GitServer, Repo};
use crate::support::stage::{SEES_THE_NODE, SOON, Stage, condition, shown};
use crate::support::{eventually, run};

/// Who takes the node away is alone.
static NODE: RwLock<()> = RwLock::const_new(());

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples-repo");

fn role(role: &str) -> Value {
    json!({"env": [{"name": "ROLE", "value": role}]})
}

impl Stage {
    async fn ready(&self, agent: &str) -> Value {
        self.told(agent, "Ready", "Available").await
    }

    async fn pod(&self, agent: &str) -> String {
        self.pods_of(agent, 1).await.remove(0)
    }
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_m4_t_the_examples_become_ready_and_their_statuses_are_true() {
    let _shared = NODE.read().await;
    let node = node().await;
    let stage = node.stage("agents").await;
    let dir = tempfile::tempdir().expect("folder");
    let repo = Repo::init(&dir.path().join("remote.git"));
    copy(Path::new(EXAMPLES), repo.work());
    repo.change("The example repository", &[], &[]);
    let server = GitServer::start(&dir.path().join("remote.git"));
    let sync = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "team", "namespace": "agents"},
        "spec": {"url": server.url("remote.git"), "path": "./team", "interval": "1h"}});
    let began = Instant::now();
    node.apply(&sync);
    // The first command that the proxy's condition tells.
    let (role, account) = ("--clusterrole=convoke-keys", "--serviceaccount=convoke-system:convoke");
    node.kubectl(&["-n", "agents", "create", "rolebinding", "convoke-keys", role, account]);
    // Its key is missing: the model says so, and who needs it waits.
    let is = |s: &Value| shown(s, "Ready") == "False(CreateContainerConfigError)";
    let status = stage.status(Kind::ModelAPI, "openai", "the key is missing", is).await;
    told_after(began, "a Secret that is missing (from the push)");
    assert!(message(&status).ends_with("secret \"openai-key\" not found"), "{status}");
    stage.told("coordinator", "Waiting", "WaitingForDependencies").await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "openai-key", "namespace": "agents", "labels": {"convoke.dev/agents": "allow"}}, "stringData": {"api-key": "k"}});
    node.apply(&secret);

    for (kind, name) in
        [(Kind::ModelAPI, "openai"), (Kind::MCPServer, "clock"), (Kind::MCPServer, "text-tools")]
    {
        let status = stage.status(kind, name, "Ready", |s| s["phase"] == "Ready").await;
        assert_eq!(status["readyReplicas"], 1);
    }
    for name in ["researcher", "writer", "coordinator"] {
        let status = stage.ready(name).await;
        let numbers = ["replicas", "readyReplicas", "updatedReplicas", "unavailableReplicas"];
        let numbers = numbers.map(|field| status[field].as_i64());
        let pods = i64::try_from(stage.names(Kind::Agent, name).await.len()).ok();
        assert_eq!(numbers, [pods, pods, pods, Some(0)], "{status}");
        assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
        assert_eq!(status["image"], IMAGE);
        // The endpoint answers, to another pod.
        let url = format!("{}/ready", status["endpoint"].as_str().expect("an endpoint"));
        let from = stage.pod("researcher").await;
        let said =
            node.kubectl(&["-n", "agents", "exec", &from, "--", "wget", "-q", "-O", "-", &url]);
        assert_eq!(said, "ok\n");
    }
    let table = node.kubectl(&["-n", "agents", "get", "agents"]);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "PHASE", "READY", "MODEL", "IMAGE", "AGE"]);
    assert_eq!(rows[1][..5], ["coordinator", "Ready", "True", "gpt-4o-mini", IMAGE]);
    // The image of the fourth one is built on Tekton, which is not there.
    assert_eq!(rows[3][..3], ["reviewer", "Waiting", "False"], "{table}");
    assert_eq!(rows.len(), 5, "{table}");
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("folder") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            std::fs::create_dir_all(&target).expect("folder");
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("copy");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_killed_pod_is_told_and_comes_back() {
    let _shared = NODE.read().await;
    let stage = node().await.stage("killed").await;
    stage.agent("helper", json!({})).await;
    stage.ready("helper").await;
    let pod = stage.pod("helper").await;
    let began = Instant::now();
    stage.pods().delete(&pod, &DeleteParams::default().grace_period(0)).await.expect("delete");
    let status = stage.told("helper", "Pending", "RollingOut").await;
    told_after(began, "a pod that was killed");
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
    assert_eq!(
        (message(&status), &status["readyReplicas"]),
        ("0 of 1 replicas available", &json!(0))
    );
    let status = stage.ready("helper").await;
    assert_eq!((&status["readyReplicas"], &status["unavailableReplicas"]), (&json!(1), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_drained_node_is_told() {
    let _alone = NODE.write().await;
    let node = node().await;
    let stage = node.stage("drained").await;
    stage.agent("moved", json!({})).await;
    stage.ready("moved").await;
    node.kubectl(&["cordon", "node"]);
    let began = Instant::now();
    // It waits for the end of the pod, and the status does not.
    let drain = tokio::task::spawn_blocking(|| {
        node.kubectl(&[
            "drain",
            "node",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--grace-period=1",
            "--pod-selector=convoke.dev/name=moved",
        ])
    });
    let status = stage.told("moved", "Pending", "Unschedulable").await;
    told_after(began, "a drained node");
    drain.await.expect("drain");
    let end = ": no node takes it: node(s) were unschedulable";
    assert!(message(&status).ends_with(end), "{status}");
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
    node.kubectl(&["uncordon", "node"]);
    stage.ready("moved").await;
}

/// A process that stands still until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn signal(&self, signal: &str) {
        run(Command::new("kill").args([signal, &self.0.to_string()]));
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_node_that_does_not_answer_is_told() {
    let _alone = NODE.write().await;
    let node = node().await;
    let stage = node.stage("silent").await;
    stage.agent("helper", json!({})).await;
    stage.ready("helper").await;
    let kubelet = Stopped(node.kubelet());
    kubelet.signal("-STOP");
    let path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    eventually(Duration::from_secs(120), "Kubernetes misses the node", || async {
        let ready = node.kubectl(&["get", "node", "node", "-o", path]);
        if ready == "Unknown" { Ok(()) } else { Err(ready) }
    })
    .await;
    let began = Instant::now();
    let status = stage.told("helper", "Pending", "NodeLost").await;
    told_after(began, "a node that does not answer (since Kubernetes knows)");
    assert!(message(&status).ends_with(": its node node does not answer"), "{status}");
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
    drop(kubelet);
    stage.ready("helper").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_an_image_that_is_missing_is_told_and_the_old_pod_serves_on() {
    let _shared = NODE.read().await;
    let stage = node().await.stage("image").await;
    stage.agent("helper", json!({})).await;
    stage.ready("helper").await;
    let missing = IMAGE.replace(":1", ":2");
    let began = Instant::now();
    stage.agent("helper", json!({"image": missing})).await;
    let status = stage.told("helper", "Failed", "ImagePullBackOff").await;
    told_after(began, "an image that is missing");
    let cause = format!("cannot have its image {missing}: the registry does not have it");
    assert!(message(&status).contains(&cause), "{status}");
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    let begin = "1 of 1 replicas updated, 1 of earlier revisions left; pod agent-helper-";
    let is = |s: &Value| message(s).starts_with(begin);
    stage.status(Kind::Agent, "helper", "how far it is", is).await;
    stage.agent("helper", json!({})).await;
    stage.ready("helper").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_refused_pods_are_told_and_the_old_pod_serves_on() {
    let _shared = NODE.read().await;
    let node = node().await;
    let stage = node.stage("refused").await;
    stage.agent("helper", json!({})).await;
    stage.ready("helper").await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "refused"}, "spec": {"hard": {"pods": "1"}}});
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": "refused"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "100Mi"}}]}});
    for (rule, reason, said) in [
        (
            quota,
            "QuotaExceeded",
            "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1",
        ),
        (range, "PodsRefused", "maximum memory usage per Container is 100Mi, but limit is 512Mi"),
    ] {
        node.apply(&rule);
        let name = rule["metadata"]["name"].as_str().expect("name");
        let kind = rule["kind"].as_str().expect("kind");
        if kind == "ResourceQuota" {
            eventually(SOON, "the quota has counted", || async {
                let path = "jsonpath={.status.used.pods}";
                let used = node.kubectl(&["-n", "refused", "get", kind, name, "-o", path]);
                if used == "1" { Ok(()) } else { Err(used) }
            })
            .await;
        }
        let began = Instant::now();
        // Another revision: its pod comes beside the old one.
        stage.agent("helper", json!({"env": [{"name": "RULE", "value": name}]})).await;
        let status = stage.told("helper", "Failed", reason).await;
        told_after(began, reason);
        assert!(message(&status).contains(said), "{status}");
        assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
        node.kubectl(&["-n", "refused", "delete", kind, name]);
        stage.ready("helper").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_pod_that_pod_security_refuses_is_told_and_the_old_pod_serves_on() {
    let _shared = NODE.read().await;
    let stage = node().await.stage("security").await;
    stage.agent("helper", json!({})).await;
    stage.ready("helper").await;
    let pod = stage.pod("helper").await;
    let began = Instant::now();
    stage.sees_the_node("agent-helper", true).await;
    let status = stage.told("helper", "Failed", "PodSecurityViolation").await;
    told_after(began, "PodSecurityViolation");
    assert!(message(&status).ends_with(SEES_THE_NODE), "{status}");
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    stage.sees_the_node("agent-helper", false).await;
    stage.ready("helper").await;
    assert_eq!(stage.pod("helper").await, pod);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_missing_secret_and_a_missing_key_are_told() {
    let _shared = NODE.read().await;
    let node = node().await;
    let stage = node.stage("secrets").await;
    let from = json!({"secretKeyRef": {"name": "token", "key": "value"}});
    let began = Instant::now();
    stage.agent("helper", json!({"env": [{"name": "ROLE", "valueFrom": from}]})).await;
    let status = stage.told("helper", "Failed", "CreateContainerConfigError").await;
    told_after(began, "a Secret that is missing");
    assert!(message(&status).ends_with("cannot be made: secret \"token\" not found"), "{status}");
    let secret = |key: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": "secrets", "labels": {"convoke.dev/agents": "allow"}}, "stringData": {key: "serve"}});
    node.apply(&secret("other"));
    let end = "couldn't find key value in Secret secrets/token";
    let is = |s: &Value| message(s).ends_with(end);
    stage.status(Kind::Agent, "helper", "the key is missing", is).await;
    node.apply(&secret("value"));
    stage.ready("helper").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_crash_loop_is_told_once_however_often_it_dies() {
    let _shared = NODE.read().await;
    let stage = node().await.stage("crash").await;
    let began = Instant::now();
    stage.agent("helper", role("crash")).await;
    let status = stage.told("helper", "Failed", "CrashLoopBackOff").await;
    told_after(began, "a container that dies");
    assert!(
        message(&status).contains("container agent ends with exit code 3; its log: "),
        "{status}"
    );
    assert!(!status.to_string().contains("hunter2"), "what it wrote is its own");
    let agents: Api<convoke::api::Agent> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let version = async || agents.get("helper").await.expect("get").metadata.resource_version;
    let before = version().await;
    let pod = stage.pod("helper").await;
    eventually(Duration::from_secs(90), "it has died three times", || async {
        let pod = stage.pods().get(&pod).await.map_err(|e| e.to_string())?;
        let statuses = pod.status.and_then(|s| s.container_statuses).unwrap_or_default();
        let restarts = statuses.first().map_or(0, |status| status.restart_count);
        if restarts >= 2 { Ok(()) } else { Err(format!("{restarts} restarts")) }
    })
    .await;
    assert_eq!(version().await, before, "nothing was written");
    stage.agent("helper", role("serve")).await;
    stage.ready("helper").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_too_little_memory_is_told() {
    let _shared = NODE.read().await;
    let stage = node().await.stage("memory").await;
    let small = json!({"requests": {"memory": "16Mi"}, "limits": {"memory": "32Mi"}});
    let mut spec = role("grow");
    spec["resources"] = small;
    let began = Instant::now();
    stage.agent("helper", spec).await;
    let status = stage.told("helper", "Failed", "OOMKilled").await;
    told_after(began, "a container without enough memory");
    assert!(
        message(&status).contains("container agent needs more memory than its limit"),
        "{status}"
    );
    stage.agent("helper", role("serve")).await;
    stage.ready("helper").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_a_probe_that_fails_later_is_told() {
    let _shared = NODE.read().await;
    let node = node().await;
    let stage = node.stage("probe").await;
    stage
        .agent("helper", json!({"healthCheck": {"intervalSeconds": 1, "failureThreshold": 1}}))
        .await;
    stage.ready("helper").await;
    let pod = stage.pod("helper").await;
    let exec = ["-n", "probe", "exec", &pod, "--"];
    let began = Instant::now();
    node.kubectl(&[&exec[..], &["rm", "/tmp/www/ready"]].concat());
    let status = stage.told("helper", "Pending", "ProbeFailing").await;
    told_after(began, "a readiness probe that fails");
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
    assert_eq!(condition(&status, "Ready")["message"], status["message"]);
    node.kubectl(&[&exec[..], &["ln", "-s", "health/liveliness", "/tmp/www/ready"]].concat());
    stage.ready("helper").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a node: scripts/test as root"]
async fn a8_numbers_are_true_while_it_is_scaled_and_stopped() {
    let _shared = NODE.read().await;
    let stage = node().await.stage("numbers").await;
    stage.agent("helper", json!({"replicas": 2})).await;
    let status = stage.ready("helper").await;
    let available =
        |pods: &str| format!("{pods} replicas available; not ready: ModelAPI gpt (missing)");
    assert_eq!(message(&status), available("2 of 2"));
    let agents: Api<convoke::api::Agent> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
    agents.patch_scale("helper", &PatchParams::default(), &one).await.expect("scale");
    let is = |s: &Value| message(s) == available("1 of 1") && s["replicas"] == 1;
    stage.status(Kind::Agent, "helper", "one pod", is).await;
    let stop = Patch::Merge(json!({"spec": {"suspend": true}}));
    agents.patch("helper", &PatchParams::default(), &stop).await.expect("suspend");
    let is = |s: &Value| s["phase"] == "Stopped" && s["replicas"] == 0 && s["readyReplicas"] == 0;
    let status = stage.status(Kind::Agent, "helper", "no pod", is).await;
    assert_eq!(shown(&status, "Ready"), "False(Suspended)");
    assert_eq!(shown(&status, "Available"), "False(ReplicasUnavailable)");
}
