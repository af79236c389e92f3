//! (pure) Why a PipelineRun failed, and who or what has to change before another one can succeed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::run::{Run, RunOutcome, shortened};
use super::template::FINDING_RESULT;
use crate::api::agent_build::{BuildFailure, BuildStep, FailureClass};
use convoke_core::text::printable;

/// The reason of a run that was stopped for a newer build key.
pub const SUPERSEDED: &str = "Superseded";
/// The reason of a run whose pod Pod Security refuses.
pub const POD_REFUSED: &str = "PodRefused";
/// The reason of a run whose source or image breaks a rule.
const POLICY_FAILED: &str = "PolicyFailed";
/// The reason of a run whose lock file cannot be installed as it is.
const LOCK_FILE_REFUSED: &str = "LockFileRefused";
/// The most steps that a status tells.
const MAX_STEPS: usize = 32;
/// The pause before the first retry. Each further one is four times as long.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause before a retry.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// What Tekton says of a TaskRun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskRun {
    /// The reason of its condition.
    pub reason: String,
    /// The message of its condition.
    pub message: String,
    /// Its pod.
    pub pod: Option<String>,
    /// What a step tells of why it failed: one line.
    pub finding: Option<String>,
    /// The first step that failed.
    pub failed: Option<FailedStep>,
    /// How long those of its steps took that ran.
    pub steps: Vec<BuildStep>,
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// Its name.
    pub name: String,
    /// Its exit code.
    pub exit_code: i32,
    /// Whether it was killed for its memory.
    pub out_of_memory: bool,
}

