use super::super::failure::failure;
use super::*;
use crate::api::agent_build::{BuildHistory, FailureClass};
use crate::controllers::agent_build::history::records;
use crate::controllers::agent_build::needs::Level;
use crate::controllers::agent_build::pipeline_run::run_name;

const UID: &str = "uid";
const NAME: &str = "reviewer";

fn home() -> &'static Place {
    Box::leak(Box::new(Place::new("team", Level::Baseline, None)))
}

fn key(digit: char) -> BuildKey {
    BuildKey::parse(&digit.to_string().repeat(64)).expect("a key")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn run(key: &BuildKey, attempt: u32, outcome: RunOutcome) -> Run {
    Run {
        name: run_name(NAME, key, attempt),
        owner_uid: Some(UID.into()),
        owner_name: Some(NAME.into()),
        key: Some(key.to_string()),
        attempt,
        created: Some(at(0)),
        began: Some(at(0)),
        ended: (outcome != RunOutcome::Running).then(|| at(100)),
        ..Run::sample(outcome)
    }
}

fn built() -> RunOutcome {
    RunOutcome::Built { digest: format!("sha256:{}", "a".repeat(64)) }
}

fn failed(reason: &str) -> RunOutcome {
    RunOutcome::Failed { reason: reason.into(), message: "why".into() }
}

/// A candidate with these runs; `change` makes it another one.
fn decided<'a>(
    status: &'a AgentBuildStatus,
    key: &'a BuildKey,
    runs: &'a [Run],
    change: impl FnOnce(&mut Candidate<'a>),
) -> Decision<'a> {
    let mut candidate = Candidate {
        name: NAME,
        uid: UID,
        place: home(),
        key,
        runs: runs.iter().collect::<Vec<_>>().leak(),
        failure: None,
        renewed: false,
        trigger: Trigger::OnCommit,
        retry_limit: 2,
        asked: Asked::default(),
        builder: Builder::Available,
        now: at(1000),
    };
    candidate.failure =
        candidate.newest().and_then(|run| failure(run, None)).map(|why| &*Box::leak(Box::new(why)));
    change(&mut candidate);
    decide(status, &candidate)
}

/// The status while a key waits for its turn.
fn queued(key: &BuildKey) -> AgentBuildStatus {
    AgentBuildStatus {
        build_key: Some(key.to_string()),
        queued_at: Some(at(1).to_string()),
        phase: Some(BuildPhase::Pending),
        ..AgentBuildStatus::default()
    }
}

fn of_cluster(run: &Run) -> BuildFailure {
    BuildFailure { class: FailureClass::Infrastructure, ..failure(run, None).expect("a failure") }
}

#[test]
fn b7_a_run_is_created_only_after_its_place_in_the_queue_was_written() {
    let (one, two, empty) = (key('1'), key('2'), AgentBuildStatus::default());
    assert_eq!(decided(&empty, &one, &[], |_| {}), Decision::Enqueue(1));
    assert_eq!(decided(&queued(&one), &one, &[], |_| {}), Decision::Create(1));
    assert_eq!(
        decided(&queued(&one), &two, &[], |_| {}),
        Decision::Enqueue(1),
        "a newer key takes a place of its own"
    );
}

