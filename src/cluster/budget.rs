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
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        let (namespace, name) = text.split_once('/').expect("namespace/name");
        Key::new(namespace, name)
    }

    /// A watch shows it: what is taken is told as a change.
    fn take(budget: &mut Budget, text: &str, old: usize, new: usize) -> (bool, bool) {
        let takes = budget.takes(&key(text), old, new);
        let room = budget.changed(&key(text).namespace, old, if takes { new } else { 0 });
        (takes, room)
    }

    #[test]
    fn a13_what_does_not_fit_is_left_out_of_its_namespace_and_of_no_other() {
        let mut budget = Budget::new(10);
        assert_eq!(take(&mut budget, "a/one", 0, 6), (true, false));
        assert_eq!(take(&mut budget, "b/one", 0, 10), (true, false));
        assert_eq!(take(&mut budget, "a/two", 0, 5), (false, false));
        assert!(budget.is_over("a") && !budget.is_over("b"));
        assert!(budget.is_left(&key("a/two")), "it is beyond");
        assert!(!budget.is_left(&key("a/none")), "it is merely missing");
        assert_eq!(take(&mut budget, "a/three", 0, 4), (true, false), "it fits beside the first");
        assert_eq!(take(&mut budget, "a/one", 6, 2), (true, true), "there is room again");
        assert_eq!(take(&mut budget, "a/one", 2, usize::MAX), (false, true), "grown too large");
        assert_eq!(take(&mut budget, "b/one", 10, 10), (true, false));
        assert!(budget.is_over("a"));
    }

    #[test]
    fn a13_what_was_left_out_and_goes_or_shrinks_is_over_no_more() {
        let mut budget = Budget::new(10);
        take(&mut budget, "a/one", 0, 8);
        for name in ["a/two", "a/three"] {
            assert_eq!(take(&mut budget, name, 0, 5), (false, false));
        }
        assert!(budget.ended(&key("a/two")) && !budget.ended(&key("a/two")), "once");
        assert!(!budget.ended(&key("a/one")), "that one was kept");
        assert!(budget.is_over("a"));
        assert_eq!(take(&mut budget, "a/three", 0, 2), (true, false));
        assert!(!budget.is_over("a"));
        assert_eq!(take(&mut budget, "a/three", 2, 0), (true, false), "nothing waits for room");
    }

    #[test]
    fn a13_a_list_is_counted_by_itself() {
        let mut budget = Budget::new(4);
        assert!(!budget.takes(&key("a/large"), 0, 5));
        // One that fails half way counts for nothing.
        for whole in [false, true] {
            budget.list_begins();
            assert!(budget.takes(&key("a/one"), 0, 3) && budget.takes(&key("b/one"), 0, 2));
            assert!(budget.takes(&key("a/two"), 0, 1) && !budget.takes(&key("b/two"), 0, 3));
            assert!(budget.is_over("a") && !budget.is_over("b"), "what was told stands");
            if whole {
                // The store tells what differs.
                assert!(!budget.changed("b", 0, 2));
                assert_eq!(budget.list_ends(), ["a".to_owned(), "b".to_owned()].into());
            }
        }
        assert!(!budget.is_over("a") && budget.is_left(&key("b/two")));
        assert_eq!(budget.list_ends(), BTreeSet::new());
        assert!(budget.takes(&key("b/one"), 2, 4) && !budget.takes(&key("b/three"), 0, 3));
    }

    #[test]
    fn a13_what_grew_before_a_list_counts_as_it_is_now() {
        let mut budget = Budget::new(12);
        for again in [false, true] {
            budget.list_begins();
            let old = if again { 4 } else { 0 };
            assert!(budget.takes(&key("a/1"), old, 4) && budget.takes(&key("a/2"), old, 4));
            let third = if again { 8 } else { 4 };
            assert_eq!(budget.takes(&key("a/3"), old, third), !again, "that would be 16");
            let changes = if again { vec![(4, 0)] } else { vec![(0, 4); 3] };
            for (old, new) in changes {
                assert!(!budget.changed("a", old, new), "the list has seen that");
            }
            budget.list_ends();
        }
        assert!(budget.is_left(&key("a/3")) && budget.takes(&key("a/4"), 0, 4));
    }

    #[test]
    fn a13_a_list_of_one_namespace_takes_in_what_fits_by_now() {
        let mut budget = Budget::new(10);
        take(&mut budget, "a/one", 0, 8);
        take(&mut budget, "a/two", 0, 5);
        take(&mut budget, "a/three", 0, 5);
        take(&mut budget, "b/one", 0, 11);
        assert!(budget.changed("a", 8, 0), "the first one has gone");
        // One that fails changes nothing.
        budget.again_begins("a");
        assert!(!budget.again_ends("a", false));
        assert!(budget.is_left(&key("a/two")) && budget.is_left(&key("a/three")));

        budget.again_begins("a");
        assert!(budget.fills(&key("a/two"), 0, 5));
        budget.changed("a", 0, 5);
        assert!(budget.is_left(&key("a/three")), "until the list has shown it, or not");
        // While the list runs a watch shows another one, and the end of one.
        assert_eq!(take(&mut budget, "a/four", 0, 7), (false, false));
        assert_eq!(take(&mut budget, "a/five", 0, 7), (false, false));
        assert!(budget.ended(&key("a/five")));
        assert!(budget.again_ends("a", true), "the third one was lost");
        let left = |name: &str| budget.is_left(&key(name));
        assert!(left("a/four") && left("b/one"));
        assert!(!left("a/two") && !left("a/three") && !left("a/five"));
    }

    #[test]
    fn a13_names_that_are_left_out_are_bounded_too() {
        let mut budget = Budget::new(0);
        for number in 0..=MOST_NAMES {
            assert!(!budget.takes(&key(&format!("a/{number}")), 0, 1));
        }
        assert_eq!(budget.spaces["a"].left.names.len(), MOST_NAMES);
        assert!(budget.leaves_unknown("a") && budget.is_left(&key("a/who knows")));
        for number in 0..=MOST_NAMES {
            budget.ended(&key(&format!("a/{number}")));
        }
        assert!(budget.is_over("a"), "until a list has shown that nothing is left");
        budget.again_begins("a");
        assert!(budget.again_ends("a", true));
        assert!(budget.spaces.is_empty());
    }
}
