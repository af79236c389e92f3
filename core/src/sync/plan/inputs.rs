//! What a plan is made from.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::ObjectId;
use crate::api::git_sync::{ApprovedPrune, DriftPolicy, FailurePolicy, PendingPrune, Prune};
use crate::sync::commit::desired::{DesiredSet, SyncRef};
use crate::sync::live_namespace::Namespace;
use crate::sync::plan::compare::Settled;
use crate::sync::plan::work_index::WorkIndex;

/// Everything that a plan depends on.
pub struct Inputs<'a> {
    /// The GitSync.
    pub sync: &'a SyncRef,
    /// Commit, path and generation of the spec. While the latch key stays the same, held deletes stay held, and approved deletes
    /// stay approved. Values of variables are not part of it, because they never change which objects are wanted.
    pub latch_key: &'a str,
    /// The desired set of the commit, and last good definitions of earlier commits, which have
    /// [`kept`](crate::sync::commit::desired::Desired::kept).
    pub desired: &'a DesiredSet,
    /// The live objects.
    pub live: &'a dyn Namespace,
    /// The objects that the plan has to check.
    pub index: &'a WorkIndex,
    /// Whether the commit has an error. Then nothing proves that an object is really gone from Git.
    pub has_errors: bool,
    /// Objects whose definition is broken, each with its file.
    pub broken: &'a BTreeMap<ObjectId, String>,
    /// Files that contain a definition which could not be identified.
    pub broken_paths: &'a BTreeSet<String>,
    /// The definition files of the commit. Used only if there are `broken_paths`.
    pub paths: &'a BTreeSet<String>,
    /// Objects that earlier commits wanted and this one does not, each with the file that defined it last. The annotation of the
    /// live object may name another file, because an object may move between files without being written.
    pub last_paths: &'a BTreeMap<ObjectId, String>,
    /// Whether the commit has errors, and the commit before it is not known. Then any object may be in a broken file.
    pub lost: bool,
    /// `spec.prune`.
    pub prune: &'a Prune,
    /// `spec.drift`.
    pub drift: DriftPolicy,
    /// `spec.failurePolicy`.
    pub failure_policy: FailurePolicy,
    /// Value of the annotation `convoke.dev/approve-prune`.
    pub approval: Option<&'a str>,
    /// The approval that was acted on last.
    pub handled: Option<&'a str>,
    /// The digest of held deletes that was shown last, for any commit.
    pub last_digest: Option<&'a str>,
    /// The approval that is being carried out.
    pub approved: Option<&'a ApprovedPrune>,
    /// The held deletes that the status shows.
    pub pending: Option<&'a PendingPrune>,
    /// The GitSyncs and kinds that cannot be read, and may want what this commit does not want.
    pub unproven: &'a Unproven,
    /// The number of objects when no delete was due, if known. So the objects that a commit creates do not raise the number of
    /// deletes that it may make without an approval.
    pub prune_base: Option<usize>,
    /// The other GitSyncs of the namespace.
    pub others: &'a dyn Others,
    /// Objects that an apply did not make as wanted, and how it left them.
    pub settled: &'a Settled,
}

/// Another GitSync of the namespace that wants the same object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// Its name.
    pub name: String,
    /// Whether it is the older one of the two. The older GitSync keeps the object.
    pub older: bool,
}

/// What a plan has to know of the other GitSyncs.
pub trait Others {
    /// Whether a GitSync of this namespace, name and uid exists.
    fn exists(&self, namespace: &str, name: &str, uid: &str) -> bool;
    /// The name of another GitSync of this namespace that wants the object.
    fn wanted_by(&self, id: &ObjectId) -> Option<String>;
    /// Whether the GitSync of this name, in the same namespace, hands over the object to the planned one.
    fn gives(&self, name: &str, id: &ObjectId) -> bool;
    /// The objects that both the planned GitSync and another one want, each with the oldest other one.
    fn contested(&self) -> BTreeMap<ObjectId, Rival> {
        BTreeMap::new()
    }
}

/// Why an absence from a commit without errors does not prove that nobody wants the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unproven {
    /// The GitSyncs and kinds that cannot be read, sorted.
    pub unread: Vec<String>,
    /// The reason for messages; empty when all can be read.
    pub reason: String,
}
