//! The work index: which objects a plan has to check. It is updated object by object, so the cost of a plan depends on the
//! number of changes, and not on the number of objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::api::{Kind, ObjectId};
use crate::sync::commit::desired::{Desired, DesiredSet, Fingerprint, SyncRef};
use crate::sync::live_namespace::{Namespace, is_paused, mark};
use crate::sync::plan::compare::{Settled, is_equal};

/// What the index has of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    /// It carries the mark of this GitSync.
    ours: bool,
    /// It is Ready.
    ready: bool,
    /// It is wanted, ours, and as Git wants it.
    equal: bool,
    /// A plan has to check it.
    open: bool,
    /// The definition that was written last, or that the object was equal to last. The annotation of the object does not
    /// count, because anybody can change it.
    applied: Option<Fingerprint>,
}

/// The number of objects with the mark of a GitSync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// All objects.
    pub total: usize,
    /// Objects that are Ready.
    pub ready: usize,
}

/// The work index of a GitSync.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkIndex {
    seen: HashMap<ObjectId, Seen>,
    open: BTreeSet<ObjectId>,
    equal: usize,
    counts: BTreeMap<Kind, Count>,
}

impl WorkIndex {
    /// An index of all live and all wanted objects.
    #[must_use]
    pub fn new(
        sync: &SyncRef,
        desired: &DesiredSet,
        live: &dyn Namespace,
        settled: &Settled,
    ) -> Self {
        let mut index = Self::default();
        for id in live.ids().iter().chain(desired.keys()) {
            index.update(id, sync, desired, live, settled);
        }
        index
    }

    /// Updates one object whose live state or definition has changed.
    pub fn update(
        &mut self,
        id: &ObjectId,
        sync: &SyncRef,
        desired: &DesiredSet,
        live: &dyn Namespace,
        settled: &Settled,
    ) {
        let (want, live) = (desired.get(id), live.get(id));
        let applied = self.seen.get(id).and_then(|seen| seen.applied);
        let seen = match (want, &live) {
            (None, None) => Seen::default(),
            (Some(_), None) => Seen { open: true, applied, ..Seen::default() },
            (want, Some(live)) => {
                let mark = mark(live, id, sync);
                let ours = mark.as_ref().is_some_and(|mark| mark.sync_uid == sync.uid);
                // The mark of a GitSync of this name, which may be a vanished one.
                let namesake = mark.is_some_and(|mark| {
                    mark.sync_namespace == sync.namespace && mark.sync_name == sync.name
                });
                let facts = live.facts();
                let agrees = want.filter(|want| ours && is_equal(want, live, settled, id));
                // Each plan checks the kept objects.
                let equal = agrees.is_some_and(|want| want.kept.is_none())
                    && !facts.deleting
                    && !is_paused(live);
                let open = !equal && (want.is_some() || ours || namesake);
                let applied = agrees.map_or(applied, Desired::fingerprint).filter(|_| ours);
                Seen { ours, ready: ours && facts.ready, equal, open, applied }
            }
        };
        self.set(id, seen);
    }

    /// Records that a definition was written.
    pub fn wrote(&mut self, id: &ObjectId, want: &Desired) {
        if let Some(seen) = self.seen.get_mut(id) {
            seen.applied = want.fingerprint();
        }
    }

    /// Records that a desired set was applied whole before this index was made, unless more is known of an object.
    pub fn trust(&mut self, desired: &DesiredSet) {
        for (id, want) in desired.iter() {
            if let Some(seen) = self.seen.get_mut(id).filter(|seen| seen.ours) {
                seen.applied = seen.applied.or_else(|| want.fingerprint());
            }
        }
    }

    /// Whether this definition was applied last; `None` when that is not known.
    #[must_use]
    pub fn was_applied(&self, id: &ObjectId, want: &Desired) -> Option<bool> {
        let known = self.seen.get(id)?.applied?;
        Some(Some(known) == want.fingerprint())
    }

    /// All objects of the index.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.seen.keys()
    }

    /// (tests) The index without what was applied earlier.
    #[cfg(test)]
    pub(crate) fn of_now(&self) -> Self {
        let mut now = self.clone();
        now.seen.values_mut().for_each(|seen| seen.applied = None);
        now
    }

    fn set(&mut self, id: &ObjectId, new: Seen) {
        let old = if new == Seen::default() {
            self.seen.remove(id).unwrap_or_default()
        } else {
            self.seen.insert(id.clone(), new).unwrap_or_default()
        };
        if new.open && !old.open {
            self.open.insert(id.clone());
        } else if old.open && !new.open {
            self.open.remove(id);
        }
        self.equal = self.equal + usize::from(new.equal) - usize::from(old.equal);
        if (old.ours, old.ready) != (new.ours, new.ready) {
            let count = self.counts.entry(id.kind).or_default();
            count.total = count.total + usize::from(new.ours) - usize::from(old.ours);
            count.ready = count.ready + usize::from(new.ready) - usize::from(old.ready);
            if count.total == 0 {
                self.counts.remove(&id.kind);
            }
        }
    }

    /// The objects that a plan has to check.
    pub fn open(&self) -> impl Iterator<Item = &ObjectId> {
        self.open.iter()
    }

    /// The number of objects that are as wanted.
    #[must_use]
    pub fn equal(&self) -> usize {
        self.equal
    }

    /// The objects with the mark of this GitSync.
    pub fn ours(&self) -> impl Iterator<Item = &ObjectId> {
        self.seen.iter().filter(|(_, seen)| seen.ours).map(|(id, _)| id)
    }

    /// The numbers of objects with the mark of this GitSync, by kind.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<Kind, Count> {
        &self.counts
    }
}
