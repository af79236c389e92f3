#![allow(clippy::disallowed_methods)] // a point to count from

use std::collections::BTreeSet;
use std::time::Duration;

use kube::core::DeserializeGuard;

use super::*;
use crate::api::Kind;
use crate::cluster::view;
use crate::definition::Catalog;
use crate::sync::properties::definition;
use crate::test_rng::TestRng;

type Wants = BTreeMap<Key, BTreeSet<&'static str>>;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn told(wants: &BTreeSet<&str>, round: usize) -> Announced {
    let mut catalog = Catalog::default();
    for name in wants {
        let id = ObjectId::new(Kind::ModelAPI, *name);
        catalog.definitions.insert(id.clone(), definition(&id, round));
    }
    let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
    let loaded = Loaded::of(&spec.expect("a spec"), &format!("{round}"), catalog, None);
    let (polled, loaded) = (Seq::next(), Some(Arc::new(loaded)));
    Announced { uid: "uid".into(), generation: 1, polled, loaded, failed: false }
}

/// What the peers know of each pair, and what that has to be: every object of one, looked for in the other.
fn check(peers: &Peers, wants: &Wants) {
    let inner = peers.lock();
    let known = |one: &Key, two: &Key| -> BTreeSet<String> {
        let both = inner.contested.get(one).and_then(|all| all.get(two));
        both.into_iter().flatten().map(|id| id.name.clone()).collect()
    };
    for (one, mine) in wants {
        for (two, theirs) in wants.iter().filter(|(two, _)| *two != one) {
            let near = one.namespace == two.namespace;
            let both = mine.intersection(theirs).filter(|_| near);
            assert_eq!(known(one, two), both.map(|name| (*name).to_owned()).collect());
        }
    }
    let all = inner.contested.iter().flat_map(|(one, all)| all.iter().map(move |e| (one, e)));
    for (one, (two, both)) in all {
        let known = wants.contains_key(one) && wants.contains_key(two);
        assert!(known || both.is_empty(), "{one} and {two}");
    }
}

/// GitSyncs of the namespace `team` as the watch shows them: name, second in which it was made, suspended.
fn live(syncs: &[(&str, i64, bool)]) -> Arc<Store<Managed<GitSync>>> {
    let store = Store::new("GitSync");
    for (name, created, suspend) in syncs {
        let created = Timestamp::from_second(*created).expect("a time").to_string();
        let object = serde_json::json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": name, "namespace": "team", "uid": "uid", "generation": 1,
                "creationTimestamp": created, "resourceVersion": "1"},
            "spec": {"url": "https://git.example", "suspend": suspend},
        });
        let object = serde_json::from_value(object).expect("a GitSync");
        let (key, entry) = view::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
        store.applied(key, entry);
    }
    store
}

const MAIN: (&str, i64, bool) = ("main", 200, false);

#[test]
fn g22_a_look_counts_when_it_began_after_the_commit_was_found_and_with_the_spec_of_now() {
    let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
    let (before, found, after) = (Seq::next(), Seq::next(), Seq::next());
    let store = live(&[MAIN, ("other", 100, false)]);
    let good = || Announced { polled: after, ..told(&["a"].into(), 1) };
    let asked = |told: Option<Announced>| {
        let peers = Peers::default();
        let _nobody = told.map(|told| peers.announce(&other, told));
        let view = peers.view(&main, found, Instant::now(), &store);
        (view.not_polled.len(), view.failed.len())
    };
    assert_eq!(asked(None), (1, 0), "it has told nothing");
    assert_eq!(asked(Some(good())), (0, 0));
    assert_eq!(asked(Some(Announced { failed: true, ..good() })), (0, 1));
    for stale in [
        Announced { polled: before, ..good() },
        Announced { polled: before, failed: true, ..good() },
        Announced { generation: 0, ..good() },
        Announced { uid: "of the one before".into(), ..good() },
    ] {
        assert_eq!(asked(Some(stale)), (1, 0), "it has to look again");
    }
}

