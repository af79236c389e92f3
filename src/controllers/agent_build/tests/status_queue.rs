//! A build keeps its place in the queue.

use super::*;

fn empty() -> AgentBuildStatus {
    AgentBuildStatus::default()
}

#[test]
fn b7_a_build_keeps_its_place_whatever_commit_is_the_newest() {
    let (one, two) = (key("1"), key("2"));
    let first = next(&empty(), &one, None, Builder::Available, 1);
    assert_eq!(first.queued_at, Some(at(1).to_string()));
    let second = next(&first, &two, None, Builder::Available, 9);
    assert_eq!(
        (&second.queued_at, second.build_key.as_deref()),
        (&first.queued_at, Some(two.as_str()))
    );
    assert_eq!(condition(&second, "Ready"), Some(("False", "Queued")));
    // It is written before there is a run.
    assert_eq!(decided(&first, &two, None, true, Builder::Available), Decision::Enqueue(1));
    assert_eq!(decided(&second, &two, None, true, Builder::Available), Decision::Create(1));
    // Who does not wait has no place.
    let running =
        next(&second, &two, Some(&run(&two, RunOutcome::Running)), Builder::Available, 10);
    assert_eq!(running.queued_at, None);
    assert_eq!(
        next(&running, &one, None, Builder::Available, 11).queued_at,
        Some(at(11).to_string())
    );
}

#[test]
fn b7_what_heals_by_itself_takes_no_place_in_the_queue() {
    let one = key("1");
    let waiting = next(&empty(), &one, None, Builder::Available, 1);
    let problem =
        |waiting| BuildProblem { reason: "TemplateNotFound", message: "no".into(), waiting };
    for heals in [true, false] {
        let broken = Finding::Broken(problem(heals));
        let broken = status(&waiting, &meta(), &broken, Builder::Available, at(2));
        assert_eq!(broken.build_key, None);
        assert_eq!(broken.queued_at.is_some(), heals);
        let again = next(&broken, &one, None, Builder::Available, 9);
        assert_eq!(again.queued_at, Some(at(if heals { 1 } else { 9 }).to_string()));
    }
    let without = next(&waiting, &one, None, Builder::NotInstalled, 2);
    assert_eq!(condition(&without, "Ready"), Some(("False", "BuilderUnavailable")));
    assert_eq!(without.queued_at, waiting.queued_at);
}

#[test]
fn b8_after_a_start_nothing_is_told_before_it_is_known_what_tekton_does() {
    let (one, two) = (key("1"), key("2"));
    let waiting = next(&empty(), &one, None, Builder::Available, 1);
    let live = run(&one, RunOutcome::Running);
    let building = next(&waiting, &one, Some(&live), Builder::Available, 2);
    for old in [&waiting, &building] {
        let new = next(old, &one, None, Builder::Unknown, 3);
        assert_eq!(condition(&new, "BuilderAvailable"), Some(("Unknown", "TektonUnknown")));
        assert_eq!(condition(&new, "Ready"), condition(old, "Ready"));
        assert_eq!((new.phase, &new.queued_at), (old.phase, &old.queued_at));
        // Of another key nothing was told.
        let other = next(old, &two, None, Builder::Unknown, 3);
        assert_eq!(condition(&other, "Ready"), Some(("False", "BuilderUnavailable")));
        assert_eq!(other.queued_at, old.queued_at);
    }
}
