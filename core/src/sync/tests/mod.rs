//! Who waits for whom among the GitSyncs of a namespace.

mod approvals;
mod dependencies;
mod events;
pub(in crate::sync) mod script;
mod shared_refs;
mod signatures;
mod terminating;
mod webhooks;
mod withdrawals;

use std::collections::BTreeSet;
use std::time::Duration;

use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use crate::api::keys;
use crate::cluster::live::Managed;
use crate::cluster::store::Key;
use crate::cluster::view;
use crate::definition::Catalog;
use crate::sync::io::effect::Call;
use crate::sync::plan::Settling;
use crate::sync::properties::repository::wrong;
use crate::sync::simulation::NAMESPACE;
use crate::sync::simulation::operator::Operator;
use crate::sync::simulation::server::Name;
use crate::sync::tests::script::{Script, git_sync, id, of_sync};

const ALL: [&str; 8] = ["a", "b", "c", "d", "e", "x", "y", "z"];

/// One that has found a commit without the last objects, and asks the other one whether it wants them.
fn asking(less: &[&str], others: &[&str], most: usize) -> Script {
    let mut script = Script::new(others, &ALL, most);
    script.asks("one");
    let rest: Vec<_> = ALL.into_iter().filter(|name| !less.contains(name)).collect();
    script.finds("one", &rest, &[]);
    assert!(others.iter().all(|other| script.looks(other)));
    assert_eq!(script.ready("one"), "Unknown: Progressing");
    script
}

#[test]
fn g12_what_is_too_much_stays_held_while_another_sync_is_still_asked() {
    let mut script = asking(&["x", "y", "z"], &["two"], 2);
    script.annotate(&Name::Object(id("x")), keys::PRUNE, keys::DISABLED);
    script.finds_the_same("two");
    assert_eq!(script.objects(), ALL, "two may go without an approval, and three were held");
    let pending = script.pending().expect("held");
    assert_eq!(
        (pending.objects, pending.requires_approval),
        (vec![id("z").to_string(), id("y").to_string()], true)
    );
    script.approve();
    assert_eq!(script.objects(), ALL, "the other one is asked once more");
    script.finds_the_same("two");
    assert_eq!(script.objects(), ALL, "and it looks itself");
    script.finds_the_same("one");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "x"]);
    // Nobody has said yes to x, which is let go of again.
    assert_eq!(script.pending().map(|pending| pending.count), Some(0));
    script.annotate(&Name::Object(id("x")), keys::PRUNE, "no");
    assert_eq!(script.pending().expect("held").objects, [id("x").to_string()]);
}

#[test]
fn g12_what_another_sync_turns_out_to_want_is_not_held_any_more() {
    let mut script = asking(&["x", "y", "z"], &["two"], 2);
    script.finds("two", &["x", "y", "z"], &[]);
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
    for name in ["one", "two"] {
        assert_eq!(script.ready(name), "True: Succeeded");
    }
    assert_eq!(script.pending(), None);
}

#[test]
fn g18_a_status_says_how_long_planning_took() {
    let mut script = Script::new(&[], &ALL, 2);
    script.operator.computing = Duration::from_millis(40);
    script.asks("one");
    script.finds("one", &["a", "b", "c", "d", "e", "x", "y"], &[]);
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "x", "y"]);
    let stages = script.status("one").stages.expect("stages");
    assert_eq!((stages.fetch_ms, stages.plan_ms), (7, 40));
}

#[test]
fn g22_what_was_found_just_before_it_was_suspended_counts_when_it_goes_on() {
    let mut script = Script::new(&[], &ALL, 2);
    script.asks("one");
    script.server.edit(&of_sync("one"), |sync| sync["spec"]["suspend"] = json!(true));
    while script.operator.show(&script.server, 0) {}
    script.finds("one", &["a", "b", "c", "d", "e", "y", "z"], &[]);
    assert_eq!(script.objects(), ALL, "it is suspended");
    script.delete(&Name::Object(id("x")));
    script.edit_spec("one", "suspend", json!(false));
    assert!(script.looks("one"), "it looks again");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"], "nobody wants x any more");
}

