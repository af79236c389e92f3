//! The events that are sent: each change once, and of the object that it is about.

use super::*;
use crate::api::{API_VERSION, Kind, ObjectId};
use crate::sync::io::effect::Event;
use crate::sync::io::poll::SourceFailure;
use crate::sync::reasons::SourceReason;

const NOTHING: [&str; 0] = [];

/// The events since the last call.
fn told(script: &mut Script) -> Vec<String> {
    let events = std::mem::take(&mut script.operator.events);
    let words = |Event { about, type_, reason, .. }: &Event| {
        let kind = about.kind.as_deref().expect("a kind");
        let name = about.name.as_deref().expect("a name");
        let object = match Kind::parse(kind) {
            Some(kind) => Name::Object(ObjectId::new(kind, name)),
            None => of_sync(name),
        };
        let live = script.server.get(&object);
        let uid = live.and_then(|live| live["metadata"]["uid"].as_str());
        // One that has just ended is still told of.
        assert!(live.is_none() || about.uid.as_deref() == uid, "{about:?}");
        let place = (about.api_version.as_deref(), about.namespace.as_deref());
        assert_eq!(place, (Some(API_VERSION), Some(NAMESPACE)));
        format!("{} {reason} {kind}/{name}", type_.as_str())
    };
    events.iter().map(words).collect()
}

/// One with these objects, of which all is reported.
fn ready(wants: &[&str]) -> Script {
    let mut script = Script::new(&[], wants, 2);
    script.operator.events.clear();
    script
}

fn failure(reason: SourceReason, message: &str) -> SourceFailure {
    SourceFailure { reason, message: message.into(), terminal: false, distrusts: false }
}

fn foreign(name: &str) -> Value {
    json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": name},
        "spec": {"mode": "External", "external": {"url": "https://m.example"}},
    })
}

#[test]
fn g18_a_first_look_that_fails_is_told_once_and_not_by_the_next_operator() {
    let mut script = Script::start(vec![("one", git_sync("one", 2))]);
    script.run();
    script.fails("one");
    assert_eq!(told(&mut script), ["Warning ConnectionFailed GitSync/one"]);
    // The same in other words.
    script.asks("one");
    script.answers("one", Err(failure(SourceReason::ConnectionFailed, "it hangs up")), false);
    assert_eq!(script.status("one").conditions[0].message, "it hangs up");
    assert_eq!(told(&mut script), NOTHING);
    script.restart();
    script.pass(Duration::from_secs(3));
    script.answers("one", Err(failure(SourceReason::ConnectionFailed, "it hangs up")), false);
    assert_eq!(script.ready("one"), "False: ConnectionFailed");
    assert_eq!(told(&mut script), NOTHING);
}

#[test]
fn g18_one_that_waits_for_another_one_or_has_nobody_to_write_as_is_told() {
    let mut sync = git_sync("one", 2);
    sync["spec"]["dependsOn"] = json!([{"name": "two"}]);
    let mut script = Script::start(vec![("one", sync)]);
    script.run();
    script.finds("one", &["a"], &[]);
    assert_eq!(told(&mut script), ["Warning DependencyNotReady GitSync/one"]);
    script.pass(Duration::from_secs(60));
    assert_eq!(told(&mut script), NOTHING);
    script.edit_spec("one", "serviceAccountName", json!("No Name"));
    assert_eq!(told(&mut script), ["Warning InvalidServiceAccount GitSync/one"]);
}

#[test]
fn g18_a_suspension_and_its_end_are_told_once_each() {
    let mut script = ready(&ALL[..2]);
    script.edit_spec("one", "suspend", json!(true));
    assert_eq!(told(&mut script), ["Normal Suspended GitSync/one"]);
    script.pass(Duration::from_secs(1200));
    assert_eq!(told(&mut script), NOTHING);
    script.edit_spec("one", "suspend", json!(false));
    script.pass(Duration::from_secs(3));
    assert_eq!(script.ready("one"), "Unknown: Progressing");
    assert_eq!(told(&mut script), ["Normal Resumed GitSync/one"]);
    // It is what it was before.
    script.finds_the_same("one");
    assert_eq!(script.ready("one"), "True: Succeeded");
    assert_eq!(told(&mut script), NOTHING);

    // What is known at once of one that goes on tells that it does.
    for (suspend, event) in [(true, "Normal Suspended GitSync/one"), (false, "")] {
        script.edit_spec("one", "suspend", json!(suspend));
        assert_eq!(told(&mut script).concat(), event);
    }
    script.answers("one", Err(failure(SourceReason::PathMissing, "no folder one")), false);
    assert_eq!(told(&mut script), ["Warning PathMissing GitSync/one"]);
}

