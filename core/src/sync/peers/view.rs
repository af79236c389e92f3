//! The peers of one GitSync at one moment: what they want, and of which peers that is not known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use crate::api::{GitSync, ObjectId};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key, Store};
use crate::order::Seq;
use crate::sync::commit::loaded::Loaded;
use crate::sync::peers::hand_over::{Announced, Asked, Inner, POLL_ANSWER_DEADLINE, Peers};
use crate::sync::plan::{Others, Rival, Unproven};
use crate::text::printable;

/// How many GitSyncs one message names, and how many files of one GitSync.
const MOST_NAMED: usize = 5;
/// Bytes of the longest path that a message names.
const MOST_NAMED_PATH: usize = 512;

/// When a GitSync was created, and its uid: of two GitSyncs that want the same object, the older one has it.
type Age = (Timestamp, String);

/// Whether it is known what a peer wants now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The peer has polled since, and read a commit.
    Read,
    /// The peer could not read its remote, does not answer, or does not parse.
    Failed,
    /// The peer is suspended and has not polled since: its newest commit may want any object.
    Suspended,
    /// The peer has not polled yet.
    NotPolled,
}

/// Whether it is known what a peer wants: from its last poll, whether it is suspended, and whether it cannot answer. (pure)
fn known(fresh: Option<&Announced>, suspended: bool, cannot_answer: bool) -> Known {
    match fresh {
        Some(poll) if poll.failed => Known::Failed,
        Some(_) => Known::Read,
        None if suspended => Known::Suspended,
        None if cannot_answer => Known::Failed,
        None => Known::NotPolled,
    }
}

/// Whether the last poll of a peer counts for a delete that became due at `since`. (pure)
fn is_fresh(announced: &Announced, live: &Managed<GitSync>, since: Seq) -> bool {
    let same_spec = || {
        let sync = live.object();
        // A suspension changes the spec, but not what is read.
        let suspended = sync.as_ref().filter(|sync| sync.spec.suspend);
        let read = announced.loaded.as_ref();
        Some(announced.generation) == live.facts.generation
            || suspended.is_some_and(|sync| read.is_some_and(|read| read.answers(&sync.spec)))
    };
    announced.polled > since && same_spec()
}

/// Whether a peer that was asked to poll has not answered in time. (pure)
fn hangs(asked: Option<&Asked>, now: Instant) -> bool {
    let at = asked.and_then(|asked| asked.at);
    at.is_some_and(|at| now.saturating_duration_since(at) >= POLL_ANSWER_DEADLINE)
}

fn age(entry: &Entry<Managed<GitSync>>) -> Option<Age> {
    let created = entry.value.object()?.metadata.creation_timestamp.as_ref()?.0;
    Some((created, entry.uid.clone()))
}

impl Peers {
    /// The peers of the GitSync `key` now. A poll of theirs counts if it began after `since`.
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
                // It wants no object any more, but may hand objects over.
                if let Some(gives) = inner.gives.get(&other) {
                    view.gives.insert(other.name.clone(), gives.to.clone());
                }
                continue;
            }
            let announced =
                inner.announced.get(&other).filter(|announced| announced.uid == entry.uid);
            let sync = entry.value.object();
            let suspended = sync.as_ref().is_some_and(|sync| sync.spec.suspend);
            let fresh = announced.filter(|announced| is_fresh(announced, &entry.value, since));
            let cannot_answer = hangs(inner.asked.get(&other), now) || sync.is_none();
            let known = known(fresh, suspended, cannot_answer);
            view.add(&other, known);
            if let (Known::Read | Known::Suspended, Some(announced)) = (known, announced) {
                view.add_offers(&inner, &other, announced);
            }
            if let Some(fresh) = fresh {
                view.add_broken(&other, fresh);
            }
            if !suspended {
                view.add_contested(&inner, &other, age(&entry), mine.as_ref());
            }
            // Also what an older poll found counts as wanted: that keeps objects, and deletes wait anyway.
            if let Some(loaded) = announced.and_then(|announced| announced.loaded.clone()) {
                view.loaded.insert(other.name.clone(), loaded);
            }
        }
        view.sort();
        view
    }
}

