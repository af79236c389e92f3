//! The status of a build whose source is not known, or not the one that is wanted.

use super::*;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;

#[test]
fn a_restart_says_nothing_until_the_source_is_known_again() {
    let one = key("1");
    let done =
        next(&AgentBuildStatus::default(), &one, Some(&run(&one, built())), Builder::Available, 1);
    for found in [Finding::SourcePending, Finding::NotInGit] {
        assert_eq!(status(&done, &meta(), &found, Builder::Unknown, at(2)), done);
    }
    let new = status(
        &AgentBuildStatus::default(),
        &meta(),
        &Finding::SourcePending,
        Builder::Available,
        at(2),
    );
    assert_eq!(
        (new.phase, condition(&new, "Ready")),
        (Some(BuildPhase::Pending), Some(("False", "SourcePending")))
    );
}

#[test]
fn b7_a_build_that_waits_for_its_turn_and_left_git_says_so_and_keeps_its_place_over_a_restart() {
    let (one, empty) = (key("1"), AgentBuildStatus::default());
    let waiting = next(&empty, &one, None, Builder::Available, 1);
    assert_eq!(condition(&waiting, "Ready"), Some(("False", "Queued")));
    assert_eq!(condition(&waiting, "Reconciling"), Some(("True", "Queued")));
    let restarted = status(&waiting, &meta(), &Finding::SourcePending, Builder::Unknown, at(2));
    assert_eq!(restarted, waiting);
    let gone = status(&waiting, &meta(), &Finding::NotInGit, Builder::Available, at(3));
    assert_eq!(condition(&gone, "Ready"), Some(("False", "NotInGit")));
    assert_eq!(condition(&gone, "Reconciling"), None);
    let later = next(&waiting, &one, None, Builder::Available, 9);
    assert_eq!(later, waiting, "it keeps its place, and there is nothing to write");
}

#[test]
fn b1_a_definition_that_is_not_applied_yet_is_not_called_built() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let done = next(&empty, &one, Some(&run(&one, built())), Builder::Available, 1);
    let found = Finding::NotApplied;
    let late = status(&done, &meta(), &found, Builder::Available, at(2));
    assert_eq!(
        (late.phase, condition(&late, "Ready")),
        (Some(BuildPhase::Pending), Some(("False", "NotApplied")))
    );
    assert_eq!(
        (&late.built_image, &late.built_key, &late.build_key),
        (&done.built_image, &done.built_key, &done.build_key)
    );
    let again = status(&late, &meta(), &found, Builder::Available, at(3));
    assert_eq!(again, late, "settled: nothing to write");
    let restarted = status(&late, &meta(), &Finding::SourcePending, Builder::Unknown, at(4));
    assert_eq!(restarted, late);
    let applied = next(&late, &one, None, Builder::Available, 5);
    assert_eq!(
        (applied.phase, condition(&applied, "Ready")),
        (Some(BuildPhase::Succeeded), Some(("True", "Built")))
    );
}

#[test]
fn b1_what_is_known_of_a_build_says_nothing_of_another_spec() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let done = next(&empty, &one, Some(&run(&one, built())), Builder::Available, 1);
    let newer = ObjectMeta { generation: Some(4), ..meta() };
    let say = |old: &AgentBuildStatus, found: Finding<'_>| {
        status(old, &newer, &found, Builder::Available, at(2))
    };
    let pending = say(&done, Finding::SourcePending);
    assert_eq!(condition(&pending, "Ready"), Some(("False", "SourcePending")));
    let gone = say(&done, Finding::NotInGit);
    assert_eq!(condition(&gone, "Ready"), Some(("False", "NotInGit")));
    for new in [&pending, &gone] {
        assert_eq!((new.observed_generation, &new.built_image), (Some(4), &done.built_image));
    }
    // Its commit is read, and does not hold it.
    assert_eq!(condition(&say(&pending, Finding::NotInGit), "Ready"), Some(("False", "NotInGit")));
    assert_eq!(say(&gone, Finding::SourcePending), gone, "a restart says nothing");
}

#[test]
fn b7_a_failed_key_is_not_tried_again_after_something_was_waited_for() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let broken = next(&empty, &one, Some(&run(&one, failed())), Builder::Available, 1);
    let newer = ObjectMeta { generation: Some(4), ..meta() };
    for found in [Finding::NotApplied, Finding::SourcePending, Finding::NotInGit] {
        let late = status(&broken, &newer, &found, Builder::Available, at(2));
        assert_eq!(condition(&late, "Ready").map(|(status, _)| status), Some("False"));
        assert_ne!(condition(&late, "Ready"), condition(&broken, "Ready"), "{found:?}");
        assert_eq!(condition(&late, "Stalled"), Some(("True", "BuildFailed")));
        assert_eq!(decided(&late, &one, None, true, Builder::Available), Decision::Keep);
        let kept = next(&late, &one, None, Builder::Available, 3);
        assert_eq!(
            (condition(&kept, "Ready"), &kept.message),
            (Some(("False", "BuildFailed")), &broken.message)
        );
    }
}

