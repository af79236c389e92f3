//! The entries of one tree object, checked, without a copy of their names.

use std::cmp::Ordering;

use gix::ObjectId;
use gix::objs::TreeRefIter;
use gix::objs::tree::EntryMode;
use sha2::{Digest, Sha256};

use super::check;
use super::error::printable;
use crate::definition::tree::EntryKind;

/// Whether an entry of a tree is a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A folder.
    Folder,
    /// Anything else.
    Leaf(EntryKind),
}

/// The place of one entry in the bytes of its tree, and what it is.
#[derive(Debug, Clone, Copy)]
struct Slot {
    name_start: u32,
    name_end: u32,
    what: What,
}

/// The bytes of one tree object, and its entries.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Box<[u8]>,
    slots: Box<[Slot]>,
    hash: gix::hash::Kind,
    /// Whether the entries are in Git's order and no name is there twice. Git writes only such trees.
    is_sorted: bool,
}

/// One entry of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    pub name: &'a [u8],
    pub id: &'a [u8],
    pub what: What,
}

impl Item<'_> {
    /// The id of the object that the entry names.
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

    /// Compares in Git's order, in which the name of a folder ends with `/`.
    pub fn order(&self, other: &Self) -> Ordering {
        order((self.name, self.what), (other.name, other.what))
    }
}

/// Compares two names in Git's order, in which the name of a folder ends with `/`.
pub(super) fn order((one, one_is): (&[u8], What), (two, two_is): (&[u8], What)) -> Ordering {
    let common = one.len().min(two.len());
    let end = |name: &[u8], what| match name.get(common) {
        Some(byte) => Some(*byte),
        None => (what == What::Folder).then_some(b'/'),
    };
    one[..common].cmp(&two[..common]).then_with(|| end(one, one_is).cmp(&end(two, two_is)))
}

impl Table {
    /// Parses and checks the entries of a tree. `None` when it does not parse. Its hash is right, so its author made it that way.
    pub fn parse(bytes: Vec<u8>, hash: gix::hash::Kind) -> Option<Self> {
        let bytes = bytes.into_boxed_slice();
        let start = bytes.as_ptr().addr();
        let mut slots: Vec<Slot> = Vec::with_capacity(bytes.len() / 32);
        let (mut is_sorted, mut is_ascending) = (true, true);
        let mut last: Option<(&[u8], What)> = None;
        for entry in TreeRefIter::from_bytes(&bytes, hash) {
            let entry = entry.ok()?;
            let name: &[u8] = entry.filename;
            let mut what = what(entry.mode);
            if let Some(last) = last {
                is_sorted &= order(last, (name, what)).is_lt();
                is_ascending &= last.0 < name;
            }
            last = Some((name, what));
            if check::name_problem(name).is_some() {
                // The order is checked for folders. An entry that is no longer one would be at another place.
                is_sorted &= what != What::Folder;
                what = What::Leaf(EntryKind::Odd);
            }
            let start_of_name = name.as_ptr().addr() - start;
            let name_end = u32::try_from(start_of_name + name.len()).ok()?;
            let name_start = u32::try_from(start_of_name).ok()?;
            slots.push(Slot { name_start, name_end, what });
        }
        let mut table = Self { bytes, slots: slots.into_boxed_slice(), hash, is_sorted };
        if !is_ascending {
            table.mark_duplicates();
        }
        Some(table)
    }

    /// Marks entries with the same name as odd: Git would use one of them, and another program the other.
    fn mark_duplicates(&mut self) {
        let mut names: Vec<_> = (0..self.slots.len()).collect();
        names.sort_unstable_by_key(|index| self.item(*index).name);
        for pair in names.windows(2) {
            if self.item(pair[0]).name == self.item(pair[1]).name {
                self.slots[pair[0]].what = What::Leaf(EntryKind::Odd);
                self.slots[pair[1]].what = What::Leaf(EntryKind::Odd);
                self.is_sorted = false;
            }
        }
    }

    fn item(&self, index: usize) -> Item<'_> {
        let Slot { name_start, name_end, what } = self.slots[index];
        let (start, end) = (name_start as usize, name_end as usize);
        // The id follows the NUL after the name. The parser has checked that both are there.
        let id = &self.bytes[end + 1..=end + self.hash.len_in_bytes()];
        Item { name: &self.bytes[start..end], id, what }
    }

    /// All entries in the order of the tree.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.slots.len()).map(|index| self.item(index))
    }

    /// Whether the entries are in Git's order, each name once.
    pub fn is_sorted(&self) -> bool {
        self.is_sorted
    }

    /// The first entry with this name.
    pub fn find(&self, name: &[u8]) -> Option<Item<'_>> {
        if !self.is_sorted {
            return self.items().find(|item| item.name == name);
        }
        // A folder has another place in the order than anything else of the same name.
        [What::Leaf(EntryKind::File), What::Folder].into_iter().find_map(|what| {
            let search = |slot: &Slot| {
                let known = &self.bytes[slot.name_start as usize..slot.name_end as usize];
                order((known, slot.what), (name, what))
            };
            let at = self.slots.binary_search_by(search).ok()?;
            Some(self.item(at))
        })
    }

    /// A digest of all entries but one folder. Two tables with the same digest differ at most in that folder.
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

/// What the mode of an entry means.
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

/// The name of an entry. A name that may do harm is replaced by a printable one.
pub(super) fn shown_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if check::name_problem(name).is_none() => text.to_owned(),
        _ => printable(&String::from_utf8_lossy(name)),
    }
}
