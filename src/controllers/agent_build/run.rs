//! (pure) What a PipelineRun says about its build.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::needs::{self, Level};
use super::pipeline_run::{
    ATTEMPT, BUILD_KEY, IMAGE, SUPERSEDED_BY, SUPERSEDED_BY_COMMIT, TREE, without_tag,
};
use super::place::owner_elsewhere;
use super::signing::seal::{self, SEAL};
use super::signing::statement;
use super::template::{BASE_RESULT, CACHE_RESULT, DIGEST_RESULTS, SBOM_RESULT, URL_RESULT};
use crate::api::agent_build::NewerBuild;
use crate::api::keys;
use crate::cluster::reflector::View;
use convoke_core::time::parse_duration;

/// Annotation on a PipelineRun whose image is attested: the digest of the envelope.
pub const PROVENANCE: &str = "convoke.dev/provenance";
/// Annotation on a PipelineRun: a digest of the Secrets that its credentials come from.
pub const CREDENTIALS: &str = "convoke.dev/credentials-digest";
/// The most bytes that are kept of a message of Tekton.
const MAX_MESSAGE: usize = 1024;

/// The parts of a PipelineRun that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The namespace of its AgentBuild.
    pub home: String,
    /// UID of its AgentBuild.
    pub owner_uid: Option<String>,
    /// Name of its AgentBuild.
    pub owner_name: Option<String>,
    /// Its build key.
    pub key: Option<String>,
    /// The commit that it builds.
    pub commit: Option<String>,
    /// The id of the source folder's tree in that commit.
    pub tree: Option<String>,
    /// Which try of its key it is, from 1.
    pub attempt: u32,
    /// Registry and name of the image that it was asked for.
    pub image: Option<String>,
    /// The tag that it pushes.
    pub tag: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When Tekton began.
    pub began: Option<Timestamp>,
    /// When its time is over, if it has begun and has a limit.
    pub deadline: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Whether Tekton has looked at it.
    pub started: bool,
    /// Whether it was told to stop.
    pub stopping: bool,
    /// The build for which it was told to stop, if there is one.
    pub superseded_by: Option<NewerBuild>,
    /// Whether Tekton waits to be told that its Secrets are there.
    pub held: bool,
    /// The Secrets that it mounts, by workspace.
    pub secrets: BTreeMap<String, String>,
    /// A digest of the Secrets that the build named when it was made.
    pub credentials: Option<String>,
    /// Its TaskRun.
    pub task_run: Option<String>,
    /// The digest of the base image, if it tells one.
    pub base_digest: Option<String>,
    /// The digest of the list of packages that is attached to the image, if it tells one.
    pub sbom_digest: Option<String>,
    /// What Pod Security must admit for its pod.
    pub needs: Level,
    /// The hash of its spec, if it is to be attested.
    pub spec: Option<String>,
    /// What says that the operator has made it with that spec.
    pub seal: Option<String>,
    /// The digest of the layers that it has kept, if it tells one.
    pub cache_digest: Option<String>,
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
    },
    /// The same, and what it has built is to be attested first.
    Unattested {
        /// `sha256:…`
        digest: String,
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
    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.outcome == RunOutcome::Running
    }

    /// Whether it is in another namespace than its AgentBuild.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.namespace != self.home
    }

    /// Its name, for somebody who looks into the namespace `home`.
    #[must_use]
    pub fn title(&self, home: &str) -> String {
        if self.namespace == home {
            return self.name.clone();
        }
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it has succeeded, and what it has built is not attested yet.
    #[must_use]
    pub fn is_unattested(&self) -> bool {
        matches!(self.outcome, RunOutcome::Unattested { .. })
    }

    /// Reads a PipelineRun. Nothing in it is trusted to be there or to be of the right type.
    #[must_use]
    pub fn read(object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let owner =
            meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let owner = owner.map(|owner| (owner.uid.as_str(), owner.name.as_str()));
        let annotation =
            |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let status = object.data.get("status").unwrap_or(&Value::Null);
        let time = |key: &str| status[key].as_str()?.parse().ok();
        let (image, key) = (annotation(IMAGE), annotation(BUILD_KEY));
        let attempt = annotation(ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1);
        let elsewhere = owner_elsewhere(meta, key.as_deref(), attempt).filter(|_| owner.is_none());
        let owner = owner.or_else(|| elsewhere.map(|owner| (owner.uid, owner.name)));
        let namespace = meta.namespace.clone().unwrap_or_default();
        let is_asked = statement::is_asked(&object.data["spec"]);
        let waits = is_asked && annotation(PROVENANCE).is_none();
        Self {
            name: meta.name.clone().unwrap_or_default(),
            home: elsewhere.map_or_else(|| namespace.clone(), |owner| owner.namespace.to_owned()),
            namespace,
            owner_uid: owner.map(|(uid, _)| uid.to_owned()),
            owner_name: owner.map(|(_, name)| name.to_owned()),
            key,
            commit: annotation(keys::COMMIT),
            tree: annotation(TREE),
            attempt,
            tag: parameter(&object.data["spec"], "tag"),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            began: time("startTime"),
            deadline: deadline(time("startTime"), &object.data["spec"]),
            ended: time("completionTime"),
            started: !status["startTime"].is_null() || condition(status).is_some(),
            stopping: object.data["spec"]["status"]
                .as_str()
                .is_some_and(|word| STOPS.contains(&word)),
            superseded_by: annotation(SUPERSEDED_BY).map(|key| NewerBuild {
                key: shortened(&key),
                commit: annotation(SUPERSEDED_BY_COMMIT).map(|commit| shortened(&commit)),
            }),
            held: object.data["spec"]["status"] == HELD,
            secrets: secrets(&object.data["spec"]),
            credentials: annotation(CREDENTIALS),
            task_run: task_run(status).map(str::to_owned),
            base_digest: digest(status, BASE_RESULT),
            sbom_digest: digest(status, SBOM_RESULT),
            needs: needs::of_run(&object.data["spec"]),
            spec: is_asked.then(|| seal::hash(&object.data["spec"])),
            seal: annotation(SEAL),
            cache_digest: digest(status, CACHE_RESULT),
            outcome: match outcome(status, image.as_deref()) {
                RunOutcome::Built { digest } if waits => RunOutcome::Unattested { digest },
                outcome => outcome,
            },
            image,
        }
    }
}

