//! (pure) The environment of an Agent's container (A2).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::core::v1::EnvVar;

use super::config::{FOLDER, reload};
use super::desired::endpoint;
use super::resolve::{Resolved, Server};
use crate::api::Agent;
use crate::api::agent::{AgentConfig, AgenticLoop, Memory, MemoryType, Reload, Telemetry};
use crate::api::common::{self, HeaderFrom, KeyRef};
use crate::controllers::defaults::Defaults;
use crate::controllers::model_api::keys::AGENT_KEY;
use crate::controllers::names::{KEY_VARIABLE, agent_secret};
use crate::controllers::workload::pod_template::{from_secret, literal, merge_env};

/// The longest instructions that also go into the environment: a variable may not be longer than 128 KiB.
const MAX_INSTRUCTIONS_IN_ENV: usize = 96 * 1024;

/// How the names of the variables about the model endpoint begin.
pub(super) const MODEL_API: &str = "MODEL_API";

/// The environment: generated values, then `config.env`, then `env`. Later ones win.
///
/// With `reload: Hot`, what pods read from their files is not here: a change of it would replace them. Where the model, the tools
/// and the peers are stays here, with the variables for secrets that belong to it.
pub(super) fn environment(
    agent: &Agent,
    resolved: &Resolved,
    hash: Option<&str>,
    defaults: &Defaults,
) -> Vec<EnvVar> {
    let spec = &agent.spec;
    let is_hot = reload(agent) == Reload::Hot;
    let config = spec.config.clone().unwrap_or_default();
    let metadata = &agent.metadata;
    let mut env = vec![
        literal("AGENT_NAME", metadata.name.as_deref().unwrap_or_default()),
        literal("AGENT_NAMESPACE", metadata.namespace.as_deref().unwrap_or_default()),
    ];
    if !is_hot {
        env.extend(about(agent, &config));
    }
    env.push(literal("AGENT_INSTRUCTIONS_FILE", format!("{FOLDER}/instructions.md")));
    env.push(literal("AGENT_CONFIG_FILE", format!("{FOLDER}/config.json")));
    env.extend(hash.map(|hash| literal("AGENT_CONFIG_HASH", hash)));
    env.push(literal("HOME", "/tmp"));
    env.extend(model(agent, resolved));
    if !is_hot {
        env.extend(settings(&config));
    }
    let redis = config.memory.as_ref().and_then(|memory| memory.redis.as_ref());
    env.extend(redis.map(|redis| from_secret("MEMORY_REDIS_URL", &redis.url_from.secret_key_ref)));
    env.extend(servers(&resolved.mcp_servers));
    env.extend(peers(agent, &resolved.wired, defaults));
    env.extend(spec.telemetry.iter().flat_map(|telemetry| traces(agent, telemetry)));
    // The model is settled already, unless only the pod knows it. So is the key, if Convoke makes one: the proxy takes no other.
    let without_settled = |mut vars: Vec<common::EnvVar>| {
        vars.retain(|var| match var.name.as_str() {
            "MODEL_NAME" => resolved.model.is_none(),
            KEY_VARIABLE => !resolved.model_key.is_read(),
            _ => true,
        });
        vars
    };
    merge_env(env, &[&without_settled(config.env), &without_settled(spec.env.clone())])
}

/// What the agent is for.
fn about(agent: &Agent, config: &AgentConfig) -> Vec<EnvVar> {
    let description = agent.spec.description.as_ref();
    let instructions =
        config.instructions.as_ref().filter(|text| text.len() <= MAX_INSTRUCTIONS_IN_ENV);
    [("AGENT_DESCRIPTION", description), ("AGENT_INSTRUCTIONS", instructions)]
        .into_iter()
        .filter_map(|(name, text)| Some(literal(name, text?)))
        .collect()
}

/// The model: where it is, how it is asked, and its name. With `reload: Hot`, a name that the spec gives is in the files only;
/// one that the ModelAPI gives stays here while the ModelAPI is away.
fn model(agent: &Agent, resolved: &Resolved) -> Vec<EnvVar> {
    let mut env = Vec::new();
    if let Some(url) = &resolved.model_url {
        env.push(literal("MODEL_API_URL", url));
        env.push(literal("OPENAI_BASE_URL", format!("{url}/v1")));
    }
    env.extend(header_variables(MODEL_API, &resolved.model_headers));
    // A proxy takes no other key than the one that it was made for.
    let made = resolved.model_key.is_read().then(|| model_key(agent));
    let key = made.as_ref().or(agent.spec.provider_secret_ref.as_ref());
    env.extend(key.map(|key| from_secret(KEY_VARIABLE, key)));
    let only_in_files = reload(agent) == Reload::Hot && agent.spec.model.is_some();
    let name = resolved.model.as_ref().filter(|_| !only_in_files);
    env.extend(name.map(|name| literal("MODEL_NAME", name)));
    env
}

