//! Changes by hand, told from changes in Git.

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
