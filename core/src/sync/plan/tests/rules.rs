//! What a plan creates, updates, deletes and leaves, and who owns what.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;

#[test]
fn a_settled_system_has_an_empty_plan() {
    let plan = world(&["a", "b"], &["a", "b"]).plan();
    assert!(plan.is_settled());
    assert_eq!((plan.unchanged, plan.marked), (2, 2));
}

#[test]
fn g11_missing_is_created_and_different_is_updated() {
    let mut w = world(&["a", "b"], &["b"]);
    w.live.get_mut(&id("b")).expect("b").facts.spec_hash = Some(hash_json(&json!("edited")));
    let plan = w.plan();
    assert_eq!(plan.create, [id("a")]);
    assert_eq!(plan.update.len(), 1);
    assert_eq!(plan.update[0].uid, "uid-of-b");
}

#[test]
fn an_apply_that_changed_nothing_is_remembered_as_equal() {
    let mut w = world(&["a"], &["a"]);
    let other = Some(hash_json(&json!("scaled")));
    let applied = w.desired[&id("a")].applied.clone();
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = other;
    assert_eq!(w.plan().update.len(), 1);
    w.settled.insert(id("a"), Settling { applied: applied.clone(), spec_hash: other, version: 7 });
    assert!(w.plan().is_settled());
    // A new version of the same spec (a status, say) changes nothing; another spec does.
    w.live.get_mut(&id("a")).expect("a").version = 8;
    assert!(w.plan().is_settled());
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = Some(hash_json(&json!("edited")));
    assert_eq!(w.plan().update.len(), 1);

    // A spec that does not parse: only this very version.
    let a = w.live.get_mut(&id("a")).expect("a");
    (a.facts.spec_hash, a.version) = (None, 9);
    w.settled.insert(id("a"), Settling { applied, spec_hash: None, version: 9 });
    assert!(w.plan().is_settled());
    w.live.get_mut(&id("a")).expect("a").version = 10;
    assert_eq!(w.plan().update.len(), 1);
}

#[test]
fn what_was_settled_for_another_definition_or_another_spec_counts_for_nothing() {
    let mut w = world(&["a"], &["a"]);
    let scaled = Some(hash_json(&json!("scaled")));
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = scaled;
    let applied = w.desired[&id("a")].applied.clone();
    let settling = Settling { applied, spec_hash: scaled, version: 7 };
    for other in [
        Settling { applied: "another definition".into(), ..settling.clone() },
        Settling { spec_hash: Some(hash_json(&json!("edited"))), ..settling.clone() },
        Settling { spec_hash: None, ..settling.clone() },
    ] {
        w.settled.insert(id("a"), other);
        assert_eq!(w.plan().update.len(), 1);
    }
    w.settled.insert(id("a"), settling.clone());
    assert!(w.plan().is_settled());
    // It says nothing of what else an apply would write.
    annotate(w.live.get_mut(&id("a")).expect("a"), keys::APPLIED, "another definition");
    assert_eq!(w.plan().update.len(), 1);

    // A spec that does not parse, settled for another definition.
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = None;
    let other = Settling { applied: "another definition".into(), spec_hash: None, version: 7 };
    w.settled.insert(id("a"), other);
    assert_eq!(w.plan().update.len(), 1);
}

#[test]
fn g13_objects_of_a_broken_file_are_quarantined_even_from_an_approved_prune() {
    let mut w = world(&["a"], &["a", "b", "c"]);
    w.has_errors = true;
    w.broken.insert(id("b"), "b.yaml".into());
    w.broken_paths.insert("c.yaml".into());
    let plan = w.plan();
    assert_eq!(plan.held, None);
    assert_eq!(
        plan.quarantined,
        [(id("b"), Some("b.yaml".into())), (id("c"), Some("c.yaml".into()))]
    );
}

