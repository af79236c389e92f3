//! Children are the Deployments, Services and ConfigMaps that our objects own, and Secrets with keys. Here are the stores of the
//! first three, and the only code that writes children.
//!
//! Children are watched by our label (`child_watch`). An object without the label, or with another owner, is never changed: if it
//! has the name of a child, that is a conflict (A11). A child that an earlier owner of the same name left is waited for until
//! Kubernetes has deleted it.

pub mod secrets;
mod settled;
mod writer;
mod wrote;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::live::{SpecHash, hash_json};
use super::meta;
use super::projection::covers;
use super::reflector::{View, identity};
use super::store::{Entry, Key, Store};
use crate::api::{Kind, ObjectId, keys};
use crate::packed::{Family, Packed, Texts};
use convoke_core::cluster::view::Metadata;

pub use writer::{Brought, ChildWriter};
pub use wrote::Wrote;

/// A kind of children.
pub trait ChildKind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
    /// Compresses the objects of the kind, which look alike. `None` for a kind whose objects are only compared: a digest is
    /// kept then.
    fn family() -> Option<&'static Family>;
}

macro_rules! child_kinds {
    ($($kind:ty),*) => {$(
        impl ChildKind for $kind {
            fn family() -> Option<&'static Family> {
                static FAMILY: Family = Family::new();
                Some(&FAMILY)
            }
        }
    )*};
}
child_kinds!(Deployment, Service);

impl ChildKind for ConfigMap {
    fn family() -> Option<&'static Family> {
        None
    }
}

/// The content of a child that is kept, without managed fields.
#[derive(Debug)]
enum Content {
    /// The whole object, compressed.
    Whole(Packed),
    /// A digest of what is compared; see [`digest`].
    Digest(SpecHash),
    /// Nothing, because the content does not fit into the namespace's limit.
    None,
}

/// A child as its store keeps it.
#[derive(Debug)]
pub struct Child<K> {
    /// Texts at the places [`OWNER_KIND`] to [`KEY_BEFORE`]. A missing one is empty.
    about: Texts,
    /// Whether it is being deleted.
    deleting: bool,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Whether this version was compared with the wanted object of the same hash, and was as wanted.
    is_as_wanted: AtomicBool,
    content: Content,
    kind: PhantomData<fn() -> K>,
}

/// Places in [`Child::about`]: the controlling owner's kind, name and UID, the label [`keys::OWNER_KIND`], the
/// annotations [`keys::CHILD_HASH`], [`keys::KEY_ISSUED`], [`keys::KEY_DIGEST`], [`keys::KEY_PROXY`] and [`keys::KEY_BEFORE`].
const OWNER_KIND: usize = 0;
const OWNER_NAME: usize = 1;
const OWNER_UID: usize = 2;
const LABEL: usize = 3;
const HASH: usize = 4;
const ISSUED: usize = 5;
const KEY_DIGEST: usize = 6;
const KEY_PROXY: usize = 7;
const KEY_BEFORE: usize = 8;

/// Bytes of the longest text that may be one of our hashes or digests, a time, a name, or some names with times.
const MAX_HASH_BYTES: usize = 256;
/// The latest time at which a key may be issued, in Unix seconds. Later ones have more digits than a key may have.
const LAST_ISSUED: i64 = 999_999_999_999;

/// When a key was issued, in Unix seconds, if a text says so.
fn issued(text: &str) -> Option<i64> {
    text.parse().ok().filter(|issued| (1..=LAST_ISSUED).contains(issued))
}

impl<K: ChildKind> Child<K> {
    fn about(&self, place: usize) -> Option<&str> {
        self.about.get(place).filter(|text| !text.is_empty())
    }

    /// The label [`keys::OWNER_KIND`].
    #[must_use]
    pub fn kind_label(&self) -> Option<&str> {
        self.about(LABEL)
    }

    /// UID of the controlling owner.
    #[must_use]
    pub fn owner_uid(&self) -> Option<&str> {
        self.about(OWNER_UID)
    }

