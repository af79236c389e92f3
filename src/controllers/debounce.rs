//! What is acted on only when it has lasted a moment: losses that heal at once, and changes that come in groups.
//!
//! Nothing waits in here: the reconcile goes on as before and is put on the queue again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::store::Key;

/// How long.
pub const MOMENT: Duration = Duration::from_secs(2);

/// Since when something is pending, by object. In memory only: after a restart the moment begins again.
#[derive(Default)]
pub struct Debounce(Mutex<HashMap<Key, Instant>>);

impl Debounce {
    /// How long to go on as before; `None` when there is nothing pending, or when it has lasted: act now. The moment
    /// begins with the first change, so that a change each second cannot hold it off for ever.
    pub fn hold(&self, key: &Key, pending: bool, now: Instant) -> Option<Duration> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !pending {
            since.remove(key);
            return None;
        }
        let began = *since.entry(key.clone()).or_insert(now);
        let left = MOMENT.saturating_sub(now.saturating_duration_since(began));
        if left.is_zero() {
            since.remove(key);
            return None;
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a3_changes_within_a_moment_are_one_and_what_heals_is_none() {
        let (debounce, key, start) = (Debounce::default(), Key::new("team", "a"), Instant::now());
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        assert_eq!(debounce.hold(&key, true, at(0)), Some(MOMENT));
        assert_eq!(debounce.hold(&key, true, at(19)), Some(Duration::from_millis(100)));
        assert_eq!(debounce.hold(&Key::new("team", "b"), true, at(19)), Some(MOMENT));
        assert_eq!(debounce.hold(&key, true, at(20)), None, "it has lasted");
        assert_eq!(debounce.hold(&key, true, at(21)), Some(MOMENT), "the next one begins");
        assert_eq!(debounce.hold(&key, false, at(30)), None, "healed");
        assert_eq!(debounce.hold(&key, true, at(41)), Some(MOMENT));
    }
}
