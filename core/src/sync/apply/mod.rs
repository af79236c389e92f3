//! Carries out a plan: applies in kind order with bounded concurrency, then deletes, each guarded. What a request is
//! judged by is looked at when there is a slot for it, and not before.

pub mod contention;
pub mod drift;
pub mod impersonation;
pub mod memory;
pub mod problems;
pub mod resume;
pub mod terminating;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::api::{Mark, ObjectId, keys};
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::live::{SpecHash, Stores};
use crate::cluster::store::Key;
use crate::cluster::write::{Deleted, Mode};
use crate::sync::apply::drift::{Drift, drift};
use crate::sync::apply::impersonation::Rejection;
use crate::sync::apply::resume::Resume;
use crate::sync::commit::desired::{Desired, DesiredSet, SyncRef};
use crate::sync::io::effect::{Call, Reply};
use crate::sync::io::{Io, Permit};
use crate::sync::live_namespace::{is_paused, mark};
use crate::sync::plan::{Claim, Plan, Settled, Settling, Update, Victim, claim};

/// Writes of one plan in flight at once, however many slots there are. On two cores 48 take a sixth less time than 16, and more
/// add nothing.
pub const MAX_WRITES_IN_FLIGHT: usize = 48;
/// How long a plan begins writes. The rest is left to the next one: what happened until then is told first, and a plan that
/// is stuck does not keep a GitSync from its next commit.
pub const MAX_APPLY_TIME: Duration = Duration::from_secs(60);
/// How often a delete that met a change is looked at again.
const DELETE_TRIES: usize = 5;
/// How often an object that is to be changed is looked at again when it changed meanwhile.
const UPDATE_TRIES: usize = 5;

/// Why one write did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// An object of that name appeared, and it is not ours.
    Conflict,
    /// The server refused it: another try with the same content is of no use.
    Refused(Rejection),
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
    /// Those of them that finalizers of others keep.
    pub ending: Vec<Victim>,
    /// Writes that failed.
    pub failures: BTreeMap<ObjectId, Failure>,
    /// Deletes that could not be finished: they are planned again.
    pub undeleted: BTreeMap<ObjectId, Rejection>,
    /// Objects that were left alone because they are not any more what was planned with.
    pub taken: usize,
    /// What was created or changed, or was so already.
    pub written: Vec<ObjectId>,
    /// Changes by hand that were undone.
    pub drifts: Vec<(ObjectId, Drift)>,
    /// Nothing was written because something of it would have been refused, or is not asked yet (`failurePolicy: Atomic`).
    pub rehearsed: bool,
    /// The GitSync changed while its plan was carried out: the rest was left alone.
    pub stopped: bool,
    /// Writes and deletes that were not begun, because the time was over.
    pub left: usize,
}

/// What the writes need.
pub struct Writer<'a> {
    /// Sends requests.
    pub io: &'a Io,
    /// With whose rights; `None` for the operator's own.
    pub account: Option<&'a Account>,
    /// Stores that replies overlay.
    pub stores: &'a Stores,
    /// For whom.
    pub sync: &'a SyncRef,
    /// Commit that is being applied.
    pub commit: &'a str,
    /// All or nothing: everything is asked before anything is written.
    pub atomic: bool,
    /// Whether the GitSync still says what the plan was made for. Asked before each write: somebody who suspends a
    /// sync or switches pruning off in the middle of a long plan is obeyed at once.
    pub go_on: &'a (dyn Fn() -> bool + Sync),
    /// Whether what proved that its deletes are wanted still does. Asked before each delete.
    pub absent: &'a (dyn Fn() -> bool + Sync),
    /// Whether another GitSync with this mark is gone, or still leaves the object to this one. Asked before it is taken.
    pub given: &'a (dyn Fn(&Mark, &ObjectId) -> bool + Sync),
    /// After this nothing is begun.
    pub until: Instant,
}

/// What a reply showed: the version, and the spec's hash.
type Seen = (u64, Option<SpecHash>);

/// One write that is to be done.
#[derive(Clone)]
struct Job {
    id: ObjectId,
    want: Desired,
    mode: Mode,
    /// Without a mark of this sync: what the live object that was planned with said of whose it is.
    adopted: Option<Claim>,
    /// Whether somebody changed it by hand.
    drifted: bool,
}

