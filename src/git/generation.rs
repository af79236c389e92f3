//! One generation of a store: an object database that only gains packs.

use parking_lot::Mutex;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use gix::ObjectId;
use gix::hash::Kind;
use gix::objs::FindExt;

use super::heavy::Permit;
use super::pack::Bases;
use super::{GitError, Limits};

/// Packs of a generation. With more of them the store starts anew.
const MAX_PACKS: usize = 20;
/// The same for fetches that began before it had so many.
pub(super) const MOST_PACKS: usize = PACK_SLOTS as usize / 2;
/// How many tags are remembered.
const MAX_NOTED_TAGS: usize = 64;
/// The number of packs that gix prepares for. It is above [`MAX_PACKS`], with room for a pack that is being added.
pub(super) const PACK_SLOTS: u16 = 64;

/// An object database. Snapshots read it, and fetches add packs to it.
pub(super) struct Generation {
    /// Its folder.
    pub dir: PathBuf,
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
    pub fn new(dir: PathBuf, kind: Kind, limits: Limits) -> Self {
        let (damaged, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        let (objects, tags) = Default::default();
        Self { dir, kind, objects, damaged, retired, tags, limits }
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

    /// Deletes its folder once nobody uses it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Whether it has as many packs as gix can open. Several fetches may have begun while there were few.
    pub fn is_full(&self) -> bool {
        packs(&self.dir).is_ok_and(|packs| packs.len() >= MOST_PACKS)
    }

    /// Takes over the packs of a folder. Indexes are moved last, because a pack without an index is ignored.
    pub fn take(&self, packs: &Path, tip: &ObjectId) -> io::Result<()> {
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

/// The index files of a generation.
pub(super) fn packs(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir.join("pack"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "idx") {
            found.push(path);
        }
    }
    Ok(found)
}

pub(super) fn write_tip(dir: &Path, tip: &ObjectId) -> io::Result<()> {
    write(dir, "tip", &format!("{tip}\n"))
}

/// Writes a small file by one rename.
fn write(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let draft = dir.join(format!("{name}.new"));
    fs::write(&draft, text)?;
    fs::rename(draft, dir.join(name))
}
