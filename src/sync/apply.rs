//! Carries out a plan: applies in kind order with bounded concurrency, then deletes, each guarded.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream;
use kube::Client;

use super::desired::{Desired, DesiredSet, SyncRef};
use super::plan::{Plan, Settled, Victim};
use crate::api::{Kind, Mark, ObjectId, keys};
use crate::cluster::client::{CallError, call};
use crate::cluster::live::Stores;
use crate::cluster::ssa::{self, Deleted, Mode};
use crate::cluster::store::Key;

/// Writes in flight at once: more adds nothing on a small API server.
const CONCURRENCY: usize = 16;
/// How often a delete that met a change is looked at again.
const DELETE_TRIES: usize = 5;

/// Why one write did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// An object of that name appeared, and it is not ours.
    Conflict,
    /// The server refused the content; only a change helps.
    Refused(String),
    /// It may work later.
    Transient(String),
}

/// What came of a plan.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Objects created.
    pub created: usize,
    /// Objects changed.
    pub updated: usize,
    /// Objects deleted.
    pub pruned: usize,
    /// Writes that failed.
    pub failures: BTreeMap<ObjectId, Failure>,
    /// Deletes that could not be finished: they are planned again.
    pub undeleted: BTreeMap<ObjectId, String>,
}

/// What the writes need.
pub struct Writer<'a> {
    /// Client with the rights of the sync.
    pub client: &'a Client,
    /// Stores that replies overlay.
    pub stores: &'a Stores,
    /// For whom.
    pub sync: &'a SyncRef,
    /// Commit that is being applied.
    pub commit: &'a str,
}

/// One write that is to be done.
struct Job {
    id: ObjectId,
    want: Desired,
    mode: Mode,
    /// Version of the live object; 0 when there is none.
    before: u64,
}

/// The creates and updates of one kind.
fn jobs(kind: Kind, desired: &DesiredSet, plan: &Plan) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut add = |id: &ObjectId, mode: Mode, before: u64| {
        if let Some(want) = desired.get(id).filter(|_| id.kind == kind) {
            jobs.push(Job { id: id.clone(), want: want.clone(), mode, before });
        }
    };
    for id in &plan.create {
        add(id, Mode::Create, 0);
    }
    for update in &plan.update {
        add(&update.id, Mode::Update { uid: update.uid.clone() }, update.version);
    }
    jobs
}

/// Carries out the plan. `settled` learns which writes changed nothing.
pub async fn apply(
    writer: &Writer<'_>,
    desired: &DesiredSet,
    plan: &Plan,
    settled: &mut Settled,
) -> Outcome {
    let mut outcome = Outcome::default();
    // What others refer to comes first: one kind after the other.
    for kind in Kind::ALL {
        let mut writes = stream::iter(jobs(kind, desired, plan))
            .map(|job| writer.run(job))
            .buffer_unordered(CONCURRENCY);
        while let Some((job, result)) = writes.next().await {
            match result {
                Ok(after) => {
                    if job.mode == Mode::Create {
                        outcome.created += 1;
                    } else {
                        outcome.updated += 1;
                    }
                    if after == job.before {
                        settled.insert(job.id, (after, job.want.applied));
                    } else {
                        settled.remove(&job.id);
                    }
                }
                Err(failure) => {
                    outcome.failures.insert(job.id, failure);
                }
            }
        }
    }
    if !outcome.failures.is_empty() || !plan.terminating.is_empty() {
        return outcome;
    }
    // One after the other, in the plan's order: what refers goes before what is referred to.
    for victim in &plan.prune {
        match writer.delete(victim).await {
            Ok(true) => outcome.pruned += 1,
            Ok(false) => {}
            Err(error) => {
                outcome.undeleted.insert(victim.id.clone(), error);
            }
        }
    }
    outcome
}

impl Writer<'_> {
    async fn run(&self, job: Job) -> (Job, Result<u64, Failure>) {
        let manifest = job.want.manifest(self.sync, self.commit);
        let result = self.write(&job.id, manifest, &job.mode).await;
        (job, result)
    }

    /// One apply; gives the version that the server holds now.
    async fn write(
        &self,
        id: &ObjectId,
        manifest: serde_json::Value,
        mode: &Mode,
    ) -> Result<u64, Failure> {
        let api = ssa::api_of_kind(self.client, &self.sync.namespace, id.kind);
        match ssa::apply(&api, ssa::SYNC_MANAGER, manifest, mode).await {
            Ok(object) => {
                let version = object
                    .metadata
                    .resource_version
                    .as_deref()
                    .and_then(|v| v.parse().ok())
                    .unwrap_or(0);
                if let Ok(json) = serde_json::to_value(&object) {
                    self.stores.managed(id.kind).wrote_json(json);
                }
                Ok(version)
            }
            Err(error) => Err(classify(&error, mode)),
        }
    }

    /// One delete. `false`: somebody took the object out of our hands meanwhile.
    async fn delete(&self, victim: &Victim) -> Result<bool, String> {
        let api = ssa::api_of_kind(self.client, &self.sync.namespace, victim.id.kind);
        let key = Key::new(&self.sync.namespace, &victim.id.name);
        let store = self.stores.managed(victim.id.kind);
        let mut version = victim.version;
        for _ in 0..DELETE_TRIES {
            match ssa::delete(&api, &victim.id.name, &victim.uid, version)
                .await
                .map_err(|e| e.to_string())?
            {
                Deleted::Gone => {
                    store.deleted_uid(&key, &victim.uid);
                    return Ok(true);
                }
                Deleted::Terminating => return Ok(true),
                Deleted::Changed => {}
            }
            // It changed since it was planned: is it still the same object, ours, and not protected?
            let live = match call(api.get(&victim.id.name)).await {
                Ok(live) => live,
                Err(error) if error.is_not_found() => {
                    store.deleted_uid(&key, &victim.uid);
                    return Ok(true);
                }
                Err(error) => return Err(error.to_string()),
            };
            let annotation =
                |key: &str| live.metadata.annotations.as_ref().and_then(|a| a.get(key));
            let ours = annotation(keys::OWNER).and_then(|text| Mark::parse(text))
                == Some(self.sync.mark(&victim.id));
            let protected = annotation(keys::PRUNE).is_some_and(|value| value == "disabled");
            if live.metadata.uid.as_deref() != Some(victim.uid.as_str()) || !ours || protected {
                return Ok(false);
            }
            version =
                live.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
        }
        Err(format!("it changed {DELETE_TRIES} times while it was being deleted"))
    }
}

fn classify(error: &CallError, mode: &Mode) -> Failure {
    if error.is_conflict() && *mode == Mode::Create {
        Failure::Conflict
    } else if error.is_invalid() {
        Failure::Refused(error.to_string())
    } else {
        Failure::Transient(error.to_string())
    }
}
