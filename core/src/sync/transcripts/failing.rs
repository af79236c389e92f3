//! Writes that fail, and what is done about it.

use std::time::Duration;

use serde_json::json;

use super::is_as_written;
use crate::api::{Kind, ObjectId};
use crate::sync::io::effect::Call;
use crate::sync::simulation::server::{Name, Rights};
use crate::sync::tests::script::{Script, git_sync, id};

fn models(wants: &[(&str, usize)]) -> Vec<(ObjectId, usize)> {
    wants.iter().map(|(name, content)| (id(name), *content)).collect()
}

#[test]
fn g9_g10_writes_that_are_refused() {
    for policy in ["Isolate", "Atomic"] {
        let mut sync = git_sync("one", 2);
        sync["spec"]["failurePolicy"] = json!(policy);
        sync["spec"]["retryInterval"] = json!("1m");
        let mut script = Script::start(vec![("one", sync)]);
        script.run();
        script.finds_contents("one", &models(&[("a", 1), ("b", 1), ("c", 1)]));
        script.listen();
        script.server.refuses = Some("https://7.".into());
        script.asks("one");
        script.say("a commit changes two, of which one is refused, and takes one out");
        script.finds_contents("one", &models(&[("a", 7), ("b", 2)]));
        script.asks("one");
        script.say("asked once more");
        script.finds_the_same("one");
        script.server.refuses = None;
        script.asks("one");
        script.say("it is let through");
        script.finds_the_same("one");
        script.say("the server does not answer to writes of a");
        script.loses = Some(
            |call| matches!(call, Call::Apply { id, .. } | Call::Rehearse { id, .. } if id.name == "a"),
        );
        script.asks("one");
        script.finds_contents("one", &models(&[("a", 3), ("b", 3)]));
        script.pass(Duration::from_secs(10));
        script.say("it does again");
        script.loses = None;
        script.pass(Duration::from_secs(60));
        script.say("nor to deletes");
        script.loses = Some(|call| matches!(call, Call::Delete { .. }));
        script.asks("one");
        script.finds_contents("one", &models(&[("a", 3)]));
        script.pass(Duration::from_secs(3));
        script.loses = None;
        script.pass(Duration::from_secs(60));
        script.say("nor to statuses");
        script.loses = Some(|call| matches!(call, Call::Status { .. }));
        script.asks("one");
        script.finds_contents("one", &models(&[("a", 4)]));
        script.pass(Duration::from_secs(3));
        script.loses = None;
        script.pass(Duration::from_secs(60));
        is_as_written(&format!("refused writes, {policy}"), script);
    }
}

#[test]
fn g16_rights_that_are_missing() {
    let mut sync = git_sync("one", 2);
    sync["spec"]["serviceAccountName"] = json!("deployer");
    sync["spec"]["retryInterval"] = json!("1m");
    let mut script = Script::start(vec![("one", sync)]);
    script.server.rights = Rights { no_account: true, ..Rights::default() };
    script.run();
    script.listen();
    script.say("the ServiceAccount does not exist");
    script.finds_contents("one", &models(&[("a", 1), ("b", 1)]));
    script.pass(Duration::from_secs(70));
    script.say("the operator may not act as it");
    script.server.rights = Rights { no_acting: true, ..Rights::default() };
    script.pass(Duration::from_secs(70));
    script.say("it may not write");
    script.server.rights = Rights { no_verb: Some("patch"), ..Rights::default() };
    script.pass(Duration::from_secs(140));
    script.say("it may");
    script.server.rights = Rights::default();
    script.pass(Duration::from_secs(70));
    script.asks("one");
    script.say("a commit takes one out, and it may not delete");
    script.server.rights = Rights { no_verb: Some("delete"), ..Rights::default() };
    script.finds_contents("one", &models(&[("a", 1)]));
    script.pass(Duration::from_secs(10));
    script.server.rights = Rights::default();
    script.pass(Duration::from_secs(70));
    script.say("it may not act any more, and somebody changes an object");
    script.server.rights = Rights { no_acting: true, ..Rights::default() };
    script.edit(&Name::Object(id("a")), |object| {
        object["spec"]["external"]["url"] = json!("https://mine.example");
    });
    script.server.rights = Rights::default();
    script.pass(Duration::from_secs(70));
    script.edit_spec("one", "serviceAccountName", json!("No Name"));
    is_as_written("missing rights", script);
}

#[test]
fn g18_a_git_sync_that_cannot_be_read() {
    let mut script = Script::start(vec![("one", git_sync("one", 2))]);
    script.run();
    script.finds_contents("one", &models(&[("a", 1)]));
    script.listen();
    script.edit_spec("one", "prune", json!({"maxDeletions": 3_000_000_000_u64}));
    script.delete(&Name::Object(id("a")));
    script.say("the API server does not answer when it is changed again");
    script.loses = Some(|call| matches!(call, Call::GetSync { .. }));
    script.edit_spec("one", "prune", json!({"maxDeletions": 4_000_000_000_u64}));
    script.pass(Duration::from_secs(2));
    script.loses = None;
    script.pass(Duration::from_secs(5));
    script.edit_spec("one", "prune", json!({"maxDeletions": 3}));
    script.finds_the_same("one");
    is_as_written("a GitSync that does not parse", script);
}

#[test]
fn g14_objects_of_others() {
    let mut script = Script::start(vec![("one", git_sync("one", 2))]);
    script.run();
    let made = |name: &str, annotations: serde_json::Value| {
        json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"mode": "External", "external": {"url": "https://m.example"}},
        })
    };
    for (name, annotations) in [
        ("a", json!({})),
        ("b", json!({"convoke.dev/adopt-by": "one"})),
        ("c", json!({"convoke.dev/owner": "gone/team/other/ModelAPI/team/c"})),
        ("d", json!({"convoke.dev/owner": "gone/team/one/ModelAPI/team/d"})),
        ("e", json!({"convoke.dev/owner": "nonsense"})),
    ] {
        script.server.make(&Name::Object(id(name)), made(name, annotations));
    }
    let agent = ObjectId::new(Kind::Agent, "x");
    script.run();
    script.listen();
    script.say("a commit wants five objects that are there already, and an agent");
    let mut wants = models(&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)]);
    wants.push((agent.clone(), 1));
    script.finds_contents("one", &wants);
    script.annotate(&Name::Object(id("a")), "convoke.dev/adopt-by", "one");
    script.delete(&Name::Object(id("e")));
    script.say("something else keeps the agent, which somebody deletes");
    script.edit(&Name::Object(agent.clone()), |object| {
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    script.delete(&Name::Object(agent.clone()));
    script.pass(Duration::from_secs(20));
    script.say("it lets go");
    script.edit(&Name::Object(agent), |object| object["metadata"]["finalizers"] = json!([]));
    is_as_written("objects of others", script);
}
