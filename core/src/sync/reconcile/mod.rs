//! One reconcile of a GitSync, from top to bottom.
//!
//! ```text
//! reconcile: not all kinds listed? gone? deleted? unreadable? status overwritten?
//!   └─ sync: poll ─► approval taken back ─► finalizer ─► suspended? ─► account? ─► which commit (dependsOn)
//!        └─ bring_about: plan and apply ─► status, events ─► when again
//! ```

pub mod approvals;
mod deletion;
pub mod engine;
mod plan_and_apply;
mod report;
pub mod state;
mod unreadable;

use std::time::Duration;

use crate::api::git_sync::ApprovedPrune;
use crate::api::keys;
use crate::cluster::store::Key;
use crate::next::Next;
use crate::sync::io::{Ended, Io};
use crate::sync::live_namespace::Namespace;
use crate::sync::peers::dependencies::Dependencies;
use crate::sync::peers::offers::offered;
use crate::sync::plan::refresh::{has_objects, needless};
use crate::sync::poll::Before;
use crate::sync::reasons::{EngineReason, Verdict, stalled, unready};
use crate::sync::reconcile::approvals::taken_back;
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::report::unread;
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::Report;
use crate::sync::status::verdict::READING;
use crate::sync::subject::Subject;

/// How long a first poll of a remote may take before the status says that it is under way.
const FIRST_POLL: Duration = Duration::from_secs(1);

