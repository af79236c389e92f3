use super::*;

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    Key::new(namespace, name)
}

/// A watch shows it: what is taken is told as a change.
fn take(budget: &mut Budget, text: &str, old: usize, new: usize) -> (bool, bool) {
    let takes = budget.admit(&key(text), old, new);
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
    assert!(budget.is_left_out(&key("a/two")), "it is beyond");
    assert!(!budget.is_left_out(&key("a/none")), "it is merely missing");
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
    assert!(budget.deleted(&key("a/two")) && !budget.deleted(&key("a/two")), "once");
    assert!(!budget.deleted(&key("a/one")), "that one was kept");
    assert!(budget.is_over("a"));
    assert_eq!(take(&mut budget, "a/three", 0, 2), (true, false));
    assert!(!budget.is_over("a"));
    assert_eq!(take(&mut budget, "a/three", 2, 0), (true, false), "nothing waits for room");
}

#[test]
fn a13_a_list_is_counted_by_itself() {
    let mut budget = Budget::new(4);
    assert!(!budget.admit(&key("a/large"), 0, 5));
    // One that fails half way counts for nothing.
    for whole in [false, true] {
        budget.list_begins();
        assert!(budget.admit(&key("a/one"), 0, 3) && budget.admit(&key("b/one"), 0, 2));
        assert!(budget.admit(&key("a/two"), 0, 1) && !budget.admit(&key("b/two"), 0, 3));
        assert!(budget.is_over("a") && !budget.is_over("b"), "what was told stands");
        if whole {
            // The store tells what differs.
            assert!(!budget.changed("b", 0, 2));
            assert_eq!(budget.list_ends(), ["a".to_owned(), "b".to_owned()].into());
        }
    }
    assert!(!budget.is_over("a") && budget.is_left_out(&key("b/two")));
    assert_eq!(budget.list_ends(), BTreeSet::new());
    assert!(budget.admit(&key("b/one"), 2, 4) && !budget.admit(&key("b/three"), 0, 3));
}

#[test]
fn a13_what_grew_before_a_list_counts_as_it_is_now() {
    let mut budget = Budget::new(12);
    for again in [false, true] {
        budget.list_begins();
        let old = if again { 4 } else { 0 };
        assert!(budget.admit(&key("a/1"), old, 4) && budget.admit(&key("a/2"), old, 4));
        let third = if again { 8 } else { 4 };
        assert_eq!(budget.admit(&key("a/3"), old, third), !again, "that would be 16");
        let changes = if again { vec![(4, 0)] } else { vec![(0, 4); 3] };
        for (old, new) in changes {
            assert!(!budget.changed("a", old, new), "the list has seen that");
        }
        budget.list_ends();
    }
    assert!(budget.is_left_out(&key("a/3")) && budget.admit(&key("a/4"), 0, 4));
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
    budget.relist_begins("a");
    budget.relist_failed("a");
    assert!(budget.is_left_out(&key("a/two")) && budget.is_left_out(&key("a/three")));

    budget.relist_begins("a");
    assert!(budget.admit_relisted(&key("a/two"), 0, 5));
    budget.changed("a", 0, 5);
    assert!(budget.is_left_out(&key("a/three")), "until the list has shown it, or not");
    // While the list runs a watch shows another one, and the end of one.
    assert_eq!(take(&mut budget, "a/four", 0, 7), (false, false));
    assert_eq!(take(&mut budget, "a/five", 0, 7), (false, false));
    assert!(budget.deleted(&key("a/five")));
    assert!(budget.relist_ends("a"), "the third one was lost");
    let left = |name: &str| budget.is_left_out(&key(name));
    assert!(left("a/four") && left("b/one"));
    assert!(!left("a/two") && !left("a/three") && !left("a/five"));
}

#[test]
fn a13_names_that_are_left_out_are_bounded_too() {
    let mut budget = Budget::new(0);
    for number in 0..=MAX_LEFT_OUT_NAMES {
        assert!(!budget.admit(&key(&format!("a/{number}")), 0, 1));
    }
    assert_eq!(budget.spaces["a"].left_out.names.len(), MAX_LEFT_OUT_NAMES);
    assert!(budget.has_unknown_left_out("a") && budget.is_left_out(&key("a/who knows")));
    for number in 0..=MAX_LEFT_OUT_NAMES {
        budget.deleted(&key(&format!("a/{number}")));
    }
    assert!(budget.is_over("a"), "until a list has shown that nothing is left");
    budget.relist_begins("a");
    assert!(budget.relist_ends("a"));
    assert!(budget.spaces.is_empty());
}
