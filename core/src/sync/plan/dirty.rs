//! Dirty objects: what has changed in the watch stores since the last plan of a GitSync.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Mutex, MutexGuard};

use crate::api::ObjectId;
use crate::cluster::store::Key;

/// The most dirty objects that are kept for one GitSync. A GitSync with more checks all objects.
const MAX_DIRTY_OBJECTS: usize = 1000;

/// The dirty objects of each GitSync, and other changes that plans ask for. At most `MAX_DIRTY_OBJECTS` for each.
#[derive(Default)]
pub struct Dirty {
    objects: Mutex<BTreeMap<Key, BTreeSet<ObjectId>>>,
    /// How often a GitSync of a namespace was created, was deleted or got another spec.
    syncs: Mutex<BTreeMap<String, u64>>,
    /// GitSyncs whose approval of deletes was removed. They may have another one by now.
    unapproved: Mutex<BTreeSet<Key>>,
}

impl Dirty {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, BTreeSet<ObjectId>>> {
        self.objects.lock()
    }

    /// Records that a GitSync of the namespace was created, was deleted or got another spec.
    pub fn sync_changed(&self, namespace: &str) {
        let mut all = self.syncs.lock();
        *all.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Drops the count of a namespace without GitSyncs.
    pub fn forget_namespace(&self, namespace: &str) {
        self.syncs.lock().remove(namespace);
    }

    /// How often [`Self::sync_changed`] was called for the namespace.
    #[must_use]
    pub fn syncs_changed(&self, namespace: &str) -> u64 {
        let all = self.syncs.lock();
        all.get(namespace).copied().unwrap_or_default()
    }

    /// Starts to keep dirty objects for a GitSync. Changes after this call are not missed.
    pub fn follow(&self, sync: &Key) {
        self.lock().entry(sync.clone()).or_default();
    }

    /// Drops all that is kept for a GitSync.
    pub fn forget(&self, sync: &Key) {
        self.lock().remove(sync);
        self.take_unapproved(sync);
    }

    /// Records that the annotation was removed that approves deletes.
    pub fn unapproved(&self, sync: &Key) {
        let mut all = self.unapproved.lock();
        all.insert(sync.clone());
    }

    /// Whether the annotation was removed since the last call.
    pub fn take_unapproved(&self, sync: &Key) -> bool {
        self.unapproved.lock().remove(sync)
    }

    /// Marks an object as dirty. Ignored for a GitSync whose dirty objects are not kept: it checks all objects anyway.
    pub fn mark(&self, sync: &Key, id: &ObjectId) {
        let mut all = self.lock();
        if let Some(ids) = all.get_mut(sync) {
            ids.insert(id.clone());
            if ids.len() > MAX_DIRTY_OBJECTS {
                all.remove(sync);
            }
        }
    }

    /// The dirty objects. They stay dirty.
    #[must_use]
    pub fn peek(&self, sync: &Key) -> Option<BTreeSet<ObjectId>> {
        self.lock().get(sync).cloned()
    }

    /// (tests) The GitSyncs whose dirty objects are kept.
    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().map(|key| key.name.clone()).collect()
    }

    /// Takes the dirty objects. `None` when they are not kept, or were too many.
    #[must_use]
    pub fn take(&self, sync: &Key) -> Option<BTreeSet<ObjectId>> {
        self.lock().get_mut(sync).map(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    #[test]
    fn changes_are_kept_for_those_who_follow() {
        let (dirty, sync) = (Dirty::default(), Key::new("team", "main"));
        let id = ObjectId::new(Kind::Agent, "a");
        dirty.mark(&sync, &id);
        dirty.follow(&sync);
        assert_eq!(dirty.take(&sync), Some(BTreeSet::new()));
        dirty.mark(&sync, &id);
        dirty.follow(&sync);
        assert_eq!(dirty.take(&sync), Some(BTreeSet::from([id.clone()])));
        assert_eq!(dirty.take(&sync), Some(BTreeSet::new()));
        dirty.forget(&sync);
        dirty.mark(&sync, &id);
        assert_eq!(dirty.take(&sync), None);
    }
}
