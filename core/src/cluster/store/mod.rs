//! The live store of one kind: the objects that the watch has shown, and the replies to our own writes.
//!
//! The reply to a write or delete counts at once. Older watch events of the same object are ignored until the watch has
//! passed the reply. So a plan that runs right after an apply sees what was applied.

mod health;
mod objects;

use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::channel::oneshot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use health::{Health, SILENT_AFTER};
pub use objects::Terms;

use objects::Objects;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object's metadata.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One object as the store keeps it.
#[derive(Debug)]
pub struct Entry<V> {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number: it grows with every write of the same object.
    pub version: u64,
    /// The part of the object that is kept.
    pub value: V,
}

/// One change of a store, for listeners. `old` and `new` are never both `None`.
pub struct Change<'a, V> {
    /// The object.
    pub key: &'a Key,
    /// Before the change. `None`: the object is new.
    pub old: Option<&'a Arc<Entry<V>>>,
    /// After the change. `None`: the object is gone.
    pub new: Option<&'a Arc<Entry<V>>>,
}

/// The objects that ended last. A uid is never used again, so a message about one of them is late.
///
/// Only the hashes of the latest uids are kept: a reply can only be late when it is on its way while the object ends.
#[derive(Default)]
struct Ended {
    order: VecDeque<u64>,
    uids: HashSet<u64>,
}

impl Ended {
    /// Most uids that are kept.
    const MAX_UIDS: usize = 8192;

    fn hash(uid: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        hasher.finish()
    }

    fn insert(&mut self, uid: &str) {
        let hash = Self::hash(uid);
        if self.uids.insert(hash) {
            self.order.push_back(hash);
        }
        while self.order.len() > Self::MAX_UIDS {
            if let Some(oldest) = self.order.pop_front() {
                self.uids.remove(&oldest);
            }
        }
    }

    fn contains(&self, uid: &str) -> bool {
        self.uids.contains(&Self::hash(uid))
    }

    fn clear(&mut self) {
        self.order.clear();
        self.uids.clear();
    }
}

