//! One watch of inputs. It keeps digests of the values, as far as the budget of each namespace allows.
//!
//! An object that was left out may fit later, when another object of its namespace is deleted or shrinks. Then only that
//! namespace is listed again.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::time::Instant;

use super::digest::Digests;
use super::references::Source;
use super::report::WatchState;
use crate::cluster::budget::Budget;
use crate::cluster::read;
use crate::cluster::reflector::{self, WatchNews, WatchOptions};
use crate::cluster::store::{Change, Entry, Key, Store};
use crate::runtime::queue::Queue;

/// The label selector of the objects that pods may read.
const LABELS: &str = "convoke.dev/agents=allow";
/// The longest pause between two tries while the right to watch is missing.
pub const MAX_PAUSE_WHILE_FORBIDDEN: Duration = Duration::from_secs(60);
/// Objects of the first page of a list. Few, because each may have a mebibyte.
const FIRST_PAGE_OBJECTS: u32 = 4;
/// How long after there is room in a namespace it is listed again, so that changes that come together cost one list.
const RELIST_DELAY: Duration = Duration::from_secs(2);
/// A namespace is listed again at most once in this time.
const MIN_TIME_BETWEEN_RELISTS: Duration = Duration::from_secs(300);

/// The objects whose inputs may have changed.
pub enum Affected<'a> {
    /// All objects.
    All,
    /// The objects of a namespace.
    Namespace(&'a str),
    /// The objects whose pods read this ConfigMap or Secret.
    Readers(&'a Key),
}

/// A watch of ConfigMaps or of Secrets.
pub struct InputWatch {
    /// What it watches.
    pub source: Source,
    /// The digests of the objects that fit into the budget.
    pub store: Arc<Store<Digests>>,
    /// Whether it works.
    pub state: watch::Sender<WatchState>,
    budget: Mutex<Budget>,
    /// Namespaces that are to be listed again.
    relists: Arc<Queue>,
}

impl InputWatch {
    /// `max_keys` is the [`Budget`] of each namespace.
    pub fn new(source: Source, max_keys: usize) -> Arc<Self> {
        Arc::new(Self {
            source,
            store: Store::new(source.as_str()),
            state: watch::Sender::default(),
            budget: Mutex::new(Budget::new(max_keys)),
            relists: Queue::new(),
        })
    }

    /// The budgets of all namespaces.
    pub fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock()
    }

    /// Counts a change of the store in the budget.
    pub fn changed(&self, change: &Change<'_, Digests>) {
        let weight = |entry: Option<&Arc<Entry<Digests>>>| entry.map_or(0, |e| e.value.weight());
        let (old, new) = (weight(change.old), weight(change.new));
        if self.budget().changed(&change.key.namespace, old, new) {
            self.relist_soon(&change.key.namespace);
        }
    }

    fn relist_soon(&self, namespace: &str) {
        self.relists.hold(Key::new(namespace, ""), RELIST_DELAY);
    }

    /// Takes over the news of the watch. Returns whether its state has changed.
    fn take_news(&self, news: &WatchNews<'_>) -> bool {
        self.state.send_if_modified(|state| {
            let new = match news {
                WatchNews::ListBegins | WatchNews::Deleted(_) => return false,
                WatchNews::ListComplete => WatchState::Watching,
                WatchNews::Failed(error) if error.is_forbidden() => WatchState::Forbidden,
                WatchNews::Failed(_) if *state == WatchState::Starting => WatchState::Failing,
                WatchNews::Failed(_) => return false,
            };
            let has_changed = *state != new;
            *state = new;
            has_changed
        })
    }

    /// What the kept version of an object counts in the budget.
    fn weight(&self, key: &Key) -> usize {
        self.store.get(key).map_or(0, |old| old.value.weight())
    }

    /// Watches the objects of one kind, in all namespaces or in one, for ever. `wake` is called when inputs may have changed.
    pub async fn run<K>(
        &self,
        client: &Client,
        api: Api<K>,
        read: impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
        wake: impl Fn(Affected<'_>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let on_news = |news: WatchNews<'_>| {
            let changed = match &news {
                WatchNews::ListBegins => {
                    self.budget().list_begins();
                    BTreeSet::new()
                }
                WatchNews::ListComplete => self.budget().list_ends(),
                WatchNews::Deleted(key) => {
                    self.deleted(key, &wake);
                    BTreeSet::new()
                }
                WatchNews::Failed(_) => BTreeSet::new(),
            };
            if self.take_news(&news) {
                wake(Affected::All);
            } else {
                for namespace in &changed {
                    wake(Affected::Namespace(namespace));
                }
            }
        };
        let kept = |text: &str| {
            let (key, entry) = read(text)?;
            let fits = self.admit(&key, entry.value.weight(), &wake);
            Ok((key, Some(entry).filter(|_| fits)))
        };
        let options = WatchOptions {
            labels: Some(LABELS),
            max_pause_while_forbidden: MAX_PAUSE_WHILE_FORBIDDEN,
            first_page_objects: FIRST_PAGE_OBJECTS,
        };
        let watching = reflector::run_some(api, self.store.clone(), options, kept, on_news);
        futures::join!(watching, self.relist_with_room::<K>(client, &read, &wake));
    }

    /// Decides whether an object is kept. Wakes the readers if it was left out before and is not any more, or the other way
    /// round.
    fn admit(&self, key: &Key, weight: usize, wake: impl Fn(Affected<'_>)) -> bool {
        let old = self.weight(key);
        let mut budget = self.budget();
        let known = |budget: &Budget| {
            (budget.has_unknown_left_out(&key.namespace), budget.is_left_out(key))
        };
        let before = known(&budget);
        let fits = budget.admit(key, old, weight);
        let after = known(&budget);
        drop(budget);
        if before.0 != after.0 {
            wake(Affected::Namespace(&key.namespace));
        } else if before.1 != after.1 {
            wake(Affected::Readers(key));
        }
        fits
    }

    fn deleted(&self, key: &Key, wake: impl Fn(Affected<'_>)) {
        let (was_left_out, has_unknown) = {
            let mut budget = self.budget();
            (budget.deleted(key), budget.has_unknown_left_out(&key.namespace))
        };
        if has_unknown {
            self.relist_soon(&key.namespace);
        }
        if was_left_out {
            wake(Affected::Readers(key));
        }
    }

    /// Lists namespaces again that have room for objects that were left out, one after the other, for ever.
    async fn relist_with_room<K>(
        &self,
        client: &Client,
        read: &impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
        wake: &impl Fn(Affected<'_>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let mut last = HashMap::<String, Instant>::new();
        loop {
            let key = self.relists.next().await;
            let namespace = key.namespace.as_str();
            last.retain(|_, at| at.elapsed() < MIN_TIME_BETWEEN_RELISTS);
            if let Some(at) = last.get(namespace) {
                let rest = MIN_TIME_BETWEEN_RELISTS.saturating_sub(at.elapsed());
                self.relists.hold(key.clone(), rest);
            } else if self.budget().is_listing() {
                self.relists.hold(key.clone(), RELIST_DELAY);
            } else {
                last.insert(namespace.to_owned(), Instant::now());
                let url = Api::<K>::namespaced(client.clone(), namespace).resource_url().to_owned();
                let labels = Some(LABELS);
                let source = read::Source::new(client.clone(), &url, labels, FIRST_PAGE_OBJECTS);
                if self.relist(namespace, &source, read).await {
                    wake(Affected::Namespace(namespace));
                }
            }
            self.relists.done(&key);
        }
    }

    /// Lists one namespace again. Returns whether the left-out objects have changed.
    async fn relist(
        &self,
        namespace: &str,
        source: &read::Source,
        read: &impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
    ) -> bool {
        self.budget().relist_begins(namespace);
        let listed = source.list(|text| {
            let (key, entry) = read(text)?;
            let (old, new) = (self.weight(&key), entry.value.weight());
            if self.budget().admit_relisted(&key, old, new) {
                self.store.shown(key, entry);
            }
            Ok(())
        });
        match listed.await {
            Ok(_) => self.budget().relist_ends(namespace),
            Err(error) => {
                tracing::warn!(kind = self.store.kind, namespace, %error, "cannot list what was left out");
                self.relist_soon(namespace);
                self.budget().relist_failed(namespace);
                false
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/input_watch.rs"]
mod tests;