#[test]
fn g13_an_object_that_had_moved_is_quarantined_with_the_file_that_is_broken_now() {
    let mut w = world(&["a"], &["a", "b", "c", "d", "e"]);
    w.has_errors = true;
    // b moved to other.yaml without being written, then other.yaml broke; its old file lives on with other things.
    w.paths.extend(["b.yaml".to_owned(), "c.yaml".to_owned(), "other.yaml".to_owned()]);
    w.broken_paths.insert("other.yaml".into());
    w.last_paths.insert(id("b"), "other.yaml".into());
    let plan = w.plan();
    assert_eq!(plan.quarantined, [(id("b"), Some("other.yaml".into()))]);
    assert_eq!(plan.held.expect("held").victims.len(), 3);

    // A broken file that nothing is known to come from: d and e, whose files are gone, may be in it. The file of c
    // is there and good, and c is not in it.
    w.broken_paths.insert("new.yaml".into());
    let plan = w.plan();
    assert_eq!(plan.quarantined[1..], [(id("d"), None), (id("e"), None)]);
    assert_eq!(plan.held.expect("held").victims[0].id, id("c"));
}

#[test]
fn g13_a_file_is_new_though_an_object_that_is_elsewhere_came_from_a_file_of_its_name_once() {
    let mut w = world(&["a", "b"], &["a", "b", "d"]);
    w.has_errors = true;
    // a moved to b.yaml long ago and was not written since; d.yaml has become a.yaml, and broke.
    w.paths = BTreeSet::from(["a.yaml".to_owned(), "b.yaml".to_owned()]);
    w.broken_paths.insert("a.yaml".into());
    let plan = w.plan();
    assert_eq!(plan.quarantined, [(id("d"), None)]);
    assert_eq!(plan.held, None);
}

#[test]
fn g13_a_file_is_new_though_an_object_that_was_elsewhere_last_came_from_a_file_of_its_name_once() {
    let mut w = world(&["a"], &["a", "d", "e"]);
    w.has_errors = true;
    // d was written from new.yaml, moved on, and is wanted no more; new.yaml is there again, broken, and e.yaml is gone.
    annotate(w.live.get_mut(&id("d")).expect("d"), keys::SOURCE, "new.yaml:1");
    w.last_paths.insert(id("d"), "moved.yaml".into());
    w.paths = BTreeSet::from(["a.yaml".to_owned(), "new.yaml".to_owned()]);
    w.broken_paths.insert("new.yaml".into());
    let plan = w.plan();
    assert_eq!(plan.quarantined, [(id("d"), Some("new.yaml".into())), (id("e"), None)]);
    assert_eq!(plan.held, None);
}

#[test]
fn g22_what_another_sync_wants_is_left_to_it() {
    let mut w = world(&["a", "b"], &["a", "b", "c", "d"]);
    w.others.wants.extend([id("c"), id("d")]);
    let plan = w.plan();
    assert_eq!(plan.given, [(id("c"), "other".into()), (id("d"), "other".into())]);
    assert!(plan.prune.is_empty() && plan.held.is_none(), "nothing is counted as a delete");
    w.has_errors = true;
    let plan = w.plan();
    assert!(plan.given.is_empty() && plan.held.is_none(), "an unproven absence gives nothing away");
}

#[test]
fn g22_what_another_sync_gives_is_taken_over_in_place() {
    let other = SyncRef { uid: "uid-2".into(), name: "other".into(), ..sync() };
    let mut w = world(&["a", "b"], &["a"]);
    w.live.extend([live("b", Some(&other.mark(&id("b")).to_string()))]);
    assert_eq!(w.plan().conflicts[0].peer.as_deref(), Some("other"));
    w.others.gives.insert(id("b"));
    let plan = w.plan();
    assert!(plan.conflicts.is_empty() && plan.create.is_empty());
    assert_eq!((plan.update[0].uid.as_str(), plan.update[0].adopted), ("uid-of-b", true));
}

