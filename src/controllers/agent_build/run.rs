//! (pure) What a PipelineRun says about its build.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::pipeline_run::BUILD_KEY;
use super::template::{DIGEST_RESULTS, URL_RESULT};
use crate::api::keys;
use crate::cluster::reflector::View;

/// The most bytes that are kept of a message of Tekton.
const MAX_MESSAGE: usize = 1024;

/// The parts of a PipelineRun that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Name.
    pub name: String,
    /// UID of the AgentBuild that controls it.
    pub owner_uid: Option<String>,
    /// Name of the AgentBuild that controls it.
    pub owner_name: Option<String>,
    /// Its build key.
    pub key: Option<String>,
    /// The commit that it builds.
    pub commit: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether Tekton has looked at it.
    pub started: bool,
    /// How it stands.
    pub outcome: RunOutcome,
}

/// How a PipelineRun stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// It is not done.
    Running,
    /// It succeeded and pushed an image with this digest.
    Built {
        /// `sha256:…`
        digest: String,
        /// What it says the image is called.
        url: Option<String>,
    },
    /// It failed, or it names no usable digest.
    Failed {
        /// Reason, CamelCase.
        reason: String,
        /// One sentence.
        message: String,
    },
}

impl Run {
    /// Reads a PipelineRun. Nothing in it is trusted to be there or to be of the right type.
    #[must_use]
    pub fn read(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let owner =
            meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let annotation =
            |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let status = object.data.get("status").unwrap_or(&Value::Null);
        Self {
            name: meta.name.clone().unwrap_or_default(),
            owner_uid: owner.map(|owner| owner.uid.clone()),
            owner_name: owner.map(|owner| owner.name.clone()),
            key: annotation(BUILD_KEY),
            commit: annotation(keys::COMMIT),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            started: !status["startTime"].is_null() || condition(status).is_some(),
            outcome: outcome(status),
        }
    }
}

impl View for Run {
    type Object = DynamicObject;

    fn of(object: DynamicObject) -> Self {
        Self::read(&object)
    }
}

fn condition(status: &Value) -> Option<&Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Succeeded")
}

/// The condition `Succeeded` says how a run stands. Its status decides; unknown reasons change nothing.
fn outcome(status: &Value) -> RunOutcome {
    let Some(condition) = condition(status) else { return RunOutcome::Running };
    let text = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
    match condition["status"].as_str() {
        Some("True") => built(status),
        Some("False") => RunOutcome::Failed {
            reason: text("reason")
                .filter(|reason| is_reason(reason))
                .unwrap_or("BuildFailed")
                .to_owned(),
            message: shortened(text("message").unwrap_or("the PipelineRun failed")),
        },
        _ => RunOutcome::Running,
    }
}

fn built(status: &Value) -> RunOutcome {
    let results = status["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let result = |name: &str| {
        let found = results.iter().find(|result| result["name"] == name)?;
        found["value"].as_str().map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
    };
    match DIGEST_RESULTS.into_iter().find_map(result) {
        Some(digest) if is_digest(&digest) => RunOutcome::Built { digest, url: result(URL_RESULT) },
        Some(other) => RunOutcome::Failed {
            reason: "DigestInvalid".into(),
            message: shortened(&format!("the PipelineRun succeeded, but its digest is {other:?}")),
        },
        None => RunOutcome::Failed {
            reason: "DigestMissing".into(),
            message: "the PipelineRun succeeded without the result IMAGE_DIGEST".into(),
        },
    }
}

fn is_digest(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hex))
}

/// Whether the API server takes a text as the reason of a condition.
fn is_reason(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn shortened(text: &str) -> String {
    let end = (0..=MAX_MESSAGE.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "tests/run.rs"]
mod tests;
