//! (pure) The annotations of a Deployment that tell which keys its pods read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

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

/// How many earlier keys a Deployment tells of.
const MOST_BEFORE: usize = 3;

/// A key that pods of an agent read before it moved to another ModelAPI. Its proxy takes it until the pods have been replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBefore {
    /// The ModelAPI whose proxy takes it.
    pub proxy: String,
    /// When it was issued, in Unix seconds.
    pub issued: i64,
}

impl KeyBefore {
    /// The keys that pods of a live Deployment may still read besides the one for the proxy `wanted`, the oldest first. `is_settled` tells
    /// whether no pods of an earlier revision run.
    #[must_use]
    pub fn of(
        live: &Child<Deployment>,
        wanted: Option<&str>,
        is_settled: impl FnOnce() -> bool,
    ) -> Vec<Self> {
        let mut all: Vec<_> = live.keys_before().collect();
        if !all.is_empty() && is_settled() {
            all.clear();
        }
        all.extend(live.key_proxy().zip(live.issued()));
        all.retain(|(proxy, _)| wanted != Some(*proxy));
        let mut seen = BTreeSet::new();
        all.retain(|(proxy, _)| seen.insert(*proxy));
        // The pods that serve are the oldest, if a rollout hangs.
        all.truncate(MOST_BEFORE);
        all.into_iter().map(|(proxy, issued)| Self { proxy: proxy.to_owned(), issued }).collect()
    }

    /// The metadata of a Deployment, some of whose pods may still read these keys.
    #[must_use]
    pub fn mark(all: &[Self], mut meta: ObjectMeta) -> ObjectMeta {
        if !all.is_empty() {
            let texts: Vec<_> =
                all.iter().map(|Self { proxy, issued }| format!("{proxy}.{issued}")).collect();
            let annotations = meta.annotations.get_or_insert_default();
            annotations.insert(keys::KEY_BEFORE.to_owned(), texts.join(","));
        }
        meta
    }
}

#[cfg(test)]
#[path = "tests/key_marks.rs"]
mod tests;
