//! When a run whose attestation failed is tried again. It is in memory: after a restart each is tried at once.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::client::jitter;

/// The first pause. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// Doubled more often, the first pause is longer than the longest one.
const MAX_DOUBLINGS: u32 = 6;
/// The most runs that are remembered before those are dropped that nobody has asked about for a while.
const MAX_KEPT: usize = 1000;

/// A run whose attestation failed.
#[derive(Debug, Clone)]
struct Try {
    failures: u32,
    again: Instant,
    why: String,
}

/// The runs whose attestation failed, by UID.
#[derive(Debug, Default)]
pub struct Tries(Mutex<HashMap<String, Try>>);

impl Tries {
    /// Why the last try failed, and how long to wait until the next one. `None`: it is due.
    #[must_use]
    pub fn wait(&self, uid: &str) -> Option<(String, Duration)> {
        let all = self.0.lock();
        let last = all.get(uid)?;
        let left = last.again.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| (last.why.clone(), left))
    }

    /// Notes that a try has failed. Gives the pause until the next one, and whether it has failed for another reason than before.
    pub fn failed(&self, uid: &str, why: &str) -> (Duration, bool) {
        let now = Instant::now();
        let mut all = self.0.lock();
        if all.len() >= MAX_KEPT {
            all.retain(|_, last| last.again + MAX_PAUSE > now);
        }
        let before = all.get(uid);
        let failures = before.map_or(0, |last| last.failures);
        let is_new = before.is_none_or(|last| last.why != why);
        let pause = jitter((FIRST_PAUSE * 2u32.pow(failures.min(MAX_DOUBLINGS))).min(MAX_PAUSE));
        let failures = failures.saturating_add(1);
        all.insert(uid.to_owned(), Try { failures, again: now + pause, why: why.to_owned() });
        (pause, is_new)
    }

    /// Forgets a run.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
#[path = "tests/tries.rs"]
mod tests;
