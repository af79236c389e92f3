//! What the GitSyncs of one namespace know of each other, so that an object that moves from one to another is handed over in
//! place, and never deleted and created again.
//!
//! Before a GitSync deletes or reports a conflict, its peers must have polled after it did: then both have seen a
//! commit that moves a file from one folder to another. All of this is kept in memory only; a peer of which nothing is
//! known is asked.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::ObjectId;
use crate::cluster::store::Key;
use crate::order::Seq;
use crate::sync::commit::desired::{Change, DesiredSet, changes};
use crate::sync::commit::loaded::Loaded;

/// After this long without an answer, a GitSync that was asked to poll counts as unreadable.
pub const POLL_ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// What a GitSync has announced after its last poll.
#[derive(Clone)]
pub struct Announced {
    /// Its uid.
    pub uid: String,
    /// Generation of the spec that the poll was made for.
    pub generation: i64,
    /// When its newest poll began.
    pub polled: Seq,
    /// The newest commit that it has read whole, for this spec.
    pub loaded: Option<Arc<Loaded>>,
    /// Whether that poll failed: then it is not known what the GitSync wants now.
    pub failed: bool,
}

/// The objects that two GitSyncs both want, by the keys of both, in both directions.
type Contested = BTreeMap<Key, BTreeMap<Key, BTreeSet<ObjectId>>>;

/// The objects that a GitSync offers to its peers.
#[derive(Default)]
pub(crate) struct Offers {
    /// The names of the takers.
    pub(crate) to: BTreeMap<ObjectId, String>,
    /// The commit that does not want them; `None` for a GitSync that is being deleted.
    of: Option<Arc<Loaded>>,
}

impl Offers {
    fn takers(&self) -> BTreeSet<String> {
        self.to.values().cloned().collect()
    }

    /// The offers that are still valid after what the giver has announced.
    pub(crate) fn valid(&self, announced: Option<&Announced>) -> BTreeMap<ObjectId, String> {
        let mut valid = self.to.clone();
        valid.retain(|id, _| self.is_valid(id, announced));
        valid
    }

    /// Whether an offer still stands: the commit that the giver has announced since does not want the object back.
    fn is_valid(&self, id: &ObjectId, announced: Option<&Announced>) -> bool {
        let read = announced.and_then(|announced| announced.loaded.as_ref());
        let (Some(of), Some(read)) = (&self.of, read) else {
            return true;
        };
        let wants = |loaded: &Loaded| {
            loaded.desired.contains_key(id) || loaded.catalog.broken.contains_key(id)
        };
        Arc::ptr_eq(of, read) || wants(of) || !wants(read)
    }
}

/// A request to poll that is not answered yet.
pub(crate) struct Asked {
    /// The point after which the poll has to begin.
    since: Seq,
    /// When the GitSync was asked first; `None` while it does not poll.
    pub(crate) at: Option<Instant>,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) announced: BTreeMap<Key, Announced>,
    pub(crate) gives: BTreeMap<Key, Offers>,
    /// Updated whenever a GitSync announces another commit.
    pub(crate) contested: Contested,
    /// By namespace, how often a GitSync has announced another commit.
    versions: BTreeMap<String, u64>,
    /// When the waiters of each GitSync were woken last, also after a poll that found no other commit.
    woken: BTreeMap<Key, Seq>,
    /// When the waiters of the GitSync that was forgotten last were woken.
    gone: Seq,
    /// The GitSyncs that are asked to poll at once.
    pub(crate) asked: BTreeMap<Key, Asked>,
    /// By GitSync, those that wait for its next poll.
    waiters: BTreeMap<Key, BTreeSet<Key>>,
    /// Those that wait until any GitSync offers objects to other peers than before.
    wait_for_takers: BTreeSet<Key>,
}

impl Inner {
    fn wait(&mut self, whom: &Key, waiter: &Key) {
        self.waiters.entry(whom.clone()).or_default().insert(waiter.clone());
    }

    /// Takes those that wait for this GitSync, to wake them.
    fn take_waiters(&mut self, key: &Key) -> Vec<Key> {
        self.woken.insert(key.clone(), Seq::next());
        self.waiters.remove(key).into_iter().flatten().collect()
    }

