//! Agents: resolve → desired → apply → status.

pub mod desired;
pub mod resolve;
pub mod status;

use std::sync::Arc;

use super::children::apply;
use super::context::{Context, ReconcileError};
use super::runtime::{Next, Reconciler};
use crate::api::{Agent, Kind};
use crate::cluster::readiness::observe;
use crate::cluster::store::Key;

/// The reconciler of Agents.
pub struct Agents(pub Arc<Context>);

impl Reconciler for Agents {
    type Error = ReconcileError;
    const KIND: &'static str = "Agent";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, ReconcileError> {
        let context = &self.0;
        context.wait_ready().await;
        let Some((uid, agent)) = context.object(&context.stores.agents, &key) else {
            return Ok(Next::Forget);
        };

        let resolved =
            resolve::resolve(&agent, &context.stores, &context.children, &context.defaults);
        let children = desired::children(&agent, &resolved, &context.defaults);
        let child = Key::new(&key.namespace, desired::child_name(&key.name));
        let applied = apply(&context.writer, &context.children, &uid, &child, &children).await;

        let mut outcome = status::Outcome::default();
        let failure = match applied {
            Ok(applied) => {
                if let Some(deployment) = &applied.deployment {
                    outcome.observed = Some(observe(&deployment.value.object));
                    let pod = deployment
                        .value
                        .object
                        .spec
                        .as_ref()
                        .and_then(|s| s.template.spec.as_ref());
                    outcome.image =
                        pod.and_then(|p| p.containers.first()).and_then(|c| c.image.clone());
                }
                outcome.conflicts = applied.conflicts;
                None
            }
            Err(error) => {
                outcome.error = Some(error.to_string());
                Some(error)
            }
        };
        let status = status::status(&agent, &resolved, &outcome, &context.defaults, context.now());
        context
            .write_status::<Agent, _>(
                &context.stores.agents,
                &key,
                &uid,
                agent.status.as_ref(),
                &status,
            )
            .await?;
        if let Some(error) = failure {
            return Err(ReconcileError::Write(error));
        }
        if outcome.observed.is_some()
            && let Some(current) =
                children.config_map.get().and_then(|map| map.metadata.name.clone())
        {
            context.remove_stale_config(Kind::Agent, &key, &uid, &current).await?;
        }
        // A foreign object with a child's name is not watched: look again.
        Ok(if outcome.conflicts.is_empty() { Next::Settled } else { context.look_again() })
    }
}
