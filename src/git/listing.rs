//! The folders of a commit's tree in memory. A commit shares each folder whose tree is the same with the commit before it. So
//! only changed folders are read, and differences are found without a walk over the others.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use gix::ObjectId;
use gix::odb::HandleArc;

use super::objects::tree_bytes;
use super::table::{Item, Table, What, order, shown_name};
use super::{GitError, Limits};
use crate::definition::tree::{EntryChange, EntryKind, TreeEntry, TreeProblem};

/// One folder, with everything below it.
#[derive(Debug)]
pub(super) struct Folder {
    path: String,
    id: ObjectId,
    /// `None` for a folder that was left out.
    table: Option<Table>,
    /// The folders of the table, in its order, up to the entry at which a budget ended.
    folders: Vec<Arc<Folder>>,
    problems: Vec<TreeProblem>,
    /// How many entries in it and below are no folders.
    files: usize,
    /// How many folders are below it.
    below: usize,
    /// Whether anything in it or below was left out.
    is_incomplete: bool,
    /// Whether a budget ended in it or below. That depends on the folders that were read before, so such a folder is read again.
    is_cut: bool,
    /// How many of the table's entries were read.
    read_entries: usize,
}

/// A tree that was read within budgets.
pub(super) struct Listing {
    /// The folder at the top.
    pub root: Arc<Folder>,
    /// What was left out, and why.
    pub problems: Vec<TreeProblem>,
}

/// Lists a tree within budgets. Folders that `before` has unchanged are not read again. The result is the same with and without
/// `before`.
pub(super) fn list(
    objects: &HandleArc,
    (id, path): (ObjectId, &str),
    limits: Limits,
    interrupt: &AtomicBool,
    before: Option<&Arc<Folder>>,
) -> Result<Listing, GitError> {
    let mut reader = Reader { objects, limits, interrupt, files: 0, folders: 0, full: None };
    let root = reader.read(id, path.to_owned(), 0, before)?;
    let mut problems = root.all_problems();
    if let Some(what) = reader.full {
        let most = limits.files;
        let message = format!("there are more than {most} {what}; the rest is not read");
        let hint = "sync a smaller folder, or raise the operator's --git-max-files";
        problems.push(left_out(path, message, hint));
    }
    Ok(Listing { root, problems })
}

fn left_out(path: &str, message: String, hint: &str) -> TreeProblem {
    let path = if path.is_empty() { "." } else { path }.to_owned();
    TreeProblem { path, message, hint: Some(hint.to_owned()) }
}

struct Reader<'a> {
    objects: &'a HandleArc,
    limits: Limits,
    interrupt: &'a AtomicBool,
    files: usize,
    /// Counted separately, because a few tree objects can make very many folders.
    folders: usize,
    /// What there are too many of. Then the rest is not read.
    full: Option<&'static str>,
}