#[test]
fn b7_only_one_run_of_a_build_goes_on_at_a_time() {
    let (one, two) = (key('1'), key('2'));
    let runs = [run(&one, 1, RunOutcome::Running)];
    let status = queued(&two);
    // It began a moment ago.
    let young = decided(&status, &two, &runs, |it| it.now = at(1));
    assert_eq!(young, Decision::Supersede(&runs[0]));
    assert_eq!(decided(&status, &two, &runs, |_| {}), Decision::Wait(Wait::Behind(&runs[0])));
    let stopping = [Run { stopping: true, ..runs[0].clone() }];
    let told = decided(&status, &two, &stopping, |it| it.now = at(1));
    assert_eq!(told, Decision::Wait(Wait::Behind(&stopping[0])), "it is told to stop once");
    // Tekton has not begun with it: it is removed soon, or another operator lets it begin.
    let pending = [Run { held: true, ..runs[0].clone() }];
    let waits = decided(&status, &two, &pending, |it| it.now = at(1));
    assert_eq!(waits, Decision::Wait(Wait::Behind(&pending[0])));
    let over = [Run { superseded_by: Some(Run::newer()), ..run(&one, 1, failed("Cancelled")) }];
    assert_eq!(decided(&status, &two, &over, |_| {}), Decision::Create(1));
    // The run of another AgentBuild of this name, which is gone.
    let left = [Run { owner_uid: Some("earlier".into()), ..runs[0].clone() }];
    assert_eq!(decided(&status, &two, &left, |_| {}), Decision::Create(1));
}

#[test]
fn b7_a_key_that_was_superseded_is_built_when_it_is_wanted_again() {
    let (one, status) = (key('1'), AgentBuildStatus::default());
    let runs = [Run {
        superseded_by: Some(Run::newer()),
        stopping: true,
        ..run(&one, 1, failed("Cancelled"))
    }];
    assert_eq!(decided(&status, &one, &runs, |it| it.retry_limit = 0), Decision::Enqueue(2));
    assert_eq!(decided(&queued(&one), &one, &runs, |_| {}), Decision::Create(2));
}

#[test]
fn b7_the_cluster_is_given_another_chance_and_no_more_than_the_limit() {
    let one = key('1');
    let runs = [run(&one, 1, failed("Failed"))];
    let why = of_cluster(&runs[0]);
    let status = AgentBuildStatus {
        pipeline_run: Some(runs[0].name.clone()),
        attempt: Some(1),
        failure: Some(why.clone()),
        queued_at: None,
        ..queued(&one)
    };
    let early = decided(&status, &one, &runs, |it| (it.failure, it.now) = (Some(&why), at(101)));
    assert_eq!(early, Decision::Wait(Wait::Retry(at(115))));
    let enough = decided(&status, &one, &runs, |it| (it.failure, it.retry_limit) = (Some(&why), 0));
    assert_eq!(enough, Decision::Show(&runs[0]));
    let cancelled = decided(&status, &one, &runs, |it| {
        (it.failure, it.now) = (Some(&why), at(101));
        it.asked.cancel = Some(one.as_str());
    });
    assert_eq!(cancelled, Decision::Wait(Wait::Cancelled), "before the time has come");
    let due = decided(&status, &one, &runs, |it| it.failure = Some(&why));
    assert_eq!(due, Decision::Enqueue(2));
    let waits = AgentBuildStatus { queued_at: Some(at(1).to_string()), ..status };
    assert_eq!(decided(&waits, &one, &runs, |it| it.failure = Some(&why)), Decision::Create(2));
    // The same without the run: the status knows.
    assert_eq!(decided(&waits, &one, &[], |_| {}), Decision::Create(2));
    // Other failures are not tried again.
    assert_eq!(decided(&waits, &one, &runs, |_| {}), Decision::Show(&runs[0]));
    // The second try has an image: the first one is forgotten.
    let both = [runs[0].clone(), run(&one, 2, built())];
    assert_eq!(decided(&waits, &one, &both, |_| {}), Decision::Show(&both[1]));
    // And the other way round: what is built stays built.
    let both = [run(&one, 1, built()), run(&one, 2, failed("Failed"))];
    assert_eq!(decided(&waits, &one, &both, |_| {}), Decision::Show(&both[0]));
}

