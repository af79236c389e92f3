//! The list of the agents of a model proxy, `agents.json`: whose keys are good.
//!
//! It is a ConfigMap that is changed in place, so that a new agent replaces no pod of the proxy. Many agents that come together
//! are written together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::api::{Agent, Kind, ModelAPI, ObjectId};
use crate::cluster::children::{Child, ChildStores};
use crate::cluster::live::{Managed, SpecHash, Stores, hash_json};
use crate::cluster::store::{Entry, Key, Store};
use crate::cluster::{conditions, meta};
use crate::controllers::debounce::DEBOUNCE_TIME;
use crate::controllers::names::{agent_child, agents_map};
use crate::runtime::queue::Queue;

/// The file.
pub const FILE: &str = "agents.json";
/// Bytes of the longest list: more do not fit into a ConfigMap.
const MAX_BYTES: usize = 1 << 20;
/// So much longer is the pause between two writes for each agent on the list. A long list costs more to write.
const PAUSE_FOR_EACH: Duration = Duration::from_millis(1);

/// An agent as its store keeps it.
type AgentEntry = Arc<Entry<Managed<Agent>>>;

/// An agent on the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When its key was issued, in Unix seconds.
    pub issued: i64,
}

/// What is to become of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AgentList {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is to say this, of so many agents.
    Text(String, usize),
    /// Not all agents fit.
    TooLong {
        /// The list of those whose keys were issued first: keys that are good stay good, and those of agents that are gone end.
        text: String,
        /// How many these are.
        listed: usize,
        /// How many agents there are.
        all: usize,
    },
}

impl AgentList {
    /// The list of these agents.
    #[must_use]
    pub fn of(namespace: &str, mut agents: Vec<Listed>) -> Self {
        let all = agents.len();
        agents.sort();
        let text = text_of(namespace, &agents);
        if text.len() <= MAX_BYTES {
            return Self::Text(text, all);
        }
        agents.sort_by_cached_key(|agent| (agent.issued, agent.name.clone()));
        let mut bytes = text_of(namespace, &[]).len();
        let fits = |agent: &&Listed| {
            // With the comma.
            bytes += json!(agent).to_string().len() + 1;
            bytes <= MAX_BYTES
        };
        let listed = agents.iter().take_while(fits).count();
        agents.truncate(listed);
        agents.sort();
        Self::TooLong { text: text_of(namespace, &agents), listed, all }
    }

    /// What it is to say, of so many agents.
    #[must_use]
    pub fn text(&self) -> Option<(&str, usize)> {
        match self {
            Self::Keep => None,
            Self::Text(text, listed) | Self::TooLong { text, listed, all: _ } => {
                Some((text.as_str(), *listed))
            }
        }
    }

    /// Sets or removes the condition `AgentsListed`, which is there only while the list is too long.
    pub fn tell(&self, list: &mut Vec<Condition>, observed: conditions::Observed) {
        match self {
            Self::Keep => {}
            Self::Text(..) => conditions::remove(list, CONDITION),
            Self::TooLong { text: _, listed, all } => {
                let text = format!(
                    "{all} agents do not fit into the list of one ModelAPI ({MAX_BYTES} bytes): it has the {listed} whose keys were issued first, without agents that are gone; the keys of the others end ten minutes after they were issued; spread the agents over several ModelAPIs"
                );
                observed.set(list, CONDITION, "False", "TooManyAgents", &text);
            }
        }
    }
}

fn text_of(namespace: &str, agents: &[Listed]) -> String {
    json!({"namespace": namespace, "agents": agents}).to_string()
}

/// The condition about the list.
pub const CONDITION: &str = "AgentsListed";

/// The agents whose Deployment has a key for the proxy of this ModelAPI, or had one before and has pods that are not replaced yet. A
/// Deployment that does not say for which proxy its key is has one for that of the agent's spec. The key of an agent that is being
/// deleted ends at once.
#[must_use]
pub fn agents_of(api: &Key, stores: &Stores, children: &ChildStores) -> Vec<Listed> {
    let term = ObjectId::new(Kind::ModelAPI, &*api.name).to_string();
    let listed = |name: &str, agent: &AgentEntry, deployment: &Child<Deployment>| {
        let is_own = deployment.owner_uid() == Some(agent.uid.as_str());
        let stays = is_own && !agent.value.facts.deleting;
        let mut before = deployment.keys_before().filter(|(proxy, _)| **proxy == *api.name);
        let issued = match deployment.key_proxy() {
            Some(proxy) if *proxy != *api.name => None,
            _ => deployment.issued(),
        };
        let issued = issued.or_else(|| Some(before.next()?.1)).filter(|_| stays)?;
        Some(Listed { name: name.to_owned(), uid: agent.uid.clone(), issued })
    };
    let marked = children.deployments.found(&api.namespace, &term).into_iter();
    let marked = marked.filter_map(|(key, deployment)| {
        let name = deployment.value.owner_name()?;
        let is_named_so = deployment_of(&api.namespace, name) == key;
        let agent = stores.agents.get(&Key::new(&api.namespace, name)).filter(|_| is_named_so)?;
        listed(name, &agent, &deployment.value)
    });
    let unmarked = stores.agents.found(&api.namespace, &term).into_iter();
    let unmarked = unmarked.filter_map(|(key, agent)| {
        let deployment = children.deployments.get(&deployment_of(&key.namespace, &key.name))?;
        let is_marked = deployment.value.key_proxy().is_some();
        listed(&key.name, &agent, &deployment.value).filter(|_| !is_marked)
    });
    marked.chain(unmarked).collect()
}

