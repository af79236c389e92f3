//! The deletion of a GitSync: its objects are deleted, handed over or kept, and then its finalizer is removed.
//!
//! A missing namespace or ServiceAccount never blocks the deletion. A missing right does; then `deletionPolicy: Orphan`
//! keeps the objects.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::git_sync::Problem;
use crate::api::{GitSync, ObjectId, keys};
use crate::cluster::account::Account;
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key};
use crate::next::{Next, delay};
use crate::order::Seq;
use crate::sync::apply::impersonation::{AccountCheck, Refusal, Rejection};
use crate::sync::apply::problems::{Refused, Written, write_problems};
use crate::sync::apply::terminating::{finalizers, keepers};
use crate::sync::apply::{MAX_APPLY_TIME, Outcome, Pruned, Writer};
use crate::sync::commit::desired::{DesiredSet, SyncRef};
use crate::sync::io::effect::{Call, Effect, Event, EventType, Reply};
use crate::sync::io::{Ended, EngineError, Io};
use crate::sync::live_namespace::{LiveSet, is_ours, is_paused};
use crate::sync::peers::hand_over::POLL_ANSWER_DEADLINE;
use crate::sync::peers::view::PeerView;
use crate::sync::plan::work_index::WorkIndex;
use crate::sync::plan::{Others, Plan, Settled, Victim};
use crate::sync::reasons::{EngineReason, EventReason, unready};
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::finalizer::{deletes_objects, has_finalizer};
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::events::of_sync;
use crate::sync::status::report::Report;
use crate::sync::subject::Subject;

/// Objects that are deleted before the status is written again.
const DELETES_PER_REPORT: usize = 200;
/// Time for the watch to show what was deleted.
const WATCH_DELAY: Duration = Duration::from_millis(100);
/// How long objects that finalizers of others keep are waited for, once no object is left to delete.
const MOST_WAIT_FOR_FINALIZERS: Duration = Duration::from_secs(120);

/// What becomes of the live objects of a GitSync that is being deleted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parting {
    /// To be deleted, in reverse apply order.
    victims: Vec<Victim>,
    /// Wanted by another GitSync of the namespace: handed over.
    given: Vec<(ObjectId, String)>,
    /// Protected by `convoke.dev/prune: disabled`, or paused.
    kept: Vec<ObjectId>,
    /// Being deleted already, each with its finalizers.
    ending: Vec<(ObjectId, String)>,
}

impl Parting {
    /// Sorts the live objects. Only objects whose mark names exactly this GitSync and the object itself count.
    fn of(live: &LiveSet, sync: &SyncRef, others: &dyn Others) -> Self {
        let mut parting = Self::default();
        for (id, object) in live {
            if !is_ours(object, id, sync) {
                continue;
            }
            if object.facts().deleting {
                parting.ending.push((id.clone(), finalizers(object)));
                continue;
            }
            let protected = object.facts().annotations.get(keys::PRUNE) == Some(keys::DISABLED);
            if protected || is_paused(object) {
                parting.kept.push(id.clone());
            } else if let Some(other) = others.wanted_by(id) {
                parting.given.push((id.clone(), other));
            } else {
                let (uid, version) = (object.uid().to_owned(), object.version());
                parting.victims.push(Victim { id: id.clone(), uid, version });
            }
        }
        parting.victims.sort_by(|a, b| b.id.cmp(&a.id));
        parting
    }

    /// How many objects this GitSync still has to delete or to hand over.
    fn left(&self) -> usize {
        self.victims.len() + self.given.len()
    }
}

/// How much longer terminating objects are waited for. (pure)
fn wait_for_finalizers(ending: usize, waited: Duration) -> Option<Duration> {
    let left = MOST_WAIT_FOR_FINALIZERS.saturating_sub(waited);
    (ending > 0 && !left.is_zero()).then_some(left)
}

/// What one step of a deletion is decided from.
struct Deletion<'a> {
    subject: &'a Subject<'a>,
    reference: SyncRef,
    live: LiveSet,
    others: PeerView<'a>,
    /// The version of the peers, read before `others`.
    peers_version: u64,
    parting: Parting,
}

/// How far a deletion has come.
enum Step {
    /// The finalizer can go: whether all ended as the spec wants it, and the reason and note of the event.
    Over { good: bool, reason: EventReason, note: String },
    /// The deletion goes on.
    Later(Next),
}

