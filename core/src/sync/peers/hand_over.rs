//! What the GitSyncs of one namespace know of each other, so that an object that moves from one to another is handed
//! over in place and never deleted and made anew.
//!
//! Before one deletes or complains, the others must have looked at their remotes after this one did: a commit that
//! moves a file from one folder to another is seen by both. LastGood in memory only; whoever is unknown is asked.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::ObjectId;
use crate::cluster::store::Key;
use crate::sync::commit::desired::{Change, DesiredSet, changes};
use crate::sync::commit::loaded::Loaded;
use crate::sync::order::Seq;

/// After this long without an answer, a GitSync that was asked to look at its remote cannot be read.
pub const GIVE_UP: Duration = Duration::from_secs(60);

/// What a GitSync has told of itself.
#[derive(Clone)]
pub struct Announced {
    /// Its uid.
    pub uid: String,
    /// Generation of the spec that was read with.
    pub generation: i64,
    /// When its newest look at the remote began.
    pub polled: Seq,
    /// The newest commit that it has read whole, for this spec.
    pub loaded: Option<Arc<Loaded>>,
    /// Whether that look failed: then it is not known what it wants now.
    pub failed: bool,
}

/// Objects that a GitSync and another one both want, by their keys; held from both sides.
type Contested = BTreeMap<Key, BTreeMap<Key, BTreeSet<ObjectId>>>;

/// Objects that a GitSync leaves to others.
#[derive(Default)]
pub(crate) struct Offers {
    /// The names of the takers.
    pub(crate) to: BTreeMap<ObjectId, String>,
    /// The commit that does not need them; `None` for a GitSync that comes to its end.
    of: Option<Arc<Loaded>>,
}

impl Offers {
    fn takers(&self) -> BTreeSet<String> {
        self.to.values().cloned().collect()
    }

    /// Those that stand, though the giver has read another commit since then.
    pub(crate) fn standing(&self, told: Option<&Announced>) -> BTreeMap<ObjectId, String> {
        let mut standing = self.to.clone();
        standing.retain(|id, _| self.stands(id, told));
        standing
    }

    /// Whether what the giver has read since then does not want the object back.
    fn stands(&self, id: &ObjectId, told: Option<&Announced>) -> bool {
        let (Some(of), Some(read)) = (&self.of, told.and_then(|told| told.loaded.as_ref())) else {
            return true;
        };
        let wants = |loaded: &Loaded| {
            loaded.desired.contains_key(id) || loaded.catalog.broken.contains_key(id)
        };
        Arc::ptr_eq(of, read) || wants(of) || !wants(read)
    }
}

/// A question that is not answered yet.
pub(crate) struct Asked {
    /// After which place in the order of things the look has to begin.
    since: Seq,
    /// When it was asked first; `None` while it will not look.
    pub(crate) at: Option<Instant>,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) told: BTreeMap<Key, Announced>,
    pub(crate) gives: BTreeMap<Key, Offers>,
    /// What each and each other one of its namespace both want: changed when either has read another commit.
    pub(crate) contested: Contested,
    /// How often a GitSync of a namespace has told of another commit.
    news: BTreeMap<String, u64>,
    /// When each was heard of last by those who waited for it: also that it has looked and found nothing new.
    heard: BTreeMap<Key, Seq>,
    /// When one has gone last.
    gone: Seq,
    /// Who is asked to look at its remote at once.
    pub(crate) asked: BTreeMap<Key, Asked>,
    /// Who waits for a look of another one.
    waiters: BTreeMap<Key, BTreeSet<Key>>,
    /// Who waits for a change of those to whom objects are left.
    by_takers: BTreeSet<Key>,
}

impl Inner {
    fn wait(&mut self, whom: &Key, waiter: &Key) {
        self.waiters.entry(whom.clone()).or_default().insert(waiter.clone());
    }

    /// Those who wait for this one: they are to hear something of it.
    fn take_waiters(&mut self, key: &Key) -> Vec<Key> {
        self.heard.insert(key.clone(), Seq::next());
        self.waiters.remove(key).into_iter().flatten().collect()
    }

