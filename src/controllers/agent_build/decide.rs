//! (pure) Step "desired" of an AgentBuild, first half: what to do about a build key.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::jiff::Timestamp;

use super::failure::{POD_REFUSED, Retry, retry};
use super::history::{image_of, may_supersede};
use super::key::BuildKey;
use super::lingering::Lingering;
use super::place::Place;
use super::run::{Run, RunOutcome};
use crate::api::agent_build::{
    AgentBuildStatus, BuildFailure, BuildPhase, BuildRecord, BuildTrigger,
};

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
pub enum Wait<'a> {
    /// `trigger.onCommit` is false.
    TriggerOff,
    /// Tekton is not there, or not known yet.
    NoBuilder,
    /// Somebody cancelled the key before its run was created.
    Cancelled,
    /// The last try failed because of the cluster: there is another one at this time.
    Retry(Timestamp),
    /// A run of another key goes on.
    Behind(&'a Run),
    /// Its run was made, and Tekton may not begin with it yet: another operator is about to, or has ended.
    Pending(&'a Run),
    /// As many builds run as may.
    Turn,
    /// The pod of a run of another key has not ended, and could still push the tag.
    Pod(&'a Lingering),
}

/// An image of a key that the registry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `registry/name@sha256:…`
    pub image: String,
    /// The commit that wants it.
    pub commit: String,
}

/// What to do about a build key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'a> {
    /// This is its newest run, or the one that made its image: show it.
    Show(&'a Run),
    /// Its run was there and is gone; the status knows how it ended.
    Keep,
    /// An earlier build made its image.
    Reuse(&'a BuildRecord),
    /// The registry has its image: use that.
    Found(&'a Found),
    /// Tell that it waits for its turn. Its run, this try of the key, is created after that is written: then the order survives a crash.
    Enqueue(u32),
    /// Create its run, as this try of the key, if it is its turn.
    Create(u32),
    /// Stop its run, which somebody cancelled.
    Cancel(&'a Run),
    /// Stop the run of another key, for this one.
    Supersede(&'a Run),
    /// Do nothing.
    Wait(Wait<'a>),
    /// This run isn't ours and has its name.
    Conflict(&'a Run),
    /// This run of an earlier build of this name has its name, until it is deleted.
    Leftover(&'a Run),
}

impl<'a> Decision<'a> {
    /// The run with which Tekton has something to do, as far as is known.
    #[must_use]
    pub const fn waits_for(&self) -> Option<&'a Run> {
        match self {
            Self::Show(run)
            | Self::Cancel(run)
            | Self::Supersede(run)
            | Self::Wait(Wait::Behind(run)) => Some(run),
            _ => None,
        }
    }
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

/// What people ask for by annotation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The value of `convoke.dev/rebuild`.
    pub rebuild: Option<&'a str>,
    /// The value of `convoke.dev/cancel`.
    pub cancel: Option<&'a str>,
}

/// The most tries of a key that has failed because changed Secrets start. What fails for another reason must not be tried each time that they are renewed.
const MAX_RENEWED: u32 = 20;

/// A build key about which is decided.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Name of the AgentBuild.
    pub name: &'a str,
    /// UID of the AgentBuild.
    pub uid: &'a str,
    /// Where its next run is made.
    pub place: &'a Place,
    /// The build key.
    pub key: &'a BuildKey,
    /// The live runs of the AgentBuild, and those that have the name of one.
    pub runs: &'a [&'a Run],
    /// Why the newest run of the key failed, if it did.
    pub failure: Option<&'a BuildFailure>,
    /// Whether its Secrets are others by now, after it failed for want of access.
    pub renewed: bool,
    /// Whether a commit starts builds.
    pub trigger: Trigger,
    /// `spec.retryLimit`.
    pub retry_limit: u32,
    /// What people ask for.
    pub asked: Asked<'a>,
    /// Whether Tekton is there.
    pub builder: Builder,
    /// The time.
    pub now: Timestamp,
}

impl<'a> Candidate<'a> {
    fn ours(&self) -> impl Iterator<Item = &'a Run> {
        let (uid, key) = (self.uid, self.key);
        self.runs.iter().copied().filter(move |run| is_ours(run, uid, key))
    }

    /// The run with the image of the key.
    fn good(&self) -> Option<&'a Run> {
        let good = self.ours().filter(|run| matches!(run.outcome, RunOutcome::Built { .. }));
        good.max_by_key(|run| run.attempt)
    }

    /// The newest run of the key.
    #[must_use]
    pub fn newest(&self) -> Option<&'a Run> {
        self.ours().max_by_key(|run| run.attempt)
    }

    /// The run of another key that goes on.
    fn other(&self) -> Option<&'a Run> {
        let (uid, key) = (self.uid, self.key.as_str());
        let mut runs = self.runs.iter().copied();
        runs.find(|run| {
            run.is_running()
                && run.owner_uid.as_deref() == Some(uid)
                && run.key.as_deref() != Some(key)
        })
    }
}

/// Decides about a build key. `status` says what became of earlier keys.
#[must_use]
pub fn decide<'a>(status: &'a AgentBuildStatus, candidate: &Candidate<'a>) -> Decision<'a> {
    let Candidate { name, uid, key, place, .. } = *candidate;
    let is = |have: &Option<String>| have.as_deref() == Some(key.as_str());
    // What is built stays built.
    if let Some(run) = candidate.good() {
        return Decision::Show(run);
    }
    if is(&status.built_key) && status.built_image.is_some() {
        return Decision::Keep;
    }
    if let Some(record) = image_of(&status.history, key) {
        return Decision::Reuse(record);
    }
    let cancelled = candidate.asked.cancel == Some(key.as_str());
    let newest = candidate.newest();
    if let Some(run) = candidate.ours().find(|run| run.is_unattested()) {
        return Decision::Show(run);
    }
    if let Some(run) = newest.filter(|run| run.is_running()) {
        if run.held && !cancelled {
            return Decision::Wait(Wait::Pending(run));
        }
        let stop = cancelled && !run.stopping;
        return if stop { Decision::Cancel(run) } else { Decision::Show(run) };
    }
    let attempt = match next_attempt(status, candidate, newest) {
        // Only what would change the outcome starts another build: a new key.
        Next::Never => return newest.map_or(Decision::Keep, Decision::Show),
        _ if cancelled => return Decision::Wait(Wait::Cancelled),
        Next::At(time) => return Decision::Wait(Wait::Retry(time)),
        Next::Attempt(attempt) => attempt,
    };
    let went_on = attempt > 1 || (is(&status.build_key) && began(status));
    if candidate.trigger == Trigger::Off && !went_on && !is_asked(status, candidate.asked) {
        return Decision::Wait(Wait::TriggerOff);
    }
    if candidate.builder != Builder::Available {
        return Decision::Wait(Wait::NoBuilder);
    }
    let wanted = place.run_name(name, uid, key, attempt);
    if let Some(run) = candidate.runs.iter().copied().find(|run| run.name == wanted) {
        let leftover = is_left_by_namesake(run, name, uid);
        return if leftover { Decision::Leftover(run) } else { Decision::Conflict(run) };
    }
    if let Some(run) = candidate.other() {
        // A pending one is removed soon, or another operator lets it begin.
        let stops = !run.stopping && !run.held;
        let supersede = stops && may_supersede(&status.history, run, candidate.now);
        return if supersede {
            Decision::Supersede(run)
        } else {
            Decision::Wait(Wait::Behind(run))
        };
    }
    if is(&status.build_key) && status.queued_at.is_some() {
        Decision::Create(attempt)
    } else {
        Decision::Enqueue(attempt)
    }
}

/// Whether nothing was begun for a key about which this was decided: then the registry is asked for its image first.
#[must_use]
pub fn is_untouched(
    status: &AgentBuildStatus,
    candidate: &Candidate<'_>,
    decision: &Decision<'_>,
) -> bool {
    let waits = matches!(
        decision,
        Decision::Enqueue(_)
            | Decision::Supersede(_)
            | Decision::Conflict(_)
            | Decision::Leftover(_)
            | Decision::Wait(Wait::TriggerOff | Wait::NoBuilder | Wait::Behind(_))
    );
    let is_told = status.build_key.as_deref() == Some(candidate.key.as_str());
    let begun = is_told && (status.queued_at.is_some() || status.pipeline_run.is_some());
    waits && !begun && candidate.newest().is_none()
}

/// The run of another key that nobody wants any more, whatever was decided about the key, and whether that is because of this key: it
/// has its image, or somebody has cancelled what waits for that run.
#[must_use]
pub fn unwanted<'a>(
    status: &AgentBuildStatus,
    candidate: &Candidate<'a>,
    decision: &Decision<'_>,
) -> Option<(&'a Run, bool)> {
    let run = candidate.other().filter(|run| !run.stopping && !run.held)?;
    let key = candidate.key.as_str();
    let has_image = match decision {
        Decision::Show(run) => matches!(run.outcome, RunOutcome::Built { .. }),
        Decision::Keep => status.built_key.as_deref() == Some(key),
        Decision::Reuse(_) | Decision::Found(_) => true,
        _ => false,
    };
    let cancelled = matches!(decision, Decision::Wait(Wait::Cancelled));
    (has_image || cancelled).then_some((run, has_image))
}

