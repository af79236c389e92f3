//! What is known of a plan that took too long, so that the next one goes on where it ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::ObjectId;
use crate::sync::apply::Outcome;

/// How long what the server has accepted is believed: a policy or a quota may have changed.
const FRESH: Duration = Duration::from_secs(120);

/// See the module. Empty unless the last plan was cut short or given up in the middle.
#[derive(Debug, Default)]
pub struct Resume {
    /// PlanMemory that were cut short, in a row.
    cut: u32,
    /// The commit of the last one, and when it was cut.
    last: Option<(String, Instant)>,
    /// Which of them tried an object last, without success. Those come after all that were not tried, and the one that
    /// waited longest before the others: whatever fails for ever keeps nothing from being tried.
    failed: HashMap<ObjectId, u32>,
    /// What the server would accept (`failurePolicy: Atomic`): hash of the content.
    accepted: HashMap<ObjectId, String>,
}

impl Resume {
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

    /// A plan for this commit begins. It goes on with what the one before knew if that was for the same commit, and was cut short a
    /// moment ago.
    pub fn begin(&mut self, commit: &str, now: Instant) {
        let goes_on = self.last.as_ref().is_some_and(|(last, cut)| {
            last == commit && now.saturating_duration_since(*cut) < FRESH
        });
        if !goes_on {
            *self = Self::default();
        }
    }

    /// A plan for this commit was carried out, or cut short.
    pub fn end(&mut self, outcome: &Outcome, commit: &str, now: Instant) {
        if outcome.left == 0 {
            *self = Self::default();
            return;
        }
        self.cut = self.cut.saturating_add(1);
        self.last = Some((commit.to_owned(), now));
        for id in outcome.failures.keys().chain(outcome.undeleted.keys()) {
            self.failed.insert(id.clone(), self.cut);
        }
    }
}