#[test]
fn b8_a_run_that_somebody_deletes_is_made_again_and_one_that_failed_is_not() {
    let one = key('1');
    let going = AgentBuildStatus {
        phase: Some(BuildPhase::Building),
        pipeline_run: Some(run_name(NAME, &one, 2)),
        attempt: Some(2),
        queued_at: None,
        ..queued(&one)
    };
    assert_eq!(decided(&going, &one, &[], |_| {}), Decision::Enqueue(3));
    let waits = AgentBuildStatus { queued_at: Some(at(1).to_string()), ..going.clone() };
    assert_eq!(decided(&waits, &one, &[], |_| {}), Decision::Create(3), "another name");
    let off = decided(&going, &one, &[], |it| it.trigger = Trigger::Off);
    assert_eq!(off, Decision::Enqueue(3), "it was wanted once");
    // So it is when the try before it is still there.
    let first = [run(&one, 1, failed("Failed"))];
    assert_eq!(decided(&going, &one, &first, |_| {}), Decision::Enqueue(3));
    let over = AgentBuildStatus { phase: Some(BuildPhase::Failed), ..going };
    assert_eq!(decided(&over, &one, &[], |_| {}), Decision::Keep);
    // The try before it is still there, and would be tried again.
    let before = [Run {
        superseded_by: Some(Run::newer()),
        stopping: true,
        ..run(&one, 1, failed("Cancelled"))
    }];
    assert_eq!(decided(&over, &one, &before, |_| {}), Decision::Show(&before[0]));
}

#[test]
fn b7_a_pending_run_of_its_own_is_waited_for_and_told_as_none() {
    let one = key('1');
    let (pending, waits) =
        ([Run { held: true, ..run(&one, 1, RunOutcome::Running) }], queued(&one));
    let told = decided(&waits, &one, &pending, |_| {});
    assert_eq!(told, Decision::Wait(Wait::Pending(&pending[0])));
    // When it is gone, the same try is made anew: Tekton has never begun with it.
    assert_eq!(decided(&waits, &one, &[], |_| {}), Decision::Create(1));
    let cancelled = decided(&waits, &one, &pending, |it| {
        it.asked = Asked { cancel: Some(one.as_str()), ..Asked::default() };
    });
    assert_eq!(cancelled, Decision::Cancel(&pending[0]));
}

#[test]
fn b5_another_namespace_may_admit_a_pod_that_was_refused() {
    let (one, empty) = (key('1'), AgentBuildStatus::default());
    let there = Place::new("team", Level::Baseline, Some("builds"));
    let runs = [run(&one, 1, failed("Failed"))];
    let refused = BuildFailure {
        class: FailureClass::Policy,
        reason: POD_REFUSED.into(),
        ..failure(&runs[0], None).expect("a failure")
    };
    let at = |place: &Place, why: &BuildFailure, runs: &[Run]| {
        let decision = decided(&empty, &one, runs.to_vec().leak(), |it| {
            it.place = Box::leak(Box::new(place.clone()));
            it.failure = Some(Box::leak(Box::new(why.clone())));
        });
        matches!(decision, Decision::Enqueue(2))
    };
    assert!(!at(home(), &refused, &runs), "it would be refused again");
    assert!(at(&there, &refused, &runs));
    let other = BuildFailure { reason: "BuildFailed".into(), ..refused.clone() };
    assert!(!at(&there, &other, &runs), "another namespace changes nothing of that");
    let refused_there = [Run { namespace: "builds".into(), ..runs[0].clone() }];
    assert!(!at(&there, &refused, &refused_there));
}

#[test]
fn b5_a_stranger_is_found_by_the_name_in_the_other_namespace() {
    let (one, waits) = (key('1'), queued(&key('1')));
    let there: &Place = Box::leak(Box::new(Place::new("team", Level::Baseline, Some("builds"))));
    let mut stranger =
        Run { owner_uid: None, owner_name: None, key: None, ..run(&one, 1, built()) };
    let decide = |run: &Run| match decided(&waits, &one, vec![run.clone()].leak(), |it| {
        it.place = there;
    }) {
        Decision::Create(1) => "create",
        Decision::Conflict(_) => "conflict",
        _ => "other",
    };
    assert_eq!(decide(&stranger), "create", "it has the name of a run at home");
    stranger.name = there.run_name(NAME, UID, &one, 1);
    stranger.namespace = "builds".into();
    assert_eq!(decide(&stranger), "conflict");
}

