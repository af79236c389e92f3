//! (pure) What to do about a build, and what its status says.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::key::BuildKey;
use super::run::{Outcome, Run};
use crate::api::agent_build::{AgentBuildStatus, BuildPhase};
use crate::api::common::Source;
use crate::api::{Kind, Mark, keys};
use crate::cluster::conditions;

/// A run that Tekton hasn't looked at for this long means that Tekton is silent.
pub const SILENCE: SignedDuration = SignedDuration::from_secs(60);

/// Whether there is something that builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builder {
    /// Not known yet.
    Unknown,
    /// Tekton's definitions are not there.
    NotInstalled,
    /// Tekton is there.
    Available,
}

/// Why nothing is built although the key has no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// `trigger.onCommit` is false.
    TriggerOff,
    /// Tekton is not there, or not known yet.
    NoBuilder,
}

/// What to do about a key.
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

/// Decides about a key. `name` and `uid` are those of the build, `run` is the live object with the name of its run.
#[must_use]
pub fn decide<'a>(
    status: &AgentBuildStatus,
    name: &str,
    uid: &str,
    key: &BuildKey,
    run: Option<&'a Run>,
    on_commit: bool,
    builder: Builder,
) -> Decision<'a> {
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
        _ if !on_commit => Decision::Wait(Wait::TriggerOff),
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

/// Whether an earlier build of this name has left a run. That build is gone, and Kubernetes deletes what it owned.
fn is_left_by_namesake(run: &Run, name: &str, uid: &str) -> bool {
    // A key is what only we give.
    run.key.is_some()
        && run.owner_name.as_deref() == Some(name)
        && run.owner_uid.as_deref().is_some_and(|owner| owner != uid)
}

/// What was being built when its source was last known, and the name of its run: that ends, whether or not a commit still holds
/// the build.
#[must_use]
pub fn under_way(status: &AgentBuildStatus) -> Option<(BuildKey, &str)> {
    let key = status.build_key.as_deref().filter(|_| status.phase == Some(BuildPhase::Building));
    Some((BuildKey::parse(key?)?, status.pipeline_run.as_deref()?))
}

/// What a reconcile has found out.
#[derive(Debug)]
pub enum Found<'a> {
    /// The engine has not read a commit with this build yet.
    SourcePending,
    /// The commit that the engine has read does not hold this build: its delete is held, or its file is broken.
    NotInGit,
    /// The live object is not the one that this commit wants.
    NotApplied,
    /// No key can be computed, or no run can be created. `waiting`: it may heal without a change of the definition.
    Broken {
        /// Reason, CamelCase.
        reason: &'static str,
        /// One sentence.
        message: String,
        /// See above.
        waiting: bool,
    },
    /// A key, and what was decided about it ([`Decision::Create`] has become [`Decision::Show`]).
    Key {
        /// The key.
        key: &'a BuildKey,
        /// Name of its run.
        run_name: &'a str,
        /// Registry and name of its image.
        repository: &'a str,
        /// The decision.
        decision: Decision<'a>,
    },
}

/// The new status, from the old one.
#[must_use]
pub fn status(
    old: &AgentBuildStatus,
    meta: &ObjectMeta,
    found: &Found<'_>,
    builder: Builder,
    now: Timestamp,
) -> AgentBuildStatus {
    if stays(old, meta, found) {
        return old.clone();
    }
    let mut new = old.clone();
    new.observed_generation = meta.generation;
    new.source = source(meta);
    let said = match found {
        Found::SourcePending => {
            let message = match &new.source {
                Some(source) => format!("waiting for the newest commit of GitSync {}", source.sync),
                None => {
                    "waiting for a GitSync: only builds that come from Git have a source".into()
                }
            };
            undecided(old, "SourcePending", message)
        }
        Found::NotInGit => {
            let sync = new.source.as_ref().map(|source| &*source.sync).unwrap_or_default();
            let message = format!(
                "not in the newest commit of GitSync {sync}: nothing is built; the status of the GitSync says why it is still here"
            );
            undecided(old, "NotInGit", message)
        }
        Found::NotApplied => {
            let sync = new.source.as_ref().map(|source| &*source.sync).unwrap_or_default();
            let message = format!(
                "the newest commit of GitSync {sync} wants another definition: nothing is built until it is applied; the status of the GitSync says why it is not"
            );
            undecided(old, "NotApplied", message)
        }
        Found::Broken { reason, message, waiting } => {
            // Without a key the status must not say how an older one ended.
            new.build_key = None;
            new.pipeline_run = None;
            let phase = if *waiting { BuildPhase::Pending } else { BuildPhase::Failed };
            Said {
                phase,
                ready: "False",
                reason: (*reason).into(),
                message: message.clone(),
                stalled: !waiting,
            }
        }
        Found::Key { key, run_name, repository, decision } => {
            let said = about_key(&mut new, old, key, run_name, repository, *decision);
            new.build_key = Some(key.to_string());
            said
        }
    };
    builder_condition(&mut new, meta, found, builder, now);
    let generation = meta.generation.unwrap_or_default();
    let Said { phase, ready, reason, message, stalled } = said;
    conditions::set(&mut new.conditions, "Ready", ready, &reason, &message, generation, now);
    let list = &mut new.conditions;
    if phase == BuildPhase::Building {
        conditions::set(list, "Reconciling", "True", &reason, &message, generation, now);
    } else {
        conditions::remove(list, "Reconciling");
    }
    if stalled {
        conditions::set(list, "Stalled", "True", &reason, &message, generation, now);
    } else if phase != BuildPhase::Failed {
        // Else it goes on saying how the last build failed.
        conditions::remove(list, "Stalled");
    }
    new.phase = Some(phase);
    new.message = Some(message);
    new
}

