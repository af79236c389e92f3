//! (pure) Step "status" of an AgentBuild.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::builder::{builder_condition, is_silent};
use super::decide::{Builder, Decision, Found, Wait, under_way};
use super::failure::SUPERSEDED;
use super::history::image_of;
use super::key::BuildKey;
use super::layer_cache;
use super::problem::BuildProblem;
use super::run::{Run, RunOutcome};
use super::signing::Unattested;
use super::signing::refusal::PROVENANCE_REFUSED;
use super::summary::{self, Summary, known_phase, short, undecided};
use super::turns::Limits;
use crate::api::agent_build::{
    AgentBuildStatus, BuildFailure, BuildPhase, BuildRecord, BuildResult, BuildStep,
};
use crate::api::common::Source;
use crate::api::{Kind, Mark, keys};
use crate::cluster::conditions;
use crate::controllers::reason::Reason;

/// What the steps before have found.
#[derive(Debug)]
pub enum Finding<'a> {
    /// The engine has not read a commit with this build yet.
    SourcePending,
    /// The commit that the engine has read does not hold this build: its delete is held, or its file is broken.
    NotInGit,
    /// The live object is not the one that this commit wants.
    NotApplied,
    /// The repository of `spec.source.git` was not asked yet.
    NotPolled,
    /// The repository of `spec.source.git` cannot be read.
    Unreadable(BuildProblem),
    /// There is no build key, or its run cannot be created.
    Broken(BuildProblem),
    /// There is a build key.
    Key(KeyFinding<'a>),
    /// It is the turn of a key, and the API server refuses its run. It keeps its place.
    Refused(&'a BuildKey, BuildProblem),
}

/// A build key, and what was decided about it.
#[derive(Debug, Clone, Copy)]
pub struct KeyFinding<'a> {
    /// The key.
    pub key: &'a BuildKey,
    /// The namespace of the AgentBuild.
    pub home: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Hash of the values of its parameters.
    pub parameters: Option<&'a str>,
    /// Registry and name of its image.
    pub repository: &'a str,
    /// The decision. [`Decision::Create`] has become [`Decision::Show`] or [`Wait::Turn`] by now.
    pub decision: Decision<'a>,
    /// Why its newest run failed, if it did.
    pub failure: Option<&'a BuildFailure>,
    /// How long the steps of that run took.
    pub steps: &'a [BuildStep],
    /// Why the pod of that run does not run yet, if Tekton says it.
    pub held_up: Option<&'a str>,
    /// The runs that are not attested yet.
    pub unattested: &'a Unattested,
    /// The value of `convoke.dev/rebuild`.
    pub rebuild: Option<&'a str>,
    /// How many builds run at once.
    pub limits: Limits,
}

/// What is known of a build whose source is not known.
#[derive(Debug, Clone, Copy)]
pub struct UnknownSource<'a> {
    /// The run that is under way, of the spec that was observed last ([`Finding::Key`]).
    pub under_way: Option<&'a Finding<'a>>,
    /// Why the source is not known.
    pub finding: &'a Finding<'a>,
}

/// The new status, from the old one.
#[must_use]
pub fn status(
    old: &AgentBuildStatus,
    meta: &ObjectMeta,
    finding: &Finding<'_>,
    builder: Builder,
    now: Timestamp,
) -> AgentBuildStatus {
    if stays(old, meta, finding) {
        return old.clone();
    }
    let mut new = old.clone();
    if is_early(old, meta, finding, builder) {
        builder_condition(&mut new, meta, finding, builder, now);
        return new;
    }
    new.observed_generation = meta.generation;
    new.source = source(meta);
    let summary = summary(&mut new, old, finding, now);
    builder_condition(&mut new, meta, finding, builder, now);
    let generation = meta.generation.unwrap_or_default();
    let Summary { phase, ready, reason, message, stalled, goes_on } = summary;
    conditions::Observed { generation, now }.set(
        &mut new.conditions,
        "Ready",
        ready,
        &reason,
        &message,
    );
    let list = &mut new.conditions;
    if phase == BuildPhase::Building || goes_on {
        conditions::Observed { generation, now }.set(
            list,
            "Reconciling",
            "True",
            &reason,
            &message,
        );
    } else {
        conditions::remove(list, "Reconciling");
    }
    if stalled {
        conditions::Observed { generation, now }.set(list, "Stalled", "True", &reason, &message);
    } else if phase != BuildPhase::Failed {
        // Otherwise the condition goes on saying how the last build failed.
        conditions::remove(list, "Stalled");
    }
    new.phase = Some(phase);
    new.message = Some(message);
    new
}

