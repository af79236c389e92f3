//! (pure) Desired set against live objects: create, update, unchanged, prune, hold, conflict.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};

use super::desired::{Desired, DesiredSet, SyncRef, hex};
use crate::api::git_sync::{ApprovedPrune, Prune};
use crate::api::{Mark, ObjectId, keys};
use crate::cluster::live::Live;

/// Live objects of our kinds in the namespace of the sync, ours or not.
pub type LiveSet = BTreeMap<ObjectId, Live>;

/// Objects whose apply changed nothing although they looked different: version and `applied` hash at that time.
pub type Settled = HashMap<ObjectId, (u64, String)>;

/// Everything that a plan depends on.
pub struct Inputs<'a> {
    /// For whom.
    pub sync: &'a SyncRef,
    /// What the desired set was made from: commit and spec.
    pub input_key: &'a str,
    /// What the commit wants.
    pub desired: &'a DesiredSet,
    /// What there is.
    pub live: &'a LiveSet,
    /// Whether the commit has any error: then nothing proves absence.
    pub has_errors: bool,
    /// Identities known to be broken, with their file.
    pub broken: &'a BTreeMap<ObjectId, String>,
    /// Files of which something could not be identified.
    pub broken_paths: &'a BTreeSet<String>,
    /// Pruning rules.
    pub prune: &'a Prune,
    /// Value of `convoke.dev/approve-prune`.
    pub approval: Option<&'a str>,
    /// The approval that is being carried out.
    pub approved: Option<&'a ApprovedPrune>,
    /// Whether a GitSync of that namespace, name and uid exists.
    pub sync_exists: &'a dyn Fn(&str, &str, &str) -> bool,
    /// See [`Settled`].
    pub settled: &'a Settled,
}

/// An object to delete, as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// Which object.
    pub id: ObjectId,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub version: u64,
}

/// Deletes that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Names exactly this plan; to be given to `convoke.dev/approve-prune`.
    pub digest: String,
    /// Why, for people.
    pub reason: String,
    /// What would go.
    pub victims: Vec<Victim>,
}

/// A wanted object that exists and is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Which object.
    pub id: ObjectId,
    /// Who has it, for people.
    pub owner: String,
}

/// An object to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Which object.
    pub id: ObjectId,
    /// Its uid.
    pub uid: String,
    /// Its version before.
    pub version: u64,
    /// Whether it comes from a vanished GitSync or from a person (`adopt-by`).
    pub adopted: bool,
}

/// What to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Objects that do not exist, in apply order.
    pub create: Vec<ObjectId>,
    /// Objects that differ, in apply order.
    pub update: Vec<Update>,
    /// How many are as they should be.
    pub unchanged: usize,
    /// Wanted objects that are being deleted by somebody: wait for their end.
    pub terminating: Vec<ObjectId>,
    /// Objects to delete, in reverse apply order.
    pub prune: Vec<Victim>,
    /// Deletes that wait for an approval, or for a commit without errors.
    pub held: Option<Held>,
    /// Whether an approval released `prune`: it is remembered until done.
    pub released: Option<ApprovedPrune>,
    /// Wanted objects of others.
    pub conflicts: Vec<Conflict>,
    /// Ours, kept at their last good state because their file is broken: object and file.
    pub quarantined: Vec<(ObjectId, Option<String>)>,
    /// Marked by a vanished GitSync of the same name, and not wanted.
    pub orphans: Vec<ObjectId>,
    /// How many live objects carry our mark.
    pub marked: usize,
}

impl Plan {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.prune.is_empty()
    }
}

/// To whom a live object belongs.
enum Owner {
    /// This sync.
    Ours,
    /// A vanished sync of the same name.
    Vanished,
    /// Nobody, and a person handed it over to this sync.
    HandedOver,
    /// Somebody else, described for people.
    Other(String),
}

fn owner(
    live: &Live,
    id: &ObjectId,
    sync: &SyncRef,
    sync_exists: &dyn Fn(&str, &str, &str) -> bool,
) -> Owner {
    let mark = live
        .annotation(keys::OWNER)
        .and_then(Mark::parse)
        .filter(|mark| mark.names(id.kind, &sync.namespace, &id.name));
    let handed_over = live.annotation(keys::ADOPT_BY) == Some(sync.name.as_str());
    match mark {
        Some(mark) if mark.sync_uid == sync.uid => Owner::Ours,
        Some(mark) if mark.sync_namespace == sync.namespace && mark.sync_name == sync.name => {
            Owner::Vanished
        }
        Some(mark) if sync_exists(&mark.sync_namespace, &mark.sync_name, &mark.sync_uid) => {
            Owner::Other(format!("GitSync {}/{}", mark.sync_namespace, mark.sync_name))
        }
        _ if handed_over => Owner::HandedOver,
        Some(mark) => {
            Owner::Other(format!("the vanished GitSync {}/{}", mark.sync_namespace, mark.sync_name))
        }
        None => Owner::Other("somebody else (it carries no valid mark)".into()),
    }
}

