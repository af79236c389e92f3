//! Commits, changes by hand, and deletes that are held.

use std::time::Duration;

use serde_json::{Value, json};

use super::is_as_written;
use crate::api::{Kind, ObjectId, keys};
use crate::definition::Catalog;
use crate::sync::io::poll::SourceFailure;
use crate::sync::poll::Moved;
use crate::sync::properties::repository::wrong;
use crate::sync::reasons::SourceReason;
use crate::sync::simulation::server::Name;
use crate::sync::tests::script::{Script, git_sync, id, of_sync};

const A: &[(&str, usize)] = &[("a", 1), ("b", 2)];

fn contents(wants: &[(&str, usize)]) -> Vec<(ObjectId, usize)> {
    let kind = |name: &str| if name >= "x" { Kind::Agent } else { Kind::ModelAPI };
    wants.iter().map(|(name, content)| (ObjectId::new(kind(name), *name), *content)).collect()
}

fn of(name: &str) -> Name {
    Name::Object(contents(&[(name, 0)]).remove(0).0)
}

/// One that has applied these, with this spec.
fn applied(wants: &[(&str, usize)], change: impl FnOnce(&mut Value)) -> Script {
    let mut sync = git_sync("one", 2);
    change(&mut sync["spec"]);
    let mut script = Script::start(vec![("one", sync)]);
    script.run();
    script.finds_contents("one", &contents(wants));
    script.listen();
    script
}

#[test]
fn g8_g18_commits() {
    let mut script = Script::start(vec![("one", git_sync("one", 2))]);
    script.listen();
    script.run();
    script.say("the first look takes long");
    script.pass(Duration::from_secs(3));
    script.say("a commit with a model and an agent that refers to it");
    script.finds_contents("one", &contents(&[("a", 1), ("b", 1), ("x", 1)]));
    script.asks("one");
    script.say("a commit that changes two, adds one, and takes one out");
    script.finds_contents("one", &contents(&[("a", 2), ("c", 1), ("x", 2)]));
    script.asks("one");
    script.say("nothing new");
    script.finds_the_same("one");
    script.restart();
    script.say("the same commit is found");
    script.finds_contents("one", &contents(&[("a", 2), ("c", 1), ("x", 2)]));
    script.operator.moved("one", Moved::Variables);
    script.run();
    script.say("the values of the variables have changed nothing");
    script.finds_the_same("one");
    script.operator.moved("one", Moved::Folder);
    script.run();
    script.say("the folder has changed while it is looked at, too");
    script.operator.moved("one", Moved::Folder);
    script.finds_the_same("one");
    script.finds_the_same("one");
    script.edit_spec("one", "path", json!("elsewhere"));
    script.finds_contents("one", &contents(&[("a", 2), ("c", 1), ("x", 2)]));
    script.pass(Duration::from_secs(11 * 3600));
    is_as_written("commits", script);
}

#[test]
fn g14_changes_by_hand() {
    let mut script = applied(&[("a", 1), ("b", 2), ("x", 1)], |_| {});
    let by = |object: &mut Value, manager: &str, field: &str| {
        object["metadata"]["managedFields"] = json!([
            {"manager": manager, "operation": "Update", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:external": {field: {}}}}},
        ]);
    };
    for _ in 0..4 {
        script.say("somebody changes a field of a");
        script.edit(&of("a"), |object| {
            object["spec"]["external"]["url"] = json!("https://elsewhere.example");
            by(object, "kubectl-edit", "f:url");
        });
        script.pass(Duration::from_secs(5));
    }
    script.pass(Duration::from_secs(400));
    script.delete(&of("b"));
    script.say("somebody adds what Git does not have");
    script.edit(&of("x"), |object| object["spec"]["paused"] = json!(true));
    script
        .say("somebody changes an annotation of two that comes from Git, and takes the mark away");
    script.edit(&of("b"), |object| object["metadata"]["annotations"] = json!({}));
    script.say("somebody changes two at once");
    for name in ["a", "b"] {
        script.server.edit(&of(name), |object| {
            object["spec"]["external"]["url"] = json!("https://both.example");
        });
    }
    script.run();
    script.annotate(&of("a"), keys::RECONCILE, keys::DISABLED);
    script.say("somebody changes it, and nothing is done");
    script
        .edit(&of("a"), |object| object["spec"]["external"]["url"] = json!("https://mine.example"));
    script.asks("one");
    script.say("a commit changes it, too");
    script.finds_contents("one", &contents(&[("a", 3), ("b", 2), ("x", 1)]));
    script.annotate(&of("a"), keys::RECONCILE, "on");
    script.delete(&of("a"));
    script.edit_spec("one", "drift", json!("Report"));
    script.finds_the_same("one");
    script.say("somebody changes b");
    script
        .edit(&of("b"), |object| object["spec"]["external"]["url"] = json!("https://mine.example"));
    script.asks("one");
    script.finds_the_same("one");
    script.edit_spec("one", "drift", json!("Correct"));
    script.finds_the_same("one");
    is_as_written("changes by hand", script);
}

#[test]
fn g12_held_deletes() {
    let all = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 1)];
    let mut script = applied(&all, |_| {});
    script.annotate(&of("b"), keys::PRUNE, keys::DISABLED);
    script.asks("one");
    script.say("a commit takes five out, of which one is protected");
    script.finds_contents("one", &contents(&all[5..]));
    script.annotate(&of_sync("one"), keys::APPROVE_PRUNE, "of something else");
    script.asks("one");
    script.say("another commit changes one of the others, and takes one more out");
    script.finds_contents("one", &contents(&[("f", 2)]));
    script.approve();
    script.say("the look that the approval asks for finds nothing new");
    script.finds_the_same("one");
    script.annotate(&of("b"), keys::PRUNE, "on");
    script.asks("one");
    script.say("a commit with an error in it");
    let mut catalog = Catalog::default();
    catalog.problems.push(wrong());
    script.finds_catalog("one", catalog);
    script.edit_spec("one", "prune", json!({"enabled": false, "maxDeletions": 2}));
    script.finds_contents("one", &contents(&[("f", 2)]));
    script.edit_spec("one", "prune", json!({"maxDeletions": 0}));
    script.finds_contents("one", &contents(&[("h", 2)]));
    script.restart();
    script.say("the same commit is found");
    script.finds_contents("one", &contents(&[("h", 2)]));
    script.edit_spec("one", "suspend", json!(true));
    script.edit_spec("one", "suspend", json!(false));
    script.finds_the_same("one");
    script.approve();
    script.finds_the_same("one");
    is_as_written("held deletes", script);
}

