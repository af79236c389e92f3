//! The stores of our own kinds, and the objects in them that the sync engine plans with.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use kube::core::{DeserializeGuard, DynamicObject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::store::{Entry, Health, Key, SILENT_AFTER, Store};
use super::view::{Metadata, View, entry};
use crate::api::common::NameRef;
use crate::api::{Agent, AgentBuild, GitSync, Kind, MCPServer, ModelAPI, ObjectId, keys};
use crate::packed::{Family, Packed, Pairs, Texts};

/// Hash of a spec in canonical form.
pub type SpecHash = [u8; 32];

/// Hash of a JSON value; object keys are sorted (serde_json's map is a BTreeMap).
#[must_use]
pub fn hash_json(value: &serde_json::Value) -> SpecHash {
    // Values have string keys: writing them cannot fail. Their `Display` takes several times as long.
    Sha256::digest(serde_json::to_vec(value).unwrap_or_default()).into()
}

/// A kind of our API group.
pub trait Ours:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    /// The sample that objects of the kind are packed with. `None`: stores keep them unpacked. Kinds with many objects that
    /// are rarely read are packed.
    fn family() -> Option<&'static Family>;
    /// The spec in canonical form: as the typed struct writes it.
    fn spec_json(&self) -> serde_json::Value;
    /// The status conditions.
    fn conditions(&self) -> &[Condition];
    /// The objects that it refers to.
    fn references(&self) -> Vec<ObjectId>;
}

macro_rules! ours {
    ($($kind:ty, packed: $packed:literal, |$spec:ident| $references:expr;)*) => {$(
        impl Ours for $kind {
            fn family() -> Option<&'static Family> {
                static FAMILY: Family = Family::new();
                $packed.then_some(&FAMILY)
            }
            fn spec_json(&self) -> serde_json::Value {
                // Specs are plain data with string keys: writing them cannot fail.
                serde_json::to_value(&self.spec).unwrap_or_default()
            }
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |s| s.conditions.as_slice())
            }
            fn references(&self) -> Vec<ObjectId> {
                let $spec = &self.spec;
                $references
            }
        }
    )*};
}
ours! {
    GitSync, packed: false, |_spec| Vec::new();
    ModelAPI, packed: false, |_spec| Vec::new();
    AgentBuild, packed: true, |_spec| Vec::new();
    MCPServer, packed: true, |spec| builds(spec.build_ref.as_ref());
    Agent, packed: true, |spec| {
        let mut names = builds(spec.build_ref.as_ref());
        names.push(ObjectId::new(Kind::ModelAPI, &*spec.model_api.name));
        names.extend(spec.mcp_servers.iter().map(|to| ObjectId::new(Kind::MCPServer, &*to.name)));
        let peers = spec.agent_network.iter().flat_map(|network| &network.access);
        names.extend(peers.map(|name| ObjectId::new(Kind::Agent, &**name)));
        names
    };
}

fn builds(reference: Option<&NameRef>) -> Vec<ObjectId> {
    reference.map(|build| ObjectId::new(Kind::AgentBuild, &*build.name)).into_iter().collect()
}

/// The properties of an object that are read most often, whatever its kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `metadata.labels`.
    pub labels: Pairs,
    /// `metadata.annotations`.
    pub annotations: Pairs,
    /// Hash of the canonical spec. `None`: the object cannot be parsed.
    pub spec_hash: Option<SpecHash>,
    /// Hash of the canonical spec without `replicas`, which `kubectl scale` and autoscalers may set. `None`: it has no
    /// `replicas`.
    pub unscaled_hash: Option<Box<SpecHash>>,
    /// Whether the condition `Ready` is true for the current generation.
    pub ready: bool,
    /// `metadata.finalizers`.
    pub finalizers: Box<[String]>,
}

impl Facts {
    /// The file that it came from: `convoke.dev/source` without the line.
    #[must_use]
    pub fn source_path(&self) -> Option<&str> {
        self.annotations.get(keys::SOURCE)?.rsplit_once(':').map(|(path, _)| path)
    }

