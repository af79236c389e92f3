//! Planning and writing: from what was read and what there is to what was done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::apply::{Failure, LONGEST, Outcome, Writer, apply};
use super::board::{Board, Count, Namespace};
use super::consult::consult;
use super::desired::{SyncRef, changes, latch_key};
use super::ending::still_there;
use super::engine::{Engine, EngineError, Subject};
use super::loaded::Loaded;
use super::machine::effect::Effect;
use super::offers::{candidates, offered};
use super::plan::{Inputs, Plan, Unproven, brake, plan};
use super::problems::{leave_refused, write_problems};
use super::references::References;
use super::rights::retry_after;
use super::siblings;
use super::space::Space;
use super::state::{Plans, State, View};
use super::verdict::Carried;
use crate::api::git_sync::{
    ApprovedPrune, FailurePolicy, GitSyncStatus, PendingPrune, Problem, Stages,
};
use crate::api::{Kind, Mark, ObjectId, keys};
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::definition::diagnostic;

/// What a plan became.
pub(super) struct Carry {
    pub plan: Plan,
    /// Whether it is the plan of a commit that was applied once, and says nothing about deletes.
    pub recalled: bool,
    /// The deletes that are held now, and what was held for this commit before.
    pub pending: Option<PendingPrune>,
    pub outcome: Outcome,
    /// Writes that the server refused before and that were not sent again.
    pub blocked: usize,
    pub carried: Carried,
    pub approved: Option<ApprovedPrune>,
    /// The approval that the GitSync carries, once it was acted on.
    pub handled: Option<String>,
    pub problems: Vec<Problem>,
    pub stages: Stages,
    /// Objects with our mark after the writes.
    pub counts: BTreeMap<Kind, Count>,
}

