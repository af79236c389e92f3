//! (pure) Step "desired" of an Agent: its ConfigMap, Service and Deployment.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::core::v1::EnvVar;

use super::config::{FOLDER, configuration};
use super::environment::environment;
use super::resolve::Resolved;
use crate::api::agent::{AgentSpec, MemoryType};
use crate::api::{Agent, Kind};
use crate::cluster::meta;
use crate::controllers::children::{Children, Wanted};
use crate::controllers::defaults::Defaults;
use crate::controllers::key_marks::KeyBefore;
use crate::controllers::names::agent_child;
use crate::controllers::workload::built_image::with_build;
use crate::controllers::workload::pod_template::{
    DeploymentParts, HttpProbes, config_volume, container, deployment, mount, port, resources,
    service, sticky,
};
use crate::controllers::workload::rollout::with_deadline;

/// The port of every agent.
pub const PORT: i32 = 8000;
/// Seconds that a start may take.
const STARTUP_SECONDS: i32 = 120;

/// Name of the Deployment and the Service.
#[must_use]
pub fn child_name(agent: &str) -> String {
    agent_child(agent)
}

/// The address at which peers reach an agent.
#[must_use]
pub fn endpoint(agent: &str, namespace: &str, defaults: &Defaults) -> String {
    format!("http://{}.{namespace}.svc.{}:{PORT}", child_name(agent), defaults.cluster_domain)
}

/// How many pods there are to be.
#[must_use]
pub fn replicas(spec: &AgentSpec) -> i32 {
    if spec.suspend { 0 } else { spec.replicas.unwrap_or(1) }
}

/// How many pods remember, each for itself, when there are several.
#[must_use]
pub fn separate_memories(agent: &Agent) -> Option<i32> {
    let memory = agent.spec.config.as_ref().and_then(|config| config.memory.as_ref());
    let is_local = memory.is_none_or(|m| m.enabled && m.kind == MemoryType::Local);
    Some(replicas(&agent.spec)).filter(|pods| is_local && *pods > 1)
}

/// All children of an agent.
#[must_use]
pub fn children(agent: &Agent, resolved: &Resolved, defaults: &Defaults) -> Children {
    let name = agent.metadata.name.clone().unwrap_or_default();
    let exposed = agent.spec.agent_network.as_ref().is_none_or(|network| network.expose);
    let service = if exposed {
        let meta = meta::child_meta(agent, Kind::Agent, child_name(&name));
        let ports = [("http", PORT, PORT), ("http-80", 80, PORT)];
        let service = service(meta, Kind::Agent, &name, &ports);
        // A conversation goes on where it began, as far as its client can be recognised.
        let stays = separate_memories(agent).is_some();
        Wanted::Bring(if stays { sticky(service) } else { service })
    } else {
        Wanted::Remove
    };
    let keys = resolved.model_key.keys(agent);
    let (config_map, deployment) = match &resolved.image {
        // The first Deployment waits for its dependencies; one that exists goes on (A3), with the image that it has.
        Some(image) if resolved.deployment_exists || resolved.may_start(agent) => {
            let configuration = configuration(agent, resolved, defaults);
            let env = environment(agent, resolved, configuration.hash.as_deref(), defaults);
            let mounted = configuration.config_map.metadata.name.as_deref().unwrap_or_default();
            let mut parts = parts(agent, image, env, mounted);
            parts.meta = with_build(parts.meta, resolved.image_build.as_deref());
            parts.meta = KeyBefore::mark(&resolved.keys_before, parts.meta);
            let run = with_deadline(deployment(parts), agent.spec.progress_deadline.as_deref());
            (
                Wanted::Bring(configuration.config_map),
                Wanted::Bring(resolved.model_key.mark(run, &keys)),
            )
        }
        // A configuration without the addresses that are not there yet would be replaced at once.
        _ => (Wanted::Keep, Wanted::Keep),
    };
    Children { keys, config_map, service, deployment, ..Children::removed() }
}

/// The Deployment with this image and environment. `mounted` is the ConfigMap with the configuration.
fn parts(agent: &Agent, image: &str, env: Vec<EnvVar>, mounted: &str) -> DeploymentParts {
    let spec = &agent.spec;
    let name = agent.metadata.name.as_deref().unwrap_or_default();
    let limits =
        resources(spec.resources.as_ref(), &[("cpu", "100m", "1"), ("memory", "256Mi", "512Mi")]);
    let mut main = container("agent", image, env, limits);
    main.ports = Some(vec![port("http", PORT)]);
    let probes = HttpProbes {
        port: PORT,
        alive: "/health",
        ready: "/ready",
        startup_seconds: STARTUP_SECONDS,
        over: spec.health_check.as_ref(),
    };
    probes.watch(&mut main);
    if let Some(mounts) = &mut main.volume_mounts {
        // The whole folder: a file that is mounted alone never changes.
        mounts.push(mount("config", FOLDER, true));
    }
    DeploymentParts {
        meta: meta::child_meta(agent, Kind::Agent, child_name(name)),
        kind: Kind::Agent,
        name: name.to_owned(),
        replicas: replicas(spec),
        init: Vec::new(),
        container: main,
        volumes: vec![config_volume("config", mounted)],
    }
}

#[cfg(test)]
#[path = "tests/desired.rs"]
mod tests;
