//! Desired set against live objects: create, update, unchanged, prune, hold, conflict.

pub mod approvals;
pub mod brake;
pub mod dirty;
mod quarantine;
pub mod references;
pub mod refresh;
pub mod work_index;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::api::git_sync::{ApprovedPrune, DriftPolicy, FailurePolicy, PendingPrune, Prune};
use crate::api::{ObjectId, keys};
use crate::cluster::live::{Live, SpecHash};
use crate::sync::commit::desired::{Desired, DesiredSet, SyncRef};
use crate::sync::live_namespace::{Namespace, is_paused, mark};
use crate::sync::plan::work_index::WorkIndex;

/// Objects whose apply changed nothing although they looked different.
pub type Settled = HashMap<ObjectId, Settling>;

/// What an object looked like when an apply of it changed nothing: scaled by an autoscaler, or changed by a webhook
/// on its way. It is as good as it gets until one of the two sides changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settling {
    /// What was applied.
    pub applied: String,
    /// Hash of the live spec.
    pub spec_hash: Option<SpecHash>,
    /// Live version; counts only when the spec could not be hashed.
    pub version: u64,
}

/// Everything that a plan depends on.
pub struct Inputs<'a> {
    /// For whom.
    pub sync: &'a SyncRef,
    /// Commit, path and generation of the spec: for as long as this stays, what was held stays held, and what was approved
    /// approved. Values of variables change nothing of what is wanted but its content.
    pub latch_key: &'a str,
    /// What the commit wants, and what is kept of earlier ones ([`Desired::kept`]).
    pub desired: &'a DesiredSet,
    /// What there is.
    pub live: &'a dyn Namespace,
    /// Which objects are worth a look: all but those that were as wanted when they last changed.
    pub board: &'a WorkIndex,
    /// Whether the commit has any error: then nothing proves absence.
    pub has_errors: bool,
    /// Identities known to be broken, with their file.
    pub broken: &'a BTreeMap<ObjectId, String>,
    /// Files of which something could not be identified.
    pub broken_paths: &'a BTreeSet<String>,
    /// The definition files of the commit; only needed while `broken_paths` is not empty.
    pub paths: &'a BTreeSet<String>,
    /// Where an object was last wanted that is wanted no more, as far as that is known. An object may have moved
    /// since it was written: its own annotation names the file of its last change.
    pub last_paths: &'a BTreeMap<ObjectId, String>,
    /// Whether the commit has errors, and what was wanted before it is not known: then nothing proves that an object is not
    /// in a broken file.
    pub lost: bool,
    /// Pruning rules.
    pub prune: &'a Prune,
    /// What becomes of changes by hand.
    pub drift: DriftPolicy,
    /// What an error means for the rest.
    pub failure_policy: FailurePolicy,
    /// Value of `convoke.dev/approve-prune`.
    pub approval: Option<&'a str>,
    /// The approval that was acted on last.
    pub handled: Option<&'a str>,
    /// The digest of held deletes that was shown last, for whatever commit.
    pub last_digest: Option<&'a str>,
    /// The approval that is being carried out.
    pub approved: Option<&'a ApprovedPrune>,
    /// The deletes that were held last, and are shown.
    pub pending: Option<&'a PendingPrune>,
    /// What cannot be read, and may need what this commit does not want.
    pub unproven: &'a Unproven,
    /// How many objects there were when no delete was due, where that is known: what this commit creates must not let
    /// through what it deletes.
    pub prune_base: Option<usize>,
    /// The other GitSyncs.
    pub others: &'a dyn Others,
    /// See [`Settled`].
    pub settled: &'a Settled,
}

/// Another GitSync of the namespace that wants the same object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// Its name.
    pub name: String,
    /// Whether it is the older of the two: then the object is its.
    pub older: bool,
}

/// What a plan must know of the other GitSyncs.
pub trait Others {
    /// Whether a GitSync of that namespace, name and uid exists.
    fn exists(&self, namespace: &str, name: &str, uid: &str) -> bool;
    /// The name of another GitSync of this namespace that wants the object.
    fn wanted_by(&self, id: &ObjectId) -> Option<String>;
    /// Whether the GitSync of that name in this namespace gives the object to the one that is planned.
    fn gives(&self, name: &str, id: &ObjectId) -> bool;
    /// The objects that both the planned one and another one want, each with its oldest rival.
    fn contested(&self) -> BTreeMap<ObjectId, Rival> {
        BTreeMap::new()
    }
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

/// Why an absence from a commit proves nothing although the commit is good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unproven {
    /// The GitSyncs and kinds that cannot be read, sorted.
    pub unread: Vec<String>,
    /// The same for people; empty when all can be read.
    pub reason: String,
}

/// Why deletes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// They are too many, or were when they were held first: only an approval, another commit or another spec releases them.
    Brake,
    /// The commit has an error, or a conflict.
    Errors,
    /// Another GitSync or a kind cannot be read.
    Unproven,
}