/// What the status says, from what was found. Sets the fields of the new status that are about the key.
fn summary(
    new: &mut AgentBuildStatus,
    old: &AgentBuildStatus,
    finding: &Finding<'_>,
    now: Timestamp,
) -> Summary {
    let sync = new.source.as_ref().map(|source| source.sync.clone());
    match finding {
        Finding::SourcePending => {
            let message = match sync {
                Some(sync) => format!("waiting for the newest commit of GitSync {sync}"),
                None => {
                    "waiting for a GitSync: only builds that come from Git have a source".into()
                }
            };
            undecided(old, Reason::SourcePending, message)
        }
        Finding::NotInGit => {
            let sync = sync.unwrap_or_default();
            new.queued_at = None;
            let message = format!(
                "not in the newest commit of GitSync {sync}: nothing is built; the status of the GitSync says why it is still here"
            );
            undecided(old, Reason::NotInGit, message)
        }
        Finding::NotApplied => {
            let sync = sync.unwrap_or_default();
            let message = format!(
                "the newest commit of GitSync {sync} wants another definition: nothing is built until it is applied; the status of the GitSync says why it is not"
            );
            undecided(old, Reason::NotApplied, message)
        }
        Finding::NotPolled => {
            let message = "waiting for the newest commit of the repository of spec.source.git";
            let reason = Reason::SourcePending.as_str();
            Summary::not_ready(known_phase(old), reason, message.into())
        }
        Finding::Unreadable(BuildProblem { reason, message, waiting }) => {
            let stalled = !waiting;
            Summary { stalled, ..Summary::not_ready(known_phase(old), reason, message.clone()) }
        }
        Finding::Broken(BuildProblem { reason, message, waiting }) => {
            // Without a key the status must not say how an older one ended.
            forget_attempts(new);
            if *waiting {
                new.queued_at.clone_from(&old.queued_at);
            }
            new.build_key = None;
            new.parameters_hash = None;
            let phase = if *waiting { BuildPhase::Pending } else { BuildPhase::Failed };
            let stalled = !waiting;
            Summary { stalled, ..Summary::not_ready(phase, reason, message.clone()) }
        }
        Finding::Refused(key, BuildProblem { reason, message, waiting: _ }) => {
            if old.build_key.as_deref() != Some(key.as_str()) {
                forget_attempts(new);
            }
            new.build_key = Some(key.to_string());
            Summary::not_ready(BuildPhase::Pending, reason, message.clone())
        }
        Finding::Key(about) => {
            if old.build_key.as_deref() != Some(about.key.as_str()) {
                // They were of another key. Its place in the queue is that of the build: with each commit it would go to the end.
                forget_attempts(new);
                new.queued_at.clone_from(&old.queued_at);
            }
            let summary = about_key(new, old, about, now);
            new.build_key = Some(about.key.to_string());
            new.parameters_hash = about.parameters.map(str::to_owned);
            summary
        }
    }
}

/// Forgets the newest attempt of a key.
fn forget_attempts(new: &mut AgentBuildStatus) {
    new.pipeline_run = None;
    new.build_namespace = None;
    new.attempt = None;
    new.failure = None;
    new.steps.clear();
    new.queued_at = None;
}

/// The new status of a build whose source is not known. A run that is under way is followed to its end first.
#[must_use]
pub fn idle(
    old: &AgentBuildStatus,
    meta: &ObjectMeta,
    unknown: UnknownSource<'_>,
    builder: Builder,
    now: Timestamp,
) -> AgentBuildStatus {
    let UnknownSource { under_way: run, finding } = unknown;
    let Some(run) = run else { return status(old, meta, finding, builder, now) };
    let observed = ObjectMeta { generation: old.observed_generation, ..meta.clone() };
    let shown = status(old, &observed, run, builder, now);
    if under_way(&shown).is_some() {
        return shown;
    }
    status(&shown, meta, finding, builder, now)
}

/// Whether the status stays as it is, because nothing newer is known of this spec. After a restart the source comes in a moment, or
/// never.
fn stays(old: &AgentBuildStatus, meta: &ObjectMeta, finding: &Finding<'_>) -> bool {
    let known = old.build_key.is_some() && old.observed_generation == meta.generation;
    let ready = old.conditions.iter().find(|condition| condition.type_ == "Ready");
    let reason = ready.and_then(|ready| Reason::parse(&ready.reason));
    let waits = reason.is_some_and(Reason::is_unknown_source);
    // What it waited for does not come while no commit wants it.
    let goes_on = reason.is_some_and(|reason| {
        use Reason::{Building, ProvenancePending, Queued, Retrying, TektonNotResponding};
        matches!(reason, Queued | Retrying | Building | ProvenancePending | TektonNotResponding)
    });
    match finding {
        Finding::SourcePending | Finding::NotPolled => known,
        Finding::NotInGit => known && !waits && !goes_on,
        Finding::NotApplied
        | Finding::Unreadable(_)
        | Finding::Broken(_)
        | Finding::Key(_)
        | Finding::Refused(..) => false,
    }
}

