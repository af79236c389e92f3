//! ModelAPIs: a ModelAPI runs LiteLLM or Ollama, or names an address outside of the cluster.

pub mod desired;

use std::sync::Arc;

use jiff::Timestamp;

use super::children::Children;
use super::context::Context;
use super::defaults::Defaults;
use super::discovery::reachable::REACHABLE;
use super::discovery::{Question, Told, Topic};
use super::workload::Workload;
use super::workload::outcome::Applied;
use super::workload::serving::{Place, Serving, judge};
use crate::api::model_api::{ModelAPIStatus, ModelMode};
use crate::api::{Kind, ModelAPI};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Key, Store};
use crate::cluster::{conditions, meta};

/// The kind ModelAPI.
pub struct ModelApis;

/// What is known of a ModelAPI before its children are applied. It refers to nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Where it is served.
    pub serving: Serving,
    /// What it said when it was last asked, if the status may not tell it yet.
    pub told: Option<Arc<Told>>,
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

    fn resolve(api: &ModelAPI, context: &Context) -> Resolved {
        let (key, generation) = (Key::of(&api.metadata), api.metadata.generation);
        let told = context.discovery.told(Kind::ModelAPI, &key, generation);
        let place = match api.spec.mode {
            ModelMode::External => Place::Elsewhere,
            ModelMode::Proxy | ModelMode::Hosted => Place::Pods,
        };
        Resolved { serving: Serving { place, waiting_for_build: None }, told }
    }

    fn desired(api: &ModelAPI, _resolved: &Resolved, defaults: &Defaults) -> Children {
        desired::children(api, defaults)
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
        let Resolved { serving, told } = resolved;
        let mut conditions = api.status.clone().unwrap_or_default().conditions;
        let generation = api.metadata.generation.unwrap_or(0);
        let (phase, message) = judge(&mut conditions, serving, applied, generation, now);
        let ready = applied.observed.as_ref().map(|observed| observed.ready);
        // Without a ready pod nobody answers. When one is ready again it is asked anew.
        let is_there = serving.place == Place::Elsewhere || ready.unwrap_or(0) > 0;
        if !is_there {
            conditions::remove(&mut conditions, REACHABLE);
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
}
