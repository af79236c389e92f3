//! What a plan says to do.

use std::collections::{BTreeSet, HashSet};

use crate::api::ObjectId;
use crate::api::git_sync::{ApprovedPrune, DriftPolicy};
use crate::cluster::live::Live;
use crate::sync::plan::compare::{Claim, claim};

/// An object to delete, as it was when the plan was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// The object.
    pub id: ObjectId,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub version: u64,
}

/// Why deletes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There are too many, or were when they were held first. Only an approval, another commit or another spec releases them.
    Brake,
    /// The commit has an error, or a conflict.
    Errors,
    /// Another GitSync or a kind cannot be read.
    Unproven,
}

/// Deletes that are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Identifies the set of deletes. As the value of `convoke.dev/approve-prune` it approves them.
    pub digest: String,
    /// Why they are held.
    pub cause: Cause,
    /// The reason for messages.
    pub reason: String,
    /// The kubectl command that approves them.
    pub command: String,
    /// The objects that would be deleted.
    pub victims: Vec<Victim>,
}

/// A wanted object that exists and belongs to somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The object.
    pub id: ObjectId,
    /// The owner, for messages.
    pub owner: String,
    /// The owner, if it is a GitSync of the same namespace.
    pub peer: Option<String>,
}

/// An object to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The object.
    pub id: ObjectId,
    /// Its uid.
    pub uid: String,
    /// Its version when the plan was made.
    pub version: u64,
    /// Whether the object is taken over: from a GitSync that hands it over or does not exist any more, or by `adopt-by`.
    pub adopted: bool,
    /// The claim that the object has, if it is taken over.
    pub claim: Claim,
    /// Whether the object was applied as it is wanted, and changed manually since.
    pub drifted: bool,
}

/// Why an object is updated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The object is taken over.
    Adopted,
    /// The object is ours, and its definition has changed.
    Changed,
    /// The object is ours, and was changed manually.
    Drifted,
}

/// What to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Objects to create, in apply order.
    pub create: Vec<ObjectId>,
    /// Objects to change, in apply order.
    pub update: Vec<Update>,
    /// The number of objects that are as wanted.
    pub unchanged: usize,
    /// Wanted objects that are being deleted. They are created again afterwards.
    pub terminating: Vec<ObjectId>,
    /// Objects to delete, in reverse apply order.
    pub prune: Vec<Victim>,
    /// Deletes that wait for an approval, or for a commit without errors.
    pub held: Option<Held>,
    /// Deletes that would be held, while other GitSyncs are asked whether they want the objects. The status does not show them
    /// yet.
    pub unheard: Option<Held>,
    /// The approval that is remembered until its objects are gone, whether or not they can be deleted now.
    pub released: Option<ApprovedPrune>,
    /// The shortened uids of our objects that are not wanted. Set only if something is held or approved.
    pub left: BTreeSet<String>,
    /// Wanted objects that belong to somebody else.
    pub conflicts: Vec<Conflict>,
    /// Our objects that a younger GitSync of the namespace wants, too, with its name.
    pub contested: Vec<(ObjectId, String)>,
    /// Our objects that are not wanted here, but by another GitSync of the namespace. They are handed over to it, by name.
    pub given: Vec<(ObjectId, String)>,
    /// Our objects that may be in a broken file, and that file if it is known. They are kept at their last good state: if one was
    /// changed or deleted, it is also among `update` and `create`.
    pub quarantined: Vec<(ObjectId, Option<String>)>,
    /// Objects that are ours or wanted, and paused by annotation.
    pub paused: Vec<ObjectId>,
    /// Our objects that are not wanted, but protected by `convoke.dev/prune: disabled`.
    pub protected: Vec<ObjectId>,
    /// Manually changed objects that are only reported (`drift: Report`).
    pub drifted: Vec<ObjectId>,
    /// Objects that are not created or changed because of another error of the commit (`failurePolicy: Atomic`).
    pub waiting: Vec<ObjectId>,
    /// Objects with the mark of a vanished GitSync of the same name that are not wanted.
    pub orphans: Vec<ObjectId>,
    /// The number of live objects with our mark.
    pub marked: usize,
    /// The number of those that are not wanted and being deleted already.
    pub going: usize,
    /// Those of them that this GitSync would delete itself. Until they are gone, the commit is not applied.
    pub ending: Vec<Victim>,
    /// The number of deletes that follow from the commit, whether or not they are held.
    pub due: usize,
}

impl Plan {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.prune.is_empty()
    }

    /// Whether the number of live objects may become the base of `maxDeletions` after `pruned` deletes.
    ///
    /// Not while some objects are kept only because of a broken file, or until another GitSync takes them over. Their deletes may
    /// be due next, and the objects that a commit creates must not raise the number of deletes that it may make.
    #[must_use]
    pub fn proves_its_size(&self, pruned: usize) -> bool {
        self.due <= pruned && self.quarantined.is_empty() && self.given.is_empty()
    }

    /// Drops the changes of a commit that has an error (`failurePolicy: Atomic`). Manual changes are still reverted, and
    /// quarantined objects are still created again.
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

    /// Leaves only the reverts of manual changes. For a commit of which no more is known than that it was applied once.
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

    /// Adds the update of a live object, or reports its drift if that is the policy.
    pub(super) fn change(
        &mut self,
        id: &ObjectId,
        live: &Live,
        policy: DriftPolicy,
        origin: Origin,
    ) {
        let (adopted, drifted) = (origin == Origin::Adopted, origin == Origin::Drifted);
        if drifted && policy == DriftPolicy::Report {
            self.drifted.push(id.clone());
            return;
        }
        let (uid, version) = (live.uid().to_owned(), live.version());
        let claim = if adopted { claim(live) } else { Claim::default() };
        let id = id.clone();
        self.update.push(Update { id, uid, version, adopted, claim, drifted });
    }
}
