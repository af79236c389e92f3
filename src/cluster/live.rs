//! What the stores keep of our own kinds, and the view of them that the sync engine plans with.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::reflector::View;
use super::store::{Entry, Key, Store};
use crate::api::{Agent, AgentBuild, GitSync, Kind, MCPServer, ModelAPI, keys};

/// Hash of a spec in canonical form.
pub type SpecHash = [u8; 32];

/// Hash of a JSON value; object keys are sorted (serde_json's map is a BTreeMap).
#[must_use]
pub fn hash_json(value: &serde_json::Value) -> SpecHash {
    Sha256::digest(value.to_string().as_bytes()).into()
}

/// A kind of ours: gives access to its spec and conditions.
pub trait Ours:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    /// The spec in canonical form: as the typed struct writes it.
    fn spec_json(&self) -> serde_json::Value;
    /// The status conditions.
    fn conditions(&self) -> &[Condition];
}

macro_rules! ours {
    ($($kind:ty),*) => {$(
        impl Ours for $kind {
            fn spec_json(&self) -> serde_json::Value {
                // Specs are plain data with string keys: writing them cannot fail.
                serde_json::to_value(&self.spec).unwrap_or_default()
            }
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |s| s.conditions.as_slice())
            }
        }
    )*};
}
ours!(GitSync, Agent, ModelAPI, MCPServer, AgentBuild);

/// An object of ours as a store keeps it.
#[derive(Debug)]
pub struct Managed<K> {
    /// Metadata without managed fields.
    pub meta: ObjectMeta,
    /// The typed object, or why it does not parse (one malformed object never stops a watch).
    pub object: Result<Arc<K>, String>,
    /// Hash of the canonical spec; `None` when it does not parse.
    pub spec_hash: Option<SpecHash>,
}

impl<K: Ours> Managed<K> {
    /// The typed object, if it parses.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<K>> {
        self.object.as_ref().ok()
    }

    /// Whether nothing that a reconcile reads differs: only the status, or metadata of others, may.
    #[must_use]
    pub fn same_input(&self, other: &Self) -> bool {
        let (a, b) = (&self.meta, &other.meta);
        a.uid == b.uid
            && a.generation == b.generation
            && a.annotations == b.annotations
            && a.deletion_timestamp == b.deletion_timestamp
    }

    /// Whether the condition `Ready` is true for the current generation.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.object().is_some_and(|o| {
            o.conditions().iter().any(|c| {
                c.type_ == "Ready"
                    && c.status == "True"
                    && c.observed_generation.is_none_or(|g| Some(g) == self.meta.generation)
            })
        })
    }
}

impl<K: Ours> View for Managed<K> {
    type Object = DeserializeGuard<K>;

    fn of(DeserializeGuard(object): DeserializeGuard<K>) -> Self {
        match object {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                let spec_hash = Some(hash_json(&object.spec_json()));
                Self { meta: object.meta().clone(), object: Ok(Arc::new(object)), spec_hash }
            }
            Err(InvalidObject { error, mut metadata }) => {
                metadata.managed_fields = None;
                Self { meta: metadata, object: Err(error), spec_hash: None }
            }
        }
    }
}

/// One live object, as the engine sees it, whatever its kind.
#[derive(Debug, Clone)]
pub struct Live {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// Metadata without managed fields.
    pub meta: Arc<ObjectMeta>,
    /// Hash of the canonical spec.
    pub spec_hash: Option<SpecHash>,
    /// Whether it is Ready.
    pub ready: bool,
}

impl Live {
    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The file that it came from: `convoke.dev/source` without the line.
    #[must_use]
    pub fn source_path(&self) -> Option<&str> {
        self.annotation(keys::SOURCE)?.rsplit_once(':').map(|(path, _)| path)
    }
}

