//! (pure) What keeps a pod from running, in words that stay the same while it does.
//!
//! A pod that cannot run changes its status all the time: a container dies, waits, runs, dies; an image is tried again
//! and again, each time with a count or a time in its message. Nobody wants to read that, and no status of ours is to be
//! written for it. So states that follow each other are one [`Ill`], and of the world's words only what lasts is kept.
//!
//! What a container wrote at its end (`terminated.message`) is its own output, which may hold anything. It is not shown:
//! the exit code is, and the command that shows the log to those who may read it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::pod_status::{Condition, Container, Labels, Pod, Spec, Status, Terminated, Waiting};
use super::store::{Entry, Key};
use crate::definition::diagnostic::printable;
use crate::packed::Texts;

/// Most characters of what the world says in one message.
const MOST_WORDS: usize = 240;
/// A run of hexadecimal digits as long as this is the id of something: it changes with each try.
const ID: usize = 12;

/// What is wrong with a pod. In this order it is told when pods have different troubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ill {
    /// The image's name is none.
    InvalidImageName,
    /// The image cannot be had.
    ImagePullBackOff,
    /// Something that the container's environment names is missing.
    CreateContainerConfigError,
    /// The container cannot be made or started.
    RunContainerError,
    /// The container needs more memory than it may have.
    OutOfMemory,
    /// The container ends again and again.
    CrashLoopBackOff,
    /// The container was ready, runs, and is ready no more.
    ProbeFailing,
    /// No node takes the pod.
    Unschedulable,
    /// The node does not answer.
    NodeLost,
}

impl Ill {
    /// The reason of conditions.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::InvalidImageName => "InvalidImageName",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::RunContainerError => "RunContainerError",
            Self::OutOfMemory => "OOMKilled",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::ProbeFailing => "ProbeFailing",
            Self::Unschedulable => "Unschedulable",
            Self::NodeLost => "NodeLost",
        }
    }

    /// Whether it takes a change by somebody; the others may heal by themselves.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        !matches!(self, Self::ProbeFailing | Self::Unschedulable | Self::NodeLost)
    }
}

/// A pod that does not run as it should: all that is kept of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sick {
    /// What is wrong.
    pub ill: Ill,
    /// See [`OWNER_KIND`] and its siblings.
    about: Texts,
}

/// Places in [`Sick::about`]: labels [`keys::OWNER_KIND`](crate::api::keys::OWNER_KIND) and
/// [`keys::OWNER_NAME`](crate::api::keys::OWNER_NAME), the ReplicaSet, the container that is meant, what is wrong.
const OWNER_KIND: usize = 0;
const OWNER_NAME: usize = 1;
const REPLICA_SET: usize = 2;
const CONTAINER: usize = 3;
const WORDS: usize = 4;

impl Sick {
    fn about(&self, place: usize) -> &str {
        self.about.get(place).unwrap_or_default()
    }

    /// The kind of the object whose pod it is, in lower case.
    #[must_use]
    pub fn owner_kind(&self) -> &str {
        self.about(OWNER_KIND)
    }

    /// The name of that object.
    #[must_use]
    pub fn owner_name(&self) -> &str {
        self.about(OWNER_NAME)
    }

    /// What it is found by.
    #[must_use]
    pub fn terms(&self) -> Vec<String> {
        vec![term(self.owner_kind(), self.owner_name())]
    }

    /// The same pod a moment ago may have said more: some kubelets name the cause of a failed pull, or start, only in
    /// every other state. (Exit codes are no such words: 1 is not the beginning of 139.)
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        let same = matches!(self.ill, Ill::ImagePullBackOff | Ill::RunContainerError)
            && self.ill == before.ill
            && self.about(REPLICA_SET) == before.about(REPLICA_SET)
            && self.about(CONTAINER) == before.about(CONTAINER)
            && before.about(WORDS).starts_with(self.about(WORDS));
        if same { before.clone() } else { self }
    }
}

/// What the pods of an object are found by. `kind` is in lower case.
#[must_use]
pub fn term(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

/// What to tell of the pods of one Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The reason of conditions.
    pub reason: &'static str,
    /// Whether it takes a change by somebody.
    pub lasting: bool,
    /// Which pod, what is wrong with it, and what to do where that is known.
    pub message: String,
}

