//! Manual changes, distinguished from changes in Git.

use super::*;

#[test]
fn g14_drift_is_told_from_a_change_in_git() {
    let mut w = world(&["a", "b"], &["a", "b"]);
    let edited = Some(hash_json(&json!("edited")));
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = edited;
    annotate(w.live.get_mut(&id("b")).expect("b"), keys::APPLIED, "an older definition");
    let drifted: Vec<_> = w.plan().update.iter().map(|update| update.drifted).collect();
    assert_eq!(drifted, [true, false]);
    w.drift = DriftPolicy::Report;
    let plan = w.plan();
    assert_eq!((names(&plan.drifted), plan.update.len()), (vec!["a"], 1));
    assert_eq!(plan.update[0].id, id("b"));
}

/// Somebody edits a live object, and what it says of the definition that was applied.
fn edit(w: &mut World, name: &str, applied: Option<&str>) {
    let object = w.live.get_mut(&id(name)).expect("live");
    object.facts.spec_hash = Some(hash_json(&json!("edited")));
    if let Some(applied) = applied {
        annotate(object, keys::APPLIED, applied);
    }
}

#[test]
fn g14_what_is_drift_follows_from_what_was_applied_and_not_from_what_the_object_says() {
    let mut w = world(&["a", "b"], &["a", "b"]);
    let mut index = w.index();
    edit(&mut w, "a", Some("an older definition"));
    w.update(&mut index, "a");
    let plan = w.plan_on(&index);
    assert_eq!((plan.update.len(), plan.update[0].drifted), (1, true));
    w.drift = DriftPolicy::Report;
    let plan = w.plan_on(&index);
    assert_eq!((names(&plan.drifted), plan.update.len()), (vec!["a"], 0));
    // However often.
    edit(&mut w, "a", Some("another one"));
    w.update(&mut index, "a");
    assert_eq!(names(&w.plan_on(&index).drifted), ["a"]);

    // Git changes it: that is no drift, even if somebody has said so before.
    let (_, other) = want("c");
    edit(&mut w, "a", Some(&other.applied.clone()));
    w.desired.insert(id("a"), other.clone());
    w.update(&mut index, "a");
    let plan = w.plan_on(&index);
    assert_eq!((plan.drifted.len(), plan.update.len()), (0, 1));
    assert!(!plan.update[0].drifted);
    // Once it is applied, it is what counts.
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = Some(other.spec_hash);
    w.update(&mut index, "a");
    assert!(w.plan_on(&index).is_settled());
    edit(&mut w, "a", None);
    w.update(&mut index, "a");
    assert_eq!(names(&w.plan_on(&index).drifted), ["a"]);

    // A write counts, though the object was changed again before the next plan.
    let (_, third) = want("d");
    w.desired.insert(id("a"), third.clone());
    w.update(&mut index, "a");
    assert!(!w.plan_on(&index).update[0].drifted);
    index.wrote(&id("a"), &third);
    w.update(&mut index, "a");
    assert_eq!(names(&w.plan_on(&index).drifted), ["a"]);
}

#[test]
fn g14_after_a_start_a_commit_that_was_applied_whole_is_what_counts() {
    let mut w = world(&["a", "b", "c"], &["a", "b"]);
    let before = w.desired.clone();
    edit(&mut w, "a", Some("an older definition"));
    assert!(!w.plan().update[0].drifted, "nothing else is known");
    let mut index = w.index();
    index.trust(&before);
    let plan = w.plan_on(&index);
    assert_eq!((plan.update.len(), plan.update[0].drifted), (1, true));
    // Another commit comes that says the same of it, and something else of b.
    w.desired.insert(id("b"), want("d").1);
    w.update(&mut index, "b");
    let drifted: Vec<_> = w.plan_on(&index).update.iter().map(|update| update.drifted).collect();
    assert_eq!(drifted, [true, false]);
    // Of what is somebody else's nothing is known.
    annotate(w.live.get_mut(&id("a")).expect("a"), keys::OWNER, "nobody's");
    w.update(&mut index, "a");
    annotate(w.live.get_mut(&id("a")).expect("a"), keys::OWNER, &sync().mark(&id("a")).to_string());
    w.update(&mut index, "a");
    assert!(!w.plan_on(&index).update[0].drifted);
}
