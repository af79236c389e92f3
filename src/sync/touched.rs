//! Which live objects have changed since a GitSync last looked.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::ObjectId;
use crate::cluster::store::Key;

/// See the module. Bounded by the objects of a namespace, for each GitSync in it.
#[derive(Default)]
pub struct Touched(Mutex<HashMap<Key, HashSet<ObjectId>>>);

impl Touched {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, HashSet<ObjectId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on changes are kept for this GitSync. What it looks at after this call is not missed.
    pub fn follow(&self, sync: &Key) {
        self.lock().entry(sync.clone()).or_default();
    }

    /// This GitSync looks no more.
    pub fn forget(&self, sync: &Key) {
        self.lock().remove(sync);
    }

    /// An object changed; whoever does not follow looks at everything when it begins.
    pub fn touch(&self, sync: &Key, id: &ObjectId) {
        if let Some(ids) = self.lock().get_mut(sync) {
            ids.insert(id.clone());
        }
    }

    /// The same as [`Self::take`], and the next call gives it again.
    #[must_use]
    pub fn peek(&self, sync: &Key) -> HashSet<ObjectId> {
        self.lock().get(sync).cloned().unwrap_or_default()
    }

    /// What has changed since this was asked before.
    #[must_use]
    pub fn take(&self, sync: &Key) -> HashSet<ObjectId> {
        self.lock().get_mut(sync).map(std::mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;

    #[test]
    fn changes_are_kept_for_those_who_follow() {
        let (touched, sync) = (Touched::default(), Key::new("team", "main"));
        let id = ObjectId::new(Kind::Agent, "a");
        touched.touch(&sync, &id);
        touched.follow(&sync);
        assert!(touched.take(&sync).is_empty());
        touched.touch(&sync, &id);
        touched.follow(&sync);
        assert_eq!(touched.take(&sync), HashSet::from([id.clone()]));
        assert!(touched.take(&sync).is_empty());
        touched.forget(&sync);
        touched.touch(&sync, &id);
        assert!(touched.take(&sync).is_empty());
    }
}