/// When the time of a run is over that began then.
fn deadline(began: Option<Timestamp>, spec: &Value) -> Option<Timestamp> {
    let limit = parse_duration(spec["timeouts"]["pipeline"].as_str()?)?;
    began?.checked_add(limit).ok()
}

#[cfg(test)]
impl Run {
    /// The build for which runs of tests are stopped.
    pub(super) fn newer() -> NewerBuild {
        NewerBuild { key: "2".repeat(64), commit: Some("d".repeat(40)) }
    }

    /// A run of `team/reviewer` in its namespace that has begun, and of which nothing else is known. For tests.
    pub(super) fn sample(outcome: RunOutcome) -> Self {
        Self {
            name: "reviewer-1".into(),
            namespace: "team".into(),
            home: "team".into(),
            owner_uid: Some("uid".into()),
            owner_name: Some("reviewer".into()),
            key: None,
            commit: None,
            tree: None,
            attempt: 1,
            image: Some("r/i".into()),
            tag: None,
            created: None,
            began: None,
            deadline: None,
            ended: None,
            started: true,
            stopping: false,
            superseded_by: None,
            held: false,
            secrets: BTreeMap::new(),
            credentials: None,
            task_run: None,
            base_digest: None,
            sbom_digest: None,
            needs: Level::Baseline,
            spec: None,
            seal: None,
            cache_digest: None,
            outcome,
        }
    }
}

impl View for Run {
    type Object = DynamicObject;

    fn of(object: DynamicObject) -> Self {
        Self::read(&object)
    }
}

/// The words in the spec of a PipelineRun that stop it.
const STOPS: [&str; 3] = ["Cancelled", "CancelledRunFinally", "StoppedRunFinally"];

/// The word in the spec of a PipelineRun by which Tekton does not begin yet.
pub const HELD: &str = "PipelineRunPending";

/// The Secrets of a spec, by workspace.
fn secrets(spec: &Value) -> BTreeMap<String, String> {
    let workspaces = spec["workspaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |workspace: &Value| {
        let secret = workspace["secret"]["secretName"].as_str()?;
        Some((workspace["name"].as_str()?.to_owned(), secret.to_owned()))
    };
    workspaces.iter().filter_map(one).collect()
}

/// The value of a parameter of a spec.
fn parameter(spec: &Value, name: &str) -> Option<String> {
    let found = spec["params"].as_array()?.iter().find(|one| one["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

/// The name of the one TaskRun.
fn task_run(status: &Value) -> Option<&str> {
    let children = status["childReferences"].as_array()?;
    children.iter().find(|child| child["kind"] == "TaskRun")?["name"].as_str()
}

fn condition(status: &Value) -> Option<&Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Succeeded")
}

/// The condition `Succeeded` says how a run stands. Its status decides; unknown reasons change nothing.
fn outcome(status: &Value, image: Option<&str>) -> RunOutcome {
    let Some(condition) = condition(status) else { return RunOutcome::Running };
    let text = |key: &str| condition[key].as_str().filter(|text| !text.is_empty());
    match condition["status"].as_str() {
        Some("True") => built(status, image),
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

/// A result, if it is not empty.
fn result<'a>(status: &'a Value, name: &str) -> Option<&'a str> {
    let found = status["results"].as_array()?.iter().find(|result| result["name"] == name)?;
    found["value"].as_str().map(str::trim).filter(|value| !value.is_empty())
}

/// A result that is a digest.
fn digest(status: &Value, name: &str) -> Option<String> {
    result(status, name).filter(|digest| is_digest(digest)).map(str::to_owned)
}

/// `image` is what the run was asked for.
fn built(status: &Value, image: Option<&str>) -> RunOutcome {
    let result = |name: &str| result(status, name);
    let failed = |reason: &str, message: String| RunOutcome::Failed {
        reason: reason.into(),
        message: shortened(&message),
    };
    match (DIGEST_RESULTS.into_iter().find_map(result), result(URL_RESULT)) {
        (None, _) => failed(
            "DigestMissing",
            "the PipelineRun succeeded without the result IMAGE_DIGEST".into(),
        ),
        (Some(digest), _) if !is_digest(digest) => failed(
            "DigestInvalid",
            format!("the PipelineRun succeeded, but its digest is {digest:?}"),
        ),
        (_, Some(url)) if image.is_some_and(|image| without_tag(url) != image) => {
            let want = image.unwrap_or_default();
            failed(
                "ImageMismatch",
                format!(
                    "the PipelineRun says that it pushed {url}, but spec.output asks for {want}"
                ),
            )
        }
        (Some(digest), _) => RunOutcome::Built { digest: digest.to_owned() },
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

/// The beginning of a message, within a bound.
#[must_use]
pub fn shortened(text: &str) -> String {
    let end = (0..=MAX_MESSAGE.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "tests/run.rs"]
mod tests;
