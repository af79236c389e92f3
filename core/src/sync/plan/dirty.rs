//! What has changed in the stores since a GitSync last looked.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};

use crate::api::ObjectId;
use crate::cluster::store::Key;

/// Changes that are kept for one GitSync: one that does not plan takes none of them. Whoever misses some looks at everything.
const MOST: usize = 1000;

/// See the module. Bounded by [`MOST`], for each GitSync of a namespace.
#[derive(Default)]
pub struct Dirty {
    objects: Mutex<BTreeMap<Key, BTreeSet<ObjectId>>>,
    /// How often a GitSync of a namespace has come, gone or got another spec.
    syncs: Mutex<BTreeMap<String, u64>>,
    /// GitSyncs whose approval of deletes was removed, whatever they say by now.
    unapproved: Mutex<BTreeSet<Key>>,
}

impl Dirty {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, BTreeSet<ObjectId>>> {
        self.objects.lock()
    }

    /// A GitSync of the namespace has come, gone or got another spec.
    pub fn sync_changed(&self, namespace: &str) {
        let mut all = self.syncs.lock();
        *all.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Nobody counts any more.
    pub fn forget_namespace(&self, namespace: &str) {
        self.syncs.lock().remove(namespace);
    }

    /// How often that has happened.
    #[must_use]
    pub fn syncs_changed(&self, namespace: &str) -> u64 {
        let all = self.syncs.lock();
        all.get(namespace).copied().unwrap_or_default()
    }

    /// From now on changes are kept for this GitSync. What it looks at after this call is not missed.
    pub fn follow(&self, sync: &Key) {
        self.lock().entry(sync.clone()).or_default();
    }

    /// This GitSync looks no more.
    pub fn forget(&self, sync: &Key) {
        self.lock().remove(sync);
        self.take_unapproved(sync);
    }

    /// Its annotation that approves deletes was removed.
    pub fn unapproved(&self, sync: &Key) {
        let mut all = self.unapproved.lock();
        all.insert(sync.clone());
    }

    /// Whether that has happened since this was asked before.
    pub fn take_unapproved(&self, sync: &Key) -> bool {
        self.unapproved.lock().remove(sync)
    }

    /// An object changed; whoever does not follow looks at everything when it begins.
    pub fn touch(&self, sync: &Key, id: &ObjectId) {
        let mut all = self.lock();
        if let Some(ids) = all.get_mut(sync) {
            ids.insert(id.clone());
            if ids.len() > MOST {
                all.remove(sync);
            }
        }
    }

    /// The same as [`Self::take`], and the next call gives it again.
    #[must_use]
    pub fn peek(&self, sync: &Key) -> Option<BTreeSet<ObjectId>> {
        self.lock().get(sync).cloned()
    }

    /// For whom changes are kept, for tests.
    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().map(|key| key.name.clone()).collect()
    }

    /// What has changed since this was asked before; `None` when changes are not kept, or were too many.
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
        let (touched, sync) = (Dirty::default(), Key::new("team", "main"));
        let id = ObjectId::new(Kind::Agent, "a");
        touched.touch(&sync, &id);
        touched.follow(&sync);
        assert_eq!(touched.take(&sync), Some(BTreeSet::new()));
        touched.touch(&sync, &id);
        touched.follow(&sync);
        assert_eq!(touched.take(&sync), Some(BTreeSet::from([id.clone()])));
        assert_eq!(touched.take(&sync), Some(BTreeSet::new()));
        touched.forget(&sync);
        touched.touch(&sync, &id);
        assert_eq!(touched.take(&sync), None);
    }
}
