//! What the GitSyncs of one namespace know of each other, so that an object that moves from one to another is handed
//! over in place and never deleted and made anew.
//!
//! Before one deletes or complains, the others must have looked at their remotes after this one did: a commit that
//! moves a file from one folder to another is seen by both. Kept in memory only; whoever is unknown is asked.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;

use super::desired::{Change, DesiredSet, changes};
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

/// Objects that a GitSync and another one both want, by their keys; held from both sides.
type Contested = HashMap<Key, HashMap<Key, BTreeSet<ObjectId>>>;

#[derive(Default)]
struct Inner {
    told: HashMap<Key, Told>,
    /// Objects that a GitSync leaves to others: by name of the taker.
    gives: HashMap<Key, BTreeMap<ObjectId, String>>,
    /// What each and each other one of its namespace both want: changed when either has read another commit.
    contested: Contested,
    /// How often a GitSync of a namespace has told of another commit.
    news: HashMap<String, u64>,
    /// Who is asked to look at its remote at once.
    asked: HashSet<Key>,
    /// Who waits for a look of another one.
    waiters: HashMap<Key, HashSet<Key>>,
}

impl Inner {
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
        let known = inner.told.insert(key.clone(), told);
        let old = commit(known.as_ref());
        if old.as_ref().map(Arc::as_ptr) != before.as_ref().map(Arc::as_ptr) {
            // It has told something else meanwhile.
            change = differing(old.as_ref(), new.as_ref());
            before = old;
        }
        let mut wake: Vec<_> = inner.waiters.remove(key).into_iter().flatten().collect();
        if known.is_none() || before.as_ref().map(Arc::as_ptr) != new.as_ref().map(Arc::as_ptr) {
            *inner.news.entry(key.namespace.clone()).or_default() += 1;
            wake.extend(inner.compare(key, &change));
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
                // If it was read before it was suspended, it counts with what it wanted then.
                Some(told) if suspended && told.loaded.is_some() => {}
                Some(_) => view.failed.push(other.clone()),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::DeserializeGuard;

    use super::*;
    use crate::api::Kind;
    use crate::cluster::reflector;
    use crate::definition::Catalog;
    use crate::dice::Dice;
    use crate::sync::properties::definition;

    type Wants = BTreeMap<Key, BTreeSet<&'static str>>;
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn told(wants: &BTreeSet<&str>, round: usize) -> Told {
        let mut catalog = Catalog::default();
        for name in wants {
            let id = ObjectId::new(Kind::ModelAPI, *name);
            catalog.definitions.insert(id.clone(), definition(&id, round));
        }
        let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
        let loaded = Loaded::of(&spec.expect("a spec"), &format!("{round}"), catalog, None);
        let (polled, loaded) = (Instant::now(), Some(Arc::new(loaded)));
        Told { uid: "uid".into(), generation: 1, polled, loaded, failed: false }
    }

    /// What the siblings know of each pair, and what that has to be: every object of one, looked for in the other.
    fn check(siblings: &Siblings, wants: &Wants) {
        let inner = siblings.lock();
        let known = |one: &Key, two: &Key| -> BTreeSet<String> {
            let both = inner.contested.get(one).and_then(|all| all.get(two));
            both.into_iter().flatten().map(|id| id.name.clone()).collect()
        };
        for (one, mine) in wants {
            for (two, theirs) in wants.iter().filter(|(two, _)| *two != one) {
                let near = one.namespace == two.namespace;
                let both = mine.intersection(theirs).filter(|_| near);
                assert_eq!(known(one, two), both.map(|name| (*name).to_owned()).collect());
            }
        }
        let all = inner.contested.iter().flat_map(|(one, all)| all.iter().map(move |e| (one, e)));
        for (one, (two, both)) in all {
            let known = wants.contains_key(one) && wants.contains_key(two);
            assert!(known || both.is_empty(), "{one} and {two}");
        }
    }

    /// GitSyncs of the namespace `team` as the watch shows them: name, second in which it was made, suspended.
    fn live(syncs: &[(&str, i64, bool)]) -> Arc<Store<Managed<GitSync>>> {
        let store = Store::new("GitSync");
        for (name, created, suspend) in syncs {
            let created = Timestamp::from_second(*created).expect("a time").to_string();
            let object = serde_json::json!({
                "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"name": name, "namespace": "team", "uid": "uid", "generation": 1,
                    "creationTimestamp": created, "resourceVersion": "1"},
                "spec": {"url": "https://git.example", "suspend": suspend},
            });
            let object = serde_json::from_value(object).expect("a GitSync");
            let (key, entry) = reflector::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
            store.applied(key, entry);
        }
        store
    }

    const MAIN: (&str, i64, bool) = ("main", 200, false);

