//! Watches of children: which of them are kept, and how much of each namespace.
//!
//! Everybody who may create a ConfigMap may give it our label. Only what one of our objects controls counts, and not
//! even that can be believed: an owner reference is easily forged. So of each namespace only so many children are kept,
//! and so much of their content. What finds no more room for its content is kept without it, and compared by asking the
//! API server: by an apply that changes nothing.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};

use super::budget::Budget;
use super::children::{Child, ChildKind};
use super::reflector::{self, Heard, Manner};
use super::store::{Entry, Key, Store};
use crate::api::{GROUP, Kind, keys};
use convoke_core::cluster::view::Metadata;

/// Children of one kind that are kept of each namespace: some hundred bytes each.
const MOST: usize = 50_000;
/// Bytes of their contents, packed: a Deployment has about 500 of them.
const MOST_BYTES: usize = 16 << 20;

/// Longest name of an object.
const MOST_NAME: usize = 253;
/// Longest uid: it has 36 characters.
const MOST_UID: usize = 64;

/// Whether one of our objects controls an object, as its metadata says.
fn is_ours(meta: &ObjectMeta) -> bool {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    owner.is_some_and(|owner| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        // The API server takes any text for name and uid, of any length.
        let short = owner.name.len() <= MOST_NAME && owner.uid.len() <= MOST_UID;
        group == Some(GROUP) && Kind::parse(&owner.kind).is_some() && short
    })
}

/// What is kept of one kind.
struct Limits {
    objects: Budget,
    bytes: Budget,
}

/// Watches the children of one kind into their store, for ever.
pub async fn run<K: ChildKind>(client: Client, store: Arc<Store<Child<K>>>) {
    run_within(MOST, MOST_BYTES, client, store).await;
}

async fn run_within<K: ChildKind>(
    most: usize,
    most_bytes: usize,
    client: Client,
    store: Arc<Store<Child<K>>>,
) {
    let limits = Limits { objects: Budget::new(most), bytes: Budget::new(most_bytes) };
    let limits = Arc::new(Mutex::new(limits));
    let counted = limits.clone();
    store.on_change(move |change| {
        let ((old, old_bytes), (new, new_bytes)) = (count(change.old), count(change.new));
        let mut limits = lock(&counted);
        limits.objects.changed(&change.key.namespace, old, new);
        limits.bytes.changed(&change.key.namespace, old_bytes, new_bytes);
    });
    let tell = |namespace: &str| {
        tracing::warn!(
            kind = store.kind,
            namespace,
            "what belongs to agents, models and tools of this namespace takes too much memory: it is not kept whole"
        );
    };
    let heard = |heard: Heard<'_>| {
        let mut limits = lock(&limits);
        match heard {
            Heard::Lists => {
                limits.objects.list_begins();
                limits.bytes.list_begins();
            }
            Heard::Listed => {
                let turned = limits.objects.list_ends().into_iter();
                let turned: Vec<_> = turned.chain(limits.bytes.list_ends()).collect();
                turned.iter().filter(|name| limits.is_over(name)).for_each(|name| tell(name));
            }
            Heard::Ended(key) => {
                limits.objects.ended(key);
                limits.bytes.ended(key);
            }
            Heard::Failed(_) => {}
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
        let before = limits.is_over(&key.namespace);
        let fits = limits.objects.takes(&key, old, 1);
        if fits && !limits.bytes.takes(&key, old_bytes, entry.value.bytes()) {
            entry.value.forget_content();
        }
        if !before && limits.is_over(&key.namespace) {
            tell(&key.namespace);
        }
        Ok((key, Some(entry).filter(|_| fits)))
    };
    let manner = Manner { labels: Some(keys::OWNER_KIND), ..Manner::default() };
    reflector::run_some(Api::<K>::all(client), store.clone(), manner, read, heard).await;
}

impl Limits {
    fn is_over(&self, namespace: &str) -> bool {
        self.objects.is_over(namespace) || self.bytes.is_over(namespace)
    }
}

fn lock(limits: &Mutex<Limits>) -> MutexGuard<'_, Limits> {
    limits.lock()
}

/// How many objects that is, and how many bytes of content.
fn count<K: ChildKind>(entry: Option<&Arc<Entry<Child<K>>>>) -> (usize, usize) {
    entry.map_or((0, 0), |entry| (1, entry.value.bytes()))
}

#[cfg(test)]
#[path = "tests/child_watch.rs"]
mod tests;
