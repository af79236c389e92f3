//! Resuming a plan that did not finish in time: the next plan of the same commit goes on where it stopped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::ObjectId;
use crate::sync::apply::outcome::Outcome;

/// How long the result of a dry run counts. Later a policy or a quota may have changed.
const ACCEPTED_FOR: Duration = Duration::from_secs(120);

/// What is known of unfinished plans. Empty after a plan that finished.
#[derive(Debug, Default)]
pub struct Resume {
    /// The number of unfinished plans in a row.
    unfinished: u32,
    /// The commit of the last one, and when it stopped.
    last: Option<(String, Instant)>,
    /// The last unfinished plan that tried an object without success, by its number. Such objects come after all that were not
    /// tried, those that failed longest ago first. So an object that always fails does not keep others from being tried.
    failed: HashMap<ObjectId, u32>,
    /// Objects that passed the dry run (`failurePolicy: Atomic`), with the applied hash of the content.
    accepted: HashMap<ObjectId, String>,
}

impl Resume {
    fn last_failure(&self, id: &ObjectId) -> u32 {
        self.failed.get(id).copied().unwrap_or_default()
    }

    /// Sorts work so that objects which were not tried yet come first. Otherwise the order stays.
    pub fn order<T>(&self, work: &mut [T], id: impl Fn(&T) -> &ObjectId) {
        work.sort_by_key(|one| self.last_failure(id(one)));
    }

    /// Whether two objects that are next to each other in the order may be written at the same time.
    #[must_use]
    pub fn together(&self, one: &ObjectId, other: &ObjectId) -> bool {
        one.kind == other.kind && self.last_failure(one) == self.last_failure(other)
    }

    /// Whether this content passed the dry run.
    #[must_use]
    pub fn is_accepted(&self, id: &ObjectId, applied: &str) -> bool {
        self.accepted.get(id).is_some_and(|accepted| accepted == applied)
    }

    /// Records that this content passed the dry run.
    pub fn accept(&mut self, id: ObjectId, applied: String) {
        self.accepted.insert(id, applied);
    }

    /// (tests) Whether nothing is known.
    #[cfg(test)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.accepted.is_empty()
    }

    /// Begins a plan for this commit. What is known of earlier plans counts only if the last one was for the same commit, and
    /// stopped a short time ago.
    pub fn begin(&mut self, commit: &str, now: Instant) {
        let resumes = self.last.as_ref().is_some_and(|(last, stopped)| {
            last == commit && now.saturating_duration_since(*stopped) < ACCEPTED_FOR
        });
        if !resumes {
            *self = Self::default();
        }
    }

    /// Ends a plan for this commit.
    pub fn end(&mut self, outcome: &Outcome, commit: &str, now: Instant) {
        if outcome.unstarted == 0 {
            *self = Self::default();
            return;
        }
        self.unfinished = self.unfinished.saturating_add(1);
        self.last = Some((commit.to_owned(), now));
        for id in outcome.failures.keys().chain(outcome.undeleted.keys()) {
            self.failed.insert(id.clone(), self.unfinished);
        }
    }
}
