//! (pure) Pod health: says why a pod does not run, in a message that stays the same while the reason does. Of pods that are
//! ready, `ready_pods` says what is kept.
//!
//! The status of a pod that cannot run changes all the time: its container ends, waits, runs and ends again, or its image is
//! pulled again and again, each time with another count or time in the message. Our own statuses must not be rewritten for
//! that. So all states of one trouble are the same [`PodProblem`], and only the lasting part of a foreign message is kept.
//!
//! A container writes `terminated.message` itself, so that text may hold anything. It is not shown. The exit code is shown,
//! with the command that shows the log to people who may read it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::pod_status::{Condition, Container, Labels, Pod, Spec, Status, Terminated, Waiting};
use super::ready_pods::{SeenPod, ready};
use super::store::{Entry, Key};
use crate::packed::Texts;
use convoke_core::text::printable;

/// Characters of a message that are kept.
const MAX_MESSAGE_CHARS: usize = 240;
/// A run of at least this many hexadecimal digits is an id, which changes with each try.
const MIN_ID_CHARS: usize = 12;

/// Why a pod does not run. When the pods of an object have different problems, the first in this order is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodProblem {
    /// The name of the image is not valid.
    InvalidImageName,
    /// The image cannot be pulled.
    ImagePullBackOff,
    /// A Secret, ConfigMap or key that the container names is missing.
    CreateContainerConfigError,
    /// The container cannot be created or started.
    RunContainerError,
    /// The container uses more memory than its limit.
    OutOfMemory,
    /// The container ends again and again.
    CrashLoopBackOff,
    /// The container runs, but fails the readiness probe that it passed before.
    ProbeFailing,
    /// No node fits the pod.
    Unschedulable,
    /// The node of the pod does not answer.
    NodeLost,
}

impl PodProblem {
    /// The reason in conditions.
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

    /// Whether somebody has to change something. The other problems may pass by themselves.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        !matches!(self, Self::ProbeFailing | Self::Unschedulable | Self::NodeLost)
    }
}

/// A pod that does not run as it should. Nothing else is kept of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingPod {
    /// Why it does not run.
    pub problem: PodProblem,
    /// Texts at the places [`OWNER_KIND`] to [`MESSAGE`].
    about: Texts,
}

/// Places in [`FailingPod::about`]: labels [`keys::OWNER_KIND`](crate::api::keys::OWNER_KIND) and
/// [`keys::OWNER_NAME`](crate::api::keys::OWNER_NAME), the ReplicaSet, the container, the message.
const OWNER_KIND: usize = 0;
const OWNER_NAME: usize = 1;
const REPLICA_SET: usize = 2;
const CONTAINER: usize = 3;
const MESSAGE: usize = 4;

impl FailingPod {
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

    /// Keeps the earlier message of the same pod if it only says more. Some kubelets name the cause of a failed pull or start
    /// only in every other state. Messages with exit codes are not compared: 1 is the beginning of 139, and means something
    /// else.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        let says_less =
            matches!(self.problem, PodProblem::ImagePullBackOff | PodProblem::RunContainerError)
                && self.problem == before.problem
                && self.about(REPLICA_SET) == before.about(REPLICA_SET)
                && self.about(CONTAINER) == before.about(CONTAINER)
                && before.about(MESSAGE).starts_with(self.about(MESSAGE));
        if says_less { before.clone() } else { self }
    }
}

/// The index term of an object's pods. `kind` is in lower case.
#[must_use]
pub fn term(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

/// The problem of a Deployment's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The reason in conditions.
    pub reason: &'static str,
    /// Whether somebody has to change something.
    pub lasting: bool,
    /// Which pod does not run and why, and what to do if that is known.
    pub message: String,
}

