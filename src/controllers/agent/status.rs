//! (pure) Step "status" of an Agent.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::config::reload;
use super::desired::{endpoint, separate_memories};
use super::resolve::{Dependencies, Resolved};
use crate::api::agent::{AgentStatus, Reload};
use crate::api::common::{LinkedResources, Phase};
use crate::api::{Agent, Kind};
use crate::cluster::{conditions, meta};
use crate::controllers::defaults::Defaults;
use crate::controllers::discovery::card::CARD_READ;
use crate::controllers::discovery::failure::nobody_confirms;
use crate::controllers::discovery::tools::some_of;
use crate::controllers::reason::Reason;
use crate::controllers::workload::built_image::{unresolved, waiting};
use crate::controllers::workload::outcome::Applied;
use crate::controllers::workload::pod_health::pod_phase;

/// The new status.
#[must_use]
pub fn status(
    agent: &Agent,
    resolved: &Resolved,
    applied: &Applied,
    defaults: &Defaults,
    now: Timestamp,
) -> AgentStatus {
    let mut status = agent.status.clone().unwrap_or_default();
    let generation = agent.metadata.generation.unwrap_or(0);
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let exposed = agent.spec.agent_network.as_ref().is_none_or(|network| network.expose);
    let (phase, reason, message) = decide_phase(agent, resolved, applied);

    let list = &mut status.conditions;
    let ready = if phase == Phase::Ready { "True" } else { "False" };
    conditions::Observed { generation, now }.set(list, "Ready", ready, reason, &message);
    let held = resolved.held_for_build().map(|_| Reason::WaitingForBuild);
    applied.tell_pods(list, conditions::Observed { generation, now }, held);
    tell_references(list, agent, resolved, now);
    tell_sessions(list, agent, now);
    tell_tools(list, agent, resolved, now);
    applied.tell_problems(list, generation, now);

    let observed = applied.observed.clone().unwrap_or_default();
    let there = applied.observed.is_some();
    status.observed_generation = Some(generation);
    status.phase = Some(phase);
    status.message = Some(match phase {
        Phase::Ready => with_remark(message, list),
        _ => message,
    });
    status.endpoint = (exposed && applied.has_service).then(|| endpoint(name, namespace, defaults));
    status.model.clone_from(&resolved.model);
    status.image = applied.image.clone().or_else(|| resolved.image.clone());
    status.replicas = Some(observed.replicas);
    status.ready_replicas = Some(observed.ready);
    status.updated_replicas = Some(observed.updated);
    status.unavailable_replicas = Some(if there { observed.unavailable } else { 0 });
    let selector = meta::selector(Kind::Agent, name);
    status.selector =
        Some(selector.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","));
    let peers = resolved.peers.iter().filter(|(_, there)| *there);
    status.linked_resources = Some(LinkedResources {
        model_api: Some(agent.spec.model_api.name.clone()),
        mcp_servers: resolved.mcp_servers.iter().map(|server| server.name.clone()).collect(),
        peers: peers.map(|(name, _)| name.clone()).collect(),
        build: agent.spec.build_ref.as_ref().map(|build| build.name.clone()),
    });
    status.rollout.clone_from(&applied.rollout);
    status.source = meta::source(&agent.metadata);
    match &resolved.told {
        // When a pod is ready again it is asked anew.
        _ if observed.ready == 0 => {
            let at = conditions::Observed { generation, now };
            nobody_confirms(&mut status.conditions, CARD_READ, at);
        }
        Some(told) => told.tell_card(&mut status, now),
        None => {}
    }
    tell_image(&mut status, agent, resolved, defaults, now);
    status
}

