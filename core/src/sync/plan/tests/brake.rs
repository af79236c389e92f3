//! Which deletes wait, and what releases them.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::brake::{self, MOST_APPROVED, limit, short};
use super::*;

#[test]
fn g12_one_of_many_is_pruned_with_its_uid_and_version() {
    let plan = world(&["a", "b", "c"], &["a", "b", "c", "d"]).plan();
    assert_eq!(plan.prune, [Victim { id: id("d"), uid: "uid-of-d".into(), version: 7 }]);
    assert_eq!(plan.held, None);
}

#[test]
fn g12_errors_hold_every_delete() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "c", "d"]);
    w.has_errors = true;
    let plan = w.plan();
    assert!(plan.prune.is_empty());
    assert_eq!(plan.held.expect("held").victims.len(), 1);
}

#[test]
fn g12_brake_holds_mass_prune() {
    let w = world(&["a", "b"], &["a", "b", "c", "d"]);
    let held = w.plan().held.expect("2 of 4 is more than 30%");
    assert!(held.reason.contains("2 of 4"), "{}", held.reason);
}

#[test]
fn g12_brake_holds_when_everything_would_go() {
    let mut w = world(&[], &["a"]);
    w.prune.max_deletions = IntOrString::Int(1000);
    assert!(w.plan().held.is_some());
}

#[test]
fn g12_what_a_commit_creates_lets_through_nothing_that_it_deletes() {
    let before = ["a", "b", "c", "d", "e", "f", "x", "y", "z"];
    let after = ["a", "b", "c", "d", "e", "f", "u", "v", "w"];
    let mut w = world(&after, &before);
    w.prune_base = Some(9);
    let held = w.plan().held.expect("3 of 9 is more than 30%");
    // The new ones are there now: 3 of 12.
    w.live.extend(["u", "v", "w"].map(ours));
    assert_eq!(w.plan().held, Some(held.clone()));
    w.prune_base = None;
    assert_eq!(w.plan().prune.len(), 3, "or else the test could not fail");

    // All of them under other names.
    let mut w = world(&["b"], &["a"]);
    w.prune_base = Some(1);
    assert!(w.plan().held.is_some());
    w.live.extend(["b"].map(ours));
    let held = w.plan().held.expect("still");
    assert!(held.reason.starts_with("all 1 objects"), "{}", held.reason);
    // What was deleted by hand since counts no more.
    let mut w = world(&["a", "b"], &["a", "b", "c", "d"]);
    (w.prune_base, w.prune.max_deletions) = (Some(10), IntOrString::String("40%".into()));
    assert!(w.plan().held.is_some());
}

#[test]
fn g12_limits() {
    for (max, marked, expected) in [
        (IntOrString::String("30%".into()), 10, 3),
        (IntOrString::String("30%".into()), 2, 1),
        (IntOrString::String("0%".into()), 10, 0),
        (IntOrString::String("100%".into()), 10, 10),
        (IntOrString::String("rubbish".into()), 10, 0),
        (IntOrString::Int(0), 10, 0),
        (IntOrString::Int(-1), 10, 0),
        (IntOrString::Int(4), 10, 4),
    ] {
        assert_eq!(limit(&max, marked), expected, "{max:?}");
    }
}

#[test]
fn g12_an_approval_releases_exactly_that_plan() {
    let mut w = world(&["a", "b"], &["a", "b", "c", "d"]);
    let digest = w.show().held.expect("held").digest;
    w.approval = Some(digest.clone());
    let released = w.plan();
    assert_eq!(pruned(&released), ["d", "c"]);
    assert_eq!(released.released.expect("remembered").digest, digest);

    // The same objects at another commit: another plan, another digest.
    w.input_key = "def .";
    assert!(w.plan().prune.is_empty());
    w.input_key = "abc .";
    assert_eq!(w.plan().prune.len(), 2);

    // One more object to delete: nobody has approved that.
    w.desired.remove(&id("b"));
    let plan = w.plan();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["d", "c"], vec!["b"]));
}

pub(super) fn approval(input_key: &str, names: &[&str]) -> ApprovedPrune {
    let uids = names.iter().map(|name| short(&format!("uid-of-{name}"))).collect();
    ApprovedPrune { digest: "any".into(), input_key: input_key.into(), uids, unread: Vec::new() }
}

#[test]
fn g12_an_approval_is_carried_to_its_end_after_a_crash() {
    let mut w = world(&["a", "b"], &["a", "b", "c", "d"]);
    w.prune.max_deletions = IntOrString::Int(0);
    w.approved = Some(approval("abc .", &["c", "d"]));
    w.live.remove(&id("c"));
    assert_eq!(pruned(&w.plan()), ["d"]);
    w.approved = Some(approval("another commit", &["c", "d"]));
    assert!(w.plan().prune.is_empty(), "an approval is for one input");
}