/// The creates and updates: what others refer to comes first, one kind after the other.
fn jobs(desired: &DesiredSet, plan: &Plan) -> Vec<Job> {
    let mut jobs = Vec::new();
    for id in &plan.create {
        if let Some(want) = desired.get(id).cloned() {
            let (mode, id) = (Mode::Create, id.clone());
            jobs.push(Job { id, want, mode, adopted: None, drifted: false });
        }
    }
    for update in &plan.update {
        if let Some(want) = desired.get(&update.id).cloned() {
            let mode = Mode::Update { uid: update.uid.clone(), version: None };
            let Update { id, adopted, claim, drifted, .. } = update.clone();
            jobs.push(Job { id, want, mode, adopted: adopted.then_some(claim), drifted });
        }
    }
    jobs.sort_by_key(|job| job.id.kind);
    jobs
}

/// Carries out the plan, as far as the time allows. `settled` learns which writes changed nothing, `pieces` what the next
/// plan has to know of this one.
pub async fn apply(
    writer: &Writer<'_>,
    desired: &DesiredSet,
    plan: &Plan,
    settled: &mut Settled,
    pieces: &mut Resume,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut jobs = jobs(desired, plan);
    pieces.begin(writer.commit, writer.io.now());
    pieces.order(&mut jobs, |job| &job.id);
    if writer.atomic {
        writer.rehearse(&jobs, pieces, &mut outcome).await;
    }
    if !outcome.rehearsed {
        writer.write(&jobs, pieces, settled, &mut outcome).await;
        let wanted =
            outcome.failures.is_empty() && outcome.taken == 0 && plan.terminating.is_empty();
        if wanted && !outcome.stopped && outcome.left == 0 {
            writer.delete(&plan.prune, pieces, &mut outcome).await;
        }
    }
    pieces.end(&outcome, writer.commit, writer.io.now());
    outcome
}

/// One write that was done.
struct Written {
    seen: Seen,
    /// Version of the object before the write; 0 when there was none.
    before: u64,
    drift: Option<Drift>,
}

/// How one write ended, if it did not fail.
enum Wrote {
    Written(Written),
    /// It was not done, because the object is another one now, somebody else's, paused or going: the next plan sees that.
    Taken,
    /// It was not begun, because the GitSync changed.
    Stopped,
    /// It was not begun, because the time is over.
    Late,
}

/// How one delete ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pruned {
    /// It is gone.
    Gone,
    /// It is being deleted, and finalizers of others keep it.
    Ending,
    /// Somebody took the object out of our hands meanwhile.
    Taken,
    /// It was not begun, because the GitSync changed.
    Stopped,
    /// It was not begun, because the time is over.
    Late,
}

