//! Pods are replaced when a ConfigMap or Secret changes that they read, and only then: on a real API server, with the
//! shipped rights.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod allowed;
mod budget;
use crate::support;

use std::collections::BTreeMap;
use std::time::Duration;

use convoke::api::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::team::{AGENT, ARGS, SOON, Team, model, shared_operator};
use support::{AuditMark, AuditRecord, Cluster, cluster, eventually};

const INPUTS: &str = "convoke.dev/inputs";
const ALLOWED: (&str, &str) = ("convoke.dev/agents", "allow");

fn agent(name: &str, env: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {name}\nspec:\n  modelAPI: gpt\n  waitForDependencies: false\n{env}"
    )
}

/// A list of variables with one that comes from a key: of a `secret` or a `configMap`.
fn env(kind: &str, name: &str, key: &str) -> String {
    format!(
        "  env:\n    - name: INPUT\n      valueFrom:\n        {kind}KeyRef:\n          name: {name}\n          key: {key}\n"
    )
}

/// An agent that reads one key.
fn reads(name: &str, kind: &str, object: &str, key: &str) -> String {
    agent(name, &env(kind, object, key))
}

/// A team with an External ModelAPI `gpt` and these agents; nothing is synced yet.
async fn team<'a>(cluster: &'a Cluster, prefix: &str, agents: &[(&str, String)]) -> Team<'a> {
    let gpt = model("gpt");
    let mut files = vec![("m.yaml", gpt.as_str())];
    files.extend(agents.iter().map(|(path, text)| (*path, text.as_str())));
    Team::new(cluster, prefix, &files).await
}

impl Team<'_> {
    /// Waits until the pods of a Deployment say something else of what they read, and gives the Deployment.
    async fn rolled(&self, before: &Deployment) -> Deployment {
        let name = before.metadata.name.clone().unwrap_or_default();
        eventually(SOON, &format!("{name} is rolled out"), || async {
            let now = self.deployment(&name).await;
            if inputs(&now) == inputs(before) { Err(inputs(&now)) } else { Ok(now) }
        })
        .await
    }

    async fn put_map(&self, name: &str, labels: &[(&str, &str)], data: Value) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data});
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        api.patch(name, &params, &Patch::Apply(&object)).await.expect("ConfigMap");
    }

    async fn put_secret(&self, name: &str, labels: &[(&str, &str)], data: Value) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let data: BTreeMap<String, k8s_openapi::ByteString> = data
            .as_object()
            .expect("data")
            .iter()
            .map(|(k, v)| {
                (k.clone(), k8s_openapi::ByteString(v.as_str().unwrap_or_default().into()))
            })
            .collect();
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": data});
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        api.patch(name, &params, &Patch::Apply(&object)).await.expect("Secret");
    }

    /// Writes of operators in this namespace since then.
    fn written(&self, since: AuditMark) -> Vec<AuditRecord> {
        let mut writes = self.cluster.writes_by(AGENT, since);
        writes.retain(|record| record.namespace == self.namespace);
        writes
    }

    /// Waits until operators have written nothing here for a second, and gives that moment.
    async fn quiet(&self) -> AuditMark {
        for _ in 0..30 {
            let mark = self.cluster.audit_mark();
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.written(mark).is_empty() {
                return mark;
            }
        }
        panic!("{} does not come to rest", self.namespace);
    }

    /// A change that must be answered with a write elsewhere: when it is, what came before has been seen, too.
    async fn fence(&self, map: &str, deployment: &str) {
        let before = self.deployment(deployment).await;
        let value = before.metadata.resource_version.clone().unwrap_or_default();
        self.put_map(map, &[ALLOWED], json!({"k": value})).await;
        self.rolled(&before).await;
    }
}

fn inputs(deployment: &Deployment) -> Option<String> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get(INPUTS).cloned()
}