    /// Whether everything that a plan reads is the same. The status may differ.
    #[must_use]
    pub fn same_plan(&self, other: &Self) -> bool {
        self.spec_hash == other.spec_hash
            && self.labels == other.labels
            && self.annotations == other.annotations
            && self.deleting == other.deleting
            // While an object is being deleted, the status of its GitSync lists its finalizers.
            && (!self.deleting || self.finalizers == other.finalizers)
    }

    /// Whether everything that a reconcile reads is the same. Status and labels may differ.
    #[must_use]
    pub fn same_input(&self, other: &Self) -> bool {
        self.generation == other.generation
            && self.annotations == other.annotations
            && self.deleting == other.deleting
    }
}

/// How the store keeps an object.
#[derive(Debug)]
enum Body<K> {
    Typed(Arc<K>),
    Packed(Packed),
}

/// An object of ours as a store keeps it.
#[derive(Debug)]
pub struct Managed<K> {
    /// The properties that are read most often.
    pub facts: Facts,
    /// The objects that it refers to, as terms of its store.
    terms: Texts,
    /// The object without managed fields, or why it cannot be parsed. A malformed object does not stop the watch.
    body: Result<Body<K>, Box<str>>,
}

impl<K: Ours> Managed<K> {
    /// The typed object, if it parses.
    #[must_use]
    pub fn object(&self) -> Option<Arc<K>> {
        match self.body.as_ref().ok()? {
            Body::Typed(object) => Some(object.clone()),
            Body::Packed(packed) => packed.get().map(Arc::new),
        }
    }

    /// Why it cannot be parsed.
    #[must_use]
    pub fn parse_error(&self) -> Option<&str> {
        self.body.as_ref().err().map(AsRef::as_ref)
    }

    /// Whether the condition `Ready` is true for the current generation.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.facts.ready
    }

    fn terms(&self) -> Vec<String> {
        self.terms.iter().map(str::to_owned).collect()
    }

    /// The entry of an object that the server has answered with. The object is not copied.
    #[must_use]
    pub fn answered(object: DynamicObject) -> (Key, Entry<Self>) {
        let DynamicObject { metadata, mut data, .. } = object;
        if let Some(data) = data.as_object_mut() {
            // The type needs metadata. The real one is put in below.
            data.insert("metadata".into(), serde_json::Map::new().into());
        }
        entry::<Self>(DeserializeGuard(match K::deserialize(data) {
            Ok(mut object) => {
                *object.meta_mut() = metadata;
                Ok(object)
            }
            Err(error) => Err(InvalidObject { error: error.to_string(), metadata }),
        }))
    }
}

fn is_ready(object: &impl Ours) -> bool {
    object.conditions().iter().any(|c| {
        c.type_ == "Ready"
            && c.status == "True"
            && c.observed_generation.is_none_or(|g| Some(g) == object.meta().generation)
    })
}

impl<K: Ours> View for Managed<K> {
    type Object = DeserializeGuard<K>;

    fn read(text: &str) -> serde_json::Result<(Key, Entry<Self>)> {
        // Not with `DeserializeGuard::deserialize`: it keeps two copies for the case that the object cannot be parsed.
        let object = match serde_json::from_str(text) {
            Ok(object) => Ok(object),
            Err(error) => {
                let Metadata { metadata } = serde_json::from_str(text)?;
                Err(InvalidObject { error: error.to_string(), metadata })
            }
        };
        Ok(entry::<Self>(DeserializeGuard(object)))
    }

    fn of(DeserializeGuard(object): DeserializeGuard<K>) -> Self {
        let facts = |meta: &ObjectMeta| Facts {
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            labels: Pairs::of(meta.labels.as_ref()),
            annotations: Pairs::of(meta.annotations.as_ref()),
            spec_hash: None,
            unscaled_hash: None,
            ready: false,
            finalizers: meta.finalizers.clone().unwrap_or_default().into(),
        };
        match object {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                let mut facts = facts(object.meta());
                let mut spec = object.spec_json();
                facts.spec_hash = Some(hash_json(&spec));
                let replicas = spec.as_object_mut().and_then(|spec| spec.remove("replicas"));
                facts.unscaled_hash = replicas.map(|_| Box::new(hash_json(&spec)));
                facts.ready = is_ready(&object);
                let terms: Vec<_> = object.references().iter().map(ToString::to_string).collect();
                let terms = Texts::of(terms.iter().map(String::as_str));
                let body = match K::family() {
                    Some(family) => Body::Packed(family.pack(&object)),
                    None => Body::Typed(Arc::new(object)),
                };
                Self { facts, terms, body: Ok(body) }
            }
            Err(InvalidObject { error, metadata }) => {
                Self { facts: facts(&metadata), terms: Texts::default(), body: Err(error.into()) }
            }
        }
    }
}

