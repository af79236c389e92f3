//! The outcome of a plan that was carried out.

use std::collections::BTreeMap;

use crate::api::{Kind, ObjectId};
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::write::Mode;
use crate::sync::apply::drift::Drift;
use crate::sync::apply::impersonation::{Attempt, Rejection, Verb};
use crate::sync::plan::Victim;

/// Why one write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// An object of that name was created since the plan was made, and it belongs to somebody else.
    Conflict,
    /// The API server refused the content. The same content is not sent again.
    Refused(Rejection),
    /// The write may succeed later.
    Transient(String),
}

/// What a plan has written, and what it has not.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Objects created.
    pub created: usize,
    /// Objects changed.
    pub updated: usize,
    /// Objects deleted.
    pub pruned: usize,
    /// Deleted objects that still exist, because finalizers keep them.
    pub ending: Vec<Victim>,
    /// Creates and updates that failed.
    pub failures: BTreeMap<ObjectId, Failure>,
    /// Deletes that failed. The next plan has them again.
    pub undeleted: BTreeMap<ObjectId, Rejection>,
    /// Objects that were not written because they have changed since the plan was made.
    pub skipped: usize,
    /// Objects that were created or updated, or that were as wanted already.
    pub written: Vec<ObjectId>,
    /// Manual changes that were reverted.
    pub drifts: Vec<(ObjectId, Drift)>,
    /// With `failurePolicy: Atomic`: nothing was written, because the dry run found a refusal or is not complete.
    pub rehearsed: bool,
    /// The GitSync has changed since the plan was made, so the rest was not written.
    pub stopped: bool,
    /// Writes that were not started before the deadline.
    pub unstarted: usize,
}

/// The failure that an error of a write means. `account` is the one that the write was sent as.
pub(super) fn classify(
    error: &CallError,
    mode: &Mode,
    kind: Kind,
    account: Option<&Account>,
) -> Failure {
    if error.is_conflict() && error.is_about_a_quota() {
        Failure::Transient(error.to_string())
    } else if error.is_conflict() && *mode == Mode::Create {
        Failure::Conflict
    } else if error.is_replaced() {
        // The object was deleted and created again since the plan was made. The next plan sees that.
        Failure::Transient(error.to_string())
    } else {
        let verb = if *mode == Mode::Create { Verb::Create } else { Verb::Patch };
        let rejection = Rejection::of(error, Attempt { account, verb, kind });
        // Any other 403 may pass without a change of the content: a quota, or a namespace that is being deleted.
        if rejection.denial.is_some() || error.is_invalid() || error.is_denied() {
            Failure::Refused(rejection)
        } else {
            Failure::Transient(rejection.words)
        }
    }
}

#[cfg(test)]
#[path = "tests/outcome.rs"]
mod tests;
