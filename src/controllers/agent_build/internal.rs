//! (pure) The registry of the operator's `--internal-registry`. All namespaces push there, so an image begins with its namespace.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::agent_build::AgentBuildSpec;
use crate::net::Endpoint;

/// Whether a build of a namespace may push its image to `registry`. Only in the internal one the name of the image matters.
#[must_use]
pub fn allows(internal: &str, registry: &str, spec: &AgentBuildSpec, namespace: &str) -> bool {
    let rest = spec.output.image.strip_prefix(namespace);
    !is_same(internal, registry, spec.output.insecure)
        || rest.is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a registry is the internal one, in any spelling.
#[must_use]
pub fn is_same(internal: &str, registry: &str, insecure: bool) -> bool {
    let port = if insecure { 80 } else { 443 };
    endpoint(internal, port) == endpoint(registry, port)
}

/// Where a registry host is dialled: over https, and over plain http.
#[must_use]
pub fn endpoints(registry: &str) -> Vec<Endpoint> {
    let mut both = vec![endpoint(registry, 443), endpoint(registry, 80)];
    both.dedup();
    both
}

/// The host and the port of a registry: without a port, this one.
fn endpoint(registry: &str, default_port: u16) -> Endpoint {
    // In an address of IPv6 a colon is no port.
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok())
        }
        _ => (registry, None),
    };
    Endpoint::new(host, port.unwrap_or(default_port))
}

#[cfg(test)]
#[path = "tests/internal.rs"]
mod tests;
