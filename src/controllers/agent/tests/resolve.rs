//! What an agent refers to, in stores as the watches fill them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::*;
use crate::cluster::children::Child;
use crate::cluster::live::{Managed, Ours};
use crate::cluster::reflector;
use crate::cluster::store::Store;
use crate::controllers::agent::desired;
use crate::controllers::children::{Children, Wanted};

struct World {
    stores: Stores,
    children: ChildStores,
    wanted: Arc<WantedAgents>,
    defaults: Defaults,
}

/// A resource version that is newer than all before.
fn version() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": "team", "uid": format!("u-{name}"), "resourceVersion": version()}})
}

fn put<K: Ours>(store: &Arc<Store<Managed<K>>>, object: Value) {
    let object = serde_json::from_value::<DeserializeGuard<K>>(object).expect("object");
    let (key, entry) = reflector::entry::<Managed<K>>(object);
    store.wrote(key, entry);
}

impl World {
    fn new() -> Self {
        let world = Self {
            stores: Stores::new(),
            children: ChildStores::new(),
            wanted: WantedAgents::new(),
            defaults: Defaults::for_tests(),
        };
        let proxy = json!({"mode": "Proxy", "proxy": {"models": ["gpt-5"]}});
        world.model(proxy);
        world.tools("s", "tools:1");
        world
    }

    /// A ModelAPI `m` with its Service.
    fn model(&self, spec: Value) {
        let api = object("ModelAPI", "m", spec);
        put(&self.stores.model_apis, api.clone());
        let api = serde_json::from_value(api).expect("ModelAPI");
        let resolved = model_api::Resolved::default();
        self.serve(&model_api::desired::children(&api, &resolved, &self.defaults));
    }

    /// An MCPServer with its Service.
    fn tools(&self, name: &str, image: &str) {
        let server = object("MCPServer", name, json!({"image": image}));
        put(&self.stores.mcp_servers, server.clone());
        let server = serde_json::from_value(server).expect("MCPServer");
        self.serve(&mcp_server::desired::children(
            &server,
            &mcp_server::resolve::Resolved::default(),
            &self.defaults,
        ));
    }

    fn serve(&self, children: &Children) {
        let mut service = children.service.get().expect("a Service").clone();
        service.metadata.uid = Some(version());
        service.metadata.resource_version = Some(version());
        let (key, entry) = reflector::entry::<Child<Service>>(service);
        self.children.services.wrote(key, entry);
    }

    /// The Service of that name is gone: it, or another one that is not watched, may be somebody else's.
    fn unserve(&self, name: &str) {
        let key = Key::new("team", name);
        let uid = self.children.services.get(&key).expect("a Service").uid.clone();
        self.children.services.deleted(&key, &uid);
    }

    /// The controller of ModelAPI `m` has seen what it is to be.
    fn seen(&self) {
        let mut api =
            object("ModelAPI", "m", json!({"mode": "Proxy", "proxy": {"models": ["new"]}}));
        api["metadata"]["generation"] = json!(1);
        api["status"] = json!({"observedGeneration": 1});
        put(&self.stores.model_apis, api);
    }

    fn agent(&self, spec: Value) -> Agent {
        let agent = object("Agent", "a", spec);
        put(&self.stores.agents, agent.clone());
        serde_json::from_value(agent).expect("agent")
    }

    fn resolve(&self, agent: &Agent) -> Resolved {
        resolve(agent, &self.stores, &self.children, &self.wanted, &self.defaults)
    }

    /// Makes the Deployment that the agent is to have now, and gives it.
    fn deploy(&self, agent: &Agent) -> Deployment {
        let children = desired::children(agent, &self.resolve(agent), &self.defaults);
        let mut deployment = children.deployment.get().expect("deployment").clone();
        let again = deployment.clone();
        deployment.metadata.resource_version = Some(version());
        let (key, entry) = reflector::entry::<Child<Deployment>>(deployment);
        self.children.deployments.wrote(key, entry);
        again
    }
}

fn spec() -> Value {
    json!({"modelAPI": {"name": "m"}, "mcpServers": [{"name": "s"}], "waitForDependencies": false})
}

#[test]
fn a3_addresses_are_known_before_anything_is_ready() {
    let world = World::new();
    let resolved = world.resolve(&world.agent(spec()));
    let url = "http://modelapi-m.team.svc.cluster.local:8000";
    assert_eq!(resolved.model_url.as_deref(), Some(url));
    assert_eq!(resolved.model.as_deref(), Some("gpt-5"), "the ModelAPI's only model");
    let tools = "http://mcpserver-s.team.svc.cluster.local:8000/mcp";
    let server = Server { name: "s".into(), url: Some(tools.into()), headers: Vec::new() };
    assert_eq!(resolved.mcp_servers, [server]);
    assert_eq!(resolved.waiting_for, ["ModelAPI m (not ready)", "MCPServer s (not ready)"]);
}