/// What the status says of a deletion that goes on, and when the next step is due.
struct Progress<'a> {
    reason: EngineReason,
    what: &'a str,
    detail: &'a str,
    problems: &'a [Problem],
    wait: Duration,
}

impl Engine {
    /// Reconciles a GitSync that is being deleted.
    pub(super) async fn reconcile_deletion(
        &self,
        io: &Io,
        key: &Key,
        entry: &Entry<Managed<GitSync>>,
    ) -> Ended {
        if !has_finalizer(entry) {
            self.forget(io, key);
            return Ok(Next::Forget);
        }
        let state = self.state(key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            drop(state);
            self.forget(io, key);
            return Ok(Next::After(Duration::ZERO));
        }
        let sync = entry.value.object();
        let step = if let Some(sync) = &sync {
            let generation = sync.metadata.generation.unwrap_or(0);
            let subject = Subject { io, key, entry, sync, generation, own: None };
            self.next_step(&mut state, &subject).await?
        } else {
            // The deletion policy is not known, so no object is deleted.
            let error = entry.value.parse_error().unwrap_or_default();
            let note = format!("it does not parse, so its objects stay: {error}");
            Step::Over { good: false, reason: EventReason::Orphaned, note }
        };
        drop(state);
        let (good, reason, note) = match step {
            Step::Later(next) => return Ok(next),
            Step::Over { good, reason, note } => (good, reason, note),
        };
        tracing::info!(object = %key, reason = reason.as_str(), note, "the end of a GitSync");
        let (about, reason) = (of_sync(key, &entry.uid), reason.to_string());
        let type_ = EventType::normal_if(good);
        io.emit(Effect::Event(Box::new(Event { about, type_, reason, note })));
        self.remove_finalizer(io, key, &entry.uid).await?;
        self.forget(io, key);
        Ok(Next::Forget)
    }

    /// One step of the deletion: hands objects over, and deletes up to [`DELETES_PER_REPORT`] others.
    async fn next_step(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
    ) -> Result<Step, EngineError> {
        let io = subject.io;
        if let Some(over) = nothing_to_delete(subject).await {
            return Ok(over);
        }
        let since = *state.deletion.since.get_or_insert_with(Seq::next);
        let deletion = self.examine(subject, since);
        let left = deletion.parting.left();
        if left == 0 {
            return self.finish(state, &deletion).await;
        }
        state.deletion.waiting_since = None;
        let check = AccountCheck::Always;
        let account = match self.rules.writer(&mut state.plans.account, subject, check).await {
            Ok(account) => account,
            Err(refusal) => return self.refused(state, &deletion, refusal).await,
        };
        if let Some(waits) = self.ask_peers(&deletion) {
            let what = format!("{left} object(s) are to be deleted");
            let wait = subject.retry_after().min(POLL_ANSWER_DEADLINE);
            let (reason, what, detail) = (EngineReason::Deleting, what.as_str(), waits.as_str());
            let progress = Progress { reason, what, detail, problems: &[], wait };
            return self.report_progress(state, &deletion, progress).await;
        }
        self.peers.leave_to(io, subject.key, &deletion.parting.given, None);
        let what = left_message(&deletion.parting);
        let (reason, what, wait) = (EngineReason::Deleting, what.as_str(), Duration::ZERO);
        let progress = Progress { reason, what, detail: "", problems: &[], wait };
        self.report_progress(state, &deletion, progress).await?;
        match self.delete(state, &deletion, account.as_ref()).await {
            Some(undeleted) => self.after_deletes(state, &deletion, undeleted).await,
            None => Ok(Step::Later(Next::After(Duration::ZERO))),
        }
    }

