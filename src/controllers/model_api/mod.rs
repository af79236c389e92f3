//! ModelAPIs: a ModelAPI runs LiteLLM or Ollama, or names an address outside of the cluster.

pub mod desired;

use std::sync::Arc;

use jiff::Timestamp;

use super::children::Children;
use super::context::Context;
use super::defaults::Defaults;
use super::workload::Workload;
use super::workload::outcome::Applied;
use super::workload::serving::{Place, Serving, judge};
use crate::api::model_api::{ModelAPIStatus, ModelMode};
use crate::api::{Kind, ModelAPI};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::meta;
use crate::cluster::store::Store;

/// The kind ModelAPI.
pub struct ModelApis;

impl Workload for ModelApis {
    type Object = ModelAPI;
    type Resolved = Serving;
    type Status = ModelAPIStatus;
    const KIND: Kind = Kind::ModelAPI;

    fn store(stores: &Stores) -> &Arc<Store<Managed<ModelAPI>>> {
        &stores.model_apis
    }

    fn child_name(name: &str) -> String {
        desired::child_name(name)
    }

    /// A ModelAPI refers to nothing.
    fn resolve(api: &ModelAPI, _context: &Context) -> Serving {
        let place = match api.spec.mode {
            ModelMode::External => Place::Elsewhere,
            ModelMode::Proxy | ModelMode::Hosted => Place::Pods,
        };
        Serving { place, waiting_for_build: None }
    }

    fn desired(api: &ModelAPI, _serving: &Serving, defaults: &Defaults) -> Children {
        desired::children(api, defaults)
    }

    fn current_status(api: &ModelAPI) -> Option<&ModelAPIStatus> {
        api.status.as_ref()
    }

    fn status(
        api: &ModelAPI,
        serving: &Serving,
        applied: &Applied,
        defaults: &Defaults,
        now: Timestamp,
    ) -> ModelAPIStatus {
        let mut conditions = api.status.clone().unwrap_or_default().conditions;
        let generation = api.metadata.generation.unwrap_or(0);
        let (phase, message) = judge(&mut conditions, serving, applied, generation, now);
        ModelAPIStatus {
            observed_generation: Some(generation),
            phase: Some(phase),
            conditions,
            endpoint: desired::endpoint(api, defaults).filter(|_| serving.is_reached(applied)),
            models: desired::models(api),
            ready_replicas: applied.observed.as_ref().map(|observed| observed.ready),
            source: meta::source(&api.metadata),
            message: Some(message),
        }
    }
}