#[test]
fn g12_an_approval_covers_no_object_that_joins_later() {
    let mut w = world(&["a", "b"], &["a", "b", "c", "d"]);
    w.prune.max_deletions = IntOrString::Int(0);
    w.approved = Some(approval("abc .", &["d"]));
    let plan = w.show();
    assert_eq!(pruned(&plan), ["d"]);
    let held = plan.held.expect("the one that joined waits");
    assert_eq!(held.victims.iter().map(|v| v.id.name.as_str()).collect::<Vec<_>>(), ["c"]);

    // Approved too, both go, and both are remembered.
    w.approval = Some(held.digest.clone());
    let plan = w.plan();
    assert_eq!(pruned(&plan), ["d", "c"]);
    assert_eq!(
        plan.released,
        Some(ApprovedPrune { digest: held.digest, ..approval("abc .", &["d", "c"]) })
    );

    // What was approved is gone: nothing is remembered any more.
    w.approval = None;
    w.live.remove(&id("d"));
    let plan = w.plan();
    assert_eq!((plan.prune.len(), plan.released), (0, None));
}

#[test]
fn g12_short_uids_tell_objects_apart() {
    assert_eq!(short("0a1b2c3d-4e5f-6789-abcd-ef0123456789"), "0a1b2c3d4e5f");
}

#[test]
fn g12_a_recreated_object_needs_a_new_approval() {
    let mut w = world(&["a", "b"], &["a", "b", "c", "d"]);
    w.approval = Some(w.plan().held.expect("held").digest);
    w.live.get_mut(&id("d")).expect("d").uid = "another".into();
    assert!(w.plan().prune.is_empty());
}

#[test]
fn g12_prune_disabled_keeps_one() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "c", "d"]);
    annotate(w.live.get_mut(&id("d")).expect("d"), keys::PRUNE, "disabled");
    let plan = w.plan();
    assert!(plan.prune.is_empty() && plan.held.is_none());
}

#[test]
fn g12_prune_off_keeps_all() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "c", "d"]);
    w.prune.enabled = false;
    let plan = w.plan();
    assert!(plan.is_settled());
    assert!(!plan.proves_its_size(0), "d goes as soon as pruning is on");
}

#[test]
fn g12_one_approval_releases_no_more_than_a_status_can_remember() {
    let names: Vec<_> = (0..MOST_APPROVED + 3).map(|n| format!("m{n:05}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut w = world(&["a"], &[&["a"][..], &names].concat());
    w.prune.max_deletions = IntOrString::Int(0);
    let held = w.show().held.expect("held");
    assert_eq!(held.victims.len(), MOST_APPROVED + 3);
    assert_eq!(w.show().held.expect("held").digest, held.digest, "nothing has changed");
    w.approval = Some(held.digest.clone());
    let plan = w.show();
    let later = plan.held.expect("the rest");
    assert_eq!((plan.prune.len(), later.victims.len()), (MOST_APPROVED, 3));
    assert_ne!(later.digest, held.digest);
    // What was released goes on being released, and nothing more.
    w.approved = plan.released;
    let plan = w.show();
    let digest = plan.held.map(|held| held.digest);
    assert_eq!((plan.prune.len(), digest.as_ref()), (MOST_APPROVED, Some(&later.digest)));
    w.approval = Some(later.digest);
    assert_eq!((w.plan().prune.len(), w.plan().held), (MOST_APPROVED + 3, None));
}

/// The names of what is held.
pub(super) fn held(plan: &Plan) -> Vec<&str> {
    plan.held.iter().flat_map(|held| &held.victims).map(|v| v.id.name.as_str()).collect()
}

impl World {
    /// Plans, and shows the held deletes, as a status does.
    pub(super) fn show(&mut self) -> Plan {
        let plan = self.plan();
        self.pending = brake::pending(self.pending.as_ref(), &plan, self.input_key, &self.unproven);
        plan
    }

    pub(super) fn protect(&mut self, name: &str, value: &str) {
        annotate(self.live.get_mut(&id(name)).expect(name), keys::PRUNE, value);
    }
}

/// Five wanted objects and three to delete, where two may go without an approval.
pub(super) fn three_of_eight() -> World {
    let mut w = world(&["a", "b", "c", "d", "e"], &["a", "b", "c", "d", "e", "x", "y", "z"]);
    w.prune.max_deletions = IntOrString::Int(2);
    w
}

#[test]
fn g12_what_was_held_stays_held_whatever_shrinks_the_list() {
    let mut w = three_of_eight();
    let digest = w.show().held.expect("three are too many").digest;
    w.protect("x", "disabled");
    let plan = w.show();
    assert_eq!((held(&plan), plan.prune.len()), (vec!["z", "y"], 0));
    assert_eq!(plan.held.as_ref().map(|held| &held.digest), Some(&digest), "what was shown");
    // Deleted by hand, and then none is left for a moment.
    w.live.remove(&id("y"));
    assert_eq!(held(&w.show()), ["z"]);
    w.protect("z", "disabled");
    assert_eq!(w.show().held, None);
    let pending = w.pending.clone().expect("remembered");
    assert_eq!((pending.count, pending.requires_approval), (0, true));
    w.protect("z", "no");
    // Nothing was shown with that digest any more.
    w.approval = Some(digest.clone());
    let plan = w.show();
    assert_eq!((held(&plan), plan.prune.len()), (vec!["z"], 0));
    w.approval = plan.held.map(|held| held.digest);
    assert_ne!(w.approval, Some(digest));
    assert_eq!(pruned(&w.plan()), ["z"]);

    // Another commit is judged by itself.
    let mut other = three_of_eight();
    (other.pending, other.input_key) = (w.pending.clone(), "def .");
    other.protect("x", "disabled");
    assert_eq!(pruned(&other.show()), ["z", "y"]);
    assert_eq!(other.pending, None);
}

#[test]
fn g12_a_digest_that_was_shown_releases_those_of_its_objects_that_remain() {
    let mut w = three_of_eight();
    let digest = w.show().held.expect("held").digest;
    w.protect("x", "disabled");
    w.show();
    w.approval = Some(digest.clone());
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["z", "y"], vec![]));
    let released = plan.released.expect("remembered until it is done");
    assert_eq!((&released.digest, released.uids.len()), (&digest, 2));
    let pending = w.pending.as_ref().expect("x was not shown when somebody said yes");
    assert_eq!((pending.count, pending.digest.as_str()), (0, ""));
    w.approved = Some(released);
    for name in ["y", "z"] {
        w.live.remove(&id(name));
    }
    w.protect("x", "no");
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec![], vec!["x"]), "nobody has approved it");
}

