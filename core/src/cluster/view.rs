//! The part of an API object that a store keeps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::store::{Entry, Key};

/// The part of an API object that a store keeps.
pub trait View: Send + Sync + Sized + 'static {
    /// The API type that is watched.
    type Object: Resource + DeserializeOwned + Send + 'static;
    /// The part of an object that is kept.
    fn of(object: Self::Object) -> Self;
    /// Reads the JSON text of an object.
    ///
    /// # Errors
    /// When the text is not an object of this type.
    fn read(text: &str) -> serde_json::Result<(Key, Entry<Self>)> {
        serde_json::from_str(text).map(entry::<Self>)
    }
}

/// Turns an object into a store entry.
pub fn entry<V: View>(object: V::Object) -> (Key, Entry<V>) {
    entry_of(object, V::of)
}

/// Turns an object into a store entry, with a function instead of a [`View`].
pub fn entry_of<K: Resource, V>(object: K, view: impl Fn(K) -> V) -> (Key, Entry<V>) {
    let (key, uid, version) = identity(object.meta());
    (key, Entry { uid, version, value: view(object) })
}

/// Key, UID and version of an object. A version that is no number is 0.
#[must_use]
pub fn identity(meta: &ObjectMeta) -> (Key, String, u64) {
    let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
    (Key::of(meta), meta.uid.clone().unwrap_or_default(), version)
}

/// Any object, of which only the metadata is read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// `metadata`
    pub metadata: ObjectMeta,
}
