//! What the engine tells the AgentBuild controller: the source of each build at the newest synced commit.
//!
//! Kept in memory only: after a restart the engine fills it again from the commit that it reads first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::queue::Queue;
use crate::cluster::store::Key;

/// The source of one build at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAt {
    /// Name of the GitSync.
    pub sync: String,
    /// URL of the repository, without credentials.
    pub url: String,
    /// Commit (40 or 64 hex digits).
    pub commit: String,
    /// Id of the tree of `source.subfolder`; `None` when the commit has no such folder.
    pub subfolder_tree: Option<String>,
    /// Id of the tree or blob of each of `trigger.paths`; `None` when the commit has no such path.
    pub paths: BTreeMap<String, Option<String>>,
    /// What [`crate::api::keys::APPLIED`] says on the object once the definition of this commit is applied. Until
    /// then spec and source belong to different commits, and nothing is built. `None`: don't wait for it.
    pub applied: Option<String>,
}

/// See the module.
#[derive(Default)]
pub struct BuildSources {
    sources: RwLock<HashMap<Key, SourceAt>>,
    /// The GitSyncs of which a commit was read.
    syncs: RwLock<HashSet<Key>>,
    queue: OnceLock<Arc<Queue>>,
}

impl BuildSources {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Builds whose source changes go on this queue. Only the first call counts.
    pub fn notify(&self, queue: Arc<Queue>) {
        let _ = self.queue.set(queue);
    }

    /// The source of a build, once the engine has read a commit that holds it.
    #[must_use]
    pub fn get(&self, build: &Key) -> Option<SourceAt> {
        self.sources.read().unwrap_or_else(PoisonError::into_inner).get(build).cloned()
    }

    /// The engine has read a commit.
    pub fn set(&self, build: Key, source: SourceAt) {
        let old = self
            .sources
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(build.clone(), source.clone());
        if old.as_ref() != Some(&source)
            && let Some(queue) = self.queue.get()
        {
            queue.add(build);
        }
    }

    /// All builds of a commit of that GitSync are told. At its first one those that are `left` hear that it has none for
    /// them.
    pub fn told(&self, sync: &Key, left: impl FnOnce() -> Vec<Key>) {
        let first = self.syncs.write().unwrap_or_else(PoisonError::into_inner).insert(sync.clone());
        if let Some(queue) = self.queue.get().filter(|_| first) {
            for build in left() {
                queue.add(build);
            }
        }
    }

    /// Whether the engine has read any commit of that GitSync since it started. Ask before [`Self::get`]: then what that
    /// does not know is in no such commit.
    #[must_use]
    pub fn knows(&self, sync: &Key) -> bool {
        self.syncs.read().unwrap_or_else(PoisonError::into_inner).contains(sync)
    }

    /// The GitSync is gone.
    pub fn forget(&self, sync: &Key) {
        self.syncs.write().unwrap_or_else(PoisonError::into_inner).remove(sync);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_what_a_commit_does_not_hold_hears_of_it_once() {
        let (sources, queue) = (BuildSources::new(), Queue::new());
        sources.notify(queue.clone());
        let (sync, build) = (Key::new("team", "main"), Key::new("team", "reviewer"));
        assert!(!sources.knows(&sync));
        let mut asked = 0;
        for _ in 0..2 {
            sources.told(&sync, || {
                asked += 1;
                vec![build.clone()]
            });
            assert!(sources.knows(&sync) && sources.get(&build).is_none());
        }
        assert_eq!(asked, 1);
        sources.forget(&sync);
        assert!(!sources.knows(&sync));
    }
}
