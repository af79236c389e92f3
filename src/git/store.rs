//! The store of fetched objects: a folder that belongs to one repository, without checkout, refs or configuration.
//!
//! ```text
//! <root>/sha1-7/pack/pack-*.{pack,idx}   one generation: an object database that only gains packs
//! <root>/sha1-7/tip                      the commit that was fetched last, on which the next fetch builds
//! <root>/sha1-7/tags                     the tags that were fetched last: the commit, the tag, and its name
//! <root>/incoming-3/                     a running fetch; after a crash it is deleted
//! ```
//! Several fetches may run at the same time, each in a folder of its own.
//!
//! Every change is one rename, so a kill at any moment leaves either the old or the new state. A generation is replaced by a fresh one
//! when a checksum is wrong, or when it has too many packs or bytes (gix cannot repack). The old one is deleted when nobody reads it any more.
//! When all stores together are too large, a generation goes without a new one. Files are mapped only while they are read, because mapped
//! files count as memory of the process.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gix::ObjectId;
use gix::hash::Kind;
use gix::odb::pack;
use gix::progress::Discard;

use super::disk::bytes_in;
use super::generation::{Generation, packs, write_tip};
use super::{GitError, Limits};

/// How the folders of running fetches begin.
const INCOMING: &str = "incoming";

/// All generations of one repository.
pub(super) struct Store {
    root: PathBuf,
    limits: Limits,
    current: Mutex<Current>,
    /// The highest number of a generation. No number is used twice, because a generation that was replaced deletes its folder later.
    generations: AtomicU64,
    /// Numbers the folders of fetches.
    fetches: AtomicU64,
}

/// The folder of a running fetch, with the layout of a generation. It is deleted at the end.
pub(super) struct Incoming(PathBuf);

impl Incoming {
    /// Where the pack is put.
    pub fn packs(&self) -> PathBuf {
        self.0.join("pack")
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // If this fails, the next start deletes it.
        let _ = remove(&self.0);
    }
}

/// The newest generation, as far as it is known.
enum Current {
    /// The folder was not read yet.
    Unknown,
    Known(Option<Arc<Generation>>),
}

impl Store {
    /// A store in this folder. The disk is not used yet.
    pub fn new(root: PathBuf, limits: Limits) -> Self {
        let (generations, fetches) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { root, limits, current: Mutex::new(Current::Unknown), generations, fetches }
    }

    /// The newest generation. The first call verifies the generations in the folder, and deletes all but the newest intact one.
    pub fn current(&self, interrupt: &AtomicBool) -> Result<Option<Arc<Generation>>, GitError> {
        let mut slot = self.current.lock();
        if let Current::Known(generation) = &*slot {
            return Ok(generation.clone());
        }
        let found = self
            .adopt(interrupt)
            .map_err(|error| GitError::storage("open the store", &error))?
            .map(Arc::new);
        *slot = Current::Known(found.clone());
        Ok(found)
    }

    /// Reads the folder. Gives the newest intact generation.
    fn adopt(&self, interrupt: &AtomicBool) -> io::Result<Option<Generation>> {
        fs::create_dir_all(&self.root)?;
        let mut found: Vec<(u64, Kind, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name();
            match name.to_str().map(|name| (name.starts_with(INCOMING), generation_name(name))) {
                Some((true, _)) => remove(&entry.path())?,
                Some((_, Some((kind, number)))) => found.push((number, kind, entry.path())),
                _ => {}
            }
        }
        found.sort_by_key(|(number, ..)| std::cmp::Reverse(*number));
        let highest = found.first().map_or(0, |(number, ..)| *number);
        self.generations.fetch_max(highest, Ordering::Relaxed);
        let mut adopted = None;
        for (_, kind, dir) in found {
            if adopted.is_none() && tidy(&dir).is_ok() && intact(&dir, kind, interrupt) {
                adopted = Some(Generation::new(dir, kind, self.limits));
                continue;
            }
            if interrupt.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            tracing::warn!(store = %dir.display(), "store left behind or damaged, deleted");
            remove(&dir)?;
        }
        Ok(adopted)
    }

    /// Bytes of its generations, also of those that are still read after they were replaced. Of running fetches nothing counts.
    pub fn bytes(&self) -> u64 {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let is_one =
            |entry: &fs::DirEntry| entry.file_name().to_str().and_then(generation_name).is_some();
        entries.filter(is_one).map(|entry| bytes_in(&entry.path())).sum()
    }

    /// Deletes what was fetched. `false` when somebody reads it, fetches on top of it, or is about to.
    pub fn clear(&self) -> io::Result<bool> {
        let away = {
            let mut slot = self.current.lock();
            match std::mem::replace(&mut *slot, Current::Unknown) {
                // No fetch has begun yet: it would have read the folder first. If this fails, it stays as it was.
                Current::Unknown => {
                    let all = self.put_all_away()?;
                    *slot = Current::Known(None);
                    all
                }
                Current::Known(None) => {
                    *slot = Current::Known(None);
                    return Ok(true);
                }
                Current::Known(Some(now)) => match Arc::try_unwrap(now) {
                    // No snapshot finds it any more.
                    Ok(now) => {
                        let away = self.put_away(&now.dir);
                        *slot = Current::Known(away.is_err().then(|| Arc::new(now)));
                        vec![away?]
                    }
                    Err(now) => {
                        *slot = Current::Known(Some(now));
                        return Ok(false);
                    }
                },
            }
        };
        away.iter().try_for_each(|dir| remove(dir))?;
        Ok(true)
    }

