//! Makes a plan: from the commit and the live objects, then without what must not be written now, and without the deletes
//! that have to wait for an approval or for the peers.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::git_sync::{FailurePolicy, GitSyncStatus, PendingPrune};
use crate::api::keys;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::sync::apply::memory::PlanMemory;
use crate::sync::apply::problems::leave_refused;
use crate::sync::commit::desired::latch_key;
use crate::sync::commit::loaded::Loaded;
use crate::sync::live_namespace::{Namespace, mark};
use crate::sync::peers::consult::consult;
use crate::sync::peers::offers::{candidates, offered};
use crate::sync::peers::view::PeerView;
use crate::sync::plan::approvals::fits_nothing;
use crate::sync::plan::refresh::{PlanView, refresh};
use crate::sync::plan::{Inputs, Plan, Unproven, brake, plan};
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::state::SyncState;
use crate::sync::reconcile::work::Work;
use crate::sync::status::verdict::Remaining;
use crate::sync::subject::Subject;

/// The deletes that are held after a plan, and the approval in the annotation.
pub(super) struct HeldDeletes {
    /// The held deletes as the status keeps them.
    pub pending: Option<PendingPrune>,
    /// The approval, once it was acted on.
    pub handled: Option<String>,
    /// The approval, if this plan is the first to find that it releases nothing.
    pub outdated: Option<String>,
    /// Whether the plan releases deletes that the status does not list as approved yet.
    pub approves: bool,
}