#[test]
fn m3_only_what_is_known_of_this_generation_of_a_model_counts() {
    let world = World::new();
    let agent = world.agent(spec());
    let found = |state: &str, generation: i64| {
        let mut api =
            object("ModelAPI", "m", json!({"mode": "Proxy", "proxy": {"models": ["gpt-5"]}}));
        api["metadata"]["generation"] = json!(3);
        api["status"] = json!({"conditions": [{"type": "Reachable", "status": state, "reason": "KeyRefused",
            "message": "no", "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        put(&world.stores.model_apis, api);
        world.resolve(&agent).unreachable
    };
    assert_eq!(found("False", 3), Some(("KeyRefused".to_owned(), "no".to_owned())));
    assert_eq!(found("False", 2), None, "of the spec before");
    assert_eq!(found("Unknown", 3), None);
    assert_eq!(found("True", 3), None);
}

#[test]
fn a3_a11_an_address_is_told_only_while_its_service_is_its_own() {
    let world = World::new();
    let agent = world.agent(spec());
    world.unserve("modelapi-m");
    world.unserve("mcpserver-s");
    let resolved = world.resolve(&agent);
    assert_eq!((&resolved.model_url, &resolved.mcp_servers[0].url), (&None, &None));
    assert_eq!(resolved.waiting_for, ["ModelAPI m (not ready)", "MCPServer s (not ready)"]);
    // Ready or not: what it says may be older than the loss.
    let mut ready = object("ModelAPI", "m", json!({"mode": "Proxy", "proxy": {}}));
    ready["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    put(&world.stores.model_apis, ready);
    assert_eq!(world.resolve(&agent).waiting_for[0], "ModelAPI m (not ready)");
    // A name that is somebody else's by its label, too.
    let other = object("ModelAPI", "m", json!({"mode": "Proxy", "proxy": {}}));
    let mut other: crate::api::ModelAPI = serde_json::from_value(other).expect("ModelAPI");
    other.metadata.uid = Some("another".into());
    let resolved = model_api::Resolved::default();
    world.serve(&model_api::desired::children(&other, &resolved, &world.defaults));
    assert_eq!(world.resolve(&agent).model_url, None);
}

#[test]
fn a3_a11_a_service_that_is_lost_later_replaces_no_pods() {
    let world = World::new();
    let agent = world.agent(spec());
    let before = world.deploy(&agent);
    world.unserve("modelapi-m");
    world.unserve("mcpserver-s");
    world.seen();
    assert_eq!(world.deploy(&agent), before, "another model, too, comes with its address");
    world.model(json!({"mode": "Hosted", "hosted": {"model": "new"}}));
    assert_eq!(world.resolve(&agent).model.as_deref(), Some("new"));
}

#[test]
fn a3_first_pods_wait_until_it_is_known_whether_there_is_an_address() {
    let world = World::new();
    let starts = |agent: &Agent| {
        let resolved = world.resolve(agent);
        let children = desired::children(agent, &resolved, &world.defaults);
        (resolved.undecided, children.deployment.get().is_some())
    };
    let mut waits_not = spec();
    waits_not["mcpServers"] = json!([]);
    let agent = world.agent(waits_not);
    assert_eq!(starts(&agent), (false, true));
    world.unserve("modelapi-m");
    let mut unseen = object("ModelAPI", "m", json!({"mode": "Proxy", "proxy": {}}));
    unseen["metadata"]["generation"] = json!(1);
    put(&world.stores.model_apis, unseen);
    assert_eq!(starts(&agent), (true, false));
    world.seen();
    assert_eq!(starts(&agent), (false, true), "there is none: it starts without");
}

#[test]
fn a3_a_later_loss_replaces_no_pods() {
    let world = World::new();
    let agent = world.agent(spec());
    let before = world.deploy(&agent);
    world.stores.model_apis.deleted(&Key::new("team", "m"), "u-m");
    world.stores.mcp_servers.deleted(&Key::new("team", "s"), "u-s");
    let resolved = world.resolve(&agent);
    assert_eq!(resolved.waiting_for, ["ModelAPI m (missing)", "MCPServer s (missing)"]);
    assert_eq!(world.deploy(&agent), before);
}

#[test]
fn a2_an_address_is_one_to_which_v1_is_appended() {
    for (url, base) in [
        ("https://m.example/v1", "https://m.example"),
        ("https://m.example/v1/", "https://m.example"),
        ("https://m.example/openai/v1", "https://m.example/openai"),
        ("https://m.example//v1", "https://m.example"),
        ("https://m.example", "https://m.example"),
        ("https://m.example/", "https://m.example"),
        ("https://m.example/v1beta", "https://m.example/v1beta"),
        ("http://v1", "http://v1"),
    ] {
        assert_eq!(base_url(url), base, "{url}");
    }
}

#[test]
fn a3_headers_of_a_model_and_a_tool_that_are_away_stay_what_the_pods_were_told() {
    let world = World::new();
    let header =
        |name: &str, key: &str| json!({"name": name, "secretKeyRef": {"name": "s", "key": key}});
    let headers = json!([header("X-Org", "org"), header("Authorization", "key")]);
    let external = json!({"mode": "External", "external": {"url": "https://m.example/v1", "headersFrom": headers}});
    let remote = json!({"remote": {"url": "https://t.example/mcp", "headersFrom": headers}});
    put(&world.stores.model_apis, object("ModelAPI", "m", external));
    put(&world.stores.mcp_servers, object("MCPServer", "s", remote));
    let agent = world.agent(spec());
    let resolved = world.resolve(&agent);
    let names = |headers: &[HeaderFrom]| {
        headers.iter().map(|header| header.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(resolved.model_url.as_deref(), Some("https://m.example"));
    assert_eq!(names(&resolved.model_headers), ["X-Org", "Authorization"]);
    assert_eq!(resolved.mcp_servers[0].headers, resolved.model_headers);

    let before = world.deploy(&agent);
    world.stores.model_apis.deleted(&Key::new("team", "m"), "u-m");
    world.stores.mcp_servers.deleted(&Key::new("team", "s"), "u-s");
    let away = world.resolve(&agent);
    assert_eq!(away.model_headers, resolved.model_headers);
    assert_eq!(away.mcp_servers, resolved.mcp_servers);
    assert_eq!(world.deploy(&agent), before);
}

#[test]
fn a3_a_later_loss_replaces_no_pods_that_read_their_files_again() {
    let world = World::new();
    let mut hot = spec();
    hot["config"] = json!({"reload": "Hot"});
    let agent = world.agent(hot);
    let children = || desired::children(&agent, &world.resolve(&agent), &world.defaults);
    let (before, deployed) = (children(), world.deploy(&agent));
    world.stores.model_apis.deleted(&Key::new("team", "m"), "u-m");
    world.stores.mcp_servers.deleted(&Key::new("team", "s"), "u-s");
    assert_eq!(children().config_map, before.config_map, "the model stays, too");
    assert_eq!(world.deploy(&agent), deployed);
}

#[test]
fn a3_what_another_agent_left_is_no_answer() {
    let world = World::new();
    let mut agent = world.agent(spec());
    world.deploy(&agent);
    world.stores.model_apis.deleted(&Key::new("team", "m"), "u-m");
    agent.metadata.uid = Some("another".into());
    let resolved = world.resolve(&agent);
    assert_eq!((resolved.model_url, resolved.deployment_exists), (None, false));
}

#[test]
fn a3_two_agents_may_name_each_other() {
    let world = World::new();
    let network = |peer: &str| json!({"modelAPI": {"name": "m"}, "agentNetwork": {"access": [peer]}, "waitForDependencies": false});
    let agent = world.agent(network("b"));
    assert_eq!(world.resolve(&agent).peers, [("b".to_owned(), false)]);
    assert!(world.resolve(&agent).waiting_for.iter().all(|what| !what.contains('b')));
    put(&world.stores.agents, object("Agent", "b", network("a")));
    assert_eq!(world.resolve(&agent).peers, [("b".to_owned(), true)]);
    let other = object("Agent", "b", network("a"));
    let other: Agent = serde_json::from_value(other).expect("agent");
    assert_eq!(world.resolve(&other).peers, [("a".to_owned(), true)]);
}

#[test]
fn a3_a_peer_of_the_same_commit_is_wired_before_it_is_there() {
    let world = World::new();
    let network = |peers: [&str; 2]| json!({"modelAPI": {"name": "m"}, "agentNetwork": {"access": peers}, "waitForDependencies": false});
    let (agent, sync) = (world.agent(network(["c", "b"])), Key::new("team", "main"));
    world.wanted.set(&sync, std::iter::once("b"));
    let resolved = world.resolve(&agent);
    assert_eq!(resolved.peers, [("b".to_owned(), false), ("c".to_owned(), false)], "honestly");
    assert_eq!(resolved.wired, ["b"]);
    let first = world.deploy(&agent);
    put(&world.stores.agents, object("Agent", "b", network(["a", "c"])));
    assert_eq!(world.deploy(&agent), first, "its coming replaces no pods");
    assert_eq!(world.resolve(&agent).wired_now, Some(vec!["b".to_owned()]));
}

#[test]
fn a3_u02_after_a_start_what_the_pods_were_told_stands_until_a_commit_is_read() {
    let world = World::new();
    let spec = json!({"modelAPI": {"name": "m"}, "agentNetwork": {"access": ["b"]}, "waitForDependencies": false});
    let (mut agent, sync) = (world.agent(spec), Key::new("team", "main"));
    agent.metadata.uid = Some("u-a".into());
    world.wanted.set(&sync, std::iter::once("b"));
    world.deploy(&agent);
    // Started again, with a GitSync whose commit is not read yet.
    world.wanted.forget(&sync);
    put(&world.stores.git_syncs, object("GitSync", "main", json!({"url": "https://g.example/r"})));
    let wired = || {
        let resolved = world.resolve(&agent);
        (resolved.wired.join(","), resolved.presumed)
    };
    assert_eq!(wired(), ("b".to_owned(), true));
    put(&world.stores.agents, object("Agent", "b", json!({"modelAPI": {"name": "m"}})));
    assert_eq!(wired(), ("b".to_owned(), false), "it is there");
    world.stores.agents.deleted(&Key::new("team", "b"), "u-b");
    assert_eq!(wired(), ("b".to_owned(), true));
    world.wanted.set(&sync, std::iter::empty());
    assert_eq!(wired(), (String::new(), false), "now it is known to be gone");
}

#[test]
fn a2_the_order_of_lists_does_not_matter() {
    let world = World::new();
    world.tools("t", "tools:2");
    let of = |servers: [&str; 2], peers: [&str; 2]| {
        let servers = servers.map(|name| json!({"name": name}));
        let spec = json!({"modelAPI": {"name": "m"}, "mcpServers": servers, "agentNetwork": {"access": peers}, "waitForDependencies": false});
        let agent = world.agent(spec);
        desired::children(&agent, &world.resolve(&agent), &world.defaults)
    };
    assert_eq!(of(["s", "t"], ["x", "y"]), of(["t", "s"], ["y", "x"]));
}

#[test]
fn a2_the_model_is_envs_then_the_specs_then_config_envs_then_the_only_one() {
    let world = World::new();
    let model = |spec: Value| world.resolve(&world.agent(spec)).model;
    let api = json!({"name": "m"});
    let env = |var: Value| json!({"env": [var]});
    let literal = env(json!({"name": "MODEL_NAME", "value": "from-env"}));
    let all = json!({"modelAPI": api, "model": "named", "config": literal});
    assert_eq!(model(all.clone()).as_deref(), Some("named"));
    let mut last_word = all;
    last_word["env"] = json!([{"name": "MODEL_NAME", "value": "last-word"}]);
    assert_eq!(model(last_word).as_deref(), Some("last-word"));
    assert_eq!(model(json!({"modelAPI": api, "config": literal})).as_deref(), Some("from-env"));
    let empty = env(json!({"name": "MODEL_NAME"}));
    assert_eq!(model(json!({"modelAPI": api, "config": empty})).as_deref(), Some("gpt-5"));
    let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let reference = env(json!({"name": "MODEL_NAME", "valueFrom": from}));
    assert_eq!(model(json!({"modelAPI": api, "config": reference})), None);
    let fallback = json!({"modelAPI": {"name": "missing"}});
    assert_eq!(model(fallback).as_deref(), Some(FALLBACK_MODEL));
}

#[test]
fn a10_a_build_that_has_lost_its_image_does_not_stop_what_runs() {
    let world = World::new();
    let mut build = object(
        "AgentBuild",
        "b",
        json!({"source": {"gitSync": {}}, "output": {"image": "team/a"}}),
    );
    build["status"] = json!({"builtImage": "r/team/a@sha256:1"});
    put(&world.stores.agent_builds, build);
    let agent = world.agent(
        json!({"modelAPI": {"name": "m"}, "buildRef": {"name": "b"}, "waitForDependencies": false}),
    );
    world.deploy(&agent);
    assert_eq!(world.resolve(&agent).missing_build, None);
    world.stores.agent_builds.deleted(&Key::new("team", "b"), "u-b");
    let resolved = world.resolve(&agent);
    assert_eq!(resolved.image.as_deref(), Some("r/team/a@sha256:1"));
    assert_eq!(resolved.waiting_for_build.as_deref(), Some("b"));
    assert_eq!(resolved.held_for_build(), None);
    let text = "there is no AgentBuild b in this namespace";
    assert_eq!(resolved.missing_build.as_deref(), Some(text));
}

#[test]
fn a10_the_image_of_another_build_or_of_the_spec_is_not_rolled_out_in_place_of_a_builds_own() {
    let world = World::new();
    let spec = |image: Value| {
        let mut spec = json!({"modelAPI": {"name": "m"}, "waitForDependencies": false});
        spec.as_object_mut().expect("a map").extend(image.as_object().cloned().expect("a map"));
        spec
    };
    let mut other = object(
        "AgentBuild",
        "other",
        json!({"source": {"gitSync": {}}, "output": {"image": "team/a"}}),
    );
    other["status"] = json!({"builtImage": "r/team/a@sha256:1"});
    put(&world.stores.agent_builds, other);
    let build = |name: &str| world.agent(spec(json!({"buildRef": {"name": name}})));
    for before in [build("other"), world.agent(spec(json!({"image": "i:1"})))] {
        world.deploy(&before);
        let resolved = world.resolve(&build("b"));
        assert_eq!((resolved.image.clone(), resolved.held_for_build()), (None, Some("b")));
        let children = desired::children(&build("b"), &resolved, &world.defaults);
        assert_eq!((children.deployment, children.config_map), (Wanted::Keep, Wanted::Keep));
        // A suspended agent has no pods, whatever it is to run.
        let mut suspended = build("b");
        suspended.spec.suspend = true;
        let resolved = world.resolve(&suspended);
        let children = desired::children(&suspended, &resolved, &world.defaults);
        let deployment = children.deployment.get().expect("a Deployment");
        assert_eq!(deployment.spec.as_ref().and_then(|spec| spec.replicas), Some(0));
    }
}

#[test]
fn t5_tools_that_a_server_does_not_have_are_missing_only_while_its_tools_are_known() {
    let world = World::new();
    let mut spec = spec();
    spec["mcpServers"][0]["tools"] = json!(["find", "drop", "list"]);
    spec["mcpServers"][0]["requireApproval"] = json!(["drop"]);
    let agent = world.agent(spec);
    assert!(world.resolve(&agent).missing_tools.is_empty(), "nothing is known yet");
    let with = |generation: i64, revision: &str, count: usize| {
        let mut server = object("MCPServer", "s", json!({"image": "tools:1"}));
        server["metadata"]["generation"] = json!(generation);
        let discovered = json!({"type": "ToolsDiscovered", "status": "True", "reason": "Discovered",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        server["status"] = json!({"toolsRevision": revision, "toolCount": count, "conditions": [discovered],
            "tools": [{"name": "find", "schemaHash": "1"}, {"name": "list", "schemaHash": "2"}]});
        put(&world.stores.mcp_servers, server);
        world.resolve(&agent).missing_tools
    };
    let drop = [("s".to_owned(), vec!["drop".to_owned()])];
    assert_eq!(with(3, "3/7c9f", 2), drop);
    assert!(with(4, "3/7c9f", 2).is_empty(), "of an earlier spec");
    assert!(with(4, "4/8d0a", 300).is_empty(), "not all of its tools are shown");
    assert_eq!(with(4, "4/8d0a", 2), drop);
}

#[test]
fn t5_a_server_that_is_known_not_to_list_its_tools_is_told() {
    let world = World::new();
    let agent = world.agent(spec());
    let with = |status: &str, reason: &str, of: i64| {
        let mut server = object("MCPServer", "s", json!({"image": "tools:1"}));
        server["metadata"]["generation"] = json!(3);
        let discovered = json!({"type": "ToolsDiscovered", "status": status, "reason": reason,
            "observedGeneration": of, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        server["status"] = json!({"conditions": [discovered]});
        put(&world.stores.mcp_servers, server);
        world.resolve(&agent).not_listed
    };
    assert_eq!(with("False", "NotMcp", 3), [("s".to_owned(), "NotMcp".to_owned())]);
    assert!(with("False", "NotMcp", 2).is_empty(), "of an earlier spec");
    assert!(
        with("False", "NotAllowed", 3).is_empty(),
        "agents may reach what the operator may not"
    );
    assert!(with("Unknown", "NoReadyPod", 3).is_empty());
    assert!(with("True", "Discovered", 3).is_empty());
}