fn generation(deployment: &Deployment) -> i64 {
    deployment.metadata.generation.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_a_changed_config_map_replaces_the_pods_that_read_it_once_and_no_others() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let agents = [
        ("one.yaml", reads("one", "configMap", "settings", "k")),
        ("two.yaml", reads("two", "configMap", "fence", "k")),
        (
            "none.yaml",
            reads("none", "configMap", "settings", "other")
                .replace("  env:", "  # env:")
                .split("    - name")
                .next()
                .unwrap_or_default()
                .to_owned(),
        ),
    ];
    let team = team(cluster, "maps", &agents).await;
    team.put_map("settings", &[ALLOWED], json!({"k": "1", "other": "1"})).await;
    team.put_map("fence", &[ALLOWED], json!({"k": "1"})).await;
    team.sync_with(json!({})).await;
    let (one, two) = (team.deployment("agent-one").await, team.deployment("agent-two").await);
    let none = team.deployment("agent-none").await;
    assert_eq!(
        (generation(&one), generation(&two), generation(&none)),
        (1, 1, 1),
        "the first write says all"
    );
    assert!(
        inputs(&one)
            .is_some_and(|text| text.starts_with("ConfigMap/settings=") && text.len() == 51)
    );
    assert_eq!(inputs(&none), None, "nothing is read");

    team.quiet().await;
    team.put_map("settings", &[ALLOWED], json!({"k": "2", "other": "1"})).await;
    let changed = team.rolled(&one).await;
    let mark = team.quiet().await;
    assert_eq!(generation(&team.deployment("agent-one").await), generation(&changed));
    assert_eq!(generation(&changed), 2, "one rollout");
    for untouched in [&two, &none] {
        let now = team.deployment(untouched.metadata.name.as_deref().unwrap_or_default()).await;
        assert_eq!(generation(&now), 1);
    }

    // A key that nobody reads, and a label: no write.
    team.put_map("settings", &[ALLOWED], json!({"k": "2", "other": "2", "new": "1"})).await;
    team.put_map("settings", &[ALLOWED, ("team", "blue")], json!({"k": "2", "other": "2"})).await;
    team.fence("fence", "agent-two").await;
    let mut writes = team.written(mark);
    // The status tells of the rollout before, which Kubernetes counts in its own time. Events name nobody in their path.
    writes.retain(|r| r.subresource != "status" && r.resource != "events");
    assert!(writes.iter().all(|r| r.name == "agent-two" || r.name == "two"), "{writes:#?}");
    assert_eq!(generation(&team.deployment("agent-one").await), 2);
}

const PROXY: &str = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: proxy\nspec:\n  mode: Proxy\n  proxy:\n    provider: openai\n    apiKeyFrom:\n      secretKeyRef:\n        name: keys\n        key: k\n";

