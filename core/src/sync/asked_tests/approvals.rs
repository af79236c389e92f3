//! Approvals that are of other deletes than those that are held.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::sync::loaded::Loaded;

const REST: [&str; 5] = ["a", "b", "c", "d", "e"];

/// One that holds three deletes.
fn three() -> Script {
    let mut script = Script::new(&[], &ALL, 2);
    script.asks("one");
    script.finds("one", &REST, &[]);
    script
}

fn digest(script: &Script) -> String {
    script.pending().expect("held deletes").digest
}

fn told(script: &Script) -> Vec<&str> {
    let events = script.operator.events.iter().filter(|(reason, _)| reason == "ApprovalOutdated");
    events.map(|(_, note)| &**note).collect()
}

fn held_for(script: &Script) -> String {
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

    // Not once more: by another pass, for a third digest, by the next operator.
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
fn g12_an_approval_is_taken_back_with_its_annotation_while_the_remote_is_waited_for() {
    for (removed, protected) in [(true, false), (false, false), (true, true)] {
        let mut script = three();
        let old = digest(&script);
        if protected {
            // What is left would be few enough to go without an approval.
            script.annotate(&Name::Object(id("x")), keys::PRUNE, keys::DISABLED);
            assert_eq!(digest(&script), old);
        }
        script.approve();
        script.fails("one");
        assert_eq!(script.objects(), ALL);
        let (waits, pending) = (held_for(&script), script.pending());
        assert!(
            waits.contains(&old) && pending.is_none_or(|pending| pending.count == 0),
            "{waits}"
        );

        script.edit(&of_sync("one"), |sync| {
            let annotations = sync["metadata"]["annotations"].as_object_mut().expect("annotations");
            if removed {
                annotations.remove(keys::APPROVE_PRUNE);
            } else {
                annotations[keys::APPROVE_PRUNE] = json!("");
            }
        });
        script.asks("one");
        script.finds_the_same("one");
        assert_eq!(script.objects(), ALL, "taken back");
        assert_eq!(script.ready("one"), "False: PruneHeld");
        let new = digest(&script);
        assert_ne!(old, new);
        // The old one was acted on.
        script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &old);
        assert!(!script.looks("one"));
        assert_eq!(script.objects(), ALL);
        script.approve();
        script.finds_the_same("one");
        let rest = if protected { &["a", "b", "c", "d", "e", "x"][..] } else { &REST };
        assert_eq!(script.objects(), rest);
    }
}

fn take_back(script: &mut Script) {
    script.edit(&of_sync("one"), |sync| {
        let annotations = sync["metadata"]["annotations"].as_object_mut().expect("annotations");
        annotations.remove(keys::APPROVE_PRUNE);
    });
}

/// Another operator begins, and has read nothing. Gives what the one before had read.
fn restart(script: &mut Script) -> BTreeMap<String, Arc<Loaded>> {
    let read = script.read.clone();
    script.restart();
    read
}

fn protect(script: &mut Script, name: &str, said: &str) {
    script.annotate(&Name::Object(id(name)), keys::PRUNE, said);
}

#[test]
fn g12_what_is_protected_when_its_approval_is_taken_back_stays_held() {
    for restarted in [false, true] {
        let mut script = three();
        script.approve();
        script.fails("one");
        for name in ["x", "y", "z"] {
            protect(&mut script, name, keys::DISABLED);
        }
        take_back(&mut script);
        if restarted {
            script.read = restart(&mut script);
        } else {
            script.asks("one");
        }
        script.finds_the_same("one");
        // Each alone would be few enough to go.
        for name in ["x", "y"] {
            protect(&mut script, name, "");
            script.run();
            assert_eq!(script.objects(), ALL, "nobody has approved {name}");
        }
        let pending = script.pending().expect("held");
        assert_eq!((pending.count, pending.requires_approval), (2, true));
        script.approve();
        script.finds_the_same("one");
        assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "z"]);
        protect(&mut script, "z", "");
        script.run();
        assert_eq!(script.pending().expect("held").count, 1);
        assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "z"]);
    }
}

#[test]
fn g12_an_approval_is_taken_back_also_while_no_commit_can_be_read() {
    let mut script = three();
    let old = digest(&script);
    script.approve();
    script.fails("one");
    let read = restart(&mut script);
    script.fails("one");
    assert!(script.status("one").approved_prune.is_some());
    take_back(&mut script);
    assert_eq!(script.status("one").approved_prune, None);
    assert!(held_for(&script).contains("taken back"), "{}", held_for(&script));
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &old);
    script.asks("one");
    script.read = read;
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL, "taken back once is taken back");
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), REST);
}

#[test]
fn g12_what_is_taken_back_after_a_crash_can_be_approved_again() {
    let mut script = three();
    let old = digest(&script);
    script.loses = Some(|call| matches!(call, Call::Delete { .. }));
    script.drops = Some(|status| {
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        status.approved_prune.is_some() && ready.is_some_and(|ready| ready.reason != "PruneHeld")
    });
    script.approve();
    script.finds_the_same("one");
    assert!(script.drops.is_none(), "it was killed before it could say what it had done");
    script.loses = None;
    // Until then, too, the status says what may go.
    assert!(held_for(&script).contains("approved"), "{}", held_for(&script));
    assert!(script.pending().is_none_or(|pending| pending.count == 0));
    assert_eq!(script.objects(), ALL);
    take_back(&mut script);
    script.read = restart(&mut script);
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
    assert_ne!(digest(&script), old, "that one was acted on");
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), REST);
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
