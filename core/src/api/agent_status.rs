//! The status of an `Agent`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, LinkedResources, Phase, Source};
use super::rollout::RolloutStatus;

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
    /// read Secrets; CardRead once the card was asked for; Conflict, ModelServed, ModelReachable, SessionsShared, ToolsAvailable,
    /// ConfigurationKept, InputsFollowed and KeysWritten only while something is wrong.
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
    /// What its card (A2A) said when a pod was last asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<CardStatus>,
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

/// What the card of an agent says. Long texts are cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CardStatus {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version of the protocol (A2A) that it prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// The address that it prefers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What it can do, at most 32 skills.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub skills: Vec<CardSkill>,
    /// Hash of the whole card without its own addresses.
    pub hash: String,
    /// Hash of the configuration that the pod has loaded, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// Commit of the configuration that the pod has loaded, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_commit: Option<String>,
}

/// A skill on a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CardSkill {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}
