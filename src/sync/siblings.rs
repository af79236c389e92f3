//! What the GitSyncs of one namespace know of each other, so that an object that moves from one to another is handed
//! over in place and never deleted and made anew.
//!
//! Before one deletes or complains, the others must have looked at their remotes after this one did: a commit that
//! moves a file from one folder to another is seen by both. Kept in memory only; whoever is unknown is asked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;

use super::desired::{Change, changes};
use super::plan::{Others, Rival};
use super::source::Loaded;
use crate::api::{GitSync, ObjectId};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key, Store};

/// What a GitSync has told of itself.
#[derive(Clone)]
pub struct Told {
    /// Its uid.
    pub uid: String,
    /// Generation of the spec that was read with.
    pub generation: i64,
    /// When its newest look at the remote began.
    pub polled: Instant,
    /// The newest commit that it has read whole, for this spec.
    pub loaded: Option<Arc<Loaded>>,
    /// Whether that look failed: then it is not known what it wants now.
    pub failed: bool,
}

#[derive(Default)]
struct Inner {
    told: HashMap<Key, Told>,
    /// Objects that a GitSync leaves to others: by name of the taker.
    gives: HashMap<Key, BTreeMap<ObjectId, String>>,
    /// What a GitSync and another one want, by the other's key. Found when either has read another commit.
    contested: HashMap<Key, HashMap<Key, Vec<ObjectId>>>,
    /// How often a GitSync of a namespace has told of another commit.
    news: HashMap<String, u64>,
    /// Who is asked to look at its remote at once.
    asked: HashSet<Key>,
    /// Who waits for a look of another one.
    waiters: HashMap<Key, HashSet<Key>>,
}

impl Inner {
    /// Finds what a GitSync and each other one of its namespace both want, by what differs from the commit that it told
    /// of `before`. Returns those for whom that changed.
    fn compare(&mut self, key: &Key, before: Option<&Loaded>) -> Vec<Key> {
        let desired = |told: &Told| told.loaded.clone();
        let mine = self.told.get(key).and_then(desired);
        let others: Vec<_> = self.told.keys().filter(|other| *other != key).cloned().collect();
        let mut changed = Vec::new();
        for other in others.into_iter().filter(|other| other.namespace == key.namespace) {
            let theirs = self.told.get(&other).and_then(desired);
            let known = self.contested.entry(other.clone()).or_default();
            let both: Vec<ObjectId> = match (&mine, &theirs) {
                (Some(mine), Some(theirs)) => {
                    let both = known.get(key).map(Vec::as_slice).unwrap_or_default();
                    both_want(before.map(|before| (before, both)), mine, theirs)
                }
                _ => Vec::new(),
            };
            let before = if both.is_empty() {
                known.remove(key)
            } else {
                known.insert(key.clone(), both.clone())
            };
            if before.unwrap_or_default() != both {
                changed.push(other.clone());
            }
            let own = self.contested.entry(key.clone()).or_default();
            own.insert(other, both);
        }
        if mine.is_none() {
            self.contested.remove(key);
        }
        changed
    }
}

/// What two commits both want, sorted; `before` is the commit before `mine`, and what it and `theirs` both want.
fn both_want(
    before: Option<(&Loaded, &[ObjectId])>,
    mine: &Loaded,
    theirs: &Loaded,
) -> Vec<ObjectId> {
    let Some((before, both)) = before else {
        let ids = mine.desired.keys();
        return ids.filter(|id| theirs.desired.contains_key(id)).cloned().collect();
    };
    let mut both: BTreeSet<_> = both.iter().cloned().collect();
    for (id, change) in changes(&before.desired, &mine.desired) {
        match change {
            Change::Came if theirs.desired.contains_key(&id) => drop(both.insert(id)),
            Change::Gone => drop(both.remove(&id)),
            Change::Came | Change::Differs => {}
        }
    }
    both.into_iter().collect()
}

/// See the module.
#[derive(Default)]
pub struct Siblings(Mutex<Inner>);

impl Siblings {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A GitSync has looked at its remote. Returns those that waited for it.
    #[must_use]
    pub fn tell(&self, key: &Key, told: Told) -> Vec<Key> {
        let mut inner = self.lock();
        let commit = |told: &Told| told.loaded.as_ref().map(Arc::as_ptr);
        let news = inner.told.get(key).is_none_or(|old| commit(old) != commit(&told));
        let before = inner.told.insert(key.clone(), told).and_then(|old| old.loaded);
        let mut wake: Vec<_> = inner.waiters.remove(key).into_iter().flatten().collect();
        if news {
            *inner.news.entry(key.namespace.clone()).or_default() += 1;
            wake.extend(inner.compare(key, before.as_deref()));
        }
        wake
    }

    /// What a GitSync told last.
    #[must_use]
    pub fn told(&self, key: &Key) -> Option<Told> {
        self.lock().told.get(key).cloned()
    }

    /// A number that grows when a GitSync of the namespace tells of another commit.
    #[must_use]
    pub fn news(&self, namespace: &str) -> u64 {
        self.lock().news.get(namespace).copied().unwrap_or_default()
    }

    /// Whether a GitSync leaves objects to this one and to no other.
    #[must_use]
    pub fn gives_only_to(&self, key: &Key, taker: &str) -> bool {
        self.lock().gives.get(key).is_some_and(|gives| gives.values().all(|to| to == taker))
    }

