//! `ModelAPI`: a model endpoint, proxied (LiteLLM), hosted (Ollama) or external.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, EnvSource, EnvVar, HeaderFrom, KeyRef, Phase, Resources, Source};

/// Variables that Convoke sets: the first two in mode Hosted, the others in mode Proxy. The CEL rules below refuse them.
pub const RESERVED_ENV: &[&str] =
    &["OLLAMA_HOST", "OLLAMA_MODELS", "PROXY_API_BASE", "PROXY_API_KEY"];

/// A model endpoint that agents use by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "convoke.dev", version = "v1alpha1", kind = "ModelAPI", plural = "modelapis", shortname = "mapi",
    category = "convoke", namespaced, status = "ModelAPIStatus", derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63").message("the name must be a DNS label of at most 63 characters"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reachable", type_ = "string", json_path = ".status.conditions[?(@.type=='Reachable')].status"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.mode == 'Proxy') == has(self.proxy)").message("mode Proxy needs the block proxy, and only that mode has it"))]
#[x_kube(validation = Rule::new("(self.mode == 'Hosted') == has(self.hosted)").message("mode Hosted needs the block hosted, and only that mode has it"))]
#[x_kube(validation = Rule::new("(self.mode == 'External') == has(self.external)").message("mode External needs the block external, and only that mode has it"))]
#[x_kube(validation = Rule::new("self.mode != 'External' || !(has(self.image) || has(self.replicas) || has(self.resources) || (has(self.env) && self.env.size() > 0))").message("mode External runs no pods: image, replicas, resources and env do not apply"))]
#[x_kube(validation = Rule::new("!has(self.hosted) || !has(self.env) || self.env.all(e, !(e.name in ['OLLAMA_HOST', 'OLLAMA_MODELS']))").message("OLLAMA_HOST and OLLAMA_MODELS are set by Convoke").field_path(".env"))]
#[x_kube(validation = Rule::new("!has(self.proxy) || !has(self.env) || self.env.all(e, !(e.name in ['PROXY_API_BASE', 'PROXY_API_KEY']))").message("PROXY_API_BASE and PROXY_API_KEY are set by Convoke: they are proxy.apiBase and proxy.apiKeyFrom").field_path(".env"))]
pub struct ModelAPISpec {
    /// Proxy, Hosted or External.
    pub mode: ModelMode,
    /// LiteLLM in front of a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxySpec>,
    /// A model that runs in the cluster (Ollama).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<HostedSpec>,
    /// An endpoint that exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalSpec>,
    /// Image instead of the operator's default for the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^\S+$"))]
    pub image: Option<String>,
    /// How many pods. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// Compute resources of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Environment of the server. Reserved names are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Vec<EnvVar>,
}

/// Where the model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelMode {
    /// LiteLLM in front of a provider.
    Proxy,
    /// Ollama in the cluster.
    Hosted,
    /// Somewhere else.
    External,
}

/// LiteLLM in front of a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.configYaml) || !has(self.provider)").message("provider is for the configuration that Convoke writes: with configYaml, name the provider in there").field_path(".provider"))]
#[x_kube(validation = Rule::new("!has(self.apiKeyFrom) || has(self.provider) || has(self.apiBase) || has(self.configYaml) || (has(self.models) && self.models.size() > 0 && self.models.all(m, m.matches('^[^*/]+(/.*)?$')))").message("apiKeyFrom needs provider or apiBase, or models that each name one: otherwise an agent's model would choose who gets the key").field_path(".apiKeyFrom"))]
pub struct ProxySpec {
    /// Models that are served. None: all that the provider has (`*`); with `configYaml`, it is not known which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(min = 1, max = 253)))]
    pub models: Vec<String>,
    /// LiteLLM's name of the provider (`openai`, `anthropic`, `ollama`, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9_]+$"))]
    pub provider: Option<String>,
    /// Base URL of the provider, when it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 2048), regex(pattern = r"^https?://[^\s@]+$"))]
    pub api_base: Option<String>,
    /// Where the provider's key comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_from: Option<EnvSource>,
    /// LiteLLM's whole configuration, instead of the one that Convoke writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_yaml: Option<ConfigYaml>,
}

/// LiteLLM's configuration: exactly one of the three.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.inline), has(self.configMapKeyRef), has(self.secretKeyRef)].filter(x, x).size() == 1").message("exactly one of inline, configMapKeyRef and secretKeyRef is needed"))]
pub struct ConfigYaml {
    /// The YAML itself. No secrets: name variables, as `os.environ/PROXY_API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 65536))]
    pub inline: Option<String>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
}

/// A model that runs in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostedSpec {
    /// Name of the model, pulled before the server is ready.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"))]
    pub model: String,
    /// Where the weights are kept. Default: an emptyDir, gone with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// Where the weights are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// An existing PersistentVolumeClaim of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: Option<String>,
}

/// An endpoint that exists already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalSpec {
    /// Base URL (OpenAI-compatible), without a query: clients append `/v1/…` to it.
    #[schemars(
        length(min = 8, max = 2048),
        regex(pattern = r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$")
    )]
    pub url: String,
    /// Headers that agents send with each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub headers_from: Vec<HeaderFrom>,
}

/// What the endpoint is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelAPIStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Ready, Available, Progressing; SecretsWatched only when the pods read Secrets; Reachable once it was asked; Conflict,
    /// InputsFollowed, KeysWritten and AgentsListed only while something is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Where agents reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The models that it serves; `*` means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Pods that pass their readiness probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
