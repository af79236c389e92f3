//! Contention: another writer changes or deletes an object again and again. After three reverts within a minute, each further
//! revert waits longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::ObjectId;
use crate::sync::commit::desired::DesiredSet;
use crate::sync::plan::Plan;

/// How many reverts within [`CONTENTION_WINDOW`] count as contention.
const CONTENTION_REVERTS: usize = 3;
/// The time in which the reverts are counted. Also the shortest pause.
const CONTENTION_WINDOW: Duration = Duration::from_secs(60);
/// The longest pause between two reverts.
const MAX_REVERT_PAUSE: Duration = Duration::from_secs(15 * 60);

/// The reverts of one object.
#[derive(Debug, Default)]
struct Reverts {
    /// The applied hash of the definition. Another definition starts from nothing.
    applied: String,
    /// When the last reverts were, oldest first; at most [`CONTENTION_REVERTS`].
    times: Vec<Instant>,
    /// The changed fields and the writers, for the message.
    who: String,
    /// How long the next revert waits after the last one.
    pause: Duration,
}

impl Reverts {
    /// When the next revert may be. `None` without contention.
    fn until(&self) -> Option<Instant> {
        let (first, last) = (self.times.first()?, self.times.last()?);
        let frequent = self.times.len() >= CONTENTION_REVERTS
            && last.duration_since(*first) <= CONTENTION_WINDOW;
        let contended = frequent || self.pause > Duration::ZERO;
        contended.then(|| *last + self.pause.max(CONTENTION_WINDOW))
    }
}

/// The objects of a GitSync that were reverted lately.
#[derive(Debug, Default)]
pub struct Contention(HashMap<ObjectId, Reverts>);

/// An object whose revert waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contended {
    /// The object.
    pub id: ObjectId,
    /// The changed fields and the writers, for the message.
    pub who: String,
    /// The time until the next revert.
    pub wait: Duration,
}

impl Contention {
    /// Removes the reverts from a plan that have to wait: of manual changes, and of deletes by others.
    pub fn hold(&mut self, plan: &mut Plan, desired: &DesiredSet, now: Instant) -> Vec<Contended> {
        // After two pauses without a revert the contention is over.
        self.0.retain(|_, reverts| {
            let quiet = reverts.pause.max(CONTENTION_WINDOW) * 2;
            reverts.times.last().is_some_and(|last| now.duration_since(*last) < quiet)
        });
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut contended = Vec::new();
        let mut may_revert = |id: &ObjectId| {
            // A write of another definition is no revert.
            let same =
                |reverts: &&Reverts| desired.get(id).is_some_and(|w| w.applied == reverts.applied);
            let reverts = self.0.get(id).filter(same);
            let until = reverts.and_then(Reverts::until).filter(|until| *until > now);
            if let (Some(reverts), Some(until)) = (reverts, until) {
                let wait = until.duration_since(now);
                contended.push(Contended { id: id.clone(), who: reverts.who.clone(), wait });
            }
            until.is_none()
        };
        plan.update.retain(|update| !update.drifted || may_revert(&update.id));
        plan.create.retain(|id| may_revert(id));
        contended
    }

    /// Records that an object was reverted.
    pub fn reverted(&mut self, id: &ObjectId, applied: &str, who: String, now: Instant) {
        let reverts = self.0.entry(id.clone()).or_default();
        if reverts.applied != applied {
            *reverts = Reverts { applied: applied.to_owned(), ..Reverts::default() };
        }
        if reverts.until().is_some() {
            reverts.pause = (reverts.pause.max(CONTENTION_WINDOW) * 2).min(MAX_REVERT_PAUSE);
        }
        reverts.times.push(now);
        if reverts.times.len() > CONTENTION_REVERTS {
            reverts.times.remove(0);
        }
        reverts.who = who;
    }

    /// (tests) The objects with reverts.
    #[cfg(test)]
    pub fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.0.keys()
    }

    /// Forgets all reverts, because a user requests a sync. The next plan reverts at once.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
#[path = "tests/contention.rs"]
mod tests;