/// What a live run shows.
fn shown<'a>(key: &'a BuildKey, run: &'a Run) -> Finding<'a> {
    about(key, Decision::Show(run), None)
}

#[test]
fn b6_what_is_being_built_ends_while_another_spec_waits_and_is_not_called_ready() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let (running, ended) = (run(&one, RunOutcome::Running), run(&one, built()));
    let building = next(&empty, &one, Some(&running), Builder::Available, 1);
    let newer = ObjectMeta { generation: Some(4), ..meta() };
    for (meta, found, said) in [
        (&meta(), Finding::NotApplied, ("False", "NotApplied")),
        (&newer, Finding::NotApplied, ("False", "NotApplied")),
        (&newer, Finding::SourcePending, ("False", "SourcePending")),
        (&newer, Finding::NotInGit, ("False", "NotInGit")),
        (&meta(), Finding::SourcePending, ("True", "Built")),
        (&meta(), Finding::NotInGit, ("True", "Built")),
    ] {
        let idle = |old: &AgentBuildStatus, run: &Run, now| {
            let shown = shown(&one, run);
            let unknown = UnknownSource { under_way: Some(&shown), finding: &found };
            idle(old, meta, unknown, Builder::Available, at(now))
        };
        let goes_on = idle(&building, &running, 2);
        assert_eq!(
            (goes_on.phase, condition(&goes_on, "Ready"), goes_on.observed_generation),
            (Some(BuildPhase::Building), Some(("False", "Building")), Some(3))
        );
        let over = idle(&goes_on, &ended, 3);
        assert_eq!(condition(&over, "Ready"), Some(said), "{found:?}");
        assert!(over.built_image.is_some(), "{found:?}");
        assert_eq!((under_way(&over), over.observed_generation), (None, meta.generation));
    }
}

#[test]
fn b6_what_is_being_built_ends_although_no_commit_holds_it_any_more() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let running = run(&one, RunOutcome::Running);
    let building = next(&empty, &one, Some(&running), Builder::Available, 1);
    assert_eq!(under_way(&building), Some((one.clone(), running.name.as_str())));
    for outcome in [built(), failed()] {
        let ended = next(&building, &one, Some(&run(&one, outcome)), Builder::Available, 2);
        assert_eq!(under_way(&ended), None, "what is known of it stays");
    }
    assert_eq!(under_way(&empty), None);
    let odd = AgentBuildStatus { build_key: Some("../x".into()), ..building };
    assert_eq!(under_way(&odd), None);
}

#[test]
fn b2_a_repository_that_cannot_be_read_is_told_and_what_was_built_of_it_stays() {
    let one = key("1");
    let nothing = AgentBuildStatus::default();
    let built = next(&nothing, &one, Some(&run(&one, built())), Builder::Available, 1);
    let told = |old: &AgentBuildStatus, finding: &Finding<'_>| {
        status(old, &meta(), finding, Builder::Available, at(5))
    };
    assert_eq!(told(&built, &Finding::NotPolled), built, "after a restart it comes in a moment");
    let waits = told(&nothing, &Finding::NotPolled);
    assert_eq!(condition(&waits, "Ready"), Some(("False", "SourcePending")));
    let problem = |error: SourceError| Finding::Unreadable(BuildProblem::of_repository(&error));
    let error = |terminal: bool| SourceError::Git {
        reason: SourceReason::AuthenticationFailed,
        message: "no".into(),
        hint: Some("see spec.secretRef, spec.ref.tag and spec.timeout".into()),
        terminal,
    };
    let away = told(&built, &problem(error(false)));
    assert_eq!(condition(&away, "Ready"), Some(("False", "AuthenticationFailed")));
    assert_eq!(condition(&away, "Stalled"), None);
    let hint = "no; hint: see spec.source.git.secretRef, spec.source.git.ref.tag and spec.source.git.timeout";
    assert_eq!(away.message.as_deref(), Some(hint));
    let of = |status: &AgentBuildStatus| {
        (status.phase, status.built_image.clone(), status.build_key.clone())
    };
    assert_eq!(of(&away), of(&built));
    assert_eq!(told(&away, &Finding::NotPolled), away, "it is not forgotten at a restart");
    let stalled = told(&away, &problem(error(true)));
    assert_eq!(condition(&stalled, "Stalled"), Some(("True", "AuthenticationFailed")));
    let healed = next(&stalled, &one, Some(&run(&one, self::built())), Builder::Available, 9);
    assert_eq!((of(&healed), condition(&healed, "Stalled")), (of(&built), None));

    // A run that is under way is followed.
    let two = key("2");
    let going = run(&two, RunOutcome::Running);
    let building = next(&built, &two, Some(&going), Builder::Available, 2);
    let shown = about(&two, Decision::Show(&going), None);
    let unknown = UnknownSource { under_way: Some(&shown), finding: &problem(error(false)) };
    let still = idle(&building, &meta(), unknown, Builder::Available, at(6));
    assert_eq!(condition(&still, "Ready"), Some(("False", "Building")));
}
