//! The key of an agent.

use serde_json::json;

use super::super::desired::children;
use super::super::fixtures::{agent, defaults, ready};
use super::*;
use crate::api::keys;
use crate::cluster::children::Child;
use crate::cluster::reflector;
use crate::controllers::children::Wanted;
use crate::controllers::inputs::digest::MacKey;

/// The keys of the ModelAPI with this UID.
fn proxy(uid: &str) -> ProxyKeys {
    let api = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "spec": {"mode": "Proxy", "proxy": {}},
        "metadata": {"name": "m", "namespace": "team", "uid": uid}});
    let api = serde_json::from_value(api).expect("ModelAPI");
    ProxyKeys::new(Arc::new(MacKey::new(&[7; 32])), &api)
}

fn made(issued: i64) -> ModelKey {
    ModelKey::Made { proxy: Arc::new(proxy("um")), issued, given: issued != 0 }
}

/// The Secret and the Deployment of an agent with this key.
fn of(model_key: ModelKey) -> (Keys, Deployment) {
    let agent = agent(
        "a",
        json!({"modelAPI": {"name": "m"}, "providerSecretRef": {"name": "own", "key": "k"}}),
    );
    let resolved = super::super::resolve::Resolved { model_key, ..ready() };
    let children = children(&agent, &resolved, &defaults());
    let Wanted::Bring(deployment) = children.deployment else { panic!("a Deployment") };
    (children.keys, deployment)
}

/// The Secret that the variable has its value from.
fn key_of(deployment: &Deployment) -> serde_json::Value {
    let pod = serde_json::to_value(deployment).expect("JSON")["spec"]["template"]["spec"].clone();
    let env = pod["containers"][0]["env"].as_array().cloned().unwrap_or_default();
    let all: Vec<_> = env.iter().filter(|var| var["name"] == "OPENAI_API_KEY").collect();
    assert_eq!(all.len(), 1);
    all[0]["valueFrom"]["secretKeyRef"].clone()
}

#[test]
fn m5_a2_an_agent_of_a_proxy_has_its_own_key_by_reference() {
    let (keys, deployment) = of(made(100));
    let Keys::Bring(secret) = keys else { panic!("a Secret") };
    assert_eq!(key_of(&deployment), json!({"name": "agent-a-model-key", "key": "key"}));
    assert_eq!(secret.name(), "agent-a-model-key");
    let marks = |deployment: &Deployment| {
        let meta = serde_json::to_value(deployment).expect("JSON")["metadata"].clone();
        let mark = |name: &str| meta["annotations"][name].as_str().map(str::to_owned);
        [mark(keys::KEY_ISSUED), mark(keys::KEY_PROXY), mark(keys::KEY_DIGEST)]
    };
    let expected = [Some("100".into()), Some("m".into()), Some(secret.digest.clone())];
    assert_eq!(marks(&deployment), expected);
    let text = serde_json::to_string(&deployment).expect("JSON");
    assert!(!text.contains("sk-cvk-"), "only by reference");
    // Without a proxy it is the key of the definition.
    let (keys, deployment) = of(ModelKey::None);
    assert_eq!(key_of(&deployment), json!({"name": "own", "key": "k"}));
    assert_eq!((keys, marks(&deployment)), (Keys::None, [None, None, None]));
}

#[test]
fn m5_a2_no_key_that_the_definition_names_takes_the_place_of_the_agents_own() {
    let other = |key: &str| {
        let from = json!({"secretKeyRef": {"name": "other", "key": key}});
        json!([{"name": "OPENAI_API_KEY", "valueFrom": from}])
    };
    let spec = json!({"modelAPI": {"name": "m"}, "config": {"env": other("c")}, "env": other("e")});
    let agent = agent("a", spec);
    let read = |model_key: ModelKey| {
        let resolved = super::super::resolve::Resolved { model_key, ..ready() };
        let Wanted::Bring(deployment) = children(&agent, &resolved, &defaults()).deployment else {
            panic!("a Deployment")
        };
        key_of(&deployment)
    };
    let own = json!({"name": "agent-a-model-key", "key": "key"});
    assert_eq!(read(made(100)), own);
    let (_, before) = of(made(100));
    assert_eq!(read(ModelKey::kept(given(&before))), own);
    assert_eq!(read(ModelKey::None), json!({"name": "other", "key": "e"}), "without a proxy");
}

#[test]
fn m5_a3_while_the_model_is_away_the_pods_keep_their_key() {
    let (_, before) = of(made(100));
    let given = given(&before);
    assert_eq!(ModelKey::kept(None), ModelKey::None);
    let (keys, deployment) = of(ModelKey::kept(given));
    assert_eq!(keys, Keys::Keep(Some("agent-a-model-key".into())));
    assert_eq!(deployment, before, "no pod is replaced");
}

