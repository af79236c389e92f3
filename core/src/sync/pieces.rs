//! What is known of a plan that took too long, so that the next one goes on where it ended.

use std::collections::HashMap;

use super::apply::Outcome;
use crate::api::ObjectId;

/// See the module. Empty unless the last plan was cut short.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Plans that were cut short, in a row.
    cut: u32,
    /// Which of them tried an object last, without success. Those come after all that were not tried, and the one that
    /// waited longest before the others: whatever fails for ever keeps nothing from being tried.
    failed: HashMap<ObjectId, u32>,
    /// What the server would accept (`failurePolicy: Atomic`): hash of the content.
    accepted: HashMap<ObjectId, String>,
}

impl Pieces {
    fn turn(&self, id: &ObjectId) -> u32 {
        self.failed.get(id).copied().unwrap_or_default()
    }

    /// Puts first what was not tried yet. Otherwise the order stays.
    pub fn order<T>(&self, work: &mut [T], id: impl Fn(&T) -> &ObjectId) {
        work.sort_by_key(|one| self.turn(id(one)));
    }

    /// Whether both may be written at the same time, if one stands beside the other.
    #[must_use]
    pub fn together(&self, one: &ObjectId, other: &ObjectId) -> bool {
        one.kind == other.kind && self.turn(one) == self.turn(other)
    }

    /// Whether the server was asked already and would accept this content.
    #[must_use]
    pub fn is_accepted(&self, id: &ObjectId, applied: &str) -> bool {
        self.accepted.get(id).is_some_and(|accepted| accepted == applied)
    }

    /// The server would accept this content.
    pub fn accept(&mut self, id: ObjectId, applied: String) {
        self.accepted.insert(id, applied);
    }

    /// Whether nothing is known, for tests.
    #[cfg(test)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.accepted.is_empty()
    }

    /// A plan begins. What one knew that was given up in the middle says nothing.
    pub fn begin(&mut self) {
        if self.cut == 0 {
            *self = Self::default();
        }
    }

    /// A plan was carried out, or cut short.
    pub fn end(&mut self, outcome: &Outcome) {
        if outcome.left == 0 {
            *self = Self::default();
            return;
        }
        self.cut = self.cut.saturating_add(1);
        for id in outcome.failures.keys().chain(outcome.undeleted.keys()) {
            self.failed.insert(id.clone(), self.cut);
        }
    }
}