/// Where the key is that Convoke makes for an agent.
fn model_key(agent: &Agent) -> KeyRef {
    let name = agent_secret(agent.metadata.name.as_deref().unwrap_or_default());
    KeyRef { name, key: AGENT_KEY.to_owned(), optional: None }
}

/// The loop of thinking and acting, and what is remembered.
fn settings(config: &AgentConfig) -> Vec<EnvVar> {
    let AgenticLoop { max_steps, enable_tools, enable_delegation, max_seconds: _, max_tokens: _ } =
        config.agentic_loop.clone().unwrap_or_default();
    let Memory { enabled, kind, context_limit, max_sessions, max_session_events, redis: _ } =
        config.memory.clone().unwrap_or_default();
    let kind = match kind {
        MemoryType::Local => "local",
        MemoryType::Redis => "redis",
    };
    let mut env = vec![
        literal("AGENTIC_LOOP_MAX_STEPS", max_steps.to_string()),
        literal("AGENTIC_LOOP_ENABLE_TOOLS", enable_tools.to_string()),
        literal("AGENTIC_LOOP_ENABLE_DELEGATION", enable_delegation.to_string()),
        literal("MEMORY_ENABLED", enabled.to_string()),
        literal("MEMORY_TYPE", kind),
        literal("MEMORY_CONTEXT_LIMIT", context_limit.to_string()),
        literal("MEMORY_MAX_SESSIONS", max_sessions.to_string()),
        literal("MEMORY_MAX_SESSION_EVENTS", max_session_events.to_string()),
    ];
    if config.debug_memory_endpoints {
        env.push(literal("AGENT_DEBUG_MEMORY_ENDPOINTS", "true"));
    }
    env
}

/// The tool servers whose addresses are known.
fn servers(servers: &[Server]) -> Vec<EnvVar> {
    let known = servers.iter().filter_map(|server| Some((server, server.url.as_ref()?)));
    let known: Vec<_> = known.collect();
    if known.is_empty() {
        return Vec::new();
    }
    let names: Vec<_> = known.iter().map(|(server, _)| server.name.as_str()).collect();
    let mut env = vec![literal("MCP_SERVERS", names.join(","))];
    for (Server { name, url: _, headers }, url) in known {
        let variable = server_variable(name);
        // Some programs look under the name as it is.
        let plain = format!("MCP_SERVER_{name}_URL");
        env.push(literal(&variable, url));
        if plain != variable {
            env.push(literal(&plain, url));
        }
        env.extend(header_variables(&server_prefix(name), headers));
    }
    env
}

/// The peers that the pods are told of.
fn peers(agent: &Agent, wired: &[String], defaults: &Defaults) -> Vec<EnvVar> {
    if wired.is_empty() {
        return Vec::new();
    }
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let mut env = vec![literal("PEER_AGENTS", wired.join(","))];
    env.extend(wired.iter().map(|peer| {
        // Clients append the well-known path of the card.
        let variable = format!("PEER_AGENT_{}_CARD_URL", upper_snake(peer));
        literal(&variable, endpoint(peer, namespace, defaults))
    }));
    env
}

/// Where traces go, and as whose.
fn traces(agent: &Agent, telemetry: &Telemetry) -> Vec<EnvVar> {
    let Telemetry { enabled, endpoint } = telemetry;
    if !enabled {
        return Vec::new();
    }
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let collector = endpoint.iter().map(|url| literal("OTEL_EXPORTER_OTLP_ENDPOINT", url));
    collector.chain([literal("OTEL_SERVICE_NAME", name)]).collect()
}

/// The names of headers in their order, and a variable with the value of each.
fn header_variables(prefix: &str, headers: &[HeaderFrom]) -> Vec<EnvVar> {
    if headers.is_empty() {
        return Vec::new();
    }
    let names: Vec<_> = headers.iter().map(|header| header.name.as_str()).collect();
    let mut env = vec![literal(&headers_variable(prefix), names.join(","))];
    env.extend(headers.iter().enumerate().map(|(number, header)| {
        from_secret(&header_variable(prefix, number), &header.secret_key_ref)
    }));
    env
}

/// The variable with the names of headers.
pub(super) fn headers_variable(prefix: &str) -> String {
    format!("{prefix}_HEADERS")
}

/// The variable with the value of a header.
pub(super) fn header_variable(prefix: &str, number: usize) -> String {
    format!("{prefix}_HEADER_{number}")
}

/// How the names of the variables about a tool server begin.
pub(super) fn server_prefix(server: &str) -> String {
    format!("MCP_SERVER_{}", upper_snake(server))
}

/// The variable with the address of a tool server.
pub(super) fn server_variable(server: &str) -> String {
    format!("{}_URL", server_prefix(server))
}

fn upper_snake(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
#[path = "tests/environment.rs"]
mod tests;
