//! Types that several kinds share, and corrections of the generated CRDs.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// DNS label (RFC 1123). The name of every object of ours must be one.
pub const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Go duration without fractions ("30s", "1m30s", "2h").
pub const DURATION: &str = "^([0-9]+(ms|s|m|h))+$";

/// The message for a literal value of a variable whose name says that it is a secret. The line of the value is never shown.
pub const LITERAL_SECRET: &str = "a literal value under such a name is taken for a secret: use valueFrom.secretKeyRef, or configMapKeyRef for what is none";

/// A reference to an object of the same namespace. In Git a plain string means `{name: <string>}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct NameRef {
    /// Name of the object, in this namespace.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

/// One key of a Secret or ConfigMap of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    /// Name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Start without it when it is missing (default false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Where the value of an environment variable comes from: exactly one of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvSource {
    /// A key of a Secret. The value never leaves the Secret: the pod reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A key of a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
}

/// One environment variable: a literal `value`, or `valueFrom`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("!(has(self.value) && has(self.valueFrom))").message("value and valueFrom exclude each other"))]
#[x_kube(validation = kube::core::Rule::new("!has(self.valueFrom) || (has(self.valueFrom.secretKeyRef) != has(self.valueFrom.configMapKeyRef))").message("valueFrom needs exactly one of secretKeyRef and configMapKeyRef"))]
#[x_kube(validation = kube::core::Rule::new("!has(self.value) || self.value == '' || !self.name.matches('(?i)(^|_)(KEY|TOKEN|PASSWORD|SECRET)$')").message(LITERAL_SECRET).field_path(".value"))]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Literal value. Keep secrets out of it: use `valueFrom.secretKeyRef`. Refused under a name like `API_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub value: Option<String>,
    /// Reference to a key of a Secret or ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// A value that is in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretSource {
    /// The key of the Secret. The value never leaves the Secret: the pod reads it.
    pub secret_key_ref: KeyRef,
}

/// A header of the requests that agents send, with its value in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube::core::Rule::new("!self.name.matches('(?i)^(connection|content-length|content-type|host|te|trailer|transfer-encoding|upgrade)$')").message("this header belongs to HTTP itself: every client sets its own").field_path(".name"))]
pub struct HeaderFrom {
    /// Name of the header.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"))]
    pub name: String,
    /// The key of the Secret. The value never leaves the Secret: the agents' pods read it.
    pub secret_key_ref: KeyRef,
}

/// Compute resources of the main container, as in a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Upper bounds, by resource name (`cpu`, `memory`, …).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, IntOrString>,
    /// Guaranteed amounts, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, IntOrString>,
}

/// Where an object came from: the coordinate as of the commit that last changed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Name of the GitSync.
    pub sync: String,
    /// Commit that last changed the object.
    pub commit: String,
    /// File, relative to the root of the repository.
    pub path: String,
    /// Line of the document, from 1.
    pub line: i64,
}

/// The objects that a resource is wired to, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkedResources {
    /// The ModelAPI.
    #[serde(default, rename = "modelAPI", skip_serializing_if = "Option::is_none")]
    pub model_api: Option<String>,
    /// The MCPServers, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// The peer agents, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// The AgentBuild that makes the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

/// What a pod-running object is doing, in one word for people. Conditions are the truth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Accepted; its pods are not available yet.
    #[default]
    Pending,
    /// Something that it needs is missing or not ready.
    Waiting,
    /// All replicas of the newest revision are available.
    Ready,
    /// It cannot go on without a change.
    Failed,
    /// Suspended, or scaled to zero.
    Stopped,
}

/// Marks the list of conditions as a map by `type`, so that several managers can apply conditions.
fn list_map_by_type(schema: &mut JSONSchemaProps) {
    if let Some(properties) = &mut schema.properties
        && let Some(conditions) = properties.get_mut("conditions")
    {
        conditions.x_kubernetes_list_type = Some("map".into());
        conditions.x_kubernetes_list_map_keys = Some(vec!["type".into()]);
    }
}

/// Corrects a generated CRD: the list of conditions becomes a map, and the `status` of the CRD itself is removed.
pub fn finish(crd: &mut CustomResourceDefinition) {
    crd.status = None;
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else {
            continue;
        };
        if let Some(status) = root.properties.as_mut().and_then(|p| p.get_mut("status")) {
            list_map_by_type(status);
        }
    }
}
