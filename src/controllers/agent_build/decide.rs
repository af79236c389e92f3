//! (pure) Step "desired" of an AgentBuild, first half: what to do about a build key.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::key::BuildKey;
use super::run::Run;
use crate::api::agent_build::{AgentBuildStatus, BuildPhase, BuildTrigger};

/// Whether Tekton is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builder {
    /// Not known yet.
    Unknown,
    /// The API server does not serve PipelineRuns.
    NotInstalled,
    /// Tekton is there.
    Available,
}

/// Why no run is created although the key has no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// `trigger.onCommit` is false.
    TriggerOff,
    /// Tekton is not there, or not known yet.
    NoBuilder,
}

/// What to do about a build key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Its run is there: show it.
    Show(&'a Run),
    /// Its run was there and is gone; the status knows how it ended.
    Keep,
    /// Create its run.
    Create,
    /// Do nothing.
    Wait(Wait),
    /// A run that isn't ours has its name.
    Conflict,
    /// The run of an earlier build of this name has its name, until it is deleted.
    Leftover,
}

/// Whether a commit starts builds: `spec.trigger.onCommit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Each commit that changes the key starts one.
    OnCommit,
    /// No commit starts one.
    Off,
}

impl Trigger {
    /// The trigger of a spec.
    #[must_use]
    pub const fn of(trigger: &BuildTrigger) -> Self {
        if trigger.on_commit { Self::OnCommit } else { Self::Off }
    }
}

/// A build key about which is decided.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Name of the AgentBuild.
    pub name: &'a str,
    /// UID of the AgentBuild.
    pub uid: &'a str,
    /// The build key.
    pub key: &'a BuildKey,
    /// The live object with the name of the key's run.
    pub run: Option<&'a Run>,
    /// Whether a commit starts builds.
    pub trigger: Trigger,
    /// Whether Tekton is there.
    pub builder: Builder,
}

/// Decides about a build key. `status` says what became of earlier keys.
#[must_use]
pub fn decide<'a>(status: &AgentBuildStatus, candidate: &Candidate<'a>) -> Decision<'a> {
    let Candidate { name, uid, key, run, trigger, builder } = *candidate;
    let is = |have: &Option<String>| have.as_deref() == Some(key.as_str());
    let leftover = run.is_some_and(|run| is_left_by_namesake(run, name, uid));
    match run {
        Some(run) if is_ours(run, uid, key) => Decision::Show(run),
        Some(_) if !leftover => Decision::Conflict,
        _ if is(&status.built_key) && status.built_image.is_some() => Decision::Keep,
        // Only what would change the outcome starts another build: a new key.
        _ if is(&status.build_key)
            && status.phase == Some(BuildPhase::Failed)
            && status.pipeline_run.is_some() =>
        {
            Decision::Keep
        }
        _ if trigger == Trigger::Off => Decision::Wait(Wait::TriggerOff),
        _ if builder != Builder::Available => Decision::Wait(Wait::NoBuilder),
        _ if leftover => Decision::Leftover,
        _ => Decision::Create,
    }
}

/// Whether a run belongs to this build and key. The name alone proves nothing.
#[must_use]
pub fn is_ours(run: &Run, uid: &str, key: &BuildKey) -> bool {
    run.owner_uid.as_deref() == Some(uid) && run.key.as_deref() == Some(key.as_str())
}

/// Whether a run is left from an earlier AgentBuild of this name. That one is gone, and Kubernetes deletes what it owned.
fn is_left_by_namesake(run: &Run, name: &str, uid: &str) -> bool {
    // Only Convoke gives a key.
    run.key.is_some()
        && run.owner_name.as_deref() == Some(name)
        && run.owner_uid.as_deref().is_some_and(|owner| owner != uid)
}

/// The key that was being built when the source was last known, and the name of its run. The run goes on to its end, whether or
/// not a commit still holds the build.
#[must_use]
pub fn under_way(status: &AgentBuildStatus) -> Option<(BuildKey, &str)> {
    let key = status.build_key.as_deref().filter(|_| status.phase == Some(BuildPhase::Building));
    Some((BuildKey::parse(key?)?, status.pipeline_run.as_deref()?))
}
