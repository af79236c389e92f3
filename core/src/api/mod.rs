//! The custom resources of `convoke.dev/v1alpha1`: one file for each kind, and names, labels and marks.
//!
//! A wrong value is refused in two places, by the same schema and CEL rules: by the API server, and when a file is read from
//! Git, with a line and a column.

pub mod agent;
pub mod agent_build;
mod agent_status;
pub mod build_pipeline;
pub mod build_record;
pub mod common;
pub mod git_sync;
mod git_sync_status;
pub mod kinds;
pub mod mark;
pub mod mcp_server;
pub mod model_api;
pub mod rollout;
pub mod webhook;

pub use agent::Agent;
pub use agent_build::AgentBuild;
pub use git_sync::GitSync;
pub use kinds::{Kind, ObjectId};
pub use mark::Mark;
pub use mcp_server::MCPServer;
pub use model_api::ModelAPI;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The API group of every kind of ours.
pub const GROUP: &str = "convoke.dev";
/// The only served version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every kind of ours.
pub const API_VERSION: &str = "convoke.dev/v1alpha1";

/// Labels and annotations. All of them live under `convoke.dev/`; none may come from Git.
pub mod keys {
    /// The mark: which GitSync owns this object. See [`super::Mark`].
    pub const OWNER: &str = "convoke.dev/owner";
    /// Hash of the desired spec, labels and annotations at the last apply.
    pub const APPLIED: &str = "convoke.dev/applied";
    /// Commit that last changed the object (40 or 64 hex digits).
    pub const COMMIT: &str = "convoke.dev/commit";
    /// `path:line` of the object's document at that commit.
    pub const SOURCE: &str = "convoke.dev/source";
    /// On a GitSync: any new value starts a sync at once.
    pub const REQUESTED_AT: &str = "convoke.dev/requestedAt";
    /// On a GitSync: the digest of the held prune to release.
    pub const APPROVE_PRUNE: &str = "convoke.dev/approve-prune";
    /// On an object, in Git or live: `disabled` keeps it from being pruned.
    pub const PRUNE: &str = "convoke.dev/prune";
    /// On a live object: `disabled` pauses it. It is neither changed nor deleted, whatever Git says.
    pub const RECONCILE: &str = "convoke.dev/reconcile";
    /// On a live object without a mark: the name of the GitSync that may take it over.
    pub const ADOPT_BY: &str = "convoke.dev/adopt-by";
    /// Finalizer of a GitSync whose deletion must delete its objects.
    pub const FINALIZER: &str = "convoke.dev/delete-objects";
    /// Label on every child (Deployment, Service, …): the kind of the owner, in lower case.
    pub const OWNER_KIND: &str = "convoke.dev/kind";
    /// Label on every child: the name of the owner (shortened with a hash when too long for a label).
    pub const OWNER_NAME: &str = "convoke.dev/name";
    /// Label on a PipelineRun in another namespace than that of its AgentBuild, and on its Secrets: the namespace of the AgentBuild.
    pub const OWNER_NAMESPACE: &str = "convoke.dev/namespace";
    /// Label on the same: the UID of the AgentBuild.
    pub const OWNER_UID: &str = "convoke.dev/uid";
    /// Annotation on every child: hash of what was applied.
    pub const CHILD_HASH: &str = "convoke.dev/child-hash";
    /// Annotation on pods: a keyed digest of each ConfigMap and Secret that they read.
    pub const INPUTS: &str = "convoke.dev/inputs";
    /// Annotation on the Deployment of an Agent: when the key was issued with which it asks its model, in Unix seconds.
    pub const KEY_ISSUED: &str = "convoke.dev/key-issued";
    /// Annotation on the Deployment of an Agent: the ModelAPI whose proxy takes that key.
    pub const KEY_PROXY: &str = "convoke.dev/key-proxy";
    /// Annotation on a Deployment: the ModelAPIs whose keys its pods read before, and when each key was issued, as
    /// `NAME.SECONDS,NAME.SECONDS`. It is there until the pods have been replaced.
    pub const KEY_BEFORE: &str = "convoke.dev/key-before";
    /// Annotation on pods and their Deployment: a keyed digest of the keys that Convoke made for the pods.
    pub const KEY_DIGEST: &str = "convoke.dev/key-digest";
    /// Annotation on a Secret: the origins of Git servers that may get the credentials in it, as `https://HOST:PORT`, with commas between.
    pub const GIT_ORIGINS: &str = "convoke.dev/git-origins";
    /// On a Secret with credentials for a Git server: the repositories that AgentBuilds may read with it, as URLs with commas between. Each is
    /// a whole URL, or the beginning of one.
    pub const REPOSITORIES: &str = "convoke.dev/repositories";
    /// On a Secret with credentials for a registry: the registries that get them, separated by commas, each with or without the beginning
    /// of a path.
    pub const REGISTRIES: &str = "convoke.dev/registries";
    /// Annotation on a Deployment: the AgentBuild that made its image.
    pub const BUILD: &str = "convoke.dev/build";
    /// On an AgentBuild: any new value starts a build, whatever was built before.
    pub const REBUILD: &str = "convoke.dev/rebuild";
    /// On an AgentBuild: the build key whose build is stopped.
    pub const CANCEL: &str = "convoke.dev/cancel";
    /// On an Agent or MCPServer with `buildRef`: any new value rolls out again what was gone back from.
    pub const RETRY: &str = "convoke.dev/retry";
    /// Label by which a ConfigMap or Secret may be used by agents, with the value [`ALLOW`].
    pub const AGENTS: &str = "convoke.dev/agents";
    /// The only value of [`PRUNE`] and [`RECONCILE`] that has an effect.
    pub const DISABLED: &str = "disabled";
    /// The value of [`AGENTS`].
    pub const ALLOW: &str = "allow";
    /// The one annotation of ours that a document in Git may carry.
    pub const FROM_GIT: &[&str] = &[PRUNE];
}

/// Every CRD of ours, in the order in which `convoke crds` prints them.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds =
        vec![GitSync::crd(), ModelAPI::crd(), MCPServer::crd(), AgentBuild::crd(), Agent::crd()];
    for crd in &mut crds {
        common::finish(crd);
    }
    crds
}
