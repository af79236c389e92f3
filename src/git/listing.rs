//! The folders of a commit's tree in memory. A commit shares with the one before it each folder whose tree is the same,
//! so that only what changed is read, and what differs is found without looking at the rest.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use gix::ObjectId;
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryMode;
use gix::odb::HandleArc;
use sha2::{Digest, Sha256};

use super::error::printable;
use super::snapshot::tree_bytes;
use super::{GitError, Limits, check};
use crate::definition::tree::{EntryChange, EntryKind, TreeEntry, TreeProblem};

/// What an entry of a folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Folder,
    Leaf(EntryKind),
}

/// One entry of one tree, judged; where it is in the tree's bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    name: u32,
    name_end: u32,
    what: What,
}

/// The bytes of one tree object, and what its entries are.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Box<[u8]>,
    slots: Box<[Slot]>,
    hash: gix::hash::Kind,
    /// Whether the entries stand as Git sorts them and no name is there twice: as in every honest tree.
    orderly: bool,
}

/// One entry of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub name: &'a [u8],
    pub id: &'a [u8],
    pub what: What,
}

impl Item<'_> {
    /// The id of the object behind it.
    pub fn object(&self) -> ObjectId {
        ObjectId::from_bytes_or_panic(self.id)
    }

    /// `None` for a folder.
    pub fn kind(&self) -> Option<EntryKind> {
        match self.what {
            What::Leaf(kind) => Some(kind),
            What::Folder => None,
        }
    }

    /// The order of Git: folders as if their names ended with `/`.
    fn order(&self, other: &Self) -> Ordering {
        order((self.name, self.what), (other.name, other.what))
    }
}

fn order((one, one_is): (&[u8], What), (two, two_is): (&[u8], What)) -> Ordering {
    let common = one.len().min(two.len());
    let end = |name: &[u8], what| match name.get(common) {
        Some(byte) => Some(*byte),
        None => (what == What::Folder).then_some(b'/'),
    };
    one[..common].cmp(&two[..common]).then_with(|| end(one, one_is).cmp(&end(two, two_is)))
}

impl Table {
    /// Judges the entries of a tree. `None` when it does not parse: its id is right, so the author made it so.
    pub fn parse(bytes: Vec<u8>, hash: gix::hash::Kind) -> Option<Self> {
        let bytes = bytes.into_boxed_slice();
        let start = bytes.as_ptr().addr();
        let mut slots: Vec<Slot> = Vec::with_capacity(bytes.len() / 32);
        let (mut orderly, mut ascending) = (true, true);
        let mut last: Option<(&[u8], What)> = None;
        for entry in TreeRefIter::from_bytes(&bytes, hash) {
            let entry = entry.ok()?;
            let name: &[u8] = entry.filename;
            let mut what = what(entry.mode);
            if let Some(last) = last {
                orderly &= order(last, (name, what)).is_lt();
                ascending &= last.0 < name;
            }
            last = Some((name, what));
            if check::name_problem(name).is_some() {
                // As what it is now it would stand elsewhere.
                orderly &= what != What::Folder;
                what = What::Leaf(EntryKind::Odd);
            }
            let at = name.as_ptr().addr() - start;
            let name_end = u32::try_from(at + name.len()).ok()?;
            slots.push(Slot { name: u32::try_from(at).ok()?, name_end, what });
        }
        let mut table = Self { bytes, slots: slots.into_boxed_slice(), hash, orderly };
        if !ascending {
            table.find_twins();
        }
        Some(table)
    }

    /// Git would see one of two entries of a name, another program the other.
    fn find_twins(&mut self) {
        let mut names: Vec<_> = (0..self.slots.len()).collect();
        names.sort_unstable_by_key(|index| self.item(*index).name);
        for pair in names.windows(2) {
            if self.item(pair[0]).name == self.item(pair[1]).name {
                self.slots[pair[0]].what = What::Leaf(EntryKind::Odd);
                self.slots[pair[1]].what = What::Leaf(EntryKind::Odd);
                self.orderly = false;
            }
        }
    }

