//! (pure) The status that ModelAPI and MCPServer share: pods that serve, or an address outside of the cluster.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::built_image::waiting;
use super::outcome::Applied;
use super::pod_health::pod_phase;
use crate::api::common::Phase;
use crate::cluster::conditions;
use crate::controllers::reason::Reason;

/// Where something is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// By pods of its own.
    #[default]
    Pods,
    /// Elsewhere: it has no pods.
    Elsewhere,
}

/// What is known of something that serves before its children are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serving {
    /// Where it is served.
    pub place: Place,
    /// The AgentBuild that has no image.
    pub waiting_for_build: Option<String>,
    /// That this AgentBuild is not there, for people.
    pub missing_build: Option<String>,
    /// Whether nothing is rolled out until that build has one.
    pub is_held: bool,
}

impl Serving {
    /// Whether its address leads to it, and not to somebody else's Service or to nobody.
    #[must_use]
    pub fn is_reached(&self, applied: &Applied) -> bool {
        self.place == Place::Elsewhere || applied.has_service
    }
}

/// Sets the conditions that both kinds have. Gives the phase and one sentence.
pub fn judge(
    list: &mut Vec<Condition>,
    serving: &Serving,
    applied: &Applied,
    generation: i64,
    now: Timestamp,
) -> (Phase, String) {
    let (phase, reason, message) = decide_phase(serving, applied);
    let ready = if phase == Phase::Ready { "True" } else { "False" };
    conditions::Observed { generation, now }.set(list, "Ready", ready, reason, &message);
    match serving.place {
        Place::Pods => {
            let held = serving.is_held.then_some(Reason::WaitingForBuild);
            applied.tell_pods(list, conditions::Observed { generation, now }, held);
        }
        Place::Elsewhere => {
            conditions::remove(list, "Available");
            conditions::remove(list, "Progressing");
        }
    }
    applied.tell_problems(list, generation, now);
    (phase, message)
}

/// Phase, reason of `Ready` and one sentence.
fn decide_phase(serving: &Serving, applied: &Applied) -> (Phase, &'static str, String) {
    if let Some(phase) = applied.outcome.phase() {
        return phase;
    }
    if serving.place == Place::Elsewhere {
        let message = "Served elsewhere";
        return (Phase::Ready, "External", message.into());
    }
    // Also while pods of an earlier spec run: this one is not rolled out.
    if let Some(why) = applied.inputs.held() {
        return (Phase::Waiting, Reason::WaitingForInputs.as_str(), why.to_owned());
    }
    match &applied.observed {
        Some(observed) if !serving.is_held => match &applied.rolled_back {
            Some(text) => (Phase::Failed, Reason::RolledBack.as_str(), text.clone()),
            None => pod_phase(observed),
        },
        _ => {
            let build = serving.waiting_for_build.as_deref().unwrap_or_default();
            let message =
                waiting(build, serving.missing_build.as_deref(), applied.observed.is_some());
            (Phase::Waiting, Reason::WaitingForBuild.as_str(), message)
        }
    }
}

#[cfg(test)]
#[path = "tests/serving.rs"]
mod tests;
