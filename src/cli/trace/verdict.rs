//! (pure) Where the newest commit is stuck.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde::Serialize;

use super::facts::{BuildFacts, DeploymentFacts, ObjectFacts, Seen, SyncFacts, Trace, digest};
use crate::controllers::agent_build::signing::refusal::PROVENANCE_REFUSED;

/// A stage between the commit and the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// The GitSync.
    GitSync,
    /// The AgentBuild.
    AgentBuild,
    /// The object itself.
    Object,
    /// Its Deployment.
    Deployment,
    /// Its pods.
    Pods,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Whether the newest commit runs. `None`: it is not known, because a stage may not be read.
    pub runs: Option<bool>,
    /// The newest commit. `None`: the object does not come from Git.
    pub commit: Option<String>,
    /// The stage at which it is stuck.
    pub stuck_at: Option<Stage>,
    /// The answer in one sentence.
    pub message: String,
    /// The command that says more, or that helps.
    pub next: Option<String>,
}

/// Why the newest commit does not run.
struct Stuck {
    stage: Stage,
    why: String,
    next: Option<String>,
}

/// Where the newest commit is stuck, or that it runs.
///
/// The newest commit is the last one that the GitSync has read. It runs when no stage holds it. The first stage of this list that
/// holds it is told:
///
/// 1. **GitSync**: the commit is not applied. It counts as applied when only deletes wait for an approval; and when the
///    definition of the object is of this commit, or the commit has errors of other objects only (without `failurePolicy: Atomic`).
/// 2. **AgentBuild**, if the object names one: it is missing, the operator has not seen its newest definition, or its `Ready` is
///    not `True`. A commit that does not change what is built needs no build of its own: the image may be of an earlier commit.
/// 3. **Object**: the operator has not seen its newest definition, it is stopped, or there is no Deployment. Or the Deployment asks
///    for another image than the build has made or the definition names.
/// 4. **Pods**: one of the newest revision has a known trouble.
/// 5. **Deployment**: its controller has not seen its newest spec, cannot go on, or lacks pods of the newest revision.
/// 6. **Object** again: its `Ready` is not `True` for another reason.
///
/// Of an AgentBuild alone there are the first two.
///
/// Stages that may not be read hold nothing. Without pods, the counts of the Deployment decide. Without the Deployment, `Ready` of
/// the object decides. Without the GitSync or the AgentBuild, it is not known that the newest commit runs.
pub fn verdict(trace: &Trace) -> Verdict {
    let sync = trace.git_sync.as_ref().and_then(Seen::known);
    let of_sync = sync.and_then(|sync| sync.attempted.clone().or_else(|| sync.applied.clone()));
    let commit = of_sync.or_else(|| trace.object.commit.clone());
    let name = commit.as_deref().map_or_else(
        || format!("{} {}", trace.object.kind, trace.object.name),
        |commit| format!("commit {}", short(commit)),
    );
    let stages = [at_git_sync, at_build, at_object, at_pods, at_deployment, at_ready];
    let stages = if trace.is_of_build() { &stages[..2] } else { &stages[..] };
    let does = if trace.is_of_build() { "is not built yet" } else { "does not run yet" };
    if let Some(Stuck { stage, why, next }) = stages.iter().find_map(|stage| stage(trace)) {
        let message = format!("{name} {does}: {why}");
        return Verdict { runs: Some(false), commit, stuck_at: Some(stage), message, next };
    }
    let unread = [
        trace.git_sync.as_ref().and_then(Seen::refused),
        trace.build.as_ref().and_then(Seen::refused),
    ];
    if let Some(right) = unread.into_iter().flatten().next() {
        let message = format!(
            "{} {} {}, but it is not known whether with the newest commit: you have no right to {right}",
            trace.object.kind,
            trace.object.name,
            if trace.is_of_build() { "is built" } else { "runs" }
        );
        return Verdict { runs: None, commit, stuck_at: None, message, next: None };
    }
    let (does, what) = match trace.build.as_ref().and_then(Seen::known) {
        Some(build) if trace.is_of_build() => {
            ("is built", image_text(build.image.as_deref().unwrap_or("no image")))
        }
        _ => ("runs", what_runs(trace)),
    };
    let message = format!("{name} {does}: {what}{}", remark(trace));
    Verdict { runs: Some(true), commit, stuck_at: None, message, next: None }
}

