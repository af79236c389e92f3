//! Agents, ModelAPIs and MCPServers become Deployments, Services and ConfigMaps, on a real API server with the real
//! controller-manager. No node: pods never run, so a Deployment's existence is the end of the road here.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod foreign;
mod hot;
mod peers;
mod settled;
use crate::support;

use std::time::Duration;

use convoke::api::{Agent, Kind, MCPServer, ModelAPI};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::team::{AGENT, ARGS, SOON, Team, model, shared_operator};
use support::{Cluster, cluster, eventually};

const REMOTE: &str = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: search\nspec:\n  remote:\n    url: https://tools.example.com/mcp\n";

fn agent(name: &str, extra: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {name}\nspec:\n  modelAPI: gpt\n  mcpServers:\n    - search\n  config:\n    instructionsFile: prompt.md\n{extra}"
    )
}

async fn team(prefix: &str, files: &[(&str, &str)]) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = Team::new(cluster, prefix, files).await;
    team.sync_with(json!({})).await;
    team
}

impl Team<'_> {
    fn agents(&self) -> Api<Agent> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until an agent's status satisfies `is`.
    async fn agent_is(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, || async {
            let agent = self.agents().get(name).await.map_err(|e| json!(e.to_string()))?;
            let status = serde_json::to_value(&agent.status).expect("json");
            let fresh = status["observedGeneration"] == json!(agent.metadata.generation);
            if fresh && is(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }
}

fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    status["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|c| c["type"] == type_))
        .unwrap_or(&Value::Null)
}

fn env(deployment: &Deployment, name: &str) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers[0].env.as_ref()?.iter().find(|v| v.name == name)?.value.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_a_commit_becomes_deployment_service_and_config_map() {
    let agent = agent("helper", "");
    let team = team(
        "children",
        &[
            ("m.yaml", &model("gpt")),
            ("s.yaml", REMOTE),
            ("a.yaml", &agent),
            ("prompt.md", "Be kind."),
        ],
    )
    .await;
    let deployment = team.deployment("agent-helper").await;
    assert_eq!(env(&deployment, "AGENT_INSTRUCTIONS").as_deref(), Some("Be kind."));
    assert_eq!(env(&deployment, "MODEL_API_URL").as_deref(), Some("https://models.example.com"));
    assert_eq!(
        env(&deployment, "MCP_SERVER_SEARCH_URL").as_deref(),
        Some("https://tools.example.com/mcp")
    );
    team.services().get("agent-helper").await.expect("service");
    let status = team
        .agent_is("helper", "Pending without a node", |s| {
            s["phase"] == "Pending" && condition(s, "DependenciesReady")["status"] == "True"
        })
        .await;
    assert_eq!(
        status["endpoint"],
        format!("http://agent-helper.{}.svc.cluster.local:8000", team.namespace)
    );
    assert_eq!(status["message"], "0 of 1 replicas available");
    assert_eq!(status["source"]["path"], "a.yaml");
    assert_eq!(status["source"]["sync"], "main");

    // A changed prompt reaches a new ConfigMap, and the pods that mount it.
    let before = deployment.spec.as_ref().map(|s| serde_json::to_value(&s.template).expect("json"));
    team.push(&[("prompt.md", Some("Be brief."))]).await;
    eventually(SOON, "the new prompt is in the Deployment", || async {
        let deployment = team.deployment("agent-helper").await;
        (env(&deployment, "AGENT_INSTRUCTIONS").as_deref() == Some("Be brief.")).then_some(())
    })
    .await;
    let deployment = team.deployment("agent-helper").await;
    let after = deployment.spec.as_ref().map(|s| serde_json::to_value(&s.template).expect("json"));
    assert_ne!(before, after);
    let mounted = after
        .as_ref()
        .and_then(|t| t.pointer("/spec/volumes/1/configMap/name")?.as_str())
        .expect("volume")
        .to_owned();
    let map = team.config_maps().get(&mounted).await.expect("map");
    assert_eq!(map.data.expect("data")["instructions.md"], "Be brief.");
    assert_eq!(map.immutable, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_an_agent_waits_for_a_late_model_and_heals() {
    let agent = agent("early", "");
    let team = team("late", &[("s.yaml", REMOTE), ("a.yaml", &agent), ("prompt.md", "p")]).await;
    team.agent_is("early", "waiting", |s| {
        s["phase"] == "Waiting" && s["message"] == "Waiting for ModelAPI gpt (missing)"
    })
    .await;
    assert!(team.deployments().get_opt("agent-early").await.expect("get").is_none());
    team.services().get("agent-early").await.expect("the Service is made at once");
    let configurations = async || {
        let of_agents = ListParams::default().labels("convoke.dev/kind=agent");
        team.config_maps().list(&of_agents).await.expect("ConfigMaps").items.len()
    };
    assert_eq!(configurations().await, 0, "none without the address of the model");

    team.push(&[("m.yaml", Some(&model("gpt")))]).await;
    team.deployment("agent-early").await;
    team.agent_is("early", "healed", |s| s["phase"] == "Pending").await;
    assert_eq!(configurations().await, 1, "the one that the pods mount");

    // A later loss is told, and stops nothing.
    Api::<ModelAPI>::namespaced(team.client.clone(), &team.namespace)
        .patch(
            "gpt",
            &PatchParams::default(),
            &Patch::Merge(json!({"metadata": {"annotations": {"convoke.dev/prune": "disabled"}}})),
        )
        .await
        .expect("annotate");
    team.push(&[("m.yaml", None)]).await;
    team.deployment("agent-early").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_peers_never_block_and_are_wired_when_they_appear() {
    let one = agent("one", "  agentNetwork:\n    access: [two]\n");
    let two = agent("two", "  agentNetwork:\n    access: [one]\n");
    let team = team(
        "peers",
        &[("m.yaml", &model("gpt")), ("s.yaml", REMOTE), ("one.yaml", &one), ("prompt.md", "p")],
    )
    .await;
    team.deployment("agent-one").await;
    let status = team
        .agent_is("one", "peer missing", |s| condition(s, "PeersResolved")["status"] == "False")
        .await;
    assert_eq!(condition(&status, "PeersResolved")["message"], "missing: two");
    team.push(&[("two.yaml", Some(&two))]).await;
    eventually(SOON, "both are wired", || async {
        let (one, two) = (team.deployment("agent-one").await, team.deployment("agent-two").await);
        let wired = env(&one, "PEER_AGENTS").as_deref() == Some("two")
            && env(&two, "PEER_AGENTS").as_deref() == Some("one");
        wired.then_some(())
    })
    .await;
}

/// Waits until operators have written nothing in this namespace for three seconds: longer than anything is put off.
async fn at_rest(team: &Team<'_>) {
    let mut mark = team.cluster.audit_mark();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mut writes = team.cluster.writes_by(AGENT, mark);
        writes.retain(|r| r.namespace == team.namespace);
        if writes.is_empty() {
            return;
        }
        mark = team.cluster.audit_mark();
    }
    panic!("{} does not come to rest", team.namespace);
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_agents_of_one_commit_that_name_each_other_are_wired_at_the_first_write() {
    let circle = [("one", "two, three"), ("two", "one, three"), ("three", "one, two")];
    let access = |peers: &str| format!("  agentNetwork:\n    access: [{peers}]\n");
    let agents = circle.map(|(name, peers)| (format!("{name}.yaml"), agent(name, &access(peers))));
    let gpt = model("gpt");
    let mut files = vec![("m.yaml", gpt.as_str()), ("s.yaml", REMOTE), ("prompt.md", "p")];
    files.extend(agents.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let team = team("circle", &files).await;
    for (name, _) in circle {
        team.agent_is(name, "all peers", |s| condition(s, "PeersResolved")["status"] == "True")
            .await;
    }
    at_rest(&team).await;
    for (name, peers) in circle {
        let deployment = team.deployment(&format!("agent-{name}")).await;
        for peer in peers.split(", ") {
            let url = env(&deployment, &format!("PEER_AGENT_{}_CARD_URL", peer.to_uppercase()));
            assert!(url.is_some_and(|url| url.starts_with(&format!("http://agent-{peer}."))));
        }
        assert_eq!(deployment.metadata.generation, Some(1), "{name} is written once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_peers_that_come_together_replace_the_pods_once() {
    let hub = agent("hub", "  agentNetwork:\n    access: [x, y, z]\n");
    let files =
        [("m.yaml", &*model("gpt")), ("s.yaml", REMOTE), ("hub.yaml", &*hub), ("prompt.md", "p")];
    let team = team("hub", &files).await;
    team.agent_is("hub", "no peer", |s| condition(s, "PeersResolved")["status"] == "False").await;
    at_rest(&team).await;
    // Not by a commit, which would announce them: three events, within a moment.
    let agents = team.agents();
    let peers = ["x", "y", "z"].map(|name| {
        let peer = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": name}, "spec": {"modelAPI": {"name": "gpt"}, "replicas": 0}});
        let (peer, agents) = (serde_json::from_value(peer).expect("agent"), &agents);
        async move { agents.create(&PostParams::default(), &peer).await.expect("create") }
    });
    futures::future::join_all(peers).await;
    team.agent_is("hub", "all peers", |s| condition(s, "PeersResolved")["status"] == "True").await;
    eventually(SOON, "the hub is wired", || async {
        let told = env(&team.deployment("agent-hub").await, "PEER_AGENTS");
        if told.as_deref() == Some("x,y,z") { Ok(()) } else { Err(told) }
    })
    .await;
    assert_eq!(team.deployment("agent-hub").await.metadata.generation, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_a_loss_that_heals_at_once_is_not_told() {
    let agent = agent("calm", "");
    let team = team(
        "blink",
        &[("m.yaml", &model("gpt")), ("s.yaml", REMOTE), ("a.yaml", &agent), ("prompt.md", "p")],
    )
    .await;
    team.deployment("agent-calm").await;
    team.agent_is("calm", "settled", |s| s["phase"] == "Pending").await;
    at_rest(&team).await;
    let models: Api<ModelAPI> = Api::namespaced(team.client.clone(), &team.namespace);
    for round in 0..5 {
        let (mark, began) = (team.cluster.audit_mark(), std::time::Instant::now());
        let before = models.get("gpt").await.expect("model").metadata.uid;
        // The sync brings it back.
        models.delete("gpt", &DeleteParams::default()).await.expect("delete");
        eventually(SOON, "the model is back", || async {
            let now = models.get_opt("gpt").await.expect("get")?;
            let ready = now.status.is_some_and(|s| s.conditions.iter().any(|c| c.status == "True"));
            (ready && now.metadata.uid != before).then_some(())
        })
        .await;
        let took = began.elapsed();
        at_rest(&team).await;
        let mut told = team.cluster.writes_by(AGENT, mark);
        told.retain(|r| r.namespace == team.namespace && r.name.contains("calm"));
        // A busy machine may make it a loss that lasts: try again.
        if took < Duration::from_millis(1500) || round == 4 {
            assert!(told.is_empty(), "after {took:?}: {told:#?}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn u01_u03_edited_and_deleted_children_come_back() {
    let agent = agent("sturdy", "");
    let team = team(
        "sturdy",
        &[("m.yaml", &model("gpt")), ("s.yaml", REMOTE), ("a.yaml", &agent), ("prompt.md", "p")],
    )
    .await;
    let first = team.deployment("agent-sturdy").await;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "agent", "image": "evil:1"}]}}}});
    team.deployments()
        .patch("agent-sturdy", &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .expect("edit");
    team.services().delete("agent-sturdy", &DeleteParams::default()).await.expect("delete");
    eventually(SOON, "both are back", || async {
        let image = team
            .deployment("agent-sturdy")
            .await
            .spec
            .and_then(|s| s.template.spec?.containers[0].image.clone());
        let service = team.services().get_opt("agent-sturdy").await.expect("get");
        (service.is_some() && image.as_deref() != Some("evil:1")).then_some(())
    })
    .await;
    assert_eq!(team.deployment("agent-sturdy").await.metadata.uid, first.metadata.uid);

    // What we do not own is kept.
    let restart = json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}});
    let edited = team
        .deployments()
        .patch("agent-sturdy", &PatchParams::default(), &Patch::Merge(restart))
        .await
        .expect("restart");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let now = team.deployment("agent-sturdy").await;
    assert_eq!(now.metadata.generation, edited.metadata.generation);
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_expose_false_takes_the_service_away_and_a_pruned_agent_its_children() {
    let shown = agent("shy", "");
    let team = team(
        "expose",
        &[("m.yaml", &model("gpt")), ("s.yaml", REMOTE), ("a.yaml", &shown), ("prompt.md", "p")],
    )
    .await;
    team.deployment("agent-shy").await;
    team.push(&[("a.yaml", Some(&agent("shy", "  agentNetwork:\n    expose: false\n")))]).await;
    eventually(SOON, "no Service", || async {
        team.services().get_opt("agent-shy").await.expect("get").is_none().then_some(())
    })
    .await;
    team.agent_is("shy", "no endpoint", |s| s["endpoint"].is_null()).await;
    team.push(&[("a.yaml", None)]).await;
    eventually(SOON, "no Deployment", || async {
        team.deployments().get_opt("agent-shy").await.expect("get").is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m1_t1_a_proxy_and_a_package_have_pods_to_come() {
    let proxy = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: gpt\nspec:\n  mode: Proxy\n  proxy:\n    provider: openai\n    models: [gpt-5]\n    apiKeyFrom:\n      secretKeyRef:\n        name: keys\n        key: openai\n";
    let package = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: search\nspec:\n  package:\n    registry: PyPI\n    name: mcp-server-time\n    version: \"1.0\"\n";
    let agent = agent("patient", "");
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let files = [("m.yaml", proxy), ("s.yaml", package), ("a.yaml", &*agent), ("prompt.md", "p")];
    let team = Team::new(cluster, "pods", &files).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    team.sync_with(json!({})).await;
    team.deployment("modelapi-gpt").await;
    team.deployment("mcpserver-search").await;
    team.agent_is("patient", "waits for both", |s| {
        // The ModelAPI's only model.
        s["message"] == "Waiting for ModelAPI gpt (not ready), MCPServer search (not ready)"
            && s["model"] == "gpt-5"
    })
    .await;
    let servers: Api<MCPServer> = Api::namespaced(team.client.clone(), &team.namespace);
    // Who waits for it may be told before it says something itself.
    let phase = eventually(SOON, "the server's phase", || async {
        servers.get("search").await.expect("server").status.and_then(|status| status.phase)
    })
    .await;
    assert_eq!(format!("{phase:?}"), "Pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_a_lost_model_and_tool_replace_no_pods() {
    let agent = agent("loyal", "");
    let team = team(
        "loss",
        &[("m.yaml", &model("gpt")), ("s.yaml", REMOTE), ("a.yaml", &agent), ("prompt.md", "p")],
    )
    .await;
    let before = team.deployment("agent-loyal").await;
    // The sync would bring them back before the agent has seen the loss.
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    team.syncs.patch("main", &PatchParams::default(), &suspend).await.expect("suspend");
    eventually(SOON, "the sync is suspended", || async {
        let status = serde_json::to_value(team.status().await).expect("JSON");
        (condition(&status, "Suspended")["status"] == "True").then_some(()).ok_or(status)
    })
    .await;
    for (kind, name) in [(Kind::ModelAPI, "gpt"), (Kind::MCPServer, "search")] {
        team.api(kind).delete(name, &DeleteParams::default()).await.expect("delete");
    }
    let status = team
        .agent_is("loyal", "both are missing", |s| {
            let message = condition(s, "DependenciesReady")["message"].as_str();
            message == Some("ModelAPI gpt (missing), MCPServer search (missing)")
        })
        .await;
    assert_eq!(status["phase"], "Pending", "it goes on as it was");
    let after = team.deployment("agent-loyal").await;
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!(env(&after, "MODEL_API_URL"), env(&before, "MODEL_API_URL"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a2_reserved_names_are_refused_by_the_api_server() {
    let team = team("reserved", &[("m.yaml", &model("gpt"))]).await;
    let with = |spec: Value| {
        let mut agent = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": spec});
        agent["spec"]["modelAPI"] = json!({"name": "gpt"});
        serde_json::from_value::<Agent>(agent).expect("agent")
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let var = |name: &str| json!([{"name": name, "value": "x"}]);
    for (name, spec) in [
        ("spec.env", json!({"env": var("MODEL_API_URL")})),
        ("spec.env", json!({"env": var("PEER_AGENT_X_CARD_URL")})),
        ("spec.config.env", json!({"config": {"env": var("MCP_SERVER_X_URL")}})),
    ] {
        let error = team.agents().create(&dry, &with(spec)).await.expect_err("refused").to_string();
        assert!(error.contains("set by Convoke") && error.contains(name), "{error}");
    }
    let fine = json!({"env": var("LOG_LEVEL"), "config": {"env": var("MODEL_NAME")}});
    team.agents().create(&dry, &with(fine)).await.expect("accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_a_commit_is_applied_before_its_children_are_written() {
    // Alone: beside other syncs controllers go on after a while.
    let cluster = Cluster::exclusive().await;
    let operator = cluster.operator(ARGS).await;
    operator.print_log_on_panic();
    operator.ready(SOON).await;
    let mut files = vec![("m.yaml".to_owned(), model("gpt")), ("s.yaml".into(), REMOTE.into())];
    files.push(("prompt.md".into(), "Be kind.".into()));
    files.extend((0..40).map(|n| (format!("a{n}.yaml"), agent(&format!("a{n}"), ""))));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "turns", &files).await;
    let mark = cluster.audit_mark();
    team.sync_with(json!({})).await;
    team.deployment("agent-a39").await;
    let mut writes = cluster.writes_by(AGENT, mark);
    writes.retain(|w| w.namespace == team.namespace && w.code < 300);
    let synced = |resource: &str| ["agents", "modelapis", "mcpservers"].contains(&resource);
    let last = writes.iter().rposition(|w| synced(&w.resource) && w.subresource.is_empty());
    let first = writes.iter().position(|w| {
        ["deployments", "services", "configmaps"].contains(&w.resource.as_str())
            || (synced(&w.resource) && w.subresource == "status")
    });
    // An earlier status tells of a commit that takes long to read.
    let told = writes.iter().enumerate().position(|(at, w)| {
        Some(at) > last && w.resource == "gitsyncs" && w.subresource == "status"
    });
    assert!(told.is_some() && told < first, "{last:?} {told:?} {first:?} of {writes:#?}");
    assert!(last.is_some(), "{writes:#?}");
}