/// Namespace and name of the Deployment of an agent.
fn deployment_of(namespace: &str, agent: &str) -> Key {
    Key::new(namespace, agent_child(agent))
}

/// The ConfigMap with the list.
#[must_use]
pub fn config_map(api: &ModelAPI, text: &str) -> ConfigMap {
    let name = agents_map(api.metadata.name.as_deref().unwrap_or_default());
    meta::with_hash(ConfigMap {
        metadata: meta::child_meta(api, Kind::ModelAPI, name),
        data: Some(BTreeMap::from([(FILE.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    })
}

/// When each list was changed, so that it is not changed again at once.
#[derive(Default)]
pub struct Pauses(Mutex<HashMap<Key, (SpecHash, Instant)>>);

impl Pauses {
    /// How long the list stays as it is, if it was changed a moment ago.
    pub fn hold(&self, key: &Key, list: &AgentList, now: Instant) -> Option<Duration> {
        let (text, agents) = list.text()?;
        let hash = hash_json(&json!(text));
        let mut changed = self.0.lock();
        if let Some((have, at)) = changed.get(key) {
            if *have == hash {
                return None;
            }
            let agents = u32::try_from(agents).unwrap_or(u32::MAX);
            let pause = DEBOUNCE_TIME + PAUSE_FOR_EACH.saturating_mul(agents);
            let left = pause.saturating_sub(now.saturating_duration_since(*at));
            if !left.is_zero() {
                return Some(left);
            }
        }
        changed.insert(key.clone(), (hash, now));
        None
    }

    /// Forgets a ModelAPI that is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// Puts a ModelAPI on the queue, a moment later, when an agent comes to it or leaves it, or gets a key.
pub fn listen(stores: &Stores, children: &ChildStores, queue: &Arc<Queue>) {
    on_agents(&stores.agents, &children.deployments, queue);
    let (sink, agents) = (queue.clone(), stores.agents.clone());
    children.deployments.on_change(move |change| {
        let key = |child: Option<&Arc<Entry<Child<Deployment>>>>| {
            let child = &child?.value;
            let of_agent = child.owner_kind() == Some(Kind::Agent.as_str());
            let [name, uid] = [child.owner_name()?, child.owner_uid()?].map(str::to_owned);
            let proxy = child.key_proxy().map(str::to_owned);
            let before = child.keys_before().map(|(proxy, issued)| (proxy.to_owned(), issued));
            let before: Vec<_> = before.collect();
            Some((name, uid, child.issued(), proxy, before)).filter(|_| of_agent)
        };
        let (old, new) = (key(change.old), key(change.new));
        if old == new {
            return;
        }
        for (agent, _, issued, proxy, before) in old.into_iter().chain(new) {
            let of_spec =
                || model_api(agents.get(&Key::new(&change.key.namespace, agent)).as_ref());
            let proxy = proxy.or_else(|| issued.and_then(|_| of_spec()));
            for api in proxy.into_iter().chain(before.into_iter().map(|(proxy, _)| proxy)) {
                sink.add_after(Key::new(&change.key.namespace, api), DEBOUNCE_TIME);
            }
        }
    });
}

fn on_agents(
    agents: &Store<Managed<Agent>>,
    deployments: &Arc<Store<Child<Deployment>>>,
    queue: &Arc<Queue>,
) {
    let (sink, deployments) = (queue.clone(), deployments.clone());
    agents.on_change(move |change| {
        let state = |entry: Option<&AgentEntry>| {
            let facts = &entry?.value.facts;
            Some((entry?.uid.clone(), facts.spec_hash, facts.deleting))
        };
        if state(change.old) == state(change.new) {
            return;
        }
        let deployment = deployments.get(&deployment_of(&change.key.namespace, &change.key.name));
        let marked = deployment.as_ref().into_iter().flat_map(|entry| {
            let before = entry.value.keys_before().map(|(proxy, _)| proxy);
            entry.value.key_proxy().into_iter().chain(before).map(str::to_owned)
        });
        let of_spec = [change.old, change.new].into_iter().filter_map(model_api);
        for api in of_spec.chain(marked) {
            sink.add_after(Key::new(&change.key.namespace, api), DEBOUNCE_TIME);
        }
    });
}

/// The name of the ModelAPI of an agent.
fn model_api(agent: Option<&AgentEntry>) -> Option<String> {
    Some(agent?.value.object()?.spec.model_api.name.clone())
}

#[cfg(test)]
#[path = "tests/list.rs"]
mod tests;
