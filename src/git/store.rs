//! Where fetched objects live: a folder that belongs to one remote, without checkout, refs or configuration.
//!
//! ```text
//! <root>/sha1-7/pack/pack-*.{pack,idx}   one generation: an object database that only ever gains packs
//! <root>/sha1-7/tip                      the commit fetched last: what the next fetch builds on
//! <root>/incoming/                       a fetch in progress; worthless after a crash
//! ```
//! Every change is one rename, so a kill at any moment leaves either the old or the new state. What cannot be
//! trusted (a failed checksum) or has grown too much (packs, bytes: gix cannot repack) is replaced by a fresh generation. An old one is
//! deleted when its last snapshot is dropped. The files are mapped only while somebody reads: what is mapped counts as memory of the
//! process, and there is a store for each GitSync.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use gix::ObjectId;
use gix::hash::Kind;
use gix::objs::FindExt;
use gix::odb::pack;
use gix::progress::Discard;

use super::GitError;
use super::protocol::Pack;

/// More packs than this are not searched: the store starts anew.
pub(super) const MAX_PACKS: usize = 20;
/// gix needs to know the number of packs beforehand; above [`MAX_PACKS`], with room for the one being added.
const SLOTS: u16 = 64;

/// An object database that is read by snapshots and grows by fetches.
pub(super) struct Generation {
    dir: PathBuf,
    number: u64,
    kind: Kind,
    /// Open while a handle of it is there.
    objects: Mutex<Weak<gix::odb::Store>>,
    damaged: AtomicBool,
    retired: AtomicBool,
    /// Bytes that one decoded object may take. Above this many bytes of packs the next fetch starts anew.
    object_bytes: usize,
}

