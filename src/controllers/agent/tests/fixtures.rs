//! What the tests of agents' children share.

use serde_json::{Value, json};

use super::resolve::{Resolved, Server};
use crate::api::Agent;
use crate::api::common::{HeaderFrom, KeyRef};
use crate::controllers::defaults::Defaults;

pub(super) fn defaults() -> Defaults {
    Defaults::for_tests()
}

/// An agent from a spec as a user writes it.
pub(super) fn agent(name: &str, spec: Value) -> Agent {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "spec": spec,
        "metadata": {"name": name, "namespace": "team", "uid": "u1", "annotations": {"convoke.dev/commit": "abc", "convoke.dev/source": "a.yaml:3"}}});
    serde_json::from_value(object).expect("agent")
}

/// All that an agent refers to is there but one peer.
pub(super) fn ready() -> Resolved {
    Resolved {
        model_url: Some("https://m.example".into()),
        model: Some("gpt".into()),
        mcp_servers: vec![Server {
            name: "web-search".into(),
            url: Some("https://s.example/mcp".into()),
            headers: Vec::new(),
        }],
        peers: vec![("missing".into(), false), ("writer".into(), true)],
        wired: vec!["writer".into()],
        image: Some("agent:1".into()),
        ..Resolved::default()
    }
}

/// A header with its value in the Secret `s`.
pub(super) fn header(name: &str, key: &str) -> HeaderFrom {
    let secret_key_ref = KeyRef { name: "s".into(), key: key.into(), optional: None };
    HeaderFrom { name: name.into(), secret_key_ref }
}
