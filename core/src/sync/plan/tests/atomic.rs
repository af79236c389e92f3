//! All of a commit, or nothing.

use super::*;

#[test]
fn g10_atomic_applies_nothing_of_a_commit_with_an_error_but_undoes_drift() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "x"]);
    w.failure_policy = FailurePolicy::Atomic;
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = Some(hash_json(&json!("edited")));
    annotate(w.live.get_mut(&id("b")).expect("b"), keys::APPLIED, "an older definition");
    let plan = w.plan();
    assert!(plan.waiting.is_empty() && plan.create.len() == 1 && plan.update.len() == 2);
    w.has_errors = true;
    let plan = w.plan();
    assert_eq!(names(&plan.waiting), ["b", "c"]);
    assert!(plan.create.is_empty() && plan.prune.is_empty());
    assert_eq!(plan.update.len(), 1);
    assert_eq!(plan.update[0].id, id("a"));
    // A conflict is as good as an error.
    w.has_errors = false;
    w.live.extend([live("c", None)]);
    assert_eq!(names(&w.plan().waiting), ["b"]);
}

#[test]
fn g10_atomic_applies_nothing_of_a_commit_that_another_sync_contests() {
    let mut w = world(&["a", "b", "c", "d"], &["a", "b", "c"]);
    w.failure_policy = FailurePolicy::Atomic;
    w.live.get_mut(&id("b")).expect("b").facts.spec_hash = Some(hash_json(&json!("edited")));
    annotate(w.live.get_mut(&id("c")).expect("c"), keys::APPLIED, "an older definition");
    // The older one has it: that is a conflict, though the live object is ours.
    w.others.contested.insert(id("a"), true);
    let plan = w.plan();
    assert_eq!((plan.conflicts.len(), plan.given.len()), (1, 1));
    assert_eq!(names(&plan.waiting), ["c", "d"]);
    assert!(plan.create.is_empty(), "{:?}", plan.create);
    assert_eq!(plan.update.iter().map(|update| &update.id).collect::<Vec<_>>(), [&id("b")]);
    // What is given away is not written, and waits for nothing.
    annotate(w.live.get_mut(&id("a")).expect("a"), keys::APPLIED, "an older definition");
    assert_eq!(names(&w.plan().waiting), ["c", "d"]);
    // What the younger one wants as well is no conflict here.
    w.others.contested.insert(id("a"), false);
    assert_eq!((w.plan().waiting.len(), w.plan().create.len()), (0, 1));
}
