//! (pure) Runs that are pending when a reconcile begins, and that it has not made itself.
//!
//! A run is made pending, gets its Secrets and its seal, and begins. One that is left pending is removed: an operator ended meanwhile, or a stranger
//! has made the run. But another operator may be about to let it begin, for as long as two run at once, after a rollout for example. So a young one is
//! left alone. All other runs are removed only when they have ended, or when the API server says that their AgentBuild is gone or is about to go
//! ([`super::history::is_surplus`], [`super::place::is_orphan`], [`super::place::is_of`]): for these it does not matter who has made them.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::run::Run;

/// How long another operator may take to let its run begin. It takes less than a second; the rest is for clocks that differ.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a pending run is left alone, [`PATIENCE`] at most: then this is asked again. `None`: it is removed.
#[must_use]
pub fn left_alone(run: &Run, now: Timestamp) -> Option<Duration> {
    // The clock of the API server may be ahead of ours.
    let age = now.duration_since(run.created?).max(SignedDuration::ZERO);
    let left = PATIENCE.saturating_sub(age.unsigned_abs());
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
#[path = "tests/pending.rs"]
mod tests;
