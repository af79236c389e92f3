//! The one reconcile of all kinds that run pods.

use std::sync::Arc;
use std::time::Duration;

use super::apply::{Decided, apply};
use super::go_back::Rollouts;
use super::keys::bring_keys;
use super::outcome::{Outcome, WriteFailure};
use super::{Debounced, Workload, retention};
use crate::cluster::client::CallError;
use crate::cluster::live::Managed;
use crate::cluster::status::Target;
use crate::cluster::store::{Key, Store};
use crate::controllers::children::{Children, Owner};
use crate::controllers::context::Context;
use crate::controllers::status;
use crate::runtime::worker::{Next, Reconciler};

/// When a revision that has failed is gone back from. Not at once: an API server that does not keep it in the status, because its CRDs
/// are older, is asked no more often than this.
const GO_BACK_AFTER: Duration = Duration::from_secs(1);

/// Why a reconcile has to be tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A child could not be written.
    #[error("cannot write a child: {0}")]
    Write(#[source] WriteFailure),
    /// A ReplicaSet could not be read.
    #[error("cannot read a ReplicaSet: {0}")]
    Read(#[source] CallError),
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
}

/// The reconciler of one kind.
pub struct Controller<W> {
    /// What all kinds share.
    pub context: Arc<Context>,
    /// The kind.
    pub workload: W,
}

impl<W: Workload> Reconciler for Controller<W> {
    type Error = ReconcileError;
    const KIND: &'static str = W::KIND.as_str();

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, ReconcileError> {
        let Self { context, workload } = &*self;
        context.wait_ready().await;
        let store: &Store<Managed<W::Object>> = W::store(&context.stores);
        let Some((uid, object)) = context.object(store, &key) else {
            context.inputs.forget(W::KIND, &key);
            context.discovery.forget(W::KIND, &key);
            if let Some(secret) = W::secret_name(&key.name) {
                context.writer.forget_secret(&Key::new(&key.namespace, secret));
            }
            workload.forget(&key);
            return Ok(Next::Forget);
        };
        let child = Key::new(&key.namespace, W::child_name(&key.name));
        let owner = Owner { kind: W::KIND, key: &key, uid: &uid, child };

        // Resolve.
        let resolved = W::resolve(&object, context);
        let Debounced { resolved, look_again } = workload.debounce(&key, &object, resolved);

        // Validate.
        let validated = W::validate(&object);

        // Desired.
        let mut children = if validated.is_ok() {
            W::desired(&object, &resolved, &context.defaults)
        } else {
            Children::kept()
        };
        let newest = W::newest(&object, &resolved);
        let mut rollouts = Rollouts::of(context, &owner, newest, W::rollout(&object));
        rollouts.go_back(&mut children).await.map_err(ReconcileError::Read)?;

        // Inputs.
        let live = owner.live_deployment(&context.children);
        let own_map = children.config_map.get().and_then(|map| map.metadata.name.as_deref());
        let own_map = own_map.or_else(|| rollouts.kept()).map(str::to_owned);
        let follow =
            context.inputs.follow(W::KIND, &key, live.as_ref(), &mut children, own_map.as_deref());
        let inputs = follow.await;

        // Keys.
        let keyed = bring_keys(context, &owner, live.as_ref(), &mut children, inputs).await;
        if keyed.differ {
            tracing::warn!(kind = W::KIND.as_str(), %key, "its key was changed by somebody else: another one is issued");
            workload.renew_keys(&object, &resolved);
            return Ok(Next::After(Duration::ZERO));
        }

        // Apply.
        let decided = Decided { children: &children, live: live.as_ref(), validated, keyed };
        let Some(mut applied) = apply::<W>(context, &owner, decided).await else {
            return Ok(Next::After(Duration::ZERO));
        };
        let has_failed =
            rollouts.note(&children, &mut applied).await.map_err(ReconcileError::Read)?;

        // Status.
        let old = W::current_status(&object);
        let new = W::status(&object, &resolved, &applied, &context.defaults, context.now());
        let target = Target { client: &context.client, store, key: &key, uid: &uid };
        status::write::<W::Object, _>(&context.events, &target, old, &new)
            .await
            .map_err(ReconcileError::Status)?;
        if has_failed {
            return Ok(Next::After(GO_BACK_AFTER));
        }
        // While this spec is not rolled out, what pods say is about an earlier one.
        if applied.is_as_wanted() {
            let question = W::question(&object, &children, &context.defaults);
            context.discovery.follow(W::KIND, &key, &uid, question);
        }

        // Retain.
        match applied.outcome {
            Outcome::Failed(failure) => Err(ReconcileError::Write(failure)),
            // Another object with the name of a child is not watched.
            Outcome::NamesTaken(_) => Ok(context.look_again()),
            Outcome::Done | Outcome::Invalid(_) => {
                let observed = applied.observed.as_ref();
                retention::remove_unneeded(context, &owner, &children, observed, rollouts.kept())
                    .await
                    .map_err(|error| ReconcileError::Write(error.into()))?;
                if let Some(secret) = W::secret_name(&key.name) {
                    retention::remove_keys(context, &owner, &children, observed, secret)
                        .await
                        .map_err(|error| ReconcileError::Write(error.into()))?;
                }
                let unwatched = applied.inputs.lacks_keys().then(|| context.unwatched_recheck());
                let after = look_again.into_iter().chain(unwatched).min();
                Ok(after.map_or(Next::Settled, Next::After))
            }
        }
    }
}