    /// What a GitSync leaves to others now. Returns the names of those that hear of something new.
    #[must_use]
    pub fn give(&self, key: &Key, gives: &[(ObjectId, String)]) -> Vec<String> {
        let gives: BTreeMap<_, _> = gives.iter().cloned().collect();
        let mut inner = self.lock();
        let old = if gives.is_empty() {
            inner.gives.remove(key)
        } else {
            inner.gives.insert(key.clone(), gives.clone())
        }
        .unwrap_or_default();
        let new = gives.iter().filter(|(id, to)| old.get(id) != Some(to));
        let mut takers: Vec<_> = new.map(|(_, to)| to.clone()).collect();
        takers.sort();
        takers.dedup();
        takers
    }

    /// A GitSync is gone. Returns those that waited for it.
    #[must_use]
    pub fn forget(&self, key: &Key) -> Vec<Key> {
        let mut inner = self.lock();
        inner.told.remove(key);
        inner.gives.remove(key);
        inner.asked.remove(key);
        let mut wake: Vec<_> = inner.waiters.remove(key).into_iter().flatten().collect();
        wake.extend(inner.compare(key, None));
        wake
    }

    /// Wakes `waiter` at the next look of `whom`; with `now` that look is to be at once.
    pub fn wait(&self, whom: &Key, waiter: &Key, now: bool) {
        let mut inner = self.lock();
        inner.waiters.entry(whom.clone()).or_default().insert(waiter.clone());
        if now {
            inner.asked.insert(whom.clone());
        }
    }

    /// Whether somebody waits for a look of this one; asking takes the question away.
    #[must_use]
    pub fn take_asked(&self, key: &Key) -> bool {
        self.lock().asked.remove(key)
    }

    /// The others of the namespace, as seen by `key`, whose commit was found at `since`.
    #[must_use]
    pub fn view<'a>(
        &self,
        key: &Key,
        since: Instant,
        syncs: &'a Store<Managed<GitSync>>,
    ) -> View<'a> {
        let mut view = View {
            me: key.name.clone(),
            syncs,
            known: BTreeMap::new(),
            gives: BTreeMap::new(),
            contested: BTreeMap::new(),
            unknown: Vec::new(),
            failed: Vec::new(),
        };
        let inner = self.lock();
        let age = |entry: &Entry<Managed<GitSync>>| {
            let created = entry.value.object()?.metadata.creation_timestamp.as_ref()?.0;
            Some((created, entry.uid.clone()))
        };
        let my_age = syncs.get(key).as_deref().and_then(age);
        let contested = inner.contested.get(key);
        for (other, entry) in syncs.list(&key.namespace) {
            if other == *key {
                continue;
            }
            if entry.value.facts.deleting {
                // It wants nothing any more, but may still be giving away.
                if let Some(gives) = inner.gives.get(&other) {
                    view.gives.insert(other.name.clone(), gives.clone());
                }
                continue;
            }
            let told = inner.told.get(&other).filter(|told| told.uid == entry.uid);
            let suspended = entry.value.object().is_some_and(|sync| sync.spec.suspend);
            let fresh = told.filter(|told| {
                suspended
                    || (told.polled >= since
                        && Some(told.generation) == entry.value.facts.generation)
            });
            match fresh {
                Some(told) if !told.failed => {
                    if let Some(gives) = inner.gives.get(&other) {
                        view.gives.insert(other.name.clone(), gives.clone());
                    }
                }
                Some(_) if !suspended => view.failed.push(other.clone()),
                // It was read before it was suspended, and counts with what it wanted then.
                Some(_) => {}
                // Since the operator started it has not been read, and it will not be.
                None if suspended || entry.value.object().is_none() => {
                    view.failed.push(other.clone());
                }
                None => view.unknown.push(other.clone()),
            }
            let rivals = contested.and_then(|all| all.get(&other)).filter(|_| !suspended);
            let older = matches!((age(&entry), &my_age), (Some(its), Some(mine)) if its < *mine);
            for id in rivals.into_iter().flatten() {
                let rival = Rival { name: other.name.clone(), older };
                // The oldest of several rivals counts.
                match view.contested.get(id) {
                    Some((_, known)) if *known <= age(&entry) => {}
                    _ => drop(view.contested.insert(id.clone(), (rival, age(&entry)))),
                }
            }
            // What is not fresh still counts as wanted: that keeps objects, and deletes wait anyway.
            if let Some(loaded) = told.and_then(|told| told.loaded.clone()) {
                view.known.insert(other.name.clone(), loaded);
            }
        }
        view
    }
}

/// The other GitSyncs of a namespace at one moment.
pub struct View<'a> {
    me: String,
    syncs: &'a Store<Managed<GitSync>>,
    known: BTreeMap<String, Arc<Loaded>>,
    gives: BTreeMap<String, BTreeMap<ObjectId, String>>,
    contested: BTreeMap<ObjectId, (Rival, Option<(Timestamp, String)>)>,
    /// Those that have not looked at their remotes yet.
    pub unknown: Vec<Key>,
    /// Those whose last look failed.
    pub failed: Vec<Key>,
}

impl Others for View<'_> {
    fn exists(&self, namespace: &str, name: &str, uid: &str) -> bool {
        self.syncs.get(&Key::new(namespace, name)).is_some_and(|entry| entry.uid == uid)
    }

    fn wanted_by(&self, id: &ObjectId) -> Option<String> {
        let wants = |loaded: &Loaded| {
            loaded.desired.contains_key(id) || loaded.catalog.broken.contains_key(id)
        };
        self.known.iter().find(|(_, loaded)| wants(loaded)).map(|(name, _)| name.clone())
    }

    fn gives(&self, name: &str, id: &ObjectId) -> bool {
        self.gives.get(name).and_then(|gives| gives.get(id)) == Some(&self.me)
    }

    fn contested(&self) -> BTreeMap<ObjectId, Rival> {
        self.contested.iter().map(|(id, (rival, _))| (id.clone(), rival.clone())).collect()
    }
}
