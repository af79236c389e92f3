//! (pure) Limits how much is kept of each namespace, so that a namespace with many objects costs the others nothing.
//!
//! The caller says how much each object counts (its weight). An object that does not fit is left out: only a hash of its name is
//! kept. When there are too many names, only the fact is kept that there are more.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::store::Key;

/// The objects that were left out, by hashes of their names.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct LeftOut {
    names: HashSet<u64>,
    /// Whether there are others, whose names are not known.
    more: bool,
}

/// Names of left-out objects that are kept of one namespace.
const MAX_LEFT_OUT_NAMES: usize = 10_000;

impl LeftOut {
    fn insert(&mut self, name: u64) {
        if self.names.len() < MAX_LEFT_OUT_NAMES {
            self.names.insert(name);
        } else {
            self.more |= !self.names.contains(&name);
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.more
    }
}

/// The state of one namespace.
#[derive(Debug, Default)]
struct Space {
    /// The weight of all kept objects.
    kept: usize,
    left_out: LeftOut,
    /// The objects that a running list of this namespace has left out so far.
    relist: Option<LeftOut>,
}

impl Space {
    fn leave_out(&mut self, name: u64) {
        self.left_out.insert(name);
        if let Some(relist) = &mut self.relist {
            relist.insert(name);
        }
    }

    /// Returns whether the object was left out.
    fn forget(&mut self, name: u64) -> bool {
        if let Some(relist) = &mut self.relist {
            relist.names.remove(&name);
        }
        self.left_out.names.remove(&name)
    }

    fn is_empty(&self) -> bool {
        self.kept == 0 && self.left_out.is_empty() && self.relist.is_none()
    }
}

type Spaces = HashMap<String, Space>;

/// The budget of each namespace, and what was left out of it.
#[derive(Debug)]
pub struct Budget {
    /// The weight that is kept of each namespace.
    max: usize,
    spaces: Spaces,
    /// The state of the running list of all namespaces. It is counted separately, because objects that were kept before may be
    /// gone.
    listing: Option<Spaces>,
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Budget {
    /// A budget that keeps this weight of each namespace.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, spaces: Spaces::new(), listing: None }
    }

    /// A list of all namespaces begins.
    pub fn list_begins(&mut self) {
        self.listing = Some(Spaces::new());
    }

    /// The list of all namespaces is complete, and [`Budget::changed`] was called for every difference. Returns the namespaces
    /// whose left-out objects have changed.
    pub fn list_ends(&mut self) -> BTreeSet<String> {
        let Some(mut listed) = self.listing.take() else { return BTreeSet::new() };
        let mut changed = BTreeSet::new();
        for (name, space) in &mut self.spaces {
            let left_out = listed.remove(name).map(|listed| listed.left_out).unwrap_or_default();
            if left_out != space.left_out {
                changed.insert(name.clone());
            }
            (space.left_out, space.relist) = (left_out, None);
        }
        for (name, listed) in listed.into_iter().filter(|(_, s)| !s.left_out.is_empty()) {
            let left_out = listed.left_out;
            changed.insert(name.clone());
            self.spaces.insert(name, Space { left_out, ..Space::default() });
        }
        self.spaces.retain(|_, space| !space.is_empty());
        changed
    }

    /// Whether a list of all namespaces is being read.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Decides whether an object is kept that a list of all namespaces or a watch shows. `old` is the weight of its kept version,
    /// 0 if there is none, and `new` is its weight now.
    pub fn admit(&mut self, key: &Key, old: usize, new: usize) -> bool {
        let Some(listing) = &mut self.listing else { return self.admit_relisted(key, old, new) };
        let space = listing.entry(key.namespace.clone()).or_default();
        let fits = space.kept.saturating_add(new) <= self.max;
        if fits {
            space.kept += new;
        } else {
            space.left_out.insert(hash(&key.name));
        }
        fits
    }

    /// Decides whether an object is kept that a list of its namespace shows.
    pub fn admit_relisted(&mut self, key: &Key, old: usize, new: usize) -> bool {
        let space = self.spaces.entry(key.namespace.clone()).or_default();
        // `changed` counts it once it is kept.
        let fits = space.kept.saturating_sub(old).saturating_add(new) <= self.max;
        if fits {
            space.forget(hash(&key.name));
            if space.is_empty() {
                self.spaces.remove(&key.namespace);
            }
        } else {
            space.leave_out(hash(&key.name));
        }
        fits
    }

    /// The weight of a kept object has changed. Returns whether an object that was left out may fit now.
    pub fn changed(&mut self, namespace: &str, old: usize, new: usize) -> bool {
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        space.kept = (space.kept + new).saturating_sub(old);
        let has_room = new < old && !space.left_out.is_empty();
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        // A running list of all namespaces shows that object, too.
        has_room && self.listing.is_none()
    }

    /// An object was deleted. Returns whether it is known that it was left out.
    pub fn deleted(&mut self, key: &Key) -> bool {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return false };
        let was_left_out = space.forget(hash(&key.name));
        if space.is_empty() {
            self.spaces.remove(&key.namespace);
        }
        was_left_out
    }

    /// A list of one namespace begins.
    pub fn relist_begins(&mut self, namespace: &str) {
        self.spaces.entry(namespace.to_owned()).or_default().relist = Some(LeftOut::default());
    }

    /// The list of one namespace is complete. Returns whether the left-out objects have changed.
    pub fn relist_ends(&mut self, namespace: &str) -> bool {
        let Some(space) = self.spaces.get_mut(namespace) else { return false };
        let relist = space.relist.take();
        let has_changed = relist.as_ref().is_some_and(|relist| *relist != space.left_out);
        if let Some(relist) = relist {
            space.left_out = relist;
        }
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
        has_changed
    }

    /// The list of one namespace has failed: the left-out objects stay as they were known.
    pub fn relist_failed(&mut self, namespace: &str) {
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        space.relist = None;
        if space.is_empty() {
            self.spaces.remove(namespace);
        }
    }

    /// Whether an object was left out, or may have been.
    #[must_use]
    pub fn is_left_out(&self, key: &Key) -> bool {
        let space = self.spaces.get(&key.namespace);
        space.is_some_and(|space| {
            space.left_out.more || space.left_out.names.contains(&hash(&key.name))
        })
    }

    /// Whether so many objects of a namespace are left out that not all names are known.
    #[must_use]
    pub fn has_unknown_left_out(&self, namespace: &str) -> bool {
        self.spaces.get(namespace).is_some_and(|space| space.left_out.more)
    }

    /// Whether any object of a namespace is left out.
    #[must_use]
    pub fn is_over(&self, namespace: &str) -> bool {
        self.spaces.get(namespace).is_some_and(|space| !space.left_out.is_empty())
    }
}

#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;
