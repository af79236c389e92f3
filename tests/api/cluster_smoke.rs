//! The harness itself and our definitions on a real API server.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use convoke::api::{Agent, GitSync, MCPServer, ModelAPI};
use convoke::cluster::client::client_of;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::json;
use support::cluster::operator_user;
use support::operator::is_alive;
use support::{Cluster, cluster, eventually};

fn agent(spec: serde_json::Value) -> Agent {
    serde_json::from_value(json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "helper"}, "spec": spec,
    }))
    .expect("an agent")
}

#[tokio::test]
async fn definitions_are_accepted_and_served() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("served").await;
    let agents: Api<Agent> = Api::namespaced(cluster.client().await, &namespace);
    let stored = agents
        .create(&PostParams::default(), &agent(json!({"modelAPI": {"name": "gpt"}})))
        .await
        .expect("created");
    assert!(stored.spec.wait_for_dependencies, "the schema's default: {stored:?}");
    assert_eq!(stored.metadata.generation, Some(1));
}

#[tokio::test]
async fn a_cel_rule_refuses_image_with_build_ref() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("cel").await;
    let agents: Api<Agent> = Api::namespaced(cluster.client().await, &namespace);
    let bad =
        agent(json!({"modelAPI": {"name": "gpt"}, "image": "a:1", "buildRef": {"name": "b"}}));
    let error = agents.create(&PostParams::default(), &bad).await.expect_err("refused").to_string();
    assert!(error.contains("image and buildRef exclude each other"), "{error}");
}

#[tokio::test]
async fn t1_stdio_is_for_packages_on_the_api_server_too() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("stdio").await;
    let servers: Api<MCPServer> = Api::namespaced(cluster.client().await, &namespace);
    let with = |name: &str, mut spec: serde_json::Value| -> MCPServer {
        spec["transport"] = json!("Stdio");
        let metadata = json!({"name": name});
        serde_json::from_value(json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "metadata": metadata, "spec": spec,
        }))
        .expect("an MCPServer")
    };
    for (name, registry) in [("python", "PyPI"), ("node", "Npm")] {
        let package = json!({"package": {"registry": registry, "name": "x"}});
        servers.create(&PostParams::default(), &with(name, package)).await.expect("created");
    }
    for spec in
        [json!({"image": "tools:1"}), json!({"remote": {"url": "https://tools.example/mcp"}})]
    {
        let refused = servers.create(&PostParams::default(), &with("bad", spec)).await;
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("spec.transport: Invalid value"), "{error}");
        assert!(error.contains("Stdio is for a package;"), "{error}");
    }
}

#[tokio::test]
async fn g1_the_timeout_of_a_fetch_has_bounds() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("timeout").await;
    let syncs: Api<GitSync> = Api::namespaced(cluster.client().await, &namespace);
    let with = |name: &str, timeout: &str| -> GitSync {
        serde_json::from_value(json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": name},
            "spec": {"url": "https://git.example.com/team.git", "timeout": timeout},
        }))
        .expect("a GitSync")
    };
    for (name, timeout) in [("least", "1s"), ("most", "1h")] {
        syncs.create(&PostParams::default(), &with(name, timeout)).await.expect(timeout);
    }
    for timeout in ["999ms", "1h1s", "24h"] {
        let created = syncs.create(&PostParams::default(), &with("bad", timeout)).await;
        let error = created.expect_err(timeout).to_string();
        assert!(error.contains("timeout must be at least 1s and at most 1h"), "{error}");
    }
}

#[tokio::test]
async fn kubectl_knows_short_names_and_the_category() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("kubectl").await;
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent",
         "metadata": {"name": "helper", "namespace": namespace}, "spec": {"modelAPI": {"name": "gpt"}}},
        {"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI",
         "metadata": {"name": "gpt", "namespace": namespace},
         "spec": {"mode": "External", "external": {"url": "https://models.example.com/v1"}}},
    ]}));
    let all = cluster.kubectl(&["get", "convoke", "-n", &namespace, "-o", "name"]);
    let mut all: Vec<_> = all.lines().collect();
    all.sort_unstable();
    assert_eq!(all, ["agent.convoke.dev/helper", "modelapi.convoke.dev/gpt"]);
    for short in ["gs", "ag", "mapi", "mcps", "ab"] {
        cluster.kubectl(&["get", short, "-n", &namespace]);
    }
    let columns = cluster.kubectl(&["get", "ag", "-n", &namespace]);
    let header: Vec<_> = columns.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "PHASE", "READY", "MODEL", "IMAGE", "AGE"]);
}

#[tokio::test]
async fn all_calls_share_one_http2_connection() {
    let cluster = cluster().await;
    let config = kube::config::Kubeconfig::read_from(cluster.admin_kubeconfig()).expect("config");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.expect("config");
    let client = client_of(config).expect("client");
    let ask = async || {
        let request = http::Request::get("/version").body(kube::client::Body::empty());
        let reply = client.send(request.expect("request")).await.expect("reply");
        (reply.version(), reply.status())
    };
    let replies = futures::future::join_all((0..50).map(|_| ask())).await;
    assert!(
        replies.iter().all(|reply| *reply == (http::Version::HTTP_2, http::StatusCode::OK)),
        "{replies:?}"
    );
}

