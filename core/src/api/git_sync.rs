//! `GitSync`: syncs one folder of a Git repository into a namespace. Its status shows the result.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{Condition, NameRef};
use super::webhook::WebhookSpec;

/// Syncs the agent definitions of one folder of one Git repository into this namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "convoke.dev", version = "v1alpha1", kind = "GitSync", plural = "gitsyncs", shortname = "gs",
    category = "convoke", namespaced, status = "GitSyncStatus", derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name must be at most 63 characters"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.lastAppliedRevision"),
    printcolumn(name = "Objects", type_ = "integer", json_path = ".status.objects.total"),
    printcolumn(name = "Problems", type_ = "integer", json_path = ".status.problemCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct GitSyncSpec {
    /// `https://…` without a user, or `ssh://git@…`; `http://` only when the operator runs with `--allow-insecure-git`.
    #[schemars(
        length(min = 8, max = 2048),
        regex(pattern = r"^(https?://|ssh://([A-Za-z0-9_][A-Za-z0-9._-]*@)?)[^\s@\x00-\x20]+$")
    )]
    pub url: String,
    /// Secret of this namespace with the credentials for the server. For https: `username` and `password`, `bearerToken`, or `token`;
    /// `ca.crt`; `tls.crt` and `tls.key`. For ssh: `identity`, `known_hosts`, and `password` for its passphrase. It is used only for the origins in its annotation `convoke.dev/git-origins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Secret of this namespace with an HTTP proxy for an https URL: `address`, and `username` with `password`. It is used only for the
    /// origins in its annotation `convoke.dev/git-origins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<SecretRef>,
    /// What to follow: exactly one of branch, tag, semver, commit, name. Default: branch main.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// Folder in the repository that holds the definitions. Default: the root.
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new("!self.startsWith('/') && !self.split('/').exists(p, p == '..' || p == '.git')").message("path must be relative, without '..' and '.git'"))]
    pub path: String,
    /// What below the path is left out, as if it were not in the commit: patterns as in `.gitignore`, relative to the
    /// path. They win over the `.convokeignore` files of the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        inner(length(min = 1, max = 1024), regex(pattern = r"^[^\n\r]+$"))
    )]
    pub ignore: Vec<String>,
    /// Values for `${NAME}` in definitions. Without it, a `$` in a definition means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariablesSpec>,
    /// How often the remote is asked for its newest commit (±10%). Default 1m.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s')").message("interval must be at least 1s"))]
    pub interval: String,
    /// How long one fetch may take, up to `1h`. Default 60s.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('1h')").message("timeout must be at least 1s and at most 1h"))]
    pub timeout: String,
    /// How soon a failed sync is tried again. Default 30s.
    #[serde(default = "default_retry_interval")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s')").message("retryInterval must be at least 1s"))]
    pub retry_interval: String,
    /// Stops fetching, applying and pruning. Default false.
    #[serde(default)]
    pub suspend: bool,
    /// ServiceAccount of this namespace with whose rights objects are written and deleted. Default: what the operator's
    /// `--default-service-account` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub service_account_name: Option<String>,
    /// When objects that left the repository are deleted.
    #[serde(default)]
    pub prune: Prune,
    /// What a broken file means for the rest of its commit. `Isolate` (default): its objects stay as they are, the
    /// rest is applied. `Atomic`: nothing of a commit with an error is applied, nor of one that the API server would
    /// refuse in part.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// What becomes of changes that somebody makes to an object by hand. `Correct` (default): they are undone at
    /// once. `Report`: they stay, and the condition `Drifted` tells of them.
    #[serde(default)]
    pub drift: DriftPolicy,
    /// What happens to the objects when this GitSync is deleted: `Orphan` leaves them as they are, `Delete` deletes them.
    /// A suspended one always leaves them. Default Orphan.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Tells the forge what became of each commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_status: Option<CommitStatusSpec>,
    /// GitSyncs of this namespace that must be Ready, each with its newest commit, before a new commit is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub depends_on: Vec<NameRef>,
    /// Tells the operator of a push, so that it polls at once. It polls at each `interval` all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookSpec>,
}

