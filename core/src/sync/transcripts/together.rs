//! Several GitSyncs of one namespace.

use std::time::Duration;

use serde_json::{Value, json};

use super::is_as_written;
use crate::sync::io::effect::Call;
use crate::sync::simulation::server::Name;
use crate::sync::tests::script::{Script, git_sync, id, of_sync};

/// These GitSyncs, and on which each depends.
fn several(syncs: &[(&'static str, &[&str])]) -> Script {
    let of = |(name, on): &(&'static str, &[&str])| {
        let mut sync = git_sync(name, 2);
        sync["spec"]["dependsOn"] = on.iter().map(|name| json!({"name": name})).collect();
        (*name, sync)
    };
    let mut script = Script::start(syncs.iter().map(of).collect());
    script.run();
    script
}

#[test]
fn g22_an_object_moves() {
    let mut script = several(&[("one", &[]), ("two", &[])]);
    script.finds("two", &["t"], &[]);
    script.finds("one", &["a", "b", "c"], &[]);
    script.listen();
    script.asks("one");
    script.say("one commit moves b, and takes c out; one sees it first");
    script.finds("one", &["a"], &[]);
    script.say("two sees it");
    script.finds("two", &["b", "t"], &[]);
    script.say("and one has looked after that");
    if script.looks("one") {
        script.finds_the_same("one");
    }
    script.asks("two");
    script.say("it moves back, and two sees it first; the remote of one does not answer");
    script.finds("two", &["t"], &[]);
    script.fails("one");
    script.asks("one");
    script.finds("one", &["a", "b"], &[]);
    if script.looks("two") {
        script.finds_the_same("two");
    }
    script.asks("two");
    script.say("both want a");
    script.finds("two", &["a", "t"], &[]);
    if script.looks("one") {
        script.finds_the_same("one");
    }
    script.asks("one");
    script.say("one gives it up");
    script.finds("one", &["b"], &[]);
    if script.looks("two") {
        script.finds_the_same("two");
    }
    is_as_written("an object moves", script);
}

#[test]
fn g22_deletes_that_wait_for_others() {
    let mut script = several(&[("one", &[]), ("two", &[]), ("three", &[])]);
    script.finds("two", &["t"], &[]);
    script.finds("three", &["u"], &[]);
    script.finds("one", &["a", "b", "c", "d", "e", "f"], &[]);
    script.listen();
    script.asks("one");
    script.say("a commit takes f out");
    script.finds("one", &["a", "b", "c", "d", "e"], &[]);
    script.say("two has broken files, three hangs");
    script.finds("two", &["t"], &["two/x.yaml", "two/y.yaml"]);
    script.pass(Duration::from_secs(70));
    script.finds_the_same("three");
    script.edit_spec("two", "suspend", json!(true));
    script.asks("one");
    script.say("a commit takes e out, too");
    script.finds("one", &["a", "b", "c", "d"], &[]);
    script.finds_the_same("three");
    script.approve();
    script.finds_the_same("one");
    if script.looks("three") {
        script.finds_the_same("three");
    }
    script.asks("one");
    script.say("a commit takes d out");
    script.finds("one", &["a", "b", "c"], &[]);
    script.finds_the_same("three");
    script.edit_spec("two", "suspend", json!(false));
    script.finds("two", &["t"], &[]);
    is_as_written("deletes that wait for others", script);
}

#[test]
fn g11_depends_on() {
    let mut script = several(&[("one", &["two"]), ("two", &[])]);
    script.listen();
    script.say("one sees its commit first");
    script.finds("one", &["a"], &[]);
    script.say("two fails");
    script.fails("two");
    script.asks("two");
    script.say("two is applied");
    script.finds("two", &["t"], &[]);
    if script.looks("two") {
        script.finds_the_same("two");
    }
    script.asks("one");
    script.say("a commit takes a out and adds b; two has not looked since");
    script.finds("one", &["b"], &[]);
    script.say("somebody deletes a, which is still wanted");
    script.delete(&Name::Object(id("a")));
    script.edit_spec("two", "suspend", json!(true));
    script.restart();
    script.finds("one", &["b"], &[]);
    script.edit_spec("two", "suspend", json!(false));
    script.say("two takes over a");
    script.finds("two", &["a", "t"], &[]);
    for _ in 0..3 {
        for name in ["one", "two"] {
            if script.looks(name) {
                script.finds_the_same(name);
            }
        }
    }
    script.edit_spec("two", "dependsOn", json!([{"name": "one"}]));
    for name in ["one", "two"] {
        if script.looks(name) {
            script.finds_the_same(name);
        }
    }
    script.edit_spec("one", "dependsOn", json!([{"name": "three"}, {"name": "two"}]));
    script.finds_the_same("one");
    script.asks("one");
    script.finds("one", &["c"], &[]);
    script.edit(&of_sync("two"), |sync| {
        sync["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    script.delete(&of_sync("two"));
    script.edit_spec("one", "dependsOn", json!([]));
    script.finds_the_same("one");
    is_as_written("dependsOn", script);
}

#[test]
fn g11_an_operator_that_starts_while_a_commit_waits() {
    let mut script = several(&[("one", &["two"]), ("two", &[])]);
    script.finds("two", &["t"], &[]);
    script.finds("one", &["a"], &[]);
    for name in ["two", "one"] {
        if script.looks(name) {
            script.finds_the_same(name);
        }
    }
    assert_eq!(script.ready("one"), "True: Succeeded");
    let again = script.read["one"].clone();
    script.listen();
    script.restart();
    script.say("one sees the commit that was applied");
    script.answers("one", Ok(again), true);
    script.asks("one");
    script.say("and then another one, while two is not read yet");
    script.finds("one", &["b"], &[]);
    script.fails("two");
    script.pass(Duration::from_secs(20));
    is_as_written("dependsOn after a start", script);
}

#[test]
fn g11_a_circle_and_what_is_released_by_others() {
    let mut script = several(&[("one", &[]), ("two", &["one"])]);
    script.listen();
    script.say("two finds its commit before one has looked");
    script.finds("two", &["t"], &[]);
    script.say("one finds its own, which fails to be applied at first");
    script.loses = Some(|call| matches!(call, Call::Apply { .. }));
    script.finds("one", &["a"], &[]);
    script.loses = None;
    script.pass(Duration::from_secs(5));
    for _ in 0..2 {
        for name in ["one", "two"] {
            if script.looks(name) {
                script.finds_the_same(name);
            }
        }
    }
    script.asks("one");
    script.say("a commit about one alone");
    script.finds("one", &["a", "b"], &[]);
    script.asks("two");
    script.say("a commit that changes nothing for two");
    script.finds("two", &["t"], &[]);
    script.edit_spec("one", "dependsOn", json!([{"name": "two"}]));
    script.finds_the_same("one");
    script.asks("two");
    script.finds("two", &["t", "u"], &[]);
    is_as_written("a circle of dependsOn", script);
}

#[test]
fn g18_statuses_of_others() {
    let mut script = several(&[("one", &[])]);
    script.finds("one", &["a"], &[]);
    script.listen();
    for seconds in [1, 2, 90] {
        script.say("somebody else writes the status");
        script.edit(&of_sync("one"), |sync: &mut Value| {
            sync["status"]["conditions"] = json!([]);
            sync["status"]["lastAppliedRevision"] = json!("mine");
        });
        script.pass(Duration::from_secs(seconds));
    }
    is_as_written("statuses of others", script);
}
