//! GitSyncs that are deleted.

use std::time::Duration;

use serde_json::{Value, json};

use super::is_as_written;
use crate::api::keys;
use crate::sync::io::effect::Call;
use crate::sync::simulation::server::{Name, Rights};
use crate::sync::tests::script::{Script, git_sync, id, of_sync};

/// `one`, which takes its objects along, and `two`.
fn ending(change: impl FnOnce(&mut Value)) -> Script {
    let mut one = git_sync("one", 2);
    one["spec"]["deletionPolicy"] = json!("Delete");
    one["spec"]["retryInterval"] = json!("1m");
    change(&mut one["spec"]);
    let mut script = Script::start(vec![("one", one), ("two", git_sync("two", 2))]);
    script.listen();
    script.run();
    script.finds("two", &["t"], &[]);
    script.say("one finds its first commit");
    script.finds("one", &["a", "b", "c", "d"], &[]);
    script
}

#[test]
fn g15_an_end_takes_the_objects_along() {
    let mut script = ending(|_| {});
    script.annotate(&Name::Object(id("a")), keys::PRUNE, keys::DISABLED);
    script.say("something else keeps b");
    script.edit(&Name::Object(id("b")), |object| {
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    script.delete(&of_sync("one"));
    script.say("two has taken over c");
    script.finds("two", &["c", "t"], &[]);
    script.pass(Duration::from_secs(30));
    script.pass(Duration::from_secs(100));
    is_as_written("an end with deletionPolicy Delete", script);
}

#[test]
fn g15_an_end_that_waits_for_others() {
    let mut script = ending(|_| {});
    script.delete(&of_sync("one"));
    script.say("two cannot be read");
    script.fails("two");
    script.pass(Duration::from_secs(70));
    script.asks("two");
    script.say("it can, and has a broken file");
    script.finds("two", &["t"], &["two/x.yaml"]);
    script.asks("two");
    script.finds("two", &["t"], &[]);
    is_as_written("an end that waits", script);
}

#[test]
fn g15_g16_an_end_without_rights() {
    let mut script = ending(|spec| spec["serviceAccountName"] = json!("deployer"));
    script.server.rights = Rights { no_acting: true, ..Rights::default() };
    script.asks("two");
    script.say("two wants a, too");
    script.finds("two", &["a", "t"], &[]);
    script.edit(&of_sync("one"), |sync| sync["spec"]["serviceAccountName"] = json!("another"));
    script.delete(&of_sync("one"));
    if script.looks("two") {
        script.finds_the_same("two");
    }
    script.server.rights = Rights { no_verb: Some("delete"), ..Rights::default() };
    script.pass(Duration::from_secs(70));
    if script.looks("two") {
        script.finds_the_same("two");
    }
    script.pass(Duration::from_secs(5));
    script.server.rights = Rights { no_account: true, ..Rights::default() };
    script.pass(Duration::from_secs(70));
    is_as_written("an end without rights", script);
}

#[test]
fn g15_an_end_that_leaves_the_objects() {
    let mut script = ending(|_| {});
    script.edit_spec("one", "deletionPolicy", json!("Orphan"));
    script.finds_the_same("one");
    script.edit_spec("one", "deletionPolicy", json!("Delete"));
    script.finds_the_same("one");
    script.edit_spec("one", "suspend", json!(true));
    script.edit_spec("one", "suspend", json!(false));
    script.finds_the_same("one");
    script.asks("one");
    script.say("a commit with nothing in it");
    script.finds("one", &[], &[]);
    script.finds_the_same("two");
    script.approve();
    script.finds_the_same("one");
    script.finds_the_same("two");
    script.asks("one");
    script.finds("one", &["a"], &[]);
    script.say("somebody suspends it and deletes it");
    script.edit(&of_sync("one"), |sync| {
        sync["spec"]["suspend"] = json!(true);
        sync["metadata"]["finalizers"] = json!(["convoke.dev/prune", "example.com/hold"]);
    });
    script.delete(&of_sync("one"));
    is_as_written("an end that leaves the objects", script);
}

#[test]
fn g15_an_end_that_meets_changes() {
    let mut one = git_sync("one", 2);
    one["spec"]["deletionPolicy"] = json!("Delete");
    let mut script = Script::start(vec![("one", one)]);
    script.listen();
    script.run();
    script.say("somebody annotates it at the moment when it gets its finalizer");
    script.server.edit(&of_sync("one"), |sync| sync["metadata"]["labels"] = json!({"odd": "yes"}));
    script.finds("one", &["a", "b"], &[]);
    script.say(
        "nobody knows whether the namespace is there when it is deleted, and deletes do not arrive",
    );
    script.loses = Some(|call| matches!(call, Call::FindNamespace | Call::Delete { .. }));
    script.delete(&of_sync("one"));
    script.pass(Duration::from_secs(3));
    script.loses = None;
    script.say("somebody annotates it at the moment when it gives up its finalizer");
    script.server.edit(&Name::Object(id("a")), |object| {
        object["metadata"]["labels"] = json!({"odd": "yes"});
    });
    script.pass(Duration::from_secs(30));
    is_as_written("an end that meets changes", script);
}

#[test]
fn g15_an_end_of_one_that_does_not_parse() {
    let mut script = ending(|_| {});
    script.edit_spec("one", "prune", json!({"maxDeletions": 3_000_000_000_u64}));
    script.delete(&of_sync("one"));
    is_as_written("an end of one that does not parse", script);
}
