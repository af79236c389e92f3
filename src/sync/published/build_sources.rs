//! The source of each AgentBuild at the newest synced commit. The sync engine fills this registry, and the AgentBuild controller
//! reads it.
//!
//! Each GitSync publishes the sources of the builds that it wants, also of builds that another GitSync owns. The controller asks
//! with the owner mark of the live object, and gets only what that owner has published.
//!
//! The registry is kept in memory only. After a restart the engine fills it again from the first commit that it reads.

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
    /// There is no owner, or the engine has not read a commit of the owner since it started.
    Nothing,
    /// The owner's commit does not hold the build.
    NotInGit,
    /// The owner's commit holds the build, with this source.
    Source(Box<SourceAt>),
}

/// Whether a build that a commit does not hold is known to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The whole commit was read: what it does not hold is gone.
    Proven,
    /// The commit has errors: a broken file may hold the build.
    Unproven,
}

/// What a commit of a GitSync says about AgentBuilds.
#[derive(Debug, Clone, Copy)]
pub struct CommitBuilds<'a> {
    /// UID of the GitSync.
    pub uid: &'a str,
    /// URL of the repository.
    pub url: &'a str,
    /// Name and source of each build that the commit holds.
    pub builds: &'a [(String, SourceAt)],
    /// Whether the builds that it does not hold are gone.
    pub absence: Absence,
}

/// The sources that one GitSync has published.
struct Sync {
    uid: String,
    builds: HashMap<String, SourceAt>,
}

/// The sources of builds that all GitSyncs have published.
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

    /// Puts builds whose source changes on this queue. Only the first call counts.
    pub fn notify(&self, queue: Arc<Queue>) {
        let _ = self.queue.set(queue);
    }

    /// The source of the build that carries this mark. The caller checks with [`Mark::names`] that the mark names this build.
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

    /// Replaces what a GitSync has published by what its newest commit says, and wakes the builds whose source has changed.
    ///
    /// When the commit proves no absence, a build that it does not hold keeps its earlier source, as long as the build is among
    /// those that are `live` and came from the same repository. This holds for every such build, whichever file is broken: only
    /// the plan knows which file held which build. None of them is deleted either until a commit without errors comes, so each
    /// of them has to be built on.
    ///
    /// The first commit of a GitSync wakes all live builds, so that those without a source report it.
    pub fn publish(&self, sync: &Key, commit: CommitBuilds<'_>, live: impl FnOnce() -> Vec<Key>) {
        let CommitBuilds { uid, url, builds, absence } = commit;
        let mut new: HashMap<_, _> = builds.iter().cloned().collect();
        let mut syncs = self.write();
        let old = syncs.remove(sync).filter(|old| old.uid == uid);
        let is_first = old.is_none();
        let old = old.map(|old| old.builds).unwrap_or_default();
        let mut changed: Vec<_> = new
            .iter()
            .filter(|(name, source)| old.get(*name) != Some(source))
            .map(|(name, _)| name.clone())
            .collect();
        let mut live = Some(live);
        let missing: Vec<_> = old.into_iter().filter(|(name, _)| !new.contains_key(name)).collect();
        let may_exist = absence == Absence::Unproven && !missing.is_empty();
        let names: HashSet<_> = match live.take_if(|_| may_exist) {
            Some(live) => live().into_iter().map(|key| key.name).collect(),
            None => HashSet::new(),
        };
        for (name, source) in missing {
            if url == source.url && names.contains(&name) {
                new.insert(name, source);
            } else {
                changed.push(name);
            }
        }
        // A HashMap has no order, and tests want one.
        changed.sort_unstable();
        syncs.insert(sync.clone(), Sync { uid: uid.to_owned(), builds: new });
        drop(syncs);
        self.wake(sync, changed);
        if is_first && let (Some(queue), Some(live)) = (self.queue.get(), live) {
            for build in live() {
                queue.add(build);
            }
        }
    }

    /// Forgets what a GitSync that is gone has published, and wakes its builds.
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
