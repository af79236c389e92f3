//! (pure) What an agent is doing.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;

use super::desired::endpoint;
use super::resolve::Resolved;
use super::validate::Invalid;
use crate::api::agent::AgentStatus;
use crate::api::common::{LinkedResources, Phase};
use crate::api::{Agent, Kind};
use crate::cluster::readiness::Observed;
use crate::cluster::{conditions, meta};
use crate::controllers::children::Failure;
use crate::controllers::defaults::Defaults;
use crate::controllers::inputs::decide::Followed;
use crate::controllers::verdict::{of_pods, progressing};

/// What came of the writes.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Names that somebody else has.
    pub conflicts: Vec<String>,
    /// Names that are still those of an earlier owner's children.
    pub leftovers: Vec<String>,
    /// Why a write failed.
    pub failure: Option<Failure>,
    /// What is wrong with the spec: nothing was written.
    pub invalid: Option<Invalid>,
    /// The Deployment, if there is one.
    pub observed: Option<Observed>,
    /// The image that the Deployment names.
    pub image: Option<String>,
    /// Whether its Service is there, and its own.
    pub service: bool,
    /// Whether a loss of dependencies is so young that it is not told yet.
    pub young_loss: bool,
    /// What to tell of the ConfigMaps and Secrets that the pods read; `None` leaves it as it was.
    pub followed: Option<Followed>,
}

/// The new status.
#[must_use]
pub fn status(
    agent: &Agent,
    resolved: &Resolved,
    outcome: &Outcome,
    defaults: &Defaults,
    now: Timestamp,
) -> AgentStatus {
    let mut status = agent.status.clone().unwrap_or_default();
    let generation = agent.metadata.generation.unwrap_or(0);
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let exposed = agent.spec.agent_network.as_ref().is_none_or(|network| network.expose);
    let (phase, reason, message) = verdict(agent, resolved, outcome);

    let list = &mut status.conditions;
    let mut set = |type_: &str, good: bool, reason: &str, message: &str| {
        let state = if good { "True" } else { "False" };
        conditions::set(list, type_, state, reason, message, generation, now);
    };
    set("Ready", phase == Phase::Ready, reason, &message);
    let available = outcome.observed.as_ref().is_some_and(Observed::is_available);
    set(
        "Available",
        available,
        if available { "MinimumReplicasAvailable" } else { "ReplicasUnavailable" },
        "",
    );
    let (moving, reason) = progressing(outcome.observed.as_ref());
    set("Progressing", moving, reason, "");
    let waiting = resolved.waiting_for.join(", ");
    if !outcome.young_loss {
        set(
            "DependenciesReady",
            waiting.is_empty(),
            if waiting.is_empty() { "AllReady" } else { "NotReady" },
            &waiting,
        );
    }
    let missing: Vec<_> =
        resolved.peers.iter().filter(|(_, there)| !there).map(|(name, _)| name.as_str()).collect();
    let missing_text =
        if missing.is_empty() { String::new() } else { format!("missing: {}", missing.join(", ")) };
    set(
        "PeersResolved",
        missing.is_empty(),
        if missing.is_empty() { "AllFound" } else { "PeersMissing" },
        &missing_text,
    );
    let build = resolved.waiting_for_build.as_ref();
    let build_text =
        build.map(|build| format!("AgentBuild {build} has built no image yet")).unwrap_or_default();
    set(
        "ImageResolved",
        build.is_none(),
        if build.is_none() { "Resolved" } else { "WaitingForBuild" },
        &build_text,
    );
    // Only while something is wrong:
    match &resolved.model {
        Some(model) if !serves(&resolved.models, model) => {
            let (api, models) = (&agent.spec.model_api.name, resolved.models.join(", "));
            let text = format!("ModelAPI {api} serves {models}, not {model}");
            conditions::set(list, "ModelServed", "False", "UnknownModel", &text, generation, now);
        }
        _ => conditions::remove(list, "ModelServed"),
    }
    if outcome.conflicts.is_empty() {
        conditions::remove(list, "Conflict");
    } else {
        conditions::set(
            list,
            "Conflict",
            "True",
            "NameTaken",
            &outcome.conflicts.join("; "),
            generation,
            now,
        );
    }

    if let Some(followed) = &outcome.followed {
        followed.tell(list, generation, now);
    }

    let observed = outcome.observed.clone().unwrap_or_default();
    let there = outcome.observed.is_some();
    status.observed_generation = Some(generation);
    status.phase = Some(phase);
    status.message = Some(message);
    status.endpoint = (exposed && outcome.service).then(|| endpoint(name, namespace, defaults));
    status.model.clone_from(&resolved.model);
    status.image = outcome.image.clone().or_else(|| resolved.image.clone());
    status.replicas = Some(observed.replicas);
    status.ready_replicas = Some(observed.ready);
    status.updated_replicas = Some(observed.updated);
    status.unavailable_replicas = Some(if there { observed.unavailable } else { 0 });
    let selector = meta::selector(Kind::Agent, name);
    status.selector =
        Some(selector.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","));
    status.linked_resources = Some(LinkedResources {
        model_api: Some(agent.spec.model_api.name.clone()),
        mcp_servers: resolved.mcp_servers.iter().map(|(name, _)| name.clone()).collect(),
        peers: resolved
            .peers
            .iter()
            .filter(|(_, there)| *there)
            .map(|(name, _)| name.clone())
            .collect(),
        build: agent.spec.build_ref.as_ref().map(|build| build.name.clone()),
    });
    status.source = meta::source(&agent.metadata);
    status
}

/// Phase, reason and one sentence.
fn verdict(agent: &Agent, resolved: &Resolved, outcome: &Outcome) -> (Phase, &'static str, String) {
    if let Some(invalid) = &outcome.invalid {
        return (Phase::Failed, "InvalidSpec", invalid.to_string());
    }
    if !outcome.conflicts.is_empty() {
        return (Phase::Failed, "Conflict", outcome.conflicts.join("; "));
    }
    if !outcome.leftovers.is_empty() {
        return (Phase::Pending, "Replacing", outcome.leftovers.join("; "));
    }
    if let Some(Failure { message, lasting }) = &outcome.failure {
        let phase = if *lasting { Phase::Failed } else { Phase::Pending };
        return (phase, "ApplyFailed", message.clone());
    }
    if agent.spec.suspend {
        return (Phase::Stopped, "Suspended", "Suspended".into());
    }
    let Some(observed) = &outcome.observed else {
        if let Some(build) = &resolved.waiting_for_build {
            return (Phase::Waiting, "WaitingForBuild", format!("Waiting for AgentBuild {build}"));
        }
        if let Some(why) = outcome.followed.as_ref().and_then(Followed::held) {
            return (Phase::Waiting, "WaitingForInputs", why.to_owned());
        }
        return (
            Phase::Waiting,
            "WaitingForDependencies",
            format!("Waiting for {}", resolved.waiting_for.join(", ")),
        );
    };
    of_pods(observed)
}

/// Whether a model is among those that are served: exactly, `*`, or by a prefix (`provider/*`). None named: nobody knows.
fn serves(models: &[String], model: &str) -> bool {
    models.is_empty()
        || models.iter().any(|served| {
            served == model
                || served.strip_suffix('*').is_some_and(|prefix| model.starts_with(prefix))
        })
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
