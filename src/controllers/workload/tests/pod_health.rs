use super::*;
use crate::cluster::pods::Trouble;

fn observed(health: Health, trouble: Option<bool>) -> Observed {
    let trouble = trouble.map(|lasting| Trouble {
        reason: "CrashLoopBackOff",
        lasting,
        message: "pod a-1: it ends".into(),
    });
    Observed { wanted: 3, updated: 3, unavailable: 2, health, trouble, ..Observed::default() }
}

#[test]
fn a8_pods_in_trouble_say_how_many_serve_and_what_is_wrong() {
    for (lasting, phase, moving) in
        [(true, Phase::Failed, (false, "Stuck")), (false, Phase::Pending, (true, "RollingOut"))]
    {
        let observed = observed(Health::Progressing, Some(lasting));
        let text = "1 of 3 replicas available; pod a-1: it ends";
        assert_eq!(pod_phase(&observed), (phase, "CrashLoopBackOff", text.to_owned()));
        assert_eq!(progressing(Some(&observed)), moving);
    }
}

#[test]
fn a8_what_runs_or_is_not_to_run_has_no_trouble() {
    let mut all = observed(Health::Available, Some(true));
    all.unavailable = 0;
    assert_eq!(pod_phase(&all).0, Phase::Ready);
    assert_eq!(progressing(Some(&all)), (false, "Settled"));
    let ending = Observed { wanted: 0, ..observed(Health::Progressing, Some(true)) };
    assert_eq!(pod_phase(&ending), (Phase::Stopped, "Stopped", "Scaled to zero".to_owned()));
    assert_eq!(progressing(Some(&ending)), (true, "RollingOut"));
}

#[test]
fn a8_pods_that_are_refused_say_by_whom() {
    let told = |message: &str| {
        let failed = Health::Failed(REFUSED.into(), message.to_owned());
        let (phase, reason, text) = pod_phase(&observed(failed, Some(true)));
        assert_eq!(phase, Phase::Failed);
        let begin = "1 of 3 replicas available; the API server refuses new pods: ";
        (reason, text.strip_prefix(begin).expect(begin).to_owned())
    };
    let quota = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    let whole = format!("pods \"agent-a-7c9f-x2v\" is forbidden: {quota}");
    assert_eq!(told(&whole), ("QuotaExceeded", quota.to_owned()));
    let security = "violates PodSecurity \"restricted:latest\": host namespaces";
    let whole = format!("pods \"agent-a-7c9f-\" is forbidden: {security}");
    assert_eq!(told(&whole), ("PodSecurityViolation", security.to_owned()));
    assert_eq!(told("Pod \"a\" is invalid"), ("PodsRefused", "Pod \"a\" is invalid".into()));
}

#[test]
fn a8_a_replica_set_that_is_refused_says_by_whom() {
    let told = |message: &str| {
        let failed = Health::Failed(REPLICA_SET_REFUSED.into(), message.to_owned());
        let observed = observed(failed, None);
        assert_eq!(progressing(Some(&observed)), (false, "Stuck"));
        let (phase, reason, text) = pod_phase(&observed);
        assert_eq!(phase, Phase::Failed);
        let begin =
            "1 of 3 replicas available; the API server refuses the ReplicaSet of new pods: ";
        (reason, text.strip_prefix(begin).expect(begin).to_owned())
    };
    let quota = "exceeded quota: q, requested: count/replicasets.apps=1, used: count/replicasets.apps=1, limited: count/replicasets.apps=1";
    let begin = "Failed to create new replica set \"agent-a-7c9f\": ";
    let whole = format!("{begin}replicasets.apps \"agent-a-7c9f\" is forbidden: {quota}");
    assert_eq!(told(&whole), ("QuotaExceeded", quota.to_owned()));
    let hook = "admission webhook \"a.example\" denied the request: \"x\": no";
    assert_eq!(told(&format!("{begin}{hook}")), ("PodsRefused", hook.to_owned()));
}

#[test]
fn a8_a_deadline_that_passed_says_what_the_pods_say() {
    let late = || Health::Failed("ProgressDeadlineExceeded".into(), "late".into());
    assert_eq!(pod_phase(&observed(late(), Some(true))).1, "CrashLoopBackOff");
    let (phase, reason, text) = pod_phase(&observed(late(), None));
    assert_eq!((phase, reason), (Phase::Failed, "DeploymentFailed"));
    assert_eq!(text, "ProgressDeadlineExceeded: late");
    assert_eq!(progressing(Some(&observed(late(), None))), (false, "Stuck"));
}