impl Reader<'_> {
    /// Whether the budgets have room for a whole folder.
    fn fits(&self, folder: &Folder) -> bool {
        self.files + folder.files <= self.limits.files
            && self.folders + folder.below <= self.limits.files
    }

    /// Reads a folder and those below, as deep as the budget allows.
    fn read(
        &mut self,
        id: ObjectId,
        path: String,
        depth: usize,
        before: Option<&Arc<Folder>>,
    ) -> Result<Arc<Folder>, GitError> {
        let before = before.filter(|before| before.path == path);
        if let Some(same) = before.filter(|b| b.id == id && !b.is_cut && self.fits(b)) {
            self.files += same.files;
            self.folders += same.below;
            return Ok(Arc::clone(same));
        }
        if self.interrupt.load(Memory::Relaxed) {
            return Err(GitError::corrupt("reading was cut off"));
        }
        let mut folder = Folder {
            path,
            id,
            table: None,
            folders: Vec::new(),
            problems: Vec::new(),
            files: 0,
            below: 0,
            is_incomplete: false,
            is_cut: false,
            read_entries: 0,
        };
        if let Some(bytes) = tree_bytes(self.objects, &id)? {
            if let Some(table) = Table::parse(bytes, id.kind()) {
                self.enter(&mut folder, table, depth, before)?;
            } else {
                let message = "the folder cannot be decoded".to_owned();
                folder.leave_out(None, message, "rewrite the commit that made it");
            }
        } else {
            folder.leave_out(None, "the folder has too many entries".into(), "split it");
        }
        Ok(Arc::new(folder))
    }

    /// Reads the entries of a folder.
    fn enter(
        &mut self,
        folder: &mut Folder,
        table: Table,
        depth: usize,
        before: Option<&Arc<Folder>>,
    ) -> Result<(), GitError> {
        // When both are sorted, one walk finds the earlier version of each folder.
        let known = before.filter(|before| table.is_sorted() && before.is_sorted());
        let mut known = known.map(|before| before.folders.as_slice()).unwrap_or_default();
        for item in table.items() {
            match item.what {
                What::Leaf(_) if self.files >= self.limits.files => self.full = Some("files"),
                What::Leaf(_) => {
                    self.files += 1;
                    folder.files += 1;
                    folder.read_entries += 1;
                }
                What::Folder if depth >= self.limits.depth => {
                    let message = format!(
                        "folders are nested deeper than {} levels; it is not read",
                        self.limits.depth
                    );
                    folder.leave_out(Some(item.name), message, "move it up");
                    folder.read_entries += 1;
                }
                What::Folder if self.folders >= self.limits.files => self.full = Some("folders"),
                What::Folder => {
                    self.folders += 1;
                    let path = folder.path_of(item.name);
                    let order_of = |folder: &Folder| {
                        order((folder.name(), What::Folder), (item.name, What::Folder))
                    };
                    while known.first().is_some_and(|known| order_of(known).is_lt()) {
                        known = &known[1..];
                    }
                    let inner = self.read(item.object(), path, depth + 1, known.first())?;
                    folder.files += inner.files;
                    folder.below += inner.below + 1;
                    folder.is_incomplete |= inner.is_incomplete;
                    folder.folders.push(inner);
                    folder.read_entries += 1;
                }
            }
            if self.full.is_some() {
                (folder.is_cut, folder.is_incomplete) = (true, true);
                break;
            }
        }
        folder.table = Some(table);
        Ok(())
    }
}

impl Folder {
    fn is_sorted(&self) -> bool {
        self.table.as_ref().is_some_and(Table::is_sorted)
    }

    /// The last part of its path.
    fn name(&self) -> &[u8] {
        self.path.rsplit('/').next().unwrap_or_default().as_bytes()
    }

    fn path_of(&self, name: &[u8]) -> String {
        let name = shown_name(name);
        if self.path.is_empty() { name } else { format!("{}/{name}", self.path) }
    }

    fn leave_out(&mut self, name: Option<&[u8]>, message: String, hint: &str) {
        let path = name.map_or_else(|| self.path.clone(), |name| self.path_of(name));
        self.problems.push(left_out(&path, message, hint));
        self.is_incomplete = true;
    }

    /// The problems in it and below.
    fn all_problems(&self) -> Vec<TreeProblem> {
        if !self.is_incomplete {
            return Vec::new();
        }
        let below = self.folders.iter().flat_map(|folder| folder.all_problems());
        self.problems.iter().cloned().chain(below).collect()
    }

