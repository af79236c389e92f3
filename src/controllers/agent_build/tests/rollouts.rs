use super::*;

#[test]
fn a10_the_condition_names_who_went_back_and_goes_with_them() {
    let mut status = AgentBuildStatus::default();
    let now = Timestamp::UNIX_EPOCH;
    let names = |count: usize| (0..count).map(|n| format!("agent/a{n}")).collect::<Vec<_>>();
    set(&mut status, &names(1), 7, now);
    let condition = &status.conditions[0];
    assert_eq!((&*condition.type_, &*condition.status), ("RolledBack", "True"));
    assert_eq!(
        condition.message,
        "not available in time with this image, and running the one before: agent/a0"
    );
    set(&mut status, &names(5), 7, now);
    assert!(status.conditions[0].message.ends_with(": agent/a0, agent/a1, agent/a2 and 2 more"));
    set(&mut status, &[], 7, now);
    assert_eq!(status.conditions, []);
}
