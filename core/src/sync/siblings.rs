//! What the GitSyncs of one namespace know of each other, so that an object that moves from one to another is handed
//! over in place and never deleted and made anew.
//!
//! Before one deletes or complains, the others must have looked at their remotes after this one did: a commit that
//! moves a file from one folder to another is seen by both. Kept in memory only; whoever is unknown is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::desired::{Change, DesiredSet, changes};
use super::loaded::Loaded;
use super::order::Seq;
use super::plan::{Others, Rival, Unproven};
use crate::api::{GitSync, ObjectId};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key, Store};
use crate::definition::diagnostic::printable;

/// How many are named in one sentence, and how many files of one GitSync.
const MOST_NAMED: usize = 5;
/// Longest path that is named.
const MOST_PATH: usize = 512;
/// After this long without an answer, a GitSync that was asked to look at its remote cannot be read.
pub const GIVE_UP: Duration = Duration::from_secs(60);

/// What a GitSync has told of itself.
#[derive(Clone)]
pub struct Told {
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
struct Gifts {
    /// The names of the takers.
    to: BTreeMap<ObjectId, String>,
    /// The commit that does not need them; `None` for a GitSync that comes to its end.
    of: Option<Arc<Loaded>>,
}

impl Gifts {
    fn takers(&self) -> BTreeSet<String> {
        self.to.values().cloned().collect()
    }

    /// Those that stand, though the giver has read another commit since then.
    fn standing(&self, told: Option<&Told>) -> BTreeMap<ObjectId, String> {
        let mut standing = self.to.clone();
        standing.retain(|id, _| self.stands(id, told));
        standing
    }

