use super::*;

const KEY: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn built() -> RunOutcome {
    RunOutcome::Built { digest: format!("sha256:{}", "d".repeat(64)) }
}

fn failed(reason: &str) -> RunOutcome {
    RunOutcome::Failed { reason: reason.into(), message: "why".into() }
}

/// A run that began then, and took ten seconds.
fn run(name: &str, began: i64, outcome: RunOutcome) -> Run {
    let ended = (outcome != RunOutcome::Running).then(|| at(began + 10));
    Run {
        name: name.into(),
        key: Some(KEY.into()),
        commit: Some("c".into()),
        created: Some(at(began)),
        began: Some(at(began)),
        ended,
        ..Run::sample(outcome)
    }
}

fn limits(successful: u32, failed: u32) -> BuildHistory {
    BuildHistory { successful, failed }
}

fn names(history: &[BuildRecord]) -> Vec<&str> {
    history.iter().map(|record| record.pipeline_run.as_deref().unwrap_or("-")).collect()
}

#[test]
fn b9_the_newest_of_each_kind_stay_and_nothing_that_runs_goes() {
    let runs = [
        run("good-1", 10, built()),
        run("bad-1", 20, failed("Failed")),
        run("good-2", 30, built()),
        run("bad-2", 40, failed("Cancelled")),
        run("good-3", 50, built()),
        run("now", 60, RunOutcome::Running),
    ];
    let history = records(&[], &runs, &limits(2, 1));
    assert_eq!(names(&history), ["good-3", "bad-2", "good-2"]);
    let image = format!("r/i@sha256:{}", "d".repeat(64));
    assert_eq!((history[0].image.as_ref(), history[0].seconds), (Some(&image), Some(10)));
    assert_eq!((history[1].result, &history[1].image), (BuildResult::Cancelled, &None));
    let status = AgentBuildStatus { history, ..AgentBuildStatus::default() };
    let surplus: Vec<_> = runs.iter().filter(|run| is_surplus(run, &status, &[])).collect();
    assert_eq!(
        surplus.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["good-1", "bad-1"]
    );
    // What the status tells stays although the limit is zero.
    let told =
        AgentBuildStatus { pipeline_run: Some("bad-1".into()), history: Vec::new(), ..status };
    let surplus: Vec<_> = runs.iter().filter(|run| is_surplus(run, &told, &[])).collect();
    assert_eq!(
        surplus.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(),
        ["good-1", "good-2", "bad-2", "good-3"]
    );
}

#[test]
fn b9_what_is_known_stays_when_its_run_is_gone_and_is_written_once() {
    let first = records(&[], &[run("good-1", 10, built())], &limits(5, 3));
    let later = records(&first, &[run("good-2", 20, built())], &limits(5, 3));
    assert_eq!(names(&later), ["good-2", "good-1"]);
    assert_eq!(records(&later, &[], &limits(5, 3)), later, "settled: nothing to write");
    assert_eq!(records(&later, &[run("good-2", 20, built())], &limits(5, 3)), later);
    // A run of that name that was made anew.
    let anew = records(&later, &[run("good-1", 30, failed("Failed"))], &limits(5, 3));
    assert_eq!(names(&anew), ["good-1", "good-2"]);
    assert_eq!(anew[0].result, BuildResult::Failed);
    assert_eq!(names(&records(&later, &[], &limits(1, 0))), ["good-2"]);
}

#[test]
fn b1_an_image_counts_only_for_its_own_key() {
    let key = BuildKey::parse(KEY).expect("a key");
    let other = Run { key: Some("b".repeat(64)), ..run("other", 5, built()) };
    let unnamed = Run { image: None, ..run("unnamed", 6, built()) };
    let history = records(&[], &[run("bad", 10, failed("Failed")), other, unnamed], &limits(5, 3));
    assert_eq!(image_of(&history, &key), None);
    let history =
        records(&history, &[run("one", 20, built()), run("two", 30, built())], &limits(5, 3));
    assert_eq!(
        image_of(&history, &key).and_then(|record| record.pipeline_run.as_deref()),
        Some("two")
    );
}