#[tokio::test]
async fn shipped_rights_suffice_for_definitions_and_end_there() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("rights").await;
    let since = cluster.audit_mark();
    let client = cluster.client_of(&cluster.operator_kubeconfig(&namespace).await).await;
    cluster.bind_single_tenant(&namespace);
    let models: Api<ModelAPI> = Api::namespaced(client.clone(), &namespace);
    let model = json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": "gpt"},
        "spec": {"mode": "External", "external": {"url": "https://models.example.com/v1"}},
    });
    let params = PatchParams::apply("convoke");
    // RBAC is eventually consistent: the binding is seconds old at most.
    eventually(Duration::from_secs(10), "the binding works", || async {
        models.patch("gpt", &params, &Patch::Apply(&model)).await
    })
    .await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, &namespace);
    let error = secrets
        .list(&kube::api::ListParams::default())
        .await
        .expect_err("no right on Secrets")
        .to_string();
    assert!(error.contains("forbidden"), "{error}");

    // The audit log has both, before the replies, and only what this user did.
    let records = cluster.requests_by(&operator_user(&namespace), since);
    let told: Vec<_> = records
        .iter()
        .filter(|r| r.code != 403)
        .map(|r| (r.verb.as_str(), r.resource.as_str(), r.code))
        .collect();
    assert_eq!(told, [("patch", "modelapis", 201)], "{records:?}");
    assert_eq!(
        records.last().map(|r| (r.verb.as_str(), r.resource.as_str(), r.code)),
        Some(("list", "secrets", 403))
    );

    // Writes are counted exactly, one by one.
    for n in 1..=20 {
        let since = cluster.audit_mark();
        let label = json!({"metadata": {"labels": {"n": n.to_string()}}});
        models.patch("gpt", &PatchParams::default(), &Patch::Merge(&label)).await.expect("patched");
        let writes = cluster.writes_by(&operator_user(&namespace), since);
        assert_eq!(writes.len(), 1, "{writes:?}");
        assert_eq!(
            (writes[0].namespace.as_str(), writes[0].name.as_str()),
            (namespace.as_str(), "gpt")
        );
    }
    let patches: u64 = cluster
        .api_writes()
        .iter()
        .filter(|((verb, resource, _), _)| verb == "PATCH" && resource == "modelapis")
        .map(|(_, count)| count)
        .sum();
    assert!(patches >= 20, "{:?}", cluster.api_writes());
}

#[tokio::test]
async fn garbage_collection_and_namespace_deletion_work() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("gone").await;
    let agents: Api<Agent> = Api::namespaced(cluster.client().await, &namespace);
    let owner = agents
        .create(&PostParams::default(), &agent(json!({"modelAPI": {"name": "gpt"}})))
        .await
        .expect("created");
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "child", "namespace": namespace, "ownerReferences": [{
            "apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": "helper", "uid": owner.metadata.uid,
        }]},
    }));
    agents.delete("helper", &DeleteParams::default()).await.expect("deleted");
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(cluster.client().await, &namespace);
    eventually(Duration::from_secs(30), "the child goes with its owner", || async {
        maps.get_opt("child").await.expect("get").map_or(Some(()), |_| None)
    })
    .await;
    cluster.kubectl(&["delete", "namespace", &namespace, "--timeout=30s"]);
}

/// The other half of the next test: a test process that gets no chance to clean up.
#[tokio::test]
#[ignore = "started by nothing_survives_a_killed_test_process"]
async fn a_process_that_is_killed() {
    let cluster = Cluster::start().await;
    println!("\nstarted {} {}", cluster.supervisor_pid(), cluster.dir().display());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn nothing_survives_a_killed_test_process() {
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--ignored", "--exact", "cluster_smoke::a_process_that_is_killed", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start this binary again");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let started = lines
        .map(|line| line.expect("a line"))
        .find_map(|line| line.strip_prefix("started ").map(str::to_owned))
        .expect("the child started a cluster");
    let (supervisor, dir) = started.split_once(' ').expect("pid and folder");
    let supervisor: u32 = supervisor.parse().expect("a pid");
    let state = Path::new(dir).parent().expect("the state folder");
    let family = children_of(supervisor);
    assert_eq!(family.len(), 3, "etcd, API server, controller manager: {family:?}");

    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    eventually(Duration::from_secs(10), "all processes are gone, and their folder", || async {
        let left: Vec<_> =
            family.iter().chain([&supervisor]).filter(|&&pid| is_alive(pid)).collect();
        if left.is_empty() && !state.exists() { Ok(()) } else { Err((left.len(), state.exists())) }
    })
    .await;
}

/// Direct children of a process.
fn children_of(pid: u32) -> Vec<u32> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its children");
    text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}
