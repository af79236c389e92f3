//! What the engine keeps of a GitSync between two reconciles. All of it can be made anew.

use std::time::Instant;

use crate::api::git_sync::PendingPrune;
use crate::sync::apply::memory::PlanMemory;
use crate::sync::commit::loaded::Loaded;
use crate::sync::order::Seq;
use crate::sync::peers::bar::Freshness;
use crate::sync::peers::dependencies::DependencyState;
use crate::sync::poll::Learned;
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::Trigger;
use crate::sync::status::history::ReportMemory;

/// How far the end of a GitSync has come.
#[derive(Default)]
pub struct DeletionState {
    /// Since when it is known to be deleted.
    pub ended: Option<Seq>,
    /// Since when nothing but what others keep is left of it.
    pub parting: Option<Instant>,
    /// How many objects were deleted because of that.
    pub parted: usize,
}

/// See the module. Each part is of one step.
pub struct SyncState {
    /// UID of the GitSync: one of the same name made anew starts from nothing.
    pub uid: String,
    /// The look at the remote.
    pub remote: Remote,
    /// What others must have looked after.
    pub bar: Freshness,
    /// Waiting for other GitSyncs.
    pub waits: DependencyState,
    /// Planning and writing.
    pub plans: PlanMemory,
    /// The deletes that are held and shown; `None` before that is known from the status.
    #[allow(clippy::option_option)] // said in the line above
    pub latch: Option<Option<PendingPrune>>,
    /// Digest of the approval that was seen to be taken back last.
    pub unapproved: Option<String>,
    /// The end of the GitSync.
    pub end: DeletionState,
    /// The status.
    pub telling: ReportMemory,
}

impl SyncState {
    /// Nothing known yet.
    #[must_use]
    pub fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            remote: Remote::default(),
            bar: Freshness::default(),
            waits: DependencyState::default(),
            plans: PlanMemory::default(),
            latch: None,
            unapproved: None,
            end: DeletionState::default(),
            telling: ReportMemory::default(),
        }
    }
    /// The newest commit, if it waits for other GitSyncs (`dependsOn`) and proves what it does not want for this spec.
    pub(crate) fn waiting_commit(&self, generation: i64) -> Option<&Loaded> {
        let newest = self.remote.loaded.as_deref().filter(|_| self.waits.waiting)?;
        // What was found for another spec may be long out of date.
        let answered = self.remote.generation == generation && self.remote.source_error.is_none();
        (answered && !newest.catalog.has_errors()).then_some(newest)
    }

    /// Takes in what the remote has answered, as far as it changes what is planned and what is said.
    pub(crate) fn learn(&mut self, learned: Learned) {
        let Learned { trigger, began, changed, recalled } = learned;
        self.telling.trigger = trigger;
        self.telling.started = Some(began);
        if changed {
            self.plans.attempts = 0;
        }
        // A new poll is also a new try of what the server refused: a policy or a CRD may have changed.
        if trigger != Trigger::Sibling {
            self.plans.refused.clear();
        }
        if trigger == Trigger::Request {
            self.plans.contention.forget();
        }
        self.waits.recalled = recalled.or(self.waits.recalled.take());
    }
}