#[test]
fn g18_one_that_does_not_parse_is_told_once_and_so_is_that_it_does_again() {
    let mut script = ready(&ALL[..2]);
    script.edit_spec("one", "prune", json!({"maxDeletions": 3_000_000_000_u64}));
    assert_eq!(told(&mut script), ["Warning InvalidSpec GitSync/one"]);
    script.edit_spec("one", "prune", json!({"maxDeletions": 4_000_000_000_u64}));
    assert_eq!(told(&mut script), NOTHING);
    script.edit_spec("one", "prune", json!({"maxDeletions": 2}));
    script.finds_the_same("one");
    assert_eq!(told(&mut script), ["Normal Succeeded GitSync/one"]);
}

#[test]
fn g15_the_end_of_one_that_does_not_parse_is_told() {
    let mut sync = git_sync("one", 2);
    sync["spec"]["deletionPolicy"] = json!("Delete");
    let mut script = Script::start(vec![("one", sync)]);
    script.run();
    script.finds("one", &["a"], &[]);
    script.edit_spec("one", "prune", json!({"maxDeletions": 3_000_000_000_u64}));
    script.operator.events.clear();
    script.delete(&of_sync("one"));
    assert_eq!(told(&mut script), ["Warning Orphaned GitSync/one"]);
}

#[test]
fn g18_another_reason_is_told_although_as_much_of_the_commit_is_applied_as_before() {
    let mut script = ready(&ALL[..2]);
    let look = |script: &mut Script, reason: SourceReason| {
        script.asks("one");
        script.answers("one", Err(failure(reason, reason.as_str())), false);
        told(script)
    };
    assert_eq!(
        look(&mut script, SourceReason::ConnectionFailed),
        ["Warning ConnectionFailed GitSync/one"]
    );
    assert_eq!(look(&mut script, SourceReason::RefNotFound), ["Warning RefNotFound GitSync/one"]);
    assert_eq!(look(&mut script, SourceReason::RefNotFound), NOTHING);
    script.asks("one");
    script.finds_the_same("one");
    assert_eq!(told(&mut script), ["Normal Succeeded GitSync/one"]);
}

#[test]
fn g18_what_can_be_told_only_later_is_one_event_of_all_of_it() {
    let mut script = ready(&ALL[..2]);
    script.loses = Some(|call| matches!(call, Call::Status { .. }));
    script.asks("one");
    script.finds("one", &ALL[..3], &[]);
    script.pass(Duration::from_secs(3));
    assert_eq!(told(&mut script), NOTHING);
    script.loses = None;
    script.pass(Duration::from_secs(60));
    let note = script.operator.events.last().map(|event| event.note.clone()).expect("an event");
    assert!(note.ends_with("(1 created, 0 updated, 0 pruned)"), "{note}");
    assert_eq!(told(&mut script), ["Normal Succeeded GitSync/one"]);
}

#[test]
fn g22_to_hand_over_is_no_warning() {
    let mut script = asking(&["x"], &["two"], 2);
    script.operator.events.clear();
    script.finds("two", &["x"], &[]);
    assert_eq!(script.ready("one"), "False: HandingOver");
    let told = told(&mut script);
    assert!(told.contains(&"Normal HandingOver GitSync/one".to_owned()), "{told:?}");
}