/// Whether the status goes on telling what it tells of this key, because it is not known, after a start, what Tekton does with its run.
fn is_early(
    old: &AgentBuildStatus,
    meta: &ObjectMeta,
    finding: &Finding<'_>,
    builder: Builder,
) -> bool {
    let Finding::Key(about) = finding else { return false };
    builder == Builder::Unknown
        && matches!(about.decision, Decision::Wait(Wait::NoBuilder))
        && old.build_key.as_deref() == Some(about.key.as_str())
        && old.observed_generation == meta.generation
}

/// The summary of a key. Sets the fields of the new status that are about its run.
fn about_key(
    new: &mut AgentBuildStatus,
    old: &AgentBuildStatus,
    about: &KeyFinding<'_>,
    now: Timestamp,
) -> Summary {
    let KeyFinding { key, decision, failure, .. } = about;
    let since = new.queued_at.take();
    match decision {
        Decision::Show(run) | Decision::Cancel(run) => {
            new.pipeline_run = Some(run.name.clone());
            new.attempt = Some(run.attempt);
            new.last_attempted_commit.clone_from(&run.commit);
            new.steps = about.steps.to_vec();
            layer_cache::handle_rebuild(new, about.rebuild);
            about_run(new, about, run, now)
        }
        Decision::Keep if old.built_key.as_deref() == Some(key.as_str()) => {
            let image = old.built_image.as_deref().unwrap_or_default();
            let record = image_of(&old.history, key);
            if record.is_some_and(|record| record.pipeline_run.is_none()) {
                Summary::found(image)
            } else {
                Summary::built(image)
            }
        }
        Decision::Keep => {
            // Ready may have said meanwhile that something was waited for.
            let stalled = old.conditions.iter().find(|condition| condition.type_ == "Stalled");
            let reason = stalled.map_or("BuildFailed", |stalled| stalled.reason.as_str());
            let message = stalled.map_or("the build failed", |stalled| stalled.message.as_str());
            Summary::stalled(BuildPhase::Failed, reason, message.to_owned())
        }
        Decision::Reuse(record) => {
            let image = record.image.clone().unwrap_or_default();
            let summary = Summary::built(&image);
            layer_cache::handle_rebuild(new, about.rebuild);
            new.built_image = Some(image);
            new.base_digest.clone_from(&record.base_digest);
            new.sbom_digest.clone_from(&record.sbom_digest);
            new.built_key = Some(key.to_string());
            new.last_built_commit.clone_from(&record.commit);
            summary
        }
        Decision::Found(Found { image, commit }) => {
            new.built_image = Some(image.clone());
            layer_cache::handle_rebuild(new, about.rebuild);
            // The proof does not name them.
            (new.base_digest, new.sbom_digest) = (None, None);
            new.built_key = Some(key.to_string());
            new.last_built_commit = Some(commit.clone());
            new.history.push(BuildRecord {
                pipeline_run: None,
                key: key.to_string(),
                result: BuildResult::Succeeded,
                commit: Some(commit.clone()),
                tree: None,
                superseded_by: None,
                image: Some(image.clone()),
                base_digest: None,
                sbom_digest: None,
                started_at: Some(now.to_string()),
                seconds: None,
            });
            Summary::found(image)
        }
        Decision::Conflict(run) => {
            let name = run.title(about.home);
            let message = format!("PipelineRun {name} exists and is not ours; delete it to build");
            // It goes on as soon as the name is free.
            new.queued_at = since;
            Summary::stalled(BuildPhase::Pending, "Conflict", message)
        }
        Decision::Leftover(run) => {
            new.queued_at = since;
            let message = format!(
                "PipelineRun {} is left from an earlier AgentBuild of this name: waiting until it is deleted",
                run.title(about.home)
            );
            Summary::not_ready(BuildPhase::Pending, Reason::Replacing.as_str(), message)
        }
        Decision::Enqueue(_) | Decision::Create(_) | Decision::Wait(Wait::Turn) => {
            new.queued_at = since.or_else(|| Some(now.to_string()));
            let Limits { total, namespace } = about.limits;
            let message = format!(
                "waiting for its turn: at most {namespace} builds of a namespace run at once, and {total} in all"
            );
            Summary::begins(Reason::Queued, message)
        }
        Decision::Supersede(run) | Decision::Wait(Wait::Behind(run)) => {
            let stops = matches!(decision, Decision::Supersede(_)) || run.stopping;
            let is_newer =
                matches!(decision, Decision::Supersede(_)) || run.superseded_by.is_some();
            let what = if stops { "stops" } else { "ends" };
            let (commit, name) = (short(run.commit.as_deref()), run.title(about.home));
            let message = format!("waiting until PipelineRun {name} of commit {commit} {what}");
            let begins = Summary::begins(Reason::Queued, message);
            // The newest build that there is was stopped; the wanted one has no run and no place in the queue.
            let phase = if stops && is_newer { BuildPhase::Superseded } else { begins.phase };
            Summary { phase, ..begins }
        }
        Decision::Wait(Wait::Pod(pod)) => {
            new.queued_at = since;
            Summary::begins(Reason::Queued, pod.message())
        }
        Decision::Wait(Wait::Retry(at)) => {
            if let Some(failure) = failure {
                new.pipeline_run = Some(failure.pipeline_run.clone());
                new.failure = Some((*failure).clone());
                new.steps = about.steps.to_vec();
            }
            let why = new.failure.as_ref().map_or("the cluster was at fault", |why| &why.message);
            let message = format!("it is tried again at {at:.0}: {why}");
            Summary::begins(Reason::Retrying, message)
        }
        Decision::Wait(Wait::Cancelled) => Summary::cancelled(about.home, about.name),
        Decision::Wait(Wait::TriggerOff) => {
            Summary::trigger_off(old.built_image.is_some(), about.home, about.name)
        }
        Decision::Wait(Wait::Pending(run)) => {
            new.queued_at = since;
            Summary::begins(Reason::Queued, summary::pending(&run.title(about.home)))
        }
        Decision::Wait(Wait::NoBuilder) => {
            new.queued_at = since;
            let message = "a build waits until Tekton is there";
            let reason = Reason::BuilderUnavailable.as_str();
            Summary::not_ready(BuildPhase::Pending, reason, message.into())
        }
    }
}

