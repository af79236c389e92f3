//! (pure) What `convoke trace` has found out, one part for each stage from the commit to the pods.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use crate::api::common::Condition;
use crate::api::git_sync::{FailurePolicy, GitSync, HistoryEntry, Problem, Severity};
use crate::api::{AgentBuild, Kind, Mark, keys};
use crate::cli::pods::is_ready;
use crate::cluster::readiness::{Health, observe};
use crate::controllers::agent_build::key::BuildKey;
use crate::controllers::agent_build::run::{Run, RunOutcome};
use crate::controllers::workload::pod_template::image_of;
use convoke_core::git::Revision;

/// A stage, if it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Seen<T> {
    /// It is there.
    Known(T),
    /// It is not there.
    Missing {
        /// Why, in one sentence.
        missing: String,
    },
    /// It may not be read.
    Refused {
        /// The right that is missing: `get gitsyncs.convoke.dev`.
        missing_right: String,
    },
}

impl<T> Seen<T> {
    /// The stage, if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(known) => Some(known),
            Self::Missing { .. } | Self::Refused { .. } => None,
        }
    }

    /// The right that is missing.
    pub fn refused(&self) -> Option<&str> {
        match self {
            Self::Refused { missing_right } => Some(missing_right),
            Self::Known(_) | Self::Missing { .. } => None,
        }
    }
}

/// All stages of an object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// The namespace.
    pub namespace: String,
    /// The GitSync. `None`: the object comes from none.
    pub git_sync: Option<Seen<SyncFacts>>,
    /// The object itself.
    pub object: ObjectFacts,
    /// The AgentBuild. `None`: the object names none.
    pub build: Option<Seen<BuildFacts>>,
    /// The Deployment.
    pub deployment: Seen<DeploymentFacts>,
    /// The pods, those of the newest revision first.
    pub pods: Seen<Vec<PodFacts>>,
    /// What is wrong with the pods of the newest revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleFacts>,
}

impl Trace {
    /// Whether an AgentBuild alone is traced. It has no pods.
    pub fn is_of_build(&self) -> bool {
        self.object.kind == Kind::AgentBuild
    }
}

/// The condition `Ready`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ready {
    /// `True`, `False` or `Unknown`; empty while nothing was told.
    pub status: String,
    /// Why.
    pub reason: String,
    /// The same in one sentence.
    pub message: String,
}

impl Ready {
    fn of(conditions: &[Condition]) -> Self {
        let found = conditions.iter().find(|one| one.type_ == "Ready");
        found.map_or_else(Self::default, |one| Self {
            status: one.status.clone(),
            reason: one.reason.clone(),
            message: one.message.clone(),
        })
    }

    /// Whether it is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// A GitSync.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncFacts {
    /// Its name.
    pub name: String,
    /// What it follows: `branch main`.
    pub follows: String,
    /// The newest commit that it has read.
    pub attempted: Option<String>,
    /// The newest commit that was applied without a problem.
    pub applied: Option<String>,
    /// When that was.
    pub applied_at: Option<Time>,
    /// Its condition `Ready`.
    pub ready: Ready,
    /// `spec.suspend`.
    pub suspended: bool,
    /// All of the newest commit is applied; only deletes wait.
    pub only_deletes_wait: bool,
    /// The objects that errors of the newest commit are about; an empty text for an error that is about no object.
    pub faulty: Vec<String>,
    /// Whether one error keeps the whole commit from being applied.
    pub is_atomic: bool,
    /// Objects that their annotation keeps as they are.
    pub paused: Vec<String>,
}

impl SyncFacts {
    /// What a GitSync says.
    pub fn of(sync: &GitSync) -> Self {
        let status = sync.status.clone().unwrap_or_default();
        let commit = |revision: &Option<String>| {
            Revision::parse(revision.as_deref()?).map(|revision| revision.commit)
        };
        let newest = status.history.first();
        let is_newest = newest
            .is_some_and(|entry| Some(&entry.revision) == status.last_attempted_revision.as_ref());
        let at_applied =
            |entry: &&HistoryEntry| Some(&entry.revision) == status.last_applied_revision.as_ref();
        // The oldest one: later syncs of the same commit only keep it so.
        let applied_at = status.history.iter().rfind(at_applied).map(|entry| entry.time.clone());
        let error = |problem: &&Problem| problem.severity == Severity::Error;
        let of = |problem: &Problem| problem.object.clone().unwrap_or_default();
        let broken = status.quarantined.iter().map(|one| one.object.clone());
        let faulty = status.problems.iter().filter(error).map(of).chain(broken).collect();
        Self {
            name: sync.metadata.name.clone().unwrap_or_default(),
            follows: follows(sync),
            attempted: commit(&status.last_attempted_revision),
            applied: commit(&status.last_applied_revision),
            applied_at,
            ready: Ready::of(&status.conditions),
            suspended: sync.spec.suspend,
            only_deletes_wait: is_newest && newest.is_some_and(|entry| entry.outcome == "Held"),
            faulty,
            is_atomic: sync.spec.failure_policy == FailurePolicy::Atomic,
            paused: status.paused,
        }
    }
}

