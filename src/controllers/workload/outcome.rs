//! (pure) What step "apply" gives to step "status".
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::pod_health::progressing;
use super::validate::Invalid;
use crate::api::common::Phase;
use crate::api::rollout::RolloutStatus;
use crate::cluster::client::CallError;
use crate::cluster::conditions;
use crate::cluster::readiness::Observed;
use crate::controllers::children::NamesTaken;
use crate::controllers::inputs::report::Followed;
use crate::controllers::reason::Reason;

/// Why a child could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WriteFailure {
    /// What the API server said, for people.
    pub message: String,
    /// Whether another try with the same content is of no use.
    pub lasting: bool,
}

impl From<CallError> for WriteFailure {
    fn from(error: CallError) -> Self {
        Self { message: error.to_string(), lasting: error.is_invalid() || error.is_forbidden() }
    }
}

/// What became of the children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All children are as wanted.
    Done,
    /// The spec is invalid: nothing was written.
    Invalid(Invalid),
    /// Other objects have the names of children.
    NamesTaken(NamesTaken),
    /// A write failed.
    Failed(WriteFailure),
}

impl Outcome {
    /// Phase, reason of `Ready` and one sentence, if the outcome alone decides them.
    #[must_use]
    pub fn phase(&self) -> Option<(Phase, &'static str, String)> {
        Some(match self {
            Self::Done => return None,
            Self::Invalid(invalid) => (Phase::Failed, "InvalidSpec", invalid.to_string()),
            Self::NamesTaken(NamesTaken { conflicts, leftovers }) if conflicts.is_empty() => {
                (Phase::Pending, Reason::Replacing.as_str(), leftovers.join("; "))
            }
            Self::NamesTaken(NamesTaken { conflicts, .. }) => {
                (Phase::Failed, "Conflict", conflicts.join("; "))
            }
            Self::Failed(WriteFailure { message, lasting }) => {
                let phase = if *lasting { Phase::Failed } else { Phase::Pending };
                (phase, "ApplyFailed", message.clone())
            }
        })
    }
}

/// What step "apply" left behind. Only step "apply" makes one, so there is no status without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What became of the children.
    pub outcome: Outcome,
    /// What the Deployment is doing, if there is one.
    pub observed: Option<Observed>,
    /// The image that the Deployment names.
    pub image: Option<String>,
    /// Whether the Service is there and belongs to the object.
    pub has_service: bool,
    /// What to tell of the ConfigMaps and Secrets that the pods read.
    pub inputs: Followed,
    /// Whether the Deployment is neither made nor changed, or has the last good revision in place of this spec.
    pub is_held: bool,
    /// What to remember of the rollouts.
    pub rollout: Option<RolloutStatus>,
    /// What to tell while the wanted revision has failed.
    pub rolled_back: Option<String>,
}

impl Applied {
    /// Whether the children are what this spec wants, not what an earlier one wanted.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        matches!(self.outcome, Outcome::Done) && !self.is_held && self.inputs.held().is_none()
    }

    /// Sets the conditions `Available` and `Progressing`: what the Deployment is doing. `held` says why this spec is not rolled out.
    pub fn tell_pods(
        &self,
        list: &mut Vec<Condition>,
        at: conditions::Observed,
        held: Option<Reason>,
    ) {
        let mut set = |type_: &str, good: bool, reason: &str| {
            let state = if good { "True" } else { "False" };
            at.set(list, type_, state, reason, "");
        };
        let available = self.observed.as_ref().is_some_and(Observed::is_available);
        let reason = if available { "MinimumReplicasAvailable" } else { "ReplicasUnavailable" };
        set("Available", available, reason);
        let back = self.rolled_back.as_ref().map(|_| Reason::RolledBack);
        let held = self.inputs.held().map(|_| Reason::WaitingForInputs).or(held).or(back);
        let (moving, reason) = match held {
            // What still moves is not this spec.
            Some(held) => (false, held.as_str()),
            None => progressing(self.observed.as_ref()),
        };
        set("Progressing", moving, reason);
    }

    /// Sets or removes the conditions that are there only while something is wrong: `Conflict`, and those of the inputs.
    pub fn tell_problems(&self, list: &mut Vec<Condition>, generation: i64, now: Timestamp) {
        match &self.outcome {
            Outcome::NamesTaken(NamesTaken { conflicts, .. }) if !conflicts.is_empty() => {
                let message = conflicts.join("; ");
                conditions::Observed { generation, now }.set(
                    list,
                    "Conflict",
                    "True",
                    "NameTaken",
                    &message,
                );
            }
            _ => conditions::remove(list, "Conflict"),
        }
        self.inputs.set_conditions(list, generation, now);
    }

    /// All children are as wanted, and nothing is known of a Deployment.
    #[cfg(test)]
    #[must_use]
    pub fn for_tests() -> Self {
        Self {
            outcome: Outcome::Done,
            observed: None,
            image: None,
            has_service: false,
            inputs: Followed::unchanged(),
            is_held: false,
            rollout: None,
            rolled_back: None,
        }
    }
}
