//! (pure) How much memory the objects of a pack take while they are put together, to reckon their ids.
//!
//! A delta is some instructions that make an object from another one, its base. So a small pack can stand for much: each of many large
//! objects is needed until the last one that is made of it is there.
//!
//! gix-pack puts them together with one thread, depth first, the last delta of a base first. It has one buffer that an object is made in. An
//! object that others are made of keeps this buffer, however small the object is, and gives it back with the last of these. The ledger is told
//! of each object before it is made, and does the same with numbers.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::HashMap;

use gix::ObjectId;

/// Bytes that gix-pack and this module keep for each object.
const BOOKKEEPING: u64 = 200;

/// What an object of a pack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// It is there as a whole.
    Whole,
    /// It is made of the object at this offset, which comes before it.
    Of(u64),
    /// It is made of the object with this id, which may be anywhere in the pack.
    OfId(ObjectId),
}

#[derive(Clone, Copy)]
enum Base {
    None,
    /// The place among the nodes.
    Node(u32),
    /// The place among the groups.
    Group(u32),
}

struct Node {
    offset: u64,
    base: Base,
    /// Bytes of the object.
    bytes: u64,
    /// Bytes of the buffer that it has.
    buffer: u64,
    /// How many objects are still to be made of it.
    waiting: u32,
}

/// Deltas whose base is named by the same id.
struct Group {
    count: u32,
    base: Option<u32>,
}

/// What is in memory.
#[derive(Default)]
pub(super) struct Ledger {
    /// By offset.
    nodes: Vec<Node>,
    groups: Vec<Group>,
    by_id: HashMap<ObjectId, u32>,
    /// Bytes of the longest instructions. Their buffer is kept.
    longest: u64,
    /// Bytes of the buffers of objects that others are still to be made of.
    held: u64,
    /// Bytes of the buffer that the next object is made in.
    free: u64,
    /// The object that was made last.
    last: Option<u32>,
}

impl Ledger {
    /// Adds an object of these bytes. They come in the order of their offsets. `instructions` are the bytes of those of a delta.
    ///
    /// Returns `false` if its base is not there.
    pub fn add(&mut self, offset: u64, made: Made, (instructions, bytes): (u64, u64)) -> bool {
        let base = match made {
            Made::Whole => Base::None,
            Made::Of(base) => {
                let Some(at) = self.at(base) else { return false };
                if let Some(node) = self.nodes.get_mut(at as usize) {
                    node.waiting += 1;
                }
                Base::Node(at)
            }
            Made::OfId(id) => {
                let groups = &mut self.groups;
                let at = *self.by_id.entry(id).or_insert_with(|| {
                    groups.push(Group { count: 0, base: None });
                    u32::try_from(groups.len() - 1).unwrap_or(u32::MAX)
                });
                if let Some(group) = groups.get_mut(at as usize) {
                    group.count += 1;
                }
                Base::Group(at)
            }
        };
        self.longest = self.longest.max(instructions);
        self.nodes.push(Node { offset, base, bytes, buffer: 0, waiting: 0 });
        true
    }

    fn at(&self, offset: u64) -> Option<u32> {
        let at = self.nodes.binary_search_by_key(&offset, |node| node.offset).ok()?;
        u32::try_from(at).ok()
    }

    /// The object at this offset is about to be made. Returns the bytes that are in memory while it is made. `None` if that cannot be.
    pub fn make(&mut self, offset: u64) -> Option<u64> {
        let at = self.at(offset)?;
        if let Base::Group(group) = self.nodes.get(at as usize)?.base {
            let group = self.groups.get_mut(group as usize)?;
            if group.base.is_none() {
                // The first of them comes at once after their base.
                group.base = Some(self.last?);
                self.nodes.get_mut(self.last? as usize)?.waiting += group.count;
            }
        }
        self.finish();
        let node = self.nodes.get_mut(at as usize)?;
        let free = if matches!(node.base, Base::None) {
            // It has a buffer of its own.
            node.buffer = node.bytes;
            self.free
        } else {
            node.buffer = node.bytes.max(std::mem::take(&mut self.free));
            0
        };
        self.last = Some(at);
        let fixed = BOOKKEEPING.saturating_mul(self.nodes.len() as u64);
        let buffers = [self.held, free, self.nodes.get(at as usize)?.buffer, self.longest, fixed];
        Some(buffers.into_iter().fold(0, u64::saturating_add))
    }

    /// What becomes of the buffers after the last object was made.
    fn finish(&mut self) {
        let Some(node) = self.last.take().and_then(|last| self.nodes.get(last as usize)) else {
            return;
        };
        let mut given_back = None;
        if node.waiting > 0 {
            self.held = self.held.saturating_add(node.buffer);
        } else if !matches!(node.base, Base::None) {
            given_back = Some(node.buffer);
        }
        let base = match node.base {
            Base::None => None,
            Base::Node(base) => Some(base),
            Base::Group(group) => self.groups.get(group as usize).and_then(|group| group.base),
        };
        if let Some(base) = base.and_then(|base| self.nodes.get_mut(base as usize)) {
            base.waiting = base.waiting.saturating_sub(1);
            if base.waiting == 0 {
                self.held = self.held.saturating_sub(base.buffer);
                given_back = given_back.max(Some(base.buffer));
            }
        }
        self.free = given_back.unwrap_or(self.free);
    }
}

/// The size of the object that a delta makes, given its first instructions. `None` if that is not there. (Git: `gitformat-pack`, deltified
/// representation.)
pub(super) fn size_of_result(instructions: &[u8]) -> Option<u64> {
    let mut bytes = instructions.iter();
    let mut number = || {
        let mut number: u64 = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = bytes.next()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    };
    number()?;
    number()
}

#[cfg(test)]
#[path = "tests/weight.rs"]
mod tests;