/// The problem of a Deployment's newest revision, if its pods have any. `seen` are pods of its owner.
///
/// The result stays the same while the same pods have the same problems. There is none while the Deployment's controller has not
/// seen the newest definition: until then it is not known which pods are the newest.
#[must_use]
pub fn trouble_of(deployment: &Deployment, seen: &[(Key, Arc<Entry<SeenPod>>)]) -> Option<Trouble> {
    let sick = seen.iter().filter_map(|(key, entry)| Some((key, entry.value.failing()?)));
    let ours = sick.filter(|(_, pod)| belongs_to_newest(deployment, pod.about(REPLICA_SET)));
    let (pod, sick) = ours.min_by_key(|(key, pod)| (pod.problem, &key.name))?;
    let mut message = format!("pod {}: {}", pod.name, sick.about(MESSAGE));
    let (namespace, pod, container) = (&pod.namespace, &pod.name, sick.about(CONTAINER));
    match sick.problem {
        PodProblem::CrashLoopBackOff => message.push_str(&format!(
            "; its log: kubectl -n {namespace} logs {pod} -c {container} --previous"
        )),
        PodProblem::OutOfMemory => message.push_str("; resources.limits.memory gives it more"),
        PodProblem::ImagePullBackOff | PodProblem::RunContainerError | PodProblem::ProbeFailing => {
            message.push_str(&format!("; more: kubectl -n {namespace} describe pod {pod}"));
        }
        PodProblem::InvalidImageName
        | PodProblem::CreateContainerConfigError
        | PodProblem::Unschedulable
        | PodProblem::NodeLost => {}
    }
    Some(Trouble { reason: sick.problem.reason(), lasting: sick.problem.is_lasting(), message })
}

/// Whether a ReplicaSet of this name is the newest of a Deployment. None is while the Deployment's controller has not seen the
/// newest definition.
pub(super) fn belongs_to_newest(deployment: &Deployment, set: &str) -> bool {
    let (Some(name), Some(status)) = (&deployment.metadata.name, &deployment.status) else {
        return false;
    };
    if status.observed_generation < deployment.metadata.generation {
        return false;
    }
    match newest_replica_set(deployment) {
        Some(newest) => set == newest,
        None => is_of(set, name),
    }
}

/// Whether a ReplicaSet has a name that the controller of this Deployment gives.
fn is_of(set: &str, deployment: &str) -> bool {
    let hash = set.strip_prefix(deployment).and_then(|rest| rest.strip_prefix('-'));
    hash.is_some_and(|hash| !hash.contains('-'))
}

/// The newest ReplicaSet of a Deployment. The Deployment's controller quotes the name in the message of `Progressing`, with every
/// reason (`ReplicaSet "agent-a-7c9f" is progressing.`; kubernetes/pkg/controller/deployment/progress.go).
#[must_use]
pub fn newest_replica_set(deployment: &Deployment) -> Option<&str> {
    let name = deployment.metadata.name.as_deref()?;
    let conditions = deployment.status.as_ref()?.conditions.as_deref()?;
    let message = conditions.iter().find(|c| c.type_ == "Progressing")?.message.as_deref()?;
    message.split('"').nth(1).filter(|set| is_of(set, name))
}

/// Reads the JSON text of a pod: its key, and why it does not run or where it can be asked. `None` for a pod that starts or
/// ends, is being deleted, or belongs to no Deployment.
///
/// # Errors
/// When the text is not that of a pod.
pub fn read(text: &str) -> serde_json::Result<(Key, Option<Entry<SeenPod>>)> {
    let Pod { metadata, spec, status } = serde_json::from_str(text)?;
    let key = Key::new(metadata.namespace, metadata.name);
    let owners = metadata.owner_references.unwrap_or_default();
    let owner = owners.iter().find(|o| o.controller == Some(true) && o.kind == "ReplicaSet");
    let is_deleting = metadata.deletion_timestamp.is_some();
    let Some(set) = owner.filter(|_| !is_deleting) else { return Ok((key, None)) };
    let value = match judge(&spec, &status) {
        Some(Finding { problem, container, message }) => {
            let Labels { kind, name } = &metadata.labels;
            let about = Texts::of([kind.as_str(), name, &set.name, &container, &cut(&message)]);
            Some(SeenPod::Failing(FailingPod { problem, about }))
        }
        None => ready(&metadata.labels, set, &spec, &status).map(SeenPod::Ready),
    };
    let version = metadata.resource_version.parse().unwrap_or(0);
    let entry = value.map(|value| Entry { uid: metadata.uid, version, value });
    Ok((key, entry))
}