#[test]
fn g22_whoever_waits_for_a_look_sees_that_there_will_be_none() {
    // Suspended: nobody knows what it wants.
    let mut script = asking(&["x"], &["two"], 2);
    script.edit(&of_sync("two"), |sync| sync["spec"]["suspend"] = json!(true));
    assert_eq!(script.ready("one"), "False: PruneWaiting");
    assert_eq!(script.pending().expect("held").unread, ["GitSync two"]);

    // Being deleted: it wants nothing any more.
    let mut script = asking(&["x"], &["two"], 2);
    script.edit(&of_sync("two"), |sync| {
        sync["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    script.server.delete(&of_sync("two"));
    script.run();
    assert_eq!(script.ready("one"), "True: Succeeded");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"]);

    // Of a spec that this version cannot read.
    let mut script = asking(&["x"], &["two"], 2);
    let mut sync = Value::clone(script.server.get(&of_sync("two")).expect("two"));
    sync["spec"]["prune"]["maxDeletions"] = json!(3_000_000_000_u64);
    sync["metadata"]["generation"] = json!(2);
    sync["metadata"]["resourceVersion"] = json!("1000000");
    let guard = serde_json::from_value::<DeserializeGuard<_>>(sync).expect("an object");
    let (key, entry) = view::entry::<Managed<_>>(guard);
    script.operator.stores.git_syncs.applied(key, entry);
    script.run();
    assert_eq!(script.ready("one"), "False: PruneWaiting");
    assert_eq!(script.pending().expect("held").unread, ["GitSync two"]);
}

#[test]
fn g22_a_sync_whose_look_never_ends_cannot_be_read_after_a_minute() {
    let mut script = asking(&["x"], &["two"], 2);
    script.pass(Duration::from_secs(50));
    assert_eq!(script.ready("one"), "Unknown: Progressing");
    script.pass(Duration::from_secs(15));
    assert_eq!(script.ready("one"), "False: PruneWaiting");
    let pending = script.pending().expect("held");
    assert_eq!(pending.unread, ["GitSync two"]);
    assert!(pending.reason.contains("GitSync two"), "{}", pending.reason);
    assert_eq!(script.objects(), ALL);
    // It may be held up for ever: somebody says so.
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"]);
    assert_eq!((script.ready("one"), script.pending()), ("True: Succeeded".to_owned(), None));

    // Or it answers after all.
    let mut script = asking(&["x"], &["two"], 2);
    script.pass(Duration::from_secs(65));
    assert_eq!(script.ready("one"), "False: PruneWaiting");
    script.finds("two", &["x"], &[]);
    script.finds_the_same("one");
    assert_eq!(
        (script.ready("one"), script.objects()),
        ("True: Succeeded".to_owned(), ALL.to_vec())
    );
}

#[test]
fn g12_an_approval_outlives_a_failed_look_of_another_sync() {
    let mut script = asking(&["x", "y", "z"], &["three", "two"], 0);
    script.finds_the_same("two");
    script.finds_the_same("three");
    assert_eq!(script.ready("one"), "False: PruneHeld");
    script.approve();
    script.finds_the_same("one");
    script.finds_the_same("two");
    // One of them is gone already.
    script.server.delete(&Name::Object(id("y")));
    script.run();
    script.fails("three");
    assert_eq!(script.ready("one"), "False: PruneHeld");
    let all = ["a", "b", "c", "d", "e", "x", "z"];
    assert_eq!(script.objects(), all, "nobody said yes in spite of three");
    script.asks("three");
    script.finds_the_same("three");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e"], "somebody has approved these");
    assert_eq!(script.status("one").approved_prune, None);
}

#[test]
fn g22_who_gives_something_away_sees_that_nobody_wants_it_any_more() {
    let mut script = asking(&["x"], &["two"], 2);
    // It has to hear the other one again before it takes it.
    script.finds("two", &["x"], &[]);
    assert_eq!(script.ready("one"), "False: HandingOver");
    script.asks("two");
    script.finds("two", &[], &[]);
    assert_eq!(script.ready("one"), "True: Succeeded");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"]);
}

#[test]
fn g22_held_deletes_name_another_sync_and_its_broken_files() {
    let mut script = asking(&["x"], &["two"], 2);
    script.finds("two", &[], &["two/q.yaml", "two/p.yaml"]);
    let pending = script.pending().expect("held");
    assert_eq!(pending.unread, ["GitSync two: two/p.yaml", "GitSync two: two/q.yaml"]);
    // Another file of it breaks between the poll and the yes.
    script.asks("two");
    script.finds("two", &[], &["two/q.yaml", "two/r.yaml"]);
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &pending.digest);
    for name in ["one", "two"] {
        if script.looks(name) {
            script.finds_the_same(name);
        }
    }
    assert_eq!(script.objects(), ALL);
    assert_ne!(script.pending().expect("held").digest, pending.digest);
    script.approve();
    for name in ["one", "two"] {
        if script.looks(name) {
            script.finds_the_same(name);
        }
    }
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"]);
}

#[test]
fn g22_an_approval_deletes_nothing_that_the_last_good_commit_of_another_sync_wanted() {
    let mut younger = git_sync("two", 2);
    younger["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    let mut script = Script::start(vec![("one", git_sync("one", 2)), ("two", younger)]);
    script.run();
    script.finds("one", &ALL, &[]);
    script.finds("two", &[], &[]);
    // Both want x, and the older one has it.
    script.asks("two");
    script.finds("two", &["x"], &[]);
    if script.looks("one") {
        script.finds_the_same("one");
    }
    assert_eq!(script.ready("two"), "False: ProblemsFound");
    // The older one gives up x and y, and the other one breaks the file that x is in.
    script.asks("one");
    script.finds("one", &["a", "b", "c", "d", "e", "z"], &[]);
    let mut broken = Catalog::default();
    broken.broken_paths.insert("f.yaml".into());
    broken.problems.push(wrong());
    script.finds_catalog("two", broken);
    assert_eq!(script.ready("one"), "False: PruneWaiting");
    let pending = script.pending().expect("held");
    let expected = (vec![id("y").to_string()], vec!["GitSync two: f.yaml".to_owned()]);
    assert_eq!((pending.objects, pending.unread), expected, "x may still be wanted there");
    script.approve();
    for name in ["one", "two"] {
        if script.looks(name) {
            script.finds_the_same(name);
        }
    }
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "x", "z"]);
}

/// One that holds x, y and z, and nothing beside it.
fn holding() -> Script {
    let mut script = Script::new(&[], &ALL, 2);
    script.asks("one");
    script.finds("one", &ALL[..5], &[]);
    assert_eq!(script.ready("one"), "False: PruneHeld");
    script
}

#[test]
fn g12_what_the_newest_commit_wants_again_outlives_an_approval() {
    let mut script = holding();
    script.approve();
    assert_eq!(script.objects(), ALL, "somebody may have taken it back in Git");
    script.finds("one", &ALL, &[]);
    assert_eq!(script.objects(), ALL);
    assert_eq!((script.ready("one"), script.pending()), ("True: Succeeded".to_owned(), None));
    assert_eq!(script.status("one").approved_prune, None);
}

#[test]
fn g12_an_approval_waits_for_a_look_that_began_after_it_and_for_no_other() {
    let mut script = holding();
    script.asks("one");
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL, "that look began before the approval");
    let before = script.said("one");
    script.fails("one");
    assert_eq!((script.objects(), script.looks("one")), (ALL.to_vec(), false));
    assert_eq!(script.ready("one"), "False: ConnectionFailed");
    assert_eq!(script.said("one") - before, 1, "why it waits");
    script.pass(Duration::from_secs(3600));
    assert_eq!((script.objects(), script.looks("one")), (ALL.to_vec(), false));
    while !script.looks("one") {
        script.pass(Duration::from_secs(600));
    }
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL[..5], "somebody has approved these");
    assert_eq!(script.ready("one"), "True: Succeeded");
    script.pass(Duration::from_secs(8 * 3600));
    assert!(!script.looks("one"), "there is nothing to look for before the interval");
}