/// What a GitSync follows.
fn follows(sync: &GitSync) -> String {
    let reference = sync.spec.reference.clone().unwrap_or_default();
    let named = [
        ("branch", reference.branch),
        ("tag", reference.tag),
        ("semver", reference.semver),
        ("ref", reference.name),
        ("commit", reference.commit),
    ];
    let found = named.into_iter().find_map(|(word, name)| Some(format!("{word} {}", name?)));
    found.unwrap_or_else(|| "branch main".to_owned())
}

/// An Agent, an MCPServer or an AgentBuild.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectFacts {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The commit that last changed its definition.
    pub commit: Option<String>,
    /// The file and the line of the definition.
    pub source: Option<String>,
    /// Whether the operator has seen its newest definition.
    pub is_observed: bool,
    /// Its phase.
    pub phase: String,
    /// Its condition `Ready`.
    pub ready: Ready,
    /// The image that its definition names.
    pub named_image: Option<String>,
    /// The AgentBuild that its definition names.
    pub build: Option<String>,
}

impl ObjectFacts {
    /// What an object says of itself.
    pub fn of(kind: Kind, object: &DynamicObject) -> Self {
        let (spec, status) = (&object.data["spec"], &object.data["status"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let is_from_git = mark(kind, object).is_some();
        let annotation = |key: &str| {
            let all = object.metadata.annotations.as_ref().filter(|_| is_from_git)?;
            all.get(key).cloned()
        };
        let conditions = status["conditions"].clone();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        Self {
            kind,
            name: object.metadata.name.clone().unwrap_or_default(),
            commit: annotation(keys::COMMIT),
            source: annotation(keys::SOURCE),
            is_observed: is_observed(status["observedGeneration"].as_i64(), object),
            phase: text(&status["phase"]).unwrap_or_default(),
            ready: Ready::of(&conditions),
            named_image: text(&spec["image"]),
            build: text(&spec["buildRef"]["name"]),
        }
    }
}

fn is_observed(observed: Option<i64>, object: &impl kube::Resource) -> bool {
    observed.is_some() && observed >= object.meta().generation
}

/// The mark of an object, if it is its own.
pub fn mark(kind: Kind, object: &DynamicObject) -> Option<Mark> {
    let meta = &object.metadata;
    let mark = Mark::parse(meta.annotations.as_ref()?.get(keys::OWNER)?)?;
    let (namespace, name) = (meta.namespace.as_deref()?, meta.name.as_deref()?);
    mark.names(kind, namespace, name).then_some(mark)
}

/// An AgentBuild.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildFacts {
    /// Its name.
    pub name: String,
    /// Whether the operator has seen its newest definition.
    pub is_observed: bool,
    /// Its phase.
    pub phase: String,
    /// Its condition `Ready`.
    pub ready: Ready,
    /// The first digits of the key of the newest wanted build.
    pub key: Option<String>,
    /// The commit of the newest try.
    pub attempted_commit: Option<String>,
    /// Its PipelineRun.
    pub pipeline_run: Option<RunFacts>,
    /// The last good image, with its digest.
    pub image: Option<String>,
    /// The commit that it was built from.
    pub built_commit: Option<String>,
    /// Whether somebody cancelled the newest try.
    pub is_cancelled: bool,
    /// Why the newest try failed, in one sentence.
    pub failure: Option<String>,
}

impl BuildFacts {
    /// What an AgentBuild says. `run` is how its newest PipelineRun stands.
    pub fn of(build: &AgentBuild, run: Option<String>) -> Self {
        use crate::api::agent_build::{BuildPhase, FailureClass};
        let status = build.status.clone().unwrap_or_default();
        let phase = match status.phase.unwrap_or_default() {
            BuildPhase::Pending => "Pending",
            BuildPhase::Building => "Building",
            BuildPhase::Succeeded => "Succeeded",
            BuildPhase::Failed => "Failed",
            BuildPhase::Superseded => "Superseded",
        };
        let key = status.build_key.as_deref().and_then(BuildKey::parse);
        let ready = Ready::of(&status.conditions);
        let failure = status.failure.as_ref();
        Self {
            name: build.metadata.name.clone().unwrap_or_default(),
            is_observed: is_observed(status.observed_generation, build),
            phase: phase.to_owned(),
            is_cancelled: ready.reason == "Cancelled"
                || failure.is_some_and(|failure| failure.class == FailureClass::Cancelled),
            ready,
            key: key.map(|key| key.short().to_owned()),
            attempted_commit: status.last_attempted_commit,
            pipeline_run: status.pipeline_run.map(|name| RunFacts {
                name,
                namespace: status.build_namespace,
                state: run,
            }),
            image: status.built_image,
            built_commit: status.last_built_commit,
            failure: status.failure.map(|failure| failure.message),
        }
    }
}

/// A PipelineRun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunFacts {
    /// Its name.
    pub name: String,
    /// Its namespace, if it is not that of the AgentBuild.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// How it stands. `None`: it may not be read.
    pub state: Option<String>,
}

