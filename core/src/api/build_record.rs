//! What the status of an AgentBuild tells of builds that ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who or what has to change before a build that failed can succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureClass {
    /// The commit cannot be fetched, or lacks what is built.
    Source,
    /// What is built: the Dockerfile, a test, a timeout.
    Build,
    /// The registry refuses the image.
    Registry,
    /// A rule forbids the pod or the image.
    Policy,
    /// The cluster or the network. It is tried again by itself.
    Infrastructure,
    /// Somebody cancelled it.
    Cancelled,
}

/// Why a build failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildFailure {
    /// The PipelineRun that failed.
    pub pipeline_run: String,
    /// Who or what has to change.
    pub class: FailureClass,
    /// Why, in CamelCase.
    pub reason: String,
    /// The step of the template that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The exit code of that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// One sentence for people.
    pub message: String,
    /// The end of the log of that step, at most 4 KiB, without what looks like a secret. Only where the operator may read logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// When it failed, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A step of a build that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildStep {
    /// Its name.
    pub name: String,
    /// Whole seconds from its begin to its end.
    pub seconds: i64,
}

/// How a build ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BuildResult {
    /// It made an image.
    Succeeded,
    /// It failed.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
    /// It was stopped for a newer build key.
    Superseded,
}

/// The build for which an older one was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewerBuild {
    /// Its key.
    pub key: String,
    /// The commit that wanted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A build that ended, or an image that was found in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildRecord {
    /// Its PipelineRun. None if the image was found in the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_run: Option<String>,
    /// Its key.
    pub key: String,
    /// How it ended.
    pub result: BuildResult,
    /// The commit that it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The id of the source folder in that commit: `git rev-parse COMMIT:FOLDER`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// For what it was stopped, with the result Superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<NewerBuild>,
    /// `registry/name@sha256:…`, if it made an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The digest of the base image, if the build tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_digest: Option<String>,
    /// The digest of the list of packages (SBOM) that the build attached to the image, if it tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sbom_digest: Option<String>,
    /// When it began, or when the image was found, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Whole seconds from its begin to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}
