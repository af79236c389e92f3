//! (pure) Whose turn it is among namespaces: what one of them has to do makes no other one wait.
//!
//! The next key is one of the namespace that has the fewest at work; of several, of the one whose last turn is longest
//! ago; within a namespace, the one that is due longest. And a namespace gets another slot only while it has fewer
//! than are free (the dynamic threshold of shared buffers in switches): alone it gets half of all, two of them a third
//! each, and a namespace that comes later finds a free one, however long the work of the others takes.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use convoke_core::cluster::store::Key;

/// The keys of one namespace.
#[derive(Default)]
struct Space {
    /// Names that may be worked on.
    ready: BTreeSet<(Instant, String)>,
    /// How many are worked on.
    working: usize,
    /// When it had its last turn, or came.
    turn: u64,
    /// Whether it waits as a whole.
    held: bool,
}

impl Space {
    fn place(&self, name: &Arc<str>) -> Option<(usize, u64, Arc<str>)> {
        let waits = !self.ready.is_empty() && !self.held;
        waits.then(|| (self.working, self.turn, name.clone()))
    }
}

/// The waiting keys of all namespaces. The cost of a call grows with the logarithm of their number.
#[derive(Default)]
pub struct Fair {
    spaces: HashMap<Arc<str>, Space>,
    /// Namespaces whose turn may come, in the order of their turns.
    order: BTreeSet<(usize, u64, Arc<str>)>,
    turns: u64,
    working: usize,
}

impl Fair {
    /// Changes a namespace and its place in the order.
    fn change<T>(&mut self, namespace: &str, change: impl FnOnce(&mut Space) -> T) -> T {
        let (name, mut space) = self.spaces.remove_entry(namespace).unwrap_or_else(|| {
            // Who comes anew comes after those that wait: else one key, again and again, would always be first.
            self.turns += 1;
            (namespace.into(), Space { turn: self.turns, ..Space::default() })
        });
        if let Some(place) = space.place(&name) {
            self.order.remove(&place);
        }
        let answer = change(&mut space);
        self.order.extend(space.place(&name));
        if !space.ready.is_empty() || space.working > 0 || space.held {
            self.spaces.insert(name, space);
        }
        answer
    }

    /// A key may be worked on; it was due at that time.
    pub fn insert(&mut self, key: Key, due: Instant) {
        let Key { namespace, name } = key;
        self.change(&namespace, |space| space.ready.insert((due, name)));
    }

    /// Takes back a key that was put in with this time.
    pub fn remove(&mut self, key: &Key, due: Instant) {
        let ready = (due, key.name.clone());
        self.change(&key.namespace, |space| space.ready.remove(&ready));
    }

    /// The namespace whose turn it is when there are so many slots.
    #[must_use]
    pub fn next(&self, slots: usize) -> Option<Arc<str>> {
        // Whoever has fewest comes first: if it gets no slot, nobody does.
        let (working, _, name) = self.order.first()?;
        (*working < slots.saturating_sub(self.working)).then(|| name.clone())
    }

    /// Takes the first key of a namespace: it is worked on.
    pub fn take(&mut self, namespace: &str) -> Option<Key> {
        self.turns += 1;
        let turn = self.turns;
        let name = self.change(namespace, |space| {
            let (_, name) = space.ready.pop_first()?;
            space.working += 1;
            space.turn = turn;
            Some(name)
        })?;
        self.working += 1;
        Some(Key::new(namespace, name))
    }

    /// A key of a namespace is worked on no more.
    pub fn done(&mut self, namespace: &str) {
        self.change(namespace, |space| space.working = space.working.saturating_sub(1));
        self.working = self.working.saturating_sub(1);
    }

    /// Nothing of this namespace is next until it is released.
    pub fn hold(&mut self, namespace: &str) {
        self.change(namespace, |space| space.held = true);
    }

    /// The turn of this namespace may come again.
    pub fn release(&mut self, namespace: &str) {
        self.change(namespace, |space| space.held = false);
    }
}

#[cfg(test)]
#[path = "tests/fair.rs"]
mod tests;
