//! A folder on disk in place of the repository of one GitSync, for development: what is saved is synced.
//!
//! The rest of the pipeline is the same: validation, plan, brake, apply. The folder stands for the root of the repository,
//! and `spec.path` is below it; `spec.url` and `spec.ref` are not looked at.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::cluster::identity::is_dns_label;
use crate::cluster::store::Key;
use crate::definition::Catalog;
use crate::runtime::queue::Queue;
use crate::sync::commit::desired::DesiredSet;
use convoke_core::text::hex;

/// No change for this long: an editor that replaces a file by a new one is done, and a checkout is too.
const QUIET: Duration = Duration::from_millis(100);
/// A folder that never gets quiet is looked at all the same.
const MOST_NOISE: Duration = Duration::from_secs(2);

/// `NAMESPACE/NAME=DIR`, as the flag says it.
#[derive(Debug, Clone)]
pub struct LocalArg {
    key: Key,
    dir: PathBuf,
}

impl std::str::FromStr for LocalArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || "it must be NAMESPACE/NAME=DIR: whose source is which folder".to_owned();
        let (key, dir) = text.split_once('=').ok_or_else(shape)?;
        let (namespace, name) = key.split_once('/').ok_or_else(shape)?;
        if !is_dns_label(namespace) || !is_dns_label(name) {
            return Err(shape());
        }
        let dir = std::fs::canonicalize(dir).map_err(|error| format!("{dir}: {error}"))?;
        if !dir.is_dir() {
            return Err(format!("{} is not a folder", dir.display()));
        }
        Ok(Self { key: Key::new(namespace, name), dir })
    }
}

/// One folder.
#[derive(Debug)]
pub struct Local {
    /// The root, absolute, without links.
    pub dir: PathBuf,
    /// Changes that were seen.
    changes: AtomicU64,
    /// Whether there is something to look at.
    changed: AtomicBool,
    noise: Notify,
}

impl Local {
    /// How many changes were seen so far: as long as it stays the same, what was read belongs together.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// DependencyState until nothing has changed for a moment.
    pub async fn quiet(&self) {
        let quiet =
            async { while tokio::time::timeout(QUIET, self.noise.notified()).await.is_ok() {} };
        let _ = tokio::time::timeout(MOST_NOISE, quiet).await;
    }

    fn hear(&self, event: &notify::Result<Event>) {
        // Reading the folder is no change of it. An error may have swallowed one.
        let change = match event {
            Ok(Event { kind: EventKind::Access(kind), .. }) => {
                *kind == AccessKind::Close(AccessMode::Write)
            }
            Ok(event) => {
                event.paths.is_empty()
                    || !event.paths.iter().all(|path| {
                        let below = path.strip_prefix(&self.dir).unwrap_or(path);
                        below.components().any(|part| part.as_os_str() == ".git")
                    })
            }
            Err(_) => true,
        };
        if change {
            self.changes.fetch_add(1, Ordering::SeqCst);
            self.noise.notify_one();
        }
    }
}

/// The folders that take the place of repositories, by GitSync. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LocalFolders(Arc<HashMap<Key, Arc<Local>>>);

impl LocalFolders {
    /// The folders of these flags.
    #[must_use]
    pub fn new(args: Vec<LocalArg>) -> Self {
        let folders = args.into_iter().map(|LocalArg { key, dir }| {
            let (changes, changed) = (AtomicU64::new(0), AtomicBool::new(false));
            (key, Arc::new(Local { dir, changes, changed, noise: Notify::new() }))
        });
        Self(Arc::new(folders.collect()))
    }

    /// The folder of a GitSync.
    #[must_use]
    pub fn of(&self, key: &Key) -> Option<Arc<Local>> {
        self.0.get(key).cloned()
    }

    /// Whether the folder of a GitSync has changed; asking takes the answer away.
    #[must_use]
    pub fn take_changed(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|local| local.changed.swap(false, Ordering::SeqCst))
    }

    /// Wakes each GitSync when its folder has changed, for ever.
    ///
    /// # Errors
    /// When a folder cannot be watched (the system's limit on watches, most of the time).
    pub async fn watch(self, queue: Arc<Queue>) -> notify::Result<()> {
        let mut watchers = Vec::new();
        let mut waits = Vec::new();
        for (key, local) in self.0.iter() {
            tracing::warn!(object = %key, dir = %local.dir.display(), "synced from a folder, not from its repository");
            let sink = local.clone();
            let mut watcher =
                notify::recommended_watcher(move |event: notify::Result<Event>| sink.hear(&event))?;
            watcher.watch(&local.dir, RecursiveMode::Recursive)?;
            watchers.push(watcher);
            waits.push(async {
                loop {
                    local.noise.notified().await;
                    local.quiet().await;
                    local.changed.store(true, Ordering::SeqCst);
                    queue.add(key.clone());
                }
            });
        }
        futures::future::join_all(waits).await;
        // Without a folder there is nothing to wait for; with one this is never reached.
        std::future::pending().await
    }
}

/// Names what a folder holds, as a commit's id does: a hash of what is wanted and of what is wrong.
#[must_use]
pub fn state_id(desired: &DesiredSet, catalog: &Catalog) -> String {
    let mut hash = Sha256::new();
    for (id, want) in desired {
        hash.update(format!("{id} {}\n", want.applied));
    }
    // Problems are plain data: writing them cannot fail.
    hash.update(serde_json::to_string(&catalog.problems).unwrap_or_default());
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g20_the_flag_names_a_sync_and_a_folder_that_exists() {
        let parsed: LocalArg = "agents/team=src".parse().expect("a folder");
        assert_eq!(parsed.key, Key::new("agents", "team"));
        assert!(parsed.dir.is_absolute());
        for text in [
            "src",
            "team=src",
            "a/b/c=src",
            "A/b=src",
            "agents/team=nowhere",
            "agents/team=Cargo.toml",
        ] {
            assert!(text.parse::<LocalArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn g20_reading_is_no_change_and_neither_is_git() {
        let folders = LocalFolders::new(vec!["agents/team=src".parse().expect("a folder")]);
        let local = folders.of(&Key::new("agents", "team")).expect("the folder");
        let at = |kind, path: &str| Ok(Event::new(kind).add_path(local.dir.join(path)));
        local.hear(&at(EventKind::Access(AccessKind::Open(AccessMode::Any)), "a.yaml"));
        local.hear(&at(EventKind::Access(AccessKind::Close(AccessMode::Read)), "a.yaml"));
        local.hear(&at(EventKind::Any, ".git/index.lock"));
        assert_eq!(local.changes(), 0);
        local.hear(&at(EventKind::Access(AccessKind::Close(AccessMode::Write)), "a.yaml"));
        local.hear(&at(EventKind::Any, "a.yaml"));
        // The system lost count.
        local.hear(&Ok(Event::new(EventKind::Other)));
        assert_eq!(local.changes(), 3);
    }
}
