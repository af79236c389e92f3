//! (pure) Whether what a run has built can be attested at all, or whether waiting for it is in vain.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::seal::SealKey;
use crate::controllers::agent_build::place::Place;
use crate::controllers::agent_build::run::Run;

/// The reason of a build whose image is never attested.
pub const PROVENANCE_REFUSED: &str = "ProvenanceRefused";

/// Why a run with this UID is not attested, however long somebody waits. `None` if it may be. `place` is where a run with its steps is made by
/// now. Without `seals` it is not known whether its seal is right.
#[must_use]
pub fn refusal(
    run: &Run,
    uid: &str,
    seals: Option<&SealKey>,
    place: &Place,
) -> Option<&'static str> {
    if place.elsewhere().is_some() && !run.is_elsewhere() {
        // Whoever may enter pods in the namespace of the AgentBuild may have made its results.
        return Some("it did not run in the namespace of --build-namespace");
    }
    if run.seal.is_none() {
        return Some("it has no seal of this operator: somebody else may have made it");
    }
    seals.filter(|seals| !seals.is_right(run, uid)).map(|_| {
        "its seal is wrong: somebody has made it or changed it, or the Secret convoke-hmac is another one than before"
    })
}

#[cfg(test)]
#[path = "tests/refusal.rs"]
mod tests;
