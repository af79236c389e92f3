use super::*;
use crate::controllers::agent_build::failure::may_be_of_credentials;

#[test]
fn b7_a_build_that_was_refused_access_looks_at_its_secrets_again_and_others_do_not() {
    let one = key("1");
    let noted = Run { credentials: Some("d".into()), ..run(&one, failed()) };
    let again = |run: &Run, reason: &str| {
        let why = failure(run, None).map(|why| BuildFailure { reason: reason.into(), ..why });
        let found = about(&one, Decision::Show(run), why.as_ref());
        again::next(&found, at(1))
    };
    let waits = |next: Next| matches!(next, Next::After(pause) if pause <= Duration::from_secs(60));
    for reason in [
        "PushDenied",
        "GitAccessDenied",
        "CommitNotFetched",
        "BaseImageMissing",
        "RegistryWithoutTls",
    ] {
        assert!(waits(again(&noted, reason)), "{reason}");
        // It has no digest to compare with.
        let unknown = Run { credentials: None, ..noted.clone() };
        assert!(matches!(again(&unknown, reason), Next::Settled), "{reason}");
    }
    for reason in ["BuildFailed", "TestsFailed", "PolicyFailed", "PodRefused", "SubfolderMissing"] {
        assert!(matches!(again(&noted, reason), Next::Settled), "{reason}");
        let why = failure(&noted, None).expect("a failure");
        assert!(!may_be_of_credentials(&BuildFailure { reason: reason.into(), ..why }));
    }
}