#[test]
fn b7_a_run_is_stopped_for_a_newer_one_before_half_of_its_time_and_never_twice_in_a_row() {
    let (running, waiting) = (
        run("now", 100, RunOutcome::Running),
        Run { began: None, ..run("now", 100, RunOutcome::Running) },
    );
    // Nothing is known: two minutes.
    assert!(may_supersede(&[], &running, at(159)));
    assert!(!may_supersede(&[], &running, at(160)));
    assert!(may_supersede(&[], &waiting, at(999)), "Tekton has not begun");
    let good = |name: &str, began, seconds| Run {
        ended: Some(at(began + seconds)),
        ..run(name, began, built())
    };
    let history =
        records(&[], &[good("a", 1, 30), good("b", 2, 10), good("c", 3, 900)], &limits(5, 3));
    assert!(may_supersede(&history, &running, at(114)));
    assert!(!may_supersede(&history, &running, at(115)));
    let stopped = Run { superseded_by: Some(Run::newer()), ..run("s", 50, failed("Cancelled")) };
    let twice = records(&history, &[stopped], &limits(5, 3));
    assert_eq!(twice[0].result, BuildResult::Superseded);
    assert_eq!(twice[0].superseded_by, Some(Run::newer()));
    // It had made its image before it could stop.
    let late = Run { superseded_by: Some(Run::newer()), ..good("late", 50, 10) };
    assert_eq!(records(&[], &[late], &limits(5, 3))[0].superseded_by, None);
    assert!(!may_supersede(&twice, &running, at(101)));
    assert!(!may_supersede(&twice, &waiting, at(101)));
    let built_since = records(&twice, &[good("d", 60, 10)], &limits(5, 3));
    assert!(may_supersede(&built_since, &running, at(101)));
}

#[test]
fn b7_an_image_that_was_made_meanwhile_is_taken_until_the_newest_key_has_one() {
    let (newest, between) = ("n".repeat(64), "b".repeat(64));
    let was =
        |key: &str, name: &str, began| Run { key: Some(key.into()), ..run(name, began, built()) };
    let first = records(&[], &[was(KEY, "first", 10)], &limits(5, 3));
    let old = AgentBuildStatus {
        build_key: Some(newest.clone()),
        built_key: Some(KEY.into()),
        built_image: Some("r/i@sha256:1".into()),
        history: first.clone(),
        ..AgentBuildStatus::default()
    };
    let (base_digest, sbom_digest) = (Some("sha256:2".into()), Some("sha256:3".into()));
    let based = Run { base_digest, sbom_digest, ..was(&between, "between", 20) };
    let ended = records(&first, &[based], &limits(5, 3));
    assert_eq!(ended[0].base_digest.as_deref(), Some("sha256:2"));
    assert_eq!(ended[0].sbom_digest.as_deref(), Some("sha256:3"));
    let mut new = AgentBuildStatus { history: ended.clone(), ..old.clone() };
    take_what_ended(&mut new, &old, []);
    assert_eq!((new.built_key.as_deref(), &new.build_key), (Some(&*between), &old.build_key));
    assert_eq!(new.built_image, ended[0].image);
    assert_eq!(new.base_digest, ended[0].base_digest);
    assert_eq!(new.sbom_digest, ended[0].sbom_digest);
    // What was known before is no news: a revert since stays.
    let reverted = AgentBuildStatus {
        built_key: old.built_key.clone(),
        built_image: old.built_image.clone(),
        ..new.clone()
    };
    let mut later = reverted.clone();
    take_what_ended(&mut later, &reverted, []);
    assert_eq!(later, reverted);
    // The newest key has its own image.
    let mut done = AgentBuildStatus { built_key: Some(newest), history: ended, ..old.clone() };
    take_what_ended(&mut done, &old, []);
    assert_eq!(done.built_image, old.built_image);
}