impl Engine {
    /// Brings the view of the live objects up to date, looks at the peers, and plans.
    pub(super) fn make_plan<'a>(
        &'a self,
        state: &mut SyncState,
        subject: &Subject<'a>,
        loaded: &'a Arc<Loaded>,
    ) -> Work<'a> {
        let Subject { io, key, sync, generation, .. } = subject;
        let reference = subject.reference();
        let live = subject.live(&self.stores);
        let again = state.plans.view.as_ref().is_some_and(|view| Arc::ptr_eq(&view.loaded, loaded));
        let view = self.refresh_view(state, subject, loaded);
        let since = state.freshness.since(loaded);
        // Read before the view: what peers announce while the view is made changes the version.
        let peers_version = self.peers_version();
        let others = self.peers.view(key, since, io.now(), &self.stores.git_syncs);
        let unproven = unproven(&others, &self.stores);
        let status = subject.status();
        refresh_held(state, subject);
        // A change of the spec ends an approval: `maxDeletions: 0` stops deletes that are under way.
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
            pending: state.held_deletes.as_ref().and_then(Option::as_ref),
            unproven: &unproven,
            prune_base: status.and_then(GitSyncStatus::prune_base),
            others: &others,
            settled: &state.plans.settled,
        });
        let recalled =
            state.dependencies.recalled.as_ref().is_some_and(|old| Arc::ptr_eq(old, loaded));
        if recalled {
            // The commit was applied before, perhaps for another spec.
            plan.undo_only();
        }
        // Kept before the first request, which may fail.
        state.plans.view = Some(view);
        Work {
            loaded,
            sync: reference,
            live,
            others,
            peers_version,
            unproven,
            latch_key,
            again,
            plan,
            recalled,
            blocked: 0,
            remaining: Remaining::default(),
            contended: Vec::new(),
        }
    }

    /// The view of the live objects, brought up to date for this commit.
    fn refresh_view(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
    ) -> PlanView {
        let live = subject.live(&self.stores);
        let first = state.plans.view.is_none();
        let PlanMemory { view, settled, .. } = &mut state.plans;
        let (view, reference) = (view.take(), subject.reference());
        let mut view = refresh(view, settled, &self.dirty, (&reference, loaded), &live);
        // Of any other commit, an earlier operator may have written only a part.
        let whole = subject.was_applied_whole(&loaded.revision);
        if first && !state.dependencies.waiting && whole {
            view.index.trust(&loaded.desired);
        }
        view
    }

    /// Asks the peers to poll where the plan depends on what they want, and leaves out of the plan what waits for them.
    pub(super) fn consult_peers(
        &self,
        state: &SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
    ) {
        let Subject { io, key, .. } = subject;
        let pending = state.held_deletes.as_ref().and_then(Option::as_ref);
        let asked = consult(&work.others, &mut work.plan, pending, &work.latch_key);
        self.peers.ask_before(io, &work.others, &asked, &work.plan);
        // Objects that this GitSync wants and a peer has: they can be taken over once the peer gives them up or is gone.
        let owner = |id| mark(&work.live.get(id)?, id, &work.sync);
        let paused = work.plan.paused.iter().filter_map(owner);
        let paused = paused.filter(|mark| mark.sync_namespace == key.namespace);
        let paused = paused.map(|mark| mark.sync_name);
        let contested = work.plan.conflicts.iter().filter_map(|conflict| conflict.peer.clone());
        let owners = paused.chain(contested).map(|name| Key::new(&key.namespace, name));
        let owners: BTreeSet<_> = owners.collect();
        let lives = |owner: &Key| owner != *key && self.stores.git_syncs.get(owner).is_some();
        let owners: Vec<_> = owners.into_iter().filter(lives).collect();
        self.peers.wait_for(io, key, &owners, work.others.at);
        if !work.again {
            // A peer may keep an object that its own commit does not want: it plans again, and can hand the object over.
            io.wake(owners);
        }
        work.remaining.asked = asked;
    }

    /// Takes the deletes out of the plan if they must not be made now, and returns how many they are. Objects that a peer
    /// wants are offered to it, also while writes of this plan are refused or wait.
    pub(super) fn postpone_deletes(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        work: &mut Work<'_>,
    ) -> usize {
        let Work { loaded, sync, live, others, plan, remaining, .. } = work;
        remaining.unseen =
            failing(&self.stores, known_unread(plan)).filter(|_| !plan.prune.is_empty());
        // A commit that no poll has found yet may want the approved objects again.
        state.remote.owes_approval_poll = plan.released.is_some()
            && !plan.prune.is_empty()
            && state.freshness.is_approved_after(state.remote.last_polled);
        // Until the remote is polled for this spec, the commit may be long out of date.
        remaining.unanswered =
            state.remote.owes_approval_poll || state.remote.generation != subject.generation;
        // While the newest commit cannot be read, an older one proves no absence.
        let unproven = remaining.unanswered
            || state.remote.source_error.is_some()
            || state.dependencies.waiting
            || !remaining.asked.is_empty()
            || remaining.unseen.is_some();
        let deletes_wait = unproven || work.blocked > 0 || !work.contended.is_empty();
        let postponed = if deletes_wait { std::mem::take(&mut plan.prune).len() } else { 0 };
        let gives = if unproven {
            // What an older commit does not want is given to nobody: only the newest commit offers objects.
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
}

/// Brings the held deletes up to date with those in the status, as far as the status narrows them.
fn refresh_held(state: &mut SyncState, subject: &Subject<'_>) {
    let shown = subject.status().and_then(|status| status.pending_prune.as_ref());
    let held = state.held_deletes.get_or_insert_with(|| shown.cloned());
    if let Some(narrowed) = held.as_ref().and_then(|held| brake::narrowed(held, shown)) {
        *held = Some(narrowed);
    }
}

/// The peers and kinds that cannot be read: an object that this commit does not want may be wanted there.
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

/// Takes the writes out of the plan that are not to be sent now: refused objects wait until their content changes or
/// somebody asks, and objects in contention wait longer each time.
pub(super) fn leave_out(state: &mut SyncState, subject: &Subject<'_>, work: &mut Work<'_>) {
    let (now, wanted) = (subject.io.now(), &work.loaded.measure);
    state.plans.try_denied_again(subject.retry_after(), now);
    work.blocked = leave_refused(&mut work.plan, wanted, &mut state.plans.refused);
    if subject.sync.spec.failure_policy == FailurePolicy::Atomic && work.blocked > 0 {
        work.plan.wait();
    }
    work.contended = state.plans.contention.hold(&mut work.plan, wanted, now);
}

/// The deletes that are held after this plan, and what becomes of the approval in the annotation.
pub(super) fn hold_deletes(
    state: &mut SyncState,
    subject: &Subject<'_>,
    work: &Work<'_>,
) -> HeldDeletes {
    let Work { plan, latch_key, .. } = work;
    let before = state.held_deletes.clone().flatten();
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
        // Before the status is written, which may fail.
        state.held_deletes = Some(pending.clone());
    }
    HeldDeletes { pending, handled, outdated, approves }
}

/// What could not be read when all deletes of this plan were approved.
pub(super) fn known_unread(plan: &Plan) -> Option<&[String]> {
    let released = plan.released.as_ref();
    Some(&released.filter(|released| brake::names_all(released, &plan.prune))?.unread)
}

/// The kinds that cannot be watched now, without those that are `known` to be unwatched: objects of these kinds may have
/// changed without being seen.
pub(super) fn failing(stores: &Stores, known: Option<&[String]>) -> Option<String> {
    let mut failing = stores.failing();
    failing.retain(|kind| !known.is_some_and(|known| known.contains(&format!("kind {kind}"))));
    (!failing.is_empty()).then(|| failing.join(", "))
}