/// The peers of a GitSync at one moment.
pub struct PeerView<'a> {
    /// The GitSync whose peers they are.
    pub me: Key,
    /// A poll of a peer counts if it began after this.
    pub since: Seq,
    syncs: &'a Store<Managed<GitSync>>,
    loaded: BTreeMap<String, Arc<Loaded>>,
    gives: BTreeMap<String, BTreeMap<ObjectId, String>>,
    contested: BTreeMap<ObjectId, (Rival, Option<Age>)>,
    /// The peers that have not polled yet.
    pub not_polled: Vec<Key>,
    /// The peers that cannot be read.
    pub failed: Vec<Key>,
    /// The suspended peers that have not polled.
    suspended: Vec<Key>,
    /// The peers that have polled and cannot read all of their files.
    broken: Vec<Broken>,
    /// When the view was made.
    pub at: Seq,
}

/// A peer that cannot read some of its files.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Broken {
    sync: Key,
    /// The files; only the first one if the whole GitSync is named.
    files: Vec<String>,
    /// Whether the message names the whole GitSync, because the files are too many or their paths too long.
    all: bool,
}

impl<'a> PeerView<'a> {
    fn new(key: &Key, since: Seq, syncs: &'a Store<Managed<GitSync>>) -> Self {
        Self {
            me: key.clone(),
            since,
            syncs,
            loaded: BTreeMap::new(),
            gives: BTreeMap::new(),
            contested: BTreeMap::new(),
            not_polled: Vec::new(),
            failed: Vec::new(),
            suspended: Vec::new(),
            broken: Vec::new(),
            at: Seq::next(),
        }
    }

    fn add(&mut self, other: &Key, known: Known) {
        match known {
            Known::Read => {}
            Known::Failed => self.failed.push(other.clone()),
            Known::Suspended => self.suspended.push(other.clone()),
            Known::NotPolled => self.not_polled.push(other.clone()),
        }
    }

    /// Adds the offers of a peer that are still valid.
    fn add_offers(&mut self, inner: &Inner, other: &Key, announced: &Announced) {
        if let Some(gives) = inner.gives.get(other) {
            self.gives.insert(other.name.clone(), gives.valid(Some(announced)));
        }
    }

    /// Adds the files that a peer cannot read: they may define any object, also one that has just moved there.
    fn add_broken(&mut self, other: &Key, announced: &Announced) {
        let files = announced.loaded.as_ref().map(|read| &read.catalog.broken_paths);
        let Some(files) = files.filter(|files| !files.is_empty()) else { return };
        let all = files.len() > MOST_NAMED || files.iter().any(|file| file.len() > MOST_NAMED_PATH);
        let files = files.iter().take(if all { 1 } else { MOST_NAMED }).cloned().collect();
        self.broken.push(Broken { sync: other.clone(), files, all });
    }

    /// Adds the objects that both this GitSync and the peer want. Of several peers, the oldest counts.
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

    /// Sorts the peers by name: the store lists them in no order, and messages must not change with each view.
    fn sort(&mut self) {
        self.not_polled.sort_unstable();
        self.failed.sort_unstable();
        self.suspended.sort_unstable();
        self.broken.sort_unstable();
    }

    /// The peers of which it is not known what they want, although each was asked: their names, and the reason.
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

    /// The reason of [`Self::unproven`], as a sentence for the status.
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

    /// The peers of which it is not known what they want, and that were not asked just now.
    pub fn unreadable(&self) -> impl Iterator<Item = &Key> {
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
                // The last good commit wanted the object, and a commit with errors proves no absence.
                || loaded.last_paths.contains_key(id)
        };
        self.loaded.iter().find(|(_, loaded)| wants(loaded)).map(|(name, _)| name.clone())
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