/// A problem, the container that has it (empty for the pod itself), and the message.
struct Finding {
    problem: PodProblem,
    container: String,
    message: String,
}

/// Why a pod does not run, if it does not.
fn judge(spec: &Spec, status: &Status) -> Option<Finding> {
    // The ReplicaSet has already replaced a pod that has ended.
    if matches!(status.phase.as_str(), "Failed" | "Succeeded") {
        return None;
    }
    let of_pod = |problem, message| Finding { problem, container: String::new(), message };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let condition = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
    let no_node =
        |c: &&Condition| c.status == "False" && c.reason.as_deref() == Some("Unschedulable");
    if let Some(scheduled) = condition("PodScheduled").filter(no_node) {
        let reported = no_node_words(scheduled.message.as_deref().unwrap_or_default());
        return Some(of_pod(PodProblem::Unschedulable, format!("no node takes it: {reported}")));
    }
    let ready = condition("ContainersReady");
    // Since when the containers are not ready.
    let unready_since =
        ready.filter(|c| c.status == "False").and_then(|c| c.last_transition_time.as_ref());
    let containers =
        [(&status.init_container_statuses, Role::Init), (&status.container_statuses, Role::Main)];
    let mut all = containers
        .into_iter()
        .flat_map(|(list, role)| list.iter().flatten().map(move |container| (container, role)));
    if let Some(found) =
        all.find_map(|(container, role)| of_container(container, role, unready_since))
    {
        return Some(found);
    }
    // All containers are ready, but the pod is not. Kubernetes sets that when the node does not answer. A readiness gate may
    // set it, too, with a reason of its own.
    let is_lost = |c: &Condition| {
        c.status == "False" && c.reason.as_deref() != Some("ReadinessGatesNotReady")
    };
    let are_ready = ready.is_some_and(|c| c.status == "True");
    (are_ready && condition("Ready").is_some_and(is_lost)).then(|| {
        let node = spec.node_name.as_deref().unwrap_or_default();
        of_pod(PodProblem::NodeLost, format!("its node {node} does not answer"))
    })
}

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It ends before the others start.
    Init,
    /// It runs all the time.
    Main,
}

/// Why a container does not run, if it does not. `unready_since`: since when the containers of the pod are not ready.
fn of_container(
    container: &Container,
    role: Role,
    unready_since: Option<&Time>,
) -> Option<Finding> {
    let Container { name, image, ready, state, last_state } = container;
    // An init container is ready when it has done its work.
    if *ready {
        return None;
    }
    let who = match role {
        Role::Init => format!("init container {name}"),
        Role::Main => format!("container {name}"),
    };
    let found = |problem, message| Some(Finding { problem, container: name.clone(), message });
    let ended = state.terminated.as_ref().or(last_state.terminated.as_ref());
    let waiting = state.waiting.as_ref();
    if let Some((problem, message)) = waiting.and_then(|waiting| of_waiting(&who, image, waiting)) {
        return found(problem, message);
    }
    let started = state.running.as_ref().and_then(|running| running.started_at.as_ref());
    // A container that was ready after this start is not unready because of its last end.
    let was_ready =
        matches!((started, unready_since), (Some(started), Some(since)) if since.0 > started.0);
    if was_ready {
        let words = format!("{who} runs, and fails the readiness probe that it has passed before");
        return found(PodProblem::ProbeFailing, words);
    }
    let Terminated { exit_code, reason, message } = ended?;
    match (reason.as_deref().unwrap_or_default(), *exit_code) {
        ("OOMKilled", _) => found(
            PodProblem::OutOfMemory,
            format!("{who} needs more memory than its limit, and is killed"),
        ),
        ("StartError" | "ContainerCannotRun", _) => found(
            PodProblem::RunContainerError,
            not_started(&who, message.as_deref().unwrap_or_default()),
        ),
        // The node was away, and does not know how the container ended. It will start again.
        ("Unknown" | "ContainerStatusUnknown", _) => None,
        (_, 0) if role == Role::Init => None,
        (_, 0) => found(
            PodProblem::CrashLoopBackOff,
            format!("{who} ends by itself (exit code 0), and is to run for ever"),
        ),
        // 128 + SIGKILL or SIGTERM: only the kubelet kills a container of a pod that stays.
        (_, code @ (137 | 143)) => found(
            PodProblem::CrashLoopBackOff,
            format!(
                "{who} is killed (exit code {code}), perhaps because its startup or liveness probe fails"
            ),
        ),
        (_, code) => {
            found(PodProblem::CrashLoopBackOff, format!("{who} ends with exit code {code}"))
        }
    }
}