#[test]
fn b7_tries_that_were_stopped_do_not_count_as_failed() {
    let one = key('1');
    let stopped = Run {
        superseded_by: Some(Run::newer()),
        stopping: true,
        ..run(&one, 1, failed("Cancelled"))
    };
    let runs = [stopped, run(&one, 2, failed("Failed"))];
    let why = of_cluster(&runs[1]);
    let waits = queued(&one);
    let again = decided(&waits, &one, &runs, |it| {
        (it.failure, it.retry_limit) = (Some(&why), 1);
    });
    assert_eq!(again, Decision::Create(3));
}

#[test]
fn b7_a_run_that_no_commit_wants_any_more_is_stopped() {
    let (one, two) = (key('1'), key('2'));
    let runs = [run(&one, 1, built()), run(&two, 1, RunOutcome::Running)];
    let refs: Vec<_> = runs.iter().collect();
    let of = |status: &AgentBuildStatus, runs: &[&Run], cancel: bool| {
        let (name, uid, key) = (NAME, UID, &one);
        let cancel = cancel.then_some(one.as_str());
        let asked = Asked { cancel, rebuild: None };
        let (trigger, builder, now) = (Trigger::OnCommit, Builder::Available, at(1000));
        let it = Candidate {
            name,
            uid,
            place: home(),
            key,
            runs,
            failure: None,
            renewed: false,
            trigger,
            retry_limit: 2,
            asked,
            builder,
            now,
        };
        let decision = decide(status, &it);
        unwanted(status, &it, &decision).map(|(run, has_image)| (run.name.clone(), has_image))
    };
    let (empty, name) = (AgentBuildStatus::default(), runs[1].name.clone());
    assert_eq!(of(&empty, &refs, false), Some((name.clone(), true)), "a revert to a run");
    let kept = AgentBuildStatus {
        built_key: Some(one.to_string()),
        built_image: Some("r/i@sha256:1".into()),
        ..AgentBuildStatus::default()
    };
    assert_eq!(of(&kept, &refs[1..], false), Some((name.clone(), true)), "a revert to an image");
    assert_eq!(of(&queued(&one), &refs[1..], false), None, "it is waited for");
    assert_eq!(of(&queued(&one), &refs[1..], true), Some((name, false)), "what waits is cancelled");
    let stopping = Run { stopping: true, ..runs[1].clone() };
    assert_eq!(of(&kept, &[&stopping], false), None, "it is told once");
    let others = Run { owner_uid: Some("another".into()), ..runs[1].clone() };
    assert_eq!(of(&kept, &[&others], false), None);
}

#[test]
fn b1_a_revert_takes_the_image_of_the_earlier_build() {
    let (one, two) = (key('1'), key('2'));
    let history = records(&[], &[run(&one, 1, built())], &BuildHistory::default());
    let status = AgentBuildStatus {
        built_key: Some(two.to_string()),
        built_image: Some("r/i@sha256:2".into()),
        history,
        ..queued(&two)
    };
    for builder in [Builder::Available, Builder::NotInstalled] {
        let decision = decided(&status, &one, &[], |it| {
            (it.builder, it.trigger) = (builder, Trigger::Off);
        });
        assert_eq!(decision, Decision::Reuse(&status.history[0]));
    }
}