    fn item(&self, index: usize) -> Item<'_> {
        let Slot { name, name_end, what } = self.slots[index];
        let (name, end) = (name as usize, name_end as usize);
        // The id follows the NUL after the name: the parser has seen both.
        let id = &self.bytes[end + 1..=end + self.hash.len_in_bytes()];
        Item { name: &self.bytes[name..end], id, what }
    }

    /// All entries, as they stand in the tree.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.slots.len()).map(|index| self.item(index))
    }

    /// The first entry of a name.
    pub fn find(&self, name: &[u8]) -> Option<Item<'_>> {
        if !self.orderly {
            return self.items().find(|item| item.name == name);
        }
        // As a folder it stands elsewhere than as anything else.
        [What::Leaf(EntryKind::File), What::Folder].into_iter().find_map(|what| {
            let search = |slot: &Slot| {
                let known = &self.bytes[slot.name as usize..slot.name_end as usize];
                order((known, slot.what), (name, what))
            };
            let at = self.slots.binary_search_by(search).ok()?;
            Some(self.item(at))
        })
    }

    /// The same for two tables that are alike but for what is behind one folder.
    pub fn digest_beside(&self, folder: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        for item in self.items().filter(|i| !(i.name == folder && i.what == What::Folder)) {
            digest.update((item.name.len() as u64).to_le_bytes());
            digest.update(item.name);
            digest.update(item.id);
            digest.update([match item.what {
                What::Folder => 0,
                What::Leaf(EntryKind::File) => 1,
                What::Leaf(EntryKind::Symlink) => 2,
                What::Leaf(EntryKind::Submodule) => 3,
                What::Leaf(EntryKind::Odd) => 4,
            }]);
        }
        digest.finalize().into()
    }
}

/// What a mode means.
fn what(mode: EntryMode) -> What {
    match mode.value() {
        0o40000 => What::Folder,
        // 100664 was written by early versions of Git.
        0o100_644 | 0o100_755 | 0o100_664 => What::Leaf(EntryKind::File),
        0o120_000 => What::Leaf(EntryKind::Symlink),
        0o160_000 => What::Leaf(EntryKind::Submodule),
        _ => What::Leaf(EntryKind::Odd),
    }
}

/// The name itself when it is harmless, otherwise something that can be printed.
fn shown_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if check::name_problem(name).is_none() => text.to_owned(),
        _ => printable(&String::from_utf8_lossy(name)),
    }
}

/// One folder, with all below it.
#[derive(Debug)]
pub(super) struct Folder {
    path: String,
    id: ObjectId,
    /// `None` for one that was left out.
    table: Option<Table>,
    /// Those of the table, in its order, up to where a budget ended.
    folders: Vec<Arc<Folder>>,
    problems: Vec<TreeProblem>,
    /// Entries that are no folders, in it and below.
    files: usize,
    /// Folders below it.
    below: usize,
    /// Whether something in it or below it was left out.
    faulty: bool,
    /// Whether that may be because of what was read before it: then it is never used again.
    cut: bool,
    /// How many of the table's entries count.
    most: usize,
}

/// A folder and all below it, read within budgets.
pub(super) struct Listing {
    pub root: Arc<Folder>,
    pub problems: Vec<TreeProblem>,
}

/// Lists a tree within budgets. Folders of `before` that are the same are not read again; the result does not depend on
/// it.
pub(super) fn list(
    objects: &HandleArc,
    (id, path): (ObjectId, &str),
    limits: Limits,
    interrupt: &AtomicBool,
    before: Option<&Arc<Folder>>,
) -> Result<Listing, GitError> {
    let mut reader = Reader { objects, limits, interrupt, files: 0, folders: 0, full: None };
    let root = reader.read(id, path.to_owned(), 0, before)?;
    let mut problems = Vec::new();
    root.collect_problems(&mut problems);
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
    /// Counted apart: folders that hold only folders can be many with few objects.
    folders: usize,
    /// What there is too much of: the rest is not read.
    full: Option<&'static str>,
}

