//! What the engine keeps of a GitSync between two reconciles. All of it can be made anew.

use std::time::Instant;

use crate::api::git_sync::PendingPrune;
use crate::order::Seq;
use crate::sync::apply::memory::PlanMemory;
use crate::sync::commit::loaded::Loaded;
use crate::sync::peers::dependencies::DependencyState;
use crate::sync::peers::freshness::Freshness;
use crate::sync::poll::PollResult;
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::Trigger;
use crate::sync::status::memory::ReportMemory;

/// How far the deletion of a GitSync has come.
#[derive(Default)]
pub struct DeletionState {
    /// Since when the GitSync is known to be deleted.
    pub since: Option<Seq>,
    /// Since when no object is left to delete, and only terminating objects are waited for.
    pub waiting_since: Option<Instant>,
    /// How many objects were deleted.
    pub deleted: usize,
}

/// The state of one GitSync. Each part belongs to one step of a reconcile.
pub struct SyncState {
    /// UID of the GitSync: a new GitSync of the same name starts with a new state.
    pub uid: String,
    /// The remote and its polls.
    pub remote: Remote,
    /// After which point a poll of a peer counts.
    pub freshness: Freshness,
    /// Whether the newest commit waits for other GitSyncs.
    pub dependencies: DependencyState,
    /// Planning and writing.
    pub plans: PlanMemory,
    /// The deletes that are held and shown; `None` before they are read from the status.
    #[allow(clippy::option_option)] // said in the line above
    pub held_deletes: Option<Option<PendingPrune>>,
    /// Digest of the approval that was withdrawn last.
    pub withdrawn: Option<String>,
    /// The deletion of the GitSync.
    pub deletion: DeletionState,
    /// What reports have to know of earlier ones.
    pub reports: ReportMemory,
}

impl SyncState {
    /// The state of a GitSync that was not reconciled yet.
    #[must_use]
    pub fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            remote: Remote::default(),
            freshness: Freshness::default(),
            dependencies: DependencyState::default(),
            plans: PlanMemory::default(),
            held_deletes: None,
            withdrawn: None,
            deletion: DeletionState::default(),
            reports: ReportMemory::default(),
        }
    }

    /// The newest commit, if it waits for other GitSyncs (`dependsOn`) and proves for this spec what it does not want.
    pub(crate) fn waiting_commit(&self, generation: i64) -> Option<&Loaded> {
        let newest = self.remote.loaded.as_deref().filter(|_| self.dependencies.waiting)?;
        // A commit that was read for another spec may be long out of date.
        let answered = self.remote.generation == generation && self.remote.source_error.is_none();
        (answered && !newest.catalog.has_errors()).then_some(newest)
    }

    /// Takes in the result of a poll, as far as it changes what is planned and reported.
    pub(crate) fn note_poll(&mut self, result: PollResult) {
        let PollResult { trigger, began, changed, recalled } = result;
        self.reports.trigger = trigger;
        self.reports.started = Some(began);
        if changed {
            self.plans.attempts = 0;
        }
        // After a poll, refused writes are tried again: a policy or a CRD may have changed.
        if trigger != Trigger::Sibling {
            self.plans.refused.clear();
        }
        if trigger == Trigger::Request {
            self.plans.contention.forget();
        }
        self.dependencies.recalled = recalled.or(self.dependencies.recalled.take());
    }
}