/// Deletes that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Names the objects; to be given to `convoke.dev/approve-prune`.
    pub digest: String,
    /// Why.
    pub cause: Cause,
    /// The same for people.
    pub reason: String,
    /// What releases exactly these, for a shell.
    pub command: String,
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
    /// The GitSync of this namespace that has it.
    pub peer: Option<String>,
}

/// What an object says of whose it is and to whom it is to be handed over.
pub type Claim = [Option<String>; 2];

/// What a live object says of that.
#[must_use]
pub fn claim(live: &Live) -> Claim {
    [keys::OWNER, keys::ADOPT_BY].map(|key| annotation(live, key).map(str::to_owned))
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
    /// What it says of whose it is, if it is adopted.
    pub claim: Claim,
    /// Whether it was applied as it is wanted, and somebody changed it since.
    pub drifted: bool,
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
    /// The same before others are asked whether they want some of them: it is not shown yet.
    pub unheard: Option<Held>,
    /// What somebody has approved: it is remembered until that is gone, whether or not it goes now.
    pub released: Option<ApprovedPrune>,
    /// See [`brake::left`]; known when something is held or approved.
    pub left: BTreeSet<String>,
    /// Wanted objects of others.
    pub conflicts: Vec<Conflict>,
    /// Ours, and wanted by a younger GitSync of the namespace, too, by name.
    pub contested: Vec<(ObjectId, String)>,
    /// Ours, not wanted, and wanted by another GitSync of the namespace: left to it, by name.
    pub given: Vec<(ObjectId, String)>,
    /// Ours, kept at their last good state because their file is broken: object and file. Those that somebody changed or
    /// deleted are among `update` and `create`, too.
    pub quarantined: Vec<(ObjectId, Option<String>)>,
    /// Ours or wanted, and left as they are because their annotation says so.
    pub paused: Vec<ObjectId>,
    /// Ours, not wanted, and kept because of `convoke.dev/prune: disabled`.
    pub protected: Vec<ObjectId>,
    /// Changed by hand, and left so.
    pub drifted: Vec<ObjectId>,
    /// Not created or changed because something else of the commit is wrong (`failurePolicy: Atomic`).
    pub waiting: Vec<ObjectId>,
    /// Marked by a vanished GitSync of the same name, and not wanted.
    pub orphans: Vec<ObjectId>,
    /// How many live objects carry our mark.
    pub marked: usize,
    /// How many of those are being deleted already, and not wanted.
    pub going: usize,
    /// Those of them that this GitSync would delete itself: until they are gone, the commit is not applied.
    pub ending: Vec<Victim>,
    /// How many deletes the commit asks for, whatever becomes of them.
    pub due: usize,
}

impl Plan {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.prune.is_empty()
    }

    /// Whether all objects that there are count as what there is, once so many of them were deleted: a percentage of deletes is
    /// of that. As long as some are kept only because of a file that cannot be read, or until another GitSync has taken them,
    /// they may be due in a moment, and what a commit creates beside them must not raise what it may delete.
    #[must_use]
    pub fn proves_its_size(&self, pruned: usize) -> bool {
        self.due <= pruned && self.quarantined.is_empty() && self.given.is_empty()
    }
}

impl Plan {
    /// Applies nothing of this commit, because something of it is wrong (`failurePolicy: Atomic`). What is already
    /// applied as it is wanted and was changed by hand is still brought back, and what is quarantined is made again.
    pub fn wait(&mut self) {
        let (drifted, changed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.update).into_iter().partition(|update| update.drifted);
        self.update = drifted;
        let kept: HashSet<_> = self.quarantined.iter().map(|(id, _)| id).collect();
        let (kept, mut create) =
            std::mem::take(&mut self.create).into_iter().partition(|id| kept.contains(id));
        self.create = kept;
        self.waiting.append(&mut create);
        self.waiting.extend(changed.into_iter().map(|update| update.id));
        self.waiting.sort();
    }

    /// Leaves nothing but the undoing of changes by hand: of the commit it is known only that it was applied once.
    pub fn undo_only(&mut self) {
        self.wait();
        let all = std::mem::take(self);
        let Self { update, unchanged, paused, protected, drifted, orphans, marked, due, .. } = all;
        *self = Self {
            update,
            unchanged,
            paused,
            protected,
            drifted,
            orphans,
            marked,
            due,
            ..Self::default()
        };
    }
}

/// To whom a live object belongs.
enum Owner {
    /// This sync.
    Ours,
    /// A vanished sync of the same name.
    Vanished,
    /// Nobody or another sync, and it is handed over to this one.
    HandedOver,
    /// Somebody else, described for people, and the name if it is a GitSync of the same namespace.
    Other(String, Option<String>),
}

