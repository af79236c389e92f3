//! (pure) The status that ModelAPI and MCPServer share: pods that serve, or an address that somebody else serves.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::common::Phase;
use crate::cluster::conditions;
use crate::cluster::readiness::{Health, Observed};

/// What came of the writes.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Names that somebody else has.
    pub conflicts: Vec<String>,
    /// Why a write failed.
    pub error: Option<String>,
    /// The Deployment, if there is one.
    pub observed: Option<Observed>,
    /// Whether it runs no pods at all.
    pub elsewhere: bool,
    /// The build that its image waits for.
    pub waiting_for_build: Option<String>,
}

/// Sets the conditions; gives phase and one sentence.
pub fn judge(
    list: &mut Vec<Condition>,
    outcome: &Outcome,
    generation: i64,
    now: Timestamp,
) -> (Phase, String) {
    let (phase, reason, message) = verdict(outcome);
    let mut set = |type_: &str, good: bool, reason: &str, message: &str| {
        let state = if good { "True" } else { "False" };
        conditions::set(list, type_, state, reason, message, generation, now);
    };
    set("Ready", phase == Phase::Ready, reason, &message);
    if outcome.elsewhere {
        conditions::remove(list, "Available");
        conditions::remove(list, "Progressing");
    } else {
        let available = outcome
            .observed
            .as_ref()
            .is_some_and(|o| o.health == Health::Available && o.wanted > 0);
        set(
            "Available",
            available,
            if available { "MinimumReplicasAvailable" } else { "ReplicasUnavailable" },
            "",
        );
        let moving =
            matches!(outcome.observed.as_ref().map(|o| &o.health), Some(Health::Progressing));
        set("Progressing", moving, if moving { "RollingOut" } else { "Settled" }, "");
    }
    if outcome.conflicts.is_empty() {
        conditions::remove(list, "Conflict");
    } else {
        conditions::set(
            list,
            "Conflict",
            "True",
            "NameTaken",
            &outcome.conflicts.join("; "),
            generation,
            now,
        );
    }
    (phase, message)
}

fn verdict(outcome: &Outcome) -> (Phase, &'static str, String) {
    if !outcome.conflicts.is_empty() {
        return (Phase::Failed, "Conflict", outcome.conflicts.join("; "));
    }
    if let Some(error) = &outcome.error {
        return (Phase::Failed, "ApplyFailed", error.clone());
    }
    if outcome.elsewhere {
        return (
            Phase::Ready,
            "External",
            "Served elsewhere; not checked whether it answers".into(),
        );
    }
    let Some(observed) = &outcome.observed else {
        let build = outcome.waiting_for_build.as_deref().unwrap_or_default();
        return (Phase::Waiting, "WaitingForBuild", format!("Waiting for AgentBuild {build}"));
    };
    if observed.wanted == 0 {
        return (Phase::Stopped, "Stopped", "Scaled to zero".into());
    }
    let count = format!(
        "{} of {} replicas available",
        observed.wanted - observed.unavailable,
        observed.wanted
    );
    match &observed.health {
        Health::Available => (Phase::Ready, "Available", count),
        Health::Progressing => (Phase::Pending, "RollingOut", count),
        Health::Failed(reason, message) => {
            (Phase::Failed, "DeploymentFailed", format!("{reason}: {message}"))
        }
    }
}
