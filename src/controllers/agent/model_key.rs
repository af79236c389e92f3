//! The key by which an agent asks a model proxy: whether it has one, and since when.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use parking_lot::Mutex;

use super::desired::child_name;
use crate::api::model_api::ModelMode;
use crate::api::{Agent, Kind};
use crate::cluster::children::Child;
use crate::cluster::children::secrets::OwnSecret;
use crate::cluster::readiness::observe;
use crate::cluster::store::Key;
use crate::controllers::children::Keys;
use crate::controllers::context::Context;
use crate::controllers::key_marks::{KeyBefore, KeyMarks};
use crate::controllers::model_api::keys::ProxyKeys;
use crate::controllers::names::agent_secret;

/// How long a key that no Deployment tells of yet counts as just issued, in seconds. A proxy takes a key that is not on its list for
/// ten minutes.
const ISSUED_FOR: i64 = 300;

/// The key of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ModelKey {
    /// Its model needs none.
    #[default]
    None,
    /// The ModelAPI is away: the pods keep the key that they were given.
    Kept(KeyMarks),
    /// The ModelAPI is a proxy.
    Made {
        /// The proxy's keys.
        proxy: Arc<ProxyKeys>,
        /// When it was issued, if the live Deployment says so; 0 when the key is to be issued.
        issued: i64,
        /// Whether the live Deployment says so.
        given: bool,
    },
    /// The ModelAPI is a proxy, but no key can be made, for this reason.
    Unknown(String),
}

impl ModelKey {
    /// The key of an agent, by the mode of its ModelAPI, and the earlier keys that its pods may still read. A ModelAPI that is away says nothing
    /// of its mode.
    #[must_use]
    pub fn of(agent: &Agent, context: &Context) -> (Self, Vec<KeyBefore>) {
        let key = Key::of(&agent.metadata);
        let Context { stores, children, inputs, .. } = context;
        let api = stores.model_apis.get(&Key::new(&key.namespace, &agent.spec.model_api.name));
        let api = api.and_then(|entry| entry.value.object());
        let deployment = Key::new(&key.namespace, child_name(&key.name));
        let uid = agent.metadata.uid.as_deref().unwrap_or_default();
        let live = children.deployments.get(&deployment);
        let live = live.filter(|entry| entry.value.owner_uid() == Some(uid));
        let live = live.as_ref().map(|entry| &entry.value);
        let given = live.and_then(KeyMarks::of);
        let proxy = match &api {
            Some(api) if api.spec.mode == ModelMode::Proxy => api.metadata.name.as_deref(),
            Some(_) => None,
            None => live.and_then(|live| live.key_proxy()),
        };
        let before = live.map(|live| {
            let is_settled = || live.object().is_none_or(|live| observe(&live).is_settled());
            KeyBefore::of(live, proxy, is_settled)
        });
        let model_key = match &api {
            Some(api) if api.spec.mode == ModelMode::Proxy => {
                let operator = inputs.operator_key(Kind::Agent, &key);
                let keys = operator.map(|operator| ProxyKeys::new(operator, api));
                let mut earlier = live.into_iter().flat_map(Child::keys_before);
                let back = earlier.find(|(name, _)| proxy == Some(*name));
                Self::made(agent, keys, given.as_ref(), back.map(|(_, issued)| issued))
            }
            Some(_) => Self::None,
            None => Self::kept(given),
        };
        (model_key, before.unwrap_or_default())
    }

    /// The key for a proxy. One that the proxy does not take, because another one has signed it, is issued anew: as it is new,
    /// the proxy takes it before it is on the list. Pods of an agent that comes back to a proxy may still read a key of it: then it is
    /// that key again (`back` is when it was issued), because the proxy takes no earlier key than the one on its list.
    fn made(
        agent: &Agent,
        proxy: Result<ProxyKeys, String>,
        given: Option<&KeyMarks>,
        back: Option<i64>,
    ) -> Self {
        match proxy {
            Ok(proxy) => {
                let is_same = |digest: &str, issued: &i64| {
                    proxy.agent_secret(agent, *issued).digest == digest
                };
                let issued = given
                    .and_then(|given| given.issued.filter(|issued| is_same(&given.digest, issued)));
                let (given, issued) = (issued.is_some(), issued.or(back).unwrap_or(0));
                Self::Made { proxy: Arc::new(proxy), issued, given }
            }
            Err(why) => Self::Unknown(why),
        }
    }

