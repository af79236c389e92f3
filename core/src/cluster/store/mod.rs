//! The live store of one kind: what the watch has shown, overlaid with the replies to our own writes.
//!
//! A reply (object, or tombstone of a delete) counts at once; older watch events for the same object are
//! ignored until the watch has passed it. So a plan that runs right after an apply sees what was applied.

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

pub use health::{Health, PATIENCE};
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

/// One object as the store keeps it: identity and version, and whatever the kind's view keeps of the rest.
#[derive(Debug)]
pub struct Entry<V> {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` as a number: it grows with every write of the same object.
    pub version: u64,
    /// What the kind keeps of the object.
    pub value: V,
}

/// One change of a store, as told to listeners. `old` and `new` are never both `None`.
pub struct Change<'a, V> {
    /// Which object.
    pub key: &'a Key,
    /// Before.
    pub old: Option<&'a Arc<Entry<V>>>,
    /// After; `None` when the object is gone.
    pub new: Option<&'a Arc<Entry<V>>>,
}

/// The newest objects whose end is known. A uid is never used again, so whatever still arrives about one is late.
///
/// Kept as hashes and bounded: only a reply that is on its way while the object ends can be late.
#[derive(Default)]
struct Ended {
    order: VecDeque<u64>,
    uids: HashSet<u64>,
}

impl Ended {
    const MOST: usize = 8192;

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
        while self.order.len() > Self::MOST {
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
    /// Objects whose end is known: a late reply must not revive them.
    ended: Ended,
    /// While a list runs: what it has shown so far.
    listing: Option<Objects<V>>,
    /// Own writes that arrived while a list ran: the list may or may not hold them.
    written_while_listing: bool,
}

/// See the module.
pub struct Store<V> {
    inner: RwLock<Inner<V>>,
    listeners: RwLock<Vec<Listener<V>>>,
    ready: AtomicBool,
    /// Who waits for it to be ready.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    /// See [`Store::list_again`].
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

    /// The same for a store whose objects are also found by their terms.
    #[must_use]
    pub fn indexed(kind: &'static str, terms: Terms<V>) -> Arc<Self> {
        Self::patient(kind, terms, PATIENCE)
    }

    /// The same for a store that is called silent when its watch fails for longer than that.
    #[must_use]
    pub fn patient(kind: &'static str, terms: Terms<V>, patience: Duration) -> Arc<Self> {
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
            health: Health::new(patience),
            kind,
        })
    }

    /// Calls `listener` on every change from now on. It runs under no lock of the store and must not block.
    pub fn on_change(&self, listener: impl Fn(&Change<'_, V>) + Send + Sync + 'static) {
        write(&self.listeners).push(Box::new(listener));
    }

    /// The newest known state of one object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry<V>>> {
        read(&self.inner).objects.get(key).cloned()
    }

    /// All objects of one namespace, in no order.
    #[must_use]
    pub fn list(&self, namespace: &str) -> Vec<(Key, Arc<Entry<V>>)> {
        let inner = read(&self.inner);
        let objects = inner.objects.of(namespace);
        objects.map(|(name, entry)| (Key::new(namespace, name), entry.clone())).collect()
    }

    /// The names of all objects of one namespace, in no order.
    #[must_use]
    pub fn names(&self, namespace: &str) -> Vec<String> {
        read(&self.inner).objects.of(namespace).map(|(name, _)| name.to_owned()).collect()
    }

    /// The objects of one namespace that have this term, by name.
    #[must_use]
    pub fn found(&self, namespace: &str, term: &str) -> Vec<(Key, Arc<Entry<V>>)> {
        read(&self.inner).objects.found(namespace, term)
    }

    /// Every object, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<(Key, Arc<Entry<V>>)> {
        read(&self.inner).objects.all().map(|(key, entry)| (key, entry.clone())).collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        read(&self.inner).objects.len()
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
    /// A reply about an object whose end is known already changes nothing.
    pub fn wrote(&self, key: Key, entry: Entry<V>) -> Arc<Entry<V>> {
        let (old, new) = {
            let mut inner = write(&self.inner);
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
        self.tell(&key, old.as_ref(), Some(&new));
        new
    }

    /// The reply to a delete of ours (or a "not found"): the object with that uid is gone.
    pub fn deleted(&self, key: &Key, uid: &str) {
        let old = {
            let mut inner = write(&self.inner);
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
        self.tell(key, old.as_ref(), None);
    }

    /// The watch showed an object.
    pub fn applied(&self, key: Key, entry: Entry<V>) {
        let (old, new) = {
            let mut inner = write(&self.inner);
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
        self.tell(&key, old.as_ref(), Some(&new));
    }

    /// A list that ran beside the watch showed an object. The watch may have shown its end already.
    pub fn shown(&self, key: Key, entry: Entry<V>) {
        let ended = read(&self.inner).ended.contains(&entry.uid);
        if !ended {
            self.applied(key, entry);
        }
    }

    /// The watch showed the end of an object.
    pub fn removed(&self, key: &Key, uid: &str) {
        let old = {
            let mut inner = write(&self.inner);
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
        self.tell(key, old.as_ref(), None);
    }

    /// The watch showed an object that is not to be kept: it ends here, whatever becomes of it. For stores that nobody
    /// writes to.
    pub fn left(&self, key: &Key) {
        // Most are none that was ever kept: those take no exclusive lock.
        if self.get(key).is_none() {
            return;
        }
        let old = write(&self.inner).objects.remove(key);
        if old.is_some() {
            self.tell(key, old.as_ref(), None);
        }
    }

    /// Something that was not kept would be kept now: when the watch ends, after some minutes at most, everything is
    /// listed again.
    pub fn list_again(&self) {
        self.again.store(true, Ordering::Relaxed);
    }

    /// Whether somebody wants a list.
    pub fn wants_list(&self) -> bool {
        self.again.load(Ordering::Relaxed)
    }

    /// A list begins. Until it is complete, readers keep seeing the last good state.
    pub fn list_begins(&self) {
        self.again.store(false, Ordering::Relaxed);
        let mut inner = write(&self.inner);
        inner.listing = Some(inner.objects.empty());
        inner.written_while_listing = false;
    }

    /// The list showed an object.
    pub fn listed(&self, key: Key, entry: Entry<V>) {
        if let Some(listing) = &mut write(&self.inner).listing {
            listing.insert(&key, Arc::new(entry));
        }
    }

    /// The list is complete: it replaces the store, and listeners hear every difference, ends included.
    ///
    /// Returns `false` when own writes arrived while it ran: then it may be older than they are. Own writes are
    /// kept over it, and the caller must list again to be sure.
    pub fn list_done(&self) -> bool {
        let (old, certain) = {
            let mut guard = write(&self.inner);
            let inner = &mut *guard;
            let Some(mut listing) = inner.listing.take() else { return true };
            let certain = !inner.written_while_listing;
            if certain {
                // The list began after every write of ours was answered, and lists are quorum reads.
                inner.tombstones.clear();
                inner.unconfirmed.clear();
                // A list that shows an object proves that it lives, whatever was believed.
                if listing.all().any(|(_, entry)| inner.ended.contains(&entry.uid)) {
                    inner.ended.clear();
                }
            } else {
                for (key, version) in &inner.unconfirmed {
                    let ours = inner.objects.get(key);
                    if let Some(ours) =
                        ours.filter(|_| listing.get(key).is_none_or(|l| l.version < *version))
                    {
                        listing.insert(key, ours.clone());
                    }
                }
                for (key, uid) in &inner.tombstones {
                    if listing.get(key).is_some_and(|l| l.uid == *uid) {
                        listing.remove(key);
                    }
                }
            }
            (std::mem::replace(&mut inner.objects, listing), certain)
        };
        // What differs is collected under the lock and told without it.
        let mut news = Vec::new();
        {
            let new = &read(&self.inner).objects;
            for (key, entry) in new.all() {
                let before = old.get(&key);
                if before.is_none_or(|b| b.version != entry.version || b.uid != entry.uid) {
                    news.push((key, before.cloned(), Some(entry.clone())));
                }
            }
            for (key, entry) in old.all() {
                if new.get(&key).is_none() {
                    news.push((key, Some(entry.clone()), None));
                }
            }
        }
        drop(old);
        for (key, before, after) in &news {
            self.tell(key, before.as_ref(), after.as_ref());
        }
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.ready.store(true, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        for wake in waiting {
            // Who does not wait any more misses nothing.
            let _ = wake.send(());
        }
        certain
    }

    fn tell(&self, key: &Key, old: Option<&Arc<Entry<V>>>, new: Option<&Arc<Entry<V>>>) {
        for listener in read(&self.listeners).iter() {
            listener(&Change { key, old, new });
        }
    }
}

/// A poisoned lock means that a listener panicked; the data itself is whole, so going on is right.
fn read<T>(lock: &RwLock<T>) -> parking_lot::RwLockReadGuard<'_, T> {
    lock.read()
}

fn write<T>(lock: &RwLock<T>) -> parking_lot::RwLockWriteGuard<'_, T> {
    lock.write()
}

#[cfg(test)]
#[path = "tests/store.rs"]
mod tests;