/// Whether a build of the key was started, or waits for its turn.
fn began(status: &AgentBuildStatus) -> bool {
    status.queued_at.is_some() || status.phase == Some(BuildPhase::Building)
}

/// Whether somebody asks for a build that was not started yet.
#[must_use]
pub fn is_asked(status: &AgentBuildStatus, asked: Asked<'_>) -> bool {
    asked.rebuild.is_some() && asked.rebuild != status.last_handled_rebuild.as_deref()
}

/// The next try of a key without an image.
enum Next {
    /// Now, as this one.
    Attempt(u32),
    /// At this time.
    At(Timestamp),
    /// Something has to change first.
    Never,
}

/// `newest` has ended, if it is there.
fn next_attempt(
    status: &AgentBuildStatus,
    candidate: &Candidate<'_>,
    newest: Option<&Run>,
) -> Next {
    let told = status.build_key.as_deref() == Some(candidate.key.as_str());
    let told = told.then_some(status).filter(|status| status.pipeline_run.is_some());
    let (attempt, failure) = match (newest, told) {
        // The run of a later try, which failed, is gone.
        (Some(run), Some(status)) if status.attempt > Some(run.attempt) => {
            if !has_failed(status) {
                return after_deleted(status);
            }
            (status.attempt.unwrap_or(1), status.failure.as_ref())
        }
        (Some(run), _) => (run.attempt, candidate.failure),
        // Its run is gone.
        (None, Some(status)) if has_failed(status) => {
            (status.attempt.unwrap_or(1), status.failure.as_ref())
        }
        (None, Some(status)) => return after_deleted(status),
        (None, None) => return Next::Attempt(1),
    };
    // Another namespace may admit the pod.
    let moves = |run: &Run| run.attempt == attempt && run.namespace != candidate.place.namespace();
    if newest.is_some_and(moves) && failure.is_some_and(|why| why.reason == POD_REFUSED) {
        return Next::Attempt(attempt.saturating_add(1));
    }
    // Tries that were stopped for a newer key have not failed.
    let stopped = candidate
        .ours()
        .filter(|run| run.superseded_by.is_some() && run.attempt <= attempt)
        .count();
    let failed = attempt.saturating_sub(u32::try_from(stopped).unwrap_or(0));
    let again = failure.map_or(Retry::Never, |why| retry(why, failed, candidate.retry_limit));
    let renewed = candidate.renewed
        && attempt < MAX_RENEWED
        && newest.is_some_and(|run| run.attempt == attempt);
    match again {
        Retry::Never if renewed => Next::Attempt(attempt.saturating_add(1)),
        Retry::Never => Next::Never,
        Retry::At(time) if time > candidate.now => Next::At(time),
        Retry::At(_) => Next::Attempt(attempt.saturating_add(1)),
    }
}

/// The try after the one that the status tells, whose run was deleted while it went on. Its TaskRun and its pod may still be there, and have names
/// made from that of the run: with another number nothing is taken for a part of the new run.
const fn after_deleted(status: &AgentBuildStatus) -> Next {
    let attempt = match status.attempt {
        Some(attempt) => attempt,
        None => 1,
    };
    Next::Attempt(attempt.saturating_add(1))
}

/// Whether the run that a status tells has failed.
fn has_failed(status: &AgentBuildStatus) -> bool {
    let of_run = status.failure.as_ref().map(|why| &why.pipeline_run);
    status.phase == Some(BuildPhase::Failed)
        || (of_run.is_some() && of_run == status.pipeline_run.as_ref())
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

#[cfg(test)]
#[path = "tests/decide.rs"]
mod tests;