#[test]
fn b7_a_build_that_was_refused_access_is_tried_once_for_each_change_of_its_secrets() {
    let (one, empty) = (key('1'), AgentBuildStatus::default());
    let runs = [run(&one, 1, failed("PushDenied"))];
    let renewed = |it: &mut Candidate<'_>| it.renewed = true;
    assert_eq!(decided(&empty, &one, &runs, |_| {}), Decision::Show(&runs[0]));
    assert_eq!(decided(&empty, &one, &runs, renewed), Decision::Enqueue(2));
    assert_eq!(decided(&queued(&one), &one, &runs, renewed), Decision::Create(2));
    let off = |it: &mut Candidate<'_>| (it.renewed, it.trigger) = (true, Trigger::Off);
    assert_eq!(decided(&empty, &one, &runs, off), Decision::Enqueue(2), "it had begun");
    // What was cancelled stays so, and what was built is not built again.
    let cancelled = |it: &mut Candidate<'_>| {
        it.renewed = true;
        it.asked.cancel = Some(key('1').to_string().leak());
    };
    assert_eq!(decided(&empty, &one, &runs, cancelled), Decision::Wait(Wait::Cancelled));
    let good = [run(&one, 1, failed("PushDenied")), run(&one, 2, built())];
    assert_eq!(decided(&empty, &one, &good, renewed), Decision::Show(&good[1]));
    // The digest is that of another try.
    let later = AgentBuildStatus {
        build_key: Some(one.to_string()),
        phase: Some(BuildPhase::Failed),
        pipeline_run: Some("later".into()),
        attempt: Some(2),
        ..AgentBuildStatus::default()
    };
    assert_eq!(decided(&later, &one, &runs, renewed), Decision::Show(&runs[0]));
    // A program may renew the Secrets each hour, and none of that helps.
    let last = MAX_RENEWED - 1;
    let many = [run(&one, last, failed("PushDenied")), run(&one, last + 1, failed("PushDenied"))];
    assert_eq!(decided(&empty, &one, &many[..1], renewed), Decision::Enqueue(MAX_RENEWED));
    assert_eq!(decided(&empty, &one, &many, renewed), Decision::Show(&many[1]));
}

#[test]
fn b1_the_registry_is_asked_before_anything_is_begun_for_a_key() {
    let (one, two, empty) = (key('1'), key('2'), AgentBuildStatus::default());
    let asks = |status: &AgentBuildStatus, runs: &[Run], change: fn(&mut Candidate<'_>)| {
        let refs: Vec<_> = runs.iter().collect();
        let mut candidate = Candidate {
            name: NAME,
            uid: UID,
            place: home(),
            key: &one,
            runs: &refs,
            failure: None,
            renewed: false,
            trigger: Trigger::OnCommit,
            retry_limit: 2,
            asked: Asked::default(),
            builder: Builder::Available,
            now: at(1000),
        };
        change(&mut candidate);
        is_untouched(status, &candidate, &decide(status, &candidate))
    };
    assert!(asks(&empty, &[], |_| {}));
    assert!(asks(&queued(&two), &[], |_| {}), "another key waits");
    // A found image is no build: it needs neither a trigger nor Tekton nor the name of a run.
    assert!(asks(&empty, &[], |it| it.trigger = Trigger::Off));
    assert!(asks(&empty, &[], |it| it.builder = Builder::NotInstalled));
    assert!(asks(&empty, &[run(&two, 1, RunOutcome::Running)], |_| {}));
    let left = Run { owner_uid: Some("earlier".into()), ..run(&one, 1, built()) };
    assert!(asks(&empty, &[left], |_| {}));
    // It waits for its turn, or was begun, or was cancelled, or is built.
    assert!(!asks(&queued(&one), &[], |_| {}));
    assert!(!asks(&empty, &[run(&one, 1, RunOutcome::Running)], |_| {}));
    assert!(!asks(&empty, &[run(&one, 1, failed("Failed"))], |_| {}));
    let cancel = |it: &mut Candidate<'_>| {
        it.asked.cancel = Some(key('1').to_string().leak());
    };
    assert!(!asks(&empty, &[], cancel));
    let gone = AgentBuildStatus { pipeline_run: Some("r".into()), queued_at: None, ..queued(&one) };
    assert!(!asks(&gone, &[], |_| {}), "its run was deleted while it went on");
    let done = AgentBuildStatus {
        built_key: Some(one.to_string()),
        built_image: Some("r/i@sha256:1".into()),
        ..AgentBuildStatus::default()
    };
    assert!(!asks(&done, &[], |_| {}), "a build at rest asks nobody");
}

