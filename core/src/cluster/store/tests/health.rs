use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
#[allow(clippy::disallowed_methods)] // a point to count from
fn g18_a_kind_that_fails_for_long_is_silent_until_it_works_and_one_failure_is_nothing() {
    let (health, start) = (Health::new(SILENT_AFTER), Instant::now());
    let time: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
    let turns = Arc::new(AtomicUsize::new(0));
    let count = turns.clone();
    health.on_silence_change(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let turns = || turns.load(Ordering::SeqCst);
    let after = |seconds| start + Duration::from_secs(seconds);
    // Failures with successes between them, over hours.
    for seconds in (0..7200).step_by(50) {
        health.failed("cut off", after(seconds), time);
        health.failed("cut off", after(seconds + 5), time);
        assert_eq!((health.silence(), turns()), (None, 0));
        health.works();
    }
    // Failures only.
    for seconds in (8000..8060).step_by(5) {
        health.failed("refused", after(seconds), time);
        assert_eq!((health.silence(), turns()), (None, 0));
    }
    for seconds in (8060..9000).step_by(5) {
        health.failed(&"no right ".repeat(100), after(seconds), time);
        let said = health.silence().expect("silent");
        assert!(said.starts_with("since 2026-01-02T03:04:05Z: no right"), "{said}");
        assert!(said.len() < 300, "{said}");
        assert_eq!(turns(), 1);
    }
    health.works();
    health.works();
    assert_eq!((health.silence(), turns()), (None, 2));
    assert!(!health.is_failing());
    health.failed("once more", after(9100), time);
    assert_eq!((health.silence(), turns()), (None, 2));
    assert!(health.is_failing(), "nothing proves an absence from now on");
}