#[test]
fn g14_drift_is_told_after_a_start_too() {
    let mut script = applied(&[("a", 1), ("b", 1)], |spec| spec["drift"] = json!("Report"));
    let again = script.read["one"].clone();
    for broken in [false, true] {
        script.say("the operator is down, and somebody deletes a and changes b");
        script.server.delete(&of("a"));
        script.server.edit(&of("b"), |object| {
            object["spec"]["external"]["url"] = json!("https://mine.example");
        });
        if broken {
            script.say("the commit was not applied whole");
            script.server.edit(&of_sync("one"), |sync| {
                sync["status"]["lastAppliedRevision"] = json!(null);
            });
        }
        script.restart();
        script.answers("one", Ok(again.clone()), true);
    }
    is_as_written("drift that is told", script);
}

#[test]
fn g7_broken_files() {
    let mut script = applied(&[("a", 1), ("b", 1), ("c", 1), ("x", 1)], |_| {});
    script.asks("one");
    script.say("a commit breaks the file of a, changes b and takes c out");
    let broken = |script: &mut Script| {
        let mut catalog = script.read["one"].catalog.clone();
        for name in ["a", "c"] {
            catalog.definitions.remove(&id(name));
        }
        catalog.broken.insert(id("a"), "one/a.yaml".into());
        catalog.problems.push(wrong());
        script.finds_catalog("one", catalog);
    };
    broken(&mut script);
    script.say("somebody changes a by hand, and deletes it");
    script
        .edit(&of("a"), |object| object["spec"]["external"]["url"] = json!("https://mine.example"));
    script.delete(&of("a"));
    script.restart();
    script.say("the commit is found again, and the one before it is not known");
    broken_anew(&mut script);
    script.asks("one");
    script.say("it is mended");
    script.finds_contents("one", &contents(&[("a", 1), ("b", 1), ("x", 1)]));
    is_as_written("broken files", script);
}

/// The commit with the broken file, read by an operator that knows nothing of the one before it.
fn broken_anew(script: &mut Script) {
    let mut catalog = Catalog::default();
    catalog.broken.insert(id("a"), "one/a.yaml".into());
    catalog.problems.push(wrong());
    script.finds_catalog("one", catalog);
}

#[test]
fn g6_g18_remotes_that_fail() {
    let mut script = Script::start(vec![("one", git_sync("one", 2))]);
    script.listen();
    script.run();
    script.say("the first look fails");
    script.fails("one");
    script.asks("one");
    script.finds_contents("one", &contents(A));
    script.asks("one");
    script.say("the remote does not answer");
    script.fails("one");
    script.say("somebody deletes an object meanwhile");
    script.delete(&of("a"));
    script.asks("one");
    script.say("the branch is gone");
    let failure = SourceFailure {
        reason: SourceReason::RefNotFound,
        message: "no branch main".into(),
        terminal: true,
        distrusts: false,
    };
    script.answers("one", Err(failure), false);
    script.asks("one");
    script.say("a look that never ends");
    script.pass(Duration::from_secs(50 * 60));
    script.edit_spec("one", "timeout", json!("30s"));
    script.finds_the_same("one");
    script.say("a watch of models is down");
    let now = script.now;
    script.operator.fail(&script.server, 1, true, now);
    script.pass(Duration::from_secs(61));
    let now = script.now;
    script.operator.still_fails(now);
    script.asks("one");
    script.say("a commit takes b out");
    script.finds_contents("one", &contents(&A[..1]));
    script.pass(Duration::from_secs(200));
    let now = script.now;
    script.operator.still_fails(now);
    script.asks("one");
    script.finds_the_same("one");
    script.say("the watch works again");
    let now = script.now;
    script.operator.fail(&script.server, 1, false, now);
    script.pass(Duration::from_secs(5));
    is_as_written("remotes that fail", script);
}
