//! (pure) The configuration of an Agent as files, in the ConfigMap that its pods mount.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::desired::endpoint;
use super::environment::{MODEL_API, header_variable, server_prefix};
use super::resolve::{Resolved, Server};
use crate::api::agent::{AgentConfig, Memory, Reload};
use crate::api::common::HeaderFrom;
use crate::api::{Agent, Kind, keys};
use crate::cluster::meta;
use crate::controllers::defaults::Defaults;
use crate::controllers::discovery::card::ConfigVersion;

/// The folder where the files are mounted.
pub const FOLDER: &str = "/etc/convoke/agent";
/// The file with all that is no text for the model.
const CONFIG_FILE: &str = "config.json";

/// The configuration of an Agent.
pub struct Configuration {
    /// The files.
    pub config_map: ConfigMap,
    /// The hash of their content, when another content is for other pods.
    pub hash: Option<String>,
}

/// How a change of the configuration reaches the pods.
#[must_use]
pub fn reload(agent: &Agent) -> Reload {
    agent.spec.config.as_ref().map(|config| config.reload).unwrap_or_default()
}

/// The whole configuration as files.
///
/// With `Rollout`, the ConfigMap is immutable and named by its content, so that pods of the revision before still find theirs.
/// With `Hot`, it has one name and is changed in place; it says its hash and the commit that last changed the agent. No hash is
/// `config`, so a name of one kind is never a name of the other.
#[must_use]
pub fn configuration(agent: &Agent, resolved: &Resolved, defaults: &Defaults) -> Configuration {
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let mut whole = whole(agent, resolved, defaults);
    let hash = meta::hex8(&crate::cluster::live::hash_json(&json!(files(agent, &whole))));
    let is_hot = reload(agent) == Reload::Hot;
    let child = if is_hot {
        whole["hash"] = json!(hash);
        let commit = agent.metadata.annotations.as_ref().and_then(|all| all.get(keys::COMMIT));
        if let Some(commit) = commit {
            whole["commit"] = json!(commit);
        }
        format!("{}-config", meta::child_name("agent", name, 7))
    } else {
        format!("{}-{hash}", meta::child_name("agent", name, 9))
    };
    let config_map = meta::with_hash(ConfigMap {
        metadata: meta::child_meta(agent, Kind::Agent, child),
        data: Some(files(agent, &whole)),
        immutable: (!is_hot).then_some(true),
        ..ConfigMap::default()
    });
    Configuration { config_map, hash: (!is_hot).then_some(hash) }
}

/// Which configuration pods are to load from a ConfigMap that is changed in place. `None` for one that is never changed: its name
/// says which it is, and only new pods mount another one.
#[must_use]
pub fn version(map: &ConfigMap) -> Option<ConfigVersion> {
    if map.immutable == Some(true) {
        return None;
    }
    let whole: Value = serde_json::from_str(map.data.as_ref()?.get(CONFIG_FILE)?).ok()?;
    let text = |key: &str| whole[key].as_str().map(str::to_owned);
    Some(ConfigVersion { hash: text("hash")?, commit: text("commit") })
}

/// The files by name.
fn files(agent: &Agent, whole: &Value) -> BTreeMap<String, String> {
    let instructions = agent.spec.config.as_ref().and_then(|config| config.instructions.clone());
    BTreeMap::from([
        (CONFIG_FILE.to_owned(), format!("{whole:#}\n")),
        ("instructions.md".to_owned(), instructions.unwrap_or_default()),
    ])
}

/// All that is no text for the model. Values of Secrets are never in it: `env` names the variable that holds one.
fn whole(agent: &Agent, resolved: &Resolved, defaults: &Defaults) -> Value {
    let spec = &agent.spec;
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let config = spec.config.clone().unwrap_or_default();
    let AgentConfig { reload, agentic_loop, memory, debug_memory_endpoints, .. } = &config;
    let peers = resolved.wired.iter();
    let mut whole = json!({
        "name": agent.metadata.name,
        "description": spec.description,
        "reload": reload,
        "model": resolved.model,
        "modelAPI": spec.model_api.name,
        "modelUrl": resolved.model_url,
        "modelParameters": spec.model_parameters,
        "modelHeaders": headers(MODEL_API, &resolved.model_headers),
        "agenticLoop": agentic_loop.clone().unwrap_or_default(),
        "memory": memory_settings(&memory.clone().unwrap_or_default()),
        "mcpServers": resolved.mcp_servers.iter().filter_map(|server| tools(agent, server)).collect::<Vec<_>>(),
        "peers": peers.map(|peer| json!({"name": peer, "url": endpoint(peer, namespace, defaults)})).collect::<Vec<_>>(),
        "a2a": spec.a2a,
        "debugMemoryEndpoints": debug_memory_endpoints,
        "telemetry": spec.telemetry,
    });
    if let Some(map) = whole.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    whole
}

/// What is remembered. The address of Redis is a secret.
fn memory_settings(memory: &Memory) -> Value {
    let Memory { enabled, kind, context_limit, max_sessions, max_session_events, redis: _ } =
        memory;
    json!({
        "enabled": enabled,
        "type": kind,
        "contextLimit": context_limit,
        "maxSessions": max_sessions,
        "maxSessionEvents": max_session_events,
    })
}

/// A tool server, and which of its tools are called how. `None`: its address is not known.
fn tools(agent: &Agent, server: &Server) -> Option<Value> {
    let Server { name, url, headers: with } = server;
    let url = url.as_ref()?;
    let said = agent.spec.mcp_servers.iter().find(|said| said.name == *name);
    let (tools, approval) = said
        .map(|said| (said.tools.as_slice(), said.require_approval.as_slice()))
        .unwrap_or_default();
    Some(json!({
        "name": name,
        "url": url,
        "tools": tools,
        "requireApproval": approval,
        "headers": headers(&server_prefix(name), with),
    }))
}

/// Headers, each with the variable that holds its value, and whether it is left out where there is no such variable.
fn headers(prefix: &str, headers: &[HeaderFrom]) -> Vec<Value> {
    let numbered = headers.iter().enumerate();
    numbered
        .map(|(number, header)| {
            let mut said = json!({"name": header.name, "env": header_variable(prefix, number)});
            if header.secret_key_ref.optional == Some(true) {
                said["optional"] = json!(true);
            }
            said
        })
        .collect()
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;
