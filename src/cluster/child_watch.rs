//! Watches the children of our objects, and limits how much of each namespace is kept.
//!
//! Everybody who may create a ConfigMap may give it our label, and an owner reference is easily forged. So only objects that one
//! of our objects controls are kept, and of each namespace only a limited number of them and of their bytes. A child whose
//! content does not fit is kept without it. It is compared by an apply, which changes nothing if the child is as wanted.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};

use super::budget::Budget;
use super::children::{Child, ChildKind};
use super::reflector::{self, WatchNews, WatchOptions};
use super::store::{Entry, Key, Store};
use crate::api::{GROUP, Kind, keys};
use convoke_core::cluster::view::Metadata;

/// Children of one kind that are kept of each namespace, of some hundred bytes each.
const MAX_CHILDREN: usize = 50_000;
/// Bytes of content, packed, that are kept of each namespace. A Deployment has about 500.
const MAX_CONTENT_BYTES: usize = 16 << 20;

/// Bytes of the longest name of an object.
const MAX_NAME_BYTES: usize = 253;
/// Bytes of the longest UID that is taken for one. A UID has 36.
const MAX_UID_BYTES: usize = 64;

/// Whether the metadata of an object says that one of our objects controls it.
fn is_ours(meta: &ObjectMeta) -> bool {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    owner.is_some_and(|owner| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        // The API server accepts any text of any length as name and UID.
        let short = owner.name.len() <= MAX_NAME_BYTES && owner.uid.len() <= MAX_UID_BYTES;
        group == Some(GROUP) && Kind::parse(&owner.kind).is_some() && short
    })
}

/// How much is kept of each namespace, of one kind.
struct Limits {
    objects: Budget,
    bytes: Budget,
}

/// Watches the children of one kind into their store, for ever.
pub async fn run<K: ChildKind>(client: Client, store: Arc<Store<Child<K>>>) {
    run_within(MAX_CHILDREN, MAX_CONTENT_BYTES, client, store).await;
}

async fn run_within<K: ChildKind>(
    max_children: usize,
    max_bytes: usize,
    client: Client,
    store: Arc<Store<Child<K>>>,
) {
    let (objects, bytes) = (Budget::new(max_children), Budget::new(max_bytes));
    let limits = Arc::new(Mutex::new(Limits { objects, bytes }));
    let counted = limits.clone();
    store.on_change(move |change| {
        let ((old, old_bytes), (new, new_bytes)) = (count(change.old), count(change.new));
        let mut limits = lock(&counted);
        limits.objects.changed(&change.key.namespace, old, new);
        limits.bytes.changed(&change.key.namespace, old_bytes, new_bytes);
    });
    let warn = |namespace: &str| {
        tracing::warn!(
            kind = store.kind,
            namespace,
            "what belongs to agents, models and tools of this namespace takes too much memory: it is not kept whole"
        );
    };
    let on_news = |news: WatchNews<'_>| {
        let mut limits = lock(&limits);
        match news {
            WatchNews::ListBegins => {
                limits.objects.list_begins();
                limits.bytes.list_begins();
            }
            WatchNews::ListComplete => {
                let changed = limits.objects.list_ends().into_iter();
                let changed: Vec<_> = changed.chain(limits.bytes.list_ends()).collect();
                changed.iter().filter(|name| limits.is_over(name)).for_each(|name| warn(name));
            }
            WatchNews::Deleted(key) => {
                limits.objects.deleted(key);
                limits.bytes.deleted(key);
            }
            WatchNews::Failed(_) => {}
        }
    };
    let read = |text: &str| {
        let Metadata { metadata } = serde_json::from_str(text)?;
        let key = Key::of(&metadata);
        if !is_ours(&metadata) {
            return Ok((key, None));
        }
        let mut entry = Child::<K>::entry(&metadata, text)?;
        let (old, old_bytes) = count(store.get(&key).as_ref());
        let mut limits = lock(&limits);
        let was_over = limits.is_over(&key.namespace);
        let fits = limits.objects.admit(&key, old, 1);
        if fits && !limits.bytes.admit(&key, old_bytes, entry.value.bytes()) {
            entry.value.forget_content();
        }
        if !was_over && limits.is_over(&key.namespace) {
            warn(&key.namespace);
        }
        Ok((key, Some(entry).filter(|_| fits)))
    };
    let options = WatchOptions { labels: Some(keys::OWNER_KIND), ..WatchOptions::default() };
    reflector::run_some(Api::<K>::all(client), store.clone(), options, read, on_news).await;
}

impl Limits {
    fn is_over(&self, namespace: &str) -> bool {
        self.objects.is_over(namespace) || self.bytes.is_over(namespace)
    }
}

fn lock(limits: &Mutex<Limits>) -> MutexGuard<'_, Limits> {
    limits.lock()
}

/// What an entry counts in the limits: objects, and bytes of content.
fn count<K: ChildKind>(entry: Option<&Arc<Entry<Child<K>>>>) -> (usize, usize) {
    entry.map_or((0, 0), |entry| (1, entry.value.bytes()))
}

#[cfg(test)]
#[path = "tests/child_watch.rs"]
mod tests;
