//! (pure) Phase and conditions of the status of an AgentBuild, in short.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::run::Run;
use crate::api::agent_build::{AgentBuildStatus, BuildPhase};
use crate::controllers::reason::Reason;

/// Phase and conditions of a status.
pub struct Summary {
    /// The phase.
    pub phase: BuildPhase,
    /// The status of the condition `Ready`.
    pub ready: &'static str,
    /// The reason of all its conditions.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Whether the condition `Stalled` is set.
    pub stalled: bool,
    /// Whether it goes on by itself although nothing is built now.
    pub goes_on: bool,
}

impl Summary {
    /// The image is not there.
    #[must_use]
    pub fn not_ready(phase: BuildPhase, reason: &str, message: String) -> Self {
        let reason = reason.to_owned();
        Self { phase, ready: "False", reason, message, stalled: false, goes_on: false }
    }

    /// The image is not there, and does not come without a change.
    #[must_use]
    pub fn stalled(phase: BuildPhase, reason: &str, message: String) -> Self {
        Self { stalled: true, ..Self::not_ready(phase, reason, message) }
    }

    /// Nothing is built now, and the build begins by itself.
    #[must_use]
    pub fn begins(reason: Reason, message: String) -> Self {
        let waits = Self::not_ready(BuildPhase::Pending, reason.as_str(), message);
        Self { goes_on: true, ..waits }
    }

    /// The image is there.
    #[must_use]
    pub fn built(image: &str) -> Self {
        let (phase, message) = (BuildPhase::Succeeded, format!("built {image}"));
        Self { ready: "True", ..Self::not_ready(phase, "Built", message) }
    }

    /// The image was there before anything was built.
    #[must_use]
    pub fn found(image: &str) -> Self {
        let message = format!("found {image} in the registry, where an earlier build has left it");
        Self { message, ..Self::built(image) }
    }

    /// The AgentBuild `name` was cancelled before it began.
    #[must_use]
    pub fn cancelled(namespace: &str, name: &str) -> Self {
        let command = rebuild(namespace, name);
        let message = format!("it was cancelled before it began; to build it: {command}");
        Self::stalled(BuildPhase::Failed, "Cancelled", message)
    }

    /// No commit starts a build of the AgentBuild `name`. `is_built`: an image of another key is there.
    #[must_use]
    pub fn trigger_off(is_built: bool, namespace: &str, name: &str) -> Self {
        let command = rebuild(namespace, name);
        let what = if is_built {
            "what is wanted is not what was built last"
        } else {
            "nothing was built yet"
        };
        let message = format!("{what}, and trigger.onCommit is false; to build it: {command}");
        Self::not_ready(BuildPhase::Pending, Reason::TriggerOff.as_str(), message)
    }
}

/// The command that builds an AgentBuild whatever was built before.
fn rebuild(namespace: &str, name: &str) -> String {
    format!("convoke rebuild build/{name} -n {namespace}")
}

/// What is said of a run that this operator has not made, and that Tekton may not begin with.
#[must_use]
pub fn pending(run: &str) -> String {
    format!(
        "PipelineRun {run} was made and has not begun: if no other operator lets it begin, it is made anew within a minute"
    )
}

/// A run that goes on, for somebody who looks into the namespace `home`. `stops`: it was cancelled. `held_up`: why its pod does not run yet. `is_silent`: Tekton
/// should have done something with it.
#[must_use]
pub fn running(
    run: &Run,
    home: &str,
    stops: bool,
    held_up: Option<&str>,
    is_silent: bool,
) -> Summary {
    let (commit, name) = (short(run.commit.as_deref()), run.title(home));
    let message = if is_silent {
        let stops = if stops { ", which was cancelled" } else { "" };
        format!(
            "Tekton does nothing with PipelineRun {name} of commit {commit}{stops}: does its controller run? \
             kubectl -n tekton-pipelines get pods"
        )
    } else if stops {
        format!("PipelineRun {name} of commit {commit} was cancelled and stops")
    } else if let Some(why) = held_up {
        format!("PipelineRun {name} of commit {commit} does not begin: {why}")
    } else {
        format!("building commit {commit} in PipelineRun {name}")
    };
    let reason = if is_silent { Reason::TektonNotResponding } else { Reason::Building };
    Summary::not_ready(BuildPhase::Building, reason.as_str(), message)
}

/// The summary while nothing is decided about any key. A run that is under way ends, and a key that failed is not tried again:
/// the status keeps their phases.
#[must_use]
pub fn undecided(old: &AgentBuildStatus, reason: Reason, message: String) -> Summary {
    Summary::not_ready(lasting(old).unwrap_or_default(), reason.as_str(), message)
}

/// The phase of the run of the key that was known last, if it lasts whatever is wanted by now.
fn lasting(old: &AgentBuildStatus) -> Option<BuildPhase> {
    let phase = old.phase.filter(|_| old.build_key.is_some())?;
    let lasts = match phase {
        BuildPhase::Building | BuildPhase::Failed => true,
        BuildPhase::Superseded => old.pipeline_run.is_some(),
        BuildPhase::Pending | BuildPhase::Succeeded => false,
    };
    lasts.then_some(phase)
}

/// The phase of the key that was known last, while its repository says nothing newer.
#[must_use]
pub fn known_phase(old: &AgentBuildStatus) -> BuildPhase {
    let is_built = old.build_key.is_some() && old.build_key == old.built_key;
    let otherwise = if is_built { BuildPhase::Succeeded } else { BuildPhase::Pending };
    lasting(old).unwrap_or(otherwise)
}

/// The beginning of a commit id.
#[must_use]
pub fn short(commit: Option<&str>) -> String {
    commit.unwrap_or_default().chars().take(12).collect()
}