fn owner(live: &Live, id: &ObjectId, inputs: &Inputs<'_>) -> Owner {
    let Inputs { sync, others, .. } = inputs;
    let mark = mark(live, id, sync);
    let handed_over = annotation(live, keys::ADOPT_BY) == Some(sync.name.as_str());
    match mark {
        Some(mark) if mark.sync_uid == sync.uid => Owner::Ours,
        Some(mark) if mark.sync_namespace == sync.namespace && mark.sync_name == sync.name => {
            Owner::Vanished
        }
        Some(mark) if others.exists(&mark.sync_namespace, &mark.sync_name, &mark.sync_uid) => {
            let text = format!("GitSync {}/{}", mark.sync_namespace, mark.sync_name);
            let sibling = (mark.sync_namespace == sync.namespace).then_some(mark.sync_name);
            match sibling {
                Some(name) if others.gives(&name, id) => Owner::HandedOver,
                sibling => Owner::Other(text, sibling),
            }
        }
        _ if handed_over => Owner::HandedOver,
        Some(mark) => {
            let text = format!("the vanished GitSync {}/{}", mark.sync_namespace, mark.sync_name);
            Owner::Other(text, None)
        }
        None => Owner::Other("somebody else (it carries no valid mark)".into(), None),
    }
}

fn annotation<'a>(live: &'a Live, name: &str) -> Option<&'a str> {
    live.facts().annotations.get(name)
}

/// Whether a live object is as Git wants it.
pub(crate) fn is_equal(desired: &Desired, live: &Live, settled: &Settled, id: &ObjectId) -> bool {
    let settled = settled.get(id).filter(|settled| settled.applied == desired.applied);
    let facts = live.facts();
    if facts.spec_hash.is_none() {
        return settled.is_some_and(|settled| settled.version == live.version());
    }
    facts.annotations.get(keys::APPLIED) == Some(desired.applied.as_str())
        && facts.labels.cover(&desired.definition.labels)
        && facts.annotations.cover(&desired.definition.annotations)
        && (facts.spec_hash == Some(desired.spec_hash)
            // Of what Git wants without replicas, so only where Git sets none.
            || facts.unscaled_hash.as_deref() == Some(&desired.spec_hash)
            || settled.is_some_and(|settled| settled.spec_hash == facts.spec_hash))
}

/// Makes the plan. Pure: the same inputs give the same plan.
#[must_use]
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let equal = inputs.board.equal();
    let mut plan = Plan { unchanged: equal, marked: equal, ..Plan::default() };
    let mut victims = Vec::new();
    let mut strangers = None;
    for id in inputs.board.open() {
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
                // Else it is gone since it was looked at.
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
    // All or nothing: once every conflict is known.
    let faulty = inputs.has_errors || !plan.conflicts.is_empty();
    if inputs.failure_policy == FailurePolicy::Atomic && faulty {
        plan.wait();
    }
    if inputs.approved.is_some() || inputs.pending.is_some() {
        plan.left = brake::left(inputs.sync, inputs.desired, inputs.live, inputs.board);
    }
    plan.due = victims.len();
    if inputs.prune.enabled {
        brake::hold(&mut plan, victims, inputs);
    }
    plan
}

/// PlanMemory a wanted object.
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
        Owner::Other(owner, sibling) => {
            plan.conflicts.push(Conflict { id: id.clone(), owner, sibling });
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
        let drifted = !adopted && is_drift(id, desired, live, inputs);
        change(plan, id, live, inputs, (adopted, drifted));
    }
}

/// PlanMemory to bring a live object to its definition, unless that is only to be told.
fn change(
    plan: &mut Plan,
    id: &ObjectId,
    live: &Live,
    inputs: &Inputs<'_>,
    (adopted, drifted): (bool, bool),
) {
    if drifted && inputs.drift == DriftPolicy::Report {
        plan.drifted.push(id.clone());
        return;
    }
    let (uid, version) = (live.uid().to_owned(), live.version());
    let claim = if adopted { claim(live) } else { Claim::default() };
    let id = id.clone();
    plan.update.push(Update { id, uid, version, adopted, claim, drifted });
}

/// Whether an object of ours that differs was applied as it is wanted, and changed since. What it says itself, anybody can
/// write: that counts only while nothing else is known, after a start.
fn is_drift(id: &ObjectId, desired: &Desired, live: &Live, inputs: &Inputs<'_>) -> bool {
    let said = || annotation(live, keys::APPLIED) == Some(desired.applied.as_str());
    inputs.board.was_applied(id, desired).unwrap_or_else(said)
}

/// Decides on an object that another GitSync wants, too: the older one has it.
fn contest(plan: &mut Plan, id: &ObjectId, rival: Rival, inputs: &Inputs<'_>) {
    let Some(live) = inputs.live.get(id) else { return };
    let Rival { name, older } = rival;
    let wanted = inputs.desired.get(id).is_some_and(|want| want.kept.is_none());
    if !wanted || !matches!(owner(&live, id, inputs), Owner::Ours) {
        // Whoever has it says so, or it is a conflict already.
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

/// PlanMemory a live object that is not wanted; gives it if it is to be deleted.
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
        // An absence that is not proven gives nothing away; the object stays, whatever is approved.
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
