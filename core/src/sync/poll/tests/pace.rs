#![allow(clippy::disallowed_methods)] // a point to count from

use super::*;

const TICK: Duration = Duration::from_millis(1);

#[test]
fn g5_a_burst_of_deliveries_is_one_poll_at_once_and_one_afterwards() {
    let (mut pace, start) = (Pace::default(), Instant::now());
    assert_eq!(pace.take(start), None, "nothing was delivered");
    assert!(pace.delivered());
    assert_eq!(pace.take(start), Some(Duration::ZERO), "at once");
    let firsts = (0..999).filter(|_| pace.delivered()).count();
    assert_eq!(firsts, 1, "the others wait with it");
    assert_eq!(pace.take(start + TICK), Some(LEAST_GAP.saturating_sub(TICK)));
    assert_eq!(pace.take(start + LEAST_GAP), Some(Duration::ZERO));
    assert_eq!(pace.take(start + LEAST_GAP), None, "nothing is left");
}

#[test]
fn g5_a_flood_polls_ever_less_often_and_after_a_pause_a_push_is_seen_at_once() {
    let (mut pace, start) = (Pace::default(), Instant::now());
    let mut polls = Vec::new();
    for millis in 0..60_000 {
        pace.delivered();
        let now = start + Duration::from_millis(millis);
        if pace.take(now) == Some(Duration::ZERO) {
            polls.push(millis / 1000);
        }
    }
    assert_eq!(polls, [0, 1, 3, 7, 15, 25, 35, 45, 55]);
    pace.delivered();
    let later = start + Duration::from_secs(80);
    assert_eq!(pace.take(later), Some(Duration::ZERO));
    pace.delivered();
    assert_eq!(pace.take(later + LEAST_GAP), Some(Duration::ZERO), "a new burst");
}
