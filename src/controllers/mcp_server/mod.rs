//! MCPServers: resolve (the build's image) → desired → apply → status.

pub mod desired;
mod package;
pub mod status;

use std::sync::Arc;

use super::children::{Failure, apply, live_deployment};
use super::context::{Context, ReconcileError};
use super::runtime::{Next, Reconciler};
use super::serving::Outcome;
use crate::api::{Kind, MCPServer};
use crate::cluster::store::Key;
use k8s_openapi::api::apps::v1::Deployment;

/// The reconciler of MCPServers.
pub struct McpServers(pub Arc<Context>);

impl Reconciler for McpServers {
    type Error = ReconcileError;
    const KIND: &'static str = "MCPServer";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, ReconcileError> {
        let context = &self.0;
        context.wait_ready().await;
        let Some((uid, server)) = context.object(&context.stores.mcp_servers, &key) else {
            context.inputs.forget(Kind::MCPServer, &key);
            return Ok(Next::Forget);
        };

        let build = server.spec.build_ref.as_ref().map(|build| build.name.clone());
        let built = build.as_ref().and_then(|build| {
            let entry = context.stores.agent_builds.get(&Key::new(&key.namespace, build))?;
            entry.value.object()?.status.clone()?.built_image
        });
        let waiting = build.filter(|_| built.is_none());
        let child = Key::new(&key.namespace, desired::child_name(&key.name));
        // A build that has lost its image does not stop what runs.
        let built = built.or_else(|| {
            let live = live_deployment(&context.children, &uid, &child)?;
            desired::running_image(&live)
        });
        let image = desired::image(&server, built.as_deref(), &context.defaults);
        let mut children = desired::children(&server, image.as_deref(), &context.defaults);
        let mut outcome = Outcome {
            elsewhere: server.spec.remote.is_some(),
            waiting_for_build: waiting,
            ..Outcome::default()
        };
        let live = live_deployment(&context.children, &uid, &child);
        outcome.followed =
            Some(context.inputs.follow(Kind::MCPServer, &key, live.as_ref(), &mut children).await);
        let observe = |live: &Deployment| context.observe(Kind::MCPServer, &key, live);
        let failure = match apply(&context.writer, &context.children, &uid, &child, &children).await
        {
            Ok(applied) => {
                context.events.rollout::<MCPServer>(&key, &uid, &child, applied.wrote);
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

        let status = status::status(&server, image, &outcome, &context.defaults, context.now());
        context
            .write_status(&context.stores.mcp_servers, &key, &uid, server.status.as_ref(), &status)
            .await?;
        match failure {
            Some(error) => Err(ReconcileError::Write(error)),
            None if outcome.conflicts.is_empty() && outcome.leftovers.is_empty() => {
                Ok(Next::Settled)
            }
            None => Ok(context.look_again()),
        }
    }
}