    /// The index terms of a child: the UID of its owner, and the ModelAPIs whose proxies take a key of its pods.
    fn terms(&self) -> Vec<String> {
        let owner = self.owner_uid().map(str::to_owned);
        let before = self.keys_before().map(|(name, _)| name);
        let proxies = self.key_proxy().into_iter().chain(before);
        let proxies = proxies.map(|name| ObjectId::new(Kind::ModelAPI, name).to_string());
        owner.into_iter().chain(proxies).collect()
    }

    /// Name of the controlling owner.
    #[must_use]
    pub fn owner_name(&self) -> Option<&str> {
        self.about(OWNER_NAME)
    }

    /// Kind of the controlling owner.
    #[must_use]
    pub fn owner_kind(&self) -> Option<&str> {
        self.about(OWNER_KIND)
    }

    /// When the key was issued with which the pods ask their model, in Unix seconds: the annotation [`keys::KEY_ISSUED`].
    #[must_use]
    pub fn issued(&self) -> Option<i64> {
        issued(self.about(ISSUED)?)
    }

    /// The digest of the keys that the pods read: the annotation [`keys::KEY_DIGEST`].
    #[must_use]
    pub fn key_digest(&self) -> Option<&str> {
        self.about(KEY_DIGEST)
    }

    /// The ModelAPI whose proxy takes the key of the pods: the annotation [`keys::KEY_PROXY`].
    #[must_use]
    pub fn key_proxy(&self) -> Option<&str> {
        self.about(KEY_PROXY)
    }

    /// The ModelAPIs whose keys pods read that are not replaced yet, and when each key was issued: the annotation
    /// [`keys::KEY_BEFORE`].
    pub fn keys_before(&self) -> impl Iterator<Item = (&str, i64)> {
        let all = self.about(KEY_BEFORE).unwrap_or_default().split(',');
        all.filter_map(|one| one.rsplit_once('.'))
            .filter_map(|(name, at)| Some((name, issued(at)?)))
    }

    /// Whether an earlier owner of the same kind and name has left this child. A name belongs to one object at a time, so the
    /// earlier owner is gone, and Kubernetes deletes what it owned.
    fn is_left_by_namesake(&self, owner: &OwnerReference) -> bool {
        self.owner_kind() == Some(owner.kind.as_str())
            && self.owner_name() == Some(owner.name.as_str())
            && self.owner_uid().is_some_and(|uid| uid != owner.uid)
    }

    /// The whole object, if it is kept.
    #[must_use]
    pub fn object(&self) -> Option<K> {
        match &self.content {
            Content::Whole(object) => object.get(),
            Content::Digest(_) | Content::None => None,
        }
    }

    /// Bytes of the content. The rest has about the same size for all children, and is not counted.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match &self.content {
            Content::Whole(object) => object.bytes(),
            Content::Digest(_) | Content::None => 0,
        }
    }

    /// Drops the content, which does not fit into the limit.
    pub fn forget_content(&mut self) {
        self.content = Content::None;
    }

    /// The entry of an object with this JSON text and this metadata, which the caller has parsed.
    pub(super) fn entry(meta: &ObjectMeta, text: &str) -> serde_json::Result<Entry<Self>> {
        let content = match K::family() {
            Some(family) => Content::Whole(family.pack_text(text.as_bytes())),
            None => Content::Digest(digest(serde_json::from_str(text)?)),
        };
        let (_, uid, version) = identity(meta);
        Ok(Entry { uid, version, value: Self::new(meta, content) })
    }

    fn new(meta: &ObjectMeta, content: Content) -> Self {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true));
        let [kind, name, uid] = owner.map_or([""; 3], |owner| {
            [owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()]
        });
        let text = |map: &'_ Option<BTreeMap<String, String>>, name| {
            map.as_ref().and_then(|map| map.get(name)).cloned().unwrap_or_default()
        };
        let label = text(&meta.labels, keys::OWNER_KIND);
        let names = [
            keys::CHILD_HASH,
            keys::KEY_ISSUED,
            keys::KEY_DIGEST,
            keys::KEY_PROXY,
            keys::KEY_BEFORE,
        ];
        let [hash, issued, digest, proxy, before] = names.map(|name| {
            let mut short = text(&meta.annotations, name);
            if short.len() > MAX_HASH_BYTES {
                short.clear();
            }
            short
        });
        Self {
            about: Texts::of([kind, name, uid, &label, &hash, &issued, &digest, &proxy, &before]),
            deleting: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            is_as_wanted: AtomicBool::new(false),
            content,
            kind: PhantomData,
        }
    }

    /// Whether the child has the hash of the wanted object, and every field of it with the same value.
    fn is_like(&self, desired: &K, hash: &str) -> bool {
        if self.about(HASH) != Some(hash) {
            return false;
        }
        if self.is_as_wanted.load(Ordering::Relaxed) {
            return true;
        }
        let equal = match &self.content {
            Content::Whole(live) => {
                let live = live.json();
                let has = &live["metadata"]["labels"];
                let mut labels = desired.meta().labels.iter().flatten();
                labels.all(|(name, value)| has[name].as_str() == Some(value.as_str()))
                    && covers(&body(live), &body(value_of(desired)))
            }
            Content::Digest(live) => *live == digest(value_of(desired)),
            Content::None => false,
        };
        if equal {
            self.is_as_wanted.store(true, Ordering::Relaxed);
        }
        equal
    }
}

