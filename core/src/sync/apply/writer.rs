//! The creates and updates of a plan.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::api::{Kind, Mark, ObjectId, keys};
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::live::{SpecHash, Stores};
use crate::cluster::store::Key;
use crate::cluster::write::Mode;
use crate::sync::apply::drift::{Drift, drift};
use crate::sync::apply::impersonation::{Attempt, Rejection, Verb};
use crate::sync::apply::outcome::{Failure, Outcome, classify};
use crate::sync::apply::resume::Resume;
use crate::sync::commit::desired::{Desired, SyncRef};
use crate::sync::io::effect::{Call, Reply};
use crate::sync::io::{Io, Permit};
use crate::sync::live_namespace::{is_paused, mark};
use crate::sync::plan::{Claim, Settled, Settling, claim};

/// The most writes of one plan in flight, even if the concurrency limit of the operator is higher. On two cores 48 writes take a
/// sixth less time than 16, and more bring nothing.
pub const MAX_WRITES_IN_FLIGHT: usize = 48;
/// How often an update is tried while the object keeps changing.
const MAX_UPDATE_ATTEMPTS: usize = 5;

/// What the writes of one plan need.
pub struct Writer<'a> {
    /// Sends the requests.
    pub io: &'a Io,
    /// The account to impersonate; `None` for the operator itself.
    pub account: Option<&'a Account>,
    /// The watch stores. Replies are put into them, so that the next plan does not wait for the watch.
    pub stores: &'a Stores,
    /// The GitSync.
    pub sync: &'a SyncRef,
    /// The commit that is applied.
    pub commit: &'a str,
    /// `failurePolicy: Atomic`: nothing is written before a dry run of all creates and updates has succeeded.
    pub atomic: bool,
    /// Whether the plan is still for the current spec and the newest commit. Checked before each write, so that
    /// suspending a GitSync or switching off pruning takes effect at once.
    pub is_current: &'a (dyn Fn() -> bool + Sync),
    /// Whether it is still proven that no other GitSync wants the objects to delete. Checked before each delete.
    pub is_absence_proven: &'a (dyn Fn() -> bool + Sync),
    /// Whether the GitSync with this mark does not exist any more, or still hands over the object to this one. Checked
    /// before an object of another GitSync is taken over.
    pub is_handed_over: &'a (dyn Fn(&Mark, &ObjectId) -> bool + Sync),
    /// No write is started after this time.
    pub deadline: Instant,
}

/// Version and spec hash of an object in a reply.
type Seen = (u64, Option<SpecHash>);

/// One create or update.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) id: ObjectId,
    pub(super) want: Desired,
    pub(super) mode: Mode,
    /// For an object that is taken over: the claim that it had when the plan was made.
    pub(super) adopted: Option<Claim>,
    /// Whether the update reverts a manual change.
    pub(super) drifted: bool,
}

/// A write that was carried out.
struct Written {
    seen: Seen,
    /// Version of the object before the write; 0 when there was none.
    before: u64,
    drift: Option<Drift>,
}

/// How one write ended, if it did not fail.
enum Wrote {
    Written(Written),
    /// Not written: since the plan was made the object was deleted, replaced, paused, or got another owner.
    Skipped,
    /// Not started, because the GitSync has changed.
    Stopped,
    /// Not started, because the deadline has passed.
    Late,
}