    /// Brings up to date what a GitSync and each other one of its namespace both want: `differing` is where what it wants
    /// differs from what it wanted before. Costs what changed, for each other one. Returns those for whom something changed.
    fn compare(&mut self, key: &Key, differing: &[(ObjectId, Change)]) -> Vec<Key> {
        let mut changed = Vec::new();
        let others = self.told.iter().filter(|(other, _)| other.namespace == key.namespace);
        for (other, theirs) in others.filter(|(other, _)| *other != key) {
            let Some(theirs) = &theirs.loaded else { continue };
            let wants = |(id, _): &&(ObjectId, Change)| theirs.desired.contains_key(id);
            let mut news = false;
            for (id, change) in differing.iter().filter(wants) {
                news |= match change {
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
            if news {
                changed.push(other.clone());
            }
        }
        changed
    }
}

/// What two of them want, as the first one sees it.
fn both<'a>(contested: &'a mut Contested, of: &Key, with: &Key) -> &'a mut BTreeSet<ObjectId> {
    contested.entry(of.clone()).or_default().entry(with.clone()).or_default()
}

/// What differs between two commits; either may be none.
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

/// See the module.
#[derive(Default)]
pub struct Peers(Mutex<Inner>);

impl Peers {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// A GitSync has looked at its remote. Returns those that waited for it.
    #[must_use]
    pub fn tell(&self, key: &Key, told: Announced) -> Vec<Key> {
        let commit = |told: Option<&Announced>| told.and_then(|told| told.loaded.clone());
        let mut before = commit(self.told(key).as_ref());
        let new = told.loaded.clone();
        // Two commits are long to compare: that is done without the lock.
        let mut change = differing(before.as_ref(), new.as_ref());
        let mut inner = self.lock();
        if inner.asked.get(key).is_some_and(|asked| told.polled > asked.since) {
            inner.asked.remove(key);
        }
        let known = inner.told.insert(key.clone(), told);
        let old = commit(known.as_ref());
        if old.as_ref().map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
            // It has told something else meanwhile.
            change = differing(old.as_ref(), new.as_ref());
            before = old;
        }
        let mut wake = inner.take_waiters(key);
        if known.is_none() || before.as_ref().map(Arc::as_ptr) != new.as_ref().map(Arc::as_ptr) {
            *inner.news.entry(key.namespace.clone()).or_default() += 1;
            wake.extend(inner.compare(key, &change));
        }
        wake
    }

    /// The same, before a pass has taken it in: whoever waits for it is woken by that one.
    pub fn hear(&self, key: &Key, told: Announced) {
        let waiters = self.tell(key, told);
        let mut inner = self.lock();
        for waiter in waiters {
            inner.wait(key, &waiter);
        }
    }

    /// What a GitSync told last.
    #[must_use]
    pub fn told(&self, key: &Key) -> Option<Announced> {
        self.lock().told.get(key).cloned()
    }

    /// A number that grows when a GitSync of the namespace tells of another commit.
    #[must_use]
    pub fn news(&self, namespace: &str) -> u64 {
        self.lock().news.get(namespace).copied().unwrap_or_default()
    }

    /// Those that want something that this one wants, too.
    #[must_use]
    pub fn rivals(&self, key: &Key) -> Vec<Key> {
        let inner = self.lock();
        let contested = inner.contested.get(key).into_iter().flatten();
        contested.filter(|(_, both)| !both.is_empty()).map(|(other, _)| other.clone()).collect()
    }

    /// To whom a GitSync leaves objects.
    #[must_use]
    pub fn takers(&self, key: &Key) -> BTreeSet<String> {
        self.lock().gives.get(key).map(Offers::takers).unwrap_or_default()
    }

    /// Wakes `waiter` when it is others to whom one of the GitSyncs leaves objects.
    pub fn wait_for_takers(&self, waiter: &Key) {
        self.lock().by_takers.insert(waiter.clone());
    }

    /// Whether a GitSync leaves an object to this one.
    #[must_use]
    pub fn gives(&self, key: &Key, id: &ObjectId, taker: &str) -> bool {
        let inner = self.lock();
        let Some(gives) = inner.gives.get(key) else { return false };
        gives.to.get(id).is_some_and(|to| to == taker) && gives.stands(id, inner.told.get(key))
    }

    /// What a GitSync leaves to others now, because this commit does not need it. Returns the names of those that hear of
    /// something new: who may take something, and when it is others than before also who waits for that.
    #[must_use]
    pub fn give(
        &self,
        key: &Key,
        gives: &[(ObjectId, String)],
        of: Option<&Arc<Loaded>>,
    ) -> Vec<String> {
        let gifts = Offers { to: gives.iter().cloned().collect(), of: of.cloned() };
        let takers = gifts.takers();
        let mut inner = self.lock();
        let old = if gifts.to.is_empty() {
            inner.gives.remove(key)
        } else {
            inner.gives.insert(key.clone(), gifts)
        }
        .unwrap_or_default();
        let new = gives.iter().filter(|(id, to)| old.to.get(id) != Some(to));
        let mut hear: BTreeSet<_> = new.map(|(_, to)| to.clone()).collect();
        if old.takers() != takers {
            hear.extend(std::mem::take(&mut inner.by_takers).into_iter().map(|key| key.name));
        }
        hear.into_iter().collect()
    }

    /// A GitSync does not look at its remote now, whoever asks. Returns those that waited for it: they see why.
    #[must_use]
    pub fn take_waiters(&self, key: &Key) -> Vec<Key> {
        let mut inner = self.lock();
        if let Some(asked) = inner.asked.get_mut(key) {
            // Its time to answer begins anew when it looks again.
            asked.at = None;
        }
        inner.take_waiters(key)
    }

    /// A GitSync is gone. Returns those that waited for it.
    #[must_use]
    pub fn forget(&self, key: &Key) -> Vec<Key> {
        let mut inner = self.lock();
        inner.told.remove(key);
        inner.gives.remove(key);
        inner.asked.remove(key);
        inner.by_takers.remove(key);
        let mut wake = inner.take_waiters(key);
        inner.gone = inner.heard.remove(key).unwrap_or_default();
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

    /// Wakes `waiter` at the next look of `whom`. Returns whether that one was heard of after `asked`, when it was looked up what is
    /// known: of that nobody was told who did not wait yet, and passes of one namespace run beside each other.
    #[must_use]
    pub fn wait(&self, whom: &Key, waiter: &Key, asked: Seq) -> bool {
        let mut inner = self.lock();
        inner.wait(whom, waiter);
        inner.gone > asked || inner.heard.get(whom).is_some_and(|heard| *heard > asked)
    }

    /// A look of `whom` is to be at once, unless one that began after `since` is on its way. Returns whether that is news for it: two
    /// that wait for each other must not wake each other all the time.
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

    /// Whether somebody waits for a look of this one. The question stands until a look has answered it.
    #[must_use]
    pub fn is_asked(&self, key: &Key) -> bool {
        self.lock().asked.contains_key(key)
    }

    /// Of whom something is kept, for tests.
    #[cfg(test)]
    pub fn names(&self) -> Vec<(&'static str, Vec<String>)> {
        let inner = self.lock();
        let of = |keys: Vec<&Key>| keys.into_iter().map(|key| key.name.clone()).collect();
        let waiters = inner.waiters.iter().flat_map(|(whom, all)| all.iter().chain([whom]));
        let contested = inner.contested.values().flat_map(BTreeMap::keys);
        vec![
            ("what is told", of(inner.told.keys().collect())),
            ("what is given", of(inner.gives.keys().collect())),
            ("what is asked", of(inner.asked.keys().collect())),
            ("what was heard", of(inner.heard.keys().collect())),
            ("who waits", of(waiters.chain(&inner.by_takers).collect())),
            ("what is contested", of(inner.contested.keys().chain(contested).collect())),
        ]
    }
}