#[test]
fn b1_what_was_found_is_a_good_build_without_a_run() {
    let found = |key: &str, began| BuildRecord {
        pipeline_run: None,
        key: key.into(),
        result: BuildResult::Succeeded,
        commit: None,
        tree: None,
        superseded_by: None,
        base_digest: None,
        sbom_digest: None,
        image: Some(format!("r/i@sha256:{began}")),
        started_at: Some(at(began).to_string()),
        seconds: None,
    };
    let (other, again) = ("b".repeat(64), found(KEY, 30));
    let old = [found(KEY, 10), found(&other, 20), again.clone()];
    let history = records(&old, &[run("good", 25, built())], &limits(5, 3));
    // One a key, and the newest of it.
    let keys: Vec<_> = history
        .iter()
        .map(|record| (record.pipeline_run.as_deref(), record.key.as_str()))
        .collect();
    assert_eq!(keys, [(None, KEY), (Some("good"), KEY), (None, other.as_str())]);
    assert_eq!(image_of(&history, &BuildKey::parse(KEY).expect("a key")), Some(&again));
    // It says nothing of how long a build takes.
    assert_eq!(usual_time(&history), SignedDuration::from_secs(10));
    // It counts like others, and no run is kept for it.
    let few = records(&history, &[], &limits(1, 1));
    assert_eq!(few, [again]);
    let status = AgentBuildStatus { history: few, ..AgentBuildStatus::default() };
    assert!(is_surplus(&run("good", 25, built()), &status, &[]));
    // A build between, which ended while another key is wanted, is news beside one that was found.
    let newest = "n".repeat(64);
    let was = AgentBuildStatus {
        build_key: Some(newest),
        history: old[..1].to_vec(),
        ..AgentBuildStatus::default()
    };
    let mut new = AgentBuildStatus {
        history: records(&old[..1], &[run("good", 25, built())], &limits(5, 3)),
        ..was.clone()
    };
    take_what_ended(&mut new, &was, []);
    assert_eq!(new.built_key.as_deref(), Some(KEY));
}

#[test]
fn b12_what_is_not_attested_yet_counts_for_nothing_and_stays() {
    let waits = || RunOutcome::Unattested { digest: format!("sha256:{}", "e".repeat(64)) };
    let runs = [
        run("w-1", 10, waits()),
        run("good", 20, built()),
        run("w-2", 30, waits()),
        run("w-3", 40, waits()),
    ];
    let history = records(&[], &runs, &limits(5, 3));
    assert_eq!(names(&history), ["good"]);
    let waiting = unattested(&runs, &limits(2, 3));
    assert_eq!(waiting, ["w-3", "w-2"], "as many as there may be of good ones");
    let mut status = AgentBuildStatus { history, ..AgentBuildStatus::default() };
    let surplus = |status: &AgentBuildStatus| -> Vec<String> {
        let all = runs.iter().filter(|run| is_surplus(run, status, &waiting));
        all.map(|run| run.name.clone()).collect()
    };
    assert_eq!(surplus(&status), ["w-1"]);
    status.pipeline_run = Some("w-1".into());
    assert!(surplus(&status).is_empty(), "the newest attempt stays");
    // An older key's image is taken when it is attested.
    let old = AgentBuildStatus {
        history: records(&[], &runs[1..2], &limits(5, 3)),
        ..AgentBuildStatus::default()
    };
    let mut new = AgentBuildStatus {
        history: records(&old.history, &runs, &limits(5, 3)),
        ..AgentBuildStatus::default()
    };
    take_what_ended(&mut new, &old, []);
    assert_eq!(new.built_image, None);
    let attested = run("w-2", 30, built());
    new.history = records(&old.history, [&attested], &limits(5, 3));
    take_what_ended(&mut new, &old, []);
    assert_eq!(new.built_image, Some(format!("r/i@sha256:{}", "d".repeat(64))));
}

