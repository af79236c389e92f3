//! (pure) Pod health: phase, reason and one sentence, from a Deployment and the trouble of its pods.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::common::Phase;
use crate::cluster::readiness::{Health, Observed, REPLICA_SET_REFUSED};
use crate::controllers::reason::Reason;

/// The reason of the Deployment's condition `ReplicaFailure` when the API server refuses a pod.
const REFUSED: &str = "FailedCreate";

/// Phase, reason of `Ready` and one sentence.
#[must_use]
pub fn pod_phase(observed: &Observed) -> (Phase, &'static str, String) {
    if observed.wanted == 0 {
        return (Phase::Stopped, Reason::Stopped.as_str(), "Scaled to zero".into());
    }
    let count = observed.progress();
    match (&observed.health, &observed.trouble) {
        (Health::Available, _) => (Phase::Ready, "Available", count),
        (Health::Failed(reason, message), _)
            if reason == REFUSED || reason == REPLICA_SET_REFUSED =>
        {
            let what = if reason == REPLICA_SET_REFUSED {
                "the ReplicaSet of new pods"
            } else {
                "new pods"
            };
            let (reason, said) = refusal(message);
            (Phase::Failed, reason, format!("{count}; the API server refuses {what}: {said}"))
        }
        (_, Some(trouble)) => {
            let phase = if trouble.lasting { Phase::Failed } else { Phase::Pending };
            (phase, trouble.reason, format!("{count}; {}", trouble.message))
        }
        (Health::Progressing, None) => (Phase::Pending, Reason::RollingOut.as_str(), count),
        (Health::Failed(reason, message), None) => {
            (Phase::Failed, "DeploymentFailed", format!("{reason}: {message}"))
        }
    }
}

/// The condition `Progressing`: whether a rollout moves, and the reason. A rollout that needs a change to go on does not move.
#[must_use]
pub fn progressing(observed: Option<&Observed>) -> (bool, &'static str) {
    let Some(observed) = observed else { return (false, "Settled") };
    let stuck = observed.trouble.as_ref().is_some_and(|trouble| trouble.lasting);
    match observed.health {
        Health::Available => (false, "Settled"),
        Health::Progressing if observed.wanted == 0 || !stuck => {
            (true, Reason::RollingOut.as_str())
        }
        Health::Progressing | Health::Failed(..) => (false, "Stuck"),
    }
}

/// The rule that refuses pods or their ReplicaSet, and what the API server said. The names of objects that were never made are
/// left out.
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
#[path = "tests/pod_health.rs"]
mod tests;
