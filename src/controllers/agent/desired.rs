//! (pure) Step "desired" of an Agent: its ConfigMap, Service and Deployment.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, EnvVar, Volume};
use serde_json::json;

use super::resolve::Resolved;
use crate::api::agent::{AgentConfig, AgenticLoop, Memory};
use crate::api::{Agent, Kind, common};
use crate::cluster::meta;
use crate::controllers::children::{Children, Wanted};
use crate::controllers::defaults::Defaults;
use crate::controllers::workload::pod_template::{
    DeploymentParts, container, deployment, http_probe, literal, merge_env, mount, port, resources,
    service,
};

/// The port of every agent.
pub const PORT: i32 = 8000;
/// The longest instructions that also go into the environment: a variable may not be longer than 128 KiB.
const MAX_INSTRUCTIONS_IN_ENV: usize = 96 * 1024;
/// The folder where the configuration is mounted.
const CONFIG_FOLDER: &str = "/etc/convoke/agent";

/// Name of the Deployment and the Service.
#[must_use]
pub fn child_name(agent: &str) -> String {
    meta::child_name("agent", agent, 0)
}

/// The address at which peers reach an agent.
#[must_use]
pub fn endpoint(agent: &str, namespace: &str, defaults: &Defaults) -> String {
    format!("http://{}.{namespace}.svc.{}:{PORT}", child_name(agent), defaults.cluster_domain)
}

/// All children of an agent.
#[must_use]
pub fn children(agent: &Agent, resolved: &Resolved, defaults: &Defaults) -> Children {
    let name = agent.metadata.name.clone().unwrap_or_default();
    let config_map = config_map(agent, &name, resolved);
    let config_name = config_map.metadata.name.clone().unwrap_or_default();
    let exposed = agent.spec.agent_network.as_ref().is_none_or(|network| network.expose);
    let service = if exposed {
        let meta = meta::child_meta(agent, Kind::Agent, child_name(&name));
        Wanted::Bring(service(
            meta,
            Kind::Agent,
            &name,
            &[("http", PORT, PORT), ("http-80", 80, PORT)],
        ))
    } else {
        Wanted::Remove
    };
    let deployment = match &resolved.image {
        // The first Deployment waits for its dependencies; one that exists goes on (A3), with the image that it has.
        Some(image) if resolved.deployment_exists || resolved.may_start(agent) => {
            Wanted::Bring(deployment(parts(agent, image, &config_name, resolved, defaults)))
        }
        _ => Wanted::Keep,
    };
    Children { config_map: Wanted::Bring(config_map), service, deployment }
}

