//! Names that somebody else has.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::support::team::{SOON, Team, model, shared_operator};
use super::support::{cluster, eventually};
use super::{Kind, REMOTE, agent, condition, env};

const PROXY: &str = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: gpt\nspec:\n  mode: Proxy\n  proxy:\n    models: [gpt-5]\n";
const TOOLS: &str = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: search\nspec:\n  image: tools:1\n";
const EAGER: &str = "  waitForDependencies: false\n";

impl Team<'_> {
    /// A Service that is not ours.
    async fn foreign(&self, name: &str) -> Service {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 1}]}});
        let service = serde_json::from_value(service).expect("a Service");
        self.services().create(&PostParams::default(), &service).await.expect("create")
    }

    /// Waits until a ModelAPI or MCPServer says of its name that it is taken, or not.
    async fn taken(&self, kind: Kind, name: &str, taken: bool) -> Value {
        eventually(SOON, &format!("{kind} {name}: taken is {taken}"), || async {
            let object = self.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let status = object.data["status"].clone();
            let seen = !status["observedGeneration"].is_null();
            let is = condition(&status, "Conflict")["status"] == "True";
            if seen && is == taken { Ok(status) } else { Err(status) }
        })
        .await
    }

    /// Waits until the status of an object satisfies `is`. Until then it never says that it has failed.
    async fn comes_to(&self, kind: Kind, name: &str, what: &str, is: impl Fn(&Value) -> bool) {
        eventually(SOON, &format!("{kind} {name}: {what}"), || async {
            let object = self.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let status = object.data["status"].clone();
            assert_ne!(status["phase"], "Failed", "{kind} {name}: {status}");
            if is(&status) { Ok(()) } else { Err(status) }
        })
        .await;
    }

    /// What the pods of an agent are told of models and tools.
    async fn told(&self, agent: &str) -> BTreeMap<&'static str, String> {
        let deployment = self.deployment(&format!("agent-{agent}")).await;
        let names = ["MODEL_API_URL", "MCP_SERVERS", "MCP_SERVER_SEARCH_URL"];
        names.into_iter().filter_map(|name| Some((name, env(&deployment, name)?))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_a_foreign_object_with_a_childs_name_is_left_alone() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = [
        ("m.yaml", model("gpt")),
        ("s.yaml", REMOTE.to_owned()),
        ("a.yaml", agent("mine", "")),
        ("prompt.md", "p".into()),
    ];
    let files: Vec<_> = files.iter().map(|(p, c)| (*p, c.as_str())).collect();
    let team = Team::new(cluster, "foreign-child", &files).await;
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "agent-mine"}, "spec": {"ports": [{"port": 1}]}});
    let before = team
        .services()
        .create(&PostParams::default(), &serde_json::from_value(foreign).expect("service"))
        .await
        .expect("foreign");
    team.sync_with(json!({})).await;
    let status =
        team.agent_is("mine", "conflict", |s| condition(s, "Conflict")["status"] == "True").await;
    assert_eq!(status["phase"], "Failed");
    assert!(status["endpoint"].is_null(), "the Service is somebody else's: {status}");
    let after = team.services().get("agent-mine").await.expect("service");
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert!(team.deployments().get_opt("agent-mine").await.expect("get").is_none());
}