impl<K: ChildKind> View for Child<K> {
    type Object = K;

    fn of(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        let content = match K::family() {
            Some(family) => Content::Whole(family.pack(&object)),
            None => Content::Digest(digest(value_of(&object))),
        };
        Self::new(object.meta(), content)
    }

    // Only the metadata is parsed. The rest of the object is needed rarely, and is parsed then.
    fn read(text: &str) -> serde_json::Result<(Key, Entry<Self>)> {
        let Metadata { metadata } = serde_json::from_str(text)?;
        Ok((Key::of(&metadata), Self::entry(&metadata, text)?))
    }
}

fn value_of(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// A hash of our labels and of the [`body`]. It fits kinds to which nobody adds fields. Empty fields equal absent ones.
fn digest(object: Value) -> SpecHash {
    let ours = meta::labels(Kind::Agent, "");
    let mut labels = object["metadata"]["labels"].clone();
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|name, _| ours.contains_key(name));
    }
    let mut body = body(object);
    if let Some(map) = body.as_object_mut() {
        map.retain(|_, value| !covers(&Value::Null, value));
    }
    hash_json(&json!([labels, body]))
}

/// An object without its identity, metadata and status.
fn body(mut body: Value) -> Value {
    if let Some(map) = body.as_object_mut() {
        for key in ["apiVersion", "kind", "metadata", "status"] {
            map.remove(key);
        }
    }
    body
}

/// The stores of children, one for each kind. All controllers share them.
#[derive(Clone)]
pub struct ChildStores {
    /// Deployments with our label.
    pub deployments: Arc<Store<Child<Deployment>>>,
    /// Services with our label.
    pub services: Arc<Store<Child<Service>>>,
    /// ConfigMaps with our label.
    pub config_maps: Arc<Store<Child<ConfigMap>>>,
}

impl ChildStores {
    /// Empty stores.
    #[must_use]
    pub fn new() -> Self {
        Self {
            deployments: Store::indexed("Deployment", Child::terms),
            services: Store::indexed("Service", Child::terms),
            config_maps: Store::indexed("ConfigMap", Child::terms),
        }
    }

    /// Whether this Service exists and belongs to this owner. Only then its address leads to the owner.
    #[must_use]
    pub fn has_service(&self, owner_uid: &str, key: &Key) -> bool {
        self.services.get(key).is_some_and(|entry| entry.value.owner_uid() == Some(owner_uid))
    }

    /// Waits until the first list of every kind is complete.
    pub async fn wait_ready(&self) {
        let Self { deployments, services, config_maps } = self;
        deployments.wait_ready().await;
        services.wait_ready().await;
        config_maps.wait_ready().await;
    }

    /// Kinds whose first list is not complete yet.
    #[must_use]
    pub fn pending(&self) -> Vec<&'static str> {
        let Self { deployments, services, config_maps } = self;
        let all = [
            (deployments.kind, deployments.is_ready()),
            (services.kind, services.is_ready()),
            (config_maps.kind, config_maps.is_ready()),
        ];
        all.into_iter().filter(|(_, ready)| !ready).map(|(kind, _)| kind).collect()
    }
}

impl Default for ChildStores {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "tests/children.rs"]
mod tests;