    /// Updates which objects a GitSync and each of its peers both want, after the GitSync has announced another commit
    /// that differs in `differing`. The cost is the number of differences for each peer. Returns the peers for which
    /// something changed.
    fn compare(&mut self, key: &Key, differing: &[(ObjectId, Change)]) -> Vec<Key> {
        let mut changed = Vec::new();
        let others = self.announced.iter().filter(|(other, _)| other.namespace == key.namespace);
        for (other, theirs) in others.filter(|(other, _)| *other != key) {
            let Some(theirs) = &theirs.loaded else { continue };
            let wants = |(id, _): &&(ObjectId, Change)| theirs.desired.contains_key(id);
            let mut has_changed = false;
            for (id, change) in differing.iter().filter(wants) {
                has_changed |= match change {
                    Change::Added => {
                        both(&mut self.contested, key, other).insert(id.clone());
                        both(&mut self.contested, other, key).insert(id.clone())
                    }
                    Change::Removed => {
                        both(&mut self.contested, key, other).remove(id);
                        both(&mut self.contested, other, key).remove(id)
                    }
                    Change::Changed => false,
                };
            }
            if has_changed {
                changed.push(other.clone());
            }
        }
        changed
    }
}

/// The objects that both GitSyncs want, as the first of them sees them.
fn both<'a>(contested: &'a mut Contested, of: &Key, with: &Key) -> &'a mut BTreeSet<ObjectId> {
    contested.entry(of.clone()).or_default().entry(with.clone()).or_default()
}

/// The objects in which two commits differ; either may be none.
fn differing(old: Option<&Arc<Loaded>>, new: Option<&Arc<Loaded>>) -> Vec<(ObjectId, Change)> {
    let nothing = DesiredSet::new();
    match (old, new) {
        (Some(old), Some(new)) if Arc::ptr_eq(old, new) => Vec::new(),
        (old, new) => changes(
            old.map_or(&nothing, |loaded| &loaded.desired),
            new.map_or(&nothing, |loaded| &loaded.desired),
        ),
    }
}

/// What the GitSyncs of all namespaces have announced, offer and ask of each other.
#[derive(Default)]
pub struct Peers(Mutex<Inner>);

