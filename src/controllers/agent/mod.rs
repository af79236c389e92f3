//! Agents: resolve → validate → desired → apply → status.

pub mod desired;
pub mod resolve;
pub mod status;
pub mod validate;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::resolve::Resolved;
use super::children::{Children, Failure, apply, live_deployment};
use super::context::{Context, ReconcileError};
use super::debounce::Debounce;
use super::runtime::{Next, Reconciler, jitter};
use super::workload::image_of;
use crate::api::{Agent, Kind};
use crate::cluster::conditions;
use crate::cluster::store::Key;

/// How often it is asked whether it is known by now what is wanted. No event tells: a peer that a commit does not want is none of
/// its news, and a GitSync may be suspended or deleted before it is read.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The reconciler of Agents.
pub struct Agents {
    context: Arc<Context>,
    /// Dependencies that were lost a moment ago.
    losses: Debounce,
    /// Peers that came or went a moment ago.
    peers: Debounce,
    /// Dependencies that came a moment ago, and have no address yet.
    addresses: Debounce,
}

impl Agents {
    /// A reconciler with these means.
    #[must_use]
    pub fn new(context: Arc<Context>) -> Self {
        let (losses, peers, addresses) = Default::default();
        Self { context, losses, peers, addresses }
    }

    /// Goes on as before for a moment after a loss of dependencies, and after a change of peers: several that come
    /// together replace the pods once. A spec that has just changed does that anyway. First pods wait for a moment until
    /// they can be told where their dependencies are: else they would be replaced at once. Gives the time to look again,
    /// also for peers that are wired only until it is known what is wanted.
    fn debounce(
        &self,
        key: &Key,
        agent: &Agent,
        resolved: &mut Resolved,
        outcome: &mut status::Outcome,
    ) -> Option<Duration> {
        let now = Instant::now();
        let known =
            agent.status.as_ref().filter(|s| s.observed_generation == agent.metadata.generation);
        let was_ready =
            known.is_some_and(|s| conditions::is_true(&s.conditions, "DependenciesReady"));
        let lost = resolved.deployment_exists && was_ready && !resolved.waiting_for.is_empty();
        let loss = self.losses.hold(key, lost, now);
        outcome.young_loss = loss.is_some();

        let before = resolved.wired_now.take().filter(|_| known.is_some());
        let changed = before.filter(|before| *before != resolved.wired);
        let change = self.peers.hold(key, changed.is_some(), now);
        if let (Some(before), Some(_)) = (changed, change) {
            resolved.wired = before;
        }

        let early = resolved.undecided && !resolved.deployment_exists;
        let wait = self.addresses.hold(key, early, now);
        resolved.undecided = wait.is_some();
        let ask = resolved.presumed.then(|| jitter(ASK_AGAIN));
        loss.into_iter().chain(change).chain(wait).chain(ask).min()
    }
}

impl Reconciler for Agents {
    type Error = ReconcileError;
    const KIND: &'static str = "Agent";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, ReconcileError> {
        let context = &self.context;
        context.wait_ready().await;
        let Some((uid, agent)) = context.object(&context.stores.agents, &key) else {
            context.inputs.forget(Kind::Agent, &key);
            for pending in [&self.losses, &self.peers, &self.addresses] {
                pending.hold(&key, false, Instant::now());
            }
            return Ok(Next::Forget);
        };

        let mut resolved = resolve::resolve(
            &agent,
            &context.stores,
            &context.children,
            &context.wanted,
            &context.defaults,
        );
        let mut outcome = status::Outcome::default();
        let again = self.debounce(&key, &agent, &mut resolved, &mut outcome);
        let mut children = match validate::validate(&agent) {
            Ok(()) => desired::children(&agent, &resolved, &context.defaults),
            Err(invalid) => {
                outcome.invalid = Some(invalid);
                Children::kept()
            }
        };
        let child = Key::new(&key.namespace, desired::child_name(&key.name));
        let live = live_deployment(&context.children, &uid, &child);
        outcome.followed =
            Some(context.inputs.follow(Kind::Agent, &key, live.as_ref(), &mut children).await);
        let applied = apply(&context.writer, &context.children, &uid, &child, &children).await;

        let (deployment, failure) = match applied {
            Ok(applied) => {
                context.events.rollout::<Agent>(&key, &uid, &child, applied.wrote);
                outcome.conflicts = applied.conflicts;
                outcome.leftovers = applied.leftovers;
                (applied.deployment, None)
            }
            Err(error) => {
                outcome.failure = Some(Failure::from(&error));
                (live_deployment(&context.children, &uid, &child), Some(error))
            }
        };
        outcome.service = context.children.has_service(&uid, &child);
        if let Some(deployment) = &deployment {
            outcome.observed = Some(context.observe(Kind::Agent, &key, deployment));
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
        if !(outcome.conflicts.is_empty() && outcome.leftovers.is_empty()) {
            return Ok(context.look_again());
        }
        let observed = outcome.observed.as_ref();
        context.remove_stale_config(Kind::Agent, &key, &uid, &children, observed).await?;
        Ok(again.map_or(Next::Settled, Next::After))
    }
}
