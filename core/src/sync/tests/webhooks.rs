//! A webhook tells of a push.

use std::time::Duration;

use serde_json::json;

use super::script::{Script, git_sync, of_sync};
use crate::api::webhook::path;
use crate::sync::poll::Moved;

/// A delivery for the GitSync `one`.
fn pushed(script: &mut Script) {
    script.operator.moved("one", Moved::Webhook);
    script.run();
}

#[test]
fn g5_a_push_that_is_told_while_a_poll_is_under_way_is_looked_for_once_more() {
    let mut script = Script::new(&[], &["a"], 9);
    assert!(!script.looks("one"));
    pushed(&mut script);
    assert!(script.looks("one"), "at once, long before the interval");
    // That poll may have asked before these pushes.
    for _ in 0..1000 {
        pushed(&mut script);
    }
    script.finds_the_same("one");
    assert!(script.looks("one"), "one more");
    script.finds("one", &["a", "b"], &[]);
    assert!(!script.looks("one"), "and no more than that");
    assert_eq!(script.objects(), ["a", "b"]);
    assert_eq!(script.status("one").history[0].trigger, "Webhook");
    script.pass(Duration::from_secs(3600));
    assert!(!script.looks("one"));
}

#[test]
fn g5_a_poll_that_fails_is_not_repeated_because_of_the_push_that_began_it() {
    let mut script = Script::new(&[], &["a"], 9);
    pushed(&mut script);
    script.fails("one");
    script.pass(Duration::from_secs(3600));
    assert!(!script.looks("one"), "it is tried again after retryInterval, as always");
}

#[test]
fn g5_a_suspended_git_sync_is_not_woken() {
    let mut suspended = git_sync("one", 9);
    suspended["spec"]["suspend"] = json!(true);
    let mut script = Script::start(vec![("one", suspended)]);
    script.run();
    pushed(&mut script);
    assert!(!script.looks("one"));
}

#[test]
fn g5_the_path_is_in_the_status_from_the_first_report_on() {
    let mut with_hook = git_sync("one", 9);
    with_hook["spec"]["webhook"] = json!({"provider": "GitHub", "secretRef": {"name": "hook"}});
    let mut script = Script::start(vec![("one", with_hook)]);
    script.run();
    script.finds("one", &["a"], &[]);
    let sync = script.server.get(&of_sync("one")).cloned().expect("the GitSync");
    let uid = sync["metadata"]["uid"].as_str().expect("a UID");
    assert_eq!(script.status("one").webhook_path, Some(path(uid)));
}
