//! (pure) ConfigMaps and Secrets as a watch shows them. Their values cannot be printed, and are dropped once they are hashed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use super::digest::{Digests, MacKey};
use crate::cluster::hidden::Hidden;

/// A Secret with the fields that are hashed.
#[derive(Clone, Deserialize, Resource)]
#[resource(inherit = "Secret")]
pub struct WatchedSecret {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, Hidden<ByteString>>,
}

/// A ConfigMap with the fields that are hashed.
#[derive(Clone, Deserialize, Resource)]
#[resource(inherit = "ConfigMap")]
#[serde(rename_all = "camelCase")]
pub struct WatchedConfigMap {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, Hidden<String>>,
    #[serde(default)]
    binary_data: BTreeMap<String, Hidden<ByteString>>,
}

// Annotations are not shown either: `kubectl apply` leaves a copy of the data there.
impl fmt::Debug for WatchedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:?})", self.metadata.name)
    }
}

impl fmt::Debug for WatchedConfigMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigMap({:?})", self.metadata.name)
    }
}

impl WatchedSecret {
    /// The digests of its values.
    #[must_use]
    pub fn digests(self, key: &MacKey) -> Digests {
        key.digests(self.data.iter().map(|(name, value)| (name.clone(), value.get().0.as_slice())))
    }

    /// The value of one key.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.data.get(name).map(|value| value.get().0.as_slice())
    }
}

impl WatchedConfigMap {
    /// The digests of its values.
    #[must_use]
    pub fn digests(self, key: &MacKey) -> Digests {
        let text = self.data.iter().map(|(name, value)| (name.clone(), value.get().as_bytes()));
        let binary = self.binary_data.iter();
        let binary = binary.map(|(name, value)| (name.clone(), value.get().0.as_slice()));
        key.digests(text.chain(binary))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a5_what_arrives_is_read_and_never_printed() {
        let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": "canary"});
        let meta = json!({"name": "n", "annotations": copy});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": {"k": "Y2FuYXJ5"}});
        let secret: WatchedSecret = serde_json::from_value(secret).expect("secret");
        assert_eq!(secret.value("k"), Some(&b"canary"[..]));
        assert_eq!(format!("{secret:?} {:?}", secret.data), "Secret(Some(\"n\")) {\"k\": …}");
        let map =
            json!({"metadata": meta, "data": {"t": "canary"}, "binaryData": {"k": "Y2FuYXJ5"}});
        let map: WatchedConfigMap = serde_json::from_value(map).expect("map");
        assert!(!format!("{map:?}").contains("canary"));
        let key = MacKey::new(&[7; 32]);
        let expected =
            key.digests([("t".to_owned(), &b"canary"[..]), ("k".to_owned(), &b"canary"[..])]);
        assert!(map.digests(&key) == expected);
    }
}
