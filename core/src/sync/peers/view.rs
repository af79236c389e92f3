//! The other GitSyncs of a namespace, as one of them sees them at one moment: what they want, and of whom that is not known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use crate::api::{GitSync, ObjectId};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key, Store};
use crate::sync::commit::loaded::Loaded;
use crate::sync::order::Seq;
use crate::sync::peers::hand_over::{Announced, Asked, GIVE_UP, Inner, Peers};
use crate::sync::plan::{Others, Rival, Unproven};
use crate::text::printable;

/// How many are named in one sentence, and how many files of one GitSync.
const MOST_NAMED: usize = 5;
/// Longest path that is named.
const MOST_PATH: usize = 512;

/// When a GitSync was made, and its uid: the older of two that want the same has it.
type Age = (Timestamp, String);

/// Whether it is known what another GitSync wants now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It has looked at its remote since, and read a commit.
    Well,
    /// It has looked and could not read its remote, it does not answer, or it does not parse.
    Failed,
    /// It has not looked, and will not until it is resumed: a commit since then may have given it anything.
    Suspended,
    /// It has not looked yet.
    Not,
}

/// See [`Known`]: from what it has told in a look that counts and whether that failed, whether it is suspended, and whether it gave no
/// answer for so long, or cannot give one, that nobody waits for it. (pure)
const fn known(failed: Option<bool>, suspended: bool, mute: bool) -> Known {
    match failed {
        Some(false) => Known::Well,
        Some(true) => Known::Failed,
        None if suspended => Known::Suspended,
        None if mute => Known::Failed,
        None => Known::Not,
    }
}

/// Whether what a GitSync has told is what it wants, as far as a delete is concerned that became due at `since`. (pure)
fn is_fresh(told: &Announced, live: &Managed<GitSync>, since: Seq) -> bool {
    let same_spec = || {
        let sync = live.object();
        // Suspending it has changed its spec, but not what it is to read.
        let asleep = sync.as_ref().filter(|sync| sync.spec.suspend);
        let read = told.loaded.as_ref();
        Some(told.generation) == live.facts.generation
            || asleep.is_some_and(|sync| read.is_some_and(|read| read.answers(&sync.spec)))
    };
    told.polled > since && same_spec()
}

/// Whether one that was asked does not answer. (pure)
fn hangs(asked: Option<&Asked>, now: Instant) -> bool {
    let at = asked.and_then(|asked| asked.at);
    at.is_some_and(|at| now.saturating_duration_since(at) >= GIVE_UP)
}

fn age(entry: &Entry<Managed<GitSync>>) -> Option<Age> {
    let created = entry.value.object()?.metadata.creation_timestamp.as_ref()?.0;
    Some((created, entry.uid.clone()))
}

impl Peers {
    /// The others of the namespace, as seen by `key` at this moment. A look of theirs counts if it began after `since`.
    #[must_use]
    pub fn view<'a>(
        &self,
        key: &Key,
        since: Seq,
        now: Instant,
        syncs: &'a Store<Managed<GitSync>>,
    ) -> PeerView<'a> {
        let mut view = PeerView::new(key, since, syncs);
        let inner = self.lock();
        let mine = syncs.get(key).as_deref().and_then(age);
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
            let suspended = sync.as_ref().is_some_and(|sync| sync.spec.suspend);
            let fresh = told.filter(|told| is_fresh(told, &entry.value, since));
            let mute = hangs(inner.asked.get(&other), now) || sync.is_none();
            let known = known(fresh.map(|told| told.failed), suspended, mute);
            view.add(&other, known);
            if let (Known::Well | Known::Suspended, Some(told)) = (known, told) {
                view.add_gifts(&inner, &other, told);
            }
            if let Some(fresh) = fresh {
                view.add_hidden(&other, fresh);
            }
            if !suspended {
                view.add_contested(&inner, &other, age(&entry), mine.as_ref());
            }
            // What is not fresh still counts as wanted: that keeps objects, and deletes wait anyway.
            if let Some(loaded) = told.and_then(|told| told.loaded.clone()) {
                view.known.insert(other.name.clone(), loaded);
            }
        }
        view.sort();
        view
    }
}

/// The other GitSyncs of a namespace at one moment.
pub struct PeerView<'a> {
    /// Who sees them.
    pub me: Key,
    /// A poll of theirs counts if it began after this.
    pub since: Seq,
    syncs: &'a Store<Managed<GitSync>>,
    known: BTreeMap<String, Arc<Loaded>>,
    gives: BTreeMap<String, BTreeMap<ObjectId, String>>,
    contested: BTreeMap<ObjectId, (Rival, Option<Age>)>,
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

impl<'a> PeerView<'a> {
    fn new(key: &Key, since: Seq, syncs: &'a Store<Managed<GitSync>>) -> Self {
        Self {
            me: key.clone(),
            since,
            syncs,
            known: BTreeMap::new(),
            gives: BTreeMap::new(),
            contested: BTreeMap::new(),
            unknown: Vec::new(),
            failed: Vec::new(),
            suspended: Vec::new(),
            broken: Vec::new(),
            at: Seq::next(),
        }
    }

    fn add(&mut self, other: &Key, known: Known) {
        match known {
            Known::Well => {}
            Known::Failed => self.failed.push(other.clone()),
            Known::Suspended => self.suspended.push(other.clone()),
            Known::Not => self.unknown.push(other.clone()),
        }
    }

    /// Adds what it leaves to others.
    fn add_gifts(&mut self, inner: &Inner, other: &Key, told: &Announced) {
        if let Some(gives) = inner.gives.get(other) {
            self.gives.insert(other.name.clone(), gives.standing(Some(told)));
        }
    }

    /// Adds the files that it cannot read: what stands in them may be anything, an object that has just moved there among them.
    fn add_hidden(&mut self, other: &Key, told: &Announced) {
        let files = told.loaded.as_ref().map(|read| &read.catalog.broken_paths);
        let Some(files) = files.filter(|files| !files.is_empty()) else { return };
        let all = files.len() > MOST_NAMED || files.iter().any(|file| file.len() > MOST_PATH);
        let files = files.iter().take(if all { 1 } else { MOST_NAMED }).cloned().collect();
        self.broken.push(Broken { sync: other.clone(), files, all });
    }

    /// Adds what both want. The oldest of several rivals counts.
    fn add_contested(&mut self, inner: &Inner, other: &Key, its: Option<Age>, mine: Option<&Age>) {
        let me = &self.me;
        let both = inner.contested.get(me).and_then(|all| all.get(other));
        let older = its.as_ref().zip(mine).is_some_and(|(its, mine)| its < mine);
        for id in both.into_iter().flatten() {
            let rival = Rival { name: other.name.clone(), older };
            match self.contested.get(id) {
                Some((_, known)) if *known <= its => {}
                _ => drop(self.contested.insert(id.clone(), (rival, its.clone()))),
            }
        }
    }

    /// They come in no order, and statuses name them.
    fn sort(&mut self) {
        self.unknown.sort_unstable();
        self.failed.sort_unstable();
        self.suspended.sort_unstable();
        self.broken.sort_unstable();
    }

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

impl Others for PeerView<'_> {
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
        self.gives.get(name).and_then(|gives| gives.get(id)) == Some(&self.me.name)
    }

    fn contested(&self) -> BTreeMap<ObjectId, Rival> {
        self.contested.iter().map(|(id, (rival, _))| (id.clone(), rival.clone())).collect()
    }
}

#[cfg(test)]
#[path = "tests/view.rs"]
mod tests;
