//! (pure) Shares a limit of concurrent work fairly among namespaces, so that a namespace with much work makes no other one wait.
//!
//! The next turn has the namespace with the fewest running keys. Of several, it is the one whose last turn was the longest ago.
//! Within a namespace, the key that has been due the longest comes first.
//!
//! A namespace gets another place only while it uses fewer places than are free. (Switches share their buffers in this way: a
//! dynamic threshold.) A namespace that is alone gets half of the places, and two of them get a third each. So a namespace that
//! comes later finds a free place, however long the work of the others takes.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use convoke_core::cluster::store::Key;

/// The keys of one namespace.
#[derive(Default)]
struct Space {
    /// The waiting names, with the time at which each was due.
    ready: BTreeSet<(Instant, String)>,
    /// How many keys are running.
    running: usize,
    /// The number of its last turn, or of its arrival.
    turn: u64,
    /// Whether the whole namespace waits.
    held: bool,
}

impl Space {
    /// Its place in the order of turns, if it waits for one.
    fn place(&self, name: &Arc<str>) -> Option<(usize, u64, Arc<str>)> {
        let waits = !self.ready.is_empty() && !self.held;
        waits.then(|| (self.running, self.turn, name.clone()))
    }
}

/// The waiting keys of all namespaces. The cost of a call is logarithmic in their number.
#[derive(Default)]
pub struct Fair {
    spaces: HashMap<Arc<str>, Space>,
    /// The namespaces that wait for a turn, in the order of their turns.
    order: BTreeSet<(usize, u64, Arc<str>)>,
    turns: u64,
    running: usize,
}

impl Fair {
    /// Changes a namespace and its place in the order.
    fn change<T>(&mut self, namespace: &str, change: impl FnOnce(&mut Space) -> T) -> T {
        let (name, mut space) = self.spaces.remove_entry(namespace).unwrap_or_else(|| {
            // A new namespace comes after those that wait. Otherwise a single key that comes again and again would always be
            // first.
            self.turns += 1;
            (namespace.into(), Space { turn: self.turns, ..Space::default() })
        });
        if let Some(place) = space.place(&name) {
            self.order.remove(&place);
        }
        let answer = change(&mut space);
        self.order.extend(space.place(&name));
        if !space.ready.is_empty() || space.running > 0 || space.held {
            self.spaces.insert(name, space);
        }
        answer
    }

    /// Adds a waiting key, which was due at this time.
    pub fn insert(&mut self, key: Key, due: Instant) {
        let Key { namespace, name } = key;
        self.change(&namespace, |space| space.ready.insert((due, name)));
    }

    /// Removes a waiting key that was added with this time.
    pub fn remove(&mut self, key: &Key, due: Instant) {
        let ready = (due, key.name.clone());
        self.change(&key.namespace, |space| space.ready.remove(&ready));
    }

    /// The namespace that has the next turn, if the limit leaves it a place.
    #[must_use]
    pub fn next(&self, limit: usize) -> Option<Arc<str>> {
        // The first one has the fewest running keys. If it gets no place, no other one does.
        let (running, _, name) = self.order.first()?;
        (*running < limit.saturating_sub(self.running)).then(|| name.clone())
    }

    /// Takes the first waiting key of a namespace. It is running from now on.
    pub fn take(&mut self, namespace: &str) -> Option<Key> {
        self.turns += 1;
        let turn = self.turns;
        let name = self.change(namespace, |space| {
            let (_, name) = space.ready.pop_first()?;
            space.running += 1;
            space.turn = turn;
            Some(name)
        })?;
        self.running += 1;
        Some(Key::new(namespace, name))
    }

    /// A running key of a namespace is done.
    pub fn done(&mut self, namespace: &str) {
        self.change(namespace, |space| space.running = space.running.saturating_sub(1));
        self.running = self.running.saturating_sub(1);
    }

    /// Keeps a namespace from its turns until it is released.
    pub fn hold(&mut self, namespace: &str) {
        self.change(namespace, |space| space.held = true);
    }

    /// Lets a held namespace have its turns again.
    pub fn release(&mut self, namespace: &str) {
        self.change(namespace, |space| space.held = false);
    }
}

#[cfg(test)]
#[path = "tests/fair.rs"]
mod tests;
