use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
    let told = told_with(
        vec![done("a", SyncOutcome::Applied, 2)],
        Some(done("a", SyncOutcome::Partial, 1)),
    );
    assert_eq!(told, [done("a", SyncOutcome::Partial, 3)]);
    // What comes after it and writes nothing does not change what became of it.
    let told = told_with(
        vec![done("a", SyncOutcome::Applied, 2)],
        Some(done("a", SyncOutcome::Failed, 0)),
    );
    assert_eq!(told, [done("a", SyncOutcome::Applied, 2)]);
    // Unless all is well then, because somebody else has written it for example.
    for before in [SyncOutcome::Progressing, SyncOutcome::Failed, SyncOutcome::Partial] {
        let told = told_with(vec![done("a", before, 2)], Some(done("a", SyncOutcome::Applied, 0)));
        assert_eq!(told, [done("a", SyncOutcome::Applied, 2)]);
    }
    let told = told_with(
        vec![done("a", SyncOutcome::Applied, 2)],
        Some(done("b", SyncOutcome::Applied, 1)),
    );
    assert_eq!(told, [done("a", SyncOutcome::Applied, 2), done("b", SyncOutcome::Applied, 1)]);
    assert_eq!(
        told_with(vec![done("a", SyncOutcome::Applied, 2)], None),
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
    let untold = || vec![done("a", SyncOutcome::Applied, 2)];
    assert_eq!(not_arrived(untold(), Some(&entry(2))), []);
    assert_eq!(not_arrived(untold(), Some(&entry(1))), untold());
    assert_eq!(not_arrived(untold(), None), untold());
}
