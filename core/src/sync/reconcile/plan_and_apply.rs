//! Planning and writing: from what was read and what there is to what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::git_sync::{
    ApprovedPrune, FailurePolicy, GitSyncStatus, PendingPrune, Problem, Stages,
};
use crate::api::{Kind, Mark, ObjectId, keys};
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::definition::diagnostic;
use crate::sync::apply::contention::Contended;
use crate::sync::apply::impersonation::AccountCheck;
use crate::sync::apply::memory::PlanMemory;
use crate::sync::apply::problems::{Written, leave_refused, write_problems};
use crate::sync::apply::resume::Resume;
use crate::sync::apply::terminating::still_there;
use crate::sync::apply::{Failure, MAX_APPLY_TIME, Outcome, Writer, apply};
use crate::sync::commit::desired::{SyncRef, latch_key};
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::EngineError;
use crate::sync::io::effect::Effect;
use crate::sync::live_namespace::{LiveNamespace, Namespace, mark};
use crate::sync::peers::consult::consult;
use crate::sync::peers::offers::{candidates, offered};
use crate::sync::peers::view::PeerView;
use crate::sync::plan::approvals::fits_nothing;
use crate::sync::plan::refresh::{PlanView, everything, refresh};
use crate::sync::plan::work_index::{Count, WorkIndex};
use crate::sync::plan::{Inputs, Plan, Unproven, brake, plan};
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::plan_result::PlanResult;
use crate::sync::status::verdict::Remaining;
use crate::sync::status::writer::StatusWriter;
use crate::sync::status::{Approved, Deletes};
use crate::sync::subject::Subject;

/// A plan, what it was made from, and what is found on its way.
struct Work<'a> {
    loaded: &'a Arc<Loaded>,
    sync: SyncRef,
    live: LiveNamespace<'a>,
    others: PeerView<'a>,
    /// How much the others had told before they were looked at.
    told: u64,
    unproven: Unproven,
    latch_key: String,
    /// Whether a plan for this commit was carried out before: what is missing now was there, or could not be made.
    again: bool,
    plan: Plan,
    /// See [`PlanResult`].
    recalled: bool,
    blocked: usize,
    carried: Remaining,
    /// Objects that are changed by somebody else again and again, and wait.
    fought: Vec<Contended>,
}

/// What is held, and what somebody has approved of it.
struct Latch {
    pending: Option<PendingPrune>,
    handled: Option<String>,
    outdated: Option<String>,
    /// Whether something was approved that the status does not say yet.
    approves: bool,
}

impl Engine {
    /// PlanMemory and writes.
    pub(crate) async fn plan_and_apply(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
    ) -> Result<PlanResult, EngineError> {
        let io = subject.io;
        let plan_start = io.now();
        let mut work = self.make(state, subject, loaded);
        leave_out(state, subject, &mut work);
        self.hear_others(state, subject, &mut work);
        let latch = latch(state, subject, &work);
        let postponed = self.postpone_deletes(state, subject, &mut work);
        io.tick().await;
        let mut stages =
            Stages { plan_ms: io.millis_since(plan_start), ..state.remote.stages.clone() };
        // Before the first delete: after a crash the rest is still approved.
        self.remember_approval(state, subject, &work, &latch).await?;
        let apply_start = io.now();
        let outcome = self.write(state, subject, &mut work).await?;
        stages.apply_ms = io.millis_since(apply_start);
        let (counts, approved) = self.take_stock(state, subject, &mut work, &outcome)?;
        let Work { plan, recalled, blocked, mut carried, fought, .. } = work;
        let said_so = !carried.asked.is_empty() || carried.unseen.is_some();
        if !said_so && !carried.unanswered && fought.is_empty() {
            carried.undeleted += postponed;
        }
        let problems = problems(state, subject, loaded, &plan, &outcome, &fought);
        let Latch { pending, handled, outdated, .. } = latch;
        Ok(PlanResult {
            plan,
            recalled,
            pending,
            outcome,
            blocked,
            carried,
            approved,
            handled,
            outdated,
            problems,
            stages,
            counts,
        })
    }

