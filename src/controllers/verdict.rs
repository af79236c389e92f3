//! (pure) Phase, reason and sentence for what runs pods, from its Deployment and the trouble of its pods.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::common::Phase;
use crate::cluster::readiness::{Health, Observed, UNMADE};

/// What a Deployment's controller says when a pod is refused (`ReplicaFailure`).
const REFUSED: &str = "FailedCreate";

/// What to tell of pods.
#[must_use]
pub fn of_pods(observed: &Observed) -> (Phase, &'static str, String) {
    if observed.wanted == 0 {
        return (Phase::Stopped, "Stopped", "Scaled to zero".into());
    }
    let count = observed.progress();
    match (&observed.health, &observed.trouble) {
        (Health::Available, _) => (Phase::Ready, "Available", count),
        (Health::Failed(reason, message), _) if reason == REFUSED || reason == UNMADE => {
            let what = if reason == UNMADE { "the ReplicaSet of new pods" } else { "new pods" };
            let (reason, said) = refusal(message);
            (Phase::Failed, reason, format!("{count}; the API server refuses {what}: {said}"))
        }
        (_, Some(trouble)) => {
            let phase = if trouble.lasting { Phase::Failed } else { Phase::Pending };
            (phase, trouble.reason, format!("{count}; {}", trouble.message))
        }
        (Health::Progressing, None) => (Phase::Pending, "RollingOut", count),
        (Health::Failed(reason, message), None) => {
            (Phase::Failed, "DeploymentFailed", format!("{reason}: {message}"))
        }
    }
}

/// The condition `Progressing`: whether a rollout is at work, and the reason. One that cannot go on without a change is
/// not at work.
#[must_use]
pub fn progressing(observed: Option<&Observed>) -> (bool, &'static str) {
    let Some(observed) = observed else { return (false, "Settled") };
    let stuck = observed.trouble.as_ref().is_some_and(|trouble| trouble.lasting);
    match observed.health {
        Health::Available => (false, "Settled"),
        Health::Progressing if observed.wanted == 0 || !stuck => (true, "RollingOut"),
        Health::Progressing | Health::Failed(..) => (false, "Stuck"),
    }
}

/// Which rule refuses pods or their ReplicaSet, and what the API server said without the names of what was never made.
fn refusal(message: &str) -> (&'static str, &str) {
    let without = |said, begin, end| {
        let rest = str::strip_prefix(said, begin).and_then(|rest| rest.split_once(end));
        rest.map_or(said, |(_, said)| said)
    };
    let said = without(message, "Failed to create new replica set \"", "\": ");
    let said = without(said, "replicasets.apps \"", "\" is forbidden: ");
    let said = without(said, "pods \"", "\" is forbidden: ");
    let reason = if said.starts_with("exceeded quota") {
        "QuotaExceeded"
    } else if said.starts_with("violates PodSecurity") {
        "PodSecurityViolation"
    } else {
        "PodsRefused"
    };
    (reason, said)
}

#[cfg(test)]
mod tests {
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
            assert_eq!(of_pods(&observed), (phase, "CrashLoopBackOff", text.to_owned()));
            assert_eq!(progressing(Some(&observed)), moving);
        }
    }

    #[test]
    fn a8_what_runs_or_is_not_to_run_has_no_trouble() {
        let mut all = observed(Health::Available, Some(true));
        all.unavailable = 0;
        assert_eq!(of_pods(&all).0, Phase::Ready);
        assert_eq!(progressing(Some(&all)), (false, "Settled"));
        let ending = Observed { wanted: 0, ..observed(Health::Progressing, Some(true)) };
        assert_eq!(of_pods(&ending), (Phase::Stopped, "Stopped", "Scaled to zero".to_owned()));
        assert_eq!(progressing(Some(&ending)), (true, "RollingOut"));
    }

    #[test]
    fn a8_pods_that_are_refused_say_by_whom() {
        let told = |message: &str| {
            let failed = Health::Failed(REFUSED.into(), message.to_owned());
            let (phase, reason, text) = of_pods(&observed(failed, Some(true)));
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
            let failed = Health::Failed(UNMADE.into(), message.to_owned());
            let observed = observed(failed, None);
            assert_eq!(progressing(Some(&observed)), (false, "Stuck"));
            let (phase, reason, text) = of_pods(&observed);
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
        assert_eq!(of_pods(&observed(late(), Some(true))).1, "CrashLoopBackOff");
        let (phase, reason, text) = of_pods(&observed(late(), None));
        assert_eq!((phase, reason), (Phase::Failed, "DeploymentFailed"));
        assert_eq!(text, "ProgressDeadlineExceeded: late");
        assert_eq!(progressing(Some(&observed(late(), None))), (false, "Stuck"));
    }
}