/// The trouble of the newest revision of a Deployment, if it has any. `sick` are pods of its owner.
///
/// Always the same one while the same pods have the same troubles. Nothing is told while the Deployment's controller
/// has not seen the newest definition: until then nobody knows which pods are the newest.
#[must_use]
pub fn trouble_of(deployment: &Deployment, sick: &[(Key, Arc<Entry<Sick>>)]) -> Option<Trouble> {
    let name = deployment.metadata.name.as_deref()?;
    let status = deployment.status.as_ref()?;
    if status.observed_generation < deployment.metadata.generation {
        return None;
    }
    let newest = newest_replica_set(deployment);
    let is_ours = |set: &str| match newest {
        Some(newest) => set == newest,
        None => is_of(set, name),
    };
    let ours = sick.iter().filter(|(_, entry)| is_ours(entry.value.about(REPLICA_SET)));
    let (pod, entry) = ours.min_by_key(|(key, entry)| (entry.value.ill, &key.name))?;
    let sick = &entry.value;
    let mut message = format!("pod {}: {}", pod.name, sick.about(WORDS));
    let (namespace, pod, container) = (&pod.namespace, &pod.name, sick.about(CONTAINER));
    match sick.ill {
        Ill::CrashLoopBackOff => message.push_str(&format!(
            "; its log: kubectl -n {namespace} logs {pod} -c {container} --previous"
        )),
        Ill::OutOfMemory => message.push_str("; resources.limits.memory gives it more"),
        Ill::ImagePullBackOff | Ill::RunContainerError | Ill::ProbeFailing => {
            message.push_str(&format!("; more: kubectl -n {namespace} describe pod {pod}"));
        }
        Ill::InvalidImageName
        | Ill::CreateContainerConfigError
        | Ill::Unschedulable
        | Ill::NodeLost => {}
    }
    Some(Trouble { reason: sick.ill.reason(), lasting: sick.ill.is_lasting(), message })
}

/// Whether a ReplicaSet has the name of one that this Deployment makes.
fn is_of(set: &str, deployment: &str) -> bool {
    let hash = set.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-'));
    hash.is_some_and(|hash| !hash.contains('-'))
}

/// The newest ReplicaSet of a Deployment: its controller quotes the name in the message of `Progressing`, whatever the
/// reason (`ReplicaSet "agent-a-7c9f" is progressing.`; kubernetes/pkg/controller/deployment/progress.go).
fn newest_replica_set(deployment: &Deployment) -> Option<&str> {
    let name = deployment.metadata.name.as_deref()?;
    let conditions = deployment.status.as_ref()?.conditions.as_deref()?;
    let message = conditions.iter().find(|c| c.type_ == "Progressing")?.message.as_deref()?;
    message.split('"').nth(1).filter(|set| is_of(set, name))
}

/// Reads the JSON text of a pod: which one, and what is wrong with it. `None`: nothing that we tell of, because it runs,
/// is just starting, is on its way out, or is no pod of a Deployment.
///
/// # Errors
/// When it is no pod.
pub fn read(text: &str) -> serde_json::Result<(Key, Option<Entry<Sick>>)> {
    let Pod { metadata, spec, status } = serde_json::from_str(text)?;
    let key = Key::new(metadata.namespace, metadata.name);
    let owners = metadata.owner_references.unwrap_or_default();
    let owner = owners.iter().find(|o| o.controller == Some(true) && o.kind == "ReplicaSet");
    let going = metadata.deletion_timestamp.is_some();
    let Some(set) = owner.filter(|_| !going) else { return Ok((key, None)) };
    let Some(Found { ill, container, words }) = judge(&spec, &status) else {
        return Ok((key, None));
    };
    let Labels { kind, name } = &metadata.labels;
    let about = Texts::of([kind.as_str(), name, &set.name, &container, &cut(&words)]);
    let version = metadata.resource_version.parse().unwrap_or(0);
    Ok((key, Some(Entry { uid: metadata.uid, version, value: Sick { ill, about } })))
}