#[test]
fn b8_people_cancel_one_key_and_no_other() {
    let (one, two, empty) = (key('1'), key('2'), AgentBuildStatus::default());
    let cancel = |key: &BuildKey| Asked { cancel: Some(key.to_string().leak()), rebuild: None };
    let runs = [run(&one, 1, RunOutcome::Running)];
    assert_eq!(
        decided(&empty, &one, &runs, |it| it.asked = cancel(&one)),
        Decision::Cancel(&runs[0])
    );
    assert_eq!(
        decided(&empty, &one, &runs, |it| it.asked = cancel(&two)),
        Decision::Show(&runs[0])
    );
    let stopping = [Run { stopping: true, ..runs[0].clone() }];
    assert_eq!(
        decided(&empty, &one, &stopping, |it| it.asked = cancel(&one)),
        Decision::Show(&stopping[0])
    );
    // Before it began.
    let waits = queued(&one);
    let decision = decided(&waits, &one, &[], |it| it.asked = cancel(&one));
    assert_eq!(decision, Decision::Wait(Wait::Cancelled));
    // What is built is not taken back, and what was cancelled is not tried again.
    let good = [run(&one, 1, built())];
    assert_eq!(
        decided(&empty, &one, &good, |it| it.asked = cancel(&one)),
        Decision::Show(&good[0])
    );
    let over = [Run { stopping: true, ..run(&one, 1, failed("Cancelled")) }];
    assert_eq!(decided(&empty, &one, &over, |_| {}), Decision::Show(&over[0]));
}

#[test]
fn b8_a_rebuild_starts_one_build_although_no_commit_does() {
    let (one, empty) = (key('1'), AgentBuildStatus::default());
    let off = |rebuild| {
        move |it: &mut Candidate<'_>| {
            it.trigger = Trigger::Off;
            it.asked.rebuild = rebuild;
        }
    };
    assert_eq!(decided(&empty, &one, &[], off(None)), Decision::Wait(Wait::TriggerOff));
    assert_eq!(decided(&empty, &one, &[], off(Some("1"))), Decision::Enqueue(1));
    let handled = AgentBuildStatus { last_handled_rebuild: Some("1".into()), ..empty };
    assert_eq!(decided(&handled, &one, &[], off(Some("1"))), Decision::Wait(Wait::TriggerOff));
    assert_eq!(decided(&handled, &one, &[], off(Some("2"))), Decision::Enqueue(1));
}

#[test]
fn b12_a_run_that_is_not_attested_is_shown_and_nothing_else_begins_for_its_key() {
    let (one, two) = (key('1'), key('2'));
    let waits = || RunOutcome::Unattested { digest: format!("sha256:{}", "a".repeat(64)) };
    let runs = [run(&one, 1, waits())];
    let status = AgentBuildStatus {
        build_key: Some(one.to_string()),
        pipeline_run: Some(runs[0].name.clone()),
        phase: Some(BuildPhase::Building),
        ..AgentBuildStatus::default()
    };
    let empty = AgentBuildStatus::default();
    // After a restart, and for somebody who cancels what has ended, too.
    for status in [&status, &empty] {
        assert_eq!(decided(status, &one, &runs, |_| ()), Decision::Show(&runs[0]));
        let cancelled = decided(status, &one, &runs, |c| c.asked.cancel = Some(one.as_str()));
        assert_eq!(cancelled, Decision::Show(&runs[0]));
        let gone = decided(status, &one, &runs, |c| c.builder = Builder::NotInstalled);
        assert_eq!(gone, Decision::Show(&runs[0]));
    }
    assert_eq!(under_way(&status), Some((one.clone(), runs[0].name.as_str())));
    // A newer key does not wait for it.
    assert_eq!(decided(&status, &two, &runs, |_| ()), Decision::Enqueue(1));
    // Not of this AgentBuild.
    let others = [Run { owner_uid: Some("another".into()), ..runs[0].clone() }];
    assert_eq!(decided(&empty, &one, &others, |_| ()), Decision::Leftover(&others[0]));
}
