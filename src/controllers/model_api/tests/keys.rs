//! The keys of a proxy and of its agents.

use serde_json::Value;

use super::*;
use crate::api::keys;

fn operator(byte: u8) -> Arc<MacKey> {
    Arc::new(MacKey::new(&[byte; 32]))
}

fn api(name: &str, uid: &str) -> ModelAPI {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI",
        "metadata": {"name": name, "namespace": "team", "uid": uid, "annotations": {"convoke.dev/commit": "abc", "convoke.dev/source": "m.yaml:1"}},
        "spec": {"mode": "Proxy", "proxy": {}}});
    serde_json::from_value(object).expect("ModelAPI")
}

fn agent(name: &str, uid: &str) -> Agent {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": name, "namespace": "team", "uid": uid}, "spec": {"modelAPI": {"name": "m"}}});
    serde_json::from_value(object).expect("Agent")
}

fn proxy() -> ProxyKeys {
    ProxyKeys::new(operator(7), &api("m", "u1"))
}

/// The proxy's tests (`proxy/tests/test_keys.py`) check the same key.
#[test]
fn m5_a_key_is_what_the_proxy_expects() {
    let who = ["team", "writer", "7c1f2a44-0000-4000-8000-000000000001"];
    let made = agent_key("signing-key-of-the-tests-0123456789abcdef", who, 1_800_000_000);
    let expected = "sk-cvk-writer.7c1f2a44-0000-4000-8000-000000000001.1800000000.b03a6c15d3305bbf50209329cb6b0ede0d51f5255ae1dafa4987f93f59789068";
    assert_eq!(made.get(), expected);
}

#[test]
fn m5_a_proxy_has_keys_that_are_long_enough_and_its_own() {
    let secret = proxy().secret(&api("m", "u1"));
    assert_eq!(secret.name(), "modelapi-m-keys");
    let (master, signing) = (secret.data[MASTER_KEY].get(), secret.data[SIGNING_KEY].get());
    assert!(master.starts_with("sk-") && master.len() == 67, "as many as 32 bytes have");
    assert_eq!(signing.len(), 64);
    assert!(!master.contains(signing.as_str()));
    let same = ProxyKeys::new(operator(7), &api("m", "u1"));
    assert_eq!(same.secret(&api("m", "u1")), secret, "always the same");
    for (operator, api) in [
        (operator(8), api("m", "u1")),
        (operator(7), api("m", "u2")),
        (operator(7), api("n", "u1")),
    ] {
        let other = ProxyKeys::new(operator, &api).secret(&api);
        assert_ne!(other.data[SIGNING_KEY].get(), signing);
        assert_ne!(other.data[MASTER_KEY].get(), master);
        assert_ne!((other.hash, other.digest), (secret.hash.clone(), secret.digest.clone()));
    }
}

#[test]
fn m5_each_agent_has_a_key_and_another_uid_time_or_proxy_makes_another() {
    let first = proxy().agent_secret(&agent("a", "u1"), 100);
    assert_eq!(first.name(), "agent-a-model-key");
    assert!(first.data[AGENT_KEY].get().starts_with("sk-cvk-a.u1.100."));
    let others = [
        proxy().agent_secret(&agent("a", "u1"), 101),
        proxy().agent_secret(&agent("a", "u2"), 100),
        proxy().agent_secret(&agent("b", "u1"), 100),
        ProxyKeys::new(operator(7), &api("m", "u2")).agent_secret(&agent("a", "u1"), 100),
        ProxyKeys::new(operator(8), &api("m", "u1")).agent_secret(&agent("a", "u1"), 100),
    ];
    for other in &others {
        assert_ne!(other.data[AGENT_KEY].get(), first.data[AGENT_KEY].get());
        assert_ne!(other.digest, first.digest);
        assert_ne!(other.hash, first.hash);
    }
}

#[test]
fn m5_a_secret_belongs_to_its_owner_has_no_label_for_agents_and_is_not_printed() {
    let secret = proxy().secret(&api("m", "u1"));
    let meta = serde_json::to_value(&secret.meta).expect("JSON");
    assert_eq!(meta["ownerReferences"][0]["uid"], "u1");
    assert_eq!(meta["ownerReferences"][0]["controller"], true);
    assert_eq!(meta["labels"][keys::AGENTS], Value::Null, "no definition may name it");
    assert_eq!(meta["labels"]["app.kubernetes.io/managed-by"], "convoke");
    let shown = format!("{secret:?} {:?}", proxy());
    for value in secret.data.values() {
        assert!(!shown.contains(value.get().as_str()));
        assert!(!meta.to_string().contains(value.get().as_str()));
    }
    // Where an object stands in Git is no reason to write it.
    let mut moved = api("m", "u1");
    moved
        .metadata
        .annotations
        .as_mut()
        .expect("some")
        .insert(keys::SOURCE.into(), "n.yaml:9".into());
    assert_eq!(proxy().secret(&moved).hash, secret.hash);
    let mut relabelled = secret.clone();
    relabelled.meta.labels = None;
    assert_ne!(proxy().seal(relabelled.meta, relabelled.data).hash, secret.hash);
}
