//! What registries were asked, so that no question is asked again and again. All of it is in memory: a restart begins anew.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::key::BuildKey;
use crate::cluster::store::Key;

/// How long a registry that did not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(60);
/// The most registries that are known to be silent.
const MAX_SILENT: usize = 1000;

/// With so many silent registries, no registry of a namespace is asked.
const MAX_SILENT_OF_NAMESPACE: usize = 3;

/// A registry, as the builds of one namespace ask it. What one namespace says of a registry holds for no other: its credentials may be why.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The namespace.
    pub namespace: String,
    /// The registry host.
    pub registry: String,
    /// Whether it is asked over plain HTTP.
    pub plain_http: bool,
}

/// The questions of all builds.
#[derive(Debug, Default)]
pub struct Questions {
    /// For each build its UID, and the key about which a registry has answered: one at most.
    answered: Mutex<HashMap<Key, (String, BuildKey)>>,
    silent: Mutex<HashMap<Asked, Instant>>,
}

impl Questions {
    /// Whether a registry has said already that it has no image for this key.
    pub fn is_answered(&self, build: &Key, uid: &str, key: &BuildKey) -> bool {
        let answered = self.answered.lock();
        answered.get(build).is_some_and(|known| (known.0.as_str(), &known.1) == (uid, key))
    }

    /// Notes that there is no image for this key.
    pub fn answered(&self, build: &Key, uid: &str, key: &BuildKey) {
        self.answered.lock().insert(build.clone(), (uid.to_owned(), key.clone()));
    }

    /// Forgets a build that is gone.
    pub fn forget(&self, build: &Key) {
        self.answered.lock().remove(build);
    }

    /// Whether a registry did not answer a moment ago, or too slowly, or several others of the namespace did not.
    pub fn is_silent(&self, registry: &Asked) -> bool {
        let (now, silent) = (Instant::now(), self.silent.lock());
        let is_silent = |until: &Instant| now < *until;
        // A namespace that names one registry after the other would hold up the others.
        let of_namespace = |asked: &Asked| asked.namespace == registry.namespace;
        let several =
            silent.iter().filter(|(asked, until)| of_namespace(asked) && is_silent(until));
        silent.get(registry).is_some_and(is_silent) || several.count() >= MAX_SILENT_OF_NAMESPACE
    }

    /// Notes that a registry does not answer.
    pub fn is_silent_now(&self, registry: Asked) {
        let now = Instant::now();
        let mut silent = self.silent.lock();
        if silent.len() >= MAX_SILENT {
            silent.retain(|_, until| now < *until);
        }
        if silent.len() >= MAX_SILENT {
            return;
        }
        // Many builds may notice it at once.
        if silent.get(&registry).is_none_or(|until| *until <= now) {
            let Asked { namespace, registry: host, .. } = &registry;
            tracing::info!(
                namespace,
                registry = host,
                "the registry answers too slowly, or not at all: nothing is asked there for a minute"
            );
        }
        silent.insert(registry, now + SILENCE);
    }
}

#[cfg(test)]
#[path = "tests/questions.rs"]
mod tests;
