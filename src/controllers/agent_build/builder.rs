//! (pure) The condition `BuilderAvailable` of an AgentBuild: whether Tekton is there, and answers.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::decide::Builder;
use super::run::Run;
use super::status::{Finding, KeyFinding};
use crate::api::agent_build::AgentBuildStatus;
use crate::cluster::conditions;
use crate::controllers::reason::Reason;

/// The longest time until Tekton looks at a new run, and until it ends one whose time is over. After it Tekton does not respond.
pub const MAX_TEKTON_SILENCE: SignedDuration = SignedDuration::from_secs(60);

/// Sets the condition `BuilderAvailable`.
pub fn builder_condition(
    new: &mut AgentBuildStatus,
    meta: &ObjectMeta,
    finding: &Finding<'_>,
    builder: Builder,
    now: Timestamp,
) {
    let silent = match finding {
        Finding::Key(KeyFinding { decision, .. }) => {
            decision.waits_for().is_some_and(|run| is_silent(run, now))
        }
        _ => false,
    };
    let (status, reason, message) = match builder {
        Builder::Unknown => ("Unknown", "TektonUnknown", "not known yet whether Tekton is there"),
        Builder::NotInstalled => {
            ("False", "TektonNotInstalled", "Tekton is not installed; builds start when it is")
        }
        Builder::Available if silent => (
            "False",
            Reason::TektonNotResponding.as_str(),
            "Tekton does nothing with the PipelineRun: does its controller run? kubectl -n tekton-pipelines get pods",
        ),
        Builder::Available => ("True", "TektonInstalled", "Tekton is there"),
    };
    let generation = meta.generation.unwrap_or_default();
    conditions::Observed { generation, now }.set(
        &mut new.conditions,
        "BuilderAvailable",
        status,
        reason,
        message,
    );
}

/// Whether Tekton should have looked at a run by now, or ended it, and has not.
#[must_use]
pub fn is_silent(run: &Run, now: Timestamp) -> bool {
    let is_over = |time: Timestamp| now.duration_since(time) >= MAX_TEKTON_SILENCE;
    if !run.started {
        return run.created.is_some_and(is_over);
    }
    run.is_running() && run.deadline.is_some_and(is_over)
}
