//! Each agent of a model proxy has a key of its own, and the proxy has a list of them: on a real API server, with the shipped
//! rights. What the proxy does with them is tested in `proxy/tests`.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

pub mod policy;
mod restart;
mod rights;

use crate::support;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use convoke::api::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::team::{AGENT, ARGS, SOON, Team, model, shared_operator};
use support::{AuditMark, AuditRecord, Cluster, Operator, cluster, eventually};

const PROXY: &str = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: gpt\nspec:\n  mode: Proxy\n  proxy:\n    models: [gpt-5]\n";

/// An agent of the ModelAPI `gpt` that waits for nothing, and runs no pods.
fn agent(name: &str, more: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {name}\nspec:\n  modelAPI: gpt\n  model: gpt-5\n  waitForDependencies: false\n  replicas: 0\n{more}"
    )
}

/// A team with the proxy.
struct Proxied<'a>(Team<'a>);

impl<'a> Deref for Proxied<'a> {
    type Target = Team<'a>;

    fn deref(&self) -> &Team<'a> {
        &self.0
    }
}

/// A team with the proxy and these agents. Nothing is synced yet.
async fn team<'a>(cluster: &'a Cluster, prefix: &str, agents: &[&str]) -> Proxied<'a> {
    let agents: Vec<_> =
        agents.iter().map(|name| (format!("{name}.yaml"), agent(name, ""))).collect();
    let mut files = vec![("m.yaml", PROXY)];
    files.extend(agents.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    Proxied(Team::new(cluster, prefix, &files).await)
}

/// The same, with the right to write keys, on the shared cluster.
async fn granted(prefix: &str, agents: &[&str]) -> (Proxied<'static>, &'static Operator) {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = team(cluster, prefix, agents).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    team.sync_with(json!({})).await;
    (team, operator)
}

impl Proxied<'_> {
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A Secret, once it is there.
    async fn secret(&self, name: &str) -> Secret {
        eventually(SOON, &format!("Secret {name}"), || async {
            self.secrets().get_opt(name).await.expect("get")
        })
        .await
    }

    /// The key of an agent, once it has one.
    async fn key(&self, agent: &str) -> String {
        value(&self.secret(&format!("agent-{agent}-model-key")).await, "key")
    }

    async fn list_map(&self) -> Option<ConfigMap> {
        self.list_map_of("gpt").await
    }

    async fn list_map_of(&self, api: &str) -> Option<ConfigMap> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        maps.get_opt(&format!("modelapi-{api}-agents")).await.expect("get")
    }

    /// Waits until the list names exactly these agents, and gives it by name.
    async fn listed(&self, names: &[&str]) -> BTreeMap<String, Value> {
        self.listed_by("gpt", names).await
    }

    /// The same of another proxy.
    async fn listed_by(&self, api: &str, names: &[&str]) -> BTreeMap<String, Value> {
        eventually(SOON, &format!("the list of {} agents of {api}", names.len()), || async {
            let text =
                self.list_map_of(api).await.and_then(|map| map.data?.get("agents.json").cloned());
            let list: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
            let agents = list["agents"].as_array().cloned().unwrap_or_default();
            let have: Vec<_> = agents.iter().filter_map(|one| one["name"].as_str()).collect();
            if list["namespace"] != json!(self.namespace) || have != names {
                return Err(list);
            }
            let named =
                |one: &Value| (one["name"].as_str().unwrap_or_default().to_owned(), one.clone());
            Ok(agents.iter().map(named).collect())
        })
        .await
    }

    /// Writes of operators in this namespace since then.
    fn written(&self, since: AuditMark) -> Vec<AuditRecord> {
        let mut writes = self.cluster.writes_by(AGENT, since);
        writes.retain(|record| record.namespace == self.namespace);
        writes
    }

    /// Waits until operators have written nothing here for three seconds: longer than anything is put off.
    async fn at_rest(&self) {
        for _ in 0..20 {
            let mark = self.cluster.audit_mark();
            tokio::time::sleep(Duration::from_secs(3)).await;
            if self.written(mark).is_empty() {
                return;
            }
        }
        panic!("{} does not come to rest", self.namespace);
    }
}

