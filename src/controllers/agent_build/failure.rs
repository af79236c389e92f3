//! (pure) Why a PipelineRun failed, and who or what has to change before another one can succeed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::Value;

use super::run::{Run, RunOutcome, shortened};
use super::template::FINDING_RESULT;
use crate::api::agent_build::{BuildFailure, BuildStep, FailureClass, NewerBuild};
use convoke_core::text::printable;

/// The reason of a run that was stopped for a newer build key.
pub const SUPERSEDED: &str = "Superseded";
/// The reason of a run whose pod Pod Security refuses.
pub const POD_REFUSED: &str = "PodRefused";
/// The reason of a run whose source or image breaks a rule.
const POLICY_FAILED: &str = "PolicyFailed";
/// The reason of a run whose lock file cannot be installed as it is.
const LOCK_FILE_REFUSED: &str = "LockFileRefused";
/// The reason of a run whose pod was deleted, as when its node is drained.
pub const POD_DELETED: &str = "PodDeleted";
/// The reason of a run of which a step failed with an exit code that says nothing.
pub const STEP_FAILED: &str = "StepFailed";
/// The reason of a run that took too long.
const TIMED_OUT: &str = "TimedOut";
/// What exit code 32 means of a step that builds.
const BASE_UNREACHABLE: &str =
    "the registry of a base image cannot be reached; a wrong name after FROM does that, too";
/// What exit code 39 means.
const NO_TLS: &str = "a registry speaks plain HTTP, or its certificate is not trusted; output.insecure: true is for a registry of the image without TLS";
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
    /// Whether Tekton says that it has failed. Otherwise it goes on, or is that of another run.
    pub has_failed: bool,
    /// The first step that failed.
    pub failed: Option<FailedStep>,
    /// Whether steps behind that one ended with an error of their own. Tekton skips them: so somebody has ended the whole pod.
    pub is_killed: bool,
    /// How long those of its steps took that ran, up to the one that failed.
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
        let mut failed = list("steps").iter().filter_map(failed_step);
        let first_failed = list("steps").iter().position(|step| failed_step(step).is_some());
        let ran = first_failed.map_or(MAX_STEPS, |at| at.saturating_add(1).min(MAX_STEPS));
        let text =
            |key: &str| condition.and_then(|one| one[key].as_str()).unwrap_or_default().to_owned();
        Self {
            reason: text("reason"),
            message: text("message"),
            pod: status["podName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            finding: list("results").iter().find_map(finding),
            has_failed: condition.is_some_and(|one| one["status"] == "False"),
            failed: failed.next(),
            is_killed: failed.next().is_some(),
            steps: list("steps").iter().take(ran).filter_map(step).collect(),
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
        28 => (Infrastructure, "DiskFull", "no space is left on the disk or the volume"),
        30 => (Build, "BuildFailed", "the image cannot be built"),
        31 => (Registry, "PushDenied", "the registry refuses the image"),
        32 => (Infrastructure, "RegistryUnreachable", "the registry cannot be reached"),
        33 => (Build, "ImageInvalid", "the image is not what a build makes"),
        34 => (Build, "BaseImageMissing", "the base image is not there, or may not be pulled"),
        35 => (Build, "BaseImageInvalid", "nothing can be appended to the base image"),
        36 => (Build, "TestsFailed", "the tests of the image failed"),
        37 => (Infrastructure, "IndexUnreachable", "the package index cannot be reached"),
        38 => (Build, "PipMissing", "the base image has no Python with pip"),
        39 => (Registry, "RegistryWithoutTls", NO_TLS),
        40 => (Policy, POLICY_FAILED, "the source folder has secrets"),
        41 => (Policy, POLICY_FAILED, "lock files name packages with known vulnerabilities"),
        42 => (Policy, POLICY_FAILED, "the image has packages with known vulnerabilities"),
        43 => (Policy, POLICY_FAILED, "a scan or a check is not whole"),
        44..=49 => (Policy, POLICY_FAILED, "the image breaks a rule"),
        _ => return None,
    })
}

/// The same failure, when it turns out that the pod was deleted: a step that was killed for that has an exit code as if it had failed.
#[must_use]
pub fn of_deleted_pod(failure: BuildFailure) -> BuildFailure {
    let step = failure.step.as_deref().unwrap_or_default();
    let message = format!("its pod was deleted or evicted in step {step}");
    let (class, reason) = (FailureClass::Infrastructure, POD_DELETED.to_owned());
    BuildFailure { class, reason, message, exit_code: None, ..failure }
}

/// Whether other credentials may change the outcome. Some servers say that a repository is not there when they mean that it may not be read.
#[must_use]
pub fn may_be_of_credentials(failure: &BuildFailure) -> bool {
    let reasons = [
        "CommitNotFetched",
        "GitAccessDenied",
        "PushDenied",
        "BaseImageMissing",
        // Its authority is in the Secret.
        "RegistryWithoutTls",
    ];
    reasons.contains(&failure.reason.as_str())
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
    let ended_itself =
        class != FailureClass::Cancelled && ![TIMED_OUT, POD_DELETED].contains(&reason.as_str());
    Some(BuildFailure {
        pipeline_run: run.name.clone(),
        class,
        reason,
        // A step that was killed from outside did not fail by itself.
        step: step.filter(|_| class != FailureClass::Cancelled).map(|step| step.name.clone()),
        exit_code: step.filter(|_| ended_itself).map(|step| step.exit_code),
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
    if stopped && let Some(newer) = &run.superseded_by {
        let message = format!("it was stopped for {}", title(newer));
        return Why::new(Cancelled, SUPERSEDED, message);
    }
    if stopped {
        return Why::new(Cancelled, "Cancelled", "it was cancelled");
    }
    let is_late = reason == "PipelineRunTimeout";
    let Some(task) = task else {
        if is_late {
            return Why::new(Build, TIMED_OUT, "it took longer than spec.timeout");
        }
        let class = if reason == "CreateRunFailed" { Infrastructure } else { Build };
        return Why::new(class, reason, message);
    };
    if is_late || task.reason == "TaskRunTimeout" {
        let step = task.failed.as_ref().map(|step| format!(", in step {}", step.name));
        let message = format!("it took longer than spec.timeout{}", step.unwrap_or_default());
        return Why::new(Build, TIMED_OUT, message);
    }
    if !task.has_failed && task.reason != "Succeeded" {
        return Why::new(Infrastructure, reason, message);
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
    if task.is_killed {
        let message = format!("its pod was deleted or evicted in step {name}");
        return Why::new(Infrastructure, POD_DELETED, message);
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
            // These steps ask no other registry.
            let of_base = code == 32 && ["build", "append"].contains(&name.as_str());
            let what = if of_base { BASE_UNREACHABLE } else { what };
            let message = format!("step {name} failed with exit code {code}: {what}{finding}");
            Why::new(class, reason, message)
        }
        None => Why::new(Build, STEP_FAILED, format!("step {name} failed with exit code {code}")),
    }
}

/// What a build was stopped for, in a sentence.
#[must_use]
pub fn title(newer: &NewerBuild) -> String {
    let start = |text: &str| printable(text).chars().take(12).collect::<String>();
    match &newer.commit {
        Some(commit) => format!("the build of commit {}", start(commit)),
        None => format!("the build key {}", start(&newer.key)),
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