type Listener<V> = Box<dyn Fn(&Change<'_, V>) + Send + Sync>;

struct Inner<V> {
    objects: Objects<V>,
    /// Objects that we deleted and whose end the watch has not shown yet: key → uid.
    tombstones: HashMap<Key, String>,
    /// Objects that we wrote and that the watch has not shown at that version yet.
    unconfirmed: HashMap<Key, u64>,
    /// Objects that ended: a late reply must not add them again.
    ended: Ended,
    /// While a list runs: what it has shown so far.
    listing: Option<Objects<V>>,
    /// Whether replies to own writes arrived while a list ran: the list may or may not show them.
    written_while_listing: bool,
}

impl<V> Inner<V> {
    /// The objects of a complete list, with the replies that it may be older than.
    fn merged(&mut self, mut listing: Objects<V>) -> Objects<V> {
        if !self.written_while_listing {
            // The list began after every write of ours was answered, and lists are quorum reads.
            self.tombstones.clear();
            self.unconfirmed.clear();
            // An object that the list shows has not ended, even if its uid is among those that have.
            if listing.all().any(|(_, entry)| self.ended.contains(&entry.uid)) {
                self.ended.clear();
            }
            return listing;
        }
        for (key, version) in &self.unconfirmed {
            let ours = self.objects.get(key);
            if let Some(ours) =
                ours.filter(|_| listing.get(key).is_none_or(|l| l.version < *version))
            {
                listing.insert(key, ours.clone());
            }
        }
        for (key, uid) in &self.tombstones {
            if listing.get(key).is_some_and(|l| l.uid == *uid) {
                listing.remove(key);
            }
        }
        listing
    }
}

/// One object before and after a list.
type Difference<V> = (Key, Option<Arc<Entry<V>>>, Option<Arc<Entry<V>>>);

/// The live store of one kind.
pub struct Store<V> {
    inner: RwLock<Inner<V>>,
    listeners: RwLock<Vec<Listener<V>>>,
    ready: AtomicBool,
    /// Tasks that wait until the store is ready.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    /// Whether [`Store::list_again`] was called since the last list began.
    again: AtomicBool,
    /// Whether the watch that fills it works.
    pub health: Health,
    /// Kind, for logs and readiness.
    pub kind: &'static str,
}

impl<V> Store<V> {
    /// An empty store that is not ready.
    #[must_use]
    pub fn new(kind: &'static str) -> Arc<Self> {
        Self::indexed(kind, |_| Vec::new())
    }

    /// An empty store whose objects are also found by their terms.
    #[must_use]
    pub fn indexed(kind: &'static str, terms: Terms<V>) -> Arc<Self> {
        Self::silent_after(kind, terms, SILENT_AFTER)
    }

    /// An empty store with terms that is silent when its watch has failed for this long.
    #[must_use]
    pub fn silent_after(kind: &'static str, terms: Terms<V>, after: Duration) -> Arc<Self> {
        Arc::new(Self {
            inner: RwLock::new(Inner {
                objects: Objects::new(terms),
                tombstones: HashMap::new(),
                unconfirmed: HashMap::new(),
                ended: Ended::default(),
                listing: None,
                written_while_listing: false,
            }),
            listeners: RwLock::new(Vec::new()),
            ready: AtomicBool::new(false),
            waiting: Mutex::default(),
            again: AtomicBool::new(false),
            health: Health::new(after),
            kind,
        })
    }

    /// Calls `listener` on every change from now on. The listener runs under no lock of the store. It must not block.
    pub fn on_change(&self, listener: impl Fn(&Change<'_, V>) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    /// The newest known state of one object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry<V>>> {
        self.inner.read().objects.get(key).cloned()
    }

    /// All objects of one namespace, in no order.
    #[must_use]
    pub fn list(&self, namespace: &str) -> Vec<(Key, Arc<Entry<V>>)> {
        let inner = self.inner.read();
        let objects = inner.objects.of(namespace);
        objects.map(|(name, entry)| (Key::new(namespace, name), entry.clone())).collect()
    }

    /// The names of all objects of one namespace, in no order.
    #[must_use]
    pub fn names(&self, namespace: &str) -> Vec<String> {
        self.inner.read().objects.of(namespace).map(|(name, _)| name.to_owned()).collect()
    }

    /// The objects of one namespace that have this term, by name.
    #[must_use]
    pub fn found(&self, namespace: &str, term: &str) -> Vec<(Key, Arc<Entry<V>>)> {
        self.inner.read().objects.found(namespace, term)
    }

    /// Every object, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<(Key, Arc<Entry<V>>)> {
        self.inner.read().objects.all().map(|(key, entry)| (key, entry.clone())).collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.read().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a first complete list has been read.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    /// Waits until a first complete list has been read.
    pub async fn wait_ready(&self) {
        let wakes = {
            let mut waiting = self.waiting.lock();
            if self.is_ready() {
                return;
            }
            let (wake, wakes) = oneshot::channel();
            waiting.push(wake);
            wakes
        };
        // The sender lives as long as self, so this cannot fail.
        let _ = wakes.await;
    }

    /// The reply to a write of ours. Returns the newest known state.
    ///
    /// A reply about an object that has ended changes nothing.
    pub fn wrote(&self, key: Key, entry: Entry<V>) -> Arc<Entry<V>> {
        let (old, new) = {
            let mut inner = self.inner.write();
            if let Some(have) = inner.objects.get(&key).filter(|have| have.version >= entry.version)
            {
                return have.clone();
            }
            if inner.ended.contains(&entry.uid) {
                return Arc::new(entry);
            }
            if inner.listing.is_some() {
                inner.written_while_listing = true;
            }
            inner.tombstones.remove(&key);
            inner.unconfirmed.insert(key.clone(), entry.version);
            let new = Arc::new(entry);
            (inner.objects.insert(&key, new.clone()), new)
        };
        self.notify(&key, old.as_ref(), Some(&new));
        new
    }

    /// The reply to a delete of ours (or a "not found"): the object with that uid is gone.
    pub fn deleted(&self, key: &Key, uid: &str) {
        let old = {
            let mut inner = self.inner.write();
            if inner.listing.is_some() {
                inner.written_while_listing = true;
            }
            inner.ended.insert(uid);
            if inner.objects.get(key).is_none_or(|have| have.uid != uid) {
                return;
            }
            inner.tombstones.insert(key.clone(), uid.to_owned());
            inner.unconfirmed.remove(key);
            inner.objects.remove(key)
        };
        self.notify(key, old.as_ref(), None);
    }

    /// The watch showed an object.
    pub fn applied(&self, key: Key, entry: Entry<V>) {
        let (old, new) = {
            let mut inner = self.inner.write();
            match inner.tombstones.get(&key) {
                Some(uid) if *uid == entry.uid => return,
                Some(_) => {
                    inner.tombstones.remove(&key);
                }
                None => {}
            }
            if inner.unconfirmed.get(&key).is_some_and(|version| entry.version >= *version) {
                inner.unconfirmed.remove(&key);
            }
            if let Some(have) = inner.objects.get(&key) {
                // Versions of one resource are comparable across objects: an older event is an echo.
                if have.version >= entry.version {
                    return;
                }
            }
            let new = Arc::new(entry);
            (inner.objects.insert(&key, new.clone()), new)
        };
        self.notify(&key, old.as_ref(), Some(&new));
    }

    /// A list that ran beside the watch showed an object. The watch may have shown the end of the object already.
    pub fn shown(&self, key: Key, entry: Entry<V>) {
        let ended = self.inner.read().ended.contains(&entry.uid);
        if !ended {
            self.applied(key, entry);
        }
    }

    /// The watch showed the end of an object.
    pub fn removed(&self, key: &Key, uid: &str) {
        let old = {
            let mut inner = self.inner.write();
            inner.ended.insert(uid);
            if inner.tombstones.get(key).is_some_and(|have| have == uid) {
                inner.tombstones.remove(key);
            }
            // An object of the same name with another uid is newer than this end.
            if inner.objects.get(key).is_none_or(|have| have.uid != uid) {
                return;
            }
            inner.unconfirmed.remove(key);
            inner.objects.remove(key)
        };
        self.notify(key, old.as_ref(), None);
    }

    /// The watch showed an object that is not kept any more: it is removed from the store. For kinds that the operator does
    /// not write.
    pub fn left(&self, key: &Key) {
        // Most of these objects were never kept. For them no exclusive lock is taken.
        if self.get(key).is_none() {
            return;
        }
        let old = self.inner.write().objects.remove(key);
        if old.is_some() {
            self.notify(key, old.as_ref(), None);
        }
    }

    /// Objects that were not kept would be kept now: all objects are listed again when the watch ends, after some minutes at
    /// most.
    pub fn list_again(&self) {
        self.again.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::list_again`] was called since the last list began.
    pub fn wants_list(&self) -> bool {
        self.again.load(Ordering::Relaxed)
    }

    /// A list begins. Until it is complete, readers keep seeing the last good state.
    pub fn list_begins(&self) {
        self.again.store(false, Ordering::Relaxed);
        let mut inner = self.inner.write();
        inner.listing = Some(inner.objects.empty());
        inner.written_while_listing = false;
    }

    /// The list showed an object.
    pub fn listed(&self, key: Key, entry: Entry<V>) {
        if let Some(listing) = &mut self.inner.write().listing {
            listing.insert(&key, Arc::new(entry));
        }
    }

    /// The list is complete: it replaces the store, and listeners get every difference, also the ends of objects.
    ///
    /// Returns `false` when replies to own writes arrived while the list ran: it may be older than these. The replies are
    /// kept over the list, and the caller must list again to be sure.
    pub fn list_done(&self) -> bool {
        let (old, certain) = {
            let mut inner = self.inner.write();
            let Some(listing) = inner.listing.take() else { return true };
            let certain = !inner.written_while_listing;
            let listing = inner.merged(listing);
            (std::mem::replace(&mut inner.objects, listing), certain)
        };
        // The differences are collected under the lock. Listeners are called without it.
        let differences = self.differences_from(&old);
        drop(old);
        for (key, before, after) in &differences {
            self.notify(key, before.as_ref(), after.as_ref());
        }
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.ready.store(true, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        for wake in waiting {
            // A task that does not wait any more needs no wake-up.
            let _ = wake.send(());
        }
        certain
    }

    /// The differences between these objects and those of the store.
    fn differences_from(&self, old: &Objects<V>) -> Vec<Difference<V>> {
        let new = &self.inner.read().objects;
        let mut differences = Vec::new();
        for (key, entry) in new.all() {
            let before = old.get(&key);
            if before.is_none_or(|b| b.version != entry.version || b.uid != entry.uid) {
                differences.push((key, before.cloned(), Some(entry.clone())));
            }
        }
        for (key, entry) in old.all() {
            if new.get(&key).is_none() {
                differences.push((key, Some(entry.clone()), None));
            }
        }
        differences
    }

    /// Calls all listeners.
    fn notify(&self, key: &Key, old: Option<&Arc<Entry<V>>>, new: Option<&Arc<Entry<V>>>) {
        for listener in self.listeners.read().iter() {
            listener(&Change { key, old, new });
        }
    }
}

#[cfg(test)]
#[path = "tests/store.rs"]
mod tests;