/// The sentence about a ready agent, with what keeps it from answering all the same.
fn with_remark(message: String, list: &[Condition]) -> String {
    let of = |type_: &&str| list.iter().find(|c| c.type_ == **type_ && c.status == "False");
    let hindrances = ["ModelReachable", "ModelServed", "ToolsAvailable", "DependenciesReady"];
    match hindrances.iter().find_map(of) {
        Some(condition) if condition.type_ == "DependenciesReady" => {
            format!("{message}; not ready: {}", condition.message)
        }
        Some(condition) => format!("{message}; {}", condition.message),
        None => message,
    }
}

/// Sets the conditions about what an agent refers to: `DependenciesReady`, `PeersResolved`, `ImageResolved`, `ModelServed` and
/// `ModelReachable`.
fn tell_references(list: &mut Vec<Condition>, agent: &Agent, resolved: &Resolved, now: Timestamp) {
    let generation = agent.metadata.generation.unwrap_or(0);
    // The reasons are those of `True` and of `False`. No message means that nothing is wrong.
    let mut set = |type_: &str, [good, bad]: [&str; 2], message: &str| {
        let (state, reason) = if message.is_empty() { ("True", good) } else { ("False", bad) };
        conditions::Observed { generation, now }.set(list, type_, state, reason, message);
    };
    if resolved.dependencies == Dependencies::Settled {
        let waiting = resolved.waiting_for.join(", ");
        set("DependenciesReady", ["AllReady", "NotReady"], &waiting);
    }
    let missing = resolved.peers.iter().filter(|(_, there)| !there);
    let missing: Vec<_> = missing.map(|(name, _)| name.as_str()).collect();
    let missing =
        if missing.is_empty() { String::new() } else { format!("missing: {}", missing.join(", ")) };
    set("PeersResolved", ["AllFound", "PeersMissing"], &missing);
    let build = resolved.waiting_for_build.as_ref();
    let missing = resolved.missing_build.as_deref();
    let build = build.map(|build| unresolved(build, missing));
    let reasons =
        ["Resolved", missing.map_or(Reason::WaitingForBuild.as_str(), |_| "BuildMissing")];
    set("ImageResolved", reasons, &build.unwrap_or_default());
    // These are there only while something is wrong.
    let at = conditions::Observed { generation, now };
    match &resolved.unreachable {
        Some((reason, why)) => {
            let text = format!("ModelAPI {}: {why}", agent.spec.model_api.name);
            at.set(list, "ModelReachable", "False", reason, &text);
        }
        None => conditions::remove(list, "ModelReachable"),
    }
    match &resolved.model {
        Some(model) if !serves(&resolved.models, model) => {
            let (api, models) = (&agent.spec.model_api.name, resolved.models.join(", "));
            let text = format!("ModelAPI {api} serves {models}, not {model}");
            at.set(list, "ModelServed", "False", "UnknownModel", &text);
        }
        _ => conditions::remove(list, "ModelServed"),
    }
}

/// Sets the condition `SessionsShared`, which is there only while several pods remember apart.
fn tell_sessions(list: &mut Vec<Condition>, agent: &Agent, now: Timestamp) {
    let generation = agent.metadata.generation.unwrap_or(0);
    let Some(pods) = separate_memories(agent) else {
        return conditions::remove(list, "SessionsShared");
    };
    let text = format!(
        "each of {pods} pods remembers only what it was asked itself; its Service leads each client to the same pod while that pod is ready. To share sessions, set config.memory.type to Redis; to keep none, set config.memory.enabled to false"
    );
    conditions::Observed { generation, now }.set(
        list,
        "SessionsShared",
        "False",
        "LocalMemory",
        &text,
    );
}

/// Sets the condition `ToolsAvailable`, which is there only while a server does not list its tools, or does not have those that the
/// agent names.
fn tell_tools(list: &mut Vec<Condition>, agent: &Agent, resolved: &Resolved, now: Timestamp) {
    let generation = agent.metadata.generation.unwrap_or(0);
    let not_listed = resolved.not_listed.iter();
    let not_listed = not_listed
        .map(|(server, why)| format!("MCPServer {server} does not list its tools ({why})"));
    let missing = resolved.missing_tools.iter();
    let missing = missing
        .map(|(server, tools)| format!("MCPServer {server} does not have {}", some_of(tools)));
    let text = not_listed.chain(missing).collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        return conditions::remove(list, "ToolsAvailable");
    }
    let reason = if resolved.not_listed.is_empty() { "MissingTools" } else { "NotListed" };
    conditions::Observed { generation, now }.set(list, "ToolsAvailable", "False", reason, &text);
}

