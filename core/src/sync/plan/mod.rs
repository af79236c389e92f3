//! The plan: compares the desired set with the live objects, and says what to create, update, delete and hold.
//!
//! A plan is a pure function: the same inputs give the same plan.

mod actions;
pub mod approvals;
pub mod brake;
mod compare;
pub mod dirty;
mod inputs;
mod owner;
mod quarantine;
pub mod references;
pub mod refresh;
pub mod work_index;

pub use actions::{Cause, Conflict, Held, Plan, Update, Victim};
pub use compare::{Claim, Settled, Settling, claim};
pub use inputs::{Inputs, Others, Rival, Unproven};

use std::collections::HashSet;

use crate::api::git_sync::FailurePolicy;
use crate::api::{ObjectId, keys};
use crate::cluster::live::Live;
use crate::sync::commit::desired::Desired;
use crate::sync::live_namespace::is_paused;
use crate::sync::plan::actions::Origin;
use crate::sync::plan::compare::{annotation, is_equal};
use crate::sync::plan::owner::{Owner, is_drift, owner};

/// Makes the plan. Pure: the same inputs give the same plan.
#[must_use]
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let equal = inputs.index.equal();
    let mut plan = Plan { unchanged: equal, marked: equal, ..Plan::default() };
    let mut victims = Vec::new();
    let mut strangers = None;
    for id in inputs.index.open() {
        let strangers = || *strangers.get_or_insert_with(|| quarantine::has_strangers(inputs));
        let (want, kept) = match inputs.desired.get(id) {
            Some(want) if want.kept.is_some() => (None, Some(want)),
            want => (want, None),
        };
        match (want, inputs.live.get(id)) {
            (Some(want), live) => bring(&mut plan, id, want, live.as_ref(), inputs),
            (None, Some(live)) => {
                victims.extend(leave(&mut plan, (id, kept), &live, inputs, strangers));
            }
            (None, None) => {
                // Without a kept definition the object has disappeared since the index was updated.
                if let Some(kept) = kept {
                    quarantine::revive(&mut plan, id, kept, inputs, strangers);
                }
            }
        }
    }
    for (id, rival) in inputs.others.contested() {
        contest(&mut plan, &id, rival, inputs);
    }
    if !plan.given.is_empty() {
        let given: HashSet<_> = plan.given.iter().map(|(id, _)| id.clone()).collect();
        plan.update.retain(|update| !given.contains(&update.id));
    }
    // Comes after all conflicts are known.
    let faulty = inputs.has_errors || !plan.conflicts.is_empty();
    if inputs.failure_policy == FailurePolicy::Atomic && faulty {
        plan.wait();
    }
    if inputs.approved.is_some() || inputs.pending.is_some() {
        plan.left = brake::left(inputs.sync, inputs.desired, inputs.live, inputs.index);
    }
    plan.due = victims.len();
    if inputs.prune.enabled {
        brake::hold(&mut plan, victims, inputs);
    }
    plan
}

/// Plans an object that the commit wants.
fn bring(
    plan: &mut Plan,
    id: &ObjectId,
    desired: &Desired,
    live: Option<&Live>,
    inputs: &Inputs<'_>,
) {
    let Some(live) = live else {
        plan.create.push(id.clone());
        return;
    };
    let adopted = match owner(live, id, inputs) {
        Owner::Ours => false,
        Owner::Vanished | Owner::HandedOver => true,
        Owner::Other(owner, peer) => {
            plan.conflicts.push(Conflict { id: id.clone(), owner, peer });
            return;
        }
    };
    if !adopted {
        plan.marked += 1;
    }
    if live.facts().deleting {
        plan.terminating.push(id.clone());
    } else if is_paused(live) {
        plan.paused.push(id.clone());
    } else if !adopted && is_equal(desired, live, inputs.settled, id) {
        plan.unchanged += 1;
    } else {
        let origin = if adopted {
            Origin::Adopted
        } else if is_drift(id, desired, live, inputs) {
            Origin::Drifted
        } else {
            Origin::Changed
        };
        plan.change(id, live, inputs.drift, origin);
    }
}

/// Plans an object that another GitSync wants, too. The older GitSync keeps it.
fn contest(plan: &mut Plan, id: &ObjectId, rival: Rival, inputs: &Inputs<'_>) {
    let Some(live) = inputs.live.get(id) else { return };
    let Rival { name, older } = rival;
    let wanted = inputs.desired.get(id).is_some_and(|want| want.kept.is_none());
    if !wanted || !matches!(owner(&live, id, inputs), Owner::Ours) {
        // The owner reports it, or it is among the conflicts already.
        return;
    }
    if older {
        let owner = format!("GitSync {}/{name}, which is older", inputs.sync.namespace);
        plan.given.push((id.clone(), name.clone()));
        plan.conflicts.push(Conflict { id: id.clone(), owner, peer: Some(name) });
    } else {
        plan.contested.push((id.clone(), name));
    }
}

/// Plans a live object that the commit does not want. Returns it if it is to be deleted.
fn leave(
    plan: &mut Plan,
    (id, kept): (&ObjectId, Option<&Desired>),
    live: &Live,
    inputs: &Inputs<'_>,
    strangers: impl FnOnce() -> bool,
) -> Option<Victim> {
    match owner(live, id, inputs) {
        Owner::Ours => {}
        Owner::Vanished => {
            plan.orphans.push(id.clone());
            return None;
        }
        Owner::HandedOver | Owner::Other(..) => return None,
    }
    plan.marked += 1;
    let protected = annotation(live, keys::PRUNE) == Some(keys::DISABLED);
    let victim = || Victim { id: id.clone(), uid: live.uid().to_owned(), version: live.version() };
    if live.facts().deleting {
        plan.going += 1;
        if inputs.prune.enabled && !protected && !is_paused(live) {
            plan.ending.push(victim());
        }
        return None;
    }
    if let Some(file) = quarantine::broken_file(id, Some(live), inputs, strangers) {
        plan.quarantined.push((id.clone(), file));
        if let Some(want) = kept {
            quarantine::keep(plan, id, want, live, inputs);
        }
    } else if is_paused(live) {
        plan.paused.push(id.clone());
    } else if let Some(other) = inputs.others.wanted_by(id) {
        // A commit with errors hands nothing over. The object stays, even if its delete is approved.
        if !inputs.has_errors {
            plan.given.push((id.clone(), other));
        }
    } else if protected {
        plan.protected.push(id.clone());
    } else {
        return Some(victim());
    }
    None
}

#[cfg(test)]
mod tests;