/// The new status of a build about which nothing can be decided. Its `run` that is under way ([`Found::Key`]) is of the
/// spec that was observed, and is followed to its end first.
#[must_use]
pub fn idle(
    old: &AgentBuildStatus,
    meta: &ObjectMeta,
    run: Option<&Found<'_>>,
    found: &Found<'_>,
    builder: Builder,
    now: Timestamp,
) -> AgentBuildStatus {
    let Some(run) = run else { return status(old, meta, found, builder, now) };
    let observed = ObjectMeta { generation: old.observed_generation, ..meta.clone() };
    let shown = status(old, &observed, run, builder, now);
    if under_way(&shown).is_some() {
        return shown;
    }
    status(&shown, meta, found, builder, now)
}

/// Whether what is known of the last build stays, because nothing newer is known of this spec: after a restart the source
/// comes in a moment, or never.
fn stays(old: &AgentBuildStatus, meta: &ObjectMeta, found: &Found<'_>) -> bool {
    let known = old.build_key.is_some() && old.observed_generation == meta.generation;
    let ready = old.conditions.iter().find(|condition| condition.type_ == "Ready");
    let waits = ready.is_some_and(|ready| {
        matches!(ready.reason.as_str(), "SourcePending" | "NotApplied" | "NotInGit")
    });
    match found {
        Found::SourcePending => known,
        Found::NotInGit => known && !waits,
        Found::NotApplied | Found::Broken { .. } | Found::Key { .. } => false,
    }
}

/// What is said while nothing is decided about any key. A run that is under way ends, and a key that failed is not tried
/// again: their phases are remembered.
fn undecided(old: &AgentBuildStatus, reason: &str, message: String) -> Said {
    let lasts = |phase: &BuildPhase| matches!(phase, BuildPhase::Building | BuildPhase::Failed);
    let phase = old.phase.filter(|phase| old.build_key.is_some() && lasts(phase));
    Said {
        phase: phase.unwrap_or_default(),
        ready: "False",
        reason: reason.into(),
        message,
        stalled: false,
    }
}

struct Said {
    phase: BuildPhase,
    ready: &'static str,
    reason: String,
    message: String,
    stalled: bool,
}