/// The fields that only the image can act upon.
fn left_to_image(agent: &Agent) -> Vec<&'static str> {
    let servers = &agent.spec.mcp_servers;
    let fields = [
        ("tools", servers.iter().any(|server| !server.tools.is_empty())),
        ("requireApproval", servers.iter().any(|server| !server.require_approval.is_empty())),
        ("reload: Hot", reload(agent) == Reload::Hot),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field).collect()
}

/// Sets the condition `ConfigurationKept`, which is there only while the spec has what the image must keep and its pod does not
/// say that it has loaded a configuration.
fn tell_image(
    status: &mut AgentStatus,
    agent: &Agent,
    resolved: &Resolved,
    defaults: &Defaults,
    now: Timestamp,
) {
    let loads = status.card.as_ref().is_some_and(|card| card.config_hash.is_some());
    let read = status.conditions.iter().find(|c| c.type_ == CARD_READ);
    let is_silent = read.is_some_and(|read| match (&*read.status, &*read.reason) {
        ("False", reason) => reason != "OldConfiguration",
        // No pod is ready, so what the last one said counts.
        _ => status.card.is_some() && !loads,
    });
    let image = resolved.image.as_ref().filter(|image| **image != defaults.agent_image);
    let left = left_to_image(agent);
    let list = &mut status.conditions;
    let Some(image) = image.filter(|_| is_silent && !left.is_empty()) else {
        return conditions::remove(list, "ConfigurationKept");
    };
    let text = format!(
        "{}: only the image can do this, and nothing shows that {image} does: no configHash was read from its card",
        left.join(", ")
    );
    let generation = agent.metadata.generation.unwrap_or(0);
    conditions::Observed { generation, now }.set(
        list,
        "ConfigurationKept",
        "Unknown",
        "NotTold",
        &text,
    );
}

/// Phase, reason of `Ready` and one sentence.
fn decide_phase(
    agent: &Agent,
    resolved: &Resolved,
    applied: &Applied,
) -> (Phase, &'static str, String) {
    if let Some(phase) = applied.outcome.phase() {
        return phase;
    }
    if agent.spec.suspend {
        return (Phase::Stopped, Reason::Suspended.as_str(), "Suspended".into());
    }
    // Also while pods of an earlier spec run: this one is not rolled out.
    if let Some(why) = applied.inputs.held() {
        return (Phase::Waiting, Reason::WaitingForInputs.as_str(), why.to_owned());
    }
    if let Some(build) = resolved.held_for_build() {
        let message = waiting(build, resolved.missing_build.as_deref(), applied.observed.is_some());
        return (Phase::Waiting, Reason::WaitingForBuild.as_str(), message);
    }
    let Some(observed) = &applied.observed else {
        let message = format!("Waiting for {}", resolved.waiting_for.join(", "));
        return (Phase::Waiting, Reason::WaitingForDependencies.as_str(), message);
    };
    if let Some(text) = &applied.rolled_back {
        return (Phase::Failed, Reason::RolledBack.as_str(), text.clone());
    }
    pod_phase(observed)
}

/// Whether a model is among those that a ModelAPI serves: by its name, by `*`, or by a prefix (`provider/*`). A ModelAPI that
/// names no models is taken to serve it.
fn serves(models: &[String], model: &str) -> bool {
    models.is_empty()
        || models.iter().any(|served| {
            served == model
                || served.strip_suffix('*').is_some_and(|prefix| model.starts_with(prefix))
        })
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
