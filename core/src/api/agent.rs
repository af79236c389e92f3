//! `Agent`: one agent, run as a Deployment with a Service and its configuration.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::agent_status::{AgentStatus, CardSkill, CardStatus};
use super::common::{EnvVar, KeyRef, NameRef, Resources, SecretSource};

/// Variables that hold the name, the instructions and the connections of an agent. Specs may not set them.
pub const RESERVED_ENV: &[&str] = &[
    "AGENT_NAME",
    "AGENT_INSTRUCTIONS",
    "AGENT_INSTRUCTIONS_FILE",
    "AGENT_CONFIG_FILE",
    "AGENT_CONFIG_HASH",
    "MODEL_API_URL",
    "MODEL_API_HEADERS",
    "MCP_SERVERS",
    "PEER_AGENTS",
];

/// How the names of other reserved variables begin: a header for the model, a tool server, a peer.
pub const RESERVED_PREFIXES: &[&str] = &["MODEL_API_HEADER_", "MCP_SERVER_", "PEER_AGENT_"];

/// Whether a variable is reserved: one of [`RESERVED_ENV`], or one that begins like [`RESERVED_PREFIXES`]. The CEL rules of the
/// two lists of variables below refuse the same names.
#[must_use]
pub fn is_reserved_env(name: &str) -> bool {
    RESERVED_ENV.contains(&name) || RESERVED_PREFIXES.iter().any(|start| name.starts_with(start))
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
    /// How the model is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_parameters: Option<ModelParameters>,
    /// The key of the model's provider: a key of a Secret, as `OPENAI_API_KEY` of the container. `env` wins; mode Proxy uses neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_secret_ref: Option<KeyRef>,
    /// How the agent thinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AgentConfig>,
    /// The tool servers it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub mcp_servers: Vec<ToolServer>,
    /// Who may find it, and whom it may talk to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_network: Option<AgentNetwork>,
    /// What it says of itself to its peers (A2A).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<A2a>,
    /// Traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// Environment of the container; wins over `config.env` and over generated values. Reserved names are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(e, !(e.name in ['AGENT_NAME', 'AGENT_INSTRUCTIONS', 'AGENT_INSTRUCTIONS_FILE', 'AGENT_CONFIG_FILE', 'AGENT_CONFIG_HASH', 'MODEL_API_URL', 'MODEL_API_HEADERS', 'MCP_SERVERS', 'PEER_AGENTS']) && !e.name.startsWith('MODEL_API_HEADER_') && !e.name.startsWith('MCP_SERVER_') && !e.name.startsWith('PEER_AGENT_'))").message("AGENT_NAME, AGENT_INSTRUCTIONS, AGENT_INSTRUCTIONS_FILE, AGENT_CONFIG_FILE, AGENT_CONFIG_HASH, MODEL_API_URL, MODEL_API_HEADERS, MODEL_API_HEADER_*, MCP_SERVERS, MCP_SERVER_*, PEER_AGENTS and PEER_AGENT_* are set by Convoke"))]
    pub env: Vec<EnvVar>,
    /// Compute resources. Default: requests 100m and 256Mi, limits 1 and 512Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// How many pods. Default 1. When Git sets none, others (an autoscaler, `kubectl scale`) may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// How long a rollout may make no progress, at least 30s. With `buildRef`, the last good revision then runs again. Default 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('30s') && duration(self) <= duration('24h')").message("progressDeadline must be at least 30s and at most 24h"))]
    pub progress_deadline: Option<String>,
    /// Overrides for the probes.
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
    /// How a change of the configuration reaches the pods. Default Rollout.
    #[serde(default)]
    pub reload: Reload,
    /// The loop of thinking and acting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agentic_loop: Option<AgenticLoop>,
    /// What it remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Serve what it remembers, for everybody who can reach it: `GET /memory/sessions`. For debugging. Default false.
    #[serde(default)]
    pub debug_memory_endpoints: bool,
    /// Environment that belongs to the configuration; `spec.env` wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(e, !(e.name in ['AGENT_NAME', 'AGENT_INSTRUCTIONS', 'AGENT_INSTRUCTIONS_FILE', 'AGENT_CONFIG_FILE', 'AGENT_CONFIG_HASH', 'MODEL_API_URL', 'MODEL_API_HEADERS', 'MCP_SERVERS', 'PEER_AGENTS']) && !e.name.startsWith('MODEL_API_HEADER_') && !e.name.startsWith('MCP_SERVER_') && !e.name.startsWith('PEER_AGENT_'))").message("AGENT_NAME, AGENT_INSTRUCTIONS, AGENT_INSTRUCTIONS_FILE, AGENT_CONFIG_FILE, AGENT_CONFIG_HASH, MODEL_API_URL, MODEL_API_HEADERS, MODEL_API_HEADER_*, MCP_SERVERS, MCP_SERVER_*, PEER_AGENTS and PEER_AGENT_* are set by Convoke"))]
    pub env: Vec<EnvVar>,
}

/// How a change of the configuration reaches the pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reload {
    /// New pods replace those that run.
    #[default]
    Rollout,
    /// The pods that run read it again.
    Hot,
}

/// How the model is asked. What is left out is up to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelParameters {
    /// Randomness of the answers, 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Nucleus sampling: the share of the most probable tokens that count, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: Option<f64>,
    /// Most tokens of one answer of the model, 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: Option<i32>,
    /// Makes tokens less probable that are in the text already, -2 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2.0, max = 2.0))]
    pub presence_penalty: Option<f64>,
    /// Makes tokens less probable the more often they are in the text, -2 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2.0, max = 2.0))]
    pub frequency_penalty: Option<f64>,
    /// Asks for the same answer to the same question, as far as the provider can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Texts that end an answer, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 256)))]
    pub stop_sequences: Vec<String>,
    /// Seconds until one request to the model fails, 1 to 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<i32>,
}