impl TaskRun {
    /// Reads a TaskRun. Nothing in it is trusted to be there or to be of the right type.
    #[must_use]
    pub fn read(object: &DynamicObject) -> Self {
        let status = object.data.get("status").unwrap_or(&Value::Null);
        let list = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default();
        let condition = list("conditions").iter().find(|one| one["type"] == "Succeeded");
        let text =
            |key: &str| condition.and_then(|one| one[key].as_str()).unwrap_or_default().to_owned();
        Self {
            reason: text("reason"),
            message: text("message"),
            pod: status["podName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            finding: list("results").iter().find_map(finding),
            failed: list("steps").iter().find_map(failed_step),
            steps: list("steps").iter().take(MAX_STEPS).filter_map(step).collect(),
        }
    }

    /// What keeps its pod from running, if it has not begun.
    #[must_use]
    pub fn held_up(&self) -> Option<String> {
        let is_held_up = HOLDS_UP.contains(&self.reason.as_str()) && !self.message.is_empty();
        is_held_up.then(|| shortened(&self.message))
    }
}

/// The result [`FINDING_RESULT`], as one line.
fn finding(result: &Value) -> Option<String> {
    let text = result["value"].as_str().filter(|_| result["name"] == FINDING_RESULT)?;
    Some(shortened(printable(text).trim())).filter(|text| !text.is_empty())
}

/// How long a step took. One that was skipped took no time.
fn step(step: &Value) -> Option<BuildStep> {
    if matches!(step["terminationReason"].as_str(), Some("Skipped")) {
        return None;
    }
    let time = |key: &str| step["terminated"][key].as_str()?.parse::<Timestamp>().ok();
    let seconds = time("finishedAt")?.duration_since(time("startedAt")?).as_secs();
    Some(BuildStep { name: shortened(step["name"].as_str()?), seconds: seconds.max(0) })
}

/// The step, if it failed by itself. Steps behind one that failed did not run, and Tekton gives them an exit code, too.
fn failed_step(step: &Value) -> Option<FailedStep> {
    let ended = &step["terminated"];
    let exit_code = i32::try_from(ended["exitCode"].as_i64()?).ok().filter(|code| *code != 0)?;
    if matches!(step["terminationReason"].as_str(), Some("Skipped" | "Continued")) {
        return None;
    }
    let name = step["name"].as_str()?.to_owned();
    Some(FailedStep { name, exit_code, out_of_memory: ended["reason"] == "OOMKilled" })
}

/// Class, reason, and what it means, of an exit code. Steps of one's own may use the same ones (deploy/pipelines/README.md).
fn of_exit_code(code: i32) -> Option<(FailureClass, &'static str, &'static str)> {
    use FailureClass::{Build, Infrastructure, Policy, Registry, Source};
    Some(match code {
        10 => (Source, "CommitNotFetched", "the commit cannot be fetched"),
        11 => (Source, "WrongCommit", "the server gave another commit"),
        12 => (Infrastructure, "GitUnreachable", "the Git server cannot be reached"),
        13 => (Source, "GitAccessDenied", "the Git server refuses access"),
        20 => (Source, "SubfolderMissing", "the commit has no such folder"),
        21 => (Source, "SubfolderOutside", "the folder lies outside of the repository"),
        22 => (Source, "DockerfileMissing", "the folder has no such Dockerfile"),
        23 => (Source, "FolderRefused", "the folder has what no layer takes"),
        24 => (Source, LOCK_FILE_REFUSED, "the packages of the lock file are not installed"),
        30 => (Build, "BuildFailed", "the image cannot be built"),
        31 => (Registry, "PushDenied", "the registry refuses the image"),
        32 => (Infrastructure, "RegistryUnreachable", "the registry cannot be reached"),
        33 => (Build, "ImageInvalid", "the image is not what a build makes"),
        34 => (Build, "BaseImageMissing", "the base image is not there, or may not be pulled"),
        35 => (Build, "BaseImageInvalid", "nothing can be appended to the base image"),
        36 => (Build, "TestsFailed", "the tests of the image failed"),
        37 => (Infrastructure, "IndexUnreachable", "the package index cannot be reached"),
        38 => (Build, "PipMissing", "the base image has no Python with pip"),
        40 => (Policy, POLICY_FAILED, "the source folder has secrets"),
        41 => (Policy, POLICY_FAILED, "lock files name packages with known vulnerabilities"),
        42 => (Policy, POLICY_FAILED, "the image has packages with known vulnerabilities"),
        43 => (Policy, POLICY_FAILED, "a scan or a check is not whole"),
        44..=49 => (Policy, POLICY_FAILED, "the image breaks a rule"),
        _ => return None,
    })
}

/// Reasons of a TaskRun whose pod does not run yet.
const HOLDS_UP: [&str; 4] =
    ["ExceededResourceQuota", "ExceededNodeResources", "Pending", "PodCreationFailed"];

/// Reasons of a TaskRun by which the cluster was at fault.
const OF_CLUSTER: [&str; 9] = [
    "PodEvicted",
    "TaskRunImagePullFailed",
    "ExceededNodeResources",
    "ExceededResourceQuota",
    "PodCreationFailed",
    "PodAdmissionFailed",
    "InitContainerFailed",
    "InitContainerOOM",
    "TaskRunStopSidecarFailed",
];

/// Why a run failed; `None` for one that did not. `task` is its TaskRun, if there is one.
#[must_use]
pub fn failure(run: &Run, task: Option<&TaskRun>) -> Option<BuildFailure> {
    let RunOutcome::Failed { reason, message } = &run.outcome else { return None };
    let step = task.and_then(|task| task.failed.as_ref());
    let Why { class, reason, message } = why(run, reason, message, task);
    Some(BuildFailure {
        pipeline_run: run.name.clone(),
        class,
        reason,
        // A step that was killed from outside did not fail by itself.
        step: step.filter(|_| class != FailureClass::Cancelled).map(|step| step.name.clone()),
        exit_code: step.filter(|_| class != FailureClass::Cancelled).map(|step| step.exit_code),
        message: shortened(&message),
        log: None,
        at: run.ended.or(run.began).or(run.created).map(|time| time.to_string()),
    })
}

struct Why {
    class: FailureClass,
    reason: String,
    message: String,
}

impl Why {
    fn new(class: FailureClass, reason: &str, message: impl Into<String>) -> Self {
        Self { class, reason: reason.to_owned(), message: message.into() }
    }
}

/// `reason` and `message` are those of the PipelineRun.
fn why(run: &Run, reason: &str, message: &str, task: Option<&TaskRun>) -> Why {
    use FailureClass::{Build, Cancelled, Infrastructure, Policy};
    let stopped = matches!(reason, "Cancelled" | "CancelledRunFinally" | "StoppedRunFinally");
    let stopped = stopped || run.stopping;
    if stopped && run.superseded {
        return Why::new(Cancelled, SUPERSEDED, "it was stopped for a newer commit");
    }
    if stopped {
        return Why::new(Cancelled, "Cancelled", "it was cancelled");
    }
    let Some(task) = task else {
        let class = if reason == "CreateRunFailed" { Infrastructure } else { Build };
        return Why::new(class, reason, message);
    };
    if reason == "PipelineRunTimeout" || task.reason == "TaskRunTimeout" {
        return Why::new(Build, "TimedOut", "it took longer than spec.timeout");
    }
    if task.message.contains("violates PodSecurity") {
        return Why::new(Policy, POD_REFUSED, task.message.as_str());
    }
    if OF_CLUSTER.contains(&task.reason.as_str()) {
        return Why::new(Infrastructure, &task.reason, task.message.as_str());
    }
    let Some(step) = &task.failed else {
        // All steps may be good, and the run not: a step has left out a result.
        let is_good = task.reason == "Succeeded";
        let reason = if task.reason.is_empty() || is_good { reason } else { &task.reason };
        let message = if task.message.is_empty() || is_good { message } else { &task.message };
        return Why::new(Build, reason, message);
    };
    let (name, code) = (&step.name, step.exit_code);
    if step.out_of_memory {
        let message = format!("step {name} needed more memory than its limit");
        return Why::new(Build, "OutOfMemory", message);
    }
    if matches!(code, 137 | 143) {
        let message = format!("step {name} was killed from outside (exit code {code})");
        return Why::new(Infrastructure, "StepKilled", message);
    }
    match of_exit_code(code) {
        Some((class, reason, what)) => {
            let tells = class == Policy || reason == LOCK_FILE_REFUSED;
            let finding = task.finding.as_ref().filter(|_| tells);
            let finding = finding.map(|text| format!(": {text}")).unwrap_or_default();
            let message = format!("step {name} failed with exit code {code}: {what}{finding}");
            Why::new(class, reason, message)
        }
        None => Why::new(Build, "StepFailed", format!("step {name} failed with exit code {code}")),
    }
}

/// When a build that failed is tried again by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Never: something has to change.
    Never,
    /// At this time.
    At(Timestamp),
}

/// When a build is tried again that failed so, with its `tries`-th try that was not stopped.
#[must_use]
pub fn retry(failure: &BuildFailure, tries: u32, limit: u32) -> Retry {
    let at = failure.at.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    let at = at.unwrap_or(Timestamp::UNIX_EPOCH);
    match failure.class {
        // The commit for which it was stopped is no longer the newest one.
        FailureClass::Cancelled if failure.reason == SUPERSEDED => Retry::At(at),
        FailureClass::Infrastructure if tries <= limit => {
            let factor = 4u32.saturating_pow(tries.saturating_sub(1));
            let pause = FIRST_PAUSE.saturating_mul(factor).min(MAX_PAUSE);
            Retry::At(at.checked_add(pause).unwrap_or(at))
        }
        _ => Retry::Never,
    }
}

#[cfg(test)]
#[path = "tests/failure.rs"]
mod tests;
