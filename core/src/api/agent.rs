//! `Agent`: one agent, run as a Deployment with a Service and its configuration.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, EnvVar, LinkedResources, NameRef, Phase, Resources, Source};

/// Variables that hold the name, the instructions and the connections of an agent. Specs may not set them.
pub const RESERVED_ENV: &[&str] = &[
    "AGENT_NAME",
    "AGENT_INSTRUCTIONS",
    "AGENT_INSTRUCTIONS_FILE",
    "AGENT_CONFIG_FILE",
    "MODEL_API_URL",
    "MCP_SERVERS",
    "PEER_AGENTS",
];

/// Whether a variable is reserved: one of [`RESERVED_ENV`], or one of a tool server or peer. The CEL rules of the two lists
/// of variables below refuse the same names.
#[must_use]
pub fn is_reserved_env(name: &str) -> bool {
    RESERVED_ENV.contains(&name)
        || name.starts_with("MCP_SERVER_")
        || name.starts_with("PEER_AGENT_")
}

/// An agent: a model, its instructions, the tools it may call and the peers it may talk to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "convoke.dev", version = "v1alpha1", kind = "Agent", plural = "agents", shortname = "ag",
    category = "convoke", namespaced, status = "AgentStatus", derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63").message("the name must be a DNS label of at most 63 characters"),
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.replicas", label_selector_path = ".status.selector"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Model", type_ = "string", json_path = ".status.model"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.image"),
    printcolumn(name = "Commit", type_ = "string", json_path = ".status.source.commit", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.image) && has(self.buildRef))").message("image and buildRef exclude each other"))]
pub struct AgentSpec {
    /// What the agent does, for people and for its peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// Image to run, verbatim. Default: the operator's `--default-agent-image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// Run the image that an AgentBuild makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_ref: Option<NameRef>,
    /// The model endpoint.
    #[serde(rename = "modelAPI")]
    pub model_api: NameRef,
    /// Name of the model. Default: MODEL_NAME of `config.env`, then the ModelAPI's only model, then smollm2:135m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub model: Option<String>,
    /// How the agent thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AgentConfig>,
    /// The tool servers it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub mcp_servers: Vec<NameRef>,
    /// Who may find it, and whom it may talk to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_network: Option<AgentNetwork>,
    /// Environment of the container; wins over `config.env` and over generated values. Reserved names are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(e, !(e.name in ['AGENT_NAME', 'AGENT_INSTRUCTIONS', 'AGENT_INSTRUCTIONS_FILE', 'AGENT_CONFIG_FILE', 'MODEL_API_URL', 'MCP_SERVERS', 'PEER_AGENTS']) && !e.name.startsWith('MCP_SERVER_') && !e.name.startsWith('PEER_AGENT_'))").message("AGENT_NAME, AGENT_INSTRUCTIONS, AGENT_INSTRUCTIONS_FILE, AGENT_CONFIG_FILE, MODEL_API_URL, MCP_SERVERS, MCP_SERVER_*, PEER_AGENTS and PEER_AGENT_* are set by Convoke"))]
    pub env: Vec<EnvVar>,
    /// Compute resources. Default: requests 100m and 256Mi, limits 1 and 512Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// How many pods. Default 1. When Git sets none, others (an autoscaler, `kubectl scale`) may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// Overrides for the liveness and readiness probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Hold the first Deployment until model and tools are ready. Default true.
    #[serde(default = "yes")]
    pub wait_for_dependencies: bool,
    /// Scale to zero and stay there. Default false.
    #[serde(default)]
    pub suspend: bool,
}

