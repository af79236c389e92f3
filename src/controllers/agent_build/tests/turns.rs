use super::*;
use crate::cluster::live::Stores;

const LIMITS: Limits = Limits { total: 3, namespace: 2 };

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    Key::new(namespace, name)
}

fn waiting(all: &[(&str, i64)]) -> HashMap<Key, Timestamp> {
    all.iter()
        .map(|(text, since)| (key(text), Timestamp::from_second(*since).expect("a time")))
        .collect()
}

fn running(all: &[&str]) -> Vec<Key> {
    all.iter().map(|text| key(text)).collect()
}

fn chosen(waits: &[(&str, i64)], runs: &[&str]) -> Vec<String> {
    next(&waiting(waits), &running(runs), LIMITS).iter().map(ToString::to_string).collect()
}

#[test]
fn b7_who_waits_longest_comes_first_within_both_limits() {
    assert_eq!(chosen(&[], &[]), [""; 0]);
    assert_eq!(
        chosen(&[("a/3", 3), ("a/1", 1), ("a/2", 2)], &[]),
        ["a/1", "a/2"],
        "two of a namespace"
    );
    assert_eq!(chosen(&[("a/1", 1)], &["b/1", "b/2", "c/1"]), [""; 0], "three in all");
    assert_eq!(
        chosen(&[("a/1", 1), ("b/9", 9)], &["a/x", "a/y"]),
        ["b/9"],
        "a full namespace holds up no other"
    );
    assert_eq!(chosen(&[("a/1", 1), ("a/2", 2)], &["a/1"]), ["a/2"], "what runs does not wait");
}

#[test]
fn b7_a_namespace_with_many_builds_does_not_hold_up_the_others() {
    let mut waits: Vec<(String, i64)> = (0..28).map(|n| (format!("big/{n:02}"), n)).collect();
    waits.push(("small/1".into(), 100));
    waits.push(("tiny/1".into(), 101));
    let waits: Vec<_> = waits.iter().map(|(text, since)| (text.as_str(), *since)).collect();
    assert_eq!(chosen(&waits, &[]), ["big/00", "small/1", "tiny/1"]);
    assert_eq!(chosen(&waits, &["big/x", "big/y"]), ["small/1"]);
}

#[test]
fn b7_more_runs_than_a_namespace_may_have_take_no_turns_of_others() {
    let many: Vec<_> = (0..50).map(|number| format!("a/{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(
        chosen(&[("a/x", 1), ("b/1", 2), ("b/2", 3)], &many),
        ["b/1"],
        "two of three are taken"
    );
}

#[test]
fn b7_a_turn_is_taken_once_and_given_back() {
    let owners = Owners::new(Stores::new().agent_builds, None);
    let turns = Turns::new(Limits { total: 1, namespace: 1 }, Arc::new(owners));
    let runs = Store::<Run>::new("PipelineRun");
    let now = Timestamp::from_second(1).expect("a time");
    let (one, two) = (key("a/1"), key("a/2"));
    assert!(turns.take(&one, &runs).is_none(), "it does not wait");
    turns.note(&one, Some(now));
    turns.note(&two, Some(now));
    let starting = turns.take(&one, &runs).expect("its turn");
    assert!(turns.take(&one, &runs).is_none());
    assert!(turns.take(&two, &runs).is_none());
    assert_eq!(turns.next(&runs), []);
    drop(starting);
    assert_eq!(turns.next(&runs), std::slice::from_ref(&one), "no PipelineRun was made");
    turns.note(&one, None);
    assert_eq!(turns.next(&runs), std::slice::from_ref(&two));
    turns.note(&two, None);
    assert!(turns.take(&two, &runs).is_none());
}

#[tokio::test(start_paused = true)]
async fn b7_who_waited_before_a_restart_keeps_its_place_until_its_source_is_known_or_ten_seconds() {
    let owners = Owners::new(Stores::new().agent_builds, None);
    let turns = Turns::new(Limits { total: 1, namespace: 1 }, Arc::new(owners));
    let runs = Store::<Run>::new("PipelineRun");
    let (one, two) = (key("a/1"), key("a/2"));
    let at = |second| Some(Timestamp::from_second(second).expect("a time"));
    let restart = || {
        for (key, since) in [(&one, 1), (&two, 2)] {
            turns.note(key, at(since));
            turns.doubt(key, Instant::now());
        }
    };
    restart();
    turns.note(&two, at(2));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(turns.take(&two, &runs).is_none(), "the first one may still come");
    turns.note(&one, at(1));
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(turns.take(&two, &runs).is_none(), "it has come");
    assert!(turns.take(&one, &runs).is_some());

    restart();
    turns.note(&two, at(2));
    tokio::time::advance(Duration::from_secs(5)).await;
    turns.doubt(&one, Instant::now());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(turns.take(&two, &runs).is_some(), "nobody is held up for longer than ten seconds");
}