impl Engine {
    /// Plans and writes.
    pub(super) async fn carry_out(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
    ) -> Result<Carry, EngineError> {
        let Subject { io, key, entry, sync, generation } = subject;
        let plan_start = io.now();
        let reference = subject.reference();
        let live = self.space(&key.namespace);
        // A plan for this commit was carried out before: what is missing now was there, or could not be made.
        let again = state.plans.view.as_ref().is_some_and(|view| Arc::ptr_eq(&view.loaded, loaded));
        let first = state.plans.view.is_none();
        let mut view = self.look_around(state, &reference, loaded, &live);
        // A commit that is found already may have been written in part, before the operator started.
        if first && !state.waits.waiting && subject.was_applied_whole(&loaded.revision) {
            view.board.trust(&loaded.desired);
        }
        // While the newest commit waits for others, what is wrong with it is said already.
        let said = state.remote.loaded.as_ref().filter(|_| state.waits.waiting).unwrap_or(loaded);
        let mut problems = said.catalog.problems.clone();
        problems.extend(view.references.problems().cloned());
        let since = state.bar.since(loaded);
        // Asked first: whoever tells something beside this is news, whether or not the view has it.
        let told = self.news();
        let others = self.siblings.view(key, since, io.now(), &self.stores.git_syncs);
        let unproven = unproven(&others, &self.stores);
        let status = subject.status();
        let shown = status.and_then(|status| status.pending_prune.clone());
        let pending = state.latch.get_or_insert(shown).clone();
        let approval = subject.annotation(keys::APPROVE_PRUNE);
        // A changed spec ends an approval: `maxDeletions: 0` must stop what is under way.
        let latch_key = latch_key(&loaded.revision.commit, &sync.spec.path, *generation);
        let approved = status.and_then(|status| status.approved_prune.as_ref());
        let mut made = plan(&Inputs {
            sync: &reference,
            latch_key: &latch_key,
            desired: &loaded.measure,
            live: &live,
            board: &view.board,
            has_errors: loaded.catalog.has_errors(),
            broken: &loaded.catalog.broken,
            broken_paths: &loaded.catalog.broken_paths,
            paths: &loaded.catalog.paths,
            last_paths: &loaded.last_paths,
            lost: loaded.lost,
            prune: &sync.spec.prune,
            drift: sync.spec.drift,
            failure_policy: sync.spec.failure_policy,
            approval,
            handled: status.and_then(|status| status.last_handled_approval.as_deref()),
            approved,
            pending: pending.as_ref(),
            unproven: &unproven,
            prune_base: status.and_then(GitSyncStatus::prune_base),
            others: &others,
            settled: &state.plans.settled,
        });
        let recalled = state.waits.recalled.as_ref().is_some_and(|old| Arc::ptr_eq(old, loaded));
        if recalled {
            // It was applied once, perhaps for another spec.
            made.undo_only();
        }
        state.plans.try_denied_again(retry_after(subject), io.now());
        // What the server refused is not sent again until its content changes or somebody asks.
        let blocked = leave_refused(&mut made, &loaded.measure, &mut state.plans.refused);
        let atomic = sync.spec.failure_policy == FailurePolicy::Atomic;
        if atomic && blocked > 0 {
            made.wait();
        }
        let fought = state.plans.fights.hold(&mut made, &loaded.measure, io.now());
        let asked = consult(&others, &mut made, pending.as_ref(), &latch_key);
        let mut carried = Carried { asked, ..Carried::default() };
        self.ask(io, key, &others, &carried.asked, &made, since);
        if !again {
            // A GitSync that keeps an object although its own commit does not want it plans again: now it can hand it over.
            let have = made.conflicts.iter().filter_map(|conflict| conflict.sibling.as_ref());
            let have: BTreeSet<_> = have.map(|name| Key::new(&key.namespace, name)).collect();
            self.wake(io, have.into_iter().collect());
        }
        let pending = if recalled {
            pending
        } else {
            brake::pending(pending.as_ref(), &made, &latch_key, &unproven)
        };
        let handled = approval.filter(|_| !recalled);
        let handled = brake::acted_on(handled, &made, pending.as_ref());
        let approves = made.released.is_some() && approved != made.released.as_ref();
        if !approves {
            // Whether or not the status can say so at once.
            state.latch = Some(pending.clone());
        }
        // What others see at this moment may not be shown here, unless somebody has approved just that.
        let known = made.released.as_ref();
        let known = known.filter(|released| brake::names_all(released, &made.prune));
        let known = known.map(|released| released.unread.clone());
        let failing = || failing(&self.stores, known.as_deref());
        carried.unseen = failing().filter(|_| !made.prune.is_empty());
        // What somebody has approved may be wanted again by a commit that no look has found yet.
        state.remote.owed = made.released.is_some()
            && !made.prune.is_empty()
            && state.bar.is_approved_after(state.remote.looked);
        // The remote has not been asked since the spec was changed: what was found before may be long out of date.
        carried.unanswered = state.remote.owed || state.remote.generation != *generation;
        // While the newest commit cannot be read, an older one proves no absence.
        let deletes_wait = blocked > 0
            || !fought.is_empty()
            || carried.unanswered
            || state.remote.source_error.is_some()
            || state.waits.waiting
            || !carried.asked.is_empty()
            || carried.unseen.is_some();
        let postponed = if deletes_wait { std::mem::take(&mut made.prune).len() } else { 0 };
        // An older commit gives nothing away either.
        let candidates = candidates(state, &view.board, loaded);
        let offered = offered(state, subject, &candidates, &live, &others);
        let gives = if deletes_wait { offered } else { made.given.clone() };
        self.leave_to(subject, state, &gives);
        let mut stages =
            Stages { plan_ms: io.millis_since(plan_start), ..state.remote.stages.clone() };

        // What is known is not lost with a request that fails.
        state.plans.view = Some(view);

        // Remember an approval before the first delete: after a crash the rest is still approved.
        if approves {
            let (released, handled) = (made.released.clone(), handled.clone());
            self.write_status(subject, |old| {
                let mut status = old.cloned().unwrap_or_default();
                status.approved_prune = released;
                status.last_handled_approval = handled.or(status.last_handled_approval);
                status
            })
            .await?;
            // What is approved is held until that is remembered.
            state.latch = Some(pending.clone());
        }

        let apply_start = io.now();
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
        let absent = || self.news() == told && failing().is_none();
        let given = |mark: &Mark, id: &ObjectId| self.still_gives(mark, id, key);
        let account = self.writer(state, subject, made.is_settled()).await;
        if account.is_ok() {
            self.prepare_end_of(subject, &made, blocked).await?;
        }
        let outcome = match account {
            Ok(account) if !made.is_settled() => {
                io.tell(Effect::Writing(true));
                let slow = Self::slow_report(state, subject, loaded, &made);
                let Plans { settled, pieces, .. } = &mut state.plans;
                let writer = Writer {
                    io,
                    account: account.as_ref(),
                    stores: &self.stores,
                    sync: &reference,
                    commit: &loaded.revision.commit,
                    atomic,
                    go_on: &current,
                    absent: &absent,
                    given: &given,
                    until: io.now() + LONGEST,
                };
                let work = apply(&writer, &loaded.measure, &made, settled, pieces);
                self.telling(subject, slow, work).await
            }
            Ok(_) => Outcome::default(),
            Err(refusal) => {
                carried.refusal = Some(refusal);
                Outcome::default()
            }
        };
        stages.apply_ms = io.millis_since(apply_start);
        let Some(mut view) = state.plans.view.take() else { return Err(EngineError::Stuck) };
        for id in &outcome.written {
            if let Some(want) = loaded.measure.get(id) {
                view.board.wrote(id, want);
            }
        }
        // A reply that shows nothing new touches nothing, but teaches what is settled.
        let own = made.create.iter().chain(made.update.iter().map(|update| &update.id));
        // What changed meanwhile counts now, and is looked at again by the next plan, which knows what that means.
        let others = self.touched.peek(key);
        let others = others.unwrap_or_else(|| everything(&view.board, &live));
        for id in own.chain(&others) {
            view.board.look(id, &reference, &loaded.measure, &live, &state.plans.settled);
        }
        let counts = view.board.counts().clone();
        let approved = made.released.clone().filter(|approved| {
            let left = brake::left(&reference, &loaded.measure, &live, &view.board);
            approved.uids.iter().any(|uid| left.contains(uid))
        });
        state.plans.view = Some(view);
        for (id, drift) in &outcome.drifts {
            if let Some(want) = loaded.measure.get(id) {
                state.plans.fights.reverted(id, &want.applied, drift.to_string(), io.now());
            }
        }
        for id in made.create.iter().filter(|id| again && live.get(id).is_some()) {
            if let Some(want) = loaded.measure.get(id) {
                let who = "deleted by somebody".to_owned();
                state.plans.fights.reverted(id, &want.applied, who, io.now());
            }
        }
        for (id, failure) in &outcome.failures {
            match (failure, loaded.measure.get(id)) {
                (Failure::Refused(rejection), Some(want)) => {
                    state
                        .plans
                        .refused
                        .insert(id.clone(), (want.applied.clone(), rejection.clone()));
                }
                _ => carried.transient += 1,
            }
        }
        state.plans.try_denied_again(retry_after(subject), io.now());
        carried.undeleted = outcome.undeleted.len();
        carried.ending = still_there(made.ending.iter().chain(&outcome.ending), &live);
        carried.left = outcome.left + outcome.taken;
        carried.wait = fought.iter().map(|fought| fought.wait).min();
        let said_so = !carried.asked.is_empty() || carried.unseen.is_some();
        if !said_so && !carried.unanswered && fought.is_empty() {
            carried.undeleted += postponed;
        }
        problems.extend(write_problems(
            &key.namespace,
            &loaded.measure,
            &made,
            &outcome,
            &state.plans.refused,
            &fought,
        ));
        diagnostic::sort(&mut problems);
        Ok(Carry {
            plan: made,
            recalled,
            pending,
            outcome,
            blocked,
            carried,
            approved,
            handled,
            problems,
            stages,
            counts,
        })
    }