/// Whether a live object is as Git wants it.
fn is_equal(desired: &Desired, live: &Live, settled: &Settled, id: &ObjectId) -> bool {
    if live.annotation(keys::APPLIED) == Some(desired.applied.as_str())
        && live.spec_hash == Some(desired.spec_hash)
        && contains(live.meta.labels.as_ref(), &desired.definition.labels)
        && contains(live.meta.annotations.as_ref(), &desired.definition.annotations)
    {
        return true;
    }
    settled
        .get(id)
        .is_some_and(|(version, applied)| *version == live.version && *applied == desired.applied)
}

fn contains(have: Option<&BTreeMap<String, String>>, want: &BTreeMap<String, String>) -> bool {
    want.iter().all(|(key, value)| have.and_then(|have| have.get(key)) == Some(value))
}

/// Makes the plan. Pure: the same inputs give the same plan.
#[must_use]
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut victims = Vec::new();

    for (id, desired) in inputs.desired {
        let Some(live) = inputs.live.get(id) else {
            plan.create.push(id.clone());
            continue;
        };
        let adopted = match owner(live, id, inputs.sync, inputs.sync_exists) {
            Owner::Ours => false,
            Owner::Vanished | Owner::HandedOver => true,
            Owner::Other(owner) => {
                plan.conflicts.push(Conflict { id: id.clone(), owner });
                continue;
            }
        };
        if !adopted {
            plan.marked += 1;
        }
        if live.meta.deletion_timestamp.is_some() {
            plan.terminating.push(id.clone());
        } else if !adopted && is_equal(desired, live, inputs.settled, id) {
            plan.unchanged += 1;
        } else {
            plan.update.push(Update {
                id: id.clone(),
                uid: live.uid.clone(),
                version: live.version,
                adopted,
            });
        }
    }

    for (id, live) in inputs.live {
        if inputs.desired.contains_key(id) {
            continue;
        }
        match owner(live, id, inputs.sync, inputs.sync_exists) {
            Owner::Ours => {}
            Owner::Vanished => {
                plan.orphans.push(id.clone());
                continue;
            }
            Owner::HandedOver | Owner::Other(_) => continue,
        }
        plan.marked += 1;
        if live.meta.deletion_timestamp.is_some() {
            continue;
        }
        let file = inputs
            .broken
            .get(id)
            .map(String::as_str)
            .or_else(|| live.source_path().filter(|path| inputs.broken_paths.contains(*path)));
        if let Some(file) = file {
            plan.quarantined.push((id.clone(), Some(file.to_owned())));
        } else if live.annotation(keys::PRUNE) != Some("disabled") {
            victims.push(Victim { id: id.clone(), uid: live.uid.clone(), version: live.version });
        }
    }

    if inputs.prune.enabled && !victims.is_empty() {
        brake(&mut plan, victims, inputs);
    }
    plan
}

/// Decides whether the victims go now or wait.
fn brake(plan: &mut Plan, mut victims: Vec<Victim>, inputs: &Inputs<'_>) {
    let count = victims.len();
    let limit = limit(&inputs.prune.max_deletions, plan.marked);
    let reason = if inputs.has_errors || !plan.conflicts.is_empty() {
        Some(
            "the commit has errors, so nothing proves that these objects are really gone"
                .to_owned(),
        )
    } else if count == plan.marked {
        Some(format!("all {count} objects of this sync would be deleted"))
    } else if count > limit {
        Some(format!(
            "{count} of {} objects would be deleted, more than the allowed {limit}",
            plan.marked
        ))
    } else {
        None
    };
    // Deletes run in reverse apply order: first what refers, then what is referred to.
    victims.sort_by(|a, b| b.id.cmp(&a.id));
    let Some(reason) = reason else {
        plan.prune = victims;
        return;
    };
    let digest = digest(inputs.sync, inputs.input_key, &victims);
    let approved = inputs.approved.filter(|a| a.input_key == inputs.input_key);
    if let Some(approved) = approved {
        // The desired set is the same as when it was approved, so what is left is part of what was approved.
        plan.released = Some(approved.clone());
        plan.prune = victims;
    } else if inputs.approval == Some(digest.as_str()) {
        plan.released = Some(ApprovedPrune { digest, input_key: inputs.input_key.to_owned() });
        plan.prune = victims;
    } else {
        plan.held = Some(Held { digest, reason, victims });
    }
}

/// How many deletes pass without an approval.
fn limit(max: &IntOrString, marked: usize) -> usize {
    match max {
        IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
        IntOrString::String(text) => {
            match text.strip_suffix('%').and_then(|n| n.parse::<usize>().ok()) {
                Some(0) | None => 0,
                Some(percent) => (marked.saturating_mul(percent) / 100).max(1),
            }
        }
    }
}

/// Names a set of deletes: sync, generation, input, and each object with its uid.
fn digest(sync: &SyncRef, input_key: &str, victims: &[Victim]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{}\n{}\n{input_key}\n", sync.uid, sync.generation));
    let mut sorted: Vec<_> = victims.iter().collect();
    sorted.sort();
    for victim in sorted {
        hash.update(format!("{} {}\n", victim.id, victim.uid));
    }
    hex(&hash.finalize()[..8])
}

#[cfg(test)]
mod tests;