fn about_key(
    new: &mut AgentBuildStatus,
    old: &AgentBuildStatus,
    key: &BuildKey,
    run_name: &str,
    repository: &str,
    decision: Decision<'_>,
) -> Said {
    let said = |phase, ready, reason: &str, message, stalled| Said {
        phase,
        ready,
        reason: reason.into(),
        message,
        stalled,
    };
    match decision {
        Decision::Show(run) => {
            new.pipeline_run = Some(run.name.clone());
            new.last_attempted_commit.clone_from(&run.commit);
            about_run(new, key, repository, run)
        }
        Decision::Keep if old.built_key.as_deref() == Some(key.as_str()) => {
            if old.build_key.as_deref() != Some(key.as_str()) {
                // The run of this key is long gone; the one of another key is not it.
                new.pipeline_run = None;
            }
            let image = old.built_image.as_deref().unwrap_or_default();
            said(BuildPhase::Succeeded, "True", "Built", format!("built {image}"), false)
        }
        Decision::Keep => {
            // Ready may have said meanwhile that something was waited for.
            let stalled = old.conditions.iter().find(|condition| condition.type_ == "Stalled");
            let reason = stalled.map_or("BuildFailed", |stalled| stalled.reason.as_str());
            let message = stalled.map_or("the build failed", |stalled| stalled.message.as_str());
            said(BuildPhase::Failed, "False", reason, message.to_owned(), true)
        }
        Decision::Conflict => {
            let message =
                format!("PipelineRun {run_name} exists and is not ours; delete it to build");
            new.pipeline_run = None;
            said(BuildPhase::Pending, "False", "Conflict", message, true)
        }
        Decision::Leftover => {
            let message = format!(
                "PipelineRun {run_name} is left from an earlier AgentBuild of this name: waiting until it is deleted"
            );
            new.pipeline_run = None;
            said(BuildPhase::Pending, "False", "Replacing", message, false)
        }
        Decision::Wait(wait) => {
            new.pipeline_run = None;
            let (reason, message) = match wait {
                Wait::TriggerOff => (
                    "TriggerOff",
                    "the source changed, but trigger.onCommit is false: nothing is built",
                ),
                Wait::NoBuilder => ("BuilderUnavailable", "a build waits until Tekton is there"),
            };
            said(BuildPhase::Pending, "False", reason, message.into(), false)
        }
        Decision::Create => said(
            BuildPhase::Pending,
            "False",
            "Creating",
            format!("creating PipelineRun {run_name}"),
            false,
        ),
    }
}

fn about_run(new: &mut AgentBuildStatus, key: &BuildKey, repository: &str, run: &Run) -> Said {
    let commit: String = run.commit.as_deref().unwrap_or_default().chars().take(12).collect();
    let name = &run.name;
    match &run.outcome {
        Outcome::Running => {
            let message = format!("building commit {commit} in PipelineRun {name}");
            Said {
                phase: BuildPhase::Building,
                ready: "False",
                reason: "Building".into(),
                message,
                stalled: false,
            }
        }
        Outcome::Failed { reason, message } => {
            let message = format!("PipelineRun {name} of commit {commit} failed: {message}");
            Said {
                phase: BuildPhase::Failed,
                ready: "False",
                reason: reason.clone(),
                message,
                stalled: true,
            }
        }
        Outcome::Built { url: Some(url), .. } if without_tag(url) != repository => {
            let message = format!(
                "PipelineRun {name} says that it pushed {url}, but spec.output asks for {repository}"
            );
            Said {
                phase: BuildPhase::Failed,
                ready: "False",
                reason: "ImageMismatch".into(),
                message,
                stalled: true,
            }
        }
        Outcome::Built { digest, url: _ } => {
            let image = format!("{repository}@{digest}");
            let message = format!("built {image}");
            new.built_image = Some(image);
            new.built_key = Some(key.to_string());
            new.last_built_commit.clone_from(&run.commit);
            Said {
                phase: BuildPhase::Succeeded,
                ready: "True",
                reason: "Built".into(),
                message,
                stalled: false,
            }
        }
    }
}

/// Registry and name of an image reference.
fn without_tag(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        // A colon before the last slash is a port.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

fn builder_condition(
    new: &mut AgentBuildStatus,
    meta: &ObjectMeta,
    found: &Found<'_>,
    builder: Builder,
    now: Timestamp,
) {
    let silent = match found {
        Found::Key { decision: Decision::Show(run), .. } => is_silent(run, now),
        _ => false,
    };
    let (status, reason, message) = match builder {
        Builder::Unknown => ("Unknown", "TektonUnknown", "not known yet whether Tekton is there"),
        Builder::NotInstalled => {
            ("False", "TektonNotInstalled", "Tekton is not installed; builds start when it is")
        }
        Builder::Available if silent => (
            "False",
            "TektonNotResponding",
            "Tekton has not looked at the PipelineRun for a minute: does its controller run?",
        ),
        Builder::Available => ("True", "TektonInstalled", "Tekton is there"),
    };
    let generation = meta.generation.unwrap_or_default();
    conditions::set(
        &mut new.conditions,
        "BuilderAvailable",
        status,
        reason,
        message,
        generation,
        now,
    );
}

/// Whether Tekton should have looked at a run by now and hasn't.
#[must_use]
pub fn is_silent(run: &Run, now: Timestamp) -> bool {
    !run.started && run.created.is_some_and(|created| now.duration_since(created) >= SILENCE)
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
#[path = "status_tests.rs"]
mod tests;
