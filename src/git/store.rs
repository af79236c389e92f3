//! The store of fetched objects: a folder that belongs to one remote, without checkout, refs or configuration.
//!
//! ```text
//! <root>/sha1-7/pack/pack-*.{pack,idx}   one generation: an object database that only gains packs
//! <root>/sha1-7/tip                      the commit that was fetched last, on which the next fetch builds
//! <root>/sha1-7/tags                     the tags that were fetched last: the commit, the tag, and its name
//! <root>/incoming/                       a running fetch; after a crash it is deleted
//! ```
//! Every change is one rename, so a kill at any moment leaves either the old or the new state. A generation is replaced by a fresh one
//! when a checksum is wrong, or when it has too many packs or bytes (gix cannot repack). The old one is deleted when its last snapshot is
//! dropped. Files are mapped only while they are read, because mapped files count as memory of the process, and each GitSync has a store.

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

/// Packs of a generation. With more of them the store starts anew.
pub(super) const MAX_PACKS: usize = 20;
/// How many tags are remembered.
const MAX_NOTED_TAGS: usize = 8;
/// The number of packs that gix prepares for. It is above [`MAX_PACKS`], with room for a pack that is being added.
const PACK_SLOTS: u16 = 64;

/// An object database. Snapshots read it, and fetches add packs to it.
pub(super) struct Generation {
    dir: PathBuf,
    number: u64,
    kind: Kind,
    /// Open while there is a handle of it.
    objects: Mutex<Weak<gix::odb::Store>>,
    damaged: AtomicBool,
    retired: AtomicBool,
    /// Bytes that one decoded object may take. With more bytes of packs than this, the next fetch starts anew.
    object_bytes: usize,
}

impl Generation {
    fn new(dir: PathBuf, number: u64, kind: Kind, object_bytes: usize) -> Self {
        let (damaged, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { dir, number, kind, objects: Mutex::default(), damaged, retired, object_bytes }
    }

    /// A handle for one thread. Dropping the last handle closes the files, so a caller that reads several times keeps one.
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

    /// The hash of its ids.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Notes that an object is missing or unreadable. The next fetch starts anew.
    pub fn mark_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Whether an object was missing or unreadable.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether it has this object.
    pub fn has(&self, id: &ObjectId) -> bool {
        self.objects().is_ok_and(|objects| gix::objs::Exists::exists(&objects, id))
    }

    /// Whether it has the commit and its root tree. A pack is added as a whole, so then it has all of the commit.
    pub fn holds(&self, commit: &ObjectId) -> bool {
        let Ok(objects) = self.objects() else { return false };
        let mut buffer = Vec::new();
        let Ok(Ok(tree)) = objects.find_commit_iter(commit, &mut buffer).map(|mut c| c.tree_id())
        else {
            return false;
        };
        objects.find_tree_iter(&tree, &mut buffer).is_ok()
    }

    /// The commit that the next fetch can build on. `None` if it is not complete, or there are too many packs or bytes.
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

    /// Notes the annotated tag of a commit that was fetched with it.
    pub fn note_tag(&self, tag: &NotedTag) -> Result<(), GitError> {
        let of = tag.commit.to_string();
        let known = self.noted_tags();
        let mut lines: Vec<_> = known.lines().filter(|line| !line.starts_with(&of)).collect();
        lines.drain(..lines.len().saturating_sub(MAX_NOTED_TAGS - 1));
        let new = format!("{of} {} {}", tag.id, tag.name);
        lines.push(&new);
        let text = lines.join("\n") + "\n";
        if text == known {
            return Ok(());
        }
        write(&self.dir, "tags", &text).map_err(|error| GitError::storage("note a tag", &error))
    }

    /// The annotated tag that was noted for this commit. Nothing about it is verified.
    pub fn tag_of(&self, commit: &ObjectId) -> Option<NotedTag> {
        let (of, known) = (commit.to_string(), self.noted_tags());
        let line = known.lines().find_map(|line| line.strip_prefix(&of)?.strip_prefix(' '))?;
        let (id, name) = line.split_once(' ')?;
        let id = ObjectId::from_hex(id.as_bytes()).ok()?;
        Some(NotedTag { commit: *commit, id, name: name.to_owned() })
    }

    /// A line for each tag, the newest last. Without the file there are none.
    fn noted_tags(&self) -> String {
        fs::read_to_string(self.dir.join("tags")).unwrap_or_default()
    }

    /// Adds a pack. The index is moved last, because a pack without an index is ignored.
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

/// An annotated tag, the commit that it names, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotedTag {
    pub commit: ObjectId,
    pub id: ObjectId,
    pub name: String,
}

impl Drop for Generation {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            // If this fails, the next start deletes the folder.
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
        gix::odb::store::init::Slots::Given(PACK_SLOTS)
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
    current: Mutex<Current>,
}

/// The current generation, as far as it is known.
enum Current {
    /// The folder was not read yet.
    Unknown,
    Known(Option<Arc<Generation>>),
}

impl Store {
    /// A store in this folder. The disk is not used yet.
    pub fn new(root: PathBuf, object_bytes: usize) -> Self {
        Self { root, object_bytes, current: Mutex::new(Current::Unknown) }
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

    /// Makes an empty folder for a fetch, with the layout of a generation.
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

    /// Makes the incoming folder the newest generation. It must hold one complete commit.
    pub fn replace(&self, incoming: &Path, tip: &ObjectId) -> Result<Arc<Generation>, GitError> {
        let mut slot = self.current.lock();
        let old = match std::mem::replace(&mut *slot, Current::Unknown) {
            Current::Known(old) => old,
            Current::Unknown => None,
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
                *slot = Current::Known(Some(Arc::clone(&new)));
                Ok(new)
            }
            Err(error) => {
                *slot = Current::Known(old);
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

/// The index files of a generation.
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

fn write_tip(dir: &Path, tip: &ObjectId) -> io::Result<()> {
    write(dir, "tip", &format!("{tip}\n"))
}

/// Writes a small file by one rename.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let draft = dir.join(format!("{name}.new"));
    fs::write(&draft, text)?;
    fs::rename(draft, dir.join(name))
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