    /// Looks around and plans.
    fn make<'a>(
        &'a self,
        state: &mut SyncState,
        subject: &Subject<'a>,
        loaded: &'a Arc<Loaded>,
    ) -> Work<'a> {
        let Subject { io, key, sync, generation, .. } = subject;
        let reference = subject.reference();
        let live = subject.live(&self.stores);
        let again = state.plans.view.as_ref().is_some_and(|view| Arc::ptr_eq(&view.loaded, loaded));
        let first = state.plans.view.is_none();
        let PlanMemory { view, settled, .. } = &mut state.plans;
        let (view, commit) = (view.take(), (&reference, loaded));
        let mut view = refresh(view, settled, &self.dirty, commit, &live);
        // A commit that is found already may have been written in part, before the operator started.
        if first && !state.waits.waiting && subject.was_applied_whole(&loaded.revision) {
            view.index.trust(&loaded.desired);
        }
        let since = state.bar.since(loaded);
        // Asked first: whoever tells something beside this is news, whether or not the view has it.
        let told = self.news();
        let others = self.peers.view(key, since, io.now(), &self.stores.git_syncs);
        let unproven = unproven(&others, &self.stores);
        let status = subject.status();
        let shown = status.and_then(|status| status.pending_prune.as_ref());
        let held = state.latch.get_or_insert_with(|| shown.cloned());
        if let Some(narrowed) = held.as_ref().and_then(|held| brake::narrowed(held, shown)) {
            *held = Some(narrowed);
        }
        // A changed spec ends an approval: `maxDeletions: 0` must stop what is under way.
        let latch_key = latch_key(&loaded.revision.commit, &sync.spec.path, *generation);
        let mut plan = plan(&Inputs {
            sync: &reference,
            latch_key: &latch_key,
            desired: &loaded.measure,
            live: &live,
            index: &view.index,
            has_errors: loaded.catalog.has_errors(),
            broken: &loaded.catalog.broken,
            broken_paths: &loaded.catalog.broken_paths,
            paths: &loaded.catalog.paths,
            last_paths: &loaded.last_paths,
            lost: loaded.lost,
            prune: &sync.spec.prune,
            drift: sync.spec.drift,
            failure_policy: sync.spec.failure_policy,
            approval: subject.annotation(keys::APPROVE_PRUNE),
            handled: status.and_then(|status| status.last_handled_approval.as_deref()),
            last_digest: status.and_then(|status| status.last_prune_digest.as_deref()),
            approved: status.and_then(|status| status.approved_prune.as_ref()),
            pending: held.as_ref(),
            unproven: &unproven,
            prune_base: status.and_then(GitSyncStatus::prune_base),
            others: &others,
            settled: &state.plans.settled,
        });
        let recalled = state.waits.recalled.as_ref().is_some_and(|old| Arc::ptr_eq(old, loaded));
        if recalled {
            // It was applied once, perhaps for another spec.
            plan.undo_only();
        }
        // What is known is not lost with a request that fails.
        state.plans.view = Some(view);
        Work {
            loaded,
            sync: reference,
            live,
            others,
            told,
            unproven,
            latch_key,
            again,
            plan,
            recalled,
            blocked: 0,
            carried: Remaining::default(),
            fought: Vec::new(),
        }
    }

    /// Asks the other GitSyncs what they want, where that decides something, and leaves out what waits for their answers.
    fn hear_others(&self, state: &SyncState, subject: &Subject<'_>, work: &mut Work<'_>) {
        let Subject { io, key, .. } = subject;
        let pending = state.latch.as_ref().and_then(Option::as_ref);
        let asked = consult(&work.others, &mut work.plan, pending, &work.latch_key);
        self.peers.ask_before(io, &work.others, &asked, &work.plan);
        // Objects that this one wants and another one has: they can be taken once that one gives them up or is gone.
        let owner = |id| mark(&work.live.get(id)?, id, &work.sync);
        let paused = work.plan.paused.iter().filter_map(owner);
        let paused = paused.filter(|mark| mark.sync_namespace == key.namespace);
        let paused = paused.map(|mark| mark.sync_name);
        let have = work.plan.conflicts.iter().filter_map(|conflict| conflict.peer.clone());
        let have: BTreeSet<_> = paused.chain(have).map(|it| Key::new(&key.namespace, it)).collect();
        let lives = |it: &Key| it != *key && self.stores.git_syncs.get(it).is_some();
        let have: Vec<_> = have.into_iter().filter(lives).collect();
        self.peers.wait_for(io, key, &have, work.others.at);
        if !work.again {
            // A GitSync that keeps an object although its own commit does not want it plans again: now it can hand it over.
            io.wake(have);
        }
        work.carried.asked = asked;
    }

    /// Takes the deletes out of a plan that may not go now, whatever the brake says, and counts them. Objects that another
    /// GitSync wants are left to it, also while writes of this plan are refused or wait.
    fn postpone_deletes(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
    ) -> usize {
        let Work { loaded, sync, live, others, plan, carried, .. } = work;
        carried.unseen =
            failing(&self.stores, known_unread(plan)).filter(|_| !plan.prune.is_empty());
        // What somebody has approved may be wanted again by a commit that no look has found yet.
        state.remote.owed = plan.released.is_some()
            && !plan.prune.is_empty()
            && state.bar.is_approved_after(state.remote.looked);
        // The remote has not been asked since the spec was changed: what was found before may be long out of date.
        carried.unanswered = state.remote.owed || state.remote.generation != subject.generation;
        // While the newest commit cannot be read, an older one proves no absence.
        let unproven = carried.unanswered
            || state.remote.source_error.is_some()
            || state.waits.waiting
            || !carried.asked.is_empty()
            || carried.unseen.is_some();
        let deletes_wait = unproven || work.blocked > 0 || !work.fought.is_empty();
        let postponed = if deletes_wait { std::mem::take(&mut plan.prune).len() } else { 0 };
        let gives = if unproven {
            // An older commit gives nothing away either, but what the newest one leaves to others.
            let newest = state.waiting_commit(subject.generation).zip(state.plans.view.as_ref());
            let offered = newest.map(|(newest, view)| {
                let candidates = candidates(newest, &view.index, loaded);
                offered(newest, sync, &candidates, live, others)
            });
            offered.unwrap_or_default()
        } else {
            plan.given.clone()
        };
        let Subject { io, key, .. } = subject;
        self.peers.leave_to(io, key, &gives, state.remote.loaded.as_ref());
        postponed
    }

    /// Writes into the status what somebody has approved, unless it says so already.
    async fn remember_approval(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &Work<'_>,
        latch: &Latch,
    ) -> Result<(), EngineError> {
        if !latch.approves {
            return Ok(());
        }
        let handled = latch.handled.clone();
        let index = state.plans.view.as_ref().map(|view| &view.index);
        let released = work.plan.released.as_ref().zip(index);
        let released = released.map(|(released, index)| approved(released, work, index));
        let (held, pending) = (work.plan.held.as_ref(), latch.pending.clone());
        self.status()
            .write(subject, |old| {
                let mut status = old.cloned().unwrap_or_default();
                status.last_handled_approval = handled.or(status.last_handled_approval);
                let deletes = Deletes { held, pending, approved: released };
                deletes.tell(&mut status, subject.generation, subject.io.time());
                status
            })
            .await?;
        // What is approved is held until that is remembered.
        state.latch = Some(latch.pending.clone());
        Ok(())
    }

    /// Writes what is left of the plan. Each request is judged once more when it is sent.
    async fn write(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
    ) -> Result<Outcome, EngineError> {
        let Subject { io, key, entry, sync, .. } = subject;
        let Work { loaded, plan, told, .. } = &*work;
        let check =
            if plan.is_settled() { AccountCheck::UnlessKnown } else { AccountCheck::Always };
        let account = match self.rules.writer(&mut state.plans.account, subject, check).await {
            Ok(account) => account,
            Err(refusal) => {
                work.carried.refusal = Some(refusal);
                return Ok(Outcome::default());
            }
        };
        self.prepare_end_of(subject, plan, work.blocked).await?;
        if plan.is_settled() {
            state.plans.resume = Resume::default();
            return Ok(Outcome::default());
        }
        let newer = state.remote.has_news();
        let current = || {
            if newer() {
                return false;
            }
            let newest = self.stores.git_syncs.get(key);
            newest.is_some_and(|newest| {
                newest.uid == entry.uid && newest.value.facts.same_input(&entry.value.facts)
            })
        };
        // Another GitSync may want by now what this plan deletes, and a kind that fails may hide that.
        let known = known_unread(plan);
        let absent = || self.news() == *told && failing(&self.stores, known).is_none();
        let given = |mark: &Mark, id: &ObjectId| self.still_gives(mark, id, key);
        io.emit(Effect::Writing(true));
        let slow = if state.waits.waiting {
            None
        } else {
            StatusWriter::slow_report(&state.remote, subject, loaded, plan)
        };
        let PlanMemory { settled, resume, .. } = &mut state.plans;
        let writer = Writer {
            io,
            account: account.as_ref(),
            stores: &self.stores,
            sync: &work.sync,
            commit: &loaded.revision.commit,
            atomic: sync.spec.failure_policy == FailurePolicy::Atomic,
            is_current: &current,
            is_absence_proven: &absent,
            is_handed_over: &given,
            deadline: io.now() + MAX_APPLY_TIME,
        };
        let writes = apply(&writer, &loaded.measure, plan, settled, resume);
        Ok(self.status().beside(subject, slow, writes).await)
    }

    /// Takes in what the writes have changed. Gives the objects with our mark, and the approval if some of its objects are left.
    fn take_stock(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
        outcome: &Outcome,
    ) -> Result<(BTreeMap<Kind, Count>, Option<Approved>), EngineError> {
        let Subject { io, key, .. } = subject;
        let Work { loaded, sync, live, plan, carried, .. } = work;
        let wanted = &loaded.measure;
        let PlanMemory { view, settled, contention, refused, .. } = &mut state.plans;
        let Some(PlanView { index, .. }) = view else { return Err(EngineError::Stuck) };
        for id in &outcome.written {
            if let Some(want) = wanted.get(id) {
                index.wrote(id, want);
            }
        }
        // A reply that shows nothing new touches nothing, but teaches what is settled.
        let own = plan.create.iter().chain(plan.update.iter().map(|update| &update.id));
        // What changed meanwhile counts now, and is looked at again by the next plan, which knows what that means.
        let others = self.dirty.peek(key);
        let others = others.unwrap_or_else(|| everything(index, live));
        for id in own.chain(&others) {
            index.update(id, sync, wanted, live, settled);
        }
        let left = plan.released.as_ref().filter(|approved| {
            let left = brake::left(sync, wanted, live, index);
            approved.uids.iter().any(|uid| left.contains(uid))
        });
        let approved = left.map(|prune| Approved {
            prune: prune.clone(),
            is_due: brake::is_due(prune, sync, wanted, live, index),
        });
        let counts = index.counts().clone();
        let recreated = plan.create.iter().filter(|id| work.again && live.get(id).is_some());
        let recreated = recreated.map(|id| (id, "deleted by somebody".to_owned()));
        let changed = outcome.drifts.iter().map(|(id, drift)| (id, drift.to_string()));
        for (id, who) in changed.chain(recreated) {
            if let Some(want) = wanted.get(id) {
                contention.reverted(id, &want.applied, who, io.now());
            }
        }
        for (id, failure) in &outcome.failures {
            match (failure, wanted.get(id)) {
                (Failure::Refused(rejection), Some(want)) => {
                    refused.insert(id.clone(), (want.applied.clone(), rejection.clone()));
                }
                _ => carried.transient += 1,
            }
        }
        state.plans.try_denied_again(subject.retry_after(), io.now());
        carried.undeleted = outcome.undeleted.len();
        carried.ending = still_there(plan.ending.iter().chain(&outcome.ending), live);
        carried.left = outcome.unstarted + outcome.skipped;
        carried.wait = work.fought.iter().map(|fought| fought.wait).min();
        Ok((counts, approved))
    }

    /// Whether a GitSync of this mark is gone, or leaves the object to this one.
    fn still_gives(&self, mark: &Mark, id: &ObjectId, me: &Key) -> bool {
        let giver = Key::new(&*mark.sync_namespace, &*mark.sync_name);
        let lives = self.stores.git_syncs.get(&giver).is_some_and(|e| e.uid == mark.sync_uid);
        !lives || (giver.namespace == me.namespace && self.peers.gives(&giver, id, &me.name))
    }
}