/// How a PipelineRun stands, in few words. `uid` is that of the AgentBuild.
pub fn run_state(object: Option<&DynamicObject>, uid: Option<&str>) -> String {
    let run = object.map(Run::read).filter(|run| run.owner_uid.as_deref() == uid);
    match run {
        None => "is gone".to_owned(),
        Some(run) => match run.outcome {
            RunOutcome::Running if run.stopping => "stops".to_owned(),
            RunOutcome::Running if !run.started => "has not begun".to_owned(),
            RunOutcome::Running => "runs".to_owned(),
            RunOutcome::Built { .. } => "succeeded".to_owned(),
            RunOutcome::Unattested { .. } => "succeeded, and is not attested yet".to_owned(),
            RunOutcome::Failed { reason, .. } => format!("failed ({reason})"),
        },
    }
}

/// A Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentFacts {
    /// Its name.
    pub name: String,
    /// The image of the container that does the work.
    pub image: Option<String>,
    /// The generation of its spec.
    pub generation: i64,
    /// The one that its controller has seen.
    pub observed_generation: i64,
    /// Wanted pods.
    pub wanted: i32,
    /// Available pods, of whatever revision.
    pub available: i32,
    /// Whether all pods are available and of the newest revision.
    pub is_settled: bool,
    /// Why it cannot go on: reason and message.
    pub failure: Option<(String, String)>,
    /// How far it is.
    pub progress: String,
}

impl DeploymentFacts {
    /// What a Deployment says.
    pub fn of(deployment: &Deployment) -> Self {
        let observed = observe(deployment);
        let failure = match &observed.health {
            Health::Failed(reason, message) => Some((reason.clone(), message.clone())),
            Health::Progressing | Health::Available => None,
        };
        let status = deployment.status.as_ref();
        Self {
            name: deployment.metadata.name.clone().unwrap_or_default(),
            image: image_of(deployment),
            generation: deployment.metadata.generation.unwrap_or_default(),
            observed_generation: status.and_then(|s| s.observed_generation).unwrap_or_default(),
            wanted: observed.wanted,
            available: observed.wanted - observed.unavailable,
            is_settled: observed.health == Health::Available,
            failure,
            progress: observed.progress(),
        }
    }
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Whether it is of the newest revision.
    pub is_newest: bool,
    /// The digest of the image that runs. `None`: nothing runs yet.
    pub digest: Option<String>,
    /// Whether it takes requests.
    pub is_ready: bool,
    /// How often its containers were started again.
    pub restarts: i32,
    /// Why it is not ready.
    pub reason: Option<String>,
}

impl PodFacts {
    /// What a pod says. `problem` is why it does not run, if that is known.
    pub fn of(pod: &Pod, is_newest: bool, problem: Option<&str>) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let main = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let main = containers.iter().find(|one| main.is_some_and(|main| main.name == one.name));
        let init = status.init_container_statuses.unwrap_or_default();
        let waits = || {
            let all = init.iter().chain(&containers);
            let mut waiting = all.filter_map(|one| one.state.as_ref()?.waiting.clone()?.reason);
            waiting.next()
        };
        let is_ready = is_ready(pod);
        let ends = pod.metadata.deletion_timestamp.is_some().then(|| "Terminating".to_owned());
        let why = ends.or_else(|| problem.map(str::to_owned)).or_else(waits);
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            is_newest,
            digest: main.and_then(|main| digest(&main.image_id)).map(str::to_owned),
            is_ready,
            restarts: containers.iter().map(|one| one.restart_count).sum(),
            reason: why.or(status.reason).or(status.phase).filter(|_| !is_ready),
        }
    }
}

/// The digest in the name of an image.
pub fn digest(image: &str) -> Option<&str> {
    let at = image.rfind("sha256:")?;
    image.get(at..)
}

/// What keeps pods from running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TroubleFacts {
    /// Why, in CamelCase.
    pub reason: String,
    /// Which pod, and why.
    pub message: String,
    /// The command that says more.
    pub next: Option<String>,
}

impl TroubleFacts {
    /// Takes the command out of the message.
    pub fn of(reason: &str, message: &str) -> Self {
        let parts = ["; its log: ", "; more: "].iter().find_map(|word| message.rsplit_once(word));
        let (message, next) = parts.map_or((message, None), |(text, next)| (text, Some(next)));
        Self {
            reason: reason.to_owned(),
            message: message.to_owned(),
            next: next.map(str::to_owned),
        }
    }
}
