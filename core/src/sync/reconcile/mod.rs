//! One reconcile of a GitSync, from top to bottom. `Engine::reconcile` and `Engine::sync` are where to start reading.
//!
//! ```text
//! reconcile: kinds not listed? ─► gone? ─► being deleted? ─► does not parse? ─► status overwritten?
//!   └─ sync: poll ─► approval withdrawn? ─► finalizer ─► suspended? ─► ServiceAccount ─► which commit (dependsOn)
//!        └─ apply_commit: plan and apply ─► status and events ─► when next
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`engine`] | what the engine of a namespace keeps |
//! | [`state`] | what the engine keeps of one GitSync between two reconciles |
//! | `unreadable` | GitSyncs that do not parse, and kinds that the API server does not list |
//! | `deletion`, `finalizer` | a GitSync that is being deleted |
//! | `remote` | when the remote is polled, and the report while no commit can be applied |
//! | [`approvals`] | approvals that are withdrawn or out of date |
//! | `plan_and_apply`, `make_plan`, `write_plan`, `work` | from a commit and the live objects to the writes |
//! | `report` | the status and the events after that, and when the next reconcile is due |

pub mod approvals;
mod deletion;
pub mod engine;
mod finalizer;
mod make_plan;
mod plan_and_apply;
mod remote;
mod report;
pub mod state;
mod unreadable;
mod work;
mod write_plan;

use std::time::Duration;

use crate::api::git_sync::ApprovedPrune;
use crate::api::keys;
use crate::cluster::store::Key;
use crate::next::Next;
use crate::sync::io::{Ended, Io};
use crate::sync::peers::dependencies::Dependencies;
use crate::sync::reasons::{EngineReason, stalled, unready};
use crate::sync::reconcile::approvals::withdrawn;
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::report::Report;
use crate::sync::subject::Subject;

impl Engine {
    /// Reconciles the GitSync of that name.
    ///
    /// # Errors
    /// When the status or the finalizer could not be written: then the reconcile is repeated.
    pub async fn reconcile(&self, io: &Io, name: &str) -> Ended {
        let key = Key::new(&*self.namespace, name);
        if !self.stores.pending().is_empty() {
            return self.report_unlisted_kinds(io, &key).await;
        }
        let Some(entry) = self.stores.git_syncs.get(&key) else {
            self.forget(io, &key);
            return Ok(Next::Forget);
        };
        let sync = entry.value.object();
        if entry.value.facts.deleting || sync.as_ref().is_none_or(|sync| sync.spec.suspend) {
            // It will not poll, so the peers that wait for its poll have to look again.
            io.wake(self.peers.take_waiters(&key));
        }
        if entry.value.facts.deleting {
            return self.reconcile_deletion(io, &key, &entry).await;
        }
        let Some(sync) = sync else {
            return self.report_unreadable(io, &key, &entry).await;
        };
        let state = self.state(&key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            // The GitSync was deleted and created again under the same name.
            drop(state);
            self.forget(io, &key);
            return Ok(Next::After(Duration::ZERO));
        }
        let generation = sync.metadata.generation.unwrap_or(0);
        let live = sync.status.as_ref();
        let own = self.last_written.own(&key, &entry.uid, live);
        let own = own.as_ref();
        let subject = Subject { io, key: &key, entry: &entry, sync: &sync, generation, own };
        let withdrawn = withdrawn(&mut state, &self.dirty, &subject);
        let rewrite = own.and_then(|_| self.last_written.rewrite(&key, &entry.uid, live, io.now()));
        if let Some(status) = rewrite {
            tracing::info!(object = %key, "somebody else has written the status: ours is written again");
            self.status().write(&subject, |_| status).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        self.sync(&mut state, &subject, withdrawn).await
    }

    /// Reconciles a GitSync that exists, parses and is not being deleted. `withdrawn` is the approval that was withdrawn.
    async fn sync(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        withdrawn: Option<&ApprovedPrune>,
    ) -> Ended {
        let Subject { io, key, sync, .. } = subject;
        let approval = subject.annotation(keys::APPROVE_PRUNE);
        if state.freshness.note(subject.generation, approval) {
            // The spec changed: a GitSync that was just suspended wants nothing until it is resumed.
            io.wake(self.peers.rivals(key));
        }
        if !sync.spec.suspend {
            // Also a GitSync that may write nothing polls: peers may wait to learn what it wants.
            self.poll(state, subject);
        }
        if let Some(withdrawn) = withdrawn {
            // Not left to the plan: there is no plan while no commit can be read.
            return self.withdraw_approval(state, subject, withdrawn).await;
        }
        self.update_finalizer(subject).await?;
        if sync.spec.suspend {
            return self.report_suspended(state, subject).await;
        }
        let account = sync.spec.service_account_name.as_deref();
        if let Err(refusal) = self.rules.account(&key.namespace, account) {
            let verdict = stalled(refusal.reason, &refusal.message);
            self.status().report(subject, Report::blank(subject, verdict, &state.remote)).await?;
            return Ok(Next::Settled);
        }
        // After a change of the spec that selects other files, no earlier commit counts: the next poll reads them.
        let loaded = state.remote.loaded.clone().filter(|loaded| loaded.answers(&sync.spec));
        let Some(newest) = loaded else { return self.report_remote(state, subject).await };
        let dependencies = Dependencies { subject, stores: &self.stores, peers: &self.peers };
        let allowed = dependencies.allowed(&mut state.dependencies, newest);
        match (allowed.loaded, allowed.waits) {
            (Some(loaded), waits) => self.apply_commit(state, subject, &loaded, waits).await,
            (None, Some(waits)) => self.report_dependencies(state, subject, waits).await,
            (None, None) => self.report_remote(state, subject).await,
        }
    }

    /// Reports that a GitSync is suspended.
    async fn report_suspended(&self, state: &mut SyncState, subject: &Subject<'_>) -> Ended {
        // What a poll finds meanwhile would be out of date when the GitSync is resumed.
        if let Some(result) = self.poller().stop(&mut state.remote, subject) {
            state.note_poll(result);
        }
        let verdict = unready(EngineReason::Suspended, "");
        let mut report = Report::blank(subject, verdict, &state.remote);
        report.suspended = true;
        // The commit that a request (`requestedAt`) asked for is not applied.
        report.handled = None;
        self.status().report(subject, report).await?;
        Ok(Next::Settled)
    }
}
