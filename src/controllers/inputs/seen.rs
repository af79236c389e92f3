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
use crate::cluster::reflector::{self, WatchNews, WatchOptions};
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
    fn heard(&self, heard: &WatchNews<'_>) -> bool {
        self.state.send_if_modified(|state| {
            let new = match heard {
                WatchNews::ListBegins | WatchNews::Deleted(_) => return false,
                WatchNews::ListComplete => State::Watching,
                WatchNews::Failed(error) => match error.refusal() {
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
        let heard = |heard: WatchNews<'_>| {
            let turned = match &heard {
                WatchNews::ListBegins => {
                    self.budget().list_begins();
                    BTreeSet::new()
                }
                WatchNews::ListComplete => self.budget().list_ends(),
                WatchNews::Deleted(key) => {
                    self.ended(key, &wake);
                    BTreeSet::new()
                }
                WatchNews::Failed(_) => BTreeSet::new(),
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
            let fits = self.admit(&key, entry.value.weight(), &wake);
            Ok((key, Some(entry).filter(|_| fits)))
        };
        let options = WatchOptions {
            labels: Some(LABELS),
            max_pause_while_forbidden: FORBIDDEN,
            first_page_objects: PAGE,
        };
        let watching = reflector::run_some(api, self.store.clone(), options, kept, heard);
        futures::join!(watching, self.list_those_with_room::<K>(client, &read, &wake));
    }

    /// Whether an object is kept.
    fn takes(&self, key: &Key, weight: usize, wake: impl Fn(Concerns<'_>)) -> bool {
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
            wake(Concerns::Namespace(&key.namespace));
        } else if before.1 != after.1 {
            wake(Concerns::Object(key));
        }
        fits
    }

    fn ended(&self, key: &Key, wake: impl Fn(Concerns<'_>)) {
        let (was_left, unknown) = {
            let mut budget = self.budget();
            (budget.ended(key), budget.has_unknown_left_out(&key.namespace))
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
                self.budget().relist_begins(namespace);
                let url = Api::<K>::namespaced(client.clone(), namespace).resource_url().to_owned();
                let source = read::Source::new(client.clone(), &url, Some(LABELS), PAGE);
                let listed = source.list(|text| {
                    let (key, entry) = read(text)?;
                    let (old, new) = (self.weight(&key), entry.value.weight());
                    if self.budget().admit_relisted(&key, old, new) {
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
#[path = "tests/seen.rs"]
mod tests;