    /// Looks at the live objects and at the other GitSyncs of the namespace. A poll of theirs counts if it began after
    /// `since`.
    fn examine<'a>(&'a self, subject: &'a Subject<'a>, since: Seq) -> Deletion<'a> {
        let reference = subject.reference();
        // Read before the view: what peers announce while the view is made changes the version.
        let peers_version = self.peers_version();
        let now = subject.io.now();
        let others = self.peers.view(subject.key, since, now, &self.stores.git_syncs);
        let live = subject.live(&self.stores).all();
        let parting = Parting::of(&live, &reference, &others);
        Deletion { subject, reference, live, others, peers_version, parting }
    }

    /// No object is left to delete: waits for terminating objects, and ends.
    async fn finish(
        &self,
        state: &mut SyncState,
        deletion: &Deletion<'_>,
    ) -> Result<Step, EngineError> {
        let io = deletion.subject.io;
        let Parting { kept, ending, .. } = &deletion.parting;
        let since = *state.deletion.waiting_since.get_or_insert_with(|| io.now());
        let waited = io.now().saturating_duration_since(since);
        if let Some(wait) = wait_for_finalizers(ending.len(), waited) {
            let what = format!("being deleted: {}", keepers(ending));
            let (reason, what, detail) =
                (EngineReason::Deleting, what.as_str(), "waiting for their end");
            let progress = Progress { reason, what, detail, problems: &[], wait };
            return self.report_progress(state, deletion, progress).await;
        }
        let deleted = state.deletion.deleted;
        let note = match (ending.as_slice(), kept.as_slice()) {
            ([_, ..], _) => format!(
                "{deleted} object(s) were deleted; {}, and are not waited for any longer",
                keepers(ending)
            ),
            ([], []) => format!("{deleted} object(s) were deleted"),
            ([], [first, ..]) => format!(
                "{deleted} object(s) were deleted; {} stay, because they say {}: disabled; first: {first}",
                kept.len(),
                keys::PRUNE
            ),
        };
        Ok(Step::Over { good: ending.is_empty(), reason: EventReason::Deleted, note })
    }

    /// There is no account to delete with.
    async fn refused(
        &self,
        state: &SyncState,
        deletion: &Deletion<'_>,
        refusal: Refusal,
    ) -> Result<Step, EngineError> {
        let count = deletion.parting.left();
        let Refusal { reason, message, .. } = refusal;
        if reason == EngineReason::ServiceAccountNotFound {
            let note = format!("its ServiceAccount is gone, so {count} object(s) stay");
            return Ok(Step::Over { good: false, reason: EventReason::Orphaned, note });
        }
        let what = format!("{count} object(s) cannot be deleted");
        let (what, detail) = (what.as_str(), message.as_str());
        let wait = deletion.subject.retry_after();
        let progress = Progress { reason, what, detail, problems: &[], wait };
        self.report_progress(state, deletion, progress).await
    }

    /// Asks the other GitSyncs of the namespace to poll, as before any delete. Returns why the deletes have to wait, if
    /// they do.
    fn ask_peers(&self, deletion: &Deletion<'_>) -> Option<String> {
        let Deletion { subject, others, .. } = deletion;
        let Subject { io, key, .. } = subject;
        self.peers.ask_to_poll(io, &others.not_polled, others.since);
        let unreadable = others.unreadable();
        let awaited: Vec<Key> = others.not_polled.iter().chain(unreadable).cloned().collect();
        self.peers.wait_for(io, key, &awaited, others.at);
        let asked: Vec<_> = others.not_polled.iter().map(|other| &*other.name).collect();
        if !asked.is_empty() {
            return Some(format!(
                "waiting until GitSync {} has looked at its remote",
                asked.join(", ")
            ));
        }
        let failing = self.stores.failing().join(", ");
        let failing =
            (!failing.is_empty()).then(|| format!("waiting until the API server shows {failing}"));
        others.unread().or(failing)
    }

    /// Deletes the next objects. Returns those that could not be deleted; `None` when the GitSync changed meanwhile.
    async fn delete(
        &self,
        state: &mut SyncState,
        deletion: &Deletion<'_>,
        account: Option<&Account>,
    ) -> Option<BTreeMap<ObjectId, Rejection>> {
        let Deletion { subject, reference, peers_version, parting, .. } = deletion;
        let Subject { io, key, entry, .. } = subject;
        let unchanged = || {
            let newest = self.stores.git_syncs.get(key);
            newest.is_some_and(|newest| {
                newest.uid == entry.uid && newest.value.facts.same_input(&entry.value.facts)
            })
        };
        let absent = || self.peers_version() == *peers_version && self.stores.failing().is_empty();
        let writer = Writer {
            io,
            account,
            stores: &self.stores,
            sync: reference,
            commit: "",
            atomic: false,
            is_current: &unchanged,
            is_absence_proven: &absent,
            // A GitSync that is being deleted takes no object over.
            is_handed_over: &|_, _| false,
            deadline: io.now() + MAX_APPLY_TIME,
        };
        let mut undeleted = BTreeMap::new();
        for victim in parting.victims.iter().take(DELETES_PER_REPORT) {
            match writer.prune(victim).await {
                Ok(Pruned::Gone | Pruned::Ending) => state.deletion.deleted += 1,
                Ok(Pruned::Skipped) => {}
                // The status is written first.
                Ok(Pruned::Late) => break,
                // A change of the spec takes effect at once.
                Ok(Pruned::Stopped) => return None,
                Err(rejection) => {
                    undeleted.insert(victim.id.clone(), rejection);
                }
            }
        }
        Some(undeleted)
    }

    /// Reports the objects that could not be deleted, and decides when the next step is due.
    async fn after_deletes(
        &self,
        state: &mut SyncState,
        deletion: &Deletion<'_>,
        undeleted: BTreeMap<ObjectId, Rejection>,
    ) -> Result<Step, EngineError> {
        let Deletion { subject, parting, .. } = deletion;
        let Subject { io, key, .. } = subject;
        if undeleted.is_empty() {
            state.plans.attempts = 0;
            // The watch shows in a moment what was deleted, and later what was handed over.
            let wait = if parting.victims.is_empty() { subject.retry_after() } else { WATCH_DELAY };
            return Ok(Step::Later(Next::After(wait)));
        }
        let denied = undeleted.values().any(|rejection| rejection.denial.is_some());
        let reason = if denied { EngineReason::Forbidden } else { EngineReason::Deleting };
        let what = format!("{} object(s) could not be deleted", undeleted.len());
        let outcome = Outcome { undeleted, ..Outcome::default() };
        let (nothing, plan, refused) = (DesiredSet::new(), Plan::default(), Refused::new());
        let written = Written { plan: &plan, outcome: &outcome, refused: &refused, contended: &[] };
        let problems = write_problems(key, &nothing, &written);
        state.plans.attempts = state.plans.attempts.saturating_add(1);
        let wait = io.jitter(delay(state.plans.attempts)).min(subject.retry_after());
        let (what, detail, problems) = (what.as_str(), "trying again", problems.as_slice());
        let progress = Progress { reason, what, detail, problems, wait };
        self.report_progress(state, deletion, progress).await
    }

    /// Writes into the status how the deletion goes on.
    async fn report_progress(
        &self,
        state: &SyncState,
        deletion: &Deletion<'_>,
        progress: Progress<'_>,
    ) -> Result<Step, EngineError> {
        let Deletion { subject, reference, live, .. } = deletion;
        let Progress { reason, what, detail, problems, wait } = progress;
        let mut message = format!(
            "{what}; to let go of them: kubectl -n {} patch gitsync {} --type=merge -p '{{\"spec\":{{\"deletionPolicy\":\"Orphan\"}}}}'",
            subject.key.namespace, subject.key.name
        );
        if !detail.is_empty() {
            message = format!("{message}; {detail}");
        }
        let mut verdict = unready(reason, &message);
        verdict.reconciling = true;
        let index = WorkIndex::new(reference, &DesiredSet::new(), live, &Settled::new());
        let plan = Plan::default();
        let report = Report {
            plan: Some(&plan),
            problems: Some(problems),
            counts: Some(index.counts()),
            failed: problems.len(),
            ..Report::blank(subject, verdict, &state.remote)
        };
        self.status().report(subject, report).await?;
        Ok(Step::Later(Next::After(wait)))
    }
}

