use super::*;

#[test]
fn g12_held_deletes_wait_for_somebody_and_unproven_ones_for_the_cause_to_end() {
    let victims = Vec::new();
    let held = Held {
        digest: "d".into(),
        cause: Cause::Brake,
        reason: "too many".into(),
        command: "approve d".into(),
        victims,
    };
    let mut plan = Plan { held: Some(held.clone()), ..Plan::default() };
    let asked = Remaining { asked: vec!["other".into()], ..Remaining::default() };
    assert_eq!(verdict("r", &[], &plan, &asked).reason, EngineReason::Progressing.into());
    let said = verdict("r", &[], &plan, &Remaining::default());
    assert_eq!(
        (said.reason.as_str(), said.reconciling),
        ("PruneHeld", false),
        "somebody has to act"
    );
    // These go on by themselves once the other GitSync can be read.
    plan.held = Some(Held { cause: Cause::Unproven, ..held });
    let said = verdict("r", &[], &plan, &Remaining::default());
    assert_eq!((said.reason.as_str(), said.reconciling), ("PruneWaiting", true));
}

#[test]
fn g18_what_failed_and_what_was_not_tried_yet_are_told_apart() {
    let problem = |code: &str| Problem {
        severity: Severity::Error,
        path: Some("a.yaml".into()),
        line: Some(1),
        column: Some(1),
        code: code.into(),
        message: "Agent/a could not be written: no answer".into(),
        hint: None,
        object: None,
    };
    let said = |problems: &[Problem], remaining: &Remaining| {
        let Verdict { reason, message, ready, reconciling, .. } =
            verdict("main@sha1:0", problems, &Plan::default(), remaining);
        assert!(!ready && reconciling);
        (reason, message)
    };
    let failed = Remaining { transient: 1, left: 312, ..Remaining::default() };
    let (reason, message) = said(&[problem("CVK0903")], &failed);
    assert!(reason.is(EngineReason::ApplyFailed));
    assert_eq!(
        message,
        "1 object(s) of main@sha1:0 could not be written, 312 more not tried yet; trying again; first: a.yaml:1:1: Agent/a could not be written: no answer"
    );
    let (reason, message) = said(&[problem("CVK0201"), problem("CVK0903")], &failed);
    assert!(reason.is(EngineReason::ProblemsFound));
    assert!(
        message.starts_with("2 error(s) at main@sha1:0, 312 more not tried yet; "),
        "{message}"
    );
    // Slow, and nothing is wrong.
    let (reason, message) = said(&[], &Remaining { left: 312, ..Remaining::default() });
    assert!(reason.is(EngineReason::Progressing));
    assert_eq!(message, "main@sha1:0: 312 object(s) are still to be written or deleted");
}
