//! MCPServers: resolve (the build's image) → desired → apply → status.

pub mod desired;

use std::sync::Arc;

use super::children::apply;
use super::context::{Context, ReconcileError};
use super::runtime::{Next, Reconciler};
use super::serving::{Outcome, judge};
use crate::api::mcp_server::MCPServerStatus;
use crate::cluster::meta;
use crate::cluster::readiness::observe;
use crate::cluster::store::Key;

/// The reconciler of MCPServers.
pub struct McpServers(pub Arc<Context>);

impl Reconciler for McpServers {
    type Error = ReconcileError;
    const KIND: &'static str = "MCPServer";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, ReconcileError> {
        let context = &self.0;
        context.wait_ready().await;
        let Some((uid, server)) = context.object(&context.stores.mcp_servers, &key) else {
            return Ok(Next::Forget);
        };

        let build = server.spec.build_ref.as_ref().map(|build| build.name.clone());
        let built = build.as_ref().and_then(|build| {
            let entry = context.stores.agent_builds.get(&Key::new(&key.namespace, build))?;
            entry.value.object()?.status.clone()?.built_image
        });
        let waiting = build.filter(|_| built.is_none());
        let image = desired::image(&server, built.as_deref(), &context.defaults);
        let children = desired::children(&server, image.as_deref(), &context.defaults);
        let child = Key::new(&key.namespace, desired::child_name(&key.name));
        let mut outcome = Outcome {
            elsewhere: server.spec.remote.is_some(),
            waiting_for_build: waiting,
            ..Outcome::default()
        };
        let failure = match apply(&context.writer, &context.children, &uid, &child, &children).await
        {
            Ok(applied) => {
                outcome.observed =
                    applied.deployment.as_ref().map(|entry| observe(&entry.value.object));
                outcome.conflicts = applied.conflicts;
                None
            }
            Err(error) => {
                outcome.error = Some(error.to_string());
                Some(error)
            }
        };

        let mut conditions = server.status.clone().unwrap_or_default().conditions;
        let generation = server.metadata.generation.unwrap_or(0);
        let (phase, message) = judge(&mut conditions, &outcome, generation, context.now());
        let status = MCPServerStatus {
            observed_generation: Some(generation),
            phase: Some(phase),
            conditions,
            endpoint: Some(desired::endpoint(&server, &context.defaults)),
            image,
            ready_replicas: outcome.observed.as_ref().map(|o| o.ready),
            source: meta::source(&server.metadata),
            message: Some(message),
        };
        context
            .write_status(&context.stores.mcp_servers, &key, &uid, server.status.as_ref(), &status)
            .await?;
        match failure {
            Some(error) => Err(ReconcileError::Write(error)),
            None if outcome.conflicts.is_empty() => Ok(Next::Settled),
            None => Ok(context.look_again()),
        }
    }
}
