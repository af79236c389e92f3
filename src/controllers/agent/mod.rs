//! Agents: resolve → validate → desired → apply → status.

pub mod desired;
pub mod resolve;
pub mod status;
pub mod validate;

use std::sync::Arc;

use super::children::{Children, Failure, apply, live_deployment};
use super::context::{Context, ReconcileError};
use super::runtime::{Next, Reconciler};
use super::workload::image_of;
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
            context.inputs.forget(Kind::Agent, &key);
            return Ok(Next::Forget);
        };

        let resolved =
            resolve::resolve(&agent, &context.stores, &context.children, &context.defaults);
        let mut outcome = status::Outcome::default();
        let mut children = match validate::validate(&agent) {
            Ok(()) => desired::children(&agent, &resolved, &context.defaults),
            Err(invalid) => {
                outcome.invalid = Some(invalid);
                Children::kept()
            }
        };
        let child = Key::new(&key.namespace, desired::child_name(&key.name));
        let live = live_deployment(&context.children, &uid, &child);
        let live = live.as_ref().map(|live| live.value.object.as_ref());
        outcome.followed =
            Some(context.inputs.follow(Kind::Agent, &key, live, &mut children).await);
        let applied = apply(&context.writer, &context.children, &uid, &child, &children).await;

        let (deployment, failure) = match applied {
            Ok(applied) => {
                outcome.conflicts = applied.conflicts;
                (applied.deployment, None)
            }
            Err(error) => {
                outcome.failure = Some(Failure::from(&error));
                (live_deployment(&context.children, &uid, &child), Some(error))
            }
        };
        if let Some(deployment) = &deployment {
            let deployment = &deployment.value.object;
            outcome.observed = Some(observe(deployment));
            outcome.image = image_of(deployment);
        }
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
        // A foreign object with a child's name is not watched: look again.
        if !outcome.conflicts.is_empty() {
            return Ok(context.look_again());
        }
        let observed = outcome.observed.as_ref();
        context.remove_stale_config(Kind::Agent, &key, &uid, &children, observed).await?;
        Ok(Next::Settled)
    }
}
