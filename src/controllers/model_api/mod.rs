//! ModelAPIs: a ModelAPI runs LiteLLM or Ollama, or names an address outside of the cluster.

pub mod desired;
pub mod keys;
pub mod list;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use self::keys::ProxyKeys;
use self::list::{AgentList, Pauses};

use super::children::Children;
use super::context::Context;
use super::defaults::Defaults;
use super::discovery::reachable::REACHABLE;
use super::discovery::{Question, Told, Topic};
use super::names;
use super::workload::outcome::Applied;
use super::workload::serving::{Place, Serving, judge};
use super::workload::{Debounced, Workload};
use crate::api::model_api::{ModelAPIStatus, ModelMode};
use crate::api::{Kind, ModelAPI};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Key, Store};
use crate::cluster::{conditions, meta};
use crate::runtime::queue::Queue;

/// The kind ModelAPI, and when the lists of agents were changed.
#[derive(Default)]
pub struct ModelApis {
    lists: Pauses,
}

/// What is known of a ModelAPI before its children are applied. It refers to nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Where it is served.
    pub serving: Serving,
    /// What it said when it was last asked, if the status may not tell it yet.
    pub told: Option<Arc<Told>>,
    /// The keys of a proxy, or why there are none; `None` in other modes.
    pub keys: Option<Result<Arc<ProxyKeys>, String>>,
    /// The list of the agents of a proxy.
    pub agents: AgentList,
}

impl Workload for ModelApis {
    type Object = ModelAPI;
    type Resolved = Resolved;
    type Status = ModelAPIStatus;
    const KIND: Kind = Kind::ModelAPI;

    fn store(stores: &Stores) -> &Arc<Store<Managed<ModelAPI>>> {
        &stores.model_apis
    }

    fn child_name(name: &str) -> String {
        desired::child_name(name)
    }

    fn secret_name(name: &str) -> Option<String> {
        Some(names::proxy_secret(name))
    }

    fn listen(context: &Context, queue: &Arc<Queue>) {
        list::listen(&context.stores, &context.children, queue);
    }

    fn resolve(api: &ModelAPI, context: &Context) -> Resolved {
        let (key, generation) = (Key::of(&api.metadata), api.metadata.generation);
        let told = context.discovery.told(Kind::ModelAPI, &key, generation);
        let place = match api.spec.mode {
            ModelMode::External => Place::Elsewhere,
            ModelMode::Proxy | ModelMode::Hosted => Place::Pods,
        };
        let serving = Serving { place, ..Serving::default() };
        if api.spec.mode != ModelMode::Proxy {
            return Resolved { serving, told, ..Resolved::default() };
        }
        let operator = context.inputs.operator_key(Kind::ModelAPI, &key);
        let proxy = operator.map(|operator| Arc::new(ProxyKeys::new(operator, api)));
        let agents = list::agents_of(&key, &context.stores, &context.children);
        let agents = AgentList::of(&key.namespace, agents);
        Resolved { serving, told, keys: Some(proxy), agents }
    }

    /// The list of agents is not changed again at once: a moment later it is changed once, for all that came meanwhile.
    fn debounce(&self, key: &Key, _api: &ModelAPI, mut resolved: Resolved) -> Debounced<Resolved> {
        let look_again = self.lists.hold(key, &resolved.agents, Instant::now());
        if look_again.is_some() {
            resolved.agents = AgentList::Keep;
        }
        Debounced { resolved, look_again }
    }

    fn desired(api: &ModelAPI, resolved: &Resolved, defaults: &Defaults) -> Children {
        desired::children(api, resolved, defaults)
    }

    fn current_status(api: &ModelAPI) -> Option<&ModelAPIStatus> {
        api.status.as_ref()
    }

    fn status(
        api: &ModelAPI,
        resolved: &Resolved,
        applied: &Applied,
        defaults: &Defaults,
        now: Timestamp,
    ) -> ModelAPIStatus {
        let Resolved { serving, told, keys, agents } = resolved;
        let mut conditions = api.status.clone().unwrap_or_default().conditions;
        let generation = api.metadata.generation.unwrap_or(0);
        let (phase, message) = judge(&mut conditions, serving, applied, generation, now);
        let ready = applied.observed.as_ref().map(|observed| observed.ready);
        // Without a ready pod nobody answers. When one is ready again it is asked anew.
        let is_there = serving.place == Place::Elsewhere || ready.unwrap_or(0) > 0;
        if !is_there {
            conditions::remove(&mut conditions, REACHABLE);
        }
        match keys {
            Some(_) => agents.tell(&mut conditions, conditions::Observed { generation, now }),
            None => conditions::remove(&mut conditions, list::CONDITION),
        }
        let mut status = ModelAPIStatus {
            observed_generation: Some(generation),
            phase: Some(phase),
            conditions,
            endpoint: desired::endpoint(api, defaults).filter(|_| serving.is_reached(applied)),
            models: desired::models(api),
            ready_replicas: ready,
            source: meta::source(&api.metadata),
            message: Some(message),
        };
        if let Some(told) = told.as_ref().filter(|_| is_there) {
            told.tell_reach(&mut status, now);
        }
        status
    }

    fn question(api: &ModelAPI, _: &Children, defaults: &Defaults) -> Option<Question> {
        let topic = match (api.spec.mode, &api.spec.hosted) {
            (ModelMode::Proxy, _) => Topic::Proxy(desired::METRICS_PORT),
            (ModelMode::Hosted, hosted) => Topic::Hosted(hosted.as_ref()?.model.clone()),
            (ModelMode::External, _) => Topic::External,
        };
        let name = api.metadata.name.as_deref().unwrap_or_default();
        let deployment = (topic != Topic::External).then(|| desired::child_name(name));
        Some(Question {
            topic,
            url: desired::endpoint(api, defaults)?,
            deployment,
            generation: api.metadata.generation.unwrap_or(0),
        })
    }

    fn forget(&self, key: &Key) {
        self.lists.forget(key);
    }
}