/// The addresses follow from names. Who has the name gets what is sent there: prompts, and what tools are asked.
#[tokio::test(flavor = "multi_thread")]
async fn a11_m4_t3_an_address_that_is_somebody_elses_is_told_to_nobody() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let (patient, eager) = (agent("patient", ""), agent("eager", EAGER));
    let files = [
        ("m.yaml", PROXY),
        ("s.yaml", TOOLS),
        ("patient.yaml", &patient),
        ("eager.yaml", &eager),
        ("prompt.md", "p"),
    ];
    let team = Team::new(cluster, "foreign-address", &files).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    let both = [(Kind::ModelAPI, "gpt"), (Kind::MCPServer, "search")];
    let services = ["modelapi-gpt", "mcpserver-search"];
    for name in services {
        team.foreign(name).await;
    }
    team.sync_with(json!({})).await;
    for (kind, name) in both {
        let status = team.taken(kind, name, true).await;
        assert_eq!((&status["phase"], &status["endpoint"]), (&json!("Failed"), &Value::Null));
    }
    assert_eq!(team.told("eager").await, BTreeMap::new());
    let waits = "Waiting for ModelAPI gpt (not ready), MCPServer search (not ready)";
    team.agent_is("patient", "it waits", |s| s["message"] == waits).await;

    // Their names are free again, and they are asked to look.
    for (service, (kind, name)) in services.into_iter().zip(both) {
        team.services().delete(service, &DeleteParams::default()).await.expect("delete");
        let look =
            Patch::Merge(json!({"metadata": {"annotations": {"example.com/look": "again"}}}));
        team.api(kind).patch(name, &PatchParams::default(), &look).await.expect("annotate");
    }
    let host = |name: &str| format!("http://{name}.{}.svc.cluster.local:8000", team.namespace);
    let (model, tools) = (host("modelapi-gpt"), host("mcpserver-search") + "/mcp");
    for ((kind, name), url) in both.into_iter().zip([&model, &tools]) {
        assert_eq!(team.taken(kind, name, false).await["endpoint"], **url);
    }
    let own =
        [("MODEL_API_URL", &*model), ("MCP_SERVERS", "search"), ("MCP_SERVER_SEARCH_URL", &*tools)];
    let own: BTreeMap<_, _> = own.map(|(name, value)| (name, value.to_owned())).into();
    eventually(SOON, "pods are told the addresses", || async {
        let told = team.told("eager").await;
        if told == own { Ok(()) } else { Err(told) }
    })
    .await;

    // Lost again: what runs goes on as it is, also with its next change, and who comes now is told nothing.
    for (service, (kind, name)) in services.into_iter().zip(both) {
        let disown = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
        team.services().patch(service, &PatchParams::default(), &disown).await.expect("disown");
        assert!(team.taken(kind, name, true).await["endpoint"].is_null());
    }
    let (changed, late) =
        (agent("eager", &format!("{EAGER}  description: new\n")), agent("late", EAGER));
    team.push(&[("eager.yaml", Some(&changed)), ("late.yaml", Some(&late))]).await;
    assert_eq!(team.told("late").await, BTreeMap::new());
    eventually(SOON, "the change reaches the pods", || async {
        let deployment = team.deployment("agent-eager").await;
        env(&deployment, "AGENT_DESCRIPTION").is_some().then_some(())
    })
    .await;
    assert_eq!(team.told("eager").await, own);
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_what_is_made_anew_waits_until_the_children_of_its_namesake_are_gone() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let mine = agent("mine", EAGER);
    let files = [("m.yaml", PROXY), ("s.yaml", REMOTE), ("a.yaml", &*mine), ("prompt.md", "p")];
    let team = Team::new(cluster, "namesake", &files).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    team.sync_with(json!({})).await;
    let all = [(Kind::Agent, "mine", "agent-mine"), (Kind::ModelAPI, "gpt", "modelapi-gpt")];
    let hold = async |service: &str, finalizers: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        team.services().patch(service, &PatchParams::default(), &patch).await.expect("patch");
    };
    for (_, _, service) in all {
        team.deployment(service).await;
        hold(service, json!(["example.com/hold"])).await;
    }
    // The sync makes both anew, and the Services of the old ones stay for as long as they are held.
    for (kind, name, _) in all {
        team.api(kind).delete(name, &DeleteParams::default()).await.expect("delete");
    }
    for (kind, name, service) in all {
        let text = format!("Service {service} is left from an earlier {kind} {name}");
        team.comes_to(kind, name, "it waits", |s| {
            condition(s, "Ready")["reason"] == "Replacing"
                && s["message"].as_str().is_some_and(|message| message.contains(&text))
                && s["endpoint"].is_null()
                && condition(s, "Conflict").is_null()
        })
        .await;
    }
    for (kind, name, service) in all {
        hold(service, Value::Null).await;
        team.comes_to(kind, name, "it goes on", |s| {
            condition(s, "Ready")["reason"] != "Replacing" && !s["endpoint"].is_null()
        })
        .await;
        team.deployment(service).await;
    }
}