#[test]
fn a_copied_object_is_not_ours_and_is_never_pruned() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "c"]);
    let (_, copy) = live("copy", Some(&sync().mark(&id("a")).to_string()));
    w.live.insert(id("copy"), copy);
    let plan = w.plan();
    assert!(plan.is_settled());
    assert_eq!(plan.marked, 3);
    // Wanted all the same: a conflict, not an adoption.
    w.desired.extend([want("copy")]);
    assert_eq!(w.plan().conflicts.len(), 1);
}

#[test]
fn a_foreign_object_is_a_conflict_and_blocks_deletes() {
    let mut w = world(&["a", "b", "c", "x"], &["a", "b", "c", "d"]);
    w.live.extend([live("x", None)]);
    let plan = w.plan();
    assert_eq!(plan.conflicts.len(), 1);
    assert!(plan.prune.is_empty());
}

#[test]
fn a_handed_over_object_is_adopted() {
    let mut w = world(&["x"], &[]);
    w.live.extend([live("x", None)]);
    annotate(w.live.get_mut(&id("x")).expect("x"), keys::ADOPT_BY, "main");
    let plan = w.plan();
    assert!(plan.update[0].adopted);
    annotate(w.live.get_mut(&id("x")).expect("x"), keys::ADOPT_BY, "another");
    assert_eq!(w.plan().conflicts.len(), 1);
}

#[test]
fn g15_the_mark_of_a_vanished_sync_of_the_same_name_is_adopted_or_listed() {
    let old = SyncRef { uid: "uid-0".into(), ..sync() };
    let mut w = world(&["a"], &[]);
    w.live.extend([
        live("a", Some(&old.mark(&id("a")).to_string())),
        live("b", Some(&old.mark(&id("b")).to_string())),
    ]);
    let plan = w.plan();
    assert!(plan.update[0].adopted);
    assert_eq!(plan.orphans, [id("b")]);
    assert!(plan.prune.is_empty() && plan.held.is_none());
}

#[test]
fn g15_the_mark_of_a_vanished_sync_of_the_same_name_in_another_namespace_is_not_ours() {
    let far = SyncRef { uid: "uid-8".into(), namespace: "far".into(), ..sync() };
    let mark = |name| {
        // As if an object had been copied from there and its bearer been put right.
        let mark = far.mark(&id(name)).to_string();
        mark.replace(&format!("/far/{name}"), &format!("/{NAMESPACE}/{name}"))
    };
    let mut w = world(&["a"], &[]);
    w.live.extend([live("a", Some(&mark("a"))), live("b", Some(&mark("b")))]);
    let plan = w.plan();
    assert_eq!(plan.conflicts[0].owner, "the vanished GitSync far/main");
    assert!(plan.update.is_empty() && plan.orphans.is_empty() && plan.prune.is_empty());
}

#[test]
fn an_object_of_a_living_sync_stays_its_own_even_with_adopt_by() {
    let other = SyncRef { uid: "uid-2".into(), name: "other".into(), ..sync() };
    let mut w = world(&["a"], &[]);
    w.live.extend([live("a", Some(&other.mark(&id("a")).to_string()))]);
    annotate(w.live.get_mut(&id("a")).expect("a"), keys::ADOPT_BY, "main");
    let conflict = &w.plan().conflicts[0];
    assert_eq!(conflict.owner, "GitSync team/other");
}

