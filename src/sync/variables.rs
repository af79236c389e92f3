//! Where the values of `spec.variables` come from, and who hears when they change.
//!
//! ConfigMaps count only with the label `convoke.dev/agents=allow`: what a repository may read is for the people of
//! the namespace to say. A watch of those wakes the syncs that use them; the values are read when they are needed.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};
use sha2::{Digest, Sha256};

use crate::api::GitSync;
use crate::api::git_sync::GitSyncSpec;
use crate::cluster::client::call;
use crate::cluster::live::Managed;
use crate::cluster::read::Head;
use crate::cluster::reflector::{self, Heard, Manner, View};
use crate::cluster::store::{Entry, Key, Store};
use crate::definition::variables::Variables;
use crate::runtime::queue::Queue;
use crate::sync::commit::source_error::SourceError;

/// What is followed.
const LABEL: (&str, &str) = ("convoke.dev/agents", "allow");

/// Objects of the first page of a list: each may have a mebibyte.
const PAGE: u32 = 4;

/// The values of a spec; `None` when it has no `variables`. Later sources win over earlier ones, and what stands in the
/// spec itself over all.
///
/// # Errors
/// [`SourceError::Variables`], when a source is not there, is not labelled, or cannot be read.
pub async fn read(
    client: &Client,
    namespace: &str,
    spec: &GitSyncSpec,
) -> Result<Option<Variables>, SourceError> {
    let Some(variables) = &spec.variables else { return Ok(None) };
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let mut values = BTreeMap::new();
    for source in &variables.from {
        let name = &source.config_map_ref.name;
        let failure = |reason, message: String, hint: Option<String>| SourceError::Variables {
            reason,
            message,
            hint,
        };
        let map = match call(maps.get_opt(name)).await {
            Ok(Some(map)) => map,
            Ok(None) => {
                let message = format!("the ConfigMap {name} of spec.variables does not exist");
                return Err(failure("VariablesMissing", message, None));
            }
            Err(error) => {
                let message = format!("cannot read the ConfigMap {name}: {error}");
                return Err(failure("VariablesUnreadable", message, None));
            }
        };
        let (key, value) = LABEL;
        if map.labels().get(key).is_none_or(|found| found != value) {
            let message = format!("the ConfigMap {name} of spec.variables lacks a label");
            let hint = format!("kubectl label configmap {name} {key}={value}");
            return Err(failure("VariablesNotAllowed", message, Some(hint)));
        }
        values.extend(map.data.unwrap_or_default());
    }
    values.extend(variables.inline.clone());
    Ok(Some(Variables::new(values)))
}

/// What is kept of a ConfigMap: a hash of its values.
pub struct Hashed([u8; 32]);

impl View for Hashed {
    type Object = ConfigMap;

    fn of(map: ConfigMap) -> Self {
        let mut hash = Sha256::new();
        for text in map.data.iter().flatten().flat_map(|(key, value)| [key, value]) {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        Self(hash.finalize().into())
    }
}

/// The syncs whose values have changed since they last looked.
#[derive(Default)]
pub struct Changed(Mutex<HashSet<Key>>);

impl Changed {
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashSet<Key>> {
        self.0.lock()
    }

    /// Whether its values have changed; forgets it.
    pub fn take(&self, key: &Key) -> bool {
        self.lock().remove(key)
    }
}

/// Follows the ConfigMaps of all syncs, for ever.
pub async fn follow(
    client: Client,
    syncs: Arc<Store<Managed<GitSync>>>,
    changed: Arc<Changed>,
    queue: Arc<Queue>,
) {
    // What no spec names is not kept, so the specs must be known.
    syncs.wait_ready().await;
    let store = Store::<Hashed>::new("ConfigMap");
    let named = syncs.clone();
    let read = |text: &str| {
        let Head { metadata } = serde_json::from_str(text)?;
        let key = Key::new(metadata.namespace, metadata.name);
        if users(&named, &key).is_empty() {
            return Ok((key, None));
        }
        Hashed::read(text).map(|(key, entry)| (key, Some(entry)))
    };
    let wake = Arc::new({
        let syncs = syncs.clone();
        move |map: &Key| {
            for key in users(&syncs, map) {
                changed.lock().insert(key.clone());
                queue.add(key);
            }
        }
    });
    let told = wake.clone();
    store.on_change(move |change| {
        let same = matches!((change.old, change.new), (Some(old), Some(new))
            if old.uid == new.uid && old.value.0 == new.value.0);
        if !same {
            told(change.key);
        }
    });
    // One that was named after it was shown is not kept: the store does not know that it ends.
    let (kept, listed) = (store.clone(), AtomicBool::new(false));
    let heard = |heard: Heard<'_>| match heard {
        Heard::Ended(map) => wake(map),
        // A list keeps all that are named: what is missing is gone.
        Heard::Listed if listed.swap(true, Ordering::Relaxed) => {
            sources(&syncs).filter(|map| kept.get(map).is_none()).for_each(|map| wake(&map));
        }
        Heard::Listed | Heard::Lists | Heard::Failed(_) => {}
    };
    let label = format!("{}={}", LABEL.0, LABEL.1);
    let manner = Manner { labels: Some(&label), page: PAGE, ..Manner::default() };
    reflector::run_some(Api::<ConfigMap>::all(client), store, manner, read, heard).await;
}

/// The ConfigMaps that specs name.
fn sources(syncs: &Store<Managed<GitSync>>) -> impl Iterator<Item = Key> {
    let all = syncs.all().into_iter().filter_map(|(key, entry)| {
        let variables = entry.value.object()?.spec.variables.clone()?;
        Some((key.namespace, variables.from))
    });
    all.flat_map(|(namespace, from)| {
        from.into_iter().map(move |one| Key::new(&*namespace, one.config_map_ref.name))
    })
}

/// The syncs whose spec names a ConfigMap.
fn users(syncs: &Store<Managed<GitSync>>, map: &Key) -> Vec<Key> {
    let uses = |entry: &Entry<Managed<GitSync>>| {
        let sync = entry.value.object();
        let from = sync.as_ref().and_then(|sync| Some(&sync.spec.variables.as_ref()?.from));
        from.is_some_and(|from| from.iter().any(|one| one.config_map_ref.name == map.name))
    };
    let all = syncs.list(&map.namespace).into_iter();
    all.filter(|(_, entry)| uses(entry)).map(|(key, _)| key).collect()
}

#[cfg(test)]
#[path = "tests/variables.rs"]
mod tests;