#[tokio::test(flavor = "multi_thread")]
async fn a5_a13_a_changed_secret_replaces_pods_of_every_kind_and_its_value_shows_nowhere() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let server = format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: tools\nspec:\n  image: tools:1\n{}",
        env("secret", "keys", "k")
    );
    let maybe = env("secret", "maybe", "k") + "          optional: true\n";
    let files = [
        ("proxy.yaml", PROXY.to_owned()),
        ("server.yaml", server),
        ("one.yaml", reads("one", "secret", "keys", "k")),
        ("optional.yaml", agent("optional", &maybe)),
        ("two.yaml", reads("two", "configMap", "fence", "k")),
    ];
    let team = team(cluster, "secrets", &files).await;
    cluster.grant_secrets(&team.namespace, &[operator]);
    cluster.grant_keys(&team.namespace, &[operator]);
    let canaries = ["canary-first-value", "canary-second-value", "canary-unread"];
    let data = |k: &str| json!({"k": k, "unread": canaries[2]});
    team.put_secret("keys", &[ALLOWED], data(canaries[0])).await;
    team.put_secret("maybe", &[ALLOWED], data(canaries[0])).await;
    team.put_map("fence", &[ALLOWED], json!({"k": "1"})).await;
    team.sync_with(json!({})).await;
    let names = ["agent-one", "modelapi-proxy", "mcpserver-tools"];
    let mut before = Vec::new();
    for name in names {
        before.push(team.deployment(name).await);
    }
    let optional = team.deployment("agent-optional").await;
    for deployment in before.iter().chain([&optional]) {
        assert_eq!(generation(deployment), 1, "the first write says all");
        assert!(inputs(deployment).is_some_and(|text| text.starts_with("Secret/")));
    }
    for (kind, name) in
        [(Kind::Agent, "one"), (Kind::ModelAPI, "proxy"), (Kind::MCPServer, "tools")]
    {
        team.condition(kind, name, "SecretsWatched", |c| c["status"] == "True").await;
    }
    let silent = team.condition(Kind::Agent, "two", "SecretsWatched", Value::is_null).await;
    assert_eq!(silent, Value::Null, "it reads no Secret");

    team.put_secret("keys", &[ALLOWED], data(canaries[1])).await;
    for deployment in &before {
        assert_eq!(generation(&team.rolled(deployment).await), 2, "one rollout");
    }
    let mark = team.quiet().await;
    // Neither a label nor a key that nobody reads; nor that a Secret that pods need is gone and comes back.
    team.put_secret("keys", &[ALLOWED, ("team", "blue")], data(canaries[1])).await;
    team.put_secret("keys", &[ALLOWED], json!({"k": canaries[1], "new": canaries[2]})).await;
    let secrets: Api<Secret> = Api::namespaced(team.client.clone(), &team.namespace);
    secrets.delete("keys", &DeleteParams::default()).await.expect("delete");
    team.condition(Kind::Agent, "one", "InputsFollowed", |c| c["status"] == "False").await;
    team.put_secret("keys", &[ALLOWED], data(canaries[1])).await;
    team.condition(Kind::Agent, "one", "InputsFollowed", Value::is_null).await;
    team.fence("fence", "agent-two").await;
    let written = team.written(mark);
    let deployments: Vec<_> = written.iter().filter(|r| r.resource == "deployments").collect();
    assert!(deployments.iter().all(|r| r.name == "agent-two"), "{deployments:#?}");
    // One that they can do without, and now do.
    secrets.delete("maybe", &DeleteParams::default()).await.expect("delete");
    let without = team.rolled(&optional).await;
    assert_eq!((inputs(&without), generation(&without)), (None, 2));

    // Not in the log, not in anything that the API server holds besides the Secrets themselves.
    team.quiet().await;
    let mut all = operator.log();
    let kinds = "agents,modelapis,mcpservers,gitsyncs,deployments,replicasets,configmaps,services,events.events.k8s.io";
    all += &cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "json"]);
    for canary in canaries {
        assert!(!all.contains(canary), "{canary}");
        let encoded = serde_json::to_string(&k8s_openapi::ByteString(canary.into())).expect("JSON");
        let encoded = encoded.trim_matches(['"', '=']);
        assert!(!all.contains(&encoded[..encoded.len() - 1]), "{canary} in base64");
    }
    let asked = cluster.requests_by(AGENT, AuditMark::START);
    let wide: Vec<_> =
        asked.iter().filter(|r| r.resource == "secrets" && r.namespace.is_empty()).collect();
    assert!(wide.is_empty(), "no Secret is asked for cluster-wide: {wide:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_without_the_right_secrets_are_not_followed_until_the_told_command_is_run() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team =
        team(cluster, "forbidden", &[("one.yaml", reads("one", "secret", "keys", "k"))]).await;
    team.put_secret("keys", &[ALLOWED], json!({"k": "1"})).await;
    team.sync_with(json!({})).await;
    let before = team.deployment("agent-one").await;
    assert_eq!(inputs(&before), None);
    let told =
        team.condition(Kind::Agent, "one", "SecretsWatched", |c| c["status"] == "False").await;
    assert_eq!(told["reason"], "Forbidden");
    let command = told["message"].as_str().and_then(|text| text.split_once(": kubectl "));
    let (_, command) = command.unwrap_or_else(|| panic!("no command: {told}"));
    cluster.kubectl(&command.split(' ').collect::<Vec<_>>());
    team.condition(Kind::Agent, "one", "SecretsWatched", |c| c["status"] == "True").await;
    let followed = team.rolled(&before).await;
    team.put_secret("keys", &[ALLOWED], json!({"k": "2"})).await;
    assert_eq!(generation(&team.rolled(&followed).await), generation(&followed) + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_u02_a_restarted_operator_writes_nothing_and_goes_on_following() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    let files = [
        ("one.yaml", reads("one", "secret", "keys", "k")),
        ("two.yaml", reads("two", "configMap", "settings", "k")),
        ("three.yaml", reads("three", "configMap", "plain", "k")),
    ];
    let (open, closed) =
        (team(&cluster, "open", &files).await, team(&cluster, "closed", &files).await);
    cluster.grant_secrets(&open.namespace, &[&operator]);
    for team in [&open, &closed] {
        team.put_secret("keys", &[ALLOWED], json!({"k": "1"})).await;
        team.put_map("settings", &[ALLOWED], json!({"k": "1"})).await;
        team.put_map("plain", &[ALLOWED], json!({"k": "1"})).await;
        team.sync_with(json!({})).await;
    }
    for team in [&open, &closed] {
        team.deployment("agent-one").await;
        // One that runs, and is held as it is.
        team.deployment("agent-three").await;
        team.put_map("plain", &[], json!({"k": "1"})).await;
        team.condition(Kind::Agent, "one", "SecretsWatched", |c| !c.is_null()).await;
        team.condition(Kind::Agent, "three", "InputsFollowed", |c| c["status"] == "False").await;
        team.quiet().await;
    }
    let before = open.deployment("agent-one").await;
    let mark = cluster.audit_mark();
    operator.restart();
    operator.ready(SOON).await;
    for team in [&open, &closed] {
        eventually(SOON, "Secrets are listed again", || async {
            let asked = cluster.requests_by(AGENT, mark);
            let secrets =
                |r: &&AuditRecord| r.resource == "secrets" && r.namespace == team.namespace;
            asked.iter().find(secrets).map(drop)
        })
        .await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.writes_by(AGENT, mark), []);

    open.put_secret("keys", &[ALLOWED], json!({"k": "2"})).await;
    let rolled = open.rolled(&before).await;
    assert_eq!(generation(&rolled), generation(&before) + 1);

    // It comes back without the right: what it does not know replaces no pods.
    open.quiet().await;
    operator.kill9();
    cluster.kubectl(&["-n", &open.namespace, "delete", "rolebinding", "convoke-secrets"]);
    operator.restart();
    open.condition(Kind::Agent, "one", "SecretsWatched", |c| c["status"] == "False").await;
    let now = open.deployment("agent-one").await;
    assert_eq!((inputs(&now), generation(&now)), (inputs(&rolled), generation(&rolled)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_without_a_key_pods_run_and_following_begins_when_there_is_one() {
    let cluster = Cluster::exclusive().await;
    let args: Vec<_> = ARGS.iter().copied().chain(["--operator-namespace=elsewhere"]).collect();
    let operator = cluster.operator(&args).await;
    let team =
        team(&cluster, "keyless", &[("one.yaml", reads("one", "secret", "keys", "k"))]).await;
    cluster.grant_secrets(&team.namespace, &[&operator]);
    team.put_secret("keys", &[ALLOWED], json!({"k": "1"})).await;
    team.sync_with(json!({})).await;
    let before = team.deployment("agent-one").await;
    assert_eq!(inputs(&before), None);
    let told =
        team.condition(Kind::Agent, "one", "SecretsWatched", |c| c["status"] == "False").await;
    assert_eq!(told["reason"], "NoKey");

    cluster.let_keep_key("elsewhere", &operator);
    team.condition(Kind::Agent, "one", "SecretsWatched", |c| c["status"] == "True").await;
    assert!(inputs(&team.rolled(&before).await).is_some());
}
