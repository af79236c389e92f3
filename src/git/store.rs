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
//! when a checksum is wrong, or when it has too many packs or bytes (gix cannot repack). The old one is deleted when its last snapshot is
//! dropped. Files are mapped only while they are read, because mapped files count as memory of the process.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use gix::ObjectId;
use gix::hash::Kind;
use gix::objs::FindExt;
use gix::odb::pack;
use gix::progress::Discard;

use super::heavy::Permit;
use super::pack::Bases;
use super::{GitError, Limits};

/// Packs of a generation. With more of them the store starts anew.
pub(super) const MAX_PACKS: usize = 20;
/// The same for fetches that began before it had so many.
const MOST_PACKS: usize = PACK_SLOTS as usize / 2;
/// How the folders of running fetches begin.
const INCOMING: &str = "incoming";
/// How many tags are remembered.
const MAX_NOTED_TAGS: usize = 64;
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
    /// Held while the file with the tags is written.
    tags: Mutex<()>,
    limits: Limits,
}

impl Generation {
    fn new(dir: PathBuf, number: u64, kind: Kind, limits: Limits) -> Self {
        let (damaged, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        let (objects, tags) = Default::default();
        Self { dir, number, kind, objects, damaged, retired, tags, limits }
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
            None => open_objects(&self.dir, self.kind, Some(self.limits.read_bytes()))
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
        if self.is_damaged() || indexes.len() >= MAX_PACKS || bytes > self.limits.store_bytes() {
            return None;
        }
        let text = fs::read_to_string(self.dir.join("tip")).ok()?;
        let tip = ObjectId::from_hex(text.trim().as_bytes()).ok()?;
        (tip.kind() == self.kind && self.holds(&tip)).then_some(tip)
    }

    /// Notes the annotated tag of a commit that was fetched with it.
    pub fn note_tag(&self, tag: &NotedTag) -> Result<(), GitError> {
        let _one_at_a_time = self.tags.lock();
        let known = self.noted_tags();
        let (of, name) = (tag.commit.to_string(), format!(" {}", tag.name));
        let is_other = |line: &&str| !(line.starts_with(&of) && line.ends_with(&name));
        let mut lines: Vec<_> = known.lines().filter(is_other).collect();
        lines.drain(..lines.len().saturating_sub(MAX_NOTED_TAGS - 1));
        let new = format!("{of} {}{name}", tag.id);
        lines.push(&new);
        let text = lines.join("\n") + "\n";
        if text == known {
            return Ok(());
        }
        write(&self.dir, "tags", &text).map_err(|error| GitError::storage("note a tag", &error))
    }

    /// The annotated tags that were noted for this commit, the newest first. Nothing about them is verified.
    pub fn tags_of(&self, commit: &ObjectId) -> Vec<NotedTag> {
        let (of, known) = (commit.to_string(), self.noted_tags());
        let noted = known.lines().rev().filter_map(|line| {
            let (id, name) = line.strip_prefix(&of)?.strip_prefix(' ')?.split_once(' ')?;
            let id = ObjectId::from_hex(id.as_bytes()).ok()?;
            Some(NotedTag { commit: *commit, id, name: name.to_owned() })
        });
        noted.collect()
    }

    /// A line for each tag, the newest last. Without the file there are none.
    fn noted_tags(&self) -> String {
        fs::read_to_string(self.dir.join("tags")).unwrap_or_default()
    }

    /// Whether it has as many packs as gix can open. Several fetches may have begun while there were few.
    fn is_full(&self) -> bool {
        packs(&self.dir).is_ok_and(|packs| packs.len() >= MOST_PACKS)
    }

    /// Takes over the packs of a folder. Indexes are moved last, because a pack without an index is ignored.
    fn take(&self, packs: &Path, tip: &ObjectId) -> io::Result<()> {
        for extension in ["pack", "idx"] {
            for entry in fs::read_dir(packs)? {
                let entry = entry?;
                if entry.path().extension().is_some_and(|own| own == extension) {
                    fs::rename(entry.path(), self.dir.join("pack").join(entry.file_name()))?;
                }
            }
        }
        write_tip(&self.dir, tip)
    }
}

impl Bases for Generation {
    fn open(&self, permit: Option<&Permit>) -> Result<gix::odb::HandleArc, GitError> {
        if permit.is_none() {
            return self.objects();
        }
        let bytes = usize::try_from(self.limits.pack_bytes).unwrap_or(usize::MAX);
        let objects = open_objects(&self.dir, self.kind, Some(bytes));
        let objects = objects.map_err(|error| GitError::storage("open the store", &error))?;
        Ok(objects.to_cache_arc())
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

/// All generations of one repository.
pub(super) struct Store {
    root: PathBuf,
    limits: Limits,
    current: Mutex<Current>,
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

/// The current generation, as far as it is known.
enum Current {
    /// The folder was not read yet.
    Unknown,
    Known(Option<Arc<Generation>>),
}

impl Store {
    /// A store in this folder. The disk is not used yet.
    pub fn new(root: PathBuf, limits: Limits) -> Self {
        let (current, fetches) = (Mutex::new(Current::Unknown), AtomicU64::new(0));
        Self { root, limits, current, fetches }
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
        let mut adopted = None;
        for (number, kind, dir) in found {
            if adopted.is_none() && tidy(&dir).is_ok() && intact(&dir, kind, interrupt) {
                adopted = Some(Generation::new(dir, number, kind, self.limits));
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
            && now.kind == tip.kind()
            && !now.is_damaged()
            && !now.is_full()
        {
            now.take(&incoming.packs(), tip).map_err(failed)?;
            return Ok(Arc::clone(now));
        }
        let number = now.as_ref().map_or(1, |now| now.number + 1);
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
            now.retired.store(true, Ordering::Relaxed);
        }
        let new = Arc::new(Generation::new(dir, number, kind, self.limits));
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
