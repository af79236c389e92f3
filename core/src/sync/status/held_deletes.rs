//! What a status says of deletes that are held or approved: the condition `PruneHeld`, `pendingPrune` and
//! `approvedPrune`.

use jiff::Timestamp;

use crate::api::git_sync::{ApprovedPrune, GitSyncStatus, PendingPrune};
use crate::cluster::conditions;
use crate::sync::commit::desired::is_of_other_spec;
use crate::sync::plan::brake::{TAKEN_BACK, taken_back};
use crate::sync::plan::{Cause, Held};
use crate::sync::status::report::Approved;
use crate::sync::status::verdict::{approved_message, held_message};

/// The condition that says that deletes are held.
pub(super) const PRUNE_HELD: &str = "PruneHeld";

/// What a status is to say of the deletes of a plan.
pub struct Deletes<'a> {
    /// The deletes that are held.
    pub held: Option<&'a Held>,
    /// The held deletes as the status keeps them.
    pub pending: Option<PendingPrune>,
    /// The deletes that are approved, while some of their objects are there.
    pub approved: Option<Approved>,
}

impl Deletes<'_> {
    /// Writes the deletes into the status.
    pub fn write_into(self, status: &mut GitSyncStatus, generation: i64, now: Timestamp) {
        let due = self.approved.as_ref().filter(|approved| approved.is_due);
        let approved = due.map(|approved| approved_message(&approved.prune));
        let shown = match self.held {
            Some(held) => {
                let brake = held.cause == Cause::Brake;
                let reason = if brake { "ApprovalNeeded" } else { "NotProven" };
                let all: Vec<_> = [held_message(held)].into_iter().chain(approved).collect();
                Some((reason, all.join("; also, ")))
            }
            None => approved.map(|message| ("Approved", message)),
        };
        if let Some((reason, message)) = shown {
            set_prune_held(status, (reason, &message), generation, now);
        } else {
            conditions::remove(&mut status.conditions, PRUNE_HELD);
        }
        let shown = self.pending.as_ref().filter(|pending| !pending.digest.is_empty());
        if let Some(shown) = shown {
            status.last_prune_digest = Some(shown.digest.clone());
        }
        status.pending_prune = self.pending;
        status.approved_prune = self.approved.map(|approved| approved.prune);
    }
}

fn set_prune_held(
    status: &mut GitSyncStatus,
    (reason, message): (&str, &str),
    generation: i64,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    conditions::Observed { generation, now }.set(conditions, PRUNE_HELD, "True", reason, message);
}

/// The status of a GitSync whose approval was taken back.
#[must_use]
pub fn without_approval(
    mut status: GitSyncStatus,
    approved: &ApprovedPrune,
    generation: i64,
    now: Timestamp,
) -> GitSyncStatus {
    status.approved_prune = None;
    if is_of_other_spec(&approved.input_key, generation) {
        // The approval was of an earlier spec and released nothing any more. The deletes that were held with it go, too.
        let held = status.pending_prune.as_ref();
        if held.is_some_and(|held| held.input_key == approved.input_key) {
            status.pending_prune = None;
        }
        status.conditions.retain(|held| {
            held.type_ != PRUNE_HELD || held.observed_generation == Some(generation)
        });
        return status;
    }
    let handled = status.last_handled_approval.as_deref();
    let pending = taken_back(status.pending_prune.as_ref(), approved, handled);
    if pending.input_key == approved.input_key {
        let PendingPrune { digest, count, reason, .. } = &pending;
        let others = format!(
            "an approval was taken back; {count} delete(s) are held with the digest {digest}: {reason}"
        );
        let message = if digest.is_empty() { TAKEN_BACK } else { &others };
        set_prune_held(&mut status, ("ApprovalNeeded", message), generation, now);
    }
    status.pending_prune = Some(pending);
    status
}
