//! Approvals that are of other deletes than those that are held.

use super::*;

pub(super) const REST: [&str; 5] = ["a", "b", "c", "d", "e"];

/// One that holds three deletes.
pub(super) fn three() -> Script {
    let mut script = Script::new(&[], &ALL, 2);
    script.asks("one");
    script.finds("one", &REST, &[]);
    script
}

pub(super) fn digest(script: &Script) -> String {
    script.pending().expect("held deletes").digest
}

fn told(script: &Script) -> Vec<&str> {
    let events = script.operator.events.iter().filter(|event| event.reason == "ApprovalOutdated");
    events.map(|event| &*event.note).collect()
}

pub(super) fn held_for(script: &Script) -> String {
    let conditions = script.status("one").conditions;
    conditions.into_iter().find(|c| c.type_ == "PruneHeld").expect("PruneHeld").message
}

#[test]
fn g12_an_approval_of_an_earlier_commit_is_told_once_with_the_digest_that_counts() {
    let mut script = three();
    let old = digest(&script);
    script.asks("one");
    script.finds("one", &REST, &[]);
    let new = digest(&script);
    assert_ne!(old, new, "another commit");
    assert!(told(&script).is_empty());
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &old);
    assert_eq!(script.objects(), ALL);
    assert!(
        matches!(&*told(&script), [one] if one.contains(&old) && one.contains(&format!("{}={new}", keys::APPROVE_PRUNE))),
        "{:?}",
        told(&script)
    );
    let message = held_for(&script);
    let way = format!("--overwrite {}={new}", keys::APPROVE_PRUNE);
    assert!(message.contains(&old) && message.contains(&way), "{message}");

    // Not once more: by another reconcile, for a third digest, by the next operator.
    script.annotate(&Name::Object(id("x")), "odd", "1");
    script.asks("one");
    script.finds("one", &REST, &[]);
    let third = digest(&script);
    assert!(third != new && held_for(&script).contains(&old));
    assert_eq!(told(&script).len(), 1);
    script.operator = Operator::new(&script.server, script.now, 2, 48);
    script.run();
    script.finds_the_same("one");
    assert_eq!((told(&script).len(), digest(&script)), (0, third));
    // Of another one again.
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &new);
    assert!(matches!(&*told(&script), [one] if one.contains(&new)), "{:?}", told(&script));
}

#[test]
fn g12_an_approval_that_a_commit_has_overtaken_is_told() {
    let mut script = three();
    let old = digest(&script);
    script.approve();
    assert!(script.looks("one") && told(&script).is_empty(), "the remote is asked first");
    script.finds("one", &REST, &[]);
    assert_eq!(script.objects(), ALL);
    assert!(matches!(&*told(&script), [one] if one.contains(&old)), "{:?}", told(&script));
    assert!(held_for(&script).contains(&old));
}

#[test]
fn g12_an_approval_that_was_carried_out_may_stay_without_a_word() {
    for restarts in [false, true] {
        let mut script = three();
        script.approve();
        script.finds_the_same("one");
        assert_eq!(script.objects(), REST);
        if restarts {
            script.operator = Operator::new(&script.server, script.now, 2, 48);
            script.run();
            script.finds_the_same("one");
        }
        script.asks("one");
        script.finds("one", &["a"], &[]);
        assert_eq!(script.ready("one"), "False: PruneHeld");
        assert!(told(&script).is_empty(), "{:?}", told(&script));
    }
}

#[test]
fn g12_an_approval_of_nothing_is_told_once() {
    let mut script = Script::new(&[], &ALL, 2);
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, "0123456789abcdef");
    assert!(
        matches!(&*told(&script), [one] if one.contains("0123456789abcdef") && one.contains("status.pendingPrune")),
        "{:?}",
        told(&script)
    );
    script.asks("one");
    script.finds("one", &REST, &[]);
    assert!(held_for(&script).contains("0123456789abcdef"), "it is named beside what is held");
    assert_eq!(told(&script).len(), 1);
    // What is no digest at all, and longer than what is remembered of it.
    let long = "yes, delete all of it ".repeat(10);
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &long);
    script.asks("one");
    script.finds("one", &REST, &[]);
    assert_eq!(told(&script).len(), 2);
    assert_eq!(script.objects(), ALL);
}

#[test]
fn g12_approved_deletes_are_told_beside_others_that_are_held() {
    let mut script = three();
    let first = digest(&script);
    script.approve();
    script.fails("one");
    assert!(held_for(&script).contains(&first));
    // Somebody copies objects, with what says whose they are.
    let x = script.server.get(&Name::Object(id("x"))).expect("x").clone();
    for name in ["k", "l", "m"] {
        let mut copy = Value::clone(&x);
        let mark = x["metadata"]["annotations"][keys::OWNER].as_str().expect("a mark");
        let mark = mark.replace("team/x", &format!("team/{name}"));
        copy["metadata"] = json!({"name": name, "annotations": {keys::OWNER: mark}});
        script.server.make(&Name::Object(id(name)), copy);
    }
    script.run();
    let told = held_for(&script);
    assert!(told.contains(&first) && told.contains(&digest(&script)), "{told}");
}
