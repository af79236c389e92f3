//! Reads the values of `spec.variables`, and wakes the GitSyncs whose values change.
//!
//! A ConfigMap may be used only with the label `convoke.dev/agents=allow`: the people of a namespace decide what a repository may
//! read. One watch of the labelled ConfigMaps wakes the GitSyncs that use them. The values themselves are read for each poll.

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
use crate::cluster::reflector::{self, View, WatchNews, WatchOptions};
use crate::cluster::store::{Entry, Key, Store};
use crate::definition::variables::Variables;
use crate::runtime::queue::Queue;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;

/// The label of the ConfigMaps that may be used.
const LABEL: (&str, &str) = ("convoke.dev/agents", "allow");

/// Objects of the first page of a list. Few, because a ConfigMap may have a mebibyte.
const FIRST_PAGE_OBJECTS: u32 = 4;

/// The values of a spec's variables; `None` when it has no `variables`. A later source replaces values of an earlier one, and
/// `inline` replaces values of all of them.
///
/// # Errors
/// [`SourceError::Input`] when a source does not exist, lacks the label, or cannot be read.
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
        let failure = |reason, message: String, hint: Option<String>| SourceError::Input {
            reason,
            message,
            hint,
        };
        let map = match call(maps.get_opt(name)).await {
            Ok(Some(map)) => map,
            Ok(None) => {
                let message = format!("the ConfigMap {name} of spec.variables does not exist");
                return Err(failure(SourceReason::VariablesMissing, message, None));
            }
            Err(error) => {
                let message = format!("cannot read the ConfigMap {name}: {error}");
                return Err(failure(SourceReason::VariablesUnreadable, message, None));
            }
        };
        let (key, value) = LABEL;
        if map.labels().get(key).is_none_or(|found| found != value) {
            let message = format!("the ConfigMap {name} of spec.variables lacks a label");
            let hint =
                format!("kubectl -n {namespace} label configmap {name} {key}={value} --overwrite");
            return Err(failure(SourceReason::VariablesNotAllowed, message, Some(hint)));
        }
        values.extend(map.data.unwrap_or_default());
    }
    values.extend(variables.inline.clone());
    Ok(Some(Variables::new(values)))
}

/// The only thing that is kept of a ConfigMap: a hash of its values.
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

/// The GitSyncs whose variables have changed since their last reconcile.
#[derive(Default)]
pub struct Changed(Mutex<HashSet<Key>>);

impl Changed {
    fn lock(&self) -> parking_lot::MutexGuard<'_, HashSet<Key>> {
        self.0.lock()
    }

    /// Whether the variables of a GitSync have changed since this was called last.
    pub fn take(&self, key: &Key) -> bool {
        self.lock().remove(key)
    }
}

/// Watches the labelled ConfigMaps of all namespaces, for ever. When one changes, the GitSyncs that use it are put on the queue.
pub async fn follow(
    client: Client,
    syncs: Arc<Store<Managed<GitSync>>>,
    changed: Arc<Changed>,
    queue: Arc<Queue>,
) {
    // Only ConfigMaps that a spec names are kept, so the specs must be known first.
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
    let wake_users = wake.clone();
    store.on_change(move |change| {
        let same = matches!((change.old, change.new), (Some(old), Some(new))
            if old.uid == new.uid && old.value.0 == new.value.0);
        if !same {
            wake_users(change.key);
        }
    });
    // A ConfigMap that a spec names only after the watch has shown it is not in the store, so the store cannot report its end.
    let (kept, listed) = (store.clone(), AtomicBool::new(false));
    let on_news = |news: WatchNews<'_>| match news {
        WatchNews::Deleted(map) => wake(map),
        // A new list keeps every ConfigMap that a spec names. One that is not in the store is gone.
        WatchNews::ListComplete if listed.swap(true, Ordering::Relaxed) => {
            sources(&syncs).filter(|map| kept.get(map).is_none()).for_each(|map| wake(&map));
        }
        WatchNews::ListComplete | WatchNews::ListBegins | WatchNews::Failed(_) => {}
    };
    let label = format!("{}={}", LABEL.0, LABEL.1);
    let options = WatchOptions {
        labels: Some(&label),
        first_page_objects: FIRST_PAGE_OBJECTS,
        ..WatchOptions::default()
    };
    reflector::run_some(Api::<ConfigMap>::all(client), store, options, read, on_news).await;
}

/// The ConfigMaps that all specs name.
fn sources(syncs: &Store<Managed<GitSync>>) -> impl Iterator<Item = Key> {
    let all = syncs.all().into_iter().filter_map(|(key, entry)| {
        let variables = entry.value.object()?.spec.variables.clone()?;
        Some((key.namespace, variables.from))
    });
    all.flat_map(|(namespace, from)| {
        from.into_iter().map(move |one| Key::new(&*namespace, one.config_map_ref.name))
    })
}

/// The GitSyncs whose spec names this ConfigMap.
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
