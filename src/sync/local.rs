//! A folder on disk that takes the place of one GitSync's repository, for development: every saved change is synced.
//!
//! The rest is the same as for a repository: validation, plan, prune brake, apply. The folder stands for the root of the
//! repository, and `spec.path` is below it. `spec.url` and `spec.ref` are not used.

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

/// When nothing has changed for this long, an editor has replaced its file and a checkout is complete.
const QUIET_TIME: Duration = Duration::from_millis(100);
/// A folder that changes all the time is read after this time anyway.
const MAX_WAIT_FOR_QUIET: Duration = Duration::from_secs(2);

/// The value of the flag `--local`: `NAMESPACE/NAME=DIR`.
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

/// A folder that takes the place of a repository.
#[derive(Debug)]
pub struct Local {
    /// The absolute path of the root. No part of it is a link.
    pub dir: PathBuf,
    /// How many changes were seen.
    changes: AtomicU64,
    /// Whether the folder has changed since [`LocalFolders::take_changed`] was called.
    changed: AtomicBool,
    /// Notified of every change.
    change: Notify,
}

impl Local {
    /// How many changes were seen so far. If it is the same before and after the folder is read, all that was read belongs
    /// together.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Waits until nothing has changed for a moment.
    pub async fn quiet(&self) {
        let quiet = async {
            while tokio::time::timeout(QUIET_TIME, self.change.notified()).await.is_ok() {}
        };
        let _ = tokio::time::timeout(MAX_WAIT_FOR_QUIET, quiet).await;
    }

    /// Takes an event of the file system, and counts it if it is a change.
    fn observe(&self, event: &notify::Result<Event>) {
        // Reading is no change, and neither is what Git writes into `.git`. An error may hide a change.
        let is_change = match event {
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
        if is_change {
            self.changes.fetch_add(1, Ordering::SeqCst);
            self.change.notify_one();
        }
    }
}

/// All folders that take the place of repositories, by GitSync. A clone is cheap.
#[derive(Debug, Clone, Default)]
pub struct LocalFolders(Arc<HashMap<Key, Arc<Local>>>);

impl LocalFolders {
    /// The folders of these flags.
    #[must_use]
    pub fn new(args: Vec<LocalArg>) -> Self {
        let folders = args.into_iter().map(|LocalArg { key, dir }| {
            let (changes, changed) = (AtomicU64::new(0), AtomicBool::new(false));
            (key, Arc::new(Local { dir, changes, changed, change: Notify::new() }))
        });
        Self(Arc::new(folders.collect()))
    }

    /// The folder of a GitSync, if it has one.
    #[must_use]
    pub fn of(&self, key: &Key) -> Option<Arc<Local>> {
        self.0.get(key).cloned()
    }

    /// Whether the folder of a GitSync has changed since this was called last.
    #[must_use]
    pub fn take_changed(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|local| local.changed.swap(false, Ordering::SeqCst))
    }

    /// Watches the folders, for ever. When one has changed, its GitSync is put on the queue.
    ///
    /// # Errors
    /// When a folder cannot be watched. The usual cause is the system's limit on watches.
    pub async fn watch(self, queue: Arc<Queue>) -> notify::Result<()> {
        let mut watchers = Vec::new();
        let mut waits = Vec::new();
        for (key, local) in self.0.iter() {
            tracing::warn!(object = %key, dir = %local.dir.display(), "synced from a folder, not from its repository");
            let sink = local.clone();
            let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
                sink.observe(&event);
            })?;
            watcher.watch(&local.dir, RecursiveMode::Recursive)?;
            watchers.push(watcher);
            waits.push(async {
                loop {
                    local.change.notified().await;
                    local.quiet().await;
                    local.changed.store(true, Ordering::SeqCst);
                    queue.add(key.clone());
                }
            });
        }
        futures::future::join_all(waits).await;
        // Reached only when there is no folder: then there is nothing to wait for.
        std::future::pending().await
    }
}

/// Names the state of a folder as an id names a commit: a hash of the wanted objects and of the problems.
#[must_use]
pub fn state_id(desired: &DesiredSet, catalog: &Catalog) -> String {
    let mut hash = Sha256::new();
    for (id, want) in desired {
        hash.update(format!("{id} {}\n", want.applied));
    }
    // Problems are plain data, so serializing them cannot fail.
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
        local.observe(&at(EventKind::Access(AccessKind::Open(AccessMode::Any)), "a.yaml"));
        local.observe(&at(EventKind::Access(AccessKind::Close(AccessMode::Read)), "a.yaml"));
        local.observe(&at(EventKind::Any, ".git/index.lock"));
        assert_eq!(local.changes(), 0);
        local.observe(&at(EventKind::Access(AccessKind::Close(AccessMode::Write)), "a.yaml"));
        local.observe(&at(EventKind::Any, "a.yaml"));
        // The system lost count.
        local.observe(&Ok(Event::new(EventKind::Other)));
        assert_eq!(local.changes(), 3);
    }
}