/// A store of one of the synced kinds.
pub trait ManagedStore: Send + Sync {
    /// All live objects of one namespace.
    fn live(&self, namespace: &str) -> Vec<Live>;
    /// The reply to a write of ours, as JSON. Gives the version and the spec's hash of just this reply.
    fn wrote_json(&self, object: serde_json::Value) -> (u64, Option<SpecHash>);
    /// The reply to a delete of ours.
    fn deleted_uid(&self, key: &Key, uid: &str);
}

fn live_of<K: Ours>(key: &Key, entry: &Entry<Managed<K>>) -> Live {
    Live {
        name: key.name.clone(),
        uid: entry.uid.clone(),
        version: entry.version,
        meta: Arc::new(entry.value.meta.clone()),
        spec_hash: entry.value.spec_hash,
        ready: entry.value.is_ready(),
    }
}

impl<K: Ours> ManagedStore for Store<Managed<K>> {
    fn live(&self, namespace: &str) -> Vec<Live> {
        self.list(namespace).iter().map(|(key, entry)| live_of(key, entry)).collect()
    }

    fn wrote_json(&self, object: serde_json::Value) -> (u64, Option<SpecHash>) {
        let Ok(object) = serde_json::from_value::<DeserializeGuard<K>>(object) else {
            return (0, None);
        };
        let (key, entry) = super::reflector::entry::<Managed<K>>(object);
        let seen = (entry.version, entry.value.spec_hash);
        self.wrote(key, entry);
        seen
    }

    fn deleted_uid(&self, key: &Key, uid: &str) {
        self.deleted(key, uid);
    }
}

/// The stores of our own kinds: one watch each, shared by the sync engine and the controllers.
#[derive(Clone)]
pub struct Stores {
    /// GitSyncs.
    pub git_syncs: Arc<Store<Managed<GitSync>>>,
    /// ModelAPIs.
    pub model_apis: Arc<Store<Managed<ModelAPI>>>,
    /// MCPServers.
    pub mcp_servers: Arc<Store<Managed<MCPServer>>>,
    /// AgentBuilds.
    pub agent_builds: Arc<Store<Managed<AgentBuild>>>,
    /// Agents.
    pub agents: Arc<Store<Managed<Agent>>>,
}

impl Stores {
    /// Empty stores.
    #[must_use]
    pub fn new() -> Self {
        Self {
            git_syncs: Store::new("GitSync"),
            model_apis: Store::new("ModelAPI"),
            mcp_servers: Store::new("MCPServer"),
            agent_builds: Store::new("AgentBuild"),
            agents: Store::new("Agent"),
        }
    }

    /// The store of one synced kind.
    #[must_use]
    pub fn managed(&self, kind: Kind) -> &dyn ManagedStore {
        match kind {
            Kind::ModelAPI => self.model_apis.as_ref(),
            Kind::MCPServer => self.mcp_servers.as_ref(),
            Kind::AgentBuild => self.agent_builds.as_ref(),
            Kind::Agent => self.agents.as_ref(),
        }
    }

    /// Waits until every store has read a first complete list.
    pub async fn wait_ready(&self) {
        let Self { git_syncs, model_apis, mcp_servers, agent_builds, agents } = self;
        git_syncs.wait_ready().await;
        model_apis.wait_ready().await;
        mcp_servers.wait_ready().await;
        agent_builds.wait_ready().await;
        agents.wait_ready().await;
    }

    /// Kinds whose first list is not complete yet.
    #[must_use]
    pub fn pending(&self) -> Vec<&'static str> {
        let Self { git_syncs, model_apis, mcp_servers, agent_builds, agents } = self;
        let mut pending = Vec::new();
        for (kind, ready) in [
            (git_syncs.kind, git_syncs.is_ready()),
            (model_apis.kind, model_apis.is_ready()),
            (mcp_servers.kind, mcp_servers.is_ready()),
            (agent_builds.kind, agent_builds.is_ready()),
            (agents.kind, agents.is_ready()),
        ] {
            if !ready {
                pending.push(kind);
            }
        }
        pending
    }
}

impl Default for Stores {
    fn default() -> Self {
        Self::new()
    }
}