impl Generation {
    fn new(dir: PathBuf, number: u64, kind: Kind, object_bytes: usize) -> Self {
        let (damaged, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { dir, number, kind, objects: Mutex::default(), damaged, retired, object_bytes }
    }

    /// A view for one thread. Whoever reads several times in a row keeps one meanwhile: the last one closes the files.
    ///
    /// # Errors
    /// [`GitError::CorruptData`] when the folder is gone, otherwise [`GitError::StorageFailed`].
    pub fn objects(&self) -> Result<gix::odb::HandleArc, GitError> {
        let mut open = self.objects.lock();
        let objects = match open.upgrade() {
            Some(objects) => objects,
            None if !self.dir.join("pack").is_dir() => {
                self.mark_damaged();
                return Err(GitError::corrupt("the store is gone"));
            }
            None => open_objects(&self.dir, self.kind, Some(self.object_bytes))
                .map_err(|error| GitError::storage("open the store", &error))?,
        };
        *open = Arc::downgrade(&objects);
        Ok(objects.to_cache_arc())
    }

    /// Which hash its ids are made with.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Called when an object is missing or unreadable: the next fetch starts anew.
    pub fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Whether something in it could not be read.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether the commit and its root tree are here. A pack is added whole, so all the rest is here, too.
    pub fn holds(&self, commit: &ObjectId) -> bool {
        let Ok(objects) = self.objects() else { return false };
        let mut buffer = Vec::new();
        let Ok(Ok(tree)) = objects.find_commit_iter(commit, &mut buffer).map(|mut c| c.tree_id())
        else {
            return false;
        };
        objects.find_tree_iter(&tree, &mut buffer).is_ok()
    }

    /// The commit to build the next fetch on: complete, and not too many packs or bytes.
    pub fn usable_tip(&self) -> Option<ObjectId> {
        let indexes = packs(&self.dir).ok()?;
        let size =
            |index: &PathBuf| fs::metadata(index.with_extension("pack")).map(|meta| meta.len());
        let bytes: u64 = indexes.iter().map(size).sum::<io::Result<u64>>().ok()?;
        if self.is_damaged() || indexes.len() >= MAX_PACKS || bytes > self.object_bytes as u64 {
            return None;
        }
        let text = fs::read_to_string(self.dir.join("tip")).ok()?;
        let tip = ObjectId::from_hex(text.trim().as_bytes()).ok()?;
        (tip.kind() == self.kind && self.holds(&tip)).then_some(tip)
    }

    /// Takes over a pack. The index comes last: a pack without one is not looked at.
    pub fn add(&self, pack: &Pack, tip: &ObjectId) -> Result<(), GitError> {
        let doing = "add a pack to the store";
        for file in [&pack.data, &pack.index] {
            let name = file.file_name().ok_or_else(|| GitError::corrupt("a pack has no name"))?;
            fs::rename(file, self.dir.join("pack").join(name))
                .map_err(|error| GitError::storage(doing, &error))?;
        }
        write_tip(&self.dir, tip).map_err(|error| GitError::storage(doing, &error))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            // What is left behind is deleted at the next start.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Opens an object database without any configuration.
pub(super) fn open_objects(
    dir: &Path,
    kind: Kind,
    object_bytes: Option<usize>,
) -> io::Result<Arc<gix::odb::Store>> {
    let slots = if object_bytes.is_some() {
        gix::odb::store::init::Slots::Given(SLOTS)
    } else {
        gix::odb::store::init::Slots::default()
    };
    let options = gix::odb::store::init::Options {
        slots,
        alloc_limit_bytes: object_bytes,
        ..Default::default()
    };
    let none = &mut std::iter::empty();
    gix::odb::Store::at_opts(dir.to_owned(), kind, none, options).map(Arc::new)
}

/// All generations of one remote.
pub(super) struct Store {
    root: PathBuf,
    object_bytes: usize,
    current: Mutex<Slot>,
}

enum Slot {
    /// The folder has not been looked at.
    Unknown,
    Known(Option<Arc<Generation>>),
}

impl Store {
    /// Does not touch the disk.
    pub fn new(root: PathBuf, object_bytes: usize) -> Self {
        Self { root, object_bytes, current: Mutex::new(Slot::Unknown) }
    }

    /// The newest generation. The first call looks at the folder, verifies what it finds and deletes the rest.
    pub fn current(&self, interrupt: &AtomicBool) -> Result<Option<Arc<Generation>>, GitError> {
        let mut slot = self.current.lock();
        if let Slot::Known(generation) = &*slot {
            return Ok(generation.clone());
        }
        let found = self
            .adopt(interrupt)
            .map_err(|error| GitError::storage("open the store", &error))?
            .map(Arc::new);
        *slot = Slot::Known(found.clone());
        Ok(found)
    }

    fn adopt(&self, interrupt: &AtomicBool) -> io::Result<Option<Generation>> {
        fs::create_dir_all(&self.root)?;
        self.clear_incoming()?;
        let mut found: Vec<(u64, Kind, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if let Some((kind, number)) = entry.file_name().to_str().and_then(generation_name) {
                found.push((number, kind, entry.path()));
            }
        }
        found.sort_by_key(|(number, ..)| std::cmp::Reverse(*number));
        let mut adopted = None;
        for (number, kind, dir) in found {
            if adopted.is_none() && tidy(&dir).is_ok() && intact(&dir, kind, interrupt) {
                adopted = Some(Generation::new(dir, number, kind, self.object_bytes));
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

    /// An empty folder for a fetch, laid out like a generation.
    pub fn incoming(&self) -> Result<PathBuf, GitError> {
        let make = || {
            self.clear_incoming()?;
            let dir = self.root.join("incoming");
            fs::create_dir_all(dir.join("pack"))?;
            Ok(dir)
        };
        make().map_err(|error: io::Error| GitError::storage("make room for a fetch", &error))
    }

    fn clear_incoming(&self) -> io::Result<()> {
        remove(&self.root.join("incoming"))
    }

    /// Makes the incoming folder, which holds one complete commit, the newest generation.
    pub fn replace(&self, incoming: &Path, tip: &ObjectId) -> Result<Arc<Generation>, GitError> {
        let mut slot = self.current.lock();
        let old = match std::mem::replace(&mut *slot, Slot::Unknown) {
            Slot::Known(old) => old,
            Slot::Unknown => None,
        };
        let number = old.as_ref().map_or(1, |old| old.number + 1);
        let kind = tip.kind();
        let dir = self.root.join(format!("{kind}-{number}"));
        let swap = || {
            tidy(incoming)?;
            write_tip(incoming, tip)?;
            remove(&dir)?;
            fs::rename(incoming, &dir)?;
            Ok(())
        };
        match swap() {
            Ok(()) => {
                let new = Generation::new(dir.clone(), number, kind, self.object_bytes);
                if let Some(old) = old {
                    old.retired.store(true, Ordering::Relaxed);
                }
                let new = Arc::new(new);
                *slot = Slot::Known(Some(Arc::clone(&new)));
                Ok(new)
            }
            Err(error) => {
                *slot = Slot::Known(old);
                Err(GitError::storage("replace the store", &error))
            }
        }
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

/// Index files of a generation.
fn packs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir.join("pack"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "idx") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Deletes everything that is no pack, no index and no tip: leftovers of a fetch that was killed.
fn tidy(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_str(), Some("pack" | "tip")) {
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

/// Whether every pack is what its checksums say. Reads everything: once per start of the process.
fn intact(dir: &Path, kind: Kind, interrupt: &AtomicBool) -> bool {
    let verify = |index: &PathBuf| -> gix::Result<bool> {
        let bundle = pack::Bundle::at(index, kind)?;
        bundle.index.verify_checksum(&mut Discard, interrupt)?;
        let sum = bundle.pack.verify_checksum(&mut Discard, interrupt)?;
        Ok(sum == bundle.index.pack_checksum())
    };
    // gix addresses mapped files by offsets that it reads from them: a damaged file can make it panic.
    let verify = |index: &PathBuf| {
        let guarded = std::panic::AssertUnwindSafe(|| verify(index));
        matches!(std::panic::catch_unwind(guarded), Ok(Ok(true)))
    };
    packs(dir).is_ok_and(|found| !found.is_empty() && found.iter().all(verify))
}

fn write_tip(dir: &Path, tip: &ObjectId) -> io::Result<()> {
    let draft = dir.join("tip.new");
    fs::write(&draft, format!("{tip}\n"))?;
    fs::rename(draft, dir.join("tip"))
}

/// Deletes a file or folder; a link is deleted, not followed. Missing is fine.
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