/// One live object, as the engine sees it, whatever its kind.
pub trait LiveObject: Send + Sync {
    /// `metadata.uid`.
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion`.
    fn version(&self) -> u64;
    /// The properties that a plan reads.
    fn facts(&self) -> &Facts;
}

impl<K: Ours> LiveObject for Entry<Managed<K>> {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn facts(&self) -> &Facts {
        &self.value.facts
    }
}

/// A shared live object.
pub type Live = Arc<dyn LiveObject>;

/// A store of one of the synced kinds.
pub trait ManagedStore: Send + Sync {
    /// One live object.
    fn live(&self, key: &Key) -> Option<Live>;
    /// The names of all live objects of one namespace.
    fn names(&self, namespace: &str) -> Vec<String>;
    /// The reply to a write of ours. Returns the version and the hash of the spec in this reply.
    fn answered(&self, object: DynamicObject) -> (u64, Option<SpecHash>);
    /// The reply to a delete of ours.
    fn deleted_uid(&self, key: &Key, uid: &str);
}

impl<K: Ours> ManagedStore for Store<Managed<K>> {
    fn live(&self, key: &Key) -> Option<Live> {
        self.get(key).map(|entry| entry as Live)
    }

    fn names(&self, namespace: &str) -> Vec<String> {
        Store::names(self, namespace)
    }

    fn answered(&self, object: DynamicObject) -> (u64, Option<SpecHash>) {
        let (key, entry) = Managed::<K>::answered(object);
        let seen = (entry.version, entry.value.facts.spec_hash);
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
        Self::silent_after(SILENT_AFTER)
    }

    /// Empty stores that are silent when their watch has failed for this long.
    #[must_use]
    pub fn silent_after(after: Duration) -> Self {
        Self {
            git_syncs: Store::silent_after("GitSync", Managed::terms, after),
            model_apis: Store::silent_after("ModelAPI", Managed::terms, after),
            mcp_servers: Store::silent_after("MCPServer", Managed::terms, after),
            agent_builds: Store::silent_after("AgentBuild", Managed::terms, after),
            agents: Store::silent_after("Agent", Managed::terms, after),
        }
    }

    fn healths(&self) -> [(&'static str, &Health); 5] {
        let Self { git_syncs, model_apis, mcp_servers, agent_builds, agents } = self;
        [
            (git_syncs.kind, &git_syncs.health),
            (model_apis.kind, &model_apis.health),
            (mcp_servers.kind, &mcp_servers.health),
            (agent_builds.kind, &agent_builds.health),
            (agents.kind, &agents.health),
        ]
    }

    /// The silent kinds, each with since when and why. `None`: no kind is silent.
    #[must_use]
    pub fn silent(&self) -> Option<String> {
        let silent =
            |(kind, health): (&str, &Health)| Some(format!("{kind} {}", health.silence()?));
        let silent: Vec<_> = self.healths().into_iter().filter_map(silent).collect();
        (!silent.is_empty()).then(|| silent.join("; "))
    }

    /// The kinds whose watch fails now, for long or not.
    #[must_use]
    pub fn failing(&self) -> Vec<&'static str> {
        let failing = self.healths().into_iter().filter(|(_, health)| health.is_failing());
        failing.map(|(kind, _)| kind).collect()
    }

    /// Calls `listener` whenever a kind falls silent, and when its watch works again. The listener must not block.
    pub fn on_silence_change(&self, listener: impl Fn() + Clone + Send + Sync + 'static) {
        for (_, health) in self.healths() {
            health.on_silence_change(listener.clone());
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
