//! `MCPServer`: a tool server, from a package, a string of Python, an image, or remote.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, EnvVar, HeaderFrom, NameRef, Phase, Resources, Source};
use super::rollout::RolloutStatus;

/// Variables that Convoke sets: `PORT` always, the others with `toolsString` and with a package from PyPI. The CEL
/// rules below refuse them.
pub const RESERVED_ENV: &[&str] = &["PORT", "MCP_TOOLS_STRING", "PYTHONPATH"];

/// A tool server (Model Context Protocol) that agents use by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "convoke.dev", version = "v1alpha1", kind = "MCPServer", plural = "mcpservers", shortname = "mcps",
    category = "convoke", namespaced, status = "MCPServerStatus", derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63").message("the name must be a DNS label of at most 63 characters"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.__package__), has(self.toolsString), has(self.image), has(self.buildRef), has(self.remote)].filter(x, x).size() == 1").message("exactly one of package, toolsString, image, buildRef and remote is needed"))]
#[x_kube(validation = Rule::new("!has(self.remote) || !(has(self.replicas) || has(self.resources) || has(self.progressDeadline) || (has(self.env) && self.env.size() > 0))").message("a remote server runs no pods: replicas, resources, progressDeadline and env do not apply"))]
#[x_kube(validation = Rule::new("!has(self.transport) || self.transport != 'Stdio' || has(self.__package__)").message("Stdio is for a package; every other server must serve MCP over HTTP by itself: leave transport out").field_path(".transport"))]
#[x_kube(validation = Rule::new("!has(self.toolsString) || bytes(self.toolsString).size() <= 65536").message("toolsString has more than 65536 bytes").field_path(".toolsString"))]
#[x_kube(validation = Rule::new("!has(self.toolsString) || !has(self.env) || self.env.all(e, e.name != 'MCP_TOOLS_STRING')").message("MCP_TOOLS_STRING is set by Convoke: it is toolsString").field_path(".env"))]
#[x_kube(validation = Rule::new("!has(self.__package__) || self.__package__.registry != 'PyPI' || !has(self.env) || self.env.all(e, e.name != 'PYTHONPATH')").message("PYTHONPATH is set by Convoke: it is where a package from PyPI is installed").field_path(".env"))]
pub struct MCPServerSpec {
    /// A package from a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<PackageSource>,
    /// Python functions that become tools, run on the agent image; at most 64 KiB. In Git, `toolsStringFile: tools.py` reads them from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub tools_string: Option<String>,
    /// An image that serves MCP over HTTP on port 8000, path /mcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// The image that an AgentBuild makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_ref: Option<NameRef>,
    /// A server that exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteSource>,
    /// How the server speaks MCP. Default StreamableHTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Environment of the container. Reserved names are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(e, e.name != 'PORT')").message("PORT is set by Convoke: every server listens on 8000"))]
    pub env: Vec<EnvVar>,
    /// Compute resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// How many pods. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// How long a rollout may make no progress, at least 30s. With `buildRef`, the last good revision then runs again. Default 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('30s') && duration(self) <= duration('24h')").message("progressDeadline must be at least 30s and at most 24h"))]
    pub progress_deadline: Option<String>,
}

/// A package from a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageSource {
    /// PyPI or Npm.
    pub registry: PackageRegistry,
    /// Name of the package.
    #[schemars(
        length(min = 1, max = 214),
        regex(pattern = r"^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$")
    )]
    pub name: String,
    /// Exact version. Without one the newest is installed at each start (a warning).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9.+_-]*$"))]
    pub version: Option<String>,
    /// The program that it installs and that is run. Default: the name of the package, without its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 214), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub program: Option<String>,
    /// Arguments of the program, at most 64. They are never part of a shell script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub args: Vec<String>,
}

/// A registry of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PackageRegistry {
    /// Python packages.
    PyPI,
    /// Node packages.
    Npm,
}

/// How a server speaks MCP: `StreamableHTTP`, the default, or `Stdio`, for packages, which Convoke bridges to HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Transport {
    /// Over HTTP on port 8000, path /mcp.
    StreamableHTTP,
    /// On its standard input and output.
    Stdio,
}

/// A server that exists already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteSource {
    /// URL of the MCP endpoint.
    #[schemars(
        length(min = 8, max = 2048),
        regex(pattern = r"^https?://[^\s/?#@]+([/?][^\s#@]*)?$")
    )]
    pub url: String,
    /// Headers that agents send with each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub headers_from: Vec<HeaderFrom>,
}

/// What the server is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPServerStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Ready, Available, Progressing, ImageResolved; SecretsWatched only when the pods read Secrets; ToolsDiscovered once the
    /// tools were asked for; ToolsChanged, Conflict and InputsFollowed only while something is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where agents reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The image that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Pods that pass their readiness probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// The first 256 of its tools by name, as they were when it was last asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub tools: Vec<ToolStatus>,
    /// How many tools it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<i32>,
    /// Hash of the names and hashes of all tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_hash: Option<String>,
    /// What the tools are those of: the generation of the spec and, with pods, their revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_revision: Option<String>,
    /// What it says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<ServerInfo>,
    /// The revision to go back to, with `buildRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A tool of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolStatus {
    /// Its name.
    pub name: String,
    /// What it does, in its own words; at most 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Hash of its description, its schemas and its annotations.
    pub schema_hash: String,
}

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerInfo {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version of the protocol (MCP) in which its tools were listed.
    pub protocol_version: String,
}