/// How the agent thinks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentConfig {
    /// The system prompt. In Git, `instructionsFile: prompts/x.md` reads it from a file beside the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub instructions: Option<String>,
    /// The loop of thinking and acting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agentic_loop: Option<AgenticLoop>,
    /// What it remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Environment that belongs to the configuration; `spec.env` wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(e, !(e.name in ['AGENT_NAME', 'AGENT_INSTRUCTIONS', 'AGENT_INSTRUCTIONS_FILE', 'AGENT_CONFIG_FILE', 'MODEL_API_URL', 'MCP_SERVERS', 'PEER_AGENTS']) && !e.name.startsWith('MCP_SERVER_') && !e.name.startsWith('PEER_AGENT_'))").message("AGENT_NAME, AGENT_INSTRUCTIONS, AGENT_INSTRUCTIONS_FILE, AGENT_CONFIG_FILE, MODEL_API_URL, MCP_SERVERS, MCP_SERVER_*, PEER_AGENTS and PEER_AGENT_* are set by Convoke"))]
    pub env: Vec<EnvVar>,
}

/// The loop of thinking and acting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgenticLoop {
    /// Most steps per request, 1 to 20. Default 5.
    #[serde(default = "default_max_steps")]
    #[schemars(range(min = 1, max = 20))]
    pub max_steps: i32,
    /// May call tools. Default true.
    #[serde(default = "yes")]
    pub enable_tools: bool,
    /// May delegate to peers. Default true.
    #[serde(default = "yes")]
    pub enable_delegation: bool,
}

/// What the agent remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Remember at all. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Where. Default Local (in the pod).
    #[serde(default)]
    #[serde(rename = "type")]
    pub kind: MemoryType,
    /// Messages sent along with each request, 1 to 100. Default 6.
    #[serde(default = "default_context_limit")]
    #[schemars(range(min = 1, max = 100))]
    pub context_limit: i32,
    /// Sessions kept, 1 to 100,000. Default 1000.
    #[serde(default = "default_max_sessions")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: i32,
    /// Events kept per session, 1 to 10,000. Default 500.
    #[serde(default = "default_max_session_events")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_session_events: i32,
}

/// Where memory lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemoryType {
    /// In the pod; gone with it.
    #[default]
    Local,
}

/// Who may find the agent, and whom it may talk to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentNetwork {
    /// Give it a Service. Default true.
    #[serde(default = "yes")]
    pub expose: bool,
    /// Names of the agents of this namespace that it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")), extend("x-kubernetes-list-type" = "set"))]
    pub access: Vec<String>,
}

/// Overrides for the probes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Path of both probes. Default: /health for liveness, /ready for readiness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^/\S*$"))]
    pub path: Option<String>,
    /// Seconds between two probes, 1 to 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: Option<i32>,
    /// Seconds until a probe fails, 1 to 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: Option<i32>,
    /// Failures in a row that count, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<i32>,
}

fn yes() -> bool {
    true
}
fn default_max_steps() -> i32 {
    5
}
fn default_context_limit() -> i32 {
    6
}
fn default_max_sessions() -> i32 {
    1000
}
fn default_max_session_events() -> i32 {
    500
}

/// What the agent is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Ready, Available, DependenciesReady, PeersResolved, ImageResolved, Progressing; SecretsWatched only when the pods
    /// read Secrets; Conflict, ModelServed and InputsFollowed only while something is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where its peers reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The model that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The image that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Wanted pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods that pass their readiness probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Pods of the newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Wanted pods that are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_replicas: Option<i32>,
    /// Label selector of its pods, as text (for the scale subresource).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// What it is wired to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linked_resources: Option<LinkedResources>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_rules_and_code_reserve_the_same_names() {
        use kube::CustomResourceExt;
        let names: Vec<_> = RESERVED_ENV.iter().map(|name| format!("'{name}'")).collect();
        let rule = format!(
            "self.all(e, !(e.name in [{}]) && !e.name.startsWith('MCP_SERVER_') && !e.name.startsWith('PEER_AGENT_'))",
            names.join(", ")
        );
        let definition = serde_json::to_string(&Agent::crd()).expect("JSON");
        assert_eq!(definition.matches(&rule).count(), 2, "env and config.env");
        assert!(is_reserved_env("MCP_SERVER_A_URL") && is_reserved_env("PEER_AGENT_A_CARD_URL"));
        assert!(RESERVED_ENV.iter().all(|name| is_reserved_env(name)));
        assert!(!is_reserved_env("MODEL_NAME") && !is_reserved_env("MCP_TOOLS"));
    }
}
