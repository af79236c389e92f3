//! (pure) How much memory it takes to put the deltas of a pack together.
//!
//! A delta is some instructions that make an object from another one, its base. So a small pack can stand for much: each of many large
//! objects is needed until the last one that is made of it is there. The objects are made depth first, by one thread: then only those
//! on one path from a whole object to a delta are in memory at the same time.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

/// An object of a pack.
struct Node {
    /// Where it is in the pack.
    offset: u64,
    /// Its base: the place in the list.
    base: Option<u32>,
    /// Bytes of the object.
    bytes: u64,
    /// How many deltas are made of it: none, one, or several.
    deltas: u8,
    /// Bytes of the largest of these.
    largest_delta: u64,
    /// Bytes that are needed at most at the same time for one of these and for everything that is made of it.
    below: u64,
}

/// What is needed to reckon it.
#[derive(Default)]
pub(super) struct Weight {
    /// By offset.
    nodes: Vec<Node>,
    /// Whether the base of some delta is not known: it is named by its id, and may be anything of the pack.
    has_unknown_bases: bool,
    /// Bytes of the largest object, and of the longest instructions.
    largest: u64,
    longest: u64,
}

impl Weight {
    /// Adds an object that is there as a whole. Objects come in the order of their offsets.
    pub fn whole(&mut self, offset: u64, bytes: u64) {
        self.add(offset, None, bytes);
    }

    /// Adds a delta: the offset of its base, if it is known; the bytes of its instructions and of the object that they make.
    pub fn delta(&mut self, offset: u64, base: Option<u64>, (instructions, bytes): (u64, u64)) {
        self.longest = self.longest.max(instructions);
        let base = base.and_then(|base| self.nodes.binary_search_by_key(&base, |n| n.offset).ok());
        let base = base.and_then(|at| u32::try_from(at).ok());
        self.has_unknown_bases |= base.is_none();
        self.add(offset, base, bytes);
    }

    fn add(&mut self, offset: u64, base: Option<u32>, bytes: u64) {
        self.largest = self.largest.max(bytes);
        let (deltas, largest_delta, below) = (0, 0, 0);
        self.nodes.push(Node { offset, base, bytes, deltas, largest_delta, below });
    }

    /// Bytes that are needed at the same time, at most.
    pub fn bytes(mut self) -> u64 {
        let (mut of_whole, mut of_unknown): (u64, u64) = (0, 0);
        // A base comes before what is made of it.
        while let Some(node) = self.nodes.pop() {
            let (bytes, below) = (node.bytes, node.below);
            let needed = match node.deltas {
                0 => bytes,
                // It is given up once the only object is there that is made of it.
                1 if !self.has_unknown_bases => below.max(bytes.saturating_add(node.largest_delta)),
                _ => bytes.saturating_add(below),
            };
            let base = node.base.and_then(|base| self.nodes.get_mut(base as usize));
            if let Some(base) = base {
                base.deltas = base.deltas.saturating_add(1);
                base.largest_delta = base.largest_delta.max(bytes);
                base.below = base.below.max(needed);
            } else {
                of_whole = of_whole.max(needed);
                // What is made of an unknown base may come on top of everything else.
                of_unknown = of_unknown.saturating_add(needed);
            }
        }
        let needed = if self.has_unknown_bases { of_unknown } else { of_whole };
        // The thread keeps its largest buffers: for instructions and for what they make.
        needed.saturating_add(self.largest).saturating_add(self.longest)
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