/// What cannot be read, and may need what this commit does not want.
fn unproven(others: &PeerView<'_>, stores: &Stores) -> Unproven {
    let mut unproven = others.unproven();
    if let Some(silent) = stores.silent() {
        let kinds = stores.failing().into_iter().map(|kind| format!("kind {kind}"));
        unproven.unread.extend(kinds);
        if !unproven.reason.is_empty() {
            unproven.reason.push_str("; ");
        }
        unproven.reason.push_str(&format!("the API server does not show {silent}"));
    }
    unproven
}

/// What is approved, and whether some of it is still to be deleted.
fn approved(released: &ApprovedPrune, work: &Work<'_>, index: &WorkIndex) -> Approved {
    let Work { loaded, sync, live, .. } = work;
    let is_due = brake::is_due(released, sync, &loaded.measure, live, index);
    Approved { prune: released.clone(), is_due }
}

/// What could not be read when somebody approved all that this plan deletes, and said yes in spite of it.
fn known_unread(plan: &Plan) -> Option<&[String]> {
    let released = plan.released.as_ref();
    Some(&released.filter(|released| brake::names_all(released, &plan.prune))?.unread)
}

/// The kinds that cannot be watched at this moment, but for those that are `known` not to be: what others see in them may not be
/// shown here.
fn failing(stores: &Stores, known: Option<&[String]>) -> Option<String> {
    let mut failing = stores.failing();
    failing.retain(|kind| !known.is_some_and(|known| known.contains(&format!("kind {kind}"))));
    (!failing.is_empty()).then(|| failing.join(", "))
}

