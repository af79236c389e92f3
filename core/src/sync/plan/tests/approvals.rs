//! What stays approved and held, for how long, and in spite of whom.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::brake;
use super::brake::{held, three_of_eight, unread};
use super::*;

#[test]
fn g12_what_was_approved_stays_approved_until_it_is_gone_whoever_fails_meanwhile() {
    let mut w = three_of_eight();
    w.approval = w.show().held.map(|held| held.digest);
    w.approved = w.show().released;
    w.live.remove(&id("x"));
    // In the middle of it one falls silent that nobody knew of.
    w.unproven = unread(&["third"]);
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec![], vec!["z", "y"]));
    w.approved = plan.released;
    // It is heard again: nobody has to say yes once more.
    w.unproven = Unproven::default();
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["z", "y"], vec![]));
    w.approved = plan.released;
    // One of them is protected for a while.
    w.protect("y", "disabled");
    w.live.remove(&id("z"));
    let plan = w.show();
    assert_eq!(pruned(&plan), Vec::<&str>::new());
    w.approved = plan.released;
    w.prune.max_deletions = IntOrString::Int(0);
    w.protect("y", "no");
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["y"], vec![]));
    w.approved = plan.released;
    // What else is left over was never shown.
    w.live.extend([ours("w")]);
    assert_eq!((pruned(&w.show()), held(&w.show())), (vec!["y"], vec!["w"]));
    w.live.remove(&id("y"));
    assert_eq!(w.show().released, None, "it is done");
}

#[test]
fn g12_an_approval_releases_what_it_names_in_spite_of_errors_elsewhere() {
    let mut w = three_of_eight();
    w.has_errors = true;
    let shown = w.show();
    assert_eq!(pruned(&shown), Vec::<&str>::new());
    w.approval = shown.held.map(|held| held.digest);
    let plan = w.show();
    assert_eq!(pruned(&plan), ["z", "y", "x"]);
    w.approved = plan.released;
    // What may be in the broken file is not among them.
    w.broken.insert(id("y"), "y.yaml".into());
    assert_eq!(pruned(&w.show()), ["z", "x"]);
}

#[test]
fn g12_two_approvals_cover_what_each_was_given_for_and_in_spite_of_whom() {
    let mut w = three_of_eight();
    w.prune.max_deletions = IntOrString::Int(0);
    w.protect("y", "disabled");
    w.protect("z", "disabled");
    w.approval = w.show().held.map(|held| held.digest);
    w.approved = w.show().released;
    assert_eq!(w.approved.as_ref().map(|approved| approved.uids.len()), Some(1));
    w.protect("x", "disabled");
    w.protect("y", "no");
    w.approval = w.show().held.map(|held| held.digest);
    w.approved = w.show().released;
    w.protect("x", "no");
    assert_eq!(pruned(&w.show()), ["y", "x"], "both");
    // The next one is given in spite of somebody: it says nothing of those before.
    w.unproven = unread(&["other"]);
    w.protect("x", "disabled");
    w.protect("y", "disabled");
    w.protect("z", "no");
    w.approval = w.show().held.map(|held| held.digest);
    let plan = w.show();
    assert_eq!(pruned(&plan), ["z"]);
    w.approved = plan.released;
    w.protect("x", "no");
    w.protect("y", "no");
    assert_eq!((pruned(&w.show()), held(&w.show())), (vec!["z"], vec!["y", "x"]));
}

#[test]
fn g12_an_approval_is_not_remembered_for_what_is_gone_when_another_one_joins_it() {
    let mut w = world(&["a", "b"], &["a", "b", "x", "y", "z"]);
    w.prune.max_deletions = IntOrString::Int(0);
    for name in ["x", "z", "y"] {
        // One after the other is approved, and then protected or gone.
        let others: Vec<_> = ["x", "y", "z"].into_iter().filter(|other| *other != name).collect();
        for other in &others {
            w.protect(other, "disabled");
        }
        w.protect(name, "no");
        w.approval = w.show().held.map(|held| held.digest);
        w.approved = w.show().released;
        if name == "z" {
            w.live.get_mut(&id("z")).expect("z").uid = "made-anew".into();
        }
    }
    let uids = w.approved.expect("approved").uids;
    assert_eq!(uids, ["y", "x"].map(|name| brake::short(&format!("uid-of-{name}"))));
}

#[test]
fn g12_what_is_held_is_forgotten_once_none_of_it_is_left() {
    let mut w = three_of_eight();
    w.show();
    w.protect("x", "disabled");
    w.live.remove(&id("y"));
    w.live.remove(&id("z"));
    w.show();
    assert_eq!(w.pending.as_ref().map(|pending| pending.count), Some(0), "x may be let go again");
    let reason = w.pending.clone().expect("remembered").reason;
    assert!(
        reason.starts_with("nothing is left to delete of what was held: 1 object(s)"),
        "{reason}"
    );
    // Somebody deletes it, and a finalizer keeps it for a moment.
    w.live.get_mut(&id("x")).expect("x").facts.deleting = true;
    w.show();
    assert_eq!(w.pending, None);
    // Or another GitSync has it by now.
    let mut w = three_of_eight();
    w.show();
    for name in ["x", "y", "z"] {
        let mark = format!("uid-2/{NAMESPACE}/other/ModelAPI/{NAMESPACE}/{name}");
        annotate(w.live.get_mut(&id(name)).expect(name), keys::OWNER, &mark);
    }
    w.show();
    assert_eq!(w.pending, None);
}

