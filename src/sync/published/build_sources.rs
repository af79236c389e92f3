//! The source of each AgentBuild at the newest synced commit. The engine fills it; the AgentBuild controller reads it.
//!
//! Each GitSync tells the sources of the builds that it wants, also of those that another GitSync owns. The controller
//! asks with the owner mark of the live object, and gets what that owner has told and nothing else.
//!
//! It is kept in memory only. After a restart the engine fills it again from the first commit that it reads.

use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::api::Mark;
use crate::cluster::store::Key;
use crate::runtime::queue::Queue;
pub use crate::sync::commit::source_at::SourceAt;

/// What is known of the source of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KnownSource {
    /// The engine has not read a commit of the owner since it started, or there is no owner.
    Nothing,
    /// The commit that it has read does not hold the build.
    NotInGit,
    /// It is made of this.
    Source(Box<SourceAt>),
}

/// The sources that one GitSync has told.
struct Sync {
    uid: String,
    builds: HashMap<String, SourceAt>,
}

/// What all GitSyncs have told of the sources of builds.
#[derive(Default)]
pub struct BuildSources {
    syncs: RwLock<HashMap<Key, Sync>>,
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

    /// The source of the build that carries this mark. A mark that names another object is no mark; see
    /// [`Mark::names`].
    #[must_use]
    pub fn of(&self, mark: &Mark) -> KnownSource {
        // A GitSync writes into its own namespace only.
        if mark.sync_namespace != mark.namespace {
            return KnownSource::Nothing;
        }
        let syncs = self.syncs.read();
        let sync = syncs.get(&Key::new(&*mark.sync_namespace, &*mark.sync_name));
        match sync.filter(|sync| sync.uid == mark.sync_uid) {
            None => KnownSource::Nothing,
            Some(sync) => match sync.builds.get(&mark.name) {
                None => KnownSource::NotInGit,
                Some(source) => KnownSource::Source(Box::new(source.clone())),
            },
        }
    }

    /// The engine has read a commit of this repository for the GitSync of that name and uid, which wants these builds. With `errors` the
    /// commit proves no absence, and what it does not hold stays as it was told before: as long as there is such a build
    /// among those that are `live`, and it came from the same repository. That is so on purpose for all of them: only the plan,
    /// which knows where each was before, can tell which ones a broken file may hold. The others are not deleted either until
    /// a commit without errors comes, and whoever was taken for gone by mistake would not be built.
    ///
    /// At the first commit all that are live hear that it has none for them.
    pub fn tell(
        &self,
        sync: &Key,
        uid: &str,
        url: &str,
        builds: &[(String, SourceAt)],
        errors: bool,
        live: impl FnOnce() -> Vec<Key>,
    ) {
        let mut new: HashMap<_, _> = builds.iter().cloned().collect();
        let mut syncs = self.write();
        let old = syncs.remove(sync).filter(|old| old.uid == uid);
        let first = old.is_none();
        let old = old.map(|old| old.builds).unwrap_or_default();
        let mut changed: Vec<_> = new
            .iter()
            .filter(|(name, source)| old.get(*name) != Some(source))
            .map(|(name, _)| name.clone())
            .collect();
        let mut live = Some(live);
        let gone: Vec<_> = old.into_iter().filter(|(name, _)| !new.contains_key(name)).collect();
        let lives: HashSet<_> = match live.take_if(|_| errors && !gone.is_empty()) {
            Some(live) => live().into_iter().map(|key| key.name).collect(),
            None => HashSet::new(),
        };
        for (name, source) in gone {
            if url == source.url && lives.contains(&name) {
                new.insert(name, source);
            } else {
                changed.push(name);
            }
        }
        // In the order of their names, whatever the map says.
        changed.sort_unstable();
        syncs.insert(sync.clone(), Sync { uid: uid.to_owned(), builds: new });
        drop(syncs);
        self.wake(sync, changed);
        if first && let (Some(queue), Some(live)) = (self.queue.get(), live) {
            for build in live() {
                queue.add(build);
            }
        }
    }

    /// The GitSync is gone, and nothing is made of what it told.
    pub fn forget(&self, sync: &Key) {
        let old = self.write().remove(sync);
        self.wake(sync, old.into_iter().flat_map(|old| old.builds.into_keys()));
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, HashMap<Key, Sync>> {
        self.syncs.write()
    }

    fn wake(&self, sync: &Key, builds: impl IntoIterator<Item = String>) {
        let Some(queue) = self.queue.get() else { return };
        for build in builds {
            queue.add(Key::new(&*sync.namespace, build));
        }
    }
}

#[cfg(test)]
#[path = "tests/build_sources.rs"]
mod tests;