#[test]
fn g18_a_refused_write_is_told_of_its_object_once_and_not_by_the_next_operator() {
    let mut script = ready(&ALL[..2]);
    for content in [7, 8] {
        script.server.refuses = Some(format!("https://{content}."));
        script.asks("one");
        script.finds_contents("one", &[(id("a"), content), (id("b"), 1)]);
        let both = ["Warning ProblemsFound GitSync/one", "Warning Refused ModelAPI/a"];
        assert_eq!(told(&mut script), both);
        // Each poll tries it again.
        script.asks("one");
        script.finds_the_same("one");
        assert_eq!(told(&mut script), NOTHING);
        let same = script.read["one"].clone();
        script.restart();
        script.answers("one", Ok(same), true);
        assert_eq!(script.ready("one"), "False: ProblemsFound");
        assert_eq!(told(&mut script), NOTHING);
        script.server.refuses = None;
        script.asks("one");
        script.finds_the_same("one");
        assert_eq!(told(&mut script), ["Normal Succeeded GitSync/one"]);
    }
}

#[test]
fn g18_ten_conflicts_are_told_of_their_objects_and_the_rest_of_the_git_sync() {
    let mut script = ready(&ALL[..2]);
    let names: Vec<_> = (0..12).map(|number| format!("f{number:02}")).collect();
    for name in &names {
        script.server.make(&Name::Object(id(name)), foreign(name));
    }
    script.run();
    script.asks("one");
    let wants: Vec<_> = ALL[..2].iter().copied().chain(names.iter().map(String::as_str)).collect();
    script.finds("one", &wants, &[]);
    let rest = script.operator.events.last().map(|event| event.note.clone()).expect("an event");
    assert!(rest.starts_with("2 more object(s)") && rest.contains("(2 Conflict)"), "{rest}");
    let mut expected = vec!["Warning ProblemsFound GitSync/one".to_owned()];
    expected.extend(names[..10].iter().map(|name| format!("Warning Conflict ModelAPI/{name}")));
    expected.push("Warning Conflict GitSync/one".to_owned());
    assert_eq!(told(&mut script), expected);
    script.asks("one");
    script.finds_the_same("one");
    assert_eq!(told(&mut script), NOTHING);
}

#[test]
fn g14_a_change_by_hand_is_told_of_its_object() {
    let mut script = ready(&ALL[..2]);
    script.edit(&Name::Object(id("a")), |object| {
        object["spec"]["external"]["url"] = json!("https://mine.example");
    });
    let both = ["Normal Succeeded GitSync/one", "Normal DriftCorrected ModelAPI/a"];
    assert_eq!(told(&mut script), both);
}

#[test]
fn g14_whoever_deletes_an_object_as_soon_as_it_is_back_is_contention() {
    let mut script = ready(&["a", "b"]);
    script.right_after = Some(|server| server.delete(&Name::Object(id("a"))));
    script.delete(&Name::Object(id("a")));
    let problems = script.status("one").problems;
    assert!(problems[0].message.contains("deleted by somebody"), "{problems:?}");
    script.right_after = None;
    script.pass(Duration::from_secs(3600));
    assert_eq!(script.objects(), ["a", "b"]);
}

#[test]
fn g3_a_tag_that_moves_is_told_once_and_a_branch_is_not() {
    for (reference, moves) in [("tag", true), ("semver", true), ("branch", false)] {
        let mut sync = git_sync("one", 9);
        let name = if reference == "semver" { "*" } else { "main" };
        sync["spec"]["ref"] = json!({reference: name});
        let mut script = Script::start(vec![("one", sync)]);
        script.run();
        script.finds("one", &["a"], &[]);
        script.operator.events.clear();
        script.asks("one");
        script.finds_the_same("one");
        assert_eq!(told(&mut script), NOTHING);
        script.asks("one");
        script.finds("one", &["a", "b"], &[]);
        let is_told = |script: &mut Script| {
            let events = told(script);
            events.iter().filter(|event| *event == "Warning TagMoved GitSync/one").count()
        };
        assert_eq!(is_told(&mut script), usize::from(moves), "{reference}");
        script.asks("one");
        script.finds_the_same("one");
        assert_eq!(is_told(&mut script), 0, "{reference}");
    }
}