    /// Brings the view up to date: with what changed in the cluster, and with what changed between two commits.
    fn look_around(
        &self,
        state: &mut State,
        sync: &SyncRef,
        loaded: &Arc<Loaded>,
        live: &Space<'_>,
    ) -> View {
        let key = Key::new(&*sync.namespace, &*sync.name);
        let exists = |id: &ObjectId| live.get(id).is_some();
        let Some(mut view) = state.plans.view.take() else {
            self.touched.follow(&key);
            let board = Board::new(sync, &loaded.measure, live, &state.plans.settled);
            let references = References::of(&loaded.catalog, &exists);
            return View { board, references, loaded: loaded.clone() };
        };
        let touched = self.touched.take(&key);
        let missed = touched.is_none();
        if missed {
            self.touched.follow(&key);
        }
        let touched = touched.unwrap_or_else(|| everything(&view.board, live));
        let before = std::mem::replace(&mut view.loaded, loaded.clone());
        let differing = changes(&before.measure, &loaded.measure);
        for (id, _) in differing.iter().filter(|(id, _)| loaded.measure.get(id).is_none()) {
            state.plans.settled.remove(id);
        }
        for id in touched.iter().chain(differing.iter().map(|(id, _)| id)) {
            view.board.look(id, sync, &loaded.measure, live, &state.plans.settled);
        }
        let differing = changes(&before.desired, &loaded.desired);
        let commits = (&before.catalog, &loaded.catalog);
        if missed {
            view.references = References::of(&loaded.catalog, &exists);
        } else {
            view.references.update(commits, &differing, touched.iter(), &exists);
        }
        view
    }

    /// Whether a GitSync of this mark is gone, or leaves the object to this one.
    fn still_gives(&self, mark: &Mark, id: &ObjectId, me: &Key) -> bool {
        let giver = Key::new(&*mark.sync_namespace, &*mark.sync_name);
        let lives = self.stores.git_syncs.get(&giver).is_some_and(|e| e.uid == mark.sync_uid);
        !lives || (giver.namespace == me.namespace && self.siblings.gives(&giver, id, &me.name))
    }
}

/// All that may have changed when changes were too many to be kept: what there is, and what the board knows of. The board
/// stays, so what it knows of earlier writes is not lost.
pub(super) fn everything(board: &Board, live: &dyn Namespace) -> BTreeSet<ObjectId> {
    live.ids().into_iter().chain(board.ids().cloned()).collect()
}

/// What cannot be read, and may need what this commit does not want.
fn unproven(others: &siblings::View<'_>, stores: &Stores) -> Unproven {
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

/// The kinds that cannot be watched at this moment, but for those that are `known` not to be.
fn failing(stores: &Stores, known: Option<&[String]>) -> Option<String> {
    let mut failing = stores.failing();
    failing.retain(|kind| !known.is_some_and(|known| known.contains(&format!("kind {kind}"))));
    (!failing.is_empty()).then(|| failing.join(", "))
}