    #[test]
    fn g22_a_look_counts_when_it_began_after_the_commit_was_found_and_with_the_spec_of_now() {
        let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
        let found = Instant::now();
        let (before, after) =
            (found.checked_sub(Duration::from_millis(1)), found + Duration::from_millis(1));
        let before = before.expect("a machine that runs for longer");
        let store = live(&[MAIN, ("other", 100, false)]);
        let good = || Told { polled: after, ..told(&["a"].into(), 1) };
        let asked = |told: Option<Told>| {
            let siblings = Siblings::default();
            let _nobody = told.map(|told| siblings.tell(&other, told));
            let view = siblings.view(&main, found, &store);
            (view.unknown.len(), view.failed.len())
        };
        assert_eq!(asked(None), (1, 0), "it has told nothing");
        assert_eq!(asked(Some(good())), (0, 0));
        assert_eq!(asked(Some(Told { polled: found, ..good() })), (0, 0));
        assert_eq!(asked(Some(Told { failed: true, ..good() })), (0, 1));
        for stale in [
            Told { polled: before, ..good() },
            Told { polled: before, failed: true, ..good() },
            Told { generation: 0, ..good() },
            Told { uid: "of the one before".into(), ..good() },
        ] {
            assert_eq!(asked(Some(stale)), (1, 0), "it has to look again");
        }
    }

    #[test]
    fn g22_what_is_in_a_broken_file_of_another_sync_is_wanted_by_it() {
        let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
        let store = live(&[MAIN, ("other", 100, false)]);
        let mut catalog = Catalog::default();
        let id = |name: &str| ObjectId::new(Kind::ModelAPI, name);
        catalog.definitions.insert(id("good"), definition(&id("good"), 1));
        catalog.broken.insert(id("broken"), "b.yaml".into());
        let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
        let loaded = Loaded::of(&spec.expect("a spec"), "c", catalog, None);
        let siblings = Siblings::default();
        let told = Told { loaded: Some(Arc::new(loaded)), ..told(&BTreeSet::new(), 1) };
        let _nobody = siblings.tell(&other, told);
        let view = siblings.view(&main, Instant::now(), &store);
        for (name, by) in [("good", Some("other")), ("broken", Some("other")), ("else", None)] {
            assert_eq!(view.wanted_by(&id(name)).as_deref(), by, "{name}");
        }
    }

    #[test]
    fn g22_a_suspended_sync_keeps_what_it_wanted_and_takes_nothing() {
        let (main, id) = (Key::new("team", "main"), ObjectId::new(Kind::ModelAPI, "a"));
        let siblings = Siblings::default();
        for name in ["main", "older", "younger"] {
            let _nobody = siblings.tell(&Key::new("team", name), told(&["a"].into(), 1));
        }
        let rival = |older: bool, younger: bool| {
            let store = live(&[MAIN, ("older", 100, older), ("younger", 300, younger)]);
            let view = siblings.view(&main, Instant::now(), &store);
            assert_eq!(view.wanted_by(&id).as_deref(), Some("older"), "it is not deleted");
            view.contested().remove(&id).map(|rival| (rival.name, rival.older))
        };
        assert_eq!(rival(false, false), Some(("older".to_owned(), true)), "the oldest counts");
        assert_eq!(rival(true, false), Some(("younger".to_owned(), false)));
        assert_eq!(rival(true, true), None);
        // One that has not been read and will not be: nobody knows what it wants.
        let store = live(&[MAIN, ("silent", 100, true)]);
        let view = siblings.view(&main, Instant::now(), &store);
        let names: Vec<_> = view.failed.iter().map(|key| key.name.clone()).collect();
        assert_eq!((names, view.unknown.len()), (vec!["silent".to_owned()], 0));
        // Nor of one whose remote was away, and which was suspended for that.
        let away = Told { loaded: None, failed: true, ..told(&[].into(), 1) };
        let _nobody = siblings.tell(&Key::new("team", "silent"), away);
        let view = siblings.view(&main, Instant::now(), &store);
        assert_eq!((view.failed.len(), view.unknown.len()), (1, 0));
    }

    #[test]
    fn g22_what_two_of_them_want_is_known_as_if_all_were_compared_each_time() {
        for seed in 0..200 {
            let (mut dice, siblings, mut wants) =
                (Dice::new(seed), Siblings::default(), Wants::new());
            for round in 0..40 {
                let namespace = ["team", "far"][dice.roll(8) / 7];
                let key = Key::new(namespace, ["main", "other", "third"][dice.roll(3)]);
                let before = wants.clone();
                let rivals = |wants: &Wants, other: &Key| -> BTreeSet<&str> {
                    match (wants.get(&key), wants.get(other)) {
                        (Some(a), Some(b)) => a.intersection(b).copied().collect(),
                        _ => BTreeSet::new(),
                    }
                };
                let woken = if dice.roll(6) == 0 {
                    wants.remove(&key);
                    siblings.forget(&key)
                } else {
                    let set: BTreeSet<_> =
                        NAMES.into_iter().filter(|_| dice.roll(2) == 0).collect();
                    wants.insert(key.clone(), set.clone());
                    siblings.tell(&key, told(&set, round))
                };
                check(&siblings, &wants);
                // Who is concerned hears of it, and nobody else does.
                let others = before.keys().filter(|other| **other != key);
                let concerned = others.filter(|other| {
                    other.namespace == key.namespace
                        && rivals(&before, other) != rivals(&wants, other)
                });
                let woken: BTreeSet<_> = woken.iter().collect();
                assert_eq!(woken, concerned.collect::<BTreeSet<_>>(), "seed {seed}");
            }
        }
    }
}
