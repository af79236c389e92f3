//! What a plan became, as far as people are to see it.

use std::collections::BTreeMap;

use crate::api::Kind;
use crate::api::git_sync::{PendingPrune, Problem, Stages};
use crate::sync::apply::Outcome;
use crate::sync::plan::Plan;
use crate::sync::plan::work_index::Count;
use crate::sync::status::Approved;
use crate::sync::status::verdict::Remaining;

/// What a plan became.
pub(crate) struct PlanResult {
    pub plan: Plan,
    /// Whether it is the plan of a commit that was applied once, and says nothing about deletes.
    pub recalled: bool,
    /// The deletes that are held now, and what was held for this commit before.
    pub pending: Option<PendingPrune>,
    pub outcome: Outcome,
    /// Writes that the server refused before and that were not sent again.
    pub blocked: usize,
    pub carried: Remaining,
    pub approved: Option<Approved>,
    /// The approval that the GitSync carries, once it was acted on.
    pub handled: Option<String>,
    /// The same, if it is clear only now that it releases nothing.
    pub outdated: Option<String>,
    pub problems: Vec<Problem>,
    pub stages: Stages,
    /// Objects with our mark after the writes.
    pub counts: BTreeMap<Kind, Count>,
}

impl PlanResult {
    /// How many objects were written or deleted.
    pub fn writes(&self) -> usize {
        self.outcome.created + self.outcome.updated + self.outcome.pruned
    }
}
