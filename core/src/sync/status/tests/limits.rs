use jiff::Timestamp;

use super::*;
use crate::api::Kind;
use crate::api::git_sync::{ApprovedPrune, Severity};
use crate::sync::plan::Plan;
use crate::sync::plan::brake::MOST_APPROVED;
use crate::sync::reasons::{EngineReason, Verdict};
use crate::sync::status::build::status;
use crate::sync::status::report::{Approved, Report};

#[test]
fn g18_a_status_is_never_longer_than_256_kib_and_still_counts() {
    let long = "\u{1f525}".repeat(600);
    let problem = |n: usize| Problem {
        severity: Severity::Error,
        path: Some(long.clone()),
        line: None,
        column: None,
        code: "CVK0201".into(),
        message: format!("{n} {long}"),
        hint: Some(long.clone()),
        object: None,
    };
    let problems: Vec<_> = (0..500).map(problem).collect();
    let id = |n: usize| ObjectId::new(Kind::Agent, format!("{n:063}"));
    let uids = (0..MOST_APPROVED).map(|n| format!("{n:012x}")).collect();
    let plan = Plan {
        quarantined: (0..500).map(|n| (id(n), Some(long.clone()))).collect(),
        orphans: (0..500).map(id).collect(),
        paused: (0..500).map(id).collect(),
        protected: (0..500).map(id).collect(),
        drifted: (0..500).map(id).collect(),
        ..Plan::default()
    };
    let said = Verdict {
        reason: EngineReason::ProblemsFound.into(),
        message: long.clone(),
        ready: false,
        stalled: false,
        reconciling: false,
    };
    let report = Report {
        revision: Some("main@sha1:0".into()),
        problems: Some(&problems),
        plan: Some(&plan),
        approved: Some(Approved {
            prune: ApprovedPrune { uids, ..ApprovedPrune::default() },
            is_due: true,
        }),
        ..Report::of(1, said, Timestamp::UNIX_EPOCH)
    };
    let status = status(None, report);
    let bytes = serde_json::to_vec(&status).expect("JSON").len();
    assert!(bytes <= MOST_STATUS_BYTES, "{bytes}");
    assert_eq!(status.problem_count, Some(500));
    assert!(status.problems.len() >= 5, "{}", status.problems.len());
    assert_eq!(status.approved_prune.expect("kept").uids.len(), MOST_APPROVED);
}

#[test]
fn g18_a_long_request_and_hidden_characters_stay_out_of_a_status() {
    let said = Verdict {
        reason: EngineReason::ApplyFailed.into(),
        message: "a\u{202e}b\n\u{9b}31mc".into(),
        ready: false,
        stalled: false,
        reconciling: true,
    };
    let plan = Plan::default();
    let report = Report {
        handled: Some("r".repeat(200_000)),
        problems: Some(&[]),
        plan: Some(&plan),
        ..Report::of(1, said, Timestamp::UNIX_EPOCH)
    };
    let status = status(None, report);
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready");
    assert_eq!(ready.message, "a b  31mc");
    assert_eq!(status.last_handled_reconcile_at.map(|value| value.chars().count()), Some(600));
    assert_eq!(shorten("äöü", 3), "äöü");
    assert_eq!(shorten("äöüß", 3), "äö…");
}