#[test]
fn g22_what_is_in_a_broken_file_of_another_sync_is_wanted_by_it() {
    let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
    let store = live(&[MAIN, ("other", 100, false)]);
    let mut catalog = Catalog::default();
    let id = |name: &str| ObjectId::new(Kind::ModelAPI, name);
    catalog.definitions.insert(id("good"), definition(&id("good"), 1));
    catalog.broken.insert(id("broken"), "b.yaml".into());
    let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
    let loaded = Loaded::of(&spec.expect("a spec"), "c", catalog, None);
    let peers = Peers::default();
    let told = Announced { loaded: Some(Arc::new(loaded)), ..told(&BTreeSet::new(), 1) };
    let _nobody = peers.announce(&other, told);
    let view = peers.view(&main, Seq::default(), Instant::now(), &store);
    assert_eq!(view.unproven(), Unproven::default());
    for (name, by) in [("good", Some("other")), ("broken", Some("other")), ("else", None)] {
        assert_eq!(view.wanted_by(&id(name)).as_deref(), by, "{name}");
    }
}

#[test]
fn g22_a_suspended_sync_keeps_what_it_wanted_and_takes_nothing() {
    let (main, id) = (Key::new("team", "main"), ObjectId::new(Kind::ModelAPI, "a"));
    let peers = Peers::default();
    for name in ["main", "older", "younger"] {
        let _nobody = peers.announce(&Key::new("team", name), told(&["a"].into(), 1));
    }
    let rival = |older: bool, younger: bool| {
        let store = live(&[MAIN, ("older", 100, older), ("younger", 300, younger)]);
        let view = peers.view(&main, Seq::default(), Instant::now(), &store);
        assert_eq!(view.wanted_by(&id).as_deref(), Some("older"), "it is not deleted");
        view.contested().remove(&id).map(|rival| (rival.name, rival.older))
    };
    assert_eq!(rival(false, false), Some(("older".to_owned(), true)), "the oldest counts");
    assert_eq!(rival(true, false), Some(("younger".to_owned(), false)));
    assert_eq!(rival(true, true), None);
    // One that has not been read and will not be: nobody knows what it wants.
    let store = live(&[MAIN, ("silent", 100, true)]);
    let silent = Key::new("team", "silent");
    let unread = |since| peers.view(&main, since, Instant::now(), &store).unproven().unread;
    assert_eq!(unread(Seq::default()), ["GitSync silent"]);
    // Nor of one whose remote was away, and which was suspended for that.
    let away = Announced { loaded: None, failed: true, ..told(&[].into(), 1) };
    let _nobody = peers.announce(&silent, away);
    assert_eq!(unread(Seq::default()), ["GitSync silent"]);
    // Also if it had been read once: nobody knows what has come since.
    let _nobody = peers.announce(&silent, Announced { failed: true, ..told(&["a"].into(), 1) });
    assert_eq!(unread(Seq::default()), ["GitSync silent"]);
    // It has polled after the commit was found, and was suspended then.
    let _nobody = peers.announce(&silent, told(&["a"].into(), 1));
    assert_eq!(unread(Seq::default()), [""; 0]);
    // The next commit may have moved anything to it.
    assert_eq!(unread(Seq::next()), ["GitSync silent"]);
    let view = peers.view(&main, Seq::next(), Instant::now(), &store);
    assert_eq!(view.not_polled, [], "it is not asked");
    let reason = view.unproven().reason;
    assert!(reason.starts_with("GitSync silent is suspended, so"), "{reason}");
}

