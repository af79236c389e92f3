//! Approvals that are withdrawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::approvals::{REST, digest, held_for, three};
use super::*;
use crate::api::ObjectId;
use crate::api::git_sync::ApprovedPrune;
use crate::sync::commit::loaded::Loaded;
use crate::sync::plan::Others;
use crate::sync::preview::{LiveManifest, Preview};

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
fn g12_what_was_seen_to_be_taken_back_stays_so_when_that_cannot_be_written() {
    for again in ["x", "the same"] {
        let mut script = three();
        let old = digest(&script);
        script.approve();
        script.fails("one");
        script.loses = Some(|call| matches!(call, Call::Status { .. }));
        take_back(&mut script);
        assert!(script.status("one").approved_prune.is_some(), "nobody could be told");
        script.loses = None;
        let said = if again == "x" { again } else { &old };
        script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, said);
        script.pass(Duration::from_secs(60));
        assert_eq!(script.status("one").approved_prune, None, "{again}");
        script.asks("one");
        script.finds_the_same("one");
        assert_eq!(script.objects(), ALL, "{again}");
        script.approve();
        script.finds_the_same("one");
        assert_eq!(script.objects(), REST, "{again}");
    }
}

#[test]
fn g12_what_a_killed_operator_says_late_of_an_approval_counts_for_nothing() {
    let mut script = three();
    script.approve();
    script.fails("one");
    let late = script.status("one");
    assert!(late.approved_prune.is_some());
    take_back(&mut script);
    let late = serde_json::to_value(late).expect("JSON");
    // The second one is not answered at once.
    for _ in 0..3 {
        script.edit(&of_sync("one"), |sync| sync["status"] = late.clone());
    }
    assert!(script.status("one").approved_prune.is_some());
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, "x");
    script.asks("one");
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
    script.pass(Duration::from_secs(60));
    assert_eq!(script.objects(), ALL);
    assert_eq!(script.status("one").approved_prune, None);
}

#[test]
fn g12_an_approval_for_another_spec_leaves_nothing_to_approve_when_it_is_taken_back() {
    for readable in [true, false] {
        let mut script = three();
        script.approve();
        script.fails("one");
        if readable {
            script.server.edit(&of_sync("one"), |sync| {
                sync["spec"]["path"] = json!("elsewhere");
                let annotations = sync["metadata"]["annotations"].as_object_mut();
                annotations.expect("annotations").remove(keys::APPROVE_PRUNE);
            });
            script.run();
        } else {
            script.edit_spec("one", "path", json!("elsewhere"));
            script.fails("one");
            assert_eq!(script.status("one").approved_prune, None, "it is of another spec");
            take_back(&mut script);
        }
        let status = script.status("one");
        assert_eq!((status.approved_prune, status.pending_prune), (None, None));
        assert!(
            status.conditions.iter().all(|c| c.type_ != "PruneHeld"),
            "{:?}",
            status.conditions
        );
        assert_eq!(script.objects(), ALL);
    }
}

#[test]
fn g12_a_take_back_that_cannot_be_written_does_not_keep_it_from_looking() {
    let mut script = three();
    script.approve();
    script.fails("one");
    script.loses = Some(|call| matches!(call, Call::Status { .. }));
    take_back(&mut script);
    script.asks("one");
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
}

#[test]
fn g12_what_a_killed_operator_says_late_counts_for_nothing_when_it_cannot_be_answered_at_once() {
    let mut script = three();
    let pending = script.pending().expect("held");
    // It was killed just when it wanted to say what is approved, and this arrives when the next one has acted on that.
    let mut late = script.status("one");
    late.last_handled_approval = Some(pending.digest.clone());
    late.pending_prune = None;
    late.approved_prune = Some(ApprovedPrune {
        digest: pending.digest.clone(),
        input_key: pending.input_key,
        uids: pending.uids,
        unread: Vec::new(),
    });
    let late = serde_json::to_value(late).expect("JSON");
    protect(&mut script, "z", keys::DISABLED);
    script.approve();
    script.finds_the_same("one");
    let all = ["a", "b", "c", "d", "e", "z"];
    assert_eq!(script.objects(), all);
    script.loses = Some(|call| matches!(call, Call::Status { .. }));
    script.edit(&of_sync("one"), |sync| sync["status"] = late);
    assert!(script.status("one").approved_prune.is_some(), "it could not be written over");
    script.loses = None;
    protect(&mut script, "z", "no");
    script.pass(Duration::from_secs(60));
    assert_eq!(script.objects(), all, "nobody has approved z");
    assert_eq!(script.status("one").approved_prune, None);
}