fn three_keys() -> [String; 3] {
    ["1", "2", "3"].map(|digit| digit.repeat(64))
}

/// A run of this key.
fn of_key(key: &str, began: i64, outcome: RunOutcome) -> Run {
    Run { key: Some(key.into()), ..run(&key[..1], began, outcome) }
}

/// The status after what has ended is taken; `wanted` is the newest key.
fn taken(old: &AgentBuildStatus, wanted: &str, runs: &[Run]) -> AgentBuildStatus {
    let history = records(&old.history, runs, &limits(5, 3));
    let mut new = AgentBuildStatus { build_key: Some(wanted.into()), history, ..old.clone() };
    take_what_ended(&mut new, old, runs);
    new
}

#[test]
fn b7_b12_an_older_image_never_replaces_a_newer_one() {
    let keys = three_keys();
    let is = |key: usize, began, outcome| of_key(&keys[key], began, outcome);
    let waits = || RunOutcome::Unattested { digest: format!("sha256:{}", "e".repeat(64)) };
    // Two commits wait to be attested, a third one is built. The second one is attested first, then the first one.
    let third = is(2, 30, RunOutcome::Running);
    let none = AgentBuildStatus::default();
    let old = taken(&none, &keys[2], &[is(0, 10, waits()), is(1, 20, waits()), third.clone()]);
    assert_eq!(old.built_key, None);
    let second = taken(&old, &keys[2], &[is(0, 10, waits()), is(1, 20, built()), third.clone()]);
    assert_eq!(second.built_key.as_ref(), Some(&keys[1]));
    let both = [is(0, 10, built()), is(1, 20, built()), third];
    let after = taken(&second, &keys[2], &both);
    assert_eq!(after.built_key.as_ref(), Some(&keys[1]));
    // The third one ends while a newer one is wanted.
    let ended = [is(1, 20, built()), is(2, 30, built())];
    let last = taken(&after, "4", &ended);
    assert_eq!(last.built_key.as_ref(), Some(&keys[2]));
    // A run that could not be removed counts again.
    let again = AgentBuildStatus { history: last.history[..1].to_vec(), ..last };
    assert_eq!(taken(&again, "4", &both).built_key.as_ref(), Some(&keys[2]));
    // The same with a status of an older version.
    let older = AgentBuildStatus { built_after: None, ..again };
    assert_eq!(taken(&older, "4", &both).built_key.as_ref(), Some(&keys[2]));
}

#[test]
fn b7_b12_what_a_revert_has_left_behind_does_not_come_back() {
    let keys = three_keys();
    let is = |key: usize, began, outcome| of_key(&keys[key], began, outcome);
    let first = AgentBuildStatus {
        built_key: Some(keys[0].clone()),
        built_image: Some("r/i@sha256:1".into()),
        ..AgentBuildStatus::default()
    };
    let first = taken(&first, &keys[0], &[is(0, 10, built())]);
    // The second commit waits to be attested when it is reverted.
    let waits = RunOutcome::Unattested { digest: format!("sha256:{}", "e".repeat(64)) };
    let waiting = taken(&first, &keys[1], &[is(0, 10, built()), is(1, 20, waits.clone())]);
    let reverted = taken(&waiting, &keys[0], &[is(0, 10, built()), is(1, 20, waits)]);
    assert_eq!(taken(&reverted, &keys[0], &[]).built_after, reverted.built_after, "it settles");
    // It is attested while a third one is built, whose own image is taken.
    let third = taken(&reverted, &keys[2], &[is(0, 10, built()), is(1, 20, built())]);
    assert_eq!(third.built_key.as_ref(), Some(&keys[0]));
    let late = taken(&third, "4", &[is(1, 20, built()), is(2, 30, built())]);
    assert_eq!(late.built_key.as_ref(), Some(&keys[2]));
}
