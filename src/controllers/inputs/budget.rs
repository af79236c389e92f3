//! (pure) How much of what is labelled is followed in each namespace: what one holds costs the others nothing.
//!
//! Each object counts one, and each of its keys: that is what is kept. What does not fit is left out, and nothing is
//! known of it but that its namespace holds too much.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeSet, HashMap};

/// What is kept, by namespace.
type Kept = HashMap<String, usize>;
/// Namespaces of which something was left out.
type Over = BTreeSet<String>;

/// See the module.
#[derive(Debug)]
pub struct Budget {
    most: usize,
    kept: Kept,
    over: Over,
    /// The same of the list that is being read.
    listing: Option<(Kept, Over)>,
}

impl Budget {
    /// So much is kept of each namespace.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, kept: Kept::new(), over: Over::new(), listing: None }
    }

    /// A list begins: it is counted by itself.
    pub fn list_begins(&mut self) {
        self.listing = Some(<(Kept, Over)>::default());
    }

    /// The list is complete. Gives the namespaces of which something is left out now or was before, but not both.
    pub fn list_ends(&mut self) -> Over {
        let Some((_, over)) = self.listing.take() else { return Over::new() };
        let turned = self.over.symmetric_difference(&over).cloned().collect();
        self.over = over;
        turned
    }

    /// Whether an object that counts so much is kept, in place of one that counts `old`.
    pub fn takes(&mut self, namespace: &str, old: usize, new: usize) -> bool {
        let (kept, over) = match &mut self.listing {
            Some((kept, over)) => (kept, over),
            None => (&mut self.kept, &mut self.over),
        };
        let others = kept.get(namespace).copied().unwrap_or(0).saturating_sub(old);
        if others.saturating_add(new) > self.most {
            over.insert(namespace.to_owned());
            return false;
        }
        // What a watch shows is counted when it is kept.
        if let Some((kept, _)) = &mut self.listing {
            *kept.entry(namespace.to_owned()).or_default() += new;
        }
        true
    }

    /// What is kept has changed. Says whether something that was left out may fit now.
    pub fn changed(&mut self, namespace: &str, old: usize, new: usize) -> bool {
        let kept = self.kept.entry(namespace.to_owned()).or_default();
        *kept = (*kept + new).saturating_sub(old);
        if *kept == 0 {
            self.kept.remove(namespace);
        }
        new < old && self.over.contains(namespace)
    }

    /// Whether something of a namespace is left out.
    #[must_use]
    pub fn is_over(&self, namespace: &str) -> bool {
        self.over.contains(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a13_what_does_not_fit_is_left_out_of_its_namespace_and_of_no_other() {
        let mut budget = Budget::new(10);
        // A watch: what is taken is told as a change.
        let take = |budget: &mut Budget, namespace: &str, old: usize, new: usize| {
            let takes = budget.takes(namespace, old, new);
            (takes, budget.changed(namespace, old, if takes { new } else { 0 }))
        };
        assert_eq!(take(&mut budget, "a", 0, 6), (true, false));
        assert_eq!(take(&mut budget, "b", 0, 10), (true, false));
        assert_eq!(take(&mut budget, "a", 0, 5), (false, false));
        assert!(budget.is_over("a") && !budget.is_over("b"));
        assert_eq!(take(&mut budget, "a", 0, 4), (true, false), "it fits beside the first");
        assert_eq!(take(&mut budget, "a", 6, 2), (true, true), "there is room again");
        assert_eq!(take(&mut budget, "a", 2, usize::MAX), (false, true), "grown too large");
        assert_eq!(take(&mut budget, "b", 10, 10), (true, false));
        assert!(budget.is_over("a"), "until a list has shown everything");
    }

    #[test]
    fn a13_a_list_is_counted_by_itself() {
        let mut budget = Budget::new(4);
        assert!(!budget.takes("a", 0, 5));
        // One that fails half way counts for nothing.
        for whole in [false, true] {
            budget.list_begins();
            assert!(budget.takes("a", 0, 3) && budget.takes("b", 0, 2));
            assert!(budget.takes("a", 0, 1) && !budget.takes("b", 0, 3));
            assert!(budget.is_over("a") && !budget.is_over("b"), "what was told stands");
            if whole {
                // The store tells what differs.
                assert!(!budget.changed("b", 0, 2));
                assert_eq!(budget.list_ends(), ["a".to_owned(), "b".to_owned()].into());
            }
        }
        assert!(!budget.is_over("a") && budget.is_over("b"));
        assert_eq!(budget.list_ends(), Over::new());
        assert!(budget.takes("b", 2, 4) && !budget.takes("b", 0, 3));
    }
}