/// A value of a Secret.
fn value(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().expect("data");
    String::from_utf8(data[key].0.clone()).expect("UTF-8")
}

/// What signs a key, as the proxy checks it.
fn mac(signing_key: &str, signed: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, signing_key.as_bytes());
    let tag = hmac::sign(&key, signed.as_bytes());
    convoke_core::text::hex(tag.as_ref())
}

fn generation(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.generation
}

/// The digest of keys on the pods of a Deployment.
fn digest(deployment: &Deployment) -> Option<String> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get("convoke.dev/key-digest").cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_each_agent_of_a_proxy_gets_a_key_that_only_its_pods_read() {
    let mark = cluster().await.audit_mark();
    let (team, operator) = granted("keys", &["one", "two"]).await;
    let proxy = team.secret("modelapi-gpt-keys").await;
    let (signing, master) = (value(&proxy, "signing-key"), value(&proxy, "master-key"));
    let listed = team.listed(&["one", "two"]).await;
    let mut secrets = vec![signing.clone(), master];
    for name in ["one", "two"] {
        let object = team.api(Kind::Agent).get(name).await.expect("agent");
        let uid = object.metadata.uid.clone().expect("uid");
        let key = team.key(name).await;
        let parts: Vec<_> = key.split('.').collect();
        let [first, of, issued, signed] = parts[..] else { panic!("four parts: {}", parts.len()) };
        assert_eq!((first, of), (&*format!("sk-cvk-{name}"), &*uid));
        let expected = mac(&signing, &format!("{}/{name}/{uid}/{issued}", team.namespace));
        assert_eq!(signed, expected, "the proxy takes it");
        assert_eq!(listed[name]["uid"], json!(uid));
        assert_eq!(listed[name]["issued"].to_string(), issued);
        secrets.push(signed.to_owned());

        let secret = team.secret(&format!("agent-{name}-model-key")).await;
        let owner = secret.metadata.owner_references.as_ref().expect("owner")[0].clone();
        assert_eq!((owner.uid, owner.controller), (uid, Some(true)));
        let labels = secret.metadata.labels.clone().unwrap_or_default();
        assert!(!labels.contains_key("convoke.dev/agents"), "no definition may name it");
        let pod =
            team.deployment(&format!("agent-{name}")).await.spec.and_then(|s| s.template.spec);
        let env = pod.expect("pod").containers[0].env.clone().expect("env");
        let from = env.iter().find(|var| var.name == "OPENAI_API_KEY").expect("a key");
        let from =
            from.value_from.clone().and_then(|from| from.secret_key_ref).expect("a reference");
        assert_eq!(
            (from.name.as_str(), from.key.as_str()),
            (&*format!("agent-{name}-model-key"), "key")
        );
    }
    let pod = team.deployment("modelapi-gpt").await.spec.and_then(|spec| spec.template.spec);
    let mounts = pod.expect("pod").containers[0].volume_mounts.clone().expect("mounts");
    let paths: Vec<_> = mounts.iter().map(|mount| mount.mount_path.as_str()).collect();
    for folder in ["/etc/convoke/proxy", "/etc/convoke/agents"] {
        assert!(paths.contains(&folder), "{paths:?}");
    }

    // Each Secret was written once, and a touch of everything writes nothing.
    team.at_rest().await;
    let mut written: Vec<_> = team
        .written(mark)
        .into_iter()
        .filter(|r| r.resource == "secrets")
        .map(|r| r.name)
        .collect();
    written.sort();
    assert_eq!(written, ["agent-one-model-key", "agent-two-model-key", "modelapi-gpt-keys"]);
    let mark = team.cluster.audit_mark();
    let touch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/touched": "yes"}}}));
    for (kind, name) in [(Kind::Agent, "one"), (Kind::Agent, "two"), (Kind::ModelAPI, "gpt")] {
        team.api(kind).patch(name, &PatchParams::default(), &touch).await.expect("touch");
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(team.written(mark), []);

    // Nothing of a key is anywhere but in its Secret, and no Secrets are listed.
    let kinds = "agents,modelapis,gitsyncs,deployments,replicasets,configmaps,services,events.events.k8s.io";
    let all = operator.log()
        + &team.cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "json"]);
    assert!(secrets.iter().all(|secret| !all.contains(secret.as_str())), "a key is shown");
    let asked = team.cluster.requests_by(AGENT, AuditMark::START);
    let broad = |r: &&AuditRecord| {
        r.resource == "secrets"
            && r.namespace == team.namespace
            && !["get", "patch"].contains(&r.verb.as_str())
    };
    let broad: Vec<_> = asked.iter().filter(broad).collect();
    assert!(broad.is_empty(), "{broad:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_the_list_is_changed_in_place_and_replaces_no_pod_of_the_proxy() {
    let (team, _) = granted("list", &["one", "two"]).await;
    team.listed(&["one", "two"]).await;
    let before = team.list_map().await.expect("a list");
    let proxy = team.deployment("modelapi-gpt").await;
    team.push(&[("three.yaml", Some(&agent("three", ""))), ("two.yaml", None)]).await;
    team.listed(&["one", "three"]).await;
    let after = team.list_map().await.expect("a list");
    assert_eq!(after.metadata.uid, before.metadata.uid, "the same object");
    let now = team.deployment("modelapi-gpt").await;
    assert_eq!((now.metadata.uid, now.metadata.generation), (proxy.metadata.uid, Some(1)));

    // Who deletes it gets it back.
    let maps: Api<ConfigMap> = Api::namespaced(team.client.clone(), &team.namespace);
    maps.delete("modelapi-gpt-agents", &DeleteParams::default()).await.expect("delete");
    team.listed(&["one", "three"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_many_agents_that_come_together_change_the_list_few_times() {
    let (team, _) = granted("many", &[]).await;
    team.listed(&[]).await;
    let names: Vec<_> = (0..80).map(|number| format!("agent{number:02}")).collect();
    let files: Vec<_> =
        names.iter().map(|name| (format!("{name}.yaml"), agent(name, ""))).collect();
    let files: Vec<_> =
        files.iter().map(|(path, text)| (path.as_str(), Some(text.as_str()))).collect();
    let (mark, began) = (team.cluster.audit_mark(), Instant::now());
    team.push(&files).await;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    team.listed(&names).await;
    let took = began.elapsed();
    team.at_rest().await;
    let mut writes = team.written(mark);
    writes.retain(|r| r.name == "modelapi-gpt-agents");
    let most = usize::try_from(took.as_secs() / 2).expect("a number") + 2;
    assert!(writes.len() <= most, "{} writes in {took:?}", writes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_an_agent_that_is_made_anew_gets_another_key() {
    let (team, _) = granted("anew", &["one"]).await;
    let before = team.listed(&["one"]).await["one"].clone();
    let (old, key) = (team.secret("agent-one-model-key").await, team.key("one").await);
    // In whole seconds, and a key that was issued later is another one.
    tokio::time::sleep(Duration::from_secs(1)).await;
    team.api(Kind::Agent).delete("one", &DeleteParams::default()).await.expect("delete");
    let after = eventually(SOON, "the list names the new one", || async {
        let now = team.listed(&["one"]).await["one"].clone();
        if now["uid"] == before["uid"] { Err(now) } else { Ok(now) }
    })
    .await;
    assert!(after["issued"].as_i64() > before["issued"].as_i64(), "{after} {before}");
    let (new, other) = (team.secret("agent-one-model-key").await, team.key("one").await);
    assert_ne!(
        new.metadata.uid, old.metadata.uid,
        "one that goes with the earlier agent is of no use"
    );
    assert!(other != key && other.contains(after["uid"].as_str().expect("a uid")));
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_keys_that_were_deleted_are_written_again_as_soon_as_a_pod_misses_them() {
    let (team, _) = granted("missed", &["one"]).await;
    let old = team.secret("modelapi-gpt-keys").await;
    let pods: Api<Pod> = Api::namespaced(team.cluster.client().await, &team.namespace);
    let pod = eventually(SOON, "a pod of the proxy", || async {
        let found = pods.list(&ListParams::default()).await.expect("list").items.into_iter();
        found.map(|pod| pod.name_any()).find(|name| name.starts_with("modelapi-gpt-"))
    })
    .await;
    team.secrets().delete("modelapi-gpt-keys", &DeleteParams::default()).await.expect("delete");
    // What a kubelet writes of a pod that has come since.
    let said = json!({"reason": "CreateContainerConfigError", "message": "secret \"modelapi-gpt-keys\" not found"});
    let container = json!({"name": "modelapi", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": said}});
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [container]}});
    let params = PatchParams::default();
    pods.patch_status(&pod, &params, &Patch::Merge(status)).await.expect("patch");
    let new = team.secret("modelapi-gpt-keys").await;
    assert_ne!(new.metadata.uid, old.metadata.uid);
    assert_eq!(new.data, old.data, "the keys are the same ones");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_key_that_was_changed_by_hand_is_issued_anew_when_a_pod_may_have_read_it() {
    let (team, _) = granted("byhand", &[]).await;
    let runs = agent("one", "").replace("replicas: 0", "replicas: 1");
    team.push(&[("one.yaml", Some(&runs))]).await;
    let issued = team.listed(&["one"]).await["one"]["issued"].clone();
    let (key, given) = (team.key("one").await, digest(&team.deployment("agent-one").await));
    team.at_rest().await;
    let by_hand = json!({"stringData": {"key": "sk-cvk-nobody"}});
    let secret = "agent-one-model-key";
    let params = PatchParams::default();
    team.secrets().patch(secret, &params, &Patch::Merge(by_hand)).await.expect("patch");
    // What a kubelet writes of a pod that has started since.
    let pods: Api<Pod> = Api::namespaced(team.cluster.client().await, &team.namespace);
    let pod = eventually(SOON, "a pod of the agent", || async {
        let found = pods.list(&ListParams::default()).await.expect("list").items.into_iter();
        found.map(|pod| pod.name_any()).find(|name| name.starts_with("agent-one-"))
    })
    .await;
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let status =
        json!({"phase": "Running", "podIP": "10.9.8.7", "hostIP": "10.9.0.1", "conditions": ready});
    let status = json!({"status": status});
    pods.patch_status(&pod, &params, &Patch::Merge(status)).await.expect("patch");
    let now = eventually(SOON, "other keys replace its pods", || async {
        let now = digest(&team.deployment("agent-one").await);
        (now != given).then_some(now)
    })
    .await;
    assert!(now.is_some());
    let other = team.key("one").await;
    assert!(other != key && other != "sk-cvk-nobody", "{other}");
    eventually(SOON, "the list takes the new key only", || async {
        let listed = team.listed(&["one"]).await["one"]["issued"].clone();
        (listed.as_i64() > issued.as_i64() && other.contains(&format!(".{listed}."))).then_some(())
    })
    .await;
    team.at_rest().await;
    assert_eq!(team.key("one").await, other, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_an_agent_that_leaves_its_proxy_loses_its_key() {
    let (team, _) = granted("leaves", &["one", "two"]).await;
    team.listed(&["one", "two"]).await;
    assert!(digest(&team.deployment("agent-one").await).is_some());
    let moved = agent("one", "").replace("modelAPI: gpt", "modelAPI: outside");
    team.push(&[("o.yaml", Some(&model("outside"))), ("one.yaml", Some(&moved))]).await;
    team.listed(&["two"]).await;
    eventually(SOON, "the Secret is gone", || async {
        team.secrets().get_opt("agent-one-model-key").await.expect("get").is_none().then_some(())
    })
    .await;
    let now = team.deployment("agent-one").await;
    assert_eq!(digest(&now), None);
    let text = serde_json::to_string(&now.spec).expect("JSON");
    assert!(!text.contains("OPENAI_API_KEY"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_pods_that_are_not_replaced_yet_are_taken_by_the_proxy_that_their_agent_has_left() {
    let (team, _) = granted("moves", &["one"]).await;
    let other = PROXY.replace("name: gpt", "name: other");
    // Nothing runs pods here: a rollout of this one hangs.
    let at = |api: &str, replicas: u8| {
        let text = agent("one", "").replace("modelAPI: gpt", &format!("modelAPI: {api}"));
        text.replace("replicas: 0", &format!("replicas: {replicas}"))
    };
    let (here, there) = (at("gpt", 1), at("other", 1));
    team.push(&[("o.yaml", Some(&other)), ("one.yaml", Some(&here))]).await;
    let first = team.listed(&["one"]).await["one"].clone();
    team.at_rest().await;
    team.push(&[("one.yaml", Some(&there))]).await;
    team.listed_by("other", &["one"]).await;
    team.at_rest().await;
    assert_eq!(team.listed(&["one"]).await["one"], first, "as before");

    // Back: pods may read the first key still.
    team.push(&[("one.yaml", Some(&here))]).await;
    team.at_rest().await;
    assert_eq!(team.listed(&["one"]).await["one"], first, "as before");
    team.listed_by("other", &["one"]).await;

    // It moves to a model that needs no key. When no pods are left, no proxy takes a key of it.
    let away = at("outside", 1);
    team.push(&[("out.yaml", Some(&model("outside"))), ("one.yaml", Some(&away))]).await;
    team.at_rest().await;
    assert_eq!(team.listed(&["one"]).await["one"], first, "as before");
    team.secret("agent-one-model-key").await;
    let ended = at("outside", 0);
    team.push(&[("one.yaml", Some(&ended))]).await;
    team.listed(&[]).await;
    team.listed_by("other", &[]).await;
    eventually(SOON, "the Secret is gone", || async {
        team.secrets().get_opt("agent-one-model-key").await.expect("get").is_none().then_some(())
    })
    .await;
    let now = team.deployment("agent-one").await.metadata.annotations.unwrap_or_default();
    assert!(!now.contains_key("convoke.dev/key-before"), "{now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a13_a_definition_that_names_a_key_of_others_gets_none() {
    let (team, _) = granted("thief", &["one"]).await;
    team.key("one").await;
    let names = |name: &str, secret: &str, key: &str| {
        let more = format!(
            "  env:\n    - name: STOLEN\n      valueFrom:\n        secretKeyRef:\n          name: {secret}\n          key: {key}\n          optional: true\n"
        );
        agent(name, &more).replace("  replicas: 0\n", "")
    };
    let thief = names("thief", "agent-one-model-key", "key");
    team.push(&[("thief.yaml", Some(&thief))]).await;
    let told =
        team.condition(Kind::Agent, "thief", "InputsFollowed", |c| c["status"] == "False").await;
    assert_eq!(told["reason"], "NotAllowed");
    assert!(team.deployments().get_opt("agent-thief").await.expect("get").is_none());
    // Nor its own one under another name, nor those of the proxy.
    let own = names("own", "agent-own-model-key", "key");
    let forger = names("forger", "modelapi-gpt-keys", "signing-key");
    team.push(&[("own.yaml", Some(&own)), ("forger.yaml", Some(&forger))]).await;
    team.at_rest().await;
    for name in ["agent-own", "agent-forger"] {
        let deployment = team.deployments().get_opt(name).await.expect("get");
        let text = serde_json::to_string(&deployment).expect("JSON");
        assert!(!text.contains("STOLEN"), "{name}: {text}");
    }
    // As the provider's key it would leave the cluster.
    let leak = PROXY.to_owned()
        + "    apiKeyFrom:\n      secretKeyRef:\n        name: modelapi-gpt-keys\n        key: signing-key\n";
    let before = team.deployment("modelapi-gpt").await;
    team.push(&[("m.yaml", Some(&leak))]).await;
    team.at_rest().await;
    assert_eq!(generation(&team.deployment("modelapi-gpt").await), generation(&before));
}