#[test]
fn g12_an_approval_costs_one_look_and_one_of_nothing_costs_none() {
    let mut script = holding();
    let before = script.said("one");
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL[..5]);
    assert!(!script.looks("one"));
    assert_eq!(script.said("one") - before, 3, "the annotation, the approval, what came of it");
    assert_eq!(script.status("one").history[0].trigger, "Approval");
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, "of something else");
    assert!(!script.looks("one"));
}

#[test]
fn g12_a_sync_that_starts_with_an_approval_looks_once() {
    let mut script = holding();
    script.approve();
    // Another operator goes on, and knows nothing but what the server has.
    script.operator = Operator::new(&script.server, script.now, 2, 48);
    script.run();
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL[..5]);
    assert!(!script.looks("one"));
}

#[test]
fn g12_what_is_approved_stays_held_until_the_approval_is_remembered() {
    let mut script = holding();
    script.loses =
        Some(|call| matches!(call, Call::Status { status, .. } if status.approved_prune.is_some()));
    script.approve();
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
    // Somebody takes the approval back, and protects one. Two may go without one, and three were held.
    script.loses = None;
    script.server.edit(&Name::Object(id("x")), |object| {
        object["metadata"]["annotations"][keys::PRUNE] = json!(keys::DISABLED);
    });
    script.edit(&of_sync("one"), |sync| sync["metadata"]["annotations"] = json!({}));
    script.pass(Duration::from_secs(600));
    assert_eq!((script.objects(), script.ready("one")), (ALL.to_vec(), "False: PruneHeld".into()));
    assert_eq!(script.status("one").approved_prune, None);
}