/// Ends the deletion at once when no object is to be deleted: the spec says so, or the namespace is being deleted, too.
async fn nothing_to_delete(subject: &Subject<'_>) -> Option<Step> {
    let Subject { io, key, sync, .. } = subject;
    if !deletes_objects(sync) {
        let why = if sync.spec.suspend { "it is suspended" } else { "deletionPolicy is Orphan" };
        let note = format!("its objects stay: {why}");
        return Some(Step::Over { good: true, reason: EventReason::Orphaned, note });
    }
    match io.ask(None, Call::FindNamespace).await {
        Ok(Reply::Found { deleting: false }) => None,
        Err(error) if !error.is_gone() => {
            tracing::debug!(object = %key, %error, "cannot look at the namespace");
            None
        }
        Ok(_) | Err(_) => {
            let note = "the namespace is being deleted, and takes the objects along".to_owned();
            Some(Step::Over { good: true, reason: EventReason::Released, note })
        }
    }
}

/// What is left to delete and to hand over.
fn left_message(parting: &Parting) -> String {
    match parting.given.first() {
        None => format!("{} object(s) are left to delete", parting.left()),
        Some((id, taker)) => format!(
            "{} object(s) are left to delete, {} are handed over; first: {id} to GitSync {taker}",
            parting.victims.len(),
            parting.given.len()
        ),
    }
}

#[cfg(test)]
#[path = "tests/deletion.rs"]
mod tests;
