//! (pure) How much of what is labelled is kept of each namespace: what one holds costs the others nothing.
//!
//! What an object counts is for those who keep it to say. What does not fit is left out, and nothing is known of it but
//! a hash of its name; when even those are too many, that there is more.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::store::Key;

/// Names of objects that were left out.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Left {
    names: HashSet<u64>,
    /// Whether there are others.
    more: bool,
}

/// Most names of one namespace that are remembered.
const MOST_NAMES: usize = 10_000;

impl Left {
    fn insert(&mut self, name: u64) {
        if self.names.len() < MOST_NAMES {
            self.names.insert(name);
        } else {
            self.more |= !self.names.contains(&name);
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.more
    }
}

/// One namespace.
#[derive(Debug, Default)]
struct Space {
    /// What is kept counts so much.
    kept: usize,
    left: Left,
    /// What a list of this namespace has left out so far.
    again: Option<Left>,
}

impl Space {
    fn leave(&mut self, name: u64) {
        self.left.insert(name);
        if let Some(again) = &mut self.again {
            again.insert(name);
        }
    }

    fn forget(&mut self, name: u64) -> bool {
        if let Some(again) = &mut self.again {
            again.names.remove(&name);
        }
        self.left.names.remove(&name)
    }

    fn is_empty(&self) -> bool {
        self.kept == 0 && self.left.is_empty() && self.again.is_none()
    }
}

type Spaces = HashMap<String, Space>;

/// See the module.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    spaces: Spaces,
    /// The same of the list of everything that is being read. It is counted by itself: what was kept before may be gone.
    listing: Option<Spaces>,
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Budget {
    /// So much is kept of each namespace.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, spaces: Spaces::new(), listing: None }
    }

    /// A list of everything begins.
    pub fn list_begins(&mut self) {
        self.listing = Some(Spaces::new());
    }

    /// The list is complete, and the store has told what differs. Gives the namespaces of which something else is left
    /// out than before.
    pub fn list_ends(&mut self) -> BTreeSet<String> {
        let Some(mut listed) = self.listing.take() else { return BTreeSet::new() };
        let mut turned = BTreeSet::new();
        for (name, space) in &mut self.spaces {
            let left = listed.remove(name).map(|listed| listed.left).unwrap_or_default();
            if left != space.left {
                turned.insert(name.clone());
            }
            (space.left, space.again) = (left, None);
        }
        for (name, Space { left, .. }) in listed.into_iter().filter(|(_, s)| !s.left.is_empty()) {
            turned.insert(name.clone());
            self.spaces.insert(name, Space { left, ..Space::default() });
        }
        self.spaces.retain(|_, space| !space.is_empty());
        turned
    }

    /// Whether a list of everything is being read.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Whether an object that a list of everything or a watch shows is kept. `old` is what counts of it already.
    pub fn takes(&mut self, key: &Key, old: usize, new: usize) -> bool {
        let Some(listing) = &mut self.listing else { return self.fills(key, old, new) };
        let space = listing.entry(key.namespace.clone()).or_default();
        let fits = space.kept.saturating_add(new) <= self.most;
        if fits {
            space.kept += new;
        } else {
            space.left.insert(hash(&key.name));
        }
        fits
    }

    /// The same of one that a list of its namespace shows.
    pub fn fills(&mut self, key: &Key, old: usize, new: usize) -> bool {
        let space = self.spaces.entry(key.namespace.clone()).or_default();
        // What it counts is told when it is kept.
        let fits = space.kept.saturating_sub(old).saturating_add(new) <= self.most;
        if fits {
            space.forget(hash(&key.name));
            if space.is_empty() {
                self.spaces.remove(&key.namespace);
            }
        } else {
            space.leave(hash(&key.name));
        }
        fits
    }

    /// What is kept has changed. Says whether something that was left out may fit now.
    pub fn changed(&mut self, namespace: &str, old: usize, new: usize) -> bool {
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        space.kept = (space.kept + new).saturating_sub(old);
        let room = new < old && !space.left.is_empty();
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        // A list of everything shows that, too.
        room && self.listing.is_none()
    }

    /// An object has ended. Says whether it is known to have been left out.
    pub fn ended(&mut self, key: &Key) -> bool {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return false };
        let was = space.forget(hash(&key.name));
        if space.is_empty() {
            self.spaces.remove(&key.namespace);
        }
        was
    }

    /// A list of one namespace begins.
    pub fn again_begins(&mut self, namespace: &str) {
        self.spaces.entry(namespace.to_owned()).or_default().again = Some(Left::default());
    }

    /// It is complete, or has failed. Says whether something else is left out than was known.
    pub fn again_ends(&mut self, namespace: &str, complete: bool) -> bool {
        let Some(space) = self.spaces.get_mut(namespace) else { return false };
        let again = space.again.take().filter(|_| complete);
        let turned = again.as_ref().is_some_and(|again| *again != space.left);
        if let Some(again) = again {
            space.left = again;
        }
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        turned
    }

    /// Whether an object may have been left out.
    #[must_use]
    pub fn is_left(&self, key: &Key) -> bool {
        let space = self.spaces.get(&key.namespace);
        space.is_some_and(|space| space.left.more || space.left.names.contains(&hash(&key.name)))
    }

    /// Whether so much of a namespace is left out that the names are not known.
    #[must_use]
    pub fn leaves_unknown(&self, namespace: &str) -> bool {
        self.spaces.get(namespace).is_some_and(|space| space.left.more)
    }

    /// Whether something of a namespace is left out.
    #[must_use]
    pub fn is_over(&self, namespace: &str) -> bool {
        self.spaces.get(namespace).is_some_and(|space| !space.left.is_empty())
    }
}

#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;
