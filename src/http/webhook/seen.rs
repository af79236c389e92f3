//! (pure) The ids of the deliveries of one webhook that were taken last.

use std::collections::{HashSet, VecDeque};

use sha2::{Digest, Sha256};

/// How many ids are kept.
const MOST_IDS: usize = 256;

/// The last ids. Of each, whose length is up to its sender, 16 bytes of a hash are kept.
#[derive(Default)]
pub struct Seen {
    order: VecDeque<[u8; 16]>,
    ids: HashSet<[u8; 16]>,
}

impl Seen {
    /// Remembers an id. Returns whether it is new.
    pub fn note(&mut self, id: &[u8]) -> bool {
        let mut short = [0; 16];
        short.copy_from_slice(&Sha256::digest(id)[..16]);
        if !self.ids.insert(short) {
            return false;
        }
        self.order.push_back(short);
        if self.order.len() > MOST_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v62_ten_thousand_replays_are_one_delivery_and_memory_is_bounded() {
        let mut seen = Seen::default();
        assert!(seen.note(b"a"));
        assert_eq!((0..10_000).filter(|_| seen.note(b"a")).count(), 0);
        assert_eq!((0..10_000_u32).filter(|n| seen.note(&n.to_be_bytes())).count(), 10_000);
        assert_eq!((seen.order.len(), seen.ids.len()), (MOST_IDS, MOST_IDS));
        assert!(
            !seen.note(&9_999_u32.to_be_bytes()) && seen.note(b"a"),
            "the oldest are forgotten"
        );
    }
}