#[test]
fn g22_what_two_of_them_want_is_known_as_if_all_were_compared_each_time() {
    for seed in 0..200 {
        let (mut dice, peers, mut wants) = (TestRng::new(seed), Peers::default(), Wants::new());
        for round in 0..40 {
            let namespace = ["team", "far"][dice.roll(8) / 7];
            let key = Key::new(namespace, ["main", "other", "third"][dice.roll(3)]);
            let before = wants.clone();
            let rivals = |wants: &Wants, other: &Key| -> BTreeSet<&str> {
                match (wants.get(&key), wants.get(other)) {
                    (Some(a), Some(b)) => a.intersection(b).copied().collect(),
                    _ => BTreeSet::new(),
                }
            };
            let woken = if dice.roll(6) == 0 {
                wants.remove(&key);
                peers.forget(&key)
            } else {
                let set: BTreeSet<_> = NAMES.into_iter().filter(|_| dice.roll(2) == 0).collect();
                wants.insert(key.clone(), set.clone());
                peers.announce(&key, told(&set, round))
            };
            check(&peers, &wants);
            // Who is concerned hears of it, and nobody else does.
            let others = before.keys().filter(|other| **other != key);
            let concerned = others.filter(|other| {
                other.namespace == key.namespace && rivals(&before, other) != rivals(&wants, other)
            });
            let woken: BTreeSet<_> = woken.iter().collect();
            assert_eq!(woken, concerned.collect::<BTreeSet<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn g22_a_file_that_another_sync_cannot_read_may_hold_anything() {
    let main = Key::new("team", "main");
    for suspended in [false, true] {
        let store = live(&[MAIN, ("other", 100, suspended)]);
        let mut catalog = Catalog::default();
        catalog.broken_paths.insert("b/p.yaml".into());
        let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
        let loaded = Arc::new(Loaded::of(&spec.expect("a spec"), "c", catalog, None));
        for failed in [false, true] {
            let peers = Peers::default();
            let told =
                Announced { loaded: Some(loaded.clone()), failed, ..told(&BTreeSet::new(), 1) };
            let _nobody = peers.announce(&Key::new("team", "other"), told);
            let unproven = peers.view(&main, Seq::default(), Instant::now(), &store).unproven();
            let file = "GitSync other: b/p.yaml";
            let whole = failed.then_some("GitSync other");
            assert_eq!(unproven.unread, whole.into_iter().chain([file]).collect::<Vec<_>>());
            assert!(unproven.reason.contains("cannot read b/p.yaml"), "{}", unproven.reason);
            assert_eq!(unproven.reason.contains("GitSync other cannot be read"), failed);
        }
    }
}

#[test]
fn g22_a_look_that_began_in_time_answers_a_question_and_an_older_one_does_not() {
    let (peers, key) = (Peers::default(), Key::new("team", "other"));
    let early = told(&BTreeSet::new(), 1);
    let since = Seq::next();
    let late = told(&BTreeSet::new(), 1);
    let _ = peers.ask(&key, since, Instant::now());
    let _woken = peers.announce(&key, early);
    assert!(peers.is_asked(&key), "it looks once more");
    // Asked again while the poll is on its way.
    let _ = peers.ask(&key, since, Instant::now());
    let _woken = peers.announce(&key, late);
    assert!(!peers.is_asked(&key));
}

#[test]
fn g11_g22_who_waits_for_that_hears_that_it_is_others_who_take_something() {
    let (peers, giver) = (Peers::default(), Key::new("team", "main"));
    let takers = || peers.takers(&giver).into_iter().collect::<Vec<_>>();
    let gift = |name: &str, to: &str| (ObjectId::new(Kind::ModelAPI, name), to.to_owned());
    assert_eq!(peers.give(&giver, &[gift("a", "b"), gift("c", "d")], None), ["b", "d"]);
    assert_eq!(takers(), ["b", "d"]);
    peers.wait_for_takers(&Key::new("team", "w"));
    assert_eq!(peers.give(&giver, &[gift("a", "b"), gift("c", "d")], None), [""; 0], "no news");
    assert_eq!(peers.give(&giver, &[gift("a", "b"), gift("c", "d"), gift("e", "d")], None), ["d"]);
    assert_eq!(
        peers.give(&giver, &[gift("a", "b")], None),
        ["w"],
        "the other one has taken its own"
    );
    assert_eq!(takers(), ["b"]);
    assert_eq!(peers.give(&giver, &[], None), [""; 0], "it has gone on, or waits anew");
    assert_eq!(takers(), [""; 0]);
    peers.wait_for_takers(&Key::new("team", "w"));
    assert_eq!(peers.give(&giver, &[gift("a", "b")], None), ["b", "w"]);
}

#[test]
fn g22_one_that_has_not_answered_for_a_minute_cannot_be_read() {
    let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
    let store = live(&[MAIN, ("other", 100, false)]);
    let (peers, start) = (Peers::default(), Instant::now());
    let early = told(&BTreeSet::new(), 1);
    let since = Seq::next();
    assert!(peers.ask(&other, since, start));
    // Asked again, and by a poll that began too early: it has not answered yet.
    assert!(!peers.ask(&other, since, start + POLL_ANSWER_DEADLINE / 2), "it is asked already");
    let _woken = peers.announce(&other, early);
    let view =
        |seconds: u64| peers.view(&main, since, start + Duration::from_secs(seconds), &store);
    assert_eq!((view(59).not_polled.len(), view(59).failed.len()), (1, 0));
    assert_eq!((view(60).not_polled.len(), view(60).failed.len()), (0, 1));
    // It was suspended meanwhile: its minute begins when it can poll again.
    let _woken = peers.take_waiters(&other);
    assert!(peers.ask(&other, since, start + Duration::from_secs(3600)));
    assert_eq!((view(3659).not_polled.len(), view(3659).failed.len()), (1, 0));
    assert_eq!((view(3660).not_polled.len(), view(3660).failed.len()), (0, 1));
    let _woken = peers.announce(&other, told(&BTreeSet::new(), 1));
    assert_eq!((view(60).not_polled.len(), view(60).failed.len()), (0, 0));
}

#[test]
fn g22_broken_files_are_named_unless_they_are_many() {
    let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
    let store = live(&[MAIN, ("other", 100, false)]);
    for (count, named) in [(1, 1), (5, 5), (6, 0)] {
        let mut catalog = Catalog::default();
        catalog.broken_paths.extend((0..count).map(|n| format!("b/{n}.yaml")));
        let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
        let loaded = Arc::new(Loaded::of(&spec.expect("a spec"), "c", catalog, None));
        let peers = Peers::default();
        let told = Announced { loaded: Some(loaded), ..told(&BTreeSet::new(), 1) };
        let _nobody = peers.announce(&other, told);
        let view = peers.view(&main, Seq::default(), Instant::now(), &store);
        let files: Vec<_> = (0..named).map(|n| format!("GitSync other: b/{n}.yaml")).collect();
        let expected = if named == 0 { vec!["GitSync other".to_owned()] } else { files };
        assert_eq!(view.unproven().unread, expected);
        assert!(view.unproven().reason.contains("GitSync other cannot read b/0.yaml"));
    }
}

#[test]
fn g22_what_a_look_has_read_is_known_before_a_pass_takes_it_in() {
    let (peers, [one, two]) = (Peers::default(), ["one", "two"].map(|n| Key::new("team", n)));
    let store = live(&[("one", 1, false), ("two", 2, false)]);
    let _first = peers.announce(&one, told(&BTreeSet::new(), 0));
    assert!(!peers.wait(&one, &two, Seq::next()));
    let (news, found) = (peers.version("team"), told(&BTreeSet::from(["a"]), 1));
    peers.announce_unreconciled(&one, found.clone());
    assert!(peers.version("team") > news, "a delete that is about to be sent is not");
    let id = ObjectId::new(Kind::ModelAPI, "a");
    let view = peers.view(&two, Seq::default(), Instant::now(), &store);
    assert_eq!(view.wanted_by(&id).as_deref(), Some("one"));
    assert_eq!(peers.announce(&one, found), [two], "whoever waits is woken when it is taken in");
}

#[test]
fn g22_what_the_giver_wants_again_by_now_is_not_taken() {
    let (giver, taker) = (Key::new("team", "main"), Key::new("team", "other"));
    let store = live(&[MAIN, ("other", 100, false)]);
    let (peers, id) = (Peers::default(), ObjectId::new(Kind::ModelAPI, "a"));
    let gives = || {
        let view = peers.view(&taker, Seq::default(), Instant::now(), &store);
        let seen = view.gives.get("main").is_some_and(|gives| gives.contains_key(&id));
        let now = peers.gives(&giver, &id, "other");
        assert_eq!(seen, now, "a plan and the write of it");
        now
    };
    let read = |wants: &[&'static str], round| {
        let told = told(&wants.iter().copied().collect(), round);
        peers.announce_unreconciled(&giver, told.clone());
        told.loaded
    };
    let without = read(&["b"], 1);
    let gift = [(id.clone(), "other".to_owned())];
    assert_eq!(peers.give(&giver, &gift, without.as_ref()), ["other"]);
    assert!(gives());
    // It has read another commit, and no reconcile has planned with it yet.
    read(&["a", "b"], 2);
    assert!(!gives(), "it is wanted again");
    read(&["b"], 3);
    assert!(gives());
    // The younger one of two that want it leaves it to the older one, whatever it reads.
    let both = read(&["a"], 4);
    assert_eq!(peers.give(&giver, &gift, both.as_ref()), [""; 0]);
    read(&["a", "b"], 5);
    assert!(gives());
    // So does one that comes to its end.
    assert_eq!(peers.give(&giver, &gift, None), [""; 0]);
    read(&["a"], 6);
    assert!(gives());
}

#[test]
fn g22_only_another_commit_is_news_for_who_deletes() {
    let (peers, key) = (Peers::default(), Key::new("team", "other"));
    let first = told(&BTreeSet::from(["a"]), 1);
    assert_eq!(peers.version("team"), 0);
    let _woken = peers.announce(&key, first.clone());
    let known = peers.version("team");
    assert!(known > 0, "it was not known at all");
    let again = Announced { polled: Seq::next(), ..first };
    let _woken = peers.announce(&key, again);
    assert_eq!(peers.version("team"), known, "the same commit");
    let _woken = peers.announce(&key, told(&BTreeSet::from(["a"]), 2));
    assert!(peers.version("team") > known, "another one, also when it wants the same");
    assert_eq!(peers.version("far"), 0);
}

#[test]
fn g22_of_many_that_cannot_be_read_five_are_named() {
    let main = Key::new("team", "main");
    let names: Vec<_> = (0..8).map(|number| format!("s{number}")).collect();
    for (count, rest) in [(5, None), (7, Some("and 2 more"))] {
        let mut syncs = vec![MAIN];
        syncs.extend(names.iter().take(count).map(|name| (name.as_str(), 100, true)));
        let store = live(&syncs);
        let peers = Peers::default();
        let unproven = peers.view(&main, Seq::default(), Instant::now(), &store).unproven();
        assert_eq!(unproven.unread.len(), count);
        assert!(unproven.reason.contains("GitSync s4 is suspended"), "{}", unproven.reason);
        assert_eq!(unproven.reason.contains(" more"), rest.is_some(), "{}", unproven.reason);
        assert!(unproven.reason.contains(rest.unwrap_or_default()), "{}", unproven.reason);
    }
}

#[test]
fn g22_a_path_that_is_too_long_is_not_named() {
    let main = Key::new("team", "main");
    let store = live(&[MAIN, ("other", 100, false)]);
    for (length, named) in [(MOST_NAMED_PATH, true), (MOST_NAMED_PATH + 1, false)] {
        let mut catalog = Catalog::default();
        catalog.broken_paths.insert("p".repeat(length));
        let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
        let loaded = Arc::new(Loaded::of(&spec.expect("a spec"), "c", catalog, None));
        let peers = Peers::default();
        let told = Announced { loaded: Some(loaded), ..told(&BTreeSet::new(), 1) };
        let _nobody = peers.announce(&Key::new("team", "other"), told);
        let unproven = peers.view(&main, Seq::default(), Instant::now(), &store).unproven();
        let whole = unproven.unread == ["GitSync other"];
        assert_eq!(!whole, named, "{length}");
    }
}
