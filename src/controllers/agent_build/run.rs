//! (pure) What a PipelineRun says about its build.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::pipeline_run::BUILD_KEY;
use super::template::{DIGEST_RESULTS, URL_RESULT};
use crate::api::keys;
use crate::cluster::reflector::View;

/// Most bytes of a message of Tekton that are kept.
const MAX_MESSAGE: usize = 1024;

/// A PipelineRun, as far as it matters here.
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
    pub outcome: Outcome,
}

/// How a PipelineRun stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is not done.
    Running,
    /// It succeeded and pushed an image with this digest.
    Built {
        /// `sha256:…`
        digest: String,
        /// What it says the image is called.
        url: Option<String>,
    },
    /// It failed, or it says nothing of use.
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

/// Done is what the condition says; unknown reasons are read by the status alone.
fn outcome(status: &Value) -> Outcome {
    let Some(condition) = condition(status) else { return Outcome::Running };
    let text = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
    match condition["status"].as_str() {
        Some("True") => built(status),
        Some("False") => Outcome::Failed {
            reason: text("reason")
                .filter(|reason| is_reason(reason))
                .unwrap_or("BuildFailed")
                .to_owned(),
            message: shortened(text("message").unwrap_or("the PipelineRun failed")),
        },
        _ => Outcome::Running,
    }
}

fn built(status: &Value) -> Outcome {
    let results = status["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let result = |name: &str| {
        let found = results.iter().find(|result| result["name"] == name)?;
        found["value"].as_str().map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
    };
    match DIGEST_RESULTS.into_iter().find_map(result) {
        Some(digest) if is_digest(&digest) => Outcome::Built { digest, url: result(URL_RESULT) },
        Some(other) => Outcome::Failed {
            reason: "DigestInvalid".into(),
            message: shortened(&format!("the PipelineRun succeeded, but its digest is {other:?}")),
        },
        None => Outcome::Failed {
            reason: "DigestMissing".into(),
            message: "the PipelineRun succeeded without the result IMAGE_DIGEST".into(),
        },
    }
}

fn is_digest(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("sha256:").is_some_and(|digits| digits.len() == 64 && digits.bytes().all(hex))
}

/// What the API server takes as the reason of a condition.
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
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: Value) -> Run {
        let object = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": "r", "annotations": {BUILD_KEY: "k", keys::COMMIT: "c"}, "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "y"},
                {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "name": "b", "uid": "u", "controller": true},
            ]},
            "status": status,
        });
        Run::read(&serde_json::from_value(object).expect("an object"))
    }

    fn ended(status: &str, results: Value) -> Outcome {
        read(json!({"conditions": [{"type": "Succeeded", "status": status, "reason": "Why", "message": "because"}], "results": results})).outcome
    }

    #[test]
    fn b6_a_run_is_done_when_its_condition_says_so() {
        assert!(!read(json!(null)).started);
        let running = read(
            json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Succeeded", "status": "Unknown", "reason": "Running"}]}),
        );
        assert!(running.started);
        assert_eq!(running.outcome, Outcome::Running);
        assert_eq!(
            (running.owner_name.as_deref(), running.owner_uid.as_deref()),
            (Some("b"), Some("u"))
        );
        let digest = format!("sha256:{}", "a".repeat(64));
        for name in ["IMAGE_DIGEST", "digest"] {
            let results = json!([{"name": name, "value": format!("{digest}\n")}, {"name": "IMAGE_URL", "value": "r/i:t"}]);
            assert_eq!(
                ended("True", results),
                Outcome::Built { digest: digest.clone(), url: Some("r/i:t".into()) }
            );
        }
        assert_eq!(
            ended("False", json!([])),
            Outcome::Failed { reason: "Why".into(), message: "because".into() }
        );
    }

    #[test]
    fn b6_a_success_without_a_digest_is_a_failure() {
        for (results, want) in [
            (json!(null), "DigestMissing"),
            (json!([{"name": "IMAGE_DIGEST", "value": ["x"]}]), "DigestMissing"),
            (json!([{"name": "IMAGE_DIGEST", "value": "latest"}]), "DigestInvalid"),
            (json!([{"name": "IMAGE_DIGEST", "value": "sha256:abc"}]), "DigestInvalid"),
        ] {
            let Outcome::Failed { reason, .. } = ended("True", results.clone()) else {
                panic!("{results} is a success")
            };
            assert_eq!(reason, want);
        }
    }

    #[test]
    fn odd_objects_do_no_harm() {
        for status in [
            json!("x"),
            json!({"conditions": {}}),
            json!({"conditions": [1, {"type": "Succeeded", "status": 5}]}),
            json!([]),
        ] {
            assert_eq!(read(status).outcome, Outcome::Running);
        }
        let long = json!({"conditions": [{"type": "Succeeded", "status": "False", "reason": "not a reason", "message": "ä".repeat(4000)}]});
        let Outcome::Failed { reason, message } = read(long).outcome else { panic!("failed") };
        assert_eq!((reason.as_str(), message.len()), ("BuildFailed", 1024));
    }
}
