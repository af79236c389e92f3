//! Deletes while a GitSync or a kind cannot be read.

use super::super::brake;
use super::brake::{approval, held, three_of_eight, unread};
use super::*;

#[test]
fn g22_an_absence_that_others_cannot_confirm_is_held_until_they_can_or_somebody_approves() {
    let mut w = world(&["a", "b", "c"], &["a", "b", "c", "x"]);
    w.unproven = unread(&["other"]);
    let plan = w.show();
    let shown = plan.held.clone().expect("held");
    assert_eq!((held(&plan), shown.cause), (vec!["x"], Cause::Unproven));
    assert_eq!(shown.reason, "GitSync other cannot be read");
    assert_eq!(w.pending.as_ref().map(|pending| pending.requires_approval), Some(false));
    // It can be read again.
    w.unproven = Unproven::default();
    assert_eq!((pruned(&w.plan()), w.plan().held), (vec!["x"], None));
    // Or it never can.
    (w.unproven, w.approval) = (unread(&["other"]), Some(shown.digest));
    assert_eq!(pruned(&w.plan()), ["x"]);
    // What its last good commit wanted is released by nobody.
    w.others.wants.insert(id("x"));
    assert!(w.plan().prune.is_empty());
    assert_eq!(w.plan().given, [(id("x"), "other".to_owned())]);
}

#[test]
fn g22_an_approval_counts_however_many_cannot_be_read() {
    let mut w = three_of_eight();
    let file = |n: usize| format!("GitSync many: f{n}.yaml");
    let unread = (0..150).map(file).chain(["GitSync other".to_owned()]).collect();
    w.unproven = Unproven { unread, reason: "not all can be read".into() };
    let shown = w.show().held.expect("held").digest;
    assert_eq!(
        w.pending.as_ref().map(|it| &*it.unread),
        Some(&["GitSync many", "GitSync other"].map(str::to_owned)[..])
    );
    assert_eq!(w.show().held.expect("held").digest, shown, "nothing has changed");
    w.approval = Some(shown);
    assert_eq!(w.show().prune.len(), 3);
}

#[test]
fn g22_an_approval_is_given_in_spite_of_those_that_it_was_shown_with_and_of_no_others() {
    for before in [&[][..], &["other"]] {
        let mut w = three_of_eight();
        w.unproven = unread(before);
        let shown = w.show().held.expect("three are too many").digest;
        // Between the report and the approval one more cannot be read.
        w.unproven = unread(&["other", "third"]);
        w.approval = Some(shown.clone());
        let plan = w.show();
        assert_eq!((pruned(&plan), held(&plan).len()), (vec![], 3), "{before:?}");
        let held = plan.held.expect("held");
        assert_ne!(held.digest, shown);
        assert!(held.reason.contains("GitSync third cannot be read"), "{}", held.reason);
        // In the middle of carrying it out.
        w.approval = Some(held.digest);
        w.approved = w.show().released;
        assert_eq!(w.plan().prune.len(), 3);
        w.unproven = unread(&["fourth", "other", "third"]);
        assert_eq!(w.plan().prune.len(), 0);
        // They are mended, all or some.
        w.unproven = unread(&["third"]);
        assert_eq!(w.plan().prune.len(), 3);
    }
    // It was asked once more because of the approval, and is heard of again after that.
    let mut w = three_of_eight();
    w.unproven = unread(&["other"]);
    w.approval = w.show().held.map(|held| held.digest);
    w.unproven = Unproven::default();
    w.approved = w.show().released;
    w.live.remove(&id("x"));
    w.unproven = unread(&["other"]);
    assert_eq!(pruned(&w.plan()), ["z", "y"]);
}

#[test]
fn g22_all_deletes_have_to_be_approved_in_spite_of_a_kind_that_is_not_shown() {
    let victims = |names: &[&str]| -> Vec<Victim> {
        let victim =
            |name: &&str| Victim { id: id(name), uid: format!("uid-of-{name}"), version: 7 };
        names.iter().map(victim).collect()
    };
    let approved = approval("abc .", &["c", "d"]);
    assert!(brake::names_all(&approved, &victims(&["c", "d"])));
    assert!(brake::names_all(&approved, &victims(&["d"])));
    assert!(!brake::names_all(&approved, &victims(&["c", "e"])));
}
