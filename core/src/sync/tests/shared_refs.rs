//! Answers of a remote that another GitSync of the repository has got.

use std::time::Duration;

use super::script::{Script, git_sync};
use super::{ALL, asking};
use crate::order::Seq;
use crate::sync::poll::Moved;

#[test]
fn g22_an_answer_from_before_a_commit_was_found_proves_no_absence() {
    let before = Seq::next();
    let mut script = asking(&["x"], &["two"], 2);
    script.shared = Some((before, Duration::ZERO));
    script.finds_the_same("two");
    assert_eq!(script.objects(), ALL, "two may want x in the commit that one has found");
    assert!(script.looks("two"), "it is asked once more");
    script.shared = None;
    script.finds_the_same("two");
    assert_eq!(script.objects(), ["a", "b", "c", "d", "e", "y", "z"]);
}

#[test]
fn g12_an_answer_from_before_an_approval_releases_nothing() {
    let mut script = Script::new(&[], &ALL, 1);
    script.asks("one");
    script.finds("one", &["a"], &[]);
    assert!(script.pending().is_some_and(|pending| pending.requires_approval));
    let before = Seq::next();
    script.approve();
    assert!(script.looks("one"), "an approval counts for what is in Git now");
    script.shared = Some((before, Duration::ZERO));
    script.finds_the_same("one");
    assert_eq!(script.objects(), ALL);
    script.shared = None;
    assert!(script.looks("one"));
    script.finds_the_same("one");
    assert_eq!(script.objects(), ["a"]);
}

#[test]
fn g1_the_interval_counts_from_the_answer_of_the_remote() {
    let mut often = git_sync("one", 9);
    often["spec"]["interval"] = "100s".into();
    let mut script = Script::start(vec![("one", often)]);
    script.run();
    script.finds("one", &["a"], &[]);
    script.pass(Duration::from_secs(111));
    // It takes an answer that is half as old as it may be.
    script.shared = Some((Seq::next(), Duration::from_secs(25)));
    script.finds_the_same("one");
    script.pass(Duration::from_secs(64));
    assert!(!script.looks("one"), "90 s after the answer at the earliest");
    script.pass(Duration::from_secs(22));
    assert!(script.looks("one"), "110 s after the answer at the latest");
}

#[test]
fn g3_who_is_told_that_its_ref_has_moved_polls_once() {
    let mut script = Script::new(&[], &["a"], 9);
    script.operator.moved("one", Moved::SharedRef);
    script.run();
    assert!(script.looks("one"), "at once");
    // The answer may be older than the poll: it is what the others have seen.
    script.shared = Some((Seq::next(), Duration::from_secs(1)));
    script.finds("one", &["a", "b"], &[]);
    assert!(!script.looks("one"));
    assert_eq!(script.status("one").history[0].trigger, "SharedRef");
    // What moves while a poll is under way is looked for after it.
    script.shared = None;
    script.asks("one");
    script.operator.moved("one", Moved::SharedRef);
    script.finds_the_same("one");
    assert!(script.looks("one"));
}
