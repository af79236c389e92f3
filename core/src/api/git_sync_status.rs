//! The status of a `GitSync`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::Condition;

/// What happened to the newest commit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSyncStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`; `Reconciling`, `Stalled`, `Suspended`, `PruneHeld`, `Drifted` only while they are true; `Verified` only with
    /// `spec.verify`; and `WebhookReady` only with `spec.webhook`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Newest commit that was tried: `main@sha1:<hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_revision: Option<String>,
    /// Newest commit that was applied without a problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_revision: Option<String>,
    /// The value of `convoke.dev/requestedAt` that was handled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The value of `convoke.dev/approve-prune` that was acted on last: it counts for nothing else that is held later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_approval: Option<String>,
    /// The digest of held deletes that was shown last. The next one is made of it, so that none is ever used twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_prune_digest: Option<String>,
    /// Where deliveries of the webhook arrive: the path behind the address of the operator. Only with `spec.webhook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_path: Option<String>,
    /// The live objects of this sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<ObjectCounts>,
    /// How many objects there were when no delete was due: what `maxDeletions` is a share of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_base: Option<i64>,
    /// What is wrong, errors first; at most 100 are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// How many problems there are, listed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem_count: Option<i64>,
    /// Objects kept at their last good state because their file is broken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<Quarantined>,
    /// Objects that their annotation `convoke.dev/reconcile: disabled` keeps as they are; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<String>,
    /// Objects that Git does not have any more and that their annotation `convoke.dev/prune: disabled` keeps; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
    /// Objects that somebody changed by hand and that are left so (`drift: Report`); at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifted: Vec<String>,
    /// Deletes that wait for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_prune: Option<PendingPrune>,
    /// An approved prune that is not finished yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_prune: Option<ApprovedPrune>,
    /// Objects marked by a vanished GitSync of the same name that nothing wants; never deleted unasked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<String>,
    /// The last syncs that did something, newest first; at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// How long the stages of the last sync took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
}

impl GitSyncStatus {
    /// `pruneBase` as a number of objects.
    #[must_use]
    pub fn prune_base(&self) -> Option<usize> {
        self.prune_base.and_then(|base| usize::try_from(base).ok())
    }
}

/// Counts of live objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectCounts {
    /// All objects that carry the mark of this sync.
    pub total: i64,
    /// Those whose `Ready` condition is true.
    pub ready: i64,
    /// Those whose last write failed.
    pub failed: i64,
    /// The same by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_kind: Vec<KindCount>,
}

/// Counts of live objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindCount {
    /// The kind.
    pub kind: String,
    /// All of that kind.
    pub total: i64,
    /// Those that are ready.
    pub ready: i64,
}

/// How bad a problem is. An error keeps the commit from being Ready and from deleting; a warning changes nothing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Severity {
    /// The object is kept at its last good state, and nothing is deleted.
    Error,
    /// The object is applied.
    Warning,
}

/// One problem, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Error or Warning.
    pub severity: Severity,
    /// File, relative to the root of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<i64>,
    /// Column, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<i64>,
    /// Stable code (`CVK0123`).
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// `Kind/name` of the object, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// An object kept at its last good state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quarantined {
    /// `Kind/name`.
    pub object: String,
    /// The broken file, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// First commit at which it was broken.
    pub since: String,
}

/// Deletes that wait for `convoke.dev/approve-prune: <digest>`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingPrune {
    /// Names the objects that were held when it was made. It stays while some of them remain and no other joins.
    pub digest: String,
    /// How many objects wait now; 0 while all that is left is protected, and while others are asked whether they want some.
    pub count: i64,
    /// `Kind/name`, at most 100.
    pub objects: Vec<String>,
    /// Why it is held.
    pub reason: String,
    /// What it was held for: the commit, the path and the generation of the spec.
    #[serde(default)]
    pub input_key: String,
    /// Whether only an approval, another commit or another spec releases these deletes, however many remain. Otherwise
    /// they also go on once the reason is gone.
    #[serde(default)]
    pub requires_approval: bool,
    /// The objects that the digest names: the first 12 hex digits of each uid, at most 8000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uids: Vec<String>,
    /// Objects that were held under an earlier digest and that nobody has approved: the same digits of their uids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_before: Vec<String>,
    /// The GitSyncs, with the files that they cannot read, and the kinds that could not be read until the digest was made, and of
    /// which it therefore is not known whether they need the objects. An approval of the digest is given in spite of these,
    /// and of no others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// An approved prune: remembered until what it was given for is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPrune {
    /// The digest that was approved.
    pub digest: String,
    /// What the approval was given for: the commit, the path and the generation of the spec.
    pub input_key: String,
    /// The objects that it was given for: the first 12 hex digits of each uid.
    #[serde(default)]
    pub uids: Vec<String>,
    /// The GitSyncs, with their files, and the kinds that could not be read, in spite of which it was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// One sync that did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// `main@sha1:<hex>`.
    pub revision: String,
    /// Author of the commit (name only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// First line of its message, cut at 120 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// `Applied`, `Partial`, `Held` or `Failed`; `Progressing` while the rest waits for an answer of another GitSync.
    pub outcome: String,
    /// Objects created.
    pub created: i64,
    /// Objects changed.
    pub updated: i64,
    /// Objects deleted.
    pub pruned: i64,
    /// From the first look at the remote to the last write, in milliseconds.
    pub duration_ms: i64,
    /// What started it: `Interval`, `Request`, `Spec`, `Start`, `Retry`, `Cluster`, `Sibling`, `Approval`, `Variables`, `Folder` or
    /// `Webhook`.
    pub trigger: String,
    /// When it ended.
    pub time: Time,
}

/// How long the stages of the last sync that did something took, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stages {
    /// Asking the remote.
    pub resolve_ms: i64,
    /// Fetching the pack.
    pub fetch_ms: i64,
    /// Reading, parsing, validating.
    pub load_ms: i64,
    /// Comparing with the cluster.
    pub plan_ms: i64,
    /// Writing.
    pub apply_ms: i64,
}
