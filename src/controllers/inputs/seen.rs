//! One watch of what pods read: digests of what it has shown, as far as the budget of each namespace goes.
//!
//! What was left out may fit later, because something else of its namespace went or shrank. Then that namespace is listed
//! by itself, and not everything.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::time::Instant;

use super::decide::State;
use super::digest::Digests;
use super::references::Source;
use crate::cluster::budget::Budget;
use crate::cluster::read;
use crate::cluster::reflector::{self, Heard, Manner};
use crate::cluster::store::{Change, Entry, Key, Store};
use crate::runtime::queue::Queue;

/// What is followed.
const LABELS: &str = "convoke.dev/agents=allow";
/// Longest pause between two tries while a right is missing.
pub const FORBIDDEN: Duration = Duration::from_secs(60);
/// Objects of the first page of a list: each may have a mebibyte.
const PAGE: u32 = 4;
/// How long after there is room in a namespace it is listed: what changes together is one change.
const SOON: Duration = Duration::from_secs(2);
/// A namespace is listed by itself once in this time.
const SELDOM: Duration = Duration::from_secs(300);

/// Whose pods may read something else now.
pub enum Concerns<'a> {
    /// Everybody's.
    All,
    /// Those of a namespace.
    Namespace(&'a str),
    /// Those that read this object.
    Object(&'a Key),
}

/// See the module.
pub struct Watch {
    pub source: Source,
    pub store: Arc<Store<Digests>>,
    pub state: watch::Sender<State>,
    budget: Mutex<Budget>,
    /// Namespaces that are to be listed.
    lists: Arc<Queue>,
}

impl Watch {
    /// `max_keys` is the [`Budget`] of each namespace.
    pub fn new(source: Source, max_keys: usize) -> Arc<Self> {
        Arc::new(Self {
            source,
            store: Store::new(source.as_str()),
            state: watch::Sender::default(),
            budget: Mutex::new(Budget::new(max_keys)),
            lists: Queue::new(),
        })
    }

    pub fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock()
    }

    /// The store has changed.
    pub fn changed(&self, change: &Change<'_, Digests>) {
        let weight = |entry: Option<&Arc<Entry<Digests>>>| entry.map_or(0, |e| e.value.weight());
        let (old, new) = (weight(change.old), weight(change.new));
        if self.budget().changed(&change.key.namespace, old, new) {
            self.list_soon(&change.key.namespace);
        }
    }

    fn list_soon(&self, namespace: &str) {
        self.lists.hold(Key::new(namespace, ""), SOON);
    }

    /// Takes what the watch tells; says whether that is news.
    fn heard(&self, heard: &Heard<'_>) -> bool {
        self.state.send_if_modified(|state| {
            let new = match heard {
                Heard::Lists | Heard::Ended(_) => return false,
                Heard::Listed => State::Watching,
                Heard::Failed(error) => match error.refusal() {
                    Some(said) => State::forbidden(said),
                    None if *state == State::Starting => State::Failing,
                    None => return false,
                },
            };
            let news = *state != new;
            *state = new;
            news
        })
    }

    fn weight(&self, key: &Key) -> usize {
        self.store.get(key).map_or(0, |old| old.value.weight())
    }

    /// Follows the objects of one kind, everywhere or in one namespace, for ever.
    pub async fn run<K>(
        &self,
        client: &Client,
        api: Api<K>,
        read: impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
        wake: impl Fn(Concerns<'_>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let heard = |heard: Heard<'_>| {
            let turned = match &heard {
                Heard::Lists => {
                    self.budget().list_begins();
                    BTreeSet::new()
                }
                Heard::Listed => self.budget().list_ends(),
                Heard::Ended(key) => {
                    self.ended(key, &wake);
                    BTreeSet::new()
                }
                Heard::Failed(_) => BTreeSet::new(),
            };
            if self.heard(&heard) {
                wake(Concerns::All);
            } else {
                for namespace in &turned {
                    wake(Concerns::Namespace(namespace));
                }
            }
        };
        let kept = |text: &str| {
            let (key, entry) = read(text)?;
            let fits = self.takes(&key, entry.value.weight(), &wake);
            Ok((key, Some(entry).filter(|_| fits)))
        };
        let manner = Manner { labels: Some(LABELS), forbidden: FORBIDDEN, page: PAGE };
        let watching = reflector::run_some(api, self.store.clone(), manner, kept, heard);
        futures::join!(watching, self.list_those_with_room::<K>(client, &read, &wake));
    }

    /// Whether an object is kept.
    fn takes(&self, key: &Key, weight: usize, wake: impl Fn(Concerns<'_>)) -> bool {
        let old = self.weight(key);
        let mut budget = self.budget();
        let known = |budget: &Budget| (budget.leaves_unknown(&key.namespace), budget.is_left(key));
        let before = known(&budget);
        let fits = budget.takes(key, old, weight);
        let after = known(&budget);
        drop(budget);
        if before.0 != after.0 {
            wake(Concerns::Namespace(&key.namespace));
        } else if before.1 != after.1 {
            wake(Concerns::Object(key));
        }
        fits
    }

    fn ended(&self, key: &Key, wake: impl Fn(Concerns<'_>)) {
        let (was_left, unknown) = {
            let mut budget = self.budget();
            (budget.ended(key), budget.leaves_unknown(&key.namespace))
        };
        if unknown {
            self.list_soon(&key.namespace);
        }
        if was_left {
            wake(Concerns::Object(key));
        }
    }

    /// Lists namespaces in which there is room for what was left out, one after the other, for ever.
    async fn list_those_with_room<K>(
        &self,
        client: &Client,
        read: &impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
        wake: &impl Fn(Concerns<'_>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let mut last = HashMap::<String, Instant>::new();
        loop {
            let key = self.lists.next().await;
            let namespace = key.namespace.as_str();
            last.retain(|_, at| at.elapsed() < SELDOM);
            if let Some(at) = last.get(namespace) {
                self.lists.hold(key.clone(), SELDOM.saturating_sub(at.elapsed()));
            } else if self.budget().is_listing() {
                self.lists.hold(key.clone(), SOON);
            } else {
                last.insert(namespace.to_owned(), Instant::now());
                self.budget().again_begins(namespace);
                let url = Api::<K>::namespaced(client.clone(), namespace).resource_url().to_owned();
                let source = read::Source::new(client.clone(), &url, Some(LABELS), PAGE);
                let listed = source.list(|text| {
                    let (key, entry) = read(text)?;
                    let (old, new) = (self.weight(&key), entry.value.weight());
                    if self.budget().fills(&key, old, new) {
                        self.store.shown(key, entry);
                    }
                    Ok(())
                });
                let listed = listed.await;
                if let Err(error) = &listed {
                    tracing::warn!(kind = self.store.kind, namespace, %error, "cannot list what was left out");
                    self.list_soon(namespace);
                }
                if self.budget().again_ends(namespace, listed.is_ok()) {
                    wake(Concerns::Namespace(namespace));
                }
            }
            self.lists.done(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::digest::MacKey;
    use super::super::watched::WatchedConfigMap;
    use super::*;
    use crate::cluster::fake::Fake;
    use crate::cluster::reflector::entry_of;

    fn map(namespace: &str, name: &str, keys: usize) -> Value {
        let data: serde_json::Map<_, _> =
            (0..keys).map(|n| (format!("k{n}"), json!("v"))).collect();
        json!({"metadata": {"namespace": namespace, "name": name}, "data": data})
    }

    /// A watch of all ConfigMaps; whom it wakes.
    fn watched(fake: &Fake, max_keys: usize) -> (Arc<Watch>, Arc<Mutex<Vec<String>>>) {
        let (watch, woken) =
            (Watch::new(Source::ConfigMap, max_keys), Arc::<Mutex<Vec<_>>>::default());
        let counted = watch.clone();
        watch.store.on_change(move |change| counted.changed(change));
        let (watching, sink) = (watch.clone(), woken.clone());
        let client = fake.client();
        let api = Api::<WatchedConfigMap>::all(client.clone());
        tokio::spawn(async move {
            let key = MacKey::new(&[7; 32]);
            let read = |text: &str| {
                let map = serde_json::from_str(text)?;
                Ok(entry_of(map, |map: WatchedConfigMap| map.digests(&key)))
            };
            let wake = |concerns: Concerns<'_>| {
                let text = match concerns {
                    Concerns::All => "all".to_owned(),
                    Concerns::Namespace(namespace) => namespace.to_owned(),
                    Concerns::Object(key) => key.to_string(),
                };
                sink.lock().push(text);
            };
            watching.run(&client, api, read, wake).await;
        });
        (watch, woken)
    }

    #[tokio::test(start_paused = true)]
    async fn a13_room_is_used_and_only_its_namespace_is_listed_for_that_and_seldom() {
        let fake = Fake::default();
        for name in ["a", "b", "c"] {
            fake.put(map("team", name, 4));
        }
        fake.put(map("other", "x", 4));
        let (watch, woken) = watched(&fake, 10);
        let woken = || std::mem::take(&mut *woken.lock());
        let is_left = |name: &str| watch.budget().is_left(&Key::new("team", name));
        watch.store.wait_ready().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(woken(), ["all"]);
        assert!(is_left("c") && !is_left("b") && !is_left("missing"));
        // One that was left out goes: nobody is over any more. It comes back, and one that was kept goes.
        fake.delete("team", "c");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!watch.budget().is_over("team"));
        assert_eq!(woken(), ["team/c"]);
        fake.put(map("team", "c", 4));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(is_left("c") && watch.store.get(&Key::new("team", "c")).is_none());
        assert_eq!(woken(), ["team/c"]);
        fake.delete("team", "a");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!is_left("c") && watch.store.get(&Key::new("team", "c")).is_some());
        let lists = fake.lists();
        assert_eq!(lists.len(), 2, "{lists:?}");
        assert!(lists[1].contains("/namespaces/team/configmaps?"), "{lists:?}");

        // A namespace that stays over and changes all the time.
        fake.put(map("team", "d", 9));
        for number in 0..1800 {
            fake.put(map("team", "b", 3 + number % 2));
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let lists = &fake.lists()[2..];
        assert!((10..=13).contains(&lists.len()), "{lists:?}");
        assert!(lists.iter().all(|list| list.contains("/namespaces/team/")), "{lists:?}");
    }
}
