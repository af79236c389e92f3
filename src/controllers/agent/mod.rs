//! Agents: an Agent runs pods that are told where its model, its tool servers and its peers are.

mod config;
pub mod desired;
mod environment;
#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
mod model_key;
pub mod resolve;
pub mod status;
pub mod validate;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use self::model_key::{Issued, ModelKey};
use self::resolve::{Dependencies, Resolved};
use super::children::Children;
use super::context::Context;
use super::debounce::Debounce;
use super::defaults::Defaults;
use super::discovery::{Question, Topic};
use super::names;
use super::workload::outcome::Applied;
use super::workload::rollout::Newest;
use super::workload::validate::Invalid;
use super::workload::{Debounced, Workload};
use crate::api::agent::AgentStatus;
use crate::api::rollout::RolloutStatus;
use crate::api::{Agent, Kind};
use crate::cluster::conditions;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Key, Store};
use crate::runtime::queue::Queue;
use crate::runtime::worker::jitter;

/// How often an Agent with a presumed peer is reconciled again. No event tells when it is known what is wanted: a peer that a
/// commit does not want is no news, and a GitSync may be suspended or deleted before it is read.
const PRESUMED_PEER_RECHECK: Duration = Duration::from_secs(5);

/// The kind Agent, and the changes that are held back for a moment.
#[derive(Default)]
pub struct Agents {
    /// Dependencies that were lost a moment ago.
    losses: Debounce,
    /// Peers that came or went a moment ago.
    peers: Debounce,
    /// Dependencies that came a moment ago, and have no address yet.
    addresses: Debounce,
    /// Keys that were issued a moment ago.
    issued: Issued,
}

impl Workload for Agents {
    type Object = Agent;
    type Resolved = Resolved;
    type Status = AgentStatus;
    const KIND: Kind = Kind::Agent;

    fn store(stores: &Stores) -> &Arc<Store<Managed<Agent>>> {
        &stores.agents
    }

    fn child_name(name: &str) -> String {
        desired::child_name(name)
    }

    fn secret_name(name: &str) -> Option<String> {
        Some(names::agent_secret(name))
    }

    fn listen(context: &Context, queue: &Arc<Queue>) {
        wake::listen(context, queue);
    }

    fn resolve(agent: &Agent, context: &Context) -> Resolved {
        let Context { stores, children, wanted, defaults, discovery, .. } = context;
        let told =
            discovery.told(Kind::Agent, &Key::of(&agent.metadata), agent.metadata.generation);
        let (model_key, keys_before) = ModelKey::of(agent, context);
        Resolved {
            told,
            model_key,
            keys_before,
            ..resolve::resolve(agent, stores, children, wanted, defaults)
        }
    }

    /// After a loss of dependencies, and after a change of peers, the agent goes on as before for a moment: changes that come
    /// together replace its pods once. A spec that has just changed replaces them anyway. The first pods wait for a moment until
    /// they can be told the addresses of their dependencies: otherwise they would be replaced at once.
    fn debounce(&self, key: &Key, agent: &Agent, mut resolved: Resolved) -> Debounced<Resolved> {
        let now = Instant::now();
        let known =
            agent.status.as_ref().filter(|s| s.observed_generation == agent.metadata.generation);
        let was_ready =
            known.is_some_and(|s| conditions::is_true(&s.conditions, "DependenciesReady"));
        let lost = resolved.deployment_exists && was_ready && !resolved.waiting_for.is_empty();
        let loss = self.losses.hold(key, lost, now);
        resolved.dependencies =
            if loss.is_some() { Dependencies::JustLost } else { Dependencies::Settled };

        let before = resolved.wired_now.take().filter(|_| known.is_some());
        let changed = before.filter(|before| *before != resolved.wired);
        let change = self.peers.hold(key, changed.is_some(), now);
        if let (Some(before), Some(_)) = (changed, change) {
            resolved.wired = before;
        }

        let uid = agent.metadata.uid.as_deref().unwrap_or_default();
        self.issued.settle(key, uid, &mut resolved.model_key, Timestamp::now().as_second());

        let early = resolved.undecided && !resolved.deployment_exists;
        let wait = self.addresses.hold(key, early, now);
        resolved.undecided = wait.is_some();
        let recheck = resolved.presumed.then(|| jitter(PRESUMED_PEER_RECHECK));
        let look_again = loss.into_iter().chain(change).chain(wait).chain(recheck).min();
        Debounced { resolved, look_again }
    }

    fn renew_keys(&self, agent: &Agent, resolved: &Resolved) {
        let uid = agent.metadata.uid.as_deref().unwrap_or_default();
        let now = Timestamp::now().as_second();
        self.issued.renew(&Key::of(&agent.metadata), uid, &resolved.model_key, now);
    }

    fn validate(agent: &Agent) -> Result<(), Invalid> {
        validate::validate(agent)
    }

    fn desired(agent: &Agent, resolved: &Resolved, defaults: &Defaults) -> Children {
        desired::children(agent, resolved, defaults)
    }

    fn newest(agent: &Agent, resolved: &Resolved) -> Option<Newest> {
        let (spec, image) = (&agent.spec, resolved.image.as_deref());
        let deadline = spec.progress_deadline.as_deref();
        spec.build_ref.as_ref()?;
        Some(Newest::of(&agent.metadata, spec, image, deadline))
    }

    fn rollout(agent: &Agent) -> Option<&RolloutStatus> {
        agent.status.as_ref()?.rollout.as_ref()
    }

    fn current_status(agent: &Agent) -> Option<&AgentStatus> {
        agent.status.as_ref()
    }

    fn status(
        agent: &Agent,
        resolved: &Resolved,
        applied: &Applied,
        defaults: &Defaults,
        now: Timestamp,
    ) -> AgentStatus {
        status::status(agent, resolved, applied, defaults, now)
    }

    fn question(agent: &Agent, children: &Children, defaults: &Defaults) -> Option<Question> {
        let key = Key::of(&agent.metadata);
        Some(Question {
            topic: Topic::Card(children.config_map.get().and_then(config::version)),
            url: desired::endpoint(&key.name, &key.namespace, defaults),
            deployment: Some(desired::child_name(&key.name)),
            generation: agent.metadata.generation.unwrap_or(0),
        })
    }

    fn forget(&self, key: &Key) {
        for pending in [&self.losses, &self.peers, &self.addresses] {
            pending.hold(key, false, Instant::now());
        }
        self.issued.forget(key);
    }
}