#[test]
fn g22_two_that_ask_each_other_do_not_wake_each_other_all_the_time() {
    let mut script = Script::new(&["two"], &ALL, 2);
    script.asks("two");
    script.finds("two", &["p", "q"], &[]);
    script.asks("one");
    script.asks("two");
    script.finds("one", &ALL[1..], &[]);
    script.finds("two", &["q"], &[]);
    assert!(script.looks("one") && script.looks("two"), "each waits for a look of the other one");
    let before = script.operator.passes;
    script.pass(Duration::from_secs(30));
    assert!(script.operator.passes - before <= 12, "they wake each other");
    script.finds_the_same("one");
    script.finds_the_same("two");
    assert_eq!(script.objects(), ["b", "c", "d", "e", "q", "x", "y", "z"]);
}

#[test]
fn g18_what_was_done_is_told_by_the_next_pass_when_one_is_dropped() {
    let mut script = Script::new(&[], &ALL[..5], 2);
    script.asks("one");
    script.drops = Some(|status| status.history.first().is_some_and(|last| last.created == 1));
    script.finds("one", &ALL[..6], &[]);
    assert!(script.drops.is_none(), "a pass was dropped while it told that");
    let last = script.status("one").history.swap_remove(0);
    assert_eq!((&*last.outcome, last.created), ("Applied", 1));
}

#[test]
fn g8_what_is_settled_is_forgotten_with_what_is_not_wanted_any_more() {
    let mut script = Script::new(&[], &ALL, 2);
    let state = script.operator.machine.engine().states().get("one").cloned().expect("a state");
    // Writes of these were found to change nothing.
    let settling = Settling { applied: String::new(), spec_hash: None, version: 0 };
    let settled = ["x", "y"].map(|name| (id(name), settling.clone()));
    state.try_lock().expect("no pass").plans.settled.extend(settled);
    script.asks("one");
    script.finds("one", &["a", "b", "c", "d", "e", "y", "z"], &[]);
    let left: Vec<_> = state.try_lock().expect("no pass").plans.settled.keys().cloned().collect();
    assert_eq!(left, [id("y")]);
    assert_eq!(script.ready("one"), "True: Succeeded");
}