    /// The entries that were read.
    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.table.iter().flat_map(Table::items).take(self.read_entries)
    }

    /// The folder of this name, if it was read.
    fn folder(&self, name: &[u8]) -> Option<&Arc<Folder>> {
        if self.is_sorted() {
            let order_of =
                |folder: &Arc<Folder>| order((folder.name(), What::Folder), (name, What::Folder));
            let at = self.folders.binary_search_by(order_of).ok()?;
            return Some(&self.folders[at]);
        }
        self.folders.iter().find(|folder| folder.name() == name)
    }

    /// All entries in it and below that are no folders, sorted by path.
    pub fn entries(&self) -> Vec<TreeEntry> {
        let mut entries = Vec::with_capacity(self.files);
        self.visit(&mut |entry| entries.push(entry));
        // The trees that Git writes are sorted already.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries
    }

    /// Calls `each` for every entry in it and below that is no folder.
    fn visit(&self, each: &mut impl FnMut(TreeEntry)) {
        let mut folders = self.folders.iter();
        for item in self.items() {
            match item.what {
                What::Leaf(_) => each(self.entry(&item)),
                What::Folder => {
                    // A folder that was left out is not in `folders`.
                    let path = self.path_of(item.name);
                    if folders.as_slice().first().is_some_and(|folder| folder.path == path)
                        && let Some(folder) = folders.next()
                    {
                        folder.visit(each);
                    }
                }
            }
        }
    }

    /// The entry of something that is no folder.
    fn entry(&self, item: &Item<'_>) -> TreeEntry {
        let kind = item.kind().unwrap_or(EntryKind::Odd);
        TreeEntry { path: self.path_of(item.name), id: item.object().to_string(), kind }
    }

    /// Finds what is at a path below it. `None` when the path leads into a folder that was left out.
    pub fn find(&self, path: &str) -> Option<Found> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let mut at = self;
        while let Some(part) = parts.next() {
            let Some(item) = at.table.as_ref()?.find(part.as_bytes()) else {
                return Some(Found::Nothing);
            };
            match item.what {
                What::Folder if parts.peek().is_none() => {
                    return Some(Found::Folder(item.object()));
                }
                What::Folder => at = at.folder(part.as_bytes())?,
                What::Leaf(EntryKind::File) if parts.peek().is_some() => {
                    return Some(Found::Nothing);
                }
                What::Leaf(kind) => return Some(Found::Entry(kind, item.object())),
            }
        }
        Some(Found::Folder(at.id))
    }

    /// The entries that differ between two listings of the same path. `None` when that is not known, because something was left
    /// out or a tree is not sorted.
    pub fn changes(self: &Arc<Self>, new: &Arc<Self>) -> Option<Vec<EntryChange>> {
        compare(self, new)
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Folder(ObjectId),
    Entry(EntryKind, ObjectId),
    Nothing,
}

/// See [`Folder::changes`].
fn compare(old: &Arc<Folder>, new: &Arc<Folder>) -> Option<Vec<EntryChange>> {
    let mut changes = Vec::new();
    if [old, new].iter().any(|folder| folder.is_incomplete || !folder.is_sorted()) {
        return None;
    }
    if Arc::ptr_eq(old, new) {
        return Some(changes);
    }
    let (mut olds, mut news) = (old.items().peekable(), new.items().peekable());
    // Nothing was left out, so `folders` has one for each folder among the entries.
    let (mut old_folders, mut new_folders) = (old.folders.iter(), new.folders.iter());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (Some(old), Some(new)) => old.order(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Some(changes),
        };
        let was = if order.is_le() { olds.next() } else { None };
        let is = if order.is_ge() { news.next() } else { None };
        // A folder and something else are never equal in this order.
        match (was, is) {
            (Some(was), Some(_)) if was.what == What::Folder => {
                let (was, is) = (old_folders.next()?, new_folders.next()?);
                changes.extend(compare(was, is)?);
            }
            (Some(was), Some(is)) => {
                if (was.id, was.what) != (is.id, is.what) {
                    let entry = new.entry(&is);
                    changes.push(EntryChange { old: was.kind(), ..added(entry) });
                }
            }
            (Some(was), None) if was.what == What::Folder => {
                old_folders.next()?.visit(&mut |entry| changes.push(removed(entry)));
            }
            (Some(was), None) => changes.push(removed(old.entry(&was))),
            (None, Some(is)) if is.what == What::Folder => {
                new_folders.next()?.visit(&mut |entry| changes.push(added(entry)));
            }
            (None, Some(is)) => changes.push(added(new.entry(&is))),
            (None, None) => return None,
        }
    }
}

fn added(entry: TreeEntry) -> EntryChange {
    EntryChange { path: entry.path.clone(), old: None, new: Some(entry) }
}

fn removed(entry: TreeEntry) -> EntryChange {
    EntryChange { path: entry.path, old: Some(entry.kind), new: None }
}
