//! What the engine tells the AgentBuild controller: the source of each build at the newest synced commit.
//!
//! Kept in memory only: after a restart the engine fills it again from the commit that it reads first.

use std::collections::{BTreeMap, HashMap};
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
}