/// What a store tells of the key of a Deployment.
fn given(deployment: &Deployment) -> Option<KeyMarks> {
    let (_, entry) = reflector::entry::<Child<Deployment>>(deployment.clone());
    KeyMarks::of(&entry.value)
}

#[test]
fn m5_a_key_that_another_proxy_has_signed_is_issued_anew() {
    let agent = agent("a", json!({"modelAPI": {"name": "m"}}));
    let (_, before) = of(made(100));
    let issued = |proxy: ProxyKeys, given: Option<&KeyMarks>| {
        let ModelKey::Made { issued, .. } = ModelKey::made(&agent, Ok(proxy), given, None) else {
            panic!("it was made")
        };
        issued
    };
    let given = given(&before);
    assert_eq!(issued(proxy("um"), given.as_ref()), 100);
    assert_eq!(issued(proxy("other"), given.as_ref()), 0);
    assert_eq!(issued(proxy("um"), None), 0);
    // Pods may still read an earlier key of this proxy.
    let back = |proxy: ProxyKeys| ModelKey::made(&agent, Ok(proxy), given.as_ref(), Some(50));
    let ModelKey::Made { issued: 50, given: false, .. } = back(proxy("other")) else {
        panic!("it is the earlier one again")
    };
    let ModelKey::Made { issued: 100, given: true, .. } = back(proxy("um")) else {
        panic!("the Deployment has a key of it")
    };
}

#[test]
fn m5_a_key_that_was_changed_is_issued_anew_until_the_deployment_tells_so() {
    let (renewed, key) = (Issued::default(), Key::new("team", "a"));
    let settled = |uid: &str, told: i64, now: i64| {
        let mut model_key = made(told);
        renewed.settle(&key, uid, &mut model_key, now);
        let (Keys::Bring(secret), _) = of(model_key.clone()) else { panic!("a Secret") };
        let ModelKey::Made { issued, .. } = model_key else { panic!("it was made") };
        (issued, secret.given)
    };
    renewed.renew(&key, "u1", &ModelKey::None, 2000);
    assert_eq!(settled("u1", 1000, 2000), (1000, true), "there was none");
    renewed.renew(&key, "u1", &made(1000), 2000);
    assert_eq!(settled("u1", 1000, 2000), (2000, false));
    assert_eq!(settled("u1", 1000, 2299), (2000, false), "the same with the next try");
    assert_eq!(settled("u1", 1000, 2300), (1000, true), "no proxy takes it without its list");
    renewed.renew(&key, "u1", &made(1000), 2000);
    assert_eq!(settled("u1", 2000, 9001), (2000, true), "as the Deployment says now");
    assert!(renewed.0.lock().is_empty(), "then nothing is remembered");
    renewed.renew(&key, "u1", &made(1000), 500);
    assert_eq!(
        settled("u1", 1000, 500),
        (1001, false),
        "never an older one, though the clock went back"
    );
    assert_eq!(settled("u2", 1000, 500), (1000, true), "it was of another agent of that name");
}

#[test]
fn m5_without_the_operators_key_no_key_is_made() {
    let agent = agent("a", json!({"modelAPI": {"name": "m"}}));
    let unknown = ModelKey::made(&agent, Err("no Secret".into()), None, None);
    let (keys, _) = of(unknown);
    let expected = Keys::Unknown { secret: "agent-a-model-key".into(), why: "no Secret".into() };
    assert_eq!(keys, expected);
}

#[test]
fn m5_a_key_is_issued_once_also_while_its_deployment_cannot_be_written() {
    let (issued, key) = (Issued::default(), Key::new("team", "a"));
    let settled = |uid: &str, before: i64, now: i64| {
        let mut model_key = made(before);
        issued.settle(&key, uid, &mut model_key, now);
        let ModelKey::Made { issued, .. } = model_key else { panic!("it was made") };
        issued
    };
    assert_eq!(settled("u1", 0, 1000), 1000);
    assert_eq!(settled("u1", 0, 1299), 1000, "the same with the next try");
    assert_eq!(settled("u1", 0, 1300), 1300, "until it is old");
    assert_eq!(settled("u1", 0, 1200), 1200, "or the clock went back");
    assert_eq!(settled("u2", 0, 1201), 1201, "another agent of that name");
    assert_eq!(settled("u2", 1201, 5000), 1201, "as the Deployment says");
    assert!(issued.0.lock().is_empty(), "then nothing is remembered");
    let mut none = ModelKey::None;
    issued.settle(&key, "u2", &mut none, 6000);
    assert_eq!(none, ModelKey::None);
}