impl Reader<'_> {
    /// Whether all of a folder fits what is left of the budgets.
    fn fits(&self, folder: &Folder) -> bool {
        self.files + folder.files <= self.limits.files
            && self.folders + folder.below <= self.limits.files
    }

    /// Reads a folder. Calls itself as deep as the budget allows.
    fn read(
        &mut self,
        id: ObjectId,
        path: String,
        depth: usize,
        before: Option<&Arc<Folder>>,
    ) -> Result<Arc<Folder>, GitError> {
        let before = before.filter(|before| before.path == path);
        if let Some(same) = before.filter(|b| b.id == id && !b.cut && self.fits(b)) {
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
            faulty: false,
            cut: false,
            most: 0,
        };
        let mut bytes = Vec::new();
        if tree_bytes(self.objects, &id, &mut bytes)? {
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

    /// Reads what is in a folder.
    fn enter(
        &mut self,
        folder: &mut Folder,
        table: Table,
        depth: usize,
        before: Option<&Arc<Folder>>,
    ) -> Result<(), GitError> {
        // Both in the same order: one walk finds for each folder the one before.
        let known = before.filter(|before| table.orderly && before.is_orderly());
        let mut known = known.map(|before| before.folders.as_slice()).unwrap_or_default();
        for item in table.items() {
            match item.what {
                What::Leaf(_) if self.files >= self.limits.files => self.full = Some("files"),
                What::Leaf(_) => {
                    self.files += 1;
                    folder.files += 1;
                    folder.most += 1;
                }
                What::Folder if depth >= self.limits.depth => {
                    let message = format!(
                        "folders are nested deeper than {} levels; it is not read",
                        self.limits.depth
                    );
                    folder.leave_out(Some(item.name), message, "move it up");
                    folder.most += 1;
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
                    folder.faulty |= inner.faulty;
                    folder.folders.push(inner);
                    folder.most += 1;
                }
            }
            if self.full.is_some() {
                (folder.cut, folder.faulty) = (true, true);
                break;
            }
        }
        folder.table = Some(table);
        Ok(())
    }
}

impl Folder {
    fn is_orderly(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.orderly)
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
        self.faulty = true;
    }

    fn collect_problems(&self, into: &mut Vec<TreeProblem>) {
        if self.faulty {
            into.extend(self.problems.iter().cloned());
            self.folders.iter().for_each(|folder| folder.collect_problems(into));
        }
    }

    /// The entries that count.
    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.table.iter().flat_map(Table::items).take(self.most)
    }

    /// The folder of this name, if it was read.
    fn folder(&self, name: &[u8]) -> Option<&Arc<Folder>> {
        if self.is_orderly() {
            let order_of =
                |folder: &Arc<Folder>| order((folder.name(), What::Folder), (name, What::Folder));
            let at = self.folders.binary_search_by(order_of).ok()?;
            return Some(&self.folders[at]);
        }
        self.folders.iter().find(|folder| folder.name() == name)
    }

    /// All entries that are no folders, in it and below, sorted by path.
    pub fn entries(&self) -> Vec<TreeEntry> {
        let mut entries = Vec::with_capacity(self.files);
        self.visit(&mut |entry| entries.push(entry));
        // They are, in every honest tree.
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries
    }

    fn visit(&self, each: &mut impl FnMut(TreeEntry)) {
        let mut folders = self.folders.iter();
        for item in self.items() {
            match item.what {
                What::Leaf(_) => each(self.entry(&item)),
                What::Folder => {
                    // Those that were left out are not in the list.
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

    /// Something that is no folder.
    fn entry(&self, item: &Item<'_>) -> TreeEntry {
        let kind = item.kind().unwrap_or(EntryKind::Odd);
        TreeEntry { path: self.path_of(item.name), id: item.object().to_string(), kind }
    }

    /// What is at a path below it. `None`: that is not known here.
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

    /// The entries in which two listings of one path differ. `None` when that cannot be said: something was left out of
    /// one of them, or a tree is not sorted.
    pub fn changes(self: &Arc<Self>, new: &Arc<Self>) -> Option<Vec<EntryChange>> {
        let mut changes = Vec::new();
        compare(self, new, &mut changes)?;
        Some(changes)
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Folder(ObjectId),
    Entry(EntryKind, ObjectId),
    Nothing,
}

fn compare(old: &Arc<Folder>, new: &Arc<Folder>, changes: &mut Vec<EntryChange>) -> Option<()> {
    if [old, new].iter().any(|folder| folder.faulty || !folder.is_orderly()) {
        return None;
    }
    if Arc::ptr_eq(old, new) {
        return Some(());
    }
    let (mut olds, mut news) = (old.items().peekable(), new.items().peekable());
    // Nothing was left out, so there is one for each folder among the entries.
    let (mut old_folders, mut new_folders) = (old.folders.iter(), new.folders.iter());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (Some(old), Some(new)) => old.order(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Some(()),
        };
        let was = if order.is_le() { olds.next() } else { None };
        let is = if order.is_ge() { news.next() } else { None };
        // Equal in this order are only two folders, or two that are none.
        match (was, is) {
            (Some(was), Some(_)) if was.what == What::Folder => {
                let (was, is) = (old_folders.next()?, new_folders.next()?);
                compare(was, is, changes)?;
            }
            (Some(was), Some(is)) => {
                if (was.id, was.what) != (is.id, is.what) {
                    let entry = new.entry(&is);
                    changes.push(EntryChange { old: was.kind(), ..came(entry) });
                }
            }
            (Some(was), None) if was.what == What::Folder => {
                old_folders.next()?.visit(&mut |entry| changes.push(went(entry)));
            }
            (Some(was), None) => changes.push(went(old.entry(&was))),
            (None, Some(is)) if is.what == What::Folder => {
                new_folders.next()?.visit(&mut |entry| changes.push(came(entry)));
            }
            (None, Some(is)) => changes.push(came(new.entry(&is))),
            (None, None) => return None,
        }
    }
}

fn came(entry: TreeEntry) -> EntryChange {
    EntryChange { path: entry.path.clone(), old: None, new: Some(entry) }
}

fn went(entry: TreeEntry) -> EntryChange {
    EntryChange { path: entry.path, old: Some(entry.kind), new: None }
}