fn at_git_sync(trace: &Trace) -> Option<Stuck> {
    let sync = trace.git_sync.as_ref()?.known()?;
    let SyncFacts { name, attempted, applied, only_deletes_wait, faulty, ready, .. } = sync;
    let attempted = attempted.as_ref()?;
    if Some(attempted) == applied.as_ref() || *only_deletes_wait {
        return None;
    }
    let object = format!("{}/{}", trace.object.kind, trace.object.name);
    let build = trace.object.build.as_ref().map(|build| format!("AgentBuild/{build}"));
    let is_named = faulty.iter().any(|one| *one == object || Some(one) == build.as_ref());
    let names_others =
        !sync.is_atomic && !faulty.is_empty() && !faulty.iter().any(String::is_empty);
    if !is_named && (names_others || trace.object.commit.as_ref() == Some(attempted)) {
        return None;
    }
    let why =
        format!("GitSync {name} has not applied it{}", because(&ready.reason, &ready.message));
    let next = Some(format!("kubectl -n {} describe gitsync {name}", trace.namespace));
    Some(Stuck { stage: Stage::GitSync, why, next })
}

fn at_build(trace: &Trace) -> Option<Stuck> {
    let namespace = &trace.namespace;
    let stuck = |why, next| Some(Stuck { stage: Stage::AgentBuild, why, next: Some(next) });
    let build = match trace.build.as_ref()? {
        Seen::Known(build) => build,
        Seen::Refused { .. } => return None,
        Seen::Missing { missing } => {
            let next = format!("kubectl -n {namespace} get agentbuilds");
            return stuck(missing.clone(), next);
        }
    };
    let BuildFacts { name, is_observed, phase, ready, pipeline_run, .. } = build;
    let describe = || format!("kubectl -n {namespace} describe agentbuild {name}");
    if !is_observed {
        let why = format!("the operator has not looked at the newest AgentBuild {name} yet");
        return stuck(why, describe());
    }
    if ready.is_true() {
        return None;
    }
    let logs = format!("convoke logs build/{name} -n {namespace}");
    let rebuild = format!("convoke rebuild build/{name} -n {namespace}");
    match (phase.as_str(), ready.reason.as_str()) {
        ("Building", reason @ "ProvenancePending") => {
            let why = format!("AgentBuild {name} waits{}", because(reason, &ready.message));
            stuck(why, describe())
        }
        ("Building", reason @ "TektonNotResponding") => {
            let why = format!("AgentBuild {name} waits{}", because(reason, &ready.message));
            stuck(why, "kubectl -n tekton-pipelines get pods".to_owned())
        }
        ("Building", reason) => {
            let why = format!("AgentBuild {name} is under way{}", because(reason, &ready.message));
            stuck(why, format!("{logs} -f"))
        }
        ("Failed", reason) => {
            let message = build.failure.as_ref().unwrap_or(&ready.message);
            let why = format!("AgentBuild {name} failed{}", because(reason, message));
            let next = match pipeline_run {
                _ if build.is_cancelled || reason == PROVENANCE_REFUSED => rebuild,
                Some(_) => logs,
                None => describe(),
            };
            stuck(why, next)
        }
        (_, reason) => {
            let why = format!("AgentBuild {name} waits{}", because(reason, &ready.message));
            stuck(why, if reason == "TriggerOff" { rebuild } else { describe() })
        }
    }
}

fn at_object(trace: &Trace) -> Option<Stuck> {
    let ObjectFacts { kind, name, is_observed, phase, ready, .. } = &trace.object;
    let describe = describe(trace);
    let stuck = |why| Some(Stuck { stage: Stage::Object, why, next: Some(describe) });
    let told = because(&ready.reason, &ready.message);
    if !is_observed {
        return stuck(format!("the operator has not looked at the newest {kind} {name} yet"));
    }
    if phase == "Stopped" {
        return stuck(format!("{kind} {name} is stopped{told}"));
    }
    let deployment = match &trace.deployment {
        Seen::Known(deployment) => deployment,
        Seen::Refused { .. } => return None,
        Seen::Missing { .. } if !ready.is_true() => {
            return stuck(format!("{kind} {name} has no pods yet{told}"));
        }
        Seen::Missing { missing } => return stuck(missing.clone()),
    };
    let built = trace.build.as_ref().and_then(Seen::known).and_then(|build| build.image.as_ref());
    let wanted = built.or(trace.object.named_image.as_ref())?;
    if deployment.image.as_ref() == Some(wanted) {
        return None;
    }
    let asked = image_text(deployment.image.as_deref().unwrap_or("no image"));
    let told = if ready.is_true() { String::new() } else { told };
    let of = format!("Deployment {} still asks for {asked}", deployment.name);
    stuck(format!("{of} instead of {}{told}", image_text(wanted)))
}