    fn kept(given: Option<KeyMarks>) -> Self {
        given.filter(|given| given.issued.is_some()).map_or(Self::None, Self::Kept)
    }

    /// Whether the pods read a key.
    #[must_use]
    pub fn is_read(&self) -> bool {
        *self != Self::None
    }

    /// The Secret with the key.
    #[must_use]
    pub fn keys(&self, agent: &Agent) -> Keys {
        let secret = || agent_secret(agent.metadata.name.as_deref().unwrap_or_default());
        match self {
            Self::None => Keys::None,
            Self::Kept(_) => Keys::Keep(Some(secret())),
            Self::Made { proxy, issued, given } => {
                let secret = proxy.agent_secret(agent, *issued);
                Keys::Bring(Box::new(OwnSecret { given: *given, ..secret }))
            }
            Self::Unknown(why) => Keys::Unknown { secret: secret(), why: why.clone() },
        }
    }

    /// Marks the Deployment whose pods read these keys.
    #[must_use]
    pub fn mark(&self, deployment: Deployment, keys: &Keys) -> Deployment {
        match (self, keys) {
            (Self::Kept(given), _) => given.put(deployment),
            (Self::Made { proxy, issued, .. }, Keys::Bring(secret)) => {
                let digest = secret.digest.clone();
                let proxy = Some(proxy.model_api().to_owned());
                KeyMarks { digest, issued: Some(*issued), proxy }.put(deployment)
            }
            _ => deployment,
        }
    }
}

/// When keys were issued that no Deployment tells of yet: a Deployment that cannot be written gives no new key with each try.
#[derive(Default)]
pub struct Issued(Mutex<HashMap<Key, Pending>>);

/// A key that no Deployment tells of yet.
struct Pending {
    /// UID of the agent.
    of: String,
    /// When it was issued.
    at: i64,
    /// When the key that it replaces was issued, as the Deployment says; 0 if it says nothing.
    before: i64,
}

impl Pending {
    /// Whether it is the key of this agent. It counts for some minutes only: later no proxy takes a key that is not on its list. One
    /// that replaces another may be of a later time than now.
    fn counts(&self, uid: &str, told: i64, now: i64) -> bool {
        let age = now.saturating_sub(self.at);
        let is_just_issued = age < ISSUED_FOR && (age >= 0 || told != 0);
        self.of == uid && self.before == told && is_just_issued
    }
}

impl Issued {
    /// Settles when the key of an agent was issued. `now` is in Unix seconds.
    pub fn settle(&self, key: &Key, uid: &str, model_key: &mut ModelKey, now: i64) {
        let mut pending = self.0.lock();
        let ModelKey::Made { issued, given, .. } = model_key else {
            pending.remove(key);
            return;
        };
        if let Some(pending) = pending.get(key).filter(|one| one.counts(uid, *issued, now)) {
            (*issued, *given) = (pending.at, false);
        } else if *issued != 0 {
            pending.remove(key);
        } else {
            *issued = now;
            pending.insert(key.clone(), Pending { of: uid.to_owned(), at: now, before: 0 });
        }
    }

    /// Issues another key in place of the one that the Deployment tells of. It is newer than that one, whatever the clock says: the
    /// proxy refuses the older one.
    pub fn renew(&self, key: &Key, uid: &str, model_key: &ModelKey, now: i64) {
        if let ModelKey::Made { issued, .. } = model_key {
            let (of, before) = (uid.to_owned(), *issued);
            let at = now.max(before.saturating_add(1));
            self.0.lock().insert(key.clone(), Pending { of, at, before });
        }
    }

    /// Forgets an agent that is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
#[path = "tests/model_key.rs"]
mod tests;
