//! The order in which the operator learns of events. Places are counted, so the order does not depend on a clock.

use std::sync::atomic::{AtomicU64, Ordering};

/// A place in the order of events. Each call of [`Seq::next`] returns a later one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(u64);

impl Seq {
    /// The next place. Two threads never get the same one.
    #[must_use]
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g22_what_is_known_later_has_a_later_place() {
        let (first, second) = (Seq::next(), Seq::next());
        assert!(Seq::default() < first && first < second);
    }
}