/// The summary of a run. Sets the image in the new status when the run has built one.
fn about_run(
    new: &mut AgentBuildStatus,
    about: &KeyFinding<'_>,
    run: &Run,
    now: Timestamp,
) -> Summary {
    let KeyFinding { key, repository, failure, .. } = about;
    let (commit, name) = (short(run.commit.as_deref()), run.title(about.home));
    match &run.outcome {
        RunOutcome::Running => {
            let stops = matches!(about.decision, Decision::Cancel(_)) || run.stopping;
            summary::running(run, about.home, stops, about.held_up, is_silent(run, now))
        }
        RunOutcome::Unattested { .. } => {
            if let Some(message) = about.unattested.refusal(run, about.home) {
                new.failure = None;
                return Summary::stalled(BuildPhase::Failed, PROVENANCE_REFUSED, message);
            }
            let reason = Reason::ProvenancePending.as_str();
            Summary::not_ready(
                BuildPhase::Building,
                reason,
                about.unattested.message(run, about.home),
            )
        }
        RunOutcome::Failed { reason, message } => {
            let reason = failure.map_or(reason, |failure| &failure.reason);
            let message = failure.map_or(message, |failure| &failure.message);
            let message = format!("PipelineRun {name} of commit {commit} failed: {message}");
            new.failure = failure.cloned();
            if reason == SUPERSEDED {
                return Summary::not_ready(BuildPhase::Superseded, reason, message);
            }
            Summary::stalled(BuildPhase::Failed, reason, message)
        }
        RunOutcome::Built { digest } => {
            // The spec may ask for another one by now.
            let image = format!("{}@{digest}", run.image.as_deref().unwrap_or(repository));
            let summary = Summary::built(&image);
            new.built_image = Some(image);
            new.base_digest.clone_from(&run.base_digest);
            new.sbom_digest.clone_from(&run.sbom_digest);
            new.cache_digest.clone_from(&run.cache_digest);
            new.built_key = Some(key.to_string());
            new.last_built_commit.clone_from(&run.commit);
            new.failure = None;
            summary
        }
    }
}

/// Where the object came from, by its annotations.
fn source(meta: &ObjectMeta) -> Option<Source> {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key);
    let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
    let mark = Mark::parse(annotation(keys::OWNER)?)?;
    let mark = Some(mark).filter(|mark| mark.names(Kind::AgentBuild, namespace, name))?;
    let (path, line) = annotation(keys::SOURCE)?.rsplit_once(':')?;
    Some(Source {
        sync: mark.sync_name,
        commit: annotation(keys::COMMIT)?.clone(),
        path: path.to_owned(),
        line: line.parse().ok()?,
    })
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
