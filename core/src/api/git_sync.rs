//! `GitSync`: syncs one folder of a Git repository into a namespace. Its status shows the result.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::NameRef;
pub use super::git_sync_status::{
    ApprovedPrune, GitSyncStatus, HistoryEntry, KindCount, ObjectCounts, PendingPrune, Problem,
    Quarantined, Severity, Stages,
};
use super::webhook::WebhookSpec;

/// Syncs the agent definitions of one folder of one Git repository into this namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "convoke.dev", version = "v1alpha1", kind = "GitSync", plural = "gitsyncs", shortname = "gs",
    category = "convoke", namespaced, status = "GitSyncStatus", derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("the name must be at most 63 characters"),
    validation = Rule::new("!has(self.spec.verify) || self.spec.verify.mode != 'Tag' || (has(self.spec.ref) && (has(self.spec.ref.tag) || has(self.spec.ref.semver)))").message("verify.mode Tag needs ref.tag or ref.semver"),
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
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(
        validation = Rule::new("self.matches('^(https?|ssh)://.')").message("url must begin with https:// or ssh://; the form user@host:path is ssh://user@host/path"),
        validation = Rule::new("self.matches('^[!-~]*$')").message("url must have printable ASCII characters only, and no space"),
        validation = Rule::new("!self.matches('^https?://[^/?#]*@')").message("url must hold no user name, password or token: name a Secret in secretRef"),
        validation = Rule::new("!self.startsWith('ssh://') || self.matches('^ssh://([A-Za-z0-9_][A-Za-z0-9._-]*@)?[^/@]*(/|$)')").message("the user in url must have letters, digits and - . _ only, and no password: name a Secret in secretRef")
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
    /// What must be signed, and by which keys, before anything of a commit is read. Without it, no signature is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,
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

/// What must be signed, and by which keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifySpec {
    /// What must be signed. `HEAD` (default): the commit. `Tag`: the annotated tag that `ref.tag` or `ref.semver` names.
    #[serde(default)]
    pub mode: VerifyMode,
    /// Secret of this namespace with public keys: each `*.asc` is an armored OpenPGP key, each `*.sshpub` has lines with public ssh
    /// keys.
    pub secret_ref: SecretRef,
}

/// What must be signed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerifyMode {
    /// The commit.
    #[default]
    #[serde(rename = "HEAD")]
    Head,
    /// The annotated tag.
    Tag,
}

/// What to follow in the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.branch), has(self.tag), has(self.semver), has(self.commit), has(self.name)].filter(x, x).size() == 1").message("ref needs exactly one of branch, tag, semver, commit and name"))]
pub struct GitRef {
    /// Name of a branch, without `refs/heads/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(
        validation = Rule::new("self.matches('^[A-Za-z0-9_][-A-Za-z0-9._/+#]*$')").message("branch must have letters, digits and - . _ / + # only, and begin with a letter, a digit or _"),
        validation = Rule::new("!self.startsWith('refs/')").message("branch is the name without refs/heads/; a full name goes into ref.name")
    )]
    pub branch: Option<String>,
    /// Name of a tag, without `refs/tags/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(
        validation = Rule::new("self.matches('^[A-Za-z0-9_][-A-Za-z0-9._/+#]*$')").message("tag must have letters, digits and - . _ / + # only, and begin with a letter, a digit or _"),
        validation = Rule::new("!self.startsWith('refs/')").message("tag is the name without refs/tags/; a full name goes into ref.name")
    )]
    pub tag: Option<String>,
    /// A range of versions, such as `>=1.2, <2` or `^1.2`: the tag with the highest version in it. A tag may begin with `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub semver: Option<String>,
    /// Full name of a ref, such as `refs/heads/main` or `refs/pull/420/head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = Rule::new("self.matches('^refs/[A-Za-z0-9_][-A-Za-z0-9._/+#]*$')").message("name must be the full name of a ref, such as refs/heads/main; a branch goes into ref.branch"))]
    pub name: Option<String>,
    /// Full id of a commit (40 or 64 hex digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9a-f]{40}|[0-9a-f]{64})$')").message("commit must be a full id, 40 or 64 lower-case hex digits: git rev-parse prints it"))]
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
