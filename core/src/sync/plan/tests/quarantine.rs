//! Objects of broken files, by their last good definitions.

use super::*;
use crate::sync::commit::desired::LastGood;

/// A world whose commit has errors: it wants a, and b is kept of an earlier one, in a file that is broken.
fn broken(certain: bool) -> World {
    let mut w = world(&["a"], &["a", "b"]);
    w.has_errors = true;
    w.broken.insert(id("b"), "b.yaml".into());
    w.last_paths.insert(id("b"), "b.yaml".into());
    keep(&mut w, "b", want("b").1, certain);
    w
}

fn keep(w: &mut World, name: &str, want: Desired, certain: bool) {
    let kept = Some(Arc::new(LastGood { commit: "good".into(), certain }));
    w.desired.insert(id(name), Desired { kept, ..want });
}

fn edit(w: &mut World, name: &str) {
    w.live.get_mut(&id(name)).expect("live").facts.spec_hash = Some(hash_json(&json!("edited")));
}

/// What is updated, and whether that is drift.
fn updated(plan: &Plan) -> Vec<(&str, bool)> {
    plan.update.iter().map(|update| (update.id.name.as_str(), update.drifted)).collect()
}

#[test]
fn g13_what_is_quarantined_is_counted_as_such_and_brought_back_when_it_was_changed_by_hand() {
    for certain in [true, false] {
        let mut w = broken(certain);
        let plan = w.plan();
        assert!(plan.is_settled() && plan.held.is_none());
        assert_eq!((plan.unchanged, plan.marked, plan.quarantined.len()), (1, 2, 1));
        edit(&mut w, "b");
        let plan = w.plan();
        assert_eq!(updated(&plan), [("b", true)]);
        assert_eq!((plan.unchanged, plan.marked, plan.due), (1, 2, 0));
        assert_eq!(plan.quarantined, [(id("b"), Some("b.yaml".into()))]);

        w.failure_policy = FailurePolicy::Atomic;
        assert_eq!(updated(&w.plan()), [("b", true)]);
        w.drift = DriftPolicy::Report;
        let plan = w.plan();
        assert_eq!((names(&plan.drifted), plan.update.len()), (vec!["b"], 0));
        assert_eq!(plan.quarantined.len(), 1);
        w.drift = DriftPolicy::default();
        annotate(w.live.get_mut(&id("b")).expect("b"), keys::RECONCILE, keys::DISABLED);
        assert!(w.plan().is_settled(), "paused");
    }
}

#[test]
fn g12_what_a_commit_creates_beside_broken_files_does_not_raise_what_it_may_delete() {
    // Its file is broken, so b is kept and not due; it may be due in a moment.
    let mut w = broken(true);
    let plan = w.plan();
    assert!(plan.due == 0 && !plan.proves_its_size(0));
    (w.has_errors, w.broken) = (false, BTreeMap::new());
    w.desired.remove(&id("b"));
    let plan = w.plan();
    assert_eq!((plan.due, plan.quarantined.len()), (1, 0));
    assert!(!plan.proves_its_size(0) && plan.proves_its_size(1));
}

#[test]
fn g13_a_later_definition_that_may_have_been_applied_is_not_taken_back() {
    let mut w = broken(false);
    edit(&mut w, "b");
    annotate(w.live.get_mut(&id("b")).expect("b"), keys::APPLIED, "a later definition");
    assert!(w.plan().is_settled());
    // Where every commit is known there is no later one, and the object is reverted to the last good one.
    let kept = want("b").1;
    keep(&mut w, "b", kept, true);
    assert_eq!(updated(&w.plan()), [("b", false)]);
    w.failure_policy = FailurePolicy::Atomic;
    assert_eq!((names(&w.plan().waiting), w.plan().update.len()), (vec!["b"], 0));
}

#[test]
fn g13_what_is_quarantined_and_was_there_is_made_again() {
    let mut w = broken(true);
    let mut index = w.index();
    w.live.remove(&id("b"));
    assert!(w.plan().is_settled(), "as far as is known, it was never there");
    w.update(&mut index, "b");
    let plan = w.plan_on(&index);
    assert_eq!((names(&plan.create), plan.quarantined.len()), (vec!["b"], 1));
    w.failure_policy = FailurePolicy::Atomic;
    let plan = w.plan_on(&index);
    assert_eq!((names(&plan.create), plan.waiting.len()), (vec!["b"], 0));

    // Another GitSync wants it.
    w.others.wants.insert(id("b"));
    assert!(w.plan_on(&index).is_settled());
    w.others.wants.clear();
    // Its file can be read again, and does not show it.
    w.broken.clear();
    w.paths = BTreeSet::from(["a.yaml".to_owned(), "b.yaml".to_owned()]);
    assert!(w.plan_on(&index).is_settled());
    // It may have been renamed into another one.
    w.paths.remove("b.yaml");
    w.broken_paths.insert("new.yaml".into());
    assert_eq!(names(&w.plan_on(&index).create), ["b"]);

    // What was never applied is no part of a good state where all or nothing is applied.
    keep(&mut w, "b", want("c").1, true);
    w.update(&mut index, "b");
    assert!(w.plan_on(&index).is_settled());
    w.failure_policy = FailurePolicy::default();
    assert_eq!(names(&w.plan_on(&index).create), ["b"]);
    keep(&mut w, "b", want("c").1, false);
    assert!(w.plan_on(&index).is_settled());
}

#[test]
fn g13_what_is_kept_and_not_in_a_broken_file_is_wanted_by_nobody() {
    let mut w = broken(true);
    w.broken.clear();
    edit(&mut w, "b");
    let plan = w.plan();
    assert_eq!(plan.held.expect("held").victims[0].id, id("b"));
    assert!(plan.update.is_empty() && plan.quarantined.is_empty());
    // What somebody else has is no conflict.
    w.live.extend([live("b", None)]);
    let plan = w.plan();
    assert!(plan.is_settled() && plan.conflicts.is_empty() && plan.marked == 1);
}

#[test]
fn g13_while_it_is_not_known_what_was_wanted_before_nothing_is_offered_for_deletion() {
    let mut w = world(&["a"], &["a", "b", "c", "d"]);
    (w.has_errors, w.lost) = (true, true);
    w.live.get_mut(&id("d")).expect("d").facts.deleting = true;
    let all = |plan: &Plan| plan.quarantined.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    let plan = w.plan();
    assert_eq!((all(&plan), plan.held, plan.due), (vec![id("b"), id("c")], None, 0));
    w.paths.extend(["b.yaml".to_owned(), "c.yaml".to_owned()]);
    w.broken_paths.insert("b.yaml".into());
    let plan = w.plan();
    assert_eq!(plan.quarantined, [(id("b"), Some("b.yaml".into())), (id("c"), None)]);
    assert_eq!(plan.held, None);
    w.lost = false;
    assert_eq!(w.plan().held.expect("held").victims[0].id, id("c"));
}
