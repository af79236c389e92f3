//! Remembers applies that changed nothing, so that they are not sent again.

use std::collections::HashMap;

use crate::cluster::store::Key;

/// Applies that changed nothing: kind and key of the child, and its version and hash at that time.
#[derive(Default)]
pub(super) struct Settled {
    pub(super) known: HashMap<(&'static str, Key), (u64, String)>,
    /// At this number of entries, those of children that have changed since are dropped.
    clean_up_at: usize,
}

/// The number of entries below which no clean-up happens.
pub(super) const MIN_CLEAN_UP: usize = 1000;

impl Settled {
    /// Remembers an apply that changed nothing. `is_current` says whether a child of this kind is still at a version.
    pub(super) fn insert(
        &mut self,
        kind: &'static str,
        key: Key,
        version_and_hash: (u64, String),
        is_current: impl Fn(&Key, u64) -> bool,
    ) {
        if self.known.len() >= self.clean_up_at.max(MIN_CLEAN_UP) {
            self.known.retain(|(of, key), (version, _)| *of != kind || is_current(key, *version));
            // The next clean-up comes after as many new entries as there are now, so each insert costs little.
            self.clean_up_at = self.known.len() * 2;
        }
        self.known.insert((kind, key), version_and_hash);
    }
}