impl Peers {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// A GitSync has polled. Returns those that waited for it.
    #[must_use]
    pub fn announce(&self, key: &Key, announced: Announced) -> Vec<Key> {
        let commit = |of: Option<&Announced>| of.and_then(|announced| announced.loaded.clone());
        let mut before = commit(self.announced(key).as_ref());
        let new = announced.loaded.clone();
        // Compared without the lock: that takes long for two large commits.
        let mut change = differing(before.as_ref(), new.as_ref());
        let mut inner = self.lock();
        if inner.asked.get(key).is_some_and(|asked| announced.polled > asked.since) {
            inner.asked.remove(key);
        }
        let known = inner.announced.insert(key.clone(), announced);
        let old = commit(known.as_ref());
        if old.as_ref().map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
            // The GitSync has announced another commit meanwhile.
            change = differing(old.as_ref(), new.as_ref());
            before = old;
        }
        let mut wake = inner.take_waiters(key);
        if known.is_none() || before.as_ref().map(Arc::as_ptr) != new.as_ref().map(Arc::as_ptr) {
            *inner.versions.entry(key.namespace.clone()).or_default() += 1;
            wake.extend(inner.compare(key, &change));
        }
        wake
    }

    /// A GitSync has polled, and its reconcile has not taken the answer in yet. Those that wait for it are woken by that
    /// reconcile.
    pub fn announce_unreconciled(&self, key: &Key, announced: Announced) {
        let waiters = self.announce(key, announced);
        let mut inner = self.lock();
        for waiter in waiters {
            inner.wait(key, &waiter);
        }
    }

    /// What a GitSync announced last.
    #[must_use]
    pub fn announced(&self, key: &Key) -> Option<Announced> {
        self.lock().announced.get(key).cloned()
    }

    /// A number that grows when a GitSync of the namespace announces another commit.
    #[must_use]
    pub fn version(&self, namespace: &str) -> u64 {
        self.lock().versions.get(namespace).copied().unwrap_or_default()
    }

    /// The peers that want an object that this GitSync wants, too.
    #[must_use]
    pub fn rivals(&self, key: &Key) -> Vec<Key> {
        let inner = self.lock();
        let contested = inner.contested.get(key).into_iter().flatten();
        contested.filter(|(_, both)| !both.is_empty()).map(|(other, _)| other.clone()).collect()
    }

    /// The names of the peers to which a GitSync offers objects.
    #[must_use]
    pub fn takers(&self, key: &Key) -> BTreeSet<String> {
        self.lock().gives.get(key).map(Offers::takers).unwrap_or_default()
    }

    /// Wakes `waiter` when any GitSync offers objects to other peers than before.
    pub fn wait_for_takers(&self, waiter: &Key) {
        self.lock().wait_for_takers.insert(waiter.clone());
    }

    /// Whether a GitSync offers an object to `taker`.
    #[must_use]
    pub fn gives(&self, key: &Key, id: &ObjectId, taker: &str) -> bool {
        let inner = self.lock();
        let Some(gives) = inner.gives.get(key) else { return false };
        gives.to.get(id).is_some_and(|to| to == taker)
            && gives.is_valid(id, inner.announced.get(key))
    }

    /// Replaces the offers of a GitSync. Returns the names of the peers to wake: those with a new offer, and, if the
    /// takers are others than before, those that wait for that.
    #[must_use]
    pub fn give(
        &self,
        key: &Key,
        gives: &[(ObjectId, String)],
        of: Option<&Arc<Loaded>>,
    ) -> Vec<String> {
        let offers = Offers { to: gives.iter().cloned().collect(), of: of.cloned() };
        let takers = offers.takers();
        let mut inner = self.lock();
        let old = if offers.to.is_empty() {
            inner.gives.remove(key)
        } else {
            inner.gives.insert(key.clone(), offers)
        }
        .unwrap_or_default();
        let new = gives.iter().filter(|(id, to)| old.to.get(id) != Some(to));
        let mut wake: BTreeSet<_> = new.map(|(_, to)| to.clone()).collect();
        if old.takers() != takers {
            wake.extend(std::mem::take(&mut inner.wait_for_takers).into_iter().map(|key| key.name));
        }
        wake.into_iter().collect()
    }

    /// A GitSync does not poll, because it is suspended, deleted or does not parse. Returns those that waited for its poll.
    #[must_use]
    pub fn take_waiters(&self, key: &Key) -> Vec<Key> {
        let mut inner = self.lock();
        if let Some(asked) = inner.asked.get_mut(key) {
            // Its time to answer starts again when it polls again.
            asked.at = None;
        }
        inner.take_waiters(key)
    }

    /// Forgets a GitSync that is gone. Returns those that waited for it.
    #[must_use]
    pub fn forget(&self, key: &Key) -> Vec<Key> {
        let mut inner = self.lock();
        inner.announced.remove(key);
        inner.gives.remove(key);
        inner.asked.remove(key);
        inner.wait_for_takers.remove(key);
        let mut wake = inner.take_waiters(key);
        inner.gone = inner.woken.remove(key).unwrap_or_default();
        for (other, both) in inner.contested.remove(key).unwrap_or_default() {
            if let Some(theirs) = inner.contested.get_mut(&other) {
                theirs.remove(key);
            }
            if !both.is_empty() {
                wake.push(other);
            }
        }
        wake
    }

    /// Wakes `waiter` at the next poll of `whom`. Returns whether `whom` has polled since `seen`, when the waiter
    /// looked at its peers: reconciles of one namespace run concurrently, and that poll did not wake a GitSync that was
    /// not waiting yet.
    #[must_use]
    pub fn wait(&self, whom: &Key, waiter: &Key, seen: Seq) -> bool {
        let mut inner = self.lock();
        inner.wait(whom, waiter);
        inner.gone > seen || inner.woken.get(whom).is_some_and(|woken| *woken > seen)
    }

    /// Asks `whom` to poll at once: a poll that begins after `since` answers that. Returns whether the request is new: two
    /// GitSyncs that wait for each other must not wake each other all the time.
    #[must_use]
    pub fn ask(&self, whom: &Key, since: Seq, now: Instant) -> bool {
        let mut inner = self.lock();
        let known =
            inner.asked.get(whom).is_some_and(|asked| asked.at.is_some() && asked.since >= since);
        let asked = inner.asked.entry(whom.clone()).or_insert(Asked { since, at: None });
        asked.at.get_or_insert(now);
        asked.since = since.max(asked.since);
        !known
    }

    /// Whether a peer has asked this GitSync to poll, and no poll has answered that yet.
    #[must_use]
    pub fn is_asked(&self, key: &Key) -> bool {
        self.lock().asked.contains_key(key)
    }

    /// The GitSyncs that have an entry, for tests.
    #[cfg(test)]
    pub fn names(&self) -> Vec<(&'static str, Vec<String>)> {
        let inner = self.lock();
        let of = |keys: Vec<&Key>| keys.into_iter().map(|key| key.name.clone()).collect();
        let waiters = inner.waiters.iter().flat_map(|(whom, all)| all.iter().chain([whom]));
        let contested = inner.contested.values().flat_map(BTreeMap::keys);
        vec![
            ("what is announced", of(inner.announced.keys().collect())),
            ("what is given", of(inner.gives.keys().collect())),
            ("what is asked", of(inner.asked.keys().collect())),
            ("who was woken", of(inner.woken.keys().collect())),
            ("who waits", of(waiters.chain(&inner.wait_for_takers).collect())),
            ("what is contested", of(inner.contested.keys().chain(contested).collect())),
        ]
    }
}