/// A tool server that the agent may call. In Git a plain string means `{name: <string>}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.tools) || !has(self.requireApproval) || self.requireApproval.all(tool, tool in self.tools)").message("requireApproval names a tool that is not among tools").field_path(".requireApproval"))]
pub struct ToolServer {
    /// Name of the MCPServer, in this namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The tools that it may call. Default: all of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 128), inner(length(min = 1, max = 128), regex(pattern = r"^\S+$")), extend("x-kubernetes-list-type" = "set"))]
    pub tools: Vec<String>,
    /// The tools that it calls only after whoever asked has approved the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 128), regex(pattern = r"^\S+$")), extend("x-kubernetes-list-type" = "set"))]
    pub require_approval: Vec<String>,
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
    /// Seconds until a request ends without an answer, 1 to 3600. Default 300.
    #[serde(default = "default_max_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub max_seconds: i32,
    /// Most tokens of all calls of the model for one request, 1 to 10,000,000. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_tokens: Option<i32>,
}

impl Default for AgenticLoop {
    fn default() -> Self {
        Self {
            max_steps: default_max_steps(),
            enable_tools: true,
            enable_delegation: true,
            max_seconds: default_max_seconds(),
            max_tokens: None,
        }
    }
}

/// What the agent remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.type == 'Redis') == has(self.redis)").message("type Redis needs the block redis, and only that type has it"))]
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
    /// The Redis server, with type Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<Redis>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            enabled: true,
            kind: MemoryType::Local,
            context_limit: default_context_limit(),
            max_sessions: default_max_sessions(),
            max_session_events: default_max_session_events(),
            redis: None,
        }
    }
}

/// Where memory lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemoryType {
    /// In the pod; gone with it.
    #[default]
    Local,
    /// In a Redis server, which all pods share.
    Redis,
}

/// The Redis server that remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Redis {
    /// Where its URL is (`redis://user:password@host:6379/0`).
    pub url_from: SecretSource,
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

/// What the agent says of itself to its peers, on its card (A2A).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct A2a {
    /// What it can do. Default: one skill, made from its description.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub skills: Vec<Skill>,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^\S+$"))]
    pub version: Option<String>,
    /// Who provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Address of an icon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 2048), regex(pattern = r"^https?://[^\s@]+$"))]
    pub icon_url: Option<String>,
    /// Address of its documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 2048), regex(pattern = r"^https?://[^\s@]+$"))]
    pub documentation_url: Option<String>,
}

/// One thing that the agent can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skill {
    /// Names it among the skills of the agent.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub id: String,
    /// Its name, for people.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// What it does, for people and models.
    #[schemars(length(min = 1, max = 2048))]
    pub description: String,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64)))]
    pub tags: Vec<String>,
    /// Questions that it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub examples: Vec<String>,
}

/// Who provides the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// Name of the organization.
    #[schemars(length(min = 1, max = 128))]
    pub organization: String,
    /// Its address.
    #[schemars(length(min = 8, max = 2048), regex(pattern = r"^https?://[^\s@]+$"))]
    pub url: String,
}

/// Where traces go (OpenTelemetry). They hold no prompts and no answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// Send traces. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The collector (OTLP over HTTP). Default: what `OTEL_EXPORTER_OTLP_ENDPOINT` of `env` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 2048), regex(pattern = r"^https?://[^\s@]+$"))]
    pub endpoint: Option<String>,
}

/// Overrides for the probes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Path of all probes. Default: /health for startup and liveness, /ready for readiness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^/\S*$"))]
    pub path: Option<String>,
    /// Seconds between two probes for liveness or readiness, 1 to 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: Option<i32>,
    /// Seconds until a probe fails, 1 to 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: Option<i32>,
    /// Failures in a row that count, for liveness and readiness, 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<i32>,
    /// Seconds that a start may take, 1 to 3600. Default 120.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub startup_seconds: Option<i32>,
}

fn yes() -> bool {
    true
}
fn default_max_steps() -> i32 {
    5
}
fn default_max_seconds() -> i32 {
    300
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_rules_and_code_reserve_the_same_names() {
        use kube::CustomResourceExt;
        let names: Vec<_> = RESERVED_ENV.iter().map(|name| format!("'{name}'")).collect();
        let starts: Vec<_> = RESERVED_PREFIXES
            .iter()
            .map(|start| format!(" && !e.name.startsWith('{start}')"))
            .collect();
        let rule = format!("self.all(e, !(e.name in [{}]){})", names.join(", "), starts.concat());
        let definition = serde_json::to_string(&Agent::crd()).expect("JSON");
        assert_eq!(definition.matches(&rule).count(), 2, "env and config.env");
        assert!(is_reserved_env("MCP_SERVER_A_URL") && is_reserved_env("PEER_AGENT_A_CARD_URL"));
        assert!(RESERVED_ENV.iter().all(|name| is_reserved_env(name)));
        assert!(is_reserved_env("MODEL_API_HEADER_0") && is_reserved_env("MCP_SERVER_A_HEADER_0"));
        assert!(!is_reserved_env("MODEL_NAME") && !is_reserved_env("MCP_TOOLS"));
        assert!(!is_reserved_env("OPENAI_API_KEY") && !is_reserved_env("OPENAI_BASE_URL"));
    }
}
