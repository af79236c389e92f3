use super::*;
use crate::api::git_sync::Severity;
use crate::sync::plan::brake::MOST_APPROVED;

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
    assert!(bytes <= MOST_BYTES, "{bytes}");
    assert_eq!(status.problem_count, Some(500));
    assert!(status.problems.len() >= 5, "{}", status.problems.len());
    assert_eq!(status.approved_prune.expect("kept").uids.len(), MOST_APPROVED);
}

#[test]
fn g18_what_a_commit_began_and_finished_later_is_one_entry_of_the_history() {
    let mut history = Vec::new();
    let mut did = |revision: &str, outcome: SyncOutcome, counts| {
        let done = SyncRecord {
            revision: revision.into(),
            author: String::new(),
            subject: String::new(),
            outcome,
            counts,
            duration_ms: 5,
            trigger: if history.is_empty() { Trigger::Request } else { Trigger::Cluster },
        };
        remember(&mut history, entry(done, Timestamp::UNIX_EPOCH));
        let short = |e: &HistoryEntry| (e.outcome.clone(), e.created, e.updated, e.pruned);
        history.iter().map(short).collect::<Vec<_>>()
    };
    let line = |outcome: SyncOutcome, (created, updated, pruned)| {
        (outcome.to_string(), created, updated, pruned)
    };
    assert_eq!(
        did("one", SyncOutcome::Progressing, (2, 1, 0)),
        [line(SyncOutcome::Progressing, (2, 1, 0))]
    );
    assert_eq!(
        did("one", SyncOutcome::Progressing, (0, 1, 0)),
        [line(SyncOutcome::Progressing, (2, 2, 0))]
    );
    assert_eq!(
        did("one", SyncOutcome::Applied, (0, 0, 3)),
        [line(SyncOutcome::Applied, (2, 2, 3))]
    );
    let two = did("one", SyncOutcome::Applied, (0, 1, 0));
    assert_eq!(two, [line(SyncOutcome::Applied, (0, 1, 0)), line(SyncOutcome::Applied, (2, 2, 3))]);
    did("two", SyncOutcome::Progressing, (1, 0, 0));
    let four = did("three", SyncOutcome::Held, (0, 0, 0));
    assert_eq!(
        four[..2],
        [line(SyncOutcome::Held, (0, 0, 0)), line(SyncOutcome::Partial, (1, 0, 0))]
    );
    assert_eq!((four.len(), history[3].trigger.as_str()), (4, "Request"));
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
    assert_eq!(cut("äöü", 3), "äöü");
    assert_eq!(cut("äöüß", 3), "äö…");
}
