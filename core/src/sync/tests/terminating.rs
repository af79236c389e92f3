//! What was deleted and is still there, because a finalizer of somebody keeps it.

use super::*;
use crate::api::git_sync::HistoryEntry;

fn finalizers(script: &mut Script, name: &str, finalizers: &[&str]) {
    let name = Name::Object(id(name));
    script.edit(&name, |object| object["metadata"]["finalizers"] = json!(finalizers));
}

/// One that has found a commit without x, which these finalizers keep.
fn without_x(keepers: &[&str]) -> Script {
    let mut script = Script::new(&[], &ALL, 8);
    finalizers(&mut script, "x", keepers);
    script.asks("one");
    script.finds("one", &["a", "b", "c", "d", "e", "y", "z"], &[]);
    script
}

fn message(script: &Script, condition: &str) -> Option<(String, String)> {
    let conditions = script.status("one").conditions;
    let found = conditions.into_iter().find(|c| c.type_ == condition)?;
    Some((found.reason, found.message))
}

fn newest(script: &Script) -> (String, i64) {
    let history = script.status("one").history;
    let HistoryEntry { outcome, pruned, .. } = history.into_iter().next().expect("an entry");
    (outcome, pruned)
}

#[test]
fn g18_what_was_deleted_and_is_still_there_is_told_until_it_is_gone() {
    let mut script = without_x(&["example.com/hold"]);
    assert_eq!(script.ready("one"), "False: Terminating");
    let (reason, told) = message(&script, "Reconciling").expect("it goes on by itself");
    assert_eq!(reason, "Terminating");
    assert!(told.contains("ModelAPI/x (example.com/hold)"), "{told}");
    assert_eq!(newest(&script), ("Progressing".to_owned(), 1));

    // Nobody writes, looks or deletes again while it is there, however long that is.
    let version = script.server.version;
    script.pass(Duration::from_secs(9 * 3600));
    assert!(!script.looks("one"));
    assert_eq!(script.server.version, version);
    // Nor does an operator that comes next.
    script.operator = Operator::new(&script.server, script.now, 2, 48);
    script.run();
    script.finds_the_same("one");
    assert_eq!(
        (script.ready("one"), script.server.version),
        ("False: Terminating".into(), version)
    );

    let said = script.said("one");
    finalizers(&mut script, "x", &[]);
    assert_eq!(script.ready("one"), "True: Succeeded");
    assert_eq!(message(&script, "Reconciling"), None);
    assert!(!script.looks("one"), "the watch has told of it");
    assert_eq!(script.said("one"), said + 1);
    assert_eq!(newest(&script), ("Applied".to_owned(), 1), "one entry of all of it");
    assert_eq!(script.status("one").history.len(), 2);
}

#[test]
fn g18_what_a_delete_answers_counts_before_the_watch_shows_it() {
    let mut script = Script::new(&[], &ALL, 8);
    finalizers(&mut script, "x", &["example.com/hold"]);
    for name in ALL {
        script.edit(&Name::Object(id(name)), |object| {
            object["status"]["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "Ready",
                "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        });
    }
    script.asks("one");
    script.finds("one", &["a", "b", "c", "d", "e", "y", "z"], &[]);
    assert_eq!(script.ready("one"), "False: Terminating");
    let statuses = script.server.log.iter().filter(|shown| shown.name == of_sync("one"));
    let statuses = statuses.filter_map(|shown| Some(shown.object.as_ref()?["status"].clone()));
    let going = |status: &Value| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["reason"] == "Terminating")
    };
    let told: Vec<_> =
        statuses.filter(going).map(|status| status["objects"]["ready"].clone()).collect();
    assert_eq!(told, [json!(7)], "what is being deleted is not ready any more");
}

#[test]
fn g18_what_keeps_an_object_is_told_anew_when_that_changes() {
    let mut script = without_x(&["example.com/one", "example.com/two"]);
    let told = |script: &Script| message(script, "Ready").expect("Ready").1;
    assert!(told(&script).contains("(example.com/one, example.com/two)"), "{}", told(&script));
    finalizers(&mut script, "x", &["example.com/two"]);
    assert!(told(&script).contains("(example.com/two)"), "{}", told(&script));
}

#[test]
fn g18_a_delete_that_nobody_holds_up_is_told_with_one_write() {
    let script = without_x(&[]);
    assert_eq!(script.ready("one"), "True: Succeeded");
    // The request, and the status.
    assert_eq!(newest(&script), ("Applied".to_owned(), 1));
    let statuses = |script: &Script| {
        let shown = script.server.log.iter().filter(|shown| shown.name == of_sync("one"));
        shown.filter_map(|shown| Some(shown.object.as_ref()?["status"].clone())).collect::<Vec<_>>()
    };
    let mut all = statuses(&script);
    all.dedup();
    let ready = |status: &Value| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.filter(|one| one["type"] == "Ready");
        ready.map(|one| one["status"].clone()).next()
    };
    let last: Vec<_> = all.iter().rev().take(2).map(ready).collect();
    assert_eq!(last, [Some(json!("True")), Some(json!("True"))], "from the one to the other");
}

#[test]
fn g18_a_wanted_object_that_somebody_deletes_is_one_entry_of_the_history() {
    let mut script = Script::new(&[], &ALL, 8);
    finalizers(&mut script, "a", &["example.com/hold"]);
    script.server.delete(&Name::Object(id("a")));
    script.run();
    assert_eq!(script.ready("one"), "False: Terminating");
    finalizers(&mut script, "a", &[]);
    assert_eq!(script.ready("one"), "True: Succeeded");
    let history = script.status("one").history;
    let short: Vec<_> = history.iter().map(|h| (h.outcome.as_str(), h.created)).collect();
    assert_eq!(short, [("Applied", 1), ("Applied", 8)]);
}
