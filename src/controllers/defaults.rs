//! What children look like when the spec does not say: images, package registries, the cluster's domain.

use clap::Args as ClapArgs;

/// Flags of `convoke operator`.
#[derive(Debug, Clone, ClapArgs)]
pub struct DefaultArgs {
    /// Image of agents that name none
    #[arg(long, default_value = "ghcr.io/convoke-dev/agent:0.1.0")]
    default_agent_image: String,
    /// Image of ModelAPIs in mode Proxy (LiteLLM behind a gate that knows agents' keys)
    #[arg(long, default_value = "ghcr.io/convoke-dev/model-proxy:0.1.0")]
    default_proxy_image: String,
    /// Image of ModelAPIs in mode Hosted (Ollama)
    #[arg(long, default_value = "docker.io/ollama/ollama:0.12.0")]
    default_hosted_image: String,
    /// Image of MCPServers from PyPI packages
    #[arg(long, default_value = "docker.io/library/python:3.12-slim")]
    default_python_image: String,
    /// Image of MCPServers from Npm packages
    #[arg(long, default_value = "docker.io/library/node:22-slim")]
    default_node_image: String,
    /// Python package index instead of PyPI
    #[arg(long)]
    pypi_index: Option<String>,
    /// Node package registry instead of npmjs
    #[arg(long)]
    npm_registry: Option<String>,
    /// Domain of the cluster's Services
    #[arg(long, default_value = "cluster.local")]
    cluster_domain: String,
}

impl DefaultArgs {
    /// The defaults that the flags give.
    #[must_use]
    pub fn resolve(self) -> Defaults {
        Defaults {
            agent_image: self.default_agent_image,
            proxy_image: self.default_proxy_image,
            hosted_image: self.default_hosted_image,
            python_image: self.default_python_image,
            node_image: self.default_node_image,
            pypi_index: self.pypi_index,
            npm_registry: self.npm_registry,
            cluster_domain: self.cluster_domain,
        }
    }
}

/// The values that the flags give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Image of agents that name none, and of tool servers from a string.
    pub agent_image: String,
    /// LiteLLM behind a gate.
    pub proxy_image: String,
    /// Ollama.
    pub hosted_image: String,
    /// Python, for packages from PyPI.
    pub python_image: String,
    /// Node, for packages from Npm.
    pub node_image: String,
    /// Index instead of PyPI.
    pub pypi_index: Option<String>,
    /// Registry instead of npmjs.
    pub npm_registry: Option<String>,
    /// For example `cluster.local`.
    pub cluster_domain: String,
}

#[cfg(test)]
impl Defaults {
    /// Short names, no registries of our own.
    #[must_use]
    pub fn for_tests() -> Self {
        Self {
            agent_image: "agent:1".into(),
            proxy_image: "litellm:1".into(),
            hosted_image: "ollama:1".into(),
            python_image: "python:1".into(),
            node_image: "node:1".into(),
            pypi_index: None,
            npm_registry: None,
            cluster_domain: "cluster.local".into(),
        }
    }
}
