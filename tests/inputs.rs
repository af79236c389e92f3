//! Pods are replaced when a ConfigMap or Secret changes that they read, and only then: on a real API server, with the
//! shipped rights.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod support;

use std::fmt::Write as _;
use std::time::Duration;

use convoke::api::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::team::{AGENT, ARGS, SOON, Team, model, shared_operator};
use support::{AuditMark, AuditRecord, Cluster, Operator, cluster, eventually};

const INPUTS: &str = "convoke.dev/inputs";
const ALLOWED: (&str, &str) = ("convoke.dev/agents", "allow");

/// An agent that reads one key: of a `secret` or a `configMap`.
fn reads(agent: &str, kind: &str, name: &str, key: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {agent}\nspec:\n  modelAPI: gpt\n  waitForDependencies: false\n  env:\n    - name: INPUT\n      valueFrom:\n        {kind}KeyRef:\n          name: {name}\n          key: {key}\n"
    )
}

/// A team with an External ModelAPI `gpt` and these agents; nothing is synced yet.
async fn team<'a>(cluster: &'a Cluster, prefix: &str, agents: &[(&str, String)]) -> Team<'a> {
    let gpt = model("gpt");
    let mut files = vec![("m.yaml", gpt.as_str())];
    files.extend(agents.iter().map(|(path, text)| (*path, text.as_str())));
    Team::new(cluster, prefix, &files).await
}

impl Team<'_> {
    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn deployment(&self, name: &str) -> Deployment {
        eventually(SOON, &format!("Deployment {name}"), || async {
            self.deployments().get_opt(name).await.expect("get")
        })
        .await
    }

    /// Waits until the pods of a Deployment say something else of what they read, and gives the Deployment.
    async fn rolled(&self, before: &Deployment) -> Deployment {
        let name = before.metadata.name.clone().unwrap_or_default();
        eventually(SOON, &format!("{name} is rolled out"), || async {
            let now = self.deployment(&name).await;
            if inputs(&now) == inputs(before) { Err(inputs(&now)) } else { Ok(now) }
        })
        .await
    }

    /// Waits until an object's condition is as `is` wants it.
    async fn condition(
        &self,
        kind: Kind,
        name: &str,
        type_: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(SOON, &format!("{type_} of {name}"), || async {
            let object = self.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let list = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or(Value::Null);
            let fresh =
                object.data["status"]["observedGeneration"] == json!(object.metadata.generation);
            if fresh && is(&found) { Ok(found) } else { Err(json!(list)) }
        })
        .await
    }

    async fn put_map(&self, name: &str, labels: &[(&str, &str)], data: Value) {
        let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data});
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        api.patch(name, &params, &Patch::Apply(&object)).await.expect("ConfigMap");
    }

    async fn put_secret(&self, name: &str, labels: &[(&str, &str)], data: Value) {
        let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
        let data: std::collections::BTreeMap<String, k8s_openapi::ByteString> = data
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
    let writes = team.written(mark);
    assert!(writes.iter().all(|r| r.name == "agent-two" || r.name == "two"), "{writes:#?}");
    assert_eq!(generation(&team.deployment("agent-one").await), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_config_map_without_the_label_is_used_and_named_and_not_followed() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let agents = [
        ("one.yaml", reads("one", "configMap", "plain", "k")),
        ("two.yaml", reads("two", "configMap", "fence", "k")),
    ];
    let team = team(cluster, "unlabelled", &agents).await;
    team.put_map("plain", &[], json!({"k": "1"})).await;
    team.put_map("fence", &[ALLOWED], json!({"k": "1"})).await;
    team.sync_with(json!({})).await;
    let before = team.deployment("agent-one").await;
    assert_eq!(inputs(&before), None);
    let told =
        team.condition(Kind::Agent, "one", "InputsFollowed", |c| c["status"] == "False").await;
    let command =
        format!("kubectl -n {} label configmap/plain convoke.dev/agents=allow", team.namespace);
    assert!(told["message"].as_str().is_some_and(|text| text.ends_with(&command)), "{told}");

    // The command helps, and then the label may come and go without a rollout.
    cluster.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
    let followed = team.rolled(&before).await;
    team.condition(Kind::Agent, "one", "InputsFollowed", Value::is_null).await;
    team.put_map("plain", &[], json!({"k": "1"})).await;
    cluster.kubectl(&["-n", &team.namespace, "label", "configmap/plain", "convoke.dev/agents-"]);
    team.condition(Kind::Agent, "one", "InputsFollowed", |c| c["status"] == "False").await;
    cluster.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
    team.condition(Kind::Agent, "one", "InputsFollowed", Value::is_null).await;
    assert_eq!(generation(&team.deployment("agent-one").await), generation(&followed));
}