#[test]
fn g12_an_approval_that_is_replaced_at_once_was_taken_back() {
    let mut script = three();
    script.approve();
    script.fails("one");
    // Both changes are shown before it plans again.
    script.server.edit(&of_sync("one"), |sync| {
        let annotations = sync["metadata"]["annotations"].as_object_mut();
        annotations.expect("annotations").remove(keys::APPROVE_PRUNE);
    });
    while script.operator.show(&script.server, 0) {}
    script.server.edit(&of_sync("one"), |sync| {
        sync["metadata"]["annotations"][keys::APPROVE_PRUNE] = json!("x");
    });
    while script.operator.show(&script.server, 0) {}
    script.run();
    script.asks("one");
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
    // One that counted for nothing is removed: that takes nothing back.
    take_back(&mut script);
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), REST);
}

#[test]
fn g18_what_is_approved_and_protected_is_not_called_still_to_be_made() {
    let mut script = three();
    script.approve();
    for name in ["x", "y"] {
        protect(&mut script, name, keys::DISABLED);
    }
    script.annotate(&Name::Object(id("z")), keys::RECONCILE, keys::DISABLED);
    script.finds_the_same("one");
    assert_eq!((script.objects(), script.ready("one")), (ALL.to_vec(), "True: Succeeded".into()));
    let status = script.status("one");
    assert!(status.conditions.iter().all(|c| c.type_ != "PruneHeld"), "{:?}", status.conditions);
    assert!(status.approved_prune.is_some(), "they were approved, and may be let go of again");
    protect(&mut script, "x", "no");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"]);
}

/// There is no other GitSync.
struct Nobody;

impl Others for Nobody {
    fn exists(&self, _: &str, _: &str, _: &str) -> bool {
        false
    }

    fn wanted_by(&self, _: &ObjectId) -> Option<String> {
        None
    }

    fn gives(&self, _: &str, _: &ObjectId) -> bool {
        false
    }
}

#[test]
fn d2_a_plan_shows_what_was_taken_back_as_held() {
    let mut script = three();
    script.approve();
    script.fails("one");
    let plan = |script: &Script| {
        let sync = script.server.get(&of_sync("one")).expect("a GitSync");
        let sync = serde_json::from_value(Value::clone(sync)).expect("a GitSync");
        let loaded = &script.read["one"];
        let live: BTreeMap<_, _> = script
            .server
            .objects()
            .map(|(id, object)| (id.clone(), LiveManifest::new(id.kind, Value::clone(object))))
            .collect();
        let plan = Preview {
            sync: &sync,
            commit: Some(&loaded.revision.commit),
            catalog: &loaded.catalog,
            desired: &loaded.measure,
            last_paths: &loaded.last_paths,
            live: &live,
            others: &Nobody,
        }
        .plan();
        (plan.prune.len(), plan.held.map_or(0, |held| held.victims.len()))
    };
    assert_eq!(plan(&script), (3, 0), "approved");
    protect(&mut script, "x", keys::DISABLED);
    assert_eq!(plan(&script), (2, 0));
    // No operator runs.
    script.server.edit(&of_sync("one"), |sync| {
        let annotations = sync["metadata"]["annotations"].as_object_mut();
        annotations.expect("annotations").remove(keys::APPROVE_PRUNE);
    });
    assert_eq!(plan(&script), (0, 2), "few enough to go, and held before");
}