#[test]
fn g12_an_approval_opens_nothing_for_objects_that_its_digest_does_not_name() {
    let mut w = three_of_eight();
    w.live.extend([ours("w")]);
    w.protect("w", "disabled");
    let first = w.show().held.expect("x, y and z").digest;
    w.protect("x", "disabled");
    w.protect("w", "no");
    let second = w.show().held.expect("w has joined, and x is not shown any more").digest;
    assert_ne!(second, first);
    w.approval = Some(second);
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["z", "y", "w"], vec![]));
    w.approved = plan.released;
    for name in ["w", "y", "z"] {
        w.live.remove(&id(name));
    }
    w.show();
    w.approved = None;
    w.protect("x", "no");
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec![], vec!["x"]), "nobody has approved it");
}

#[test]
fn g12_what_is_being_deleted_already_is_not_left_over_for_the_brake() {
    let mut w = world(&[], &["a", "b", "c", "d"]);
    w.prune.max_deletions = IntOrString::String("100%".into());
    w.live.get_mut(&id("a")).expect("a").facts.deleting = true;
    let held = w.plan().held.expect("the last ones");
    assert!(held.reason.starts_with("all 4 objects"), "{}", held.reason);
}

#[test]
fn g12_what_joins_held_objects_makes_another_digest_and_is_released_by_that_alone() {
    let mut w = three_of_eight();
    let first = w.show().held.expect("held").digest;
    w.desired.remove(&id("e"));
    w.approval = Some(first.clone());
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["z", "y", "x"], vec!["e"]));
    let second = plan.held.expect("the one that joined").digest;
    assert_ne!(second, first);
    assert_eq!(w.pending.as_ref().map(|pending| pending.uids.len()), Some(1));
    // The first ones are gone; nobody has approved the one that joined.
    w.approved = plan.released;
    for name in ["x", "y", "z"] {
        w.live.remove(&id(name));
    }
    assert_eq!((held(&w.show()), w.plan().prune.len()), (vec!["e"], 0));
    w.approval = Some(second);
    assert_eq!(pruned(&w.show()), ["e"]);
}

#[test]
fn g12_what_is_held_for_an_error_goes_on_without_it_unless_it_was_too_much() {
    for (many, waits) in [(false, false), (true, true)] {
        let mut w = three_of_eight();
        if !many {
            w.live.remove(&id("x"));
        }
        w.has_errors = true;
        let reason = w.show().held.expect("held").reason;
        assert!(reason.contains("has errors"), "{reason}");
        w.has_errors = false;
        if many {
            w.protect("x", "disabled");
        }
        assert_eq!((held(&w.show()).is_empty(), w.plan().prune.is_empty()), (!waits, waits));
    }
}

