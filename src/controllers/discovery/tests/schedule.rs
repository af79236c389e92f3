//! When objects are asked.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asks at this time. Gives the pause in seconds.
fn ask(progress: &mut Progress, whom: &str, failed: bool, now: u64) -> u64 {
    progress.asked(whom, failed, (at(now), HOUR), |time| time).as_secs()
}

#[test]
fn a9_what_has_answered_is_asked_again_after_an_hour() {
    let mut progress = Progress::starting(at(0));
    assert_eq!(progress.step("p", at(0)), Step::Ask);
    assert_eq!(ask(&mut progress, "p", false, 0), 3600);
    assert_eq!(progress.step("p", at(10)), Step::Wait(at(3590)));
    assert_eq!(progress.step("p", at(3600)), Step::Ask);
}

#[test]
fn a9_another_pod_is_asked_soon_but_not_at_every_change() {
    let mut progress = Progress::starting(at(0));
    ask(&mut progress, "p", false, 100);
    assert_eq!(progress.step("q", at(101)), Step::Wait(at(4)));
    assert_eq!(progress.step("q", at(105)), Step::Ask);
    ask(&mut progress, "q", false, 105);
    progress.lost("p");
    assert_eq!(progress.step("q", at(200)), Step::Wait(at(3505)), "another one was lost");
    progress.lost("q");
    assert_eq!(progress.step("q", at(200)), Step::Ask, "the same one, ready again");
    ask(&mut progress, "q", false, 200);
    assert_eq!(progress.step("q", at(300)), Step::Wait(at(3500)));
    progress.untold();
    assert_eq!(progress.step("q", at(300)), Step::Ask, "the status tells nothing of it");
}

#[test]
fn t5_failures_are_tried_again_from_two_seconds_to_five_minutes() {
    let mut progress = Progress::starting(at(0));
    let pauses: Vec<_> = (0..10).map(|n| ask(&mut progress, "p", true, n * 1000)).collect();
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert!(!progress.is_first_failure());
    assert_eq!(ask(&mut progress, "q", true, 20_000), 2, "another pod begins anew");
    assert!(!progress.is_first_failure(), "of all pods, not of this one");
    assert_eq!(ask(&mut progress, "q", false, 20_002), 3600);
    assert_eq!(ask(&mut progress, "q", true, 30_000), 2);
    assert!(progress.is_first_failure());
}

#[test]
fn a9_the_first_round_after_a_start_is_spread() {
    assert_eq!(first_turn(10, 0), at(0));
    assert_eq!(first_turn(10, 128), at(30), "over a minute at least");
    assert_eq!(first_turn(1024, 128), at(512), "one object a second");
    let progress = Progress::starting(first_turn(1024, 128));
    assert_eq!(progress.step("p", at(12)), Step::Wait(at(500)));
    assert_eq!(progress.step("p", at(512)), Step::Ask);
}

#[test]
fn a9_a_pod_that_becomes_ready_after_a_start_does_not_wait_for_its_turn() {
    let mut progress = Progress::starting(at(500));
    assert_eq!(progress.step("p", at(1)), Step::Wait(at(499)));
    progress.ready();
    assert_eq!(progress.step("p", at(2)), Step::Ask);
    ask(&mut progress, "p", false, 2);
    progress.ready();
    assert_eq!(progress.step("p", at(100)), Step::Wait(at(3502)), "it was asked before");
}

#[test]
fn a9_a_round_of_very_many_objects_takes_longer_than_an_hour() {
    assert_eq!(period(10), HOUR);
    assert_eq!(period(7200), at(7200));
}