struct Found {
    ill: Ill,
    container: String,
    words: String,
}

fn judge(spec: &Spec, status: &Status) -> Option<Found> {
    // What has ended is no part of the present: its ReplicaSet has made another one.
    if matches!(status.phase.as_str(), "Failed" | "Succeeded") {
        return None;
    }
    let of_pod = |ill, words| Found { ill, container: String::new(), words };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
    let no_node =
        |c: &&Condition| c.status == "False" && c.reason.as_deref() == Some("Unschedulable");
    if let Some(scheduled) = condition("PodScheduled").filter(no_node) {
        let said = no_node_words(scheduled.message.as_deref().unwrap_or_default());
        return Some(of_pod(Ill::Unschedulable, format!("no node takes it: {said}")));
    }
    let ready = condition("ContainersReady");
    // When they ceased to be ready, if they are not.
    let since = ready.filter(|c| c.status == "False").and_then(|c| c.last_transition_time.as_ref());
    let containers = [(&status.init_container_statuses, true), (&status.container_statuses, false)];
    let mut all = containers
        .into_iter()
        .flat_map(|(list, init)| list.iter().flatten().map(move |container| (container, init)));
    if let Some(found) = all.find_map(|(container, init)| of_container(container, init, since)) {
        return Some(found);
    }
    // The containers are as they were: somebody else says that the pod is not ready. That is Kubernetes when the node is
    // silent, unless a readiness gate does.
    let lost = |c: &Condition| {
        c.status == "False" && c.reason.as_deref() != Some("ReadinessGatesNotReady")
    };
    let well = ready.is_some_and(|c| c.status == "True");
    (well && condition("Ready").is_some_and(lost)).then(|| {
        let node = spec.node_name.as_deref().unwrap_or_default();
        of_pod(Ill::NodeLost, format!("its node {node} does not answer"))
    })
}

/// What is wrong with one container. `since`: when the containers of the pod ceased to be ready.
fn of_container(container: &Container, init: bool, since: Option<&Time>) -> Option<Found> {
    let Container { name, image, ready, state, last_state } = container;
    // An init container is ready when it has done its work.
    if *ready {
        return None;
    }
    let who = if init { format!("init container {name}") } else { format!("container {name}") };
    let found = |ill, words| Some(Found { ill, container: name.clone(), words });
    let ended = state.terminated.as_ref().or(last_state.terminated.as_ref());
    if let Some(Waiting { reason, message }) = &state.waiting {
        let said = message.as_deref().unwrap_or_default();
        match reason.as_deref().unwrap_or_default() {
            "InvalidImageName" => {
                let words = format!("{who} names {image}, which is no name of an image");
                return found(Ill::InvalidImageName, words);
            }
            "ErrImagePull"
            | "ImagePullBackOff"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "SignatureValidationFailed"
            | "ImageInspectError" => {
                let words = format!("{who} cannot have its image {image}{}", pull_cause(said));
                return found(Ill::ImagePullBackOff, words);
            }
            "CreateContainerConfigError" => {
                let words = format!("{who} cannot be made: {}", steady(said));
                return found(Ill::CreateContainerConfigError, words);
            }
            "CreateContainerError" | "RunContainerError" => {
                return found(Ill::RunContainerError, not_started(&who, said));
            }
            // What is said may be what the hook has written.
            "PostStartHookError" => {
                return found(Ill::RunContainerError, format!("{who} fails in its postStart hook"));
            }
            // Starting, or waiting for its next start: how it ended says why.
            _ => {}
        }
    }
    let started = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    // It was ready after this start, so its last end is not the reason.
    let was_ready = matches!((started, since), (Some(started), Some(since)) if since.0 > started.0);
    if was_ready {
        let words = format!("{who} runs, and fails the readiness probe that it has passed before");
        return found(Ill::ProbeFailing, words);
    }
    let Terminated { exit_code, reason, message } = ended?;
    match (reason.as_deref().unwrap_or_default(), *exit_code) {
        ("OOMKilled", _) => found(
            Ill::OutOfMemory,
            format!("{who} needs more memory than its limit, and is killed"),
        ),
        ("StartError" | "ContainerCannotRun", _) => {
            found(Ill::RunContainerError, not_started(&who, message.as_deref().unwrap_or_default()))
        }
        // The node was away, and does not know how it ended. It will start again.
        ("Unknown" | "ContainerStatusUnknown", _) => None,
        (_, 0) if init => None,
        (_, 0) => found(
            Ill::CrashLoopBackOff,
            format!("{who} ends by itself (exit code 0), and is to run for ever"),
        ),
        // 128 + SIGKILL, SIGTERM: nobody but the kubelet does that to a pod that stays.
        (_, code @ (137 | 143)) => found(
            Ill::CrashLoopBackOff,
            format!("{who} is killed (exit code {code}), perhaps because its liveness probe fails"),
        ),
        (_, code) => found(Ill::CrashLoopBackOff, format!("{who} ends with exit code {code}")),
    }
}

