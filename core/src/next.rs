//! When to look at an object again.

use std::time::Duration;

const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LAST_BACKOFF: Duration = Duration::from_secs(60);

/// What to do with the object next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until it changes (the periodic requeue stays).
    Settled,
    /// Look again after this time.
    After(Duration),
    /// The object is gone: forget it.
    Forget,
}

/// The `attempt`-th delay (from 0): doubling from half a second to a minute.
#[must_use]
pub fn delay(attempt: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1u32 << attempt.min(16)).min(LAST_BACKOFF)
}
