//! (pure) The keys of a ModelAPI in mode Proxy, and the key of each of its agents.
//!
//! All are made from the operator's key and from what the objects are: nothing has to be kept, and nothing is read back. What a
//! key looks like, and who checks it, is in `docs/model-proxy.md`.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::hmac;
use convoke_core::text::hex;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::api::{Agent, Kind, ModelAPI};
use crate::cluster::children::secrets::OwnSecret;
use crate::cluster::hidden::Hidden;
use crate::cluster::meta;
use crate::controllers::inputs::digest::MacKey;
use crate::controllers::names;

/// The key of an agent's Secret.
pub const AGENT_KEY: &str = "key";
/// The files of a proxy's Secret.
const MASTER_KEY: &str = "master-key";
const SIGNING_KEY: &str = "signing-key";

/// The keys of one proxy.
#[derive(Debug, Clone)]
pub struct ProxyKeys {
    operator: Arc<MacKey>,
    model_api: String,
    master: Hidden<String>,
    signing: Hidden<String>,
}

impl PartialEq for ProxyKeys {
    fn eq(&self, other: &Self) -> bool {
        self.master == other.master && self.signing == other.signing
    }
}

impl Eq for ProxyKeys {}

impl ProxyKeys {
    /// The keys of this ModelAPI. Another one of the same name has others.
    #[must_use]
    pub fn new(operator: Arc<MacKey>, api: &ModelAPI) -> Self {
        let [namespace, name, uid] = identity(&api.metadata);
        let derive = |purpose| operator.derive(&[purpose, namespace, name, uid]);
        let signing = derive("model-proxy/signing-key");
        let master = derive("model-proxy/master-key");
        // LiteLLM expects that its keys begin so.
        let master = Hidden::new(format!("sk-{}", master.get()));
        Self { operator, model_api: name.to_owned(), master, signing }
    }

    /// The name of the ModelAPI.
    #[must_use]
    pub fn model_api(&self) -> &str {
        &self.model_api
    }

    /// The Secret that the proxy's pods mount.
    #[must_use]
    pub fn secret(&self, api: &ModelAPI) -> OwnSecret {
        let name = names::proxy_secret(api.metadata.name.as_deref().unwrap_or_default());
        let data = BTreeMap::from([
            (MASTER_KEY, self.master.clone()),
            (SIGNING_KEY, self.signing.clone()),
        ]);
        self.seal(meta::child_meta(api, Kind::ModelAPI, name), data)
    }

    /// The Secret with the key of an agent. `issued` is in Unix seconds.
    #[must_use]
    pub fn agent_secret(&self, agent: &Agent, issued: i64) -> OwnSecret {
        let name = names::agent_secret(agent.metadata.name.as_deref().unwrap_or_default());
        let key = agent_key(self.signing.get(), identity(&agent.metadata), issued);
        let data = BTreeMap::from([(AGENT_KEY, key)]);
        self.seal(meta::child_meta(agent, Kind::Agent, name), data)
    }

    /// A Secret with its digests.
    fn seal(&self, meta: ObjectMeta, data: BTreeMap<&'static str, Hidden<String>>) -> OwnSecret {
        let values =
            data.iter().flat_map(|(name, value)| [name.as_bytes(), value.get().as_bytes()]);
        let digest = self.operator.seal(std::iter::once(&b"values"[..]).chain(values));
        let around = json!([meta.labels, meta.owner_references]).to_string();
        let hash = self.operator.seal([&b"secret"[..], around.as_bytes(), digest.as_bytes()]);
        OwnSecret { meta, data, hash, digest, given: false }
    }
}

/// Namespace, name and UID.
fn identity(meta: &ObjectMeta) -> [&str; 3] {
    [&meta.namespace, &meta.name, &meta.uid].map(|text| text.as_deref().unwrap_or_default())
}

/// The key of an agent: who it is, when it was issued, and a MAC over both.
fn agent_key(signing: &str, [namespace, name, uid]: [&str; 3], issued: i64) -> Hidden<String> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, signing.as_bytes());
    let mac = hmac::sign(&key, format!("{namespace}/{name}/{uid}/{issued}").as_bytes());
    Hidden::new(format!("sk-cvk-{name}.{uid}.{issued}.{}", hex(mac.as_ref())))
}

#[cfg(test)]
#[path = "tests/keys.rs"]
mod tests;