/// What a kubelet says of a container that cannot be started, without the names of all who have said it before.
fn not_started(who: &str, said: &str) -> String {
    let cause = said.rsplit_once("unable to start container process: ").map_or(said, |(_, c)| c);
    match steady(cause).as_str() {
        "" => format!("{who} cannot be started"),
        cause => format!("{who} cannot be started: {cause}"),
    }
}

/// Why an image cannot be pulled. What registries say differs from try to try, so it is one of few.
fn pull_cause(said: &str) -> &'static str {
    let said = said.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["unauthorized", "forbidden", "denied", "authorization failed", "no basic auth"]) {
        ": the registry asks for other credentials, or does not have it"
    } else if says(&["no match for platform", "no matching manifest"]) {
        ": it is not made for the platform of the node"
    } else if says(&[
        "no such host",
        "connection refused",
        "timeout",
        "deadline exceeded",
        "no route to host",
        "server misbehaving",
        "x509",
        "tls:",
        "https client",
        "connection reset",
        "unreachable",
    ]) {
        ": the registry cannot be reached"
    } else if says(&["not found", "manifest unknown", "name unknown", "does not exist"]) {
        ": the registry does not have it"
    } else if says(&["not present with pull policy"]) {
        ": the node does not have it"
    } else {
        ""
    }
}

/// What a scheduler says, without the counts of nodes: those change whenever a node does.
///
/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: …`
fn no_node_words(said: &str) -> String {
    let causes = said.split_once("nodes are available: ").map_or(said, |(_, rest)| rest);
    let causes = causes.split(" preemption: ").next().unwrap_or_default();
    let causes = causes.split(". no new claims").next().unwrap_or_default().trim_end_matches('.');
    let uncounted = |cause: &str| {
        let cause = cause.trim();
        let rest = cause.trim_start_matches(|c: char| c.is_ascii_digit());
        let counted = rest.len() < cause.len() && rest.starts_with(' ');
        if counted { rest.trim() } else { cause }.to_owned()
    };
    let mut causes: Vec<_> = causes.split(", ").map(uncounted).collect();
    causes.retain(|cause| !cause.is_empty());
    causes.sort();
    causes.dedup();
    if causes.is_empty() { "there is none that fits".into() } else { causes.join(", ") }
}

/// Words of the world without ids, which change with each try.
fn steady(said: &str) -> String {
    let mut steady = String::with_capacity(said.len().min(4 * MOST_WORDS));
    let mut run = String::new();
    for c in said.chars().take(4 * MOST_WORDS).chain(['\n']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        let id = run.len() >= ID && run.contains(|c: char| c.is_ascii_digit());
        steady.push_str(if id { "…" } else { &run });
        run.clear();
        steady.push(c);
    }
    printable(steady.trim())
}

/// At most [`MOST_WORDS`] characters, in one line.
fn cut(words: &str) -> String {
    let words = printable(words);
    match words.char_indices().nth(MOST_WORDS) {
        Some((end, _)) => format!("{}…", words[..end].trim_end()),
        None => words,
    }
}

#[cfg(test)]
#[path = "tests/pods.rs"]
mod tests;
