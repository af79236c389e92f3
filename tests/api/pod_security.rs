//! Every pod that Convoke makes is admitted where Pod Security `restricted` is enforced. The API server's own admission
//! decides; the controller-manager makes the pods.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use support::team::{SOON, Team, model, shared_operator};
use support::{cluster, eventually};

const AGENT: &str = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\nspec:\n  modelAPI: gpt\n  model: m\n";
const HOSTED: &str = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: hosted\nspec:\n  mode: Hosted\n  hosted:\n    model: tiny\n";
const PROXY: &str = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: proxy\nspec:\n  mode: Proxy\n  proxy:\n    provider: openai\n    models:\n      - m\n";
const PACKAGE: &str = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: package\nspec:\n  package:\n    registry: PyPI\n    name: mcp-clock\n    version: 1.0.0\n";
const BRIDGED: &str = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: bridged\nspec:\n  package:\n    registry: PyPI\n    name: mcp-clock\n    version: 1.0.0\n  transport: Stdio\n";
const TOOLS: &str = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: tools\nspec:\n  toolsString: |\n    def one() -> int:\n        return 1\n";

#[tokio::test(flavor = "multi_thread")]
async fn a6_every_pod_is_admitted_under_restricted() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let files = [
        ("gpt.yaml", model("gpt")),
        ("agent.yaml", AGENT.into()),
        ("hosted.yaml", HOSTED.into()),
        ("proxy.yaml", PROXY.into()),
        ("package.yaml", PACKAGE.into()),
        ("bridged.yaml", BRIDGED.into()),
        ("tools.yaml", TOOLS.into()),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(cluster, "restricted", &files).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    let label =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(team.client.clone());
    let patch = Patch::Merge(&label);
    namespaces.patch(&team.namespace, &PatchParams::default(), &patch).await.expect("label");

    // The rule is in force: a pod that says nothing about its security is refused.
    let pods: Api<Pod> = Api::namespaced(team.client.clone(), &team.namespace);
    let careless = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "careless"},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let careless = serde_json::from_value(careless).expect("pod");
    eventually(SOON, "the rule is in force", || async {
        pods.create(&PostParams { dry_run: true, ..PostParams::default() }, &careless).await.err()
    })
    .await;

    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    eventually(SOON, "a pod of each Deployment", || async {
        let list = pods.list(&ListParams::default()).await.expect("list");
        let names: Vec<_> = list.items.into_iter().filter_map(|pod| pod.metadata.name).collect();
        let owners = [
            "agent-helper",
            "modelapi-hosted",
            "modelapi-proxy",
            "mcpserver-package",
            "mcpserver-bridged",
            "mcpserver-tools",
        ];
        let all = owners.iter().all(|owner| names.iter().any(|name| name.starts_with(owner)));
        if all { Ok(()) } else { Err(names) }
    })
    .await;
}
