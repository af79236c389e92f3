//! (pure) The annotations of a Deployment that tell which keys its pods read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::apps::v1::Deployment;

use crate::api::keys;
use crate::cluster::children::Child;
use crate::cluster::meta;

/// Which keys the pods of a Deployment read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMarks {
    /// The digest of the keys. Pods have it too, so other keys replace them.
    pub digest: String,
    /// When the key of an agent was issued, in Unix seconds.
    pub issued: Option<i64>,
    /// The ModelAPI whose proxy takes the key of an agent.
    pub proxy: Option<String>,
}

impl KeyMarks {
    /// The marks that a live Deployment has.
    #[must_use]
    pub fn of(live: &Child<Deployment>) -> Option<Self> {
        let digest = live.key_digest()?.to_owned();
        let proxy = live.key_proxy().map(str::to_owned);
        Some(Self { digest, issued: live.issued(), proxy })
    }

    /// Marks a Deployment.
    #[must_use]
    pub fn put(&self, mut deployment: Deployment) -> Deployment {
        let annotations = deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::KEY_DIGEST.to_owned(), self.digest.clone());
        let issued = self.issued.map(|issued| (keys::KEY_ISSUED.to_owned(), issued.to_string()));
        let proxy = self.proxy.iter().map(|proxy| (keys::KEY_PROXY.to_owned(), proxy.clone()));
        annotations.extend(issued.into_iter().chain(proxy));
        if let Some(spec) = &mut deployment.spec {
            let pods = spec.template.metadata.get_or_insert_default();
            let annotations = pods.annotations.get_or_insert_default();
            annotations.insert(keys::KEY_DIGEST.to_owned(), self.digest.clone());
        }
        meta::with_hash(deployment)
    }
}

#[cfg(test)]
#[path = "tests/key_marks.rs"]
mod tests;