fn at_pods(trace: &Trace) -> Option<Stuck> {
    let trouble = trace.trouble.as_ref()?;
    let ObjectFacts { kind, name, .. } = &trace.object;
    let next = if trouble.reason == "CrashLoopBackOff" {
        let kind = kind.as_str().to_lowercase();
        Some(format!("convoke logs {kind}/{name} -n {} --previous", trace.namespace))
    } else {
        trouble.next.clone()
    };
    let (count, wanted) = ready_pods(trace)?;
    let why =
        format!("{count} of {wanted} pods ready{}", because(&trouble.reason, &trouble.message));
    Some(Stuck { stage: Stage::Pods, why, next })
}

fn at_deployment(trace: &Trace) -> Option<Stuck> {
    let deployment = trace.deployment.known()?;
    let DeploymentFacts { name, failure, progress, is_settled, .. } = deployment;
    let stuck = |stage, why, next| Some(Stuck { stage, why, next: Some(next) });
    let namespace = &trace.namespace;
    let describe = format!("kubectl -n {namespace} describe deployment {name}");
    if let Some((reason, message)) = failure {
        let why = format!("Deployment {name} cannot go on{}", because(reason, message));
        return stuck(Stage::Deployment, why, describe);
    }
    if deployment.observed_generation < deployment.generation {
        let why = format!("the controller of Deployment {name} has not seen its newest spec yet");
        return stuck(Stage::Deployment, why, describe);
    }
    if *is_settled {
        return None;
    }
    let mut pods = trace.pods.known().into_iter().flatten();
    match pods.find(|pod| pod.is_newest && !pod.is_ready) {
        Some(pod) => {
            let reason = pod.reason.as_deref().unwrap_or("not ready");
            let why = format!("{progress}; pod {} is not ready ({reason})", pod.name);
            stuck(Stage::Pods, why, format!("kubectl -n {namespace} describe pod {}", pod.name))
        }
        None => stuck(Stage::Deployment, format!("Deployment {name}: {progress}"), describe),
    }
}

fn at_ready(trace: &Trace) -> Option<Stuck> {
    let ObjectFacts { kind, name, ready, .. } = &trace.object;
    if ready.is_true() {
        return None;
    }
    let why = format!("{kind} {name} is not ready{}", because(&ready.reason, &ready.message));
    Some(Stuck { stage: Stage::Object, why, next: Some(describe(trace)) })
}

fn describe(trace: &Trace) -> String {
    let ObjectFacts { kind, name, .. } = &trace.object;
    format!("kubectl -n {} describe {} {name}", trace.namespace, kind.as_str().to_lowercase())
}

/// Pods of the newest revision that are ready, and pods that are wanted.
fn ready_pods(trace: &Trace) -> Option<(usize, i32)> {
    let pods = trace.pods.known()?;
    let wanted = trace.deployment.known()?.wanted;
    Some((pods.iter().filter(|pod| pod.is_newest && pod.is_ready).count(), wanted))
}

/// What runs: how many pods, and with which image.
fn what_runs(trace: &Trace) -> String {
    let Some(deployment) = trace.deployment.known() else {
        return trace.object.ready.message.clone();
    };
    let image = image_text(deployment.image.as_deref().unwrap_or("no image"));
    if let Some((count, wanted)) = ready_pods(trace) {
        return format!("{count} of {wanted} pods ready with {image}");
    }
    let DeploymentFacts { available, wanted, .. } = deployment;
    format!("{available} of {wanted} pods available with {image}")
}

/// What people should know of a commit that runs: why a newer one may not come.
fn remark(trace: &Trace) -> String {
    let object = format!("{}/{}", trace.object.kind, trace.object.name);
    match &trace.git_sync {
        None => "; it does not come from Git".to_owned(),
        Some(Seen::Missing { missing }) => format!("; {missing}, so no newer commit comes"),
        Some(Seen::Refused { .. }) => String::new(),
        Some(Seen::Known(sync)) if sync.paused.contains(&object) => {
            format!("; {object} is paused, so Git does not change it")
        }
        Some(Seen::Known(sync)) if sync.suspended => {
            format!("; GitSync {} is suspended, so no newer commit comes", sync.name)
        }
        Some(Seen::Known(sync)) if !sync.ready.is_true() => {
            let why = because(&sync.ready.reason, &sync.ready.message);
            format!("; but GitSync {} is not ready{why}", sync.name)
        }
        Some(Seen::Known(_)) => String::new(),
    }
}

/// ` (Reason): message`, as far as there is one.
fn because(reason: &str, message: &str) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    if message.is_empty() { reason } else { format!("{reason}: {message}") }
}

/// The digest of an image, shortened; without one, its whole name.
pub fn image_text(image: &str) -> String {
    digest(image).map_or_else(|| image.to_owned(), short_digest)
}

/// The first digits of a digest.
pub fn short_digest(digest: &str) -> String {
    digest.chars().take("sha256:".len() + 12).collect()
}

/// The first digits of a commit.
pub fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
pub(super) mod tests;