/// Takes the writes out of a plan that are not to be tried now: what the server refused waits until its content changes or
/// somebody asks, and what somebody changes again and again waits ever longer.
fn leave_out(state: &mut SyncState, subject: &Subject<'_>, work: &mut Work<'_>) {
    let (now, wanted) = (subject.io.now(), &work.loaded.measure);
    state.plans.try_denied_again(subject.retry_after(), now);
    work.blocked = leave_refused(&mut work.plan, wanted, &mut state.plans.refused);
    if subject.sync.spec.failure_policy == FailurePolicy::Atomic && work.blocked > 0 {
        work.plan.wait();
    }
    work.fought = state.plans.contention.hold(&mut work.plan, wanted, now);
}

/// What is held after this plan, and what becomes of the approval that the GitSync carries.
fn latch(state: &mut SyncState, subject: &Subject<'_>, work: &Work<'_>) -> Latch {
    let Work { plan, latch_key, .. } = work;
    let before = state.latch.clone().flatten();
    let pending = if work.recalled {
        before
    } else {
        brake::pending(before.as_ref(), plan, latch_key, &work.unproven)
    };
    let approval = subject.annotation(keys::APPROVE_PRUNE).filter(|_| !work.recalled);
    let handled = brake::acted_on(approval, plan, pending.as_ref());
    let outdated = fits_nothing(approval, handled.as_deref(), plan, latch_key, subject.status())
        .map(str::to_owned);
    let approved = subject.status().and_then(|status| status.approved_prune.as_ref());
    let approves = plan.released.is_some() && approved != plan.released.as_ref();
    if !approves {
        // Whether or not the status can say so at once.
        state.latch = Some(pending.clone());
    }
    Latch { pending, handled, outdated, approves }
}

/// All that is wrong: with the commit, and with what was written. While the newest commit waits for others, what is wrong with
/// it is said already.
fn problems(
    state: &SyncState,
    subject: &Subject<'_>,
    loaded: &Arc<Loaded>,
    plan: &Plan,
    outcome: &Outcome,
    fought: &[Contended],
) -> Vec<Problem> {
    let read = state.remote.loaded.as_ref().filter(|_| state.waits.waiting).unwrap_or(loaded);
    let mut problems = read.catalog.problems.clone();
    let view = state.plans.view.as_ref();
    problems.extend(view.into_iter().flat_map(|view| view.references.problems()).cloned());
    let refused = &state.plans.refused;
    let written = Written { plan, outcome, refused, contended: fought };
    problems.extend(write_problems(subject.key, &loaded.measure, &written));
    diagnostic::sort(&mut problems);
    problems
}