#[test]
fn g12_what_comes_back_to_what_is_held_was_not_approved_with_it() {
    let mut w = three_of_eight();
    let first = w.show().held.expect("x, y and z").digest;
    w.protect("y", "disabled");
    assert_eq!(held(&w.show()), ["z", "x"], "this is what somebody reads, with the same digest");
    // It comes back before the approval arrives.
    w.protect("y", "no");
    w.approval = Some(first.clone());
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["z", "x"], vec!["y"]));
    // Or a moment before.
    let mut w = three_of_eight();
    w.show();
    w.protect("y", "disabled");
    w.show();
    w.protect("y", "no");
    let again = w.show();
    assert_eq!(held(&again), ["z", "y", "x"]);
    assert_ne!(again.held.expect("held").digest, first, "whoever says yes to that has seen two");
    w.approval = Some(first);
    assert_eq!(pruned(&w.show()), Vec::<&str>::new());
}

#[test]
fn g12_a_digest_is_not_used_again_when_the_branch_goes_back() {
    let mut w = three_of_eight();
    let first = w.show().held.expect("held").digest;
    assert_eq!(w.show().held.expect("held").digest, first);
    // Another commit holds nothing. Only the status still knows the digest.
    w.pending = None;
    w.last_digest = Some(first.clone());
    let second = w.show().held.expect("held").digest;
    assert_ne!(second, first, "somebody may have seen a shorter list with that");
    assert_eq!(w.show().held.expect("held").digest, second, "what is shown stays");
}

#[test]
fn g12_a_digest_stands_for_what_its_status_shows() {
    let mut w = three_of_eight();
    w.show();
    let ours = w.pending.clone().expect("held");
    assert_eq!(brake::narrowed(&ours, None), None);
    assert_eq!(brake::narrowed(&ours, Some(&ours)), None);
    // An operator that was killed knew of two, and its status has arrived late.
    let mut late = ours.clone();
    let gone = late.uids.pop().expect("a uid");
    let other = PendingPrune { digest: "another".into(), ..late.clone() };
    assert_eq!(brake::narrowed(&ours, Some(&other)), None);
    let none = |held: &PendingPrune| PendingPrune { digest: String::new(), ..held.clone() };
    assert_eq!(brake::narrowed(&none(&ours), Some(&none(&late))), None);
    let narrowed = brake::narrowed(&ours, Some(&late)).expect("fewer");
    assert_eq!((&narrowed.uids, &narrowed.held_before), (&late.uids, &vec![gone]));
    w.pending = Some(narrowed);
    let plan = w.show();
    assert_eq!(held(&plan), ["z", "y", "x"]);
    assert_ne!(plan.held.expect("held").digest, ours.digest);
    // It shows more: of those nobody has said that they are to go.
    let mut more = ours.clone();
    more.uids.push("more".into());
    assert_eq!(brake::narrowed(&ours, Some(&more)), None);
}

#[test]
fn g12_an_approval_counts_once_and_only_for_what_is_shown() {
    let mut w = three_of_eight();
    let first = w.show().held.expect("held").digest;
    // Another commit wants them back before somebody has said yes, and then they are to go again.
    w.pending = None;
    w.approval = Some(first.clone());
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec![], vec!["z", "y", "x"]), "nothing was shown");
    // What was acted on is not acted on again.
    let mut w = three_of_eight();
    w.show();
    (w.approval, w.handled) = (Some(first.clone()), Some(first.clone()));
    assert_eq!(pruned(&w.show()), Vec::<&str>::new());
    w.pending = None;
    let second = w.show().held.expect("held").digest;
    assert_ne!(second, first, "so that somebody can say yes once more");
    w.approval = Some(second);
    assert_eq!(pruned(&w.show()), ["z", "y", "x"]);
}

#[test]
fn g12_an_approval_is_acted_on_when_it_is_given_or_fits_nothing() {
    let mut w = three_of_eight();
    let plan = w.show();
    let digest = plan.held.as_ref().expect("held").digest.clone();
    let acted =
        |said: &str, plan: &Plan, w: &World| brake::acted_on(Some(said), plan, w.pending.as_ref());
    assert_eq!(brake::acted_on(None, &plan, w.pending.as_ref()), None);
    assert_eq!(acted(&digest, &plan, &w), None, "it is to be acted on yet");
    assert_eq!(acted("another", &plan, &w).as_deref(), Some("another"));
    w.approval = Some(digest.clone());
    let plan = w.show();
    assert_eq!(acted(&digest, &plan, &w), Some(digest.clone()), "given");
    assert_eq!(acted("another", &plan, &w).as_deref(), Some("another"));
    let plan = Plan::default();
    assert_eq!(brake::acted_on(Some(&"é".repeat(70)), &plan, None), Some("é".repeat(64)));
}

pub(super) fn unread(names: &[&str]) -> Unproven {
    let unread = names.iter().map(|name| format!("GitSync {name}")).collect();
    let reasons: Vec<_> =
        names.iter().map(|name| format!("GitSync {name} cannot be read")).collect();
    Unproven { unread, reason: reasons.join(", ") }
}
