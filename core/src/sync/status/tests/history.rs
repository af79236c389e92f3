use super::*;
use crate::sync::reasons::Trigger;

fn done(revision: &str, outcome: SyncOutcome, created: usize) -> SyncRecord {
    SyncRecord {
        revision: revision.into(),
        author: String::new(),
        subject: String::new(),
        outcome,
        counts: (created, 0, 0),
        duration_ms: 5,
        trigger: Trigger::Interval,
    }
}

#[test]
fn g18_what_could_not_be_told_is_told_with_what_is_done_next_for_its_commit() {
    let told = with_unreported(
        vec![done("a", SyncOutcome::Applied, 2)],
        Some(done("a", SyncOutcome::Partial, 1)),
    );
    assert_eq!(told, [done("a", SyncOutcome::Partial, 3)]);
    // What comes after it and writes nothing does not change what became of it.
    let told = with_unreported(
        vec![done("a", SyncOutcome::Applied, 2)],
        Some(done("a", SyncOutcome::Failed, 0)),
    );
    assert_eq!(told, [done("a", SyncOutcome::Applied, 2)]);
    // Unless all is well then, because somebody else has written it for example.
    for before in [SyncOutcome::Progressing, SyncOutcome::Failed, SyncOutcome::Partial] {
        let told =
            with_unreported(vec![done("a", before, 2)], Some(done("a", SyncOutcome::Applied, 0)));
        assert_eq!(told, [done("a", SyncOutcome::Applied, 2)]);
    }
    let told = with_unreported(
        vec![done("a", SyncOutcome::Applied, 2)],
        Some(done("b", SyncOutcome::Applied, 1)),
    );
    assert_eq!(told, [done("a", SyncOutcome::Applied, 2), done("b", SyncOutcome::Applied, 1)]);
    assert_eq!(
        with_unreported(vec![done("a", SyncOutcome::Applied, 2)], None),
        [done("a", SyncOutcome::Applied, 2)]
    );
}

#[test]
fn g18_what_has_arrived_without_a_reply_is_not_told_twice() {
    let entry = |created| HistoryEntry {
        revision: "a".into(),
        author: None,
        subject: None,
        outcome: "Applied".into(),
        created,
        updated: 0,
        pruned: 0,
        duration_ms: 5,
        trigger: "Interval".into(),
        time: Time(Timestamp::UNIX_EPOCH),
    };
    let unreported = || vec![done("a", SyncOutcome::Applied, 2)];
    assert_eq!(without_arrived(unreported(), Some(&entry(2))), []);
    assert_eq!(without_arrived(unreported(), Some(&entry(1))), unreported());
    assert_eq!(without_arrived(unreported(), None), unreported());
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