    /// Renames a generation, so that nothing uses it any more, even if it is deleted only in part.
    fn put_away(&self, dir: &Path) -> io::Result<PathBuf> {
        let number = self.fetches.fetch_add(1, Ordering::Relaxed);
        let away = self.root.join(format!("{INCOMING}{number}"));
        remove(&away)?;
        fs::rename(dir, &away)?;
        Ok(away)
    }

    fn put_all_away(&self) -> io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_str().and_then(generation_name).is_some() {
                all.push(self.put_away(&entry.path())?);
            }
        }
        Ok(all)
    }

    /// Makes an empty folder for a fetch.
    pub fn incoming(&self) -> Result<Incoming, GitError> {
        let number = self.fetches.fetch_add(1, Ordering::Relaxed);
        let dir = self.root.join(format!("{INCOMING}{number}"));
        let make = || {
            remove(&dir)?;
            fs::create_dir_all(dir.join("pack"))
        };
        make().map_err(|error| GitError::storage("make room for a fetch", &error))?;
        Ok(Incoming(dir))
    }

    /// Adds what was fetched on top of a generation. `false` when there is a newer generation, which may lack what the pack builds on.
    pub fn add(
        &self,
        to: &Arc<Generation>,
        incoming: &Incoming,
        tip: &ObjectId,
    ) -> Result<bool, GitError> {
        let slot = self.current.lock();
        let is_current = matches!(&*slot, Current::Known(Some(now)) if Arc::ptr_eq(now, to));
        if !is_current || to.is_full() {
            return Ok(false);
        }
        let taken = to.take(&incoming.packs(), tip);
        taken.map(|()| true).map_err(|error| GitError::storage("add a pack to the store", &error))
    }

    /// Makes what was fetched the newest generation, in place of `old`. It must have one complete commit. If somebody else has replaced
    /// `old` meanwhile, it is added to the new generation.
    pub fn replace(
        &self,
        old: Option<&Arc<Generation>>,
        incoming: &Incoming,
        tip: &ObjectId,
    ) -> Result<Arc<Generation>, GitError> {
        let failed = |error: io::Error| GitError::storage("replace the store", &error);
        let mut slot = self.current.lock();
        let now = match &*slot {
            Current::Known(now) => now.clone(),
            Current::Unknown => None,
        };
        if let Some(now) = &now
            && !old.is_some_and(|old| Arc::ptr_eq(old, now))
            && now.kind() == tip.kind()
            && !now.is_damaged()
            && !now.is_full()
        {
            now.take(&incoming.packs(), tip).map_err(failed)?;
            return Ok(Arc::clone(now));
        }
        let number = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        let kind = tip.kind();
        let dir = self.root.join(format!("{kind}-{number}"));
        let swap = || {
            tidy(&incoming.0)?;
            write_tip(&incoming.0, tip)?;
            remove(&dir)?;
            fs::rename(&incoming.0, &dir)
        };
        swap().map_err(failed)?;
        if let Some(now) = now {
            now.retire();
        }
        let new = Arc::new(Generation::new(dir, kind, self.limits));
        *slot = Current::Known(Some(Arc::clone(&new)));
        Ok(new)
    }
}

fn generation_name(name: &str) -> Option<(Kind, u64)> {
    let (kind, number) = name.split_once('-')?;
    let kind = match kind {
        "sha1" => Kind::Sha1,
        "sha256" => Kind::Sha256,
        _ => return None,
    };
    Some((kind, number.parse().ok()?))
}

/// Deletes the leftovers of a fetch that was killed: everything but packs, their indexes, the tip and the tags.
fn tidy(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_str(), Some("pack" | "tip" | "tags")) {
            remove(&entry.path())?;
        }
    }
    for entry in fs::read_dir(dir.join("pack"))? {
        let path = entry?.path();
        let is = |wanted: &str| path.extension().is_some_and(|ext| ext == wanted);
        let whole = (is("pack") && path.with_extension("idx").is_file())
            || (is("idx") && path.with_extension("pack").is_file());
        if !whole {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Whether the checksums of all packs are right. It reads every pack, once for each start of the process.
fn intact(dir: &Path, kind: Kind, interrupt: &AtomicBool) -> bool {
    let verify = |index: &PathBuf| -> gix::Result<bool> {
        let bundle = pack::Bundle::at(index, kind)?;
        bundle.index.verify_checksum(&mut Discard, interrupt)?;
        let sum = bundle.pack.verify_checksum(&mut Discard, interrupt)?;
        Ok(sum == bundle.index.pack_checksum())
    };
    // gix trusts offsets that it reads from the files, so a damaged file can make it panic.
    let verify = |index: &PathBuf| {
        let guarded = std::panic::AssertUnwindSafe(|| verify(index));
        matches!(std::panic::catch_unwind(guarded), Ok(Ok(true)))
    };
    packs(dir).is_ok_and(|found| !found.is_empty() && found.iter().all(verify))
}

/// Deletes a file or folder. A link is deleted, not followed. It is no error if nothing is there.
fn remove(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "tests/store.rs"]
mod tests;