impl Writer<'_> {
    fn is_late(&self) -> bool {
        self.io.now() >= self.until
    }

    async fn write(
        &self,
        jobs: &[Job],
        pieces: &Resume,
        settled: &mut Settled,
        outcome: &mut Outcome,
    ) {
        for jobs in jobs.chunk_by(|a, b| pieces.together(&a.id, &b.id)) {
            let mut writes = stream::iter(jobs.to_vec())
                .map(|job| self.run(job))
                .buffer_unordered(MAX_WRITES_IN_FLIGHT);
            while let Some((job, result)) = writes.next().await {
                match result {
                    Ok(Wrote::Stopped) => outcome.stopped = true,
                    Ok(Wrote::Late) => outcome.left += 1,
                    Ok(Wrote::Taken) => outcome.taken += 1,
                    Ok(Wrote::Written(Written { seen: (after, spec_hash), before, drift })) => {
                        outcome.written.push(job.id.clone());
                        // A write that changed nothing has undone nothing.
                        let undone = drift.filter(|_| after != before);
                        outcome.drifts.extend(undone.map(|drift| (job.id.clone(), drift)));
                        match job.mode {
                            Mode::Create => outcome.created += 1,
                            Mode::Update { .. } => {
                                outcome.updated += usize::from(after != before);
                            }
                        }
                        if spec_hash == Some(job.want.spec_hash) {
                            settled.remove(&job.id);
                        } else {
                            let applied = job.want.applied;
                            settled.insert(job.id, Settling { applied, spec_hash, version: after });
                        }
                    }
                    Err(failure) => {
                        outcome.failures.insert(job.id, failure);
                    }
                }
            }
        }
    }

    /// What refers goes before what is referred to: one kind after the other.
    async fn delete(&self, victims: &[Victim], pieces: &Resume, outcome: &mut Outcome) {
        let mut victims = victims.to_vec();
        pieces.order(&mut victims, |victim| &victim.id);
        for victims in victims.chunk_by(|a, b| pieces.together(&a.id, &b.id)) {
            let mut deletes = stream::iter(victims.to_vec())
                .map(|victim| async move {
                    let pruned = self.prune(&victim).await;
                    (victim, pruned)
                })
                .buffer_unordered(MAX_WRITES_IN_FLIGHT);
            while let Some((victim, result)) = deletes.next().await {
                match result {
                    Ok(Pruned::Gone) => outcome.pruned += 1,
                    Ok(Pruned::Ending) => {
                        outcome.pruned += 1;
                        outcome.ending.push(victim);
                    }
                    Ok(Pruned::Taken) => outcome.taken += 1,
                    Ok(Pruned::Stopped) => outcome.stopped = true,
                    Ok(Pruned::Late) => outcome.left += 1,
                    Err(error) => {
                        outcome.undeleted.insert(victim.id, error);
                    }
                }
            }
            if outcome.stopped {
                break;
            }
        }
    }

    /// A request that is judged already.
    async fn send(&self, slot: Permit, call: Call) -> Result<Reply, CallError> {
        self.io.send(slot, self.account, call).await
    }

    /// The same, when an object is the answer.
    async fn object(&self, slot: Permit, call: Call) -> Result<Box<DynamicObject>, CallError> {
        match self.send(slot, call).await? {
            Reply::Object(object) => Ok(object),
            _ => Err(CallError::Deadline(Duration::ZERO)),
        }
    }

    async fn run(&self, job: Job) -> (Job, Result<Wrote, Failure>) {
        let slot = self.io.permit().await;
        if !(self.go_on)() {
            return (job, Ok(Wrote::Stopped));
        }
        if self.is_late() {
            return (job, Ok(Wrote::Late));
        }
        // Afterwards nothing tells who it was.
        let (slot, drift) = if job.drifted {
            let drift = self.drift(slot, &job).await.unwrap_or_default();
            (self.io.permit().await, Some(drift))
        } else {
            (slot, None)
        };
        if !(self.go_on)() {
            return (job, Ok(Wrote::Stopped));
        }
        let brought = match job.mode.clone() {
            Mode::Create => self.create(slot, &job).await.map(|seen| Some((0, seen))),
            Mode::Update { uid, .. } => self.update(slot, &job, &uid).await,
        };
        let wrote = brought.map(|brought| match brought {
            Some((before, seen)) => Wrote::Written(Written { seen, before, drift }),
            None => Wrote::Taken,
        });
        (job, wrote)
    }

    /// What was changed by hand, and by whom. Only for people: a failure to find out keeps nothing from being undone.
    async fn drift(&self, slot: Permit, job: &Job) -> Option<Drift> {
        let live = self.object(slot, Call::Get { id: job.id.clone() }).await.ok()?;
        let managed = live.metadata.managed_fields.unwrap_or_default();
        let spec = live.data.get("spec").cloned().unwrap_or_default();
        Some(drift(&job.want.definition.canonical_spec.json(), &spec, &managed))
    }

    /// Asks the server what it would refuse. If anything, or if the time was over before all was asked, nothing is written.
    async fn rehearse(&self, jobs: &[Job], pieces: &mut Resume, outcome: &mut Outcome) {
        let open = jobs.iter().filter(|job| !pieces.is_accepted(&job.id, &job.want.applied));
        let mut answers = stream::iter(open.cloned().collect::<Vec<_>>())
            .map(|job| async move {
                let slot = self.io.permit().await;
                if self.is_late() || !(self.go_on)() {
                    return (job, None);
                }
                let manifest = job.want.manifest(self.sync, self.commit);
                let (id, mode) = (job.id.clone(), job.mode.clone());
                let answer = self.send(slot, Call::Rehearse { id, manifest, mode }).await;
                let answer = answer.map(drop).map_err(|error| classify(&error, &job.mode));
                (job, Some(answer))
            })
            .buffer_unordered(MAX_WRITES_IN_FLIGHT);
        while let Some((job, answer)) = answers.next().await {
            match answer {
                Some(Ok(())) => pieces.accept(job.id, job.want.applied),
                Some(Err(failure)) => drop(outcome.failures.insert(job.id, failure)),
                None => outcome.left += 1,
            }
        }
        outcome.stopped = outcome.left > 0 && !(self.go_on)();
        outcome.rehearsed = outcome.left > 0 || !outcome.failures.is_empty();
    }

    async fn apply(
        &self,
        slot: Permit,
        job: &Job,
        mode: Mode,
    ) -> Result<Box<DynamicObject>, CallError> {
        let manifest = job.want.manifest(self.sync, self.commit);
        self.object(slot, Call::Apply { id: job.id.clone(), manifest, mode }).await
    }

    async fn create(&self, slot: Permit, job: &Job) -> Result<Seen, Failure> {
        let object = self.apply(slot, job, Mode::Create).await;
        let object = object.map_err(|error| classify(&error, &job.mode))?;
        Ok(self.wrote(&job.id, *object))
    }

    /// Changes an object that is still what was planned with: at the version that says so. Gives that version and what the
    /// reply showed; `None` when the object is not to be changed any more.
    async fn update(
        &self,
        slot: Permit,
        job: &Job,
        uid: &str,
    ) -> Result<Option<(u64, Seen)>, Failure> {
        let Some(mut version) = self.version_now(job, uid) else { return Ok(None) };
        let (mut first, mut last) = (Some(slot), String::new());
        for _ in 0..UPDATE_TRIES {
            let slot = if let Some(slot) = first.take() {
                slot
            } else {
                let slot = self.io.permit().await;
                if self.is_late() || !(self.go_on)() {
                    break;
                }
                match self.look_again(slot, job, uid).await? {
                    Some(newer) => version = newer,
                    None => return Ok(None),
                }
                let slot = self.io.permit().await;
                if !(self.go_on)() {
                    break;
                }
                slot
            };
            let mode = Mode::Update { uid: uid.to_owned(), version: Some(version) };
            let changed = match self.apply(slot, job, mode.clone()).await {
                Ok(object) => {
                    let replicas = object.data.pointer("/spec/replicas").cloned();
                    let seen = self.wrote(&job.id, *object);
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
            if !changed.is_conflict() || changed.is_about_a_quota() {
                return Err(classify(&changed, &mode));
            }
            // It changed between the two, by a status most of the time.
            last = changed.to_string();
        }
        Err(Failure::Transient(last))
    }

    /// The version at which an object is to be changed, as the store shows it at this moment.
    fn version_now(&self, job: &Job, uid: &str) -> Option<u64> {
        let key = Key::new(&self.sync.namespace, &job.id.name);
        let live = self.stores.managed(job.id.kind).live(&key)?;
        let ours = match &job.adopted {
            Some(judged) => self.may_adopt(&job.id, &claim(&live), judged),
            None => {
                mark(&live, &job.id, self.sync).is_some_and(|mark| mark.sync_uid == self.sync.uid)
            }
        };
        let free = ours && live.uid() == uid && !live.facts().deleting && !is_paused(&live);
        free.then(|| live.version())
    }

    /// The same after it has changed, as the server shows it.
    async fn look_again(&self, slot: Permit, job: &Job, uid: &str) -> Result<Option<u64>, Failure> {
        let live = match self.object(slot, Call::Get { id: job.id.clone() }).await {
            Ok(live) => live,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(Failure::Transient(error.to_string())),
        };
        let paused = annotation(&live, keys::RECONCILE) == Some(keys::DISABLED);
        let going = live.metadata.deletion_timestamp.is_some();
        let said = |key: &str| annotation(&live, key).map(str::to_owned);
        let ours = match &job.adopted {
            Some(judged) => {
                let claim = [said(keys::OWNER), said(keys::ADOPT_BY)];
                live.metadata.uid.as_deref() == Some(uid) && self.may_adopt(&job.id, &claim, judged)
            }
            None => self.is_ours(&live, &job.id, uid),
        };
        Ok(version_of(&live).filter(|_| ours && !going && !paused))
    }

    /// Whether an object without a mark of ours may be taken: nobody has laid claim to it since that was planned, and whoever
    /// gives it still does. Its version does not matter: statuses change it all the time.
    fn may_adopt(&self, id: &ObjectId, claim: &Claim, judged: &Claim) -> bool {
        let SyncRef { namespace, name, .. } = self.sync;
        let giver = claim[0]
            .as_deref()
            .and_then(Mark::parse)
            .filter(|mark| mark.names(id.kind, namespace, &id.name) && mark.sync_name != *name);
        claim == judged && giver.is_none_or(|mark| (self.given)(&mark, id))
    }

    /// Whether that is the object with this uid, and carries exactly the mark of this sync.
    fn is_ours(&self, live: &DynamicObject, id: &ObjectId, uid: &str) -> bool {
        let mark = annotation(live, keys::OWNER).and_then(Mark::parse);
        live.metadata.uid.as_deref() == Some(uid) && mark == Some(self.sync.mark(id))
    }

    /// Shows a reply to the store.
    fn wrote(&self, id: &ObjectId, object: DynamicObject) -> Seen {
        self.stores.managed(id.kind).answered(object)
    }

    /// An apply says nothing about fields that others added and Git does not have, so the object still differs after
    /// it: its spec is replaced by Git's.
    async fn replace_spec(
        &self,
        job: &Job,
        replicas: Option<Value>,
        seen: Seen,
    ) -> Result<Seen, CallError> {
        let mut spec = job.want.definition.spec.json();
        // An autoscaler's or a person's `kubectl scale` stands where Git says nothing.
        if let (Some(spec), Some(replicas)) = (spec.as_object_mut(), replicas) {
            spec.entry("replicas").or_insert(replicas);
        }
        let slot = self.io.permit().await;
        let call = Call::ReplaceSpec { id: job.id.clone(), version: seen.0, spec };
        let object = self.object(slot, call).await?;
        Ok(self.wrote(&job.id, *object))
    }

    /// One delete.
    pub(crate) async fn prune(&self, victim: &Victim) -> Result<Pruned, Rejection> {
        let key = Key::new(&self.sync.namespace, &victim.id.name);
        let store = self.stores.managed(victim.id.kind);
        let mut version = victim.version;
        for _ in 0..DELETE_TRIES {
            let slot = self.io.permit().await;
            if !(self.go_on)() || !(self.absent)() {
                return Ok(Pruned::Stopped);
            }
            if self.is_late() {
                return Ok(Pruned::Late);
            }
            let (id, uid) = (victim.id.clone(), victim.uid.clone());
            match self.send(slot, Call::Delete { id: id.clone(), uid, version }).await {
                Ok(Reply::Deleted(Deleted::Gone)) => {
                    store.deleted_uid(&key, &victim.uid);
                    return Ok(Pruned::Gone);
                }
                Ok(Reply::Deleted(Deleted::Terminating(object))) => {
                    self.wrote(&id, *object);
                    return Ok(Pruned::Ending);
                }
                Ok(_) => {}
                Err(error) => return Err(Rejection::of(&error)),
            }
            // It changed since it was planned: is it still the same object, ours, and not protected?
            let slot = self.io.permit().await;
            let live = match self.object(slot, Call::Get { id }).await {
                Ok(live) => live,
                Err(error) if error.is_gone() => {
                    store.deleted_uid(&key, &victim.uid);
                    return Ok(Pruned::Gone);
                }
                Err(error) => return Err(Rejection::of(&error)),
            };
            let disabled = |key| annotation(&live, key) == Some(keys::DISABLED);
            let protected = disabled(keys::PRUNE) || disabled(keys::RECONCILE);
            if !self.is_ours(&live, &victim.id, &victim.uid) || protected {
                return Ok(Pruned::Taken);
            }
            version = version_of(&live).unwrap_or(0);
        }
        let words = format!("it changed {DELETE_TRIES} times while it was being deleted");
        Err(Rejection { words, denial: None })
    }
}

fn annotation<'a>(live: &'a DynamicObject, key: &str) -> Option<&'a str> {
    live.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn version_of(live: &DynamicObject) -> Option<u64> {
    live.metadata.resource_version.as_deref().and_then(|version| version.parse().ok())
}

fn classify(error: &CallError, mode: &Mode) -> Failure {
    if error.is_conflict() && error.is_about_a_quota() {
        Failure::Transient(error.to_string())
    } else if error.is_conflict() && *mode == Mode::Create {
        Failure::Conflict
    } else if error.is_replaced() {
        // Deleted and made anew between plan and write: the next plan sees it.
        Failure::Transient(error.to_string())
    } else {
        let rejection = Rejection::of(error);
        // Any other 403 (a quota, a namespace that ends) may pass by itself.
        if rejection.denial.is_some() || error.is_invalid() || error.is_denied() {
            Failure::Refused(rejection)
        } else {
            Failure::Transient(rejection.words)
        }
    }
}

#[cfg(test)]
#[path = "tests/guards.rs"]
mod guards_tests;
#[cfg(test)]
#[path = "tests/outcome.rs"]
mod outcome_tests;
#[cfg(test)]
#[path = "tests/apply.rs"]
mod tests;