#[test]
fn an_object_that_is_being_deleted_is_waited_for() {
    let mut w = world(&["a"], &["a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d"] {
        w.live.get_mut(&id(name)).expect("live").facts.deleting = true;
    }
    let plan = w.plan();
    assert_eq!(plan.terminating, [id("a")]);
    assert!(plan.is_settled() && plan.held.is_none());
}

#[test]
fn g18_of_what_is_being_deleted_only_that_is_awaited_which_this_sync_would_delete() {
    let mut w = world(&["a"], &["a", "b", "c", "d"]);
    for name in ["b", "c", "d"] {
        w.live.get_mut(&id(name)).expect("live").facts.deleting = true;
    }
    let ending = |w: &World| {
        let plan = w.plan();
        assert_eq!((plan.going, plan.marked), (3, 4));
        plan.ending.into_iter().map(|victim| victim.id.name).collect::<Vec<_>>()
    };
    assert_eq!(ending(&w), ["b", "c", "d"]);
    annotate(w.live.get_mut(&id("b")).expect("b"), keys::PRUNE, keys::DISABLED);
    annotate(w.live.get_mut(&id("c")).expect("c"), keys::RECONCILE, keys::DISABLED);
    assert_eq!(ending(&w), ["d"]);
    w.prune.enabled = false;
    assert_eq!(ending(&w), Vec::<String>::new());
}

#[test]
fn g12_what_is_protected_and_not_wanted_is_listed() {
    let mut w = world(&["a", "b"], &["a", "b", "c"]);
    for name in ["b", "c"] {
        annotate(w.live.get_mut(&id(name)).expect("live"), keys::PRUNE, keys::DISABLED);
    }
    let plan = w.plan();
    assert_eq!(pruned(&plan), Vec::<&str>::new());
    assert_eq!(plan.protected, [id("c")]);
}

#[test]
fn deletes_run_in_reverse_apply_order() {
    let mut w = world(&["a"], &["a", "m"]);
    let agent = ObjectId::new(Kind::Agent, "m");
    let (_, mut object) = ours("m");
    annotate(&mut object, keys::OWNER, &sync().mark(&agent).to_string());
    w.live.insert(agent.clone(), object);
    w.prune.max_deletions = IntOrString::Int(5);
    let order: Vec<_> = w.plan().prune.into_iter().map(|v| v.id.kind).collect();
    assert_eq!(order, [Kind::Agent, Kind::ModelAPI]);
}

#[test]
fn g14_a_paused_object_is_neither_changed_nor_deleted_and_is_shown() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "c", "d"]);
    for name in ["a", "b", "d"] {
        annotate(w.live.get_mut(&id(name)).expect("live"), keys::RECONCILE, "disabled");
    }
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = None;
    let plan = w.plan();
    assert!(plan.is_settled() && plan.held.is_none());
    assert_eq!((names(&plan.paused), plan.unchanged, plan.marked), (vec!["a", "b", "d"], 1, 4));
    annotate(w.live.get_mut(&id("a")).expect("a"), keys::RECONCILE, "no");
    assert_eq!(w.plan().update.len(), 1);

    // Somebody pauses it and hands it over: it is taken when the pause ends.
    let mut w = world(&["x"], &[]);
    w.live.extend([live("x", None)]);
    let x = w.live.get_mut(&id("x")).expect("x");
    annotate(x, keys::ADOPT_BY, "main");
    annotate(x, keys::RECONCILE, "disabled");
    let plan = w.plan();
    assert_eq!((plan.update.len(), names(&plan.paused)), (0, vec!["x"]));
}

#[test]
fn g11_of_a_commit_that_was_applied_once_only_changes_by_hand_are_undone() {
    let mut w = world(&["a", "b", "c", "d", "x"], &["a", "b", "d", "e", "f"]);
    w.live.get_mut(&id("a")).expect("a").facts.spec_hash = Some(hash_json(&json!("edited")));
    annotate(w.live.get_mut(&id("b")).expect("b"), keys::APPLIED, "another definition");
    w.live.extend([live("x", None)]);
    w.others.wants.insert(id("f"));
    let mut plan = w.plan();
    assert!(plan.held.is_some() && plan.conflicts.len() == 1 && plan.given.len() == 1);
    plan.undo_only();
    let undone = plan.update.iter().map(|update| &update.id).collect::<Vec<_>>();
    assert_eq!((undone, plan.marked), (vec![&id("a")], 5));
    let update = std::mem::take(&mut plan.update);
    let left = Plan { unchanged: 1, marked: 5, due: 1, ..Plan::default() };
    assert_eq!((update.len(), plan), (1, left));
}
