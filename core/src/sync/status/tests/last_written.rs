use super::*;

fn status(revision: &str) -> GitSyncStatus {
    GitSyncStatus { last_applied_revision: Some(revision.into()), ..GitSyncStatus::default() }
}

#[test]
#[allow(clippy::disallowed_methods)] // a point to count from
fn g18_what_somebody_else_writes_is_answered_once_and_what_we_wrote_is_not() {
    let (last_written, key, now) =
        (LastWritten::default(), Key::new("team", "main"), Instant::now());
    let (a, b, late) = (status("a"), status("b"), status("late"));
    let wait =
        |live: Option<&GitSyncStatus>| last_written.wait_before_rewrite(&key, "u", live, now);
    assert_eq!(wait(Some(&late)), None, "nothing was said yet");
    // On its way, and whether or not it arrives.
    last_written.wrote(&key, "u", &b, Some(&a));
    assert_eq!((wait(Some(&a)), wait(Some(&b))), (None, None));
    // The server leaves out what it does not know.
    let shown = status("b, as the server has it");
    last_written.replied(&key, "u", Some(shown.clone()));
    assert_eq!((wait(Some(&b)), wait(Some(&shown))), (None, None));
    for foreign in [Some(&late), Some(&a), None] {
        assert_eq!(wait(foreign), Some(Duration::ZERO));
    }
    assert_eq!(last_written.wait_before_rewrite(&key, "another", Some(&late), now), None);
    assert_eq!(last_written.rewrite(&key, "u", Some(&shown), now), None);
    assert_eq!(last_written.rewrite(&key, "u", Some(&late), now), Some(b.clone()));
    assert_eq!(last_written.rewrite(&key, "u", Some(&late), now), None, "once");
    // Of the two numbers that say how much may be deleted, the smaller one is kept.
    let of = |prune_base| GitSyncStatus { prune_base, ..status("b") };
    for (ours, theirs, kept) in [(8, Some(6), 6), (6, Some(8), 6), (6, None, 6), (6, Some(-1), 0)] {
        let last_written = LastWritten::default();
        last_written.wrote(&key, "u", &of(Some(ours)), Some(&a));
        assert_eq!(last_written.own(&key, "u", Some(&of(theirs))), Some(of(Some(kept))));
        let answer = last_written.rewrite(&key, "u", Some(&of(theirs)), now);
        assert_eq!(answer, Some(of(Some(kept))));
        assert_eq!(last_written.own(&key, "u", Some(&of(Some(ours)))), None, "it is ours");
    }
    // What could not be written over it yet is written once more.
    last_written.wrote(&key, "u", &b, Some(&late));
    assert!(wait(Some(&late)) > Some(Duration::ZERO));
    // What the server makes of it is accepted.
    last_written.replied(&key, "u", Some(late.clone()));
    assert_eq!(wait(Some(&late)), None);
    last_written.forget(&key);
    assert_eq!(wait(Some(&a)), None);
}

#[test]
#[allow(clippy::disallowed_methods)] // a point to count from
fn g18_whoever_goes_on_writing_is_answered_less_and_less_often() {
    let (last_written, key, start) =
        (LastWritten::default(), Key::new("team", "main"), Instant::now());
    let (ours, theirs) = (status("ours"), status("theirs"));
    let answers = |from: Instant, seconds: u64| {
        let mut answers = 0;
        for millis in (0..seconds * 1000).step_by(50) {
            let now = from + Duration::from_millis(millis);
            let wait =
                last_written.wait_before_rewrite(&key, "u", Some(&theirs), now).expect("foreign");
            if let Some(answer) = last_written.rewrite(&key, "u", Some(&theirs), now) {
                assert_eq!((wait, answer), (Duration::ZERO, ours.clone()));
                last_written.wrote(&key, "u", &ours, Some(&theirs));
                last_written.replied(&key, "u", Some(ours.clone()));
                answers += 1;
            } else {
                assert!(wait > Duration::ZERO);
            }
        }
        answers
    };
    last_written.wrote(&key, "u", &ours, Some(&ours));
    let hour = answers(start, 3600);
    assert!((10..80).contains(&hour), "{hour} in an hour");
    // Quiet for long, and it is answered at once again.
    let later = start + Duration::from_secs(3600) + REWRITE_BACKOFF_RESET * 2;
    assert!((2..5).contains(&answers(later, 2)));
}
