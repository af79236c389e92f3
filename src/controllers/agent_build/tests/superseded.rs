use super::*;

/// A run of another key, which Tekton has begun a moment ago.
fn young(key: &BuildKey) -> Run {
    run(key, RunOutcome::Running)
}

fn told_to_stop(key: &BuildKey) -> Run {
    Run { stopping: true, superseded_by: Some(Run::newer()), ..young(key) }
}

fn stopped(key: &BuildKey) -> Run {
    let outcome = RunOutcome::Failed { reason: "Cancelled".into(), message: "no".into() };
    Run { outcome, ended: Some(at(0)), ..told_to_stop(key) }
}

#[test]
fn b6_a_build_that_is_stopped_for_a_newer_one_is_called_superseded_until_that_waits_or_builds() {
    let (one, two) = (key("1"), key("2"));
    let empty = AgentBuildStatus::default();
    let building = next(&empty, &one, Some(&young(&one)), Builder::Available, 1);
    let name = young(&one).name;
    let says = format!("waiting until PipelineRun {name} of commit cccccccccccc stops");
    let mut new = building;
    for run in [young(&one), told_to_stop(&one)] {
        new = next(&new, &two, Some(&run), Builder::Available, 2);
        assert_eq!((new.phase, new.message.as_ref()), (Some(BuildPhase::Superseded), Some(&says)));
        assert_eq!(condition(&new, "Ready"), Some(("False", "Queued")));
        assert_eq!(condition(&new, "Reconciling"), Some(("True", "Queued")));
        assert_eq!((&new.pipeline_run, under_way(&new)), (&None, None), "it has no run");
    }
    let queued = next(&new, &two, Some(&stopped(&one)), Builder::Available, 6);
    assert_eq!((queued.phase, queued.queued_at.is_some()), (Some(BuildPhase::Pending), true));
    let newer = next(&queued, &two, Some(&young(&two)), Builder::Available, 7);
    assert_eq!((newer.phase, &newer.failure), (Some(BuildPhase::Building), &None));
}

#[test]
fn b6_a_build_that_somebody_cancelled_or_that_ends_is_not_called_superseded() {
    let (one, two) = (key("1"), key("2"));
    let empty = AgentBuildStatus::default();
    let building = next(&empty, &one, Some(&young(&one)), Builder::Available, 1);
    let cancelled = Run { superseded_by: None, ..told_to_stop(&one) };
    let behind = |run: &Run| {
        let found = about(&two, Decision::Wait(Wait::Behind(run)), None);
        status(&building, &meta(), &found, Builder::Available, at(2)).phase
    };
    assert_eq!(behind(&cancelled), Some(BuildPhase::Pending));
    // Whoever may write annotations has not stopped it by that.
    let annotated = Run { stopping: false, ..told_to_stop(&one) };
    assert_eq!(behind(&annotated), Some(BuildPhase::Pending));
    assert_eq!(behind(&told_to_stop(&one)), Some(BuildPhase::Superseded));
}

#[test]
fn b6_a_superseded_build_whose_newer_one_is_not_known_says_for_what_it_was_stopped() {
    // The operator ended before it told the newer key.
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let building = next(&empty, &one, Some(&young(&one)), Builder::Available, 1);
    let ended = stopped(&one);
    let why = failure(&ended, None);
    let shown = about(&one, Decision::Show(&ended), why.as_ref());
    for (found, reason) in [
        (Finding::SourcePending, "Superseded"),
        (Finding::NotPolled, "Superseded"),
        (Finding::NotInGit, "Superseded"),
        (Finding::NotApplied, "NotApplied"),
    ] {
        let unknown = UnknownSource { under_way: Some(&shown), finding: &found };
        let over = idle(&building, &meta(), unknown, Builder::Available, at(6));
        let phase = Some(BuildPhase::Superseded);
        assert_eq!((over.phase, condition(&over, "Ready")), (phase, Some(("False", reason))));
        assert_eq!(condition(&over, "Stalled"), None, "it goes on with what is wanted");
        let said = over.failure.as_ref().map(|why| why.message.as_str());
        assert_eq!(said, Some("it was stopped for the build of commit dddddddddddd"));
        // That it is wanted no more changes nothing of how it ended.
        let later = ObjectMeta { generation: Some(4), ..meta() };
        let late = status(&over, &later, &Finding::NotInGit, Builder::Available, at(7));
        assert_eq!(late.phase, phase);
        // It is built when it is wanted again.
        let again = decided(&over, &one, Some(&ended), true, Builder::Available);
        assert_eq!(again, Decision::Enqueue(2));
    }
}
