//! Writes a plan: remembers the approval, sends the requests, and takes in what they have changed.

use std::collections::{BTreeMap, HashSet};

use crate::api::git_sync::{ApprovedPrune, FailurePolicy};
use crate::api::{Kind, Mark, ObjectId};
use crate::cluster::store::Key;
use crate::sync::apply::impersonation::AccountCheck;
use crate::sync::apply::memory::PlanMemory;
use crate::sync::apply::resume::Resume;
use crate::sync::apply::terminating::still_there;
use crate::sync::apply::{Failure, MAX_APPLY_TIME, Outcome, Writer, apply};
use crate::sync::io::EngineError;
use crate::sync::io::effect::Effect;
use crate::sync::plan::brake;
use crate::sync::plan::refresh::{PlanView, everything};
use crate::sync::plan::work_index::{Count, WorkIndex};
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::make_plan::{HeldDeletes, failing, known_unread};
use crate::sync::reconcile::state::SyncState;
use crate::sync::reconcile::work::Work;
use crate::sync::status::held_deletes::Deletes;
use crate::sync::status::report::Approved;
use crate::sync::status::writer::StatusWriter;
use crate::sync::subject::Subject;

impl Engine {
    /// Writes the approved deletes into the status, unless it lists them already.
    pub(super) async fn remember_approval(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &Work<'_>,
        held: &HeldDeletes,
    ) -> Result<(), EngineError> {
        if !held.approves {
            return Ok(());
        }
        let handled = held.handled.clone();
        let index = state.plans.view.as_ref().map(|view| &view.index);
        let released = work.plan.released.as_ref().zip(index);
        let released = released.map(|(released, index)| approved(released, work, index));
        let pending = held.pending.clone();
        let deletes = Deletes { held: work.plan.held.as_ref(), pending, approved: released };
        self.status()
            .write(subject, |old| {
                let mut status = old.cloned().unwrap_or_default();
                status.last_handled_approval = handled.or(status.last_handled_approval);
                deletes.write_into(&mut status, subject.generation, subject.io.time());
                status
            })
            .await?;
        // Only now: until the status lists the approved deletes, they stay held.
        state.held_deletes = Some(held.pending.clone());
        Ok(())
    }

    /// Sends the requests of the plan. Each one is checked once more before it is sent.
    pub(super) async fn write(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
    ) -> Result<Outcome, EngineError> {
        let Subject { io, key, entry, sync, .. } = subject;
        let Work { loaded, plan, peers_version, .. } = &*work;
        let check =
            if plan.is_settled() { AccountCheck::UnlessKnown } else { AccountCheck::Always };
        let account = match self.rules.writer(&mut state.plans.account, subject, check).await {
            Ok(account) => account,
            Err(refusal) => {
                work.remaining.refusal = Some(refusal);
                return Ok(Outcome::default());
            }
        };
        self.update_finalizer_for_plan(subject, plan, work.blocked).await?;
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
        // A peer may want an object by now that this plan deletes, and a kind that is not watched may hide that.
        let known = known_unread(plan);
        let absent =
            || self.peers_version() == *peers_version && failing(&self.stores, known).is_none();
        let given = |mark: &Mark, id: &ObjectId| self.still_gives(mark, id, key);
        io.emit(Effect::Writing(true));
        let slow = if state.dependencies.waiting {
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
        Ok(self.status().report_if_slow(subject, slow, writes).await)
    }

    /// Takes in what the writes have changed. Returns the counts of the objects with the mark of this GitSync, and the
    /// approval if some of its objects are left.
    pub(super) fn take_stock(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
        outcome: &Outcome,
    ) -> Result<(BTreeMap<Kind, Count>, Option<Approved>), EngineError> {
        let Subject { io, key, .. } = subject;
        let Work { loaded, sync, live, plan, remaining, .. } = work;
        let wanted = &loaded.measure;
        let PlanMemory { view, settled, contention, refused, .. } = &mut state.plans;
        let Some(PlanView { index, .. }) = view else { return Err(EngineError::Stuck) };
        for id in &outcome.written {
            if let Some(want) = wanted.get(id) {
                index.wrote(id, want);
            }
        }
        // A reply that shows no change marks no object as dirty, but shows which writes changed nothing.
        let own = plan.create.iter().chain(plan.update.iter().map(|update| &update.id));
        // Objects that changed meanwhile are counted now. The next plan looks at them again, and decides.
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
        // Whoever deletes it may be faster than this: that it was written counts, and not that it is there.
        let written: HashSet<_> = outcome.written.iter().collect();
        let recreated = plan.create.iter().filter(|id| work.again && written.contains(id));
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
                _ => remaining.transient += 1,
            }
        }
        state.plans.try_denied_again(subject.retry_after(), io.now());
        remaining.undeleted = outcome.undeleted.len();
        remaining.ending = still_there(plan.ending.iter().chain(&outcome.ending), live);
        remaining.left = outcome.unstarted + outcome.skipped;
        remaining.wait = work.contended.iter().map(|contended| contended.wait).min();
        Ok((counts, approved))
    }

    /// Whether the GitSync of this mark is gone, or leaves the object to this one.
    fn still_gives(&self, mark: &Mark, id: &ObjectId, me: &Key) -> bool {
        let giver = Key::new(&*mark.sync_namespace, &*mark.sync_name);
        let lives = self.stores.git_syncs.get(&giver).is_some_and(|e| e.uid == mark.sync_uid);
        !lives || (giver.namespace == me.namespace && self.peers.gives(&giver, id, &me.name))
    }
}

/// The released deletes, and whether some are still to be made.
fn approved(released: &ApprovedPrune, work: &Work<'_>, index: &WorkIndex) -> Approved {
    let Work { loaded, sync, live, .. } = work;
    let is_due = brake::is_due(released, sync, &loaded.measure, live, index);
    Approved { prune: released.clone(), is_due }
}
