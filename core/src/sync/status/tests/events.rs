use jiff::Timestamp;

use super::*;

fn standing(ready: &str, reason: &str, suspended: bool) -> AnnouncedState {
    let (mut status, now) = (GitSyncStatus::default(), Timestamp::UNIX_EPOCH);
    let all = &mut status.conditions;
    conditions::Observed { generation: 1, now }.set(all, "Ready", ready, reason, "whatever");
    if suspended {
        conditions::Observed { generation: 1, now }.set(all, "Suspended", "True", "Suspended", "");
    }
    AnnouncedState::of(Some(&status))
}

#[test]
fn g18_a_turn_is_told_once_and_what_is_being_found_out_is_none() {
    let mut told = AnnouncedState::of(None);
    for (ready, reason, suspended, turn) in [
        ("Unknown", "Progressing", false, None),
        ("False", "Timeout", false, Some(StateChange::Ready)),
        ("False", "Timeout", false, None),
        ("Unknown", "Progressing", false, None),
        ("False", "Timeout", false, None),
        ("False", "PathMissing", false, Some(StateChange::Ready)),
        ("True", "Succeeded", false, Some(StateChange::Ready)),
        ("True", "Succeeded", true, Some(StateChange::Suspended)),
        ("True", "Succeeded", true, None),
        ("Unknown", "Progressing", false, Some(StateChange::Resumed)),
        ("True", "Succeeded", false, None),
        ("True", "Succeeded", true, Some(StateChange::Suspended)),
        // One event announces both.
        ("False", "Timeout", false, Some(StateChange::Ready)),
        ("False", "Timeout", false, None),
    ] {
        let now = standing(ready, reason, suspended);
        assert_eq!(told.change_to(now), turn, "{ready} {reason} {suspended}");
    }
}

#[test]
fn g18_work_that_goes_on_is_no_warning() {
    for reason in ["Progressing", "HandingOver", "Terminating", "Deleting"] {
        assert!(is_good(false, EngineReason::parse(reason)), "{reason}");
    }
    assert!(is_good(true, Some(EngineReason::Succeeded)));
    for reason in ["Timeout", "PruneHeld", "DependencyNotReady", "ProblemsFound"] {
        assert!(!is_good(false, EngineReason::parse(reason)), "{reason}");
    }
}

#[test]
fn g18_what_a_status_does_not_list_counts_as_told() {
    let problem = |name: &str, code: &str| Problem {
        severity: crate::api::git_sync::Severity::Error,
        path: None,
        line: None,
        column: None,
        code: code.into(),
        message: String::new(),
        hint: None,
        object: Some(format!("ModelAPI/{name}")),
    };
    let listed = [problem("a", CONFLICT), problem("b", "CVK0201")];
    let all = [problem("a", CONFLICT), problem("c", REFUSED), problem("d", FORBIDDEN)];
    let now = all.iter().filter_map(|problem| Some((refused(problem)?, problem))).collect();
    let names = |status: Option<&GitSyncStatus>| -> Vec<String> {
        announced_before(status, &now).into_iter().map(|(id, _)| id.name).collect()
    };
    let mut status = GitSyncStatus { problems: listed.to_vec(), ..GitSyncStatus::default() };
    status.problem_count = Some(2);
    assert_eq!(names(Some(&status)), ["a"]);
    status.problem_count = Some(3);
    assert_eq!(names(Some(&status)), ["a", "c", "d"]);
    assert!(names(None).is_empty());
}