#[test]
fn g8_of_many_changes_none_is_kept_for_who_does_not_plan_and_none_is_missed() {
    let mut script = Script::new(&["two"], &ALL[..3], 2);
    script.edit(&of_sync("two"), |sync| sync["spec"]["suspend"] = json!(true));
    for number in 0..1100 {
        let name = format!("stranger-{number}");
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": name},
            "spec": {"mode": "External", "external": {"url": "https://m.example"}},
        });
        script.server.make(&Name::Object(id(&name)), object);
    }
    script.server.delete(&Name::Object(id("a")));
    script.run();
    let engine = script.operator.machine.engine();
    let two = Key::new(NAMESPACE, "two");
    assert_eq!(engine.dirty.peek(&two), None);
    assert_eq!(engine.is_as_rebuilt("one"), Some(true));
    assert_eq!(script.objects().len(), 1103, "what was deleted among them is made again");
    script.edit(&of_sync("two"), |sync| sync["spec"]["suspend"] = json!(false));
    script.finds_the_same("two");
    let engine = script.operator.machine.engine();
    assert_eq!(engine.dirty.peek(&two), Some(BTreeSet::new()));
    assert_eq!(engine.is_as_rebuilt("two"), Some(true));
}

#[test]
fn g22_a_sync_that_is_suspended_contests_nothing_until_it_is_resumed() {
    let mut younger = git_sync("two", 2);
    younger["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    let mut script = Script::start(vec![("one", git_sync("one", 2)), ("two", younger)]);
    script.run();
    script.finds("one", &ALL[..3], &[]);
    script.finds("two", &["t"], &[]);
    let warned = |script: &Script| script.status("one").problem_count;
    script.asks("two");
    script.finds("two", &["a"], &[]);
    assert_eq!(warned(&script), Some(1), "both want a");
    for (suspend, problems) in [(true, 0), (false, 1)] {
        script.edit(&of_sync("two"), |sync| sync["spec"]["suspend"] = json!(suspend));
        if script.looks("two") {
            script.finds_the_same("two");
        }
        assert_eq!(warned(&script), Some(problems));
        assert_eq!(script.ready("one"), "True: Succeeded");
    }
}

#[test]
fn g18_what_is_paused_in_the_hands_of_one_that_ends_is_told_once_that_one_is_gone() {
    let mut script = Script::new(&["two"], &["a", "x"], 100);
    script.annotate(&Name::Object(id("x")), keys::RECONCILE, keys::DISABLED);
    script.asks("two");
    script.finds("two", &["x"], &[]);
    script.asks("one");
    script.finds("one", &["a"], &[]);
    assert_eq!(script.status("one").paused, [id("x").to_string()]);
    // It ends, and leaves x to the other one, which may not take it as long as it is paused.
    script.delete(&of_sync("one"));
    if script.looks("two") {
        script.finds_the_same("two");
    }
    assert_eq!(script.server.get(&of_sync("one")), None);
    assert_eq!(script.ready("two"), "False: ProblemsFound");
    let problems = script.status("two").problems;
    let vanished = problems.iter().filter(|p| p.message.contains("the vanished GitSync"));
    assert_eq!(vanished.count(), 1, "{problems:?}");
}

#[test]
fn g18_what_a_killed_operator_says_late_while_objects_are_written_is_not_built_on() {
    let mut script = Script::new(&[], &ALL, 2);
    let base = script.status("one").prune_base;
    script.asks("one");
    script.meanwhile = Some(|server| {
        server.edit(&of_sync("one"), |sync| {
            sync["status"]["pruneBase"] = json!(99);
            sync["status"]["lastPruneDigest"] = json!("0123456789abcdef");
        });
    });
    // One is changed, and all others go.
    script.finds_contents("one", &[(id(ALL[0]), 7)]);
    let said = script.status("one");
    let pending = said.pending_prune.expect("held");
    assert_eq!((said.prune_base, said.last_prune_digest), (base, Some(pending.digest)));
    assert!(script.meanwhile.is_none(), "it has happened");
}