/// Where commits get a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitStatusSpec {
    /// The kind of the forge that has the repository.
    pub provider: Forge,
    /// Secret of this namespace with a `token` that may set commit statuses, or with the keys of a GitHub App. It is used only for the
    /// origins in its annotation `convoke.dev/git-origins`.
    pub secret_ref: SecretRef,
}

/// A kind of forge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Forge {
    /// github.com, or a GitHub Enterprise Server.
    GitHub,
    /// gitlab.com, or a GitLab of one's own.
    GitLab,
    /// Gitea or Forgejo.
    Gitea,
}

/// What a broken file means for the rest of its commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailurePolicy {
    /// The rest is applied.
    #[default]
    Isolate,
    /// All or nothing.
    Atomic,
}

/// What becomes of changes that somebody makes to an object by hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftPolicy {
    /// They are undone.
    #[default]
    Correct,
    /// They stay, and the condition `Drifted` reports them.
    Report,
}

/// What happens to the objects of a GitSync that is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay as they are.
    #[default]
    Orphan,
    /// They are deleted, and the GitSync stays until they are.
    Delete,
}

/// Values for `${NAME}` in definitions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariablesSpec {
    /// Values by name; they win over those of `from`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100, "additionalProperties" = serde_json::json!({"type": "string", "maxLength": 4096})))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[A-Za-z_][A-Za-z0-9_]{0,127}$'))").message("names of variables are letters, digits and '_', at most 128, not beginning with a digit"))]
    pub inline: BTreeMap<String, String>,
    /// Where more values come from; later ones win.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub from: Vec<VariableSource>,
}

/// Where values come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableSource {
    /// A ConfigMap of this namespace with the label `convoke.dev/agents=allow`: each key that can be a name is a
    /// variable.
    pub config_map_ref: ConfigMapRef,
}

/// A ConfigMap of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// A Secret of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// What to follow in the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.branch), has(self.tag), has(self.semver), has(self.commit), has(self.name)].filter(x, x).size() == 1").message("ref needs exactly one of branch, tag, semver, commit and name"))]
pub struct GitRef {
    /// Name of a branch, without `refs/heads/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9_][-A-Za-z0-9._/+#]*$"))]
    pub branch: Option<String>,
    /// Name of a tag, without `refs/tags/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = r"^[A-Za-z0-9_][-A-Za-z0-9._/+#]*$"))]
    pub tag: Option<String>,
    /// A range of versions, such as `>=1.2, <2` or `^1.2`: the tag with the highest version in it. A tag may begin with `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub semver: Option<String>,
    /// Full name of a ref, such as `refs/heads/main` or `refs/pull/420/head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 6, max = 255),
        regex(pattern = r"^refs/[A-Za-z0-9_][-A-Za-z0-9._/+#]*$")
    )]
    pub name: Option<String>,
    /// Full id of a commit (40 or 64 hex digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^([0-9a-f]{40}|[0-9a-f]{64})$"))]
    pub commit: Option<String>,
}

/// When objects that left the repository are deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prune {
    /// Delete what left the repository. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The brake: a plan that deletes more than this (a count, or a percentage of the live objects of this
    /// sync, at least 1) is held until it is approved. `0` holds every delete. Default 30%.
    #[serde(default = "default_max_deletions")]
    #[x_kube(validation = Rule::new("type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')").message("maxDeletions must be a count (0 or more) or a percentage (0% to 100%)"))]
    pub max_deletions: IntOrString,
}

impl Default for Prune {
    fn default() -> Self {
        Self { enabled: true, max_deletions: default_max_deletions() }
    }
}

fn yes() -> bool {
    true
}
fn default_path() -> String {
    ".".into()
}
fn default_interval() -> String {
    "1m".into()
}
fn default_timeout() -> String {
    "60s".into()
}
fn default_retry_interval() -> String {
    "30s".into()
}
fn default_max_deletions() -> IntOrString {
    IntOrString::String("30%".into())
}

/// What happened to the newest commit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSyncStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`; `Reconciling`, `Stalled`, `Suspended`, `PruneHeld`, `Drifted` only while they are true; and `WebhookReady` only with
    /// `spec.webhook`.
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
