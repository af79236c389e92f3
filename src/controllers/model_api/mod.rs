//! ModelAPIs: desired → apply → status. They refer to nothing that has to be resolved.

pub mod desired;

use std::sync::Arc;

use super::children::{Failure, apply, live_deployment};
use super::context::{Context, ReconcileError};
use super::runtime::{Next, Reconciler};
use super::serving::{Outcome, judge};
use crate::api::model_api::{ModelAPIStatus, ModelMode};
use crate::api::{Kind, ModelAPI};
use crate::cluster::meta;
use crate::cluster::store::Key;
use k8s_openapi::api::apps::v1::Deployment;

/// The reconciler of ModelAPIs.
pub struct ModelApis(pub Arc<Context>);

impl Reconciler for ModelApis {
    type Error = ReconcileError;
    const KIND: &'static str = "ModelAPI";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, ReconcileError> {
        let context = &self.0;
        context.wait_ready().await;
        let Some((uid, api)) = context.object(&context.stores.model_apis, &key) else {
            context.inputs.forget(Kind::ModelAPI, &key);
            return Ok(Next::Forget);
        };

        let mut children = desired::children(&api, &context.defaults);
        let child = Key::new(&key.namespace, desired::child_name(&key.name));
        let mut outcome =
            Outcome { elsewhere: api.spec.mode == ModelMode::External, ..Outcome::default() };
        let live = live_deployment(&context.children, &uid, &child);
        outcome.followed =
            Some(context.inputs.follow(Kind::ModelAPI, &key, live.as_ref(), &mut children).await);
        let observe = |live: &Deployment| context.observe(Kind::ModelAPI, &key, live);
        let failure = match apply(&context.writer, &context.children, &uid, &child, &children).await
        {
            Ok(applied) => {
                context.events.rollout::<ModelAPI>(&key, &uid, &child, applied.wrote);
                outcome.observed = applied.deployment.as_ref().map(observe);
                outcome.conflicts = applied.conflicts;
                outcome.leftovers = applied.leftovers;
                None
            }
            Err(error) => {
                outcome.failure = Some(Failure::from(&error));
                let live = live_deployment(&context.children, &uid, &child);
                outcome.observed = live.as_ref().map(observe);
                Some(error)
            }
        };
        outcome.service = context.children.has_service(&uid, &child);

        let mut status = api.status.clone().unwrap_or_default();
        let generation = api.metadata.generation.unwrap_or(0);
        let (phase, message) = judge(&mut status.conditions, &outcome, generation, context.now());
        let status = ModelAPIStatus {
            observed_generation: Some(generation),
            phase: Some(phase),
            conditions: status.conditions,
            endpoint: desired::endpoint(&api, &context.defaults).filter(|_| outcome.is_reached()),
            models: desired::models(&api),
            ready_replicas: outcome.observed.as_ref().map(|o| o.ready),
            source: meta::source(&api.metadata),
            message: Some(message),
        };
        context
            .write_status(&context.stores.model_apis, &key, &uid, api.status.as_ref(), &status)
            .await?;
        if let Some(error) = failure {
            return Err(ReconcileError::Write(error));
        }
        // A foreign object with a child's name is not watched: look again.
        if !(outcome.conflicts.is_empty() && outcome.leftovers.is_empty()) {
            return Ok(context.look_again());
        }
        let observed = outcome.observed.as_ref();
        context.remove_stale_config(Kind::ModelAPI, &key, &uid, &children, observed).await?;
        Ok(Next::Settled)
    }
}