    /// Whether what the giver has read since then does not want the object back.
    fn stands(&self, id: &ObjectId, told: Option<&Told>) -> bool {
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
struct Asked {
    /// After which place in the order of things the look has to begin.
    since: Seq,
    /// When it was asked first; `None` while it will not look.
    at: Option<Instant>,
}

#[derive(Default)]
struct Inner {
    told: BTreeMap<Key, Told>,
    gives: BTreeMap<Key, Gifts>,
    /// What each and each other one of its namespace both want: changed when either has read another commit.
    contested: Contested,
    /// How often a GitSync of a namespace has told of another commit.
    news: BTreeMap<String, u64>,
    /// When each was heard of last by those who waited for it: also that it has looked and found nothing new.
    heard: BTreeMap<Key, Seq>,
    /// When one has gone last.
    gone: Seq,
    /// Who is asked to look at its remote at once.
    asked: BTreeMap<Key, Asked>,
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
                    Change::Came => {
                        both(&mut self.contested, key, other).insert(id.clone());
                        both(&mut self.contested, other, key).insert(id.clone())
                    }
                    Change::Gone => {
                        both(&mut self.contested, key, other).remove(id);
                        both(&mut self.contested, other, key).remove(id)
                    }
                    Change::Differs => false,
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
pub struct Siblings(Mutex<Inner>);

impl Siblings {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A GitSync has looked at its remote. Returns those that waited for it.
    #[must_use]
    pub fn tell(&self, key: &Key, told: Told) -> Vec<Key> {
        let commit = |told: Option<&Told>| told.and_then(|told| told.loaded.clone());
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
    pub fn hear(&self, key: &Key, told: Told) {
        let waiters = self.tell(key, told);
        let mut inner = self.lock();
        for waiter in waiters {
            inner.wait(key, &waiter);
        }
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
        self.lock().gives.get(key).map(Gifts::takers).unwrap_or_default()
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
        let gifts = Gifts { to: gives.iter().cloned().collect(), of: of.cloned() };
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

    /// The others of the namespace, as seen by `key` at this moment. A look of theirs counts if it began after `since`.
    #[must_use]
    pub fn view<'a>(
        &self,
        key: &Key,
        since: Seq,
        now: Instant,
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
            suspended: Vec::new(),
            broken: Vec::new(),
            at: Seq::next(),
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
                    view.gives.insert(other.name.clone(), gives.to.clone());
                }
                continue;
            }
            let told = inner.told.get(&other).filter(|told| told.uid == entry.uid);
            let sync = entry.value.object();
            let asleep = sync.as_ref().filter(|sync| sync.spec.suspend);
            let suspended = asleep.is_some();
            let fresh = told.filter(|told| {
                let read = told.loaded.as_ref();
                told.polled > since
                    && (Some(told.generation) == entry.value.facts.generation
                        // Suspending it has changed its spec, but not what it is to read.
                        || asleep.is_some_and(|sync| read.is_some_and(|read| read.answers(&sync.spec))))
            });
            let asked = inner.asked.get(&other);
            let hangs = asked
                .and_then(|asked| asked.at)
                .is_some_and(|at| now.saturating_duration_since(at) >= GIVE_UP);
            match fresh {
                Some(told) if !told.failed => {
                    if let Some(gives) = inner.gives.get(&other) {
                        view.gives.insert(other.name.clone(), gives.standing(Some(told)));
                    }
                }
                Some(_) => view.failed.push(other.clone()),
                // A commit since then may have given it anything, and it will not look.
                None if suspended => {
                    view.suspended.push(other.clone());
                    if let (Some(gives), Some(_)) = (inner.gives.get(&other), told) {
                        view.gives.insert(other.name.clone(), gives.standing(told));
                    }
                }
                None if hangs || sync.is_none() => {
                    view.failed.push(other.clone());
                }
                None => view.unknown.push(other.clone()),
            }
            // What stands in a file that it cannot read may be anything, an object that has just moved there among them.
            let hidden = fresh.and_then(|told| told.loaded.as_ref());
            let files = hidden.map(|hidden| &hidden.catalog.broken_paths);
            if let Some(files) = files.filter(|files| !files.is_empty()) {
                let all = files.len() > MOST_NAMED || files.iter().any(|f| f.len() > MOST_PATH);
                let files = files.iter().take(if all { 1 } else { MOST_NAMED }).cloned().collect();
                view.broken.push(Broken { sync: other.clone(), files, all });
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
        // They come in no order, and statuses name them.
        view.unknown.sort_unstable();
        view.failed.sort_unstable();
        view.suspended.sort_unstable();
        view.broken.sort_unstable();
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
    /// Those that have not looked, and will not until they are resumed.
    suspended: Vec<Key>,
    /// Those that have looked and cannot read all of their files.
    broken: Vec<Broken>,
    /// When this view was taken.
    pub at: Seq,
}

/// A GitSync that cannot read some of its files.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Broken {
    sync: Key,
    /// These, or the first of them.
    files: Vec<String>,
    /// Whether there are more than are worth naming.
    all: bool,
}

impl View<'_> {
    /// Those of which it is not known what they want, although each was asked: their names, and why, for people.
    #[must_use]
    pub fn unproven(&self) -> Unproven {
        let silent = self.failed.iter().chain(&self.suspended);
        let mut unread: Vec<_> = silent.map(|other| format!("GitSync {}", other.name)).collect();
        for Broken { sync, files, all } in &self.broken {
            if *all {
                unread.push(format!("GitSync {}", sync.name));
            } else {
                let file = |file: &String| format!("GitSync {}: {}", sync.name, printable(file));
                unread.extend(files.iter().map(file));
            }
        }
        unread.sort_unstable();
        unread.dedup();
        Unproven { unread, reason: self.unread().unwrap_or_default() }
    }

    /// The reason alone.
    #[must_use]
    pub fn unread(&self) -> Option<String> {
        let failed =
            self.failed.iter().map(|other| format!("GitSync {} cannot be read", other.name));
        let suspended = self.suspended.iter();
        let suspended = suspended.map(|other| format!("GitSync {} is suspended", other.name));
        let broken = self.broken.iter().map(|Broken { sync, files, .. }| {
            let file = files.first().map(|file| printable(file)).unwrap_or_default();
            format!("GitSync {} cannot read {file}", sync.name)
        });
        let all: Vec<_> = failed.chain(suspended).chain(broken).collect();
        let more = all.len().saturating_sub(MOST_NAMED);
        let named = all.get(..MOST_NAMED).unwrap_or(&all).join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!all.is_empty()).then(|| {
            format!("{named}{rest}, so it is not known whether these objects are wanted there")
        })
    }

    /// Those that cannot tell what they want.
    pub fn mute(&self) -> impl Iterator<Item = &Key> {
        let broken = self.broken.iter().map(|broken| &broken.sync);
        self.failed.iter().chain(&self.suspended).chain(broken)
    }
}

impl Others for View<'_> {
    fn exists(&self, namespace: &str, name: &str, uid: &str) -> bool {
        self.syncs.get(&Key::new(namespace, name)).is_some_and(|entry| entry.uid == uid)
    }

    fn wanted_by(&self, id: &ObjectId) -> Option<String> {
        let wants = |loaded: &Loaded| {
            loaded.desired.contains_key(id)
                || loaded.catalog.broken.contains_key(id)
                // Its last good commit wanted it, and the one with errors proves nothing.
                || loaded.last_paths.contains_key(id)
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

#[cfg(test)]
#[path = "siblings_tests.rs"]
mod tests;