impl Writer<'_> {
    pub(super) fn is_late(&self) -> bool {
        self.io.now() >= self.deadline
    }

    /// Creates and updates, one kind after the other.
    pub(super) async fn write(
        &self,
        jobs: &[Job],
        resume: &Resume,
        settled: &mut Settled,
        outcome: &mut Outcome,
    ) {
        for jobs in jobs.chunk_by(|a, b| resume.together(&a.id, &b.id)) {
            let mut writes = stream::iter(jobs.to_vec())
                .map(|job| self.run(job))
                .buffer_unordered(MAX_WRITES_IN_FLIGHT);
            while let Some((job, result)) = writes.next().await {
                match result {
                    Ok(Wrote::Stopped) => outcome.stopped = true,
                    Ok(Wrote::Late) => outcome.unstarted += 1,
                    Ok(Wrote::Skipped) => outcome.skipped += 1,
                    Ok(Wrote::Written(written)) => count(job, written, settled, outcome),
                    Err(failure) => {
                        outcome.failures.insert(job.id, failure);
                    }
                }
            }
        }
    }

    /// The failure that an error of a write means.
    fn failure(&self, error: &CallError, mode: &Mode, job: &Job) -> Failure {
        classify(error, mode, job.id.kind, self.account)
    }

    /// The answer to a request about an object of this kind that the API server refused.
    pub(super) fn rejection(&self, error: &CallError, verb: Verb, kind: Kind) -> Rejection {
        Rejection::of(error, Attempt { account: self.account, verb, kind })
    }

    /// Sends a request.
    pub(super) async fn send(&self, permit: Permit, call: Call) -> Result<Reply, CallError> {
        self.io.send(permit, self.account, call).await
    }

    /// Sends a request whose reply is an object.
    pub(super) async fn object(
        &self,
        permit: Permit,
        call: Call,
    ) -> Result<Box<DynamicObject>, CallError> {
        match self.send(permit, call).await? {
            Reply::Object(object) => Ok(object),
            _ => Err(CallError::Deadline(Duration::ZERO)),
        }
    }

    async fn run(&self, job: Job) -> (Job, Result<Wrote, Failure>) {
        let permit = self.io.permit().await;
        if !(self.is_current)() {
            return (job, Ok(Wrote::Stopped));
        }
        if self.is_late() {
            return (job, Ok(Wrote::Late));
        }
        // Before the update: it removes the field managers of the manual change.
        let (permit, drift) = if job.drifted {
            let drift = self.drift(permit, &job).await.unwrap_or_default();
            (self.io.permit().await, Some(drift))
        } else {
            (permit, None)
        };
        if !(self.is_current)() {
            return (job, Ok(Wrote::Stopped));
        }
        let result = match job.mode.clone() {
            Mode::Create => self.create(permit, &job).await.map(|seen| Some((0, seen))),
            Mode::Update { uid, .. } => self.update(permit, &job, &uid).await,
        };
        let wrote = result.map(|written| match written {
            Some((before, seen)) => Wrote::Written(Written { seen, before, drift }),
            None => Wrote::Skipped,
        });
        (job, wrote)
    }

    /// The manual change of an object: which fields, by which field managers. An error is ignored, because it must not keep the
    /// change from being reverted.
    async fn drift(&self, permit: Permit, job: &Job) -> Option<Drift> {
        let live = self.object(permit, Call::Get { id: job.id.clone() }).await.ok()?;
        let managed = live.metadata.managed_fields.unwrap_or_default();
        let spec = live.data.get("spec").cloned().unwrap_or_default();
        Some(drift(&job.want.definition.canonical_spec.json(), &spec, &managed))
    }

    /// Sends all creates and updates as a dry run. After a refusal, or if the deadline passes before the last one, nothing is
    /// written.
    pub(super) async fn rehearse(&self, jobs: &[Job], resume: &mut Resume, outcome: &mut Outcome) {
        let open = jobs.iter().filter(|job| !resume.is_accepted(&job.id, &job.want.applied));
        let mut answers = stream::iter(open.cloned().collect::<Vec<_>>())
            .map(|job| async move {
                let permit = self.io.permit().await;
                if self.is_late() || !(self.is_current)() {
                    return (job, None);
                }
                let manifest = job.want.manifest(self.sync, self.commit);
                let (id, mode) = (job.id.clone(), job.mode.clone());
                let answer = self.send(permit, Call::Rehearse { id, manifest, mode }).await;
                let answer =
                    answer.map(drop).map_err(|error| self.failure(&error, &job.mode, &job));
                (job, Some(answer))
            })
            .buffer_unordered(MAX_WRITES_IN_FLIGHT);
        while let Some((job, answer)) = answers.next().await {
            match answer {
                Some(Ok(())) => resume.accept(job.id, job.want.applied),
                Some(Err(failure)) => drop(outcome.failures.insert(job.id, failure)),
                None => outcome.unstarted += 1,
            }
        }
        outcome.stopped = outcome.unstarted > 0 && !(self.is_current)();
        outcome.rehearsed = outcome.unstarted > 0 || !outcome.failures.is_empty();
    }

    async fn apply(
        &self,
        permit: Permit,
        job: &Job,
        mode: Mode,
    ) -> Result<Box<DynamicObject>, CallError> {
        let manifest = job.want.manifest(self.sync, self.commit);
        self.object(permit, Call::Apply { id: job.id.clone(), manifest, mode }).await
    }

    async fn create(&self, permit: Permit, job: &Job) -> Result<Seen, Failure> {
        let object = self.apply(permit, job, Mode::Create).await;
        let object = object.map_err(|error| self.failure(&error, &job.mode, job))?;
        Ok(self.overlay(&job.id, *object))
    }

    /// Updates an object at the version at which it was checked. Returns that version and what the reply shows. `None` when
    /// the object must not be updated any more.
    async fn update(
        &self,
        permit: Permit,
        job: &Job,
        uid: &str,
    ) -> Result<Option<(u64, Seen)>, Failure> {
        let Some(mut version) = self.stored_version(job, uid) else { return Ok(None) };
        let (mut first, mut last_error) = (Some(permit), String::new());
        for _ in 0..MAX_UPDATE_ATTEMPTS {
            let permit = if let Some(permit) = first.take() {
                permit
            } else {
                let permit = self.io.permit().await;
                if self.is_late() || !(self.is_current)() {
                    break;
                }
                match self.read_version(permit, job, uid).await? {
                    Some(newer) => version = newer,
                    None => return Ok(None),
                }
                let permit = self.io.permit().await;
                if !(self.is_current)() {
                    break;
                }
                permit
            };
            let mode = Mode::Update { uid: uid.to_owned(), version: Some(version) };
            let error = match self.apply(permit, job, mode.clone()).await {
                Ok(object) => {
                    let replicas = object.data.pointer("/spec/replicas").cloned();
                    let seen = self.overlay(&job.id, *object);
                    if seen.1 == Some(job.want.spec_hash) {
                        return Ok(Some((version, seen)));
                    }
                    match self.replace_spec(job, replicas, seen).await {
                        Ok(seen) => return Ok(Some((version, seen))),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if !error.is_conflict() || error.is_about_a_quota() {
                return Err(self.failure(&error, &mode, job));
            }
            // The object has changed since it was read, most often its status.
            last_error = error.to_string();
        }
        Err(Failure::Transient(last_error))
    }

    /// The version of an object in the store. `None` when the object must not be updated any more.
    fn stored_version(&self, job: &Job, uid: &str) -> Option<u64> {
        let key = Key::new(&self.sync.namespace, &job.id.name);
        let live = self.stores.managed(job.id.kind).live(&key)?;
        let ours = match &job.adopted {
            Some(planned) => self.may_adopt(&job.id, &claim(&live), planned),
            None => {
                mark(&live, &job.id, self.sync).is_some_and(|mark| mark.sync_uid == self.sync.uid)
            }
        };
        let free = ours && live.uid() == uid && !live.facts().deleting && !is_paused(&live);
        free.then(|| live.version())
    }

    /// Reads an object that has changed, and checks it like [`Self::stored_version`].
    async fn read_version(
        &self,
        permit: Permit,
        job: &Job,
        uid: &str,
    ) -> Result<Option<u64>, Failure> {
        let live = match self.object(permit, Call::Get { id: job.id.clone() }).await {
            Ok(live) => live,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(Failure::Transient(error.to_string())),
        };
        let paused = annotation(&live, keys::RECONCILE) == Some(keys::DISABLED);
        let deleting = live.metadata.deletion_timestamp.is_some();
        let owned = |key: &str| annotation(&live, key).map(str::to_owned);
        let ours = match &job.adopted {
            Some(planned) => {
                let claim = [owned(keys::OWNER), owned(keys::ADOPT_BY)];
                let same = live.metadata.uid.as_deref() == Some(uid);
                same && self.may_adopt(&job.id, &claim, planned)
            }
            None => self.is_ours(&live, &job.id, uid),
        };
        Ok(version_of(&live).filter(|_| ours && !deleting && !paused))
    }

    /// Whether an object without the mark of this GitSync may be taken over: its claim is the one of the plan, and the
    /// GitSync that hands it over still does. Another version does not matter, because each change of a status makes one.
    fn may_adopt(&self, id: &ObjectId, claim: &Claim, planned: &Claim) -> bool {
        let SyncRef { namespace, name, .. } = self.sync;
        let giver = claim[0]
            .as_deref()
            .and_then(Mark::parse)
            .filter(|mark| mark.names(id.kind, namespace, &id.name) && mark.sync_name != *name);
        claim == planned && giver.is_none_or(|mark| (self.is_handed_over)(&mark, id))
    }

    /// Whether an object has this uid and the mark of exactly this GitSync.
    pub(super) fn is_ours(&self, live: &DynamicObject, id: &ObjectId, uid: &str) -> bool {
        let mark = annotation(live, keys::OWNER).and_then(Mark::parse);
        live.metadata.uid.as_deref() == Some(uid) && mark == Some(self.sync.mark(id))
    }

    /// Puts the object of a reply into its store.
    pub(super) fn overlay(&self, id: &ObjectId, object: DynamicObject) -> Seen {
        self.stores.managed(id.kind).answered(object)
    }

    /// Replaces the spec of an object by the one of Git. A server-side apply does not remove fields that others have added, so the
    /// object may still differ after it.
    async fn replace_spec(
        &self,
        job: &Job,
        replicas: Option<Value>,
        seen: Seen,
    ) -> Result<Seen, CallError> {
        let mut spec = job.want.definition.spec.json();
        // Where Git sets no replicas, those of an autoscaler or of `kubectl scale` stay.
        if let (Some(spec), Some(replicas)) = (spec.as_object_mut(), replicas) {
            spec.entry("replicas").or_insert(replicas);
        }
        let permit = self.io.permit().await;
        let call = Call::ReplaceSpec { id: job.id.clone(), version: seen.0, spec };
        let object = self.object(permit, call).await?;
        Ok(self.overlay(&job.id, *object))
    }
}

/// Counts a write, and remembers it as settled if it did not make the object as wanted.
fn count(job: Job, written: Written, settled: &mut Settled, outcome: &mut Outcome) {
    let Written { seen: (after, spec_hash), before, drift } = written;
    outcome.written.push(job.id.clone());
    // A write that changed nothing has reverted nothing.
    let reverted = drift.filter(|_| after != before);
    outcome.drifts.extend(reverted.map(|drift| (job.id.clone(), drift)));
    match job.mode {
        Mode::Create => outcome.created += 1,
        Mode::Update { .. } => outcome.updated += usize::from(after != before),
    }
    if spec_hash == Some(job.want.spec_hash) {
        settled.remove(&job.id);
    } else {
        let applied = job.want.applied;
        settled.insert(job.id, Settling { applied, spec_hash, version: after });
    }
}

pub(super) fn annotation<'a>(live: &'a DynamicObject, key: &str) -> Option<&'a str> {
    live.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn version_of(live: &DynamicObject) -> Option<u64> {
    live.metadata.resource_version.as_deref().and_then(|version| version.parse().ok())
}

#[cfg(test)]
#[path = "tests/writer.rs"]
pub(super) mod tests;
