//! When to reconcile an object again.

use std::time::Duration;

/// The delay after the first failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Longest delay after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// When to reconcile the object next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// When the object changes, or at its periodic reconcile.
    Settled,
    /// After this time.
    After(Duration),
    /// Never: the object is gone.
    Forget,
}

/// The `attempt`-th delay (from 0): doubling from half a second to a minute.
#[must_use]
pub fn delay(attempt: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1u32 << attempt.min(16)).min(MAX_BACKOFF)
}
