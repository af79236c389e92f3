//! (pure) Phase and conditions of the status of an AgentBuild, in short.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::agent_build::BuildPhase;
use crate::controllers::reason::Reason;

/// Phase and conditions of a status.
pub struct Summary {
    /// The phase.
    pub phase: BuildPhase,
    /// The status of the condition `Ready`.
    pub ready: &'static str,
    /// The reason of all its conditions.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// Whether the condition `Stalled` is set.
    pub stalled: bool,
    /// Whether it goes on by itself although nothing is built now.
    pub goes_on: bool,
}

impl Summary {
    /// The image is not there.
    #[must_use]
    pub fn not_ready(phase: BuildPhase, reason: &str, message: String) -> Self {
        let reason = reason.to_owned();
        Self { phase, ready: "False", reason, message, stalled: false, goes_on: false }
    }

    /// The image is not there, and does not come without a change.
    #[must_use]
    pub fn stalled(phase: BuildPhase, reason: &str, message: String) -> Self {
        Self { stalled: true, ..Self::not_ready(phase, reason, message) }
    }

    /// Nothing is built now, and the build begins by itself.
    #[must_use]
    pub fn begins(reason: Reason, message: String) -> Self {
        let waits = Self::not_ready(BuildPhase::Pending, reason.as_str(), message);
        Self { goes_on: true, ..waits }
    }

    /// The image is there.
    #[must_use]
    pub fn built(image: &str) -> Self {
        let (phase, message) = (BuildPhase::Succeeded, format!("built {image}"));
        Self { ready: "True", ..Self::not_ready(phase, "Built", message) }
    }

    /// The image was there before anything was built.
    #[must_use]
    pub fn found(image: &str) -> Self {
        let message = format!("found {image} in the registry, where an earlier build has left it");
        Self { message, ..Self::built(image) }
    }
}
