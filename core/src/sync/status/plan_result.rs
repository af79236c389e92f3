//! What applying a plan has led to, as the report needs it.

use std::collections::BTreeMap;

use crate::api::Kind;
use crate::api::git_sync::{PendingPrune, Problem, Stages};
use crate::sync::apply::Outcome;
use crate::sync::plan::Plan;
use crate::sync::plan::work_index::Count;
use crate::sync::status::report::Approved;
use crate::sync::status::verdict::Remaining;

/// A plan and what applying it has led to.
pub(crate) struct PlanResult {
    pub plan: Plan,
    /// Whether this is the plan of a commit that was applied before. Such a plan deletes nothing.
    pub recalled: bool,
    /// The deletes that are held now, and those that were held for this commit before.
    pub pending: Option<PendingPrune>,
    pub outcome: Outcome,
    /// Writes that the API server refused before and that were not sent again.
    pub blocked: usize,
    pub remaining: Remaining,
    pub approved: Option<Approved>,
    /// The approval in the annotation, once it was acted on.
    pub handled: Option<String>,
    /// The approval in the annotation, if this plan is the first to find that it releases nothing.
    pub outdated: Option<String>,
    pub problems: Vec<Problem>,
    pub stages: Stages,
    /// Objects with the mark of this GitSync, counted after the writes.
    pub counts: BTreeMap<Kind, Count>,
}

impl PlanResult {
    /// How many objects were written or deleted.
    pub fn writes(&self) -> usize {
        self.outcome.created + self.outcome.updated + self.outcome.pruned
    }
}
