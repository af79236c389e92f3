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
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    use super::super::children::ChildStores;
    use super::super::fake::Fake;
    use super::*;

    fn owned_by(version: &str, kind: &str, controller: bool) -> Value {
        json!({"apiVersion": version, "kind": kind, "name": "a", "uid": "a", "controller": controller})
    }

    /// An object with the label of children and this owner.
    fn child(namespace: &str, name: &str, owner: Value) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name,
            "labels": {keys::OWNER_KIND: "agent"}, "ownerReferences": [owner]}})
    }

    fn ours() -> Value {
        owned_by("convoke.dev/v1alpha1", "Agent", true)
    }

    #[tokio::test(start_paused = true)]
    async fn a13_a_label_alone_makes_nobody_keep_a_config_map() {
        let (fake, store) = (Fake::default(), ChildStores::new().config_maps);
        fake.put(child("team", "agent-a-1", ours()));
        let others = [
            owned_by("apps/v1", "Agent", true),
            owned_by("v1", "Agent", true),
            owned_by("convoke.dev.example.com/v1", "Agent", true),
            owned_by("convoke.dev/v1alpha1", "GitSync", true),
            owned_by("convoke.dev/v1alpha1", "Agent", false),
            json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": "a".repeat(100_000), "uid": "a", "controller": true}),
        ];
        for (number, owner) in others.iter().enumerate() {
            fake.put(child("team", &format!("agent-a-9{number}"), owner.clone()));
        }
        let watching = tokio::spawn(run::<ConfigMap>(fake.client(), store.clone()));
        store.wait_ready().await;
        assert_eq!(store.names("team"), ["agent-a-1"]);
        // Nor later; and what is given away is ours no more.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        for name in ["agent-a-1", "agent-a-2"] {
            fake.put(child("team", name, others[0].clone()));
        }
        fake.put(child("team", "agent-a-3", ours()));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(store.names("team"), ["agent-a-3"]);
        watching.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a13_children_with_forged_owners_take_the_share_of_their_namespace_and_no_more() {
        let (fake, store) = (Fake::default(), ChildStores::new().deployments);
        // Text that LZ4 cannot make shorter.
        let noise = |seed: u32| -> String {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                format!("{state:08x}")
            };
            (0..500).map(|_| next()).collect()
        };
        let deployment = |namespace: &str, name: &str, seed: u32| {
            let mut object = child(namespace, name, ours());
            object["spec"] = json!({"selector": {}, "template": {"metadata": {"annotations": {"a": noise(seed)}}}});
            object
        };
        for number in 0..20 {
            fake.put(deployment("greedy", &format!("d{number:02}"), number));
        }
        fake.put(deployment("team", "agent-a", 99));
        let watching =
            tokio::spawn(run_within::<Deployment>(10, 12_000, fake.client(), store.clone()));
        store.wait_ready().await;
        let seen = || {
            let all = store.list("greedy");
            let whole = all.iter().filter(|(_, entry)| entry.value.object().is_some()).count();
            let bytes: usize = all.iter().map(|(_, entry)| entry.value.bytes()).sum();
            assert!(bytes <= 12_000, "{bytes}");
            (all.len(), whole)
        };
        let some = |(all, whole): (usize, usize)| all == 10 && (2..10).contains(&whole);
        assert!(some(seen()), "{:?}", seen());
        let live = |namespace: &str, name: &str| store.get(&Key::new(namespace, name));
        let ours = live("team", "agent-a").expect("another namespace");
        assert!(ours.value.object().is_some());
        // What changes finds no more room than there is, and what goes makes room.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        for number in 0..20 {
            fake.put(deployment("greedy", &format!("d{number:02}"), 100 + number));
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert!(some(seen()), "{:?}", seen());
        for number in 0..10 {
            fake.delete("greedy", &format!("d{number:02}"));
        }
        fake.put(deployment("greedy", "d19", 7));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let entry = live("greedy", "d19").expect("there is room");
        assert!(entry.value.object().is_some());
        watching.abort();
    }
}