/// The whole configuration as files. The ConfigMap is immutable and named by its content, so that pods of the revision before
/// still find theirs.
fn config_map(agent: &Agent, name: &str, resolved: &Resolved) -> ConfigMap {
    let config = agent.spec.config.clone().unwrap_or_default();
    let AgentConfig { instructions, agentic_loop, memory, env: _ } = &config;
    let whole = json!({
        "name": name,
        "description": agent.spec.description,
        "model": resolved.model,
        "modelAPI": agent.spec.model_api.name,
        "agenticLoop": agentic_loop.clone().unwrap_or_else(default_loop),
        "memory": memory.clone().unwrap_or_else(default_memory),
        "mcpServers": resolved.mcp_servers.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "peers": resolved.peers.iter().map(|(name, _)| name).collect::<Vec<_>>(),
    });
    let data = [
        ("config.json".to_owned(), format!("{whole:#}\n")),
        ("instructions.md".to_owned(), instructions.clone().unwrap_or_default()),
    ];
    let data = std::collections::BTreeMap::from(data);
    let hash = meta::hex8(&crate::cluster::live::hash_json(&json!(data)));
    let child = format!("{}-{hash}", meta::child_name("agent", name, 9));
    meta::with_hash(ConfigMap {
        metadata: meta::child_meta(agent, Kind::Agent, child),
        data: Some(data),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

fn default_loop() -> AgenticLoop {
    AgenticLoop { max_steps: 5, enable_tools: true, enable_delegation: true }
}

fn default_memory() -> Memory {
    Memory {
        enabled: true,
        kind: crate::api::agent::MemoryType::Local,
        context_limit: 6,
        max_sessions: 1000,
        max_session_events: 500,
    }
}

fn parts(
    agent: &Agent,
    image: &str,
    config_name: &str,
    resolved: &Resolved,
    defaults: &Defaults,
) -> DeploymentParts {
    let spec = &agent.spec;
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let health = spec.health_check.as_ref();
    let limits =
        resources(spec.resources.as_ref(), &[("cpu", "100m", "1"), ("memory", "256Mi", "512Mi")]);
    let mut main = container("agent", image, environment(agent, name, resolved, defaults), limits);
    main.ports = Some(vec![port("http", PORT)]);
    main.liveness_probe = Some(http_probe("/health", PORT, 30, 10, health));
    main.readiness_probe = Some(http_probe("/ready", PORT, 10, 5, health));
    if let Some(mounts) = &mut main.volume_mounts {
        mounts.push(mount("config", CONFIG_FOLDER, true));
    }
    let config = Volume {
        name: "config".into(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_name.to_owned(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    DeploymentParts {
        meta: meta::child_meta(agent, Kind::Agent, child_name(name)),
        kind: Kind::Agent,
        name: name.to_owned(),
        replicas: if spec.suspend { 0 } else { spec.replicas.unwrap_or(1) },
        init: Vec::new(),
        container: main,
        volumes: vec![config],
    }
}

/// The environment of an agent (A2): generated values, then `config.env`, then `env`. Later ones win.
fn environment(agent: &Agent, name: &str, resolved: &Resolved, defaults: &Defaults) -> Vec<EnvVar> {
    let spec = &agent.spec;
    let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
    let config = spec.config.clone().unwrap_or_default();
    let mut env = vec![literal("AGENT_NAME", name)];
    if let Some(description) = &spec.description {
        env.push(literal("AGENT_DESCRIPTION", description));
    }
    if let Some(instructions) =
        config.instructions.as_ref().filter(|text| text.len() <= MAX_INSTRUCTIONS_IN_ENV)
    {
        env.push(literal("AGENT_INSTRUCTIONS", instructions));
    }
    env.push(literal("AGENT_INSTRUCTIONS_FILE", format!("{CONFIG_FOLDER}/instructions.md")));
    env.push(literal("AGENT_CONFIG_FILE", format!("{CONFIG_FOLDER}/config.json")));
    env.push(literal("HOME", "/tmp"));
    if let Some(url) = &resolved.model_url {
        env.push(literal("MODEL_API_URL", url));
    }
    if let Some(model) = &resolved.model {
        env.push(literal("MODEL_NAME", model));
    }
    let AgenticLoop { max_steps, enable_tools, enable_delegation } =
        config.agentic_loop.unwrap_or_else(default_loop);
    env.push(literal("AGENTIC_LOOP_MAX_STEPS", max_steps.to_string()));
    env.push(literal("AGENTIC_LOOP_ENABLE_TOOLS", enable_tools.to_string()));
    env.push(literal("AGENTIC_LOOP_ENABLE_DELEGATION", enable_delegation.to_string()));
    let Memory { enabled, kind, context_limit, max_sessions, max_session_events } =
        config.memory.unwrap_or_else(default_memory);
    env.push(literal("MEMORY_ENABLED", enabled.to_string()));
    env.push(literal("MEMORY_TYPE", format!("{kind:?}").to_lowercase()));
    env.push(literal("MEMORY_CONTEXT_LIMIT", context_limit.to_string()));
    env.push(literal("MEMORY_MAX_SESSIONS", max_sessions.to_string()));
    env.push(literal("MEMORY_MAX_SESSION_EVENTS", max_session_events.to_string()));
    let tools: Vec<_> =
        resolved.mcp_servers.iter().filter_map(|(n, url)| Some((n, url.as_ref()?))).collect();
    if !tools.is_empty() {
        let names: Vec<_> = tools.iter().map(|(name, _)| name.as_str()).collect();
        env.push(literal("MCP_SERVERS", names.join(",")));
        for (name, url) in tools {
            env.push(literal(&server_variable(name), url));
        }
    }
    if !resolved.wired.is_empty() {
        env.push(literal("PEER_AGENTS", resolved.wired.join(",")));
        for peer in &resolved.wired {
            let card =
                format!("{}/.well-known/agent-card.json", endpoint(peer, namespace, defaults));
            env.push(literal(&format!("PEER_AGENT_{}_CARD_URL", upper_snake(peer)), card));
        }
    }
    // The model is settled already, unless only the pod knows it.
    let without_model = |mut vars: Vec<common::EnvVar>| {
        vars.retain(|var| var.name != "MODEL_NAME" || resolved.model.is_none());
        vars
    };
    merge_env(env, &[&without_model(config.env), &without_model(spec.env.clone())])
}

/// The variable with the address of a tool server.
#[must_use]
pub fn server_variable(server: &str) -> String {
    format!("MCP_SERVER_{}_URL", upper_snake(server))
}

fn upper_snake(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
#[path = "tests/desired.rs"]
mod tests;
