//! What the status of an Agent or MCPServer with `buildRef` remembers of its rollouts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The revision to go back to, and the one that was gone back from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// UID of the Deployment whose revisions these are. Another Deployment has none of them.
    pub deployment: String,
    /// The newest revision that was available with all its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good: Option<GoodRevision>,
    /// The revision that was not available within `progressDeadline`. It is not rolled out again until the image or the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedRevision>,
}

/// A revision that was available with all its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoodRevision {
    /// Hash of the image and the spec.
    pub revision: String,
    /// The image that its pods run.
    pub image: String,
    /// The ReplicaSet that has its pod template.
    pub replica_set: String,
    /// The ConfigMap with its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<String>,
}

/// A revision that was not available in time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedRevision {
    /// Hash of the image and the spec.
    pub revision: String,
    /// The image that its pods were to run.
    pub image: String,
    /// Why its pods did not become available, in CamelCase.
    pub reason: String,
    /// The same in one sentence, for people.
    pub message: String,
    /// Since when its Deployment said that it is late, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}