impl Engine {
    /// Reconciles the GitSync of that name.
    ///
    /// # Errors
    /// When what it had to say could not be written: then it is tried again.
    pub async fn reconcile(&self, io: &Io, name: &str) -> Ended {
        let key = Key::new(&*self.namespace, name);
        if !self.stores.pending().is_empty() {
            return self.unlisted(io, &key).await;
        }
        let Some(entry) = self.stores.git_syncs.get(&key) else {
            self.forget(io, &key);
            return Ok(Next::Forget);
        };
        let sync = entry.value.object();
        if entry.value.facts.deleting || sync.as_ref().is_none_or(|sync| sync.spec.suspend) {
            // It will not be polled: whoever waits for that is to see it.
            io.wake(self.peers.take_waiters(&key));
        }
        if entry.value.facts.deleting {
            return self.end(io, &key, &entry).await;
        }
        let Some(sync) = sync else {
            return self.unreadable(io, &key, &entry).await;
        };
        let state = self.state(&key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            drop(state);
            self.forget(io, &key);
            return Ok(Next::After(Duration::ZERO));
        }
        let generation = sync.metadata.generation.unwrap_or(0);
        let live = sync.status.as_ref();
        let own = self.last_written.own(&key, &entry.uid, live);
        let own = own.as_ref();
        let subject = Subject { io, key: &key, entry: &entry, sync: &sync, generation, own };
        let approved = taken_back(&mut state, &self.dirty, &subject);
        let answer = own.and_then(|_| self.last_written.answer(&key, &entry.uid, live, io.now()));
        if let Some(said) = answer {
            tracing::info!(object = %key, "somebody else has written the status: ours is written again");
            self.status().write(&subject, |_| said).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        self.sync(&mut state, &subject, approved).await
    }

    /// The same for one that is not being deleted. What was `approved` is taken back.
    async fn sync(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        approved: Option<&ApprovedPrune>,
    ) -> Ended {
        let Subject { io, key, sync, .. } = subject;
        if state.bar.note(subject.generation, subject.annotation(keys::APPROVE_PRUNE)) {
            // One that is suspended contests nothing until it is resumed.
            io.wake(self.peers.rivals(key));
        }
        if !sync.spec.suspend {
            // Whatever it may write itself: others may wait to hear what it wants.
            self.poll(state, subject);
        }
        if let Some(approved) = approved {
            // Here and not in a plan: there is none while nothing can be read.
            return self.take_back(state, subject, approved).await;
        }
        self.prepare_end(subject).await?;
        if sync.spec.suspend {
            return self.suspend(state, subject).await;
        }
        let name = sync.spec.service_account_name.as_deref();
        if let Err(refusal) = self.rules.account(&key.namespace, name) {
            let verdict = stalled(refusal.reason, &refusal.message);
            self.status().report(subject, Report::blank(subject, verdict, &state.remote)).await?;
            return Ok(Next::Settled);
        }
        // A spec that names other files is answered by a poll for it, and by nothing older.
        let loaded = state.remote.loaded.clone().filter(|loaded| loaded.answers(&sync.spec));
        let Some(newest) = loaded else { return self.wait_for_remote(state, subject).await };
        let dependencies = Dependencies { subject, stores: &self.stores, peers: &self.peers };
        let turn = dependencies.turn(&mut state.waits, newest);
        match (turn.loaded, turn.waits) {
            (Some(loaded), waits) => self.bring_about(state, subject, &loaded, waits).await,
            (None, Some(waits)) => self.wait_for_dependencies(state, subject, waits).await,
            (None, None) => self.wait_for_remote(state, subject).await,
        }
    }

    /// Takes in what a poll of the remote found, and begins another one if it is time.
    fn poll(&self, state: &mut SyncState, subject: &Subject<'_>) {
        let poller = self.poller();
        if let Some(learned) = poller.take_in(&mut state.remote, subject) {
            state.learn(learned);
        }
        let Some(trigger) = poller.due(&state.remote, subject) else { return };
        let (view, live) = (state.plans.view.as_ref(), subject.live(&self.stores));
        // What nothing needs any more is not remembered beside the next commit.
        let board = view.map(|view| &view.index);
        let loaded = state.remote.loaded.as_deref();
        // Whoever may have to wait for others keeps meanwhile what was applied before this operator started.
        let waits = !subject.sync.spec.depends_on.is_empty() && state.waits.released.is_none();
        let before = Before {
            needless: loaded.map(|loaded| needless(loaded, board, &live)).unwrap_or_default(),
            has_objects: has_objects(view, &subject.reference(), &live),
            reads_last: waits && state.waits.recalled.is_none(),
        };
        poller.begin(&mut state.remote, subject, trigger, before);
    }

    /// Says of a GitSync that it is suspended.
    async fn suspend(&self, state: &mut SyncState, subject: &Subject<'_>) -> Ended {
        // What is found meanwhile would be old news when it goes on.
        if let Some(learned) = self.poller().stop(&mut state.remote, subject) {
            state.learn(learned);
        }
        let verdict = unready(EngineReason::Suspended, "");
        let mut report = Report::blank(subject, verdict, &state.remote);
        report.suspended = true;
        // What was found of it is not applied.
        report.handled = None;
        self.status().report(subject, report).await?;
        Ok(Next::Settled)
    }

    /// Says what a commit waits for, before there is an earlier one to keep up.
    async fn wait_for_dependencies(
        &self,
        state: &SyncState,
        subject: &Subject<'_>,
        waits: Verdict,
    ) -> Ended {
        self.offer_all(state, subject);
        let mut report = Report::blank(subject, waits, &state.remote);
        let newest = state.remote.loaded.as_ref();
        report.problems = newest.map(|newest| newest.catalog.problems.as_slice());
        // Before the first commit is applied there is nothing to watch.
        report.blind = subject.last_applied().is_some();
        self.status().report(subject, report).await?;
        Ok(Next::After(state.remote.until_poll(subject.io.now())))
    }

    /// Says why nothing of the remote can be applied: it cannot be read, or it has not answered yet.
    async fn wait_for_remote(&self, state: &SyncState, subject: &Subject<'_>) -> Ended {
        let io = subject.io;
        let failure = state
            .remote
            .source_error
            .clone()
            .filter(|_| state.remote.generation == subject.generation);
        let verdict = match (failure, state.remote.polling()) {
            (Some(failure), _) => unread(&failure),
            // Most remotes answer in a moment: there is nothing to say before that.
            (None, Some(question))
                if io.now().saturating_duration_since(question.began) < FIRST_POLL =>
            {
                return Ok(Next::After(FIRST_POLL));
            }
            (None, _) => {
                let mut said = unready(EngineReason::Progressing, READING);
                said.reconciling = true;
                said
            }
        };
        let polling = state.remote.polling().is_some();
        let seen = subject.status().and_then(|status| status.observed_generation);
        // After a restart of the operator nothing is known for a moment, and nothing is worth telling.
        if !verdict.reason.is(EngineReason::Progressing) || seen != Some(subject.generation) {
            let mut report = Report::blank(subject, verdict, &state.remote);
            report.blind = state.remote.source_error.is_some();
            self.status().report(subject, report).await?;
        }
        Ok(Next::After(if polling { FIRST_POLL } else { state.remote.until_poll(io.now()) }))
    }

    /// Leaves to others what the newest commit does not want, while there is no commit to plan with: no earlier one answers this
    /// spec.
    fn offer_all(&self, state: &SyncState, subject: &Subject<'_>) {
        let Subject { io, key, .. } = subject;
        let live = subject.live(&self.stores);
        let since = state.remote.loaded.as_deref().map(|newest| state.bar.since(newest));
        let (since, syncs) = (since.unwrap_or_default(), &self.stores.git_syncs);
        let others = self.peers.view(key, since, io.now(), syncs);
        let gives = state
            .waiting_commit(subject.generation)
            .map(|newest| offered(newest, &subject.reference(), &live.ids(), &live, &others));
        let gives = gives.unwrap_or_default();
        self.peers.leave_to(io, key, &gives, state.remote.loaded.as_ref());
    }
}