/// Why a container waits, if that is a problem. `who` names the container.
fn of_waiting(who: &str, image: &str, waiting: &Waiting) -> Option<(PodProblem, String)> {
    let reported = waiting.message.as_deref().unwrap_or_default();
    match waiting.reason.as_deref().unwrap_or_default() {
        "InvalidImageName" => {
            let message = format!("{who} names {image}, which is no name of an image");
            Some((PodProblem::InvalidImageName, message))
        }
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "SignatureValidationFailed"
        | "ImageInspectError" => {
            let message = format!("{who} cannot have its image {image}{}", pull_cause(reported));
            Some((PodProblem::ImagePullBackOff, message))
        }
        "CreateContainerConfigError" => {
            let message = format!("{who} cannot be made: {}", without_ids(reported));
            Some((PodProblem::CreateContainerConfigError, message))
        }
        "CreateContainerError" | "RunContainerError" => {
            Some((PodProblem::RunContainerError, not_started(who, reported)))
        }
        // The message may be the output of the hook.
        "PostStartHookError" => {
            Some((PodProblem::RunContainerError, format!("{who} fails in its postStart hook")))
        }
        // It starts, or waits for its next start. Its last end says why.
        _ => None,
    }
}

/// The message about a container that cannot be started: the innermost cause of what the kubelet says.
fn not_started(who: &str, reported: &str) -> String {
    let cause =
        reported.rsplit_once("unable to start container process: ").map_or(reported, |(_, c)| c);
    match without_ids(cause).as_str() {
        "" => format!("{who} cannot be started"),
        cause => format!("{who} cannot be started: {cause}"),
    }
}

/// Why an image cannot be pulled. Messages of registries differ from try to try, so the cause is one of a few texts.
fn pull_cause(reported: &str) -> &'static str {
    let reported = reported.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| reported.contains(word));
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

/// The message of the scheduler without the counts of nodes, which change with every node.
///
/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: …`
fn no_node_words(reported: &str) -> String {
    let causes = reported.split_once("nodes are available: ").map_or(reported, |(_, rest)| rest);
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

/// A foreign message without ids, which change with each try.
fn without_ids(reported: &str) -> String {
    let mut text = String::with_capacity(reported.len().min(4 * MAX_MESSAGE_CHARS));
    let mut run = String::new();
    for c in reported.chars().take(4 * MAX_MESSAGE_CHARS).chain(['\n']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        let id = run.len() >= MIN_ID_CHARS && run.contains(|c: char| c.is_ascii_digit());
        text.push_str(if id { "…" } else { &run });
        run.clear();
        text.push(c);
    }
    printable(text.trim())
}

/// The first [`MAX_MESSAGE_CHARS`] characters, in one line.
fn cut(words: &str) -> String {
    let words = printable(words);
    match words.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", words[..end].trim_end()),
        None => words,
    }
}

#[cfg(test)]
#[path = "tests/pods.rs"]
mod tests;
