//! What a store keeps of an object of the API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::store::{Entry, Key};

/// What a store keeps of an object of type `K`.
pub trait View: Send + Sync + Sized + 'static {
    /// The API type that is watched.
    type Object: Resource + DeserializeOwned + Send + 'static;
    /// Takes what is worth keeping.
    fn of(object: Self::Object) -> Self;
    /// Reads the JSON text of an object.
    ///
    /// # Errors
    /// When it is none.
    fn read(text: &str) -> serde_json::Result<(Key, Entry<Self>)> {
        serde_json::from_str(text).map(entry::<Self>)
    }
}

/// Turns an object into a store entry.
pub fn entry<V: View>(object: V::Object) -> (Key, Entry<V>) {
    entry_of(object, V::of)
}

/// The same for what is kept by `view` instead of a [`View`].
pub fn entry_of<K: Resource, V>(object: K, view: impl Fn(K) -> V) -> (Key, Entry<V>) {
    let (key, uid, version) = identity(object.meta());
    (key, Entry { uid, version, value: view(object) })
}

/// Which object in which version: key, UID, version as a number.
#[must_use]
pub fn identity(meta: &ObjectMeta) -> (Key, String, u64) {
    let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
    (Key::of(meta), meta.uid.clone().unwrap_or_default(), version)
}

/// The metadata of any object, whole.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// `metadata`
    pub metadata: ObjectMeta,
}
