use super::*;
use crate::controllers::agent_build::run::RunOutcome;

/// How many seconds a run is left alone that was created then.
fn left(created: Option<i64>, now: i64) -> Option<u64> {
    let at = |second| Timestamp::from_second(second).expect("a time");
    let run = Run { held: true, created: created.map(at), ..Run::sample(RunOutcome::Running) };
    left_alone(&run, at(now)).map(|left| left.as_secs())
}

#[test]
fn b7_a_pending_run_is_left_to_another_operator_for_a_moment() {
    assert_eq!(left(Some(1000), 1000), Some(30));
    assert_eq!(left(Some(1000), 1029), Some(1));
    assert_eq!(left(Some(1000), 1030), None);
    assert_eq!(left(Some(1000), 9000), None);
    // Our clock is behind: it is asked again, and not only when the clocks agree.
    assert_eq!(left(Some(1000), 400), Some(30));
    // The API server gives each object a time. What has none is no run of an operator.
    assert_eq!(left(None, 1000), None);
}