#[test]
fn g12_what_is_being_deleted_and_wanted_again_is_not_left_over() {
    let mut w = world(&["a"], &["a", "x"]);
    w.prune.max_deletions = IntOrString::String("100%".into());
    w.live.get_mut(&id("a")).expect("a").facts.deleting = true;
    let plan = w.plan();
    assert_eq!((pruned(&plan), held(&plan)), (vec!["x"], vec![]));
    assert_eq!(plan.terminating, [id("a")]);
}

#[test]
fn g22_two_that_fail_in_turn_make_one_digest() {
    let mut w = three_of_eight();
    let mut digests = Vec::new();
    for name in ["other", "third", "other", "third", "other"] {
        w.unproven = unread(&[name]);
        digests.extend(w.show().held.map(|held| held.digest));
    }
    assert_ne!(digests[0], digests[1], "who says yes to the first one has not heard of the third");
    assert_eq!(
        digests[1..],
        [&digests[1], &digests[1], &digests[1], &digests[1]].map(Clone::clone)
    );
    let reason = w.pending.clone().expect("shown").reason;
    let also = "; an approval also counts while this cannot be read: GitSync third";
    assert!(reason.ends_with(also), "{reason}");
    let shown = w.pending.clone().map(|pending| pending.unread);
    assert_eq!(shown, Some(vec!["GitSync other".to_owned(), "GitSync third".to_owned()]));
    for name in ["other", "third"] {
        w.unproven = unread(&[name]);
        w.approval = Some(digests[0].clone());
        assert_eq!(pruned(&w.plan()), Vec::<&str>::new());
        w.approval = Some(digests[1].clone());
        assert_eq!(pruned(&w.plan()), ["z", "y", "x"]);
    }
    // A fourth one is news again.
    w.unproven = unread(&["fourth"]);
    assert_eq!(pruned(&w.plan()), Vec::<&str>::new());
}

#[test]
fn g22_who_is_known_not_to_be_read_at_all_is_known_not_to_read_one_of_its_files() {
    for (shown, now, covered) in [
        ("other", "other: b.yaml", true),
        ("other: b.yaml", "other: b.yaml", true),
        ("other: b.yaml", "other: c.yaml", false),
        ("other: b.yaml", "other", false),
        ("other", "otherwise: b.yaml", false),
    ] {
        let mut w = three_of_eight();
        w.unproven = unread(&[shown]);
        w.approval = w.show().held.map(|held| held.digest);
        w.unproven = unread(&[now]);
        assert_eq!(w.plan().prune.len() == 3, covered, "{shown} and {now}");
    }
}

#[test]
fn g12_what_an_older_version_has_held_stays_held() {
    let mut w = three_of_eight();
    w.pending = Some(PendingPrune {
        digest: "of old".into(),
        count: 3,
        objects: ["x", "y", "z"].map(|name| id(name).to_string()).to_vec(),
        ..PendingPrune::default()
    });
    w.protect("x", "disabled");
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec![], vec!["z", "y"]));
    let pending = w.pending.clone().expect("shown");
    assert_eq!((pending.requires_approval, pending.input_key.as_str()), (true, "abc ."));
    w.approval = Some(pending.digest);
    assert_eq!(pruned(&w.show()), ["z", "y"]);
    // Without anything to delete there is nothing to keep.
    let mut w = world(&["a"], &["a"]);
    w.pending = Some(PendingPrune { count: 3, ..PendingPrune::default() });
    w.show();
    assert_eq!(w.pending, None);
}

#[test]
fn g12_what_is_held_before_others_are_asked_stays_held() {
    let mut w = three_of_eight();
    // The plan holds three, and somebody is asked whether it wants some of them.
    let mut plan = w.plan();
    plan.unheard = plan.held.take();
    w.pending = brake::pending(None, &plan, w.input_key, &w.unproven);
    let pending = w.pending.clone().expect("remembered");
    assert_eq!((pending.count, pending.digest.as_str(), pending.requires_approval), (0, "", true));
    // Nothing was shown, so there is nothing to say yes to.
    w.approval = Some(String::new());
    w.protect("x", "disabled");
    let plan = w.show();
    assert_eq!((pruned(&plan), held(&plan)), (vec![], vec!["z", "y"]));
    // What waits only until it is proven needs nobody.
    let mut w = world(&["a", "b", "c"], &["a", "b", "c", "x"]);
    w.unproven = unread(&["other"]);
    let mut plan = w.plan();
    plan.unheard = plan.held.take();
    assert_eq!(brake::pending(None, &plan, w.input_key, &w.unproven), None);
}
