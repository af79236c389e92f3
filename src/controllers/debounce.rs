//! Changes that are acted on only when they have lasted a moment: losses that heal at once, and changes that come in groups.
//!
//! No reconcile waits here. It goes on as before, and is put on the queue again.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::store::Key;

/// How long a change has to last.
pub const DEBOUNCE_TIME: Duration = Duration::from_secs(2);

/// When the pending change of each object began. It is kept in memory only: after a restart the time begins again.
#[derive(Default)]
pub struct Debounce(Mutex<HashMap<Key, Instant>>);

impl Debounce {
    /// How long to go on as before. `None` when no change is pending, or when it has lasted: act now. The time begins with the
    /// first change, so that a change each second cannot hold it off for ever.
    pub fn hold(&self, key: &Key, pending: bool, now: Instant) -> Option<Duration> {
        let mut since = self.0.lock();
        if !pending {
            since.remove(key);
            return None;
        }
        let began = *since.entry(key.clone()).or_insert(now);
        let left = DEBOUNCE_TIME.saturating_sub(now.saturating_duration_since(began));
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
        assert_eq!(debounce.hold(&key, true, at(0)), Some(DEBOUNCE_TIME));
        assert_eq!(debounce.hold(&key, true, at(19)), Some(Duration::from_millis(100)));
        assert_eq!(debounce.hold(&Key::new("team", "b"), true, at(19)), Some(DEBOUNCE_TIME));
        assert_eq!(debounce.hold(&key, true, at(20)), None, "it has lasted");
        assert_eq!(debounce.hold(&key, true, at(21)), Some(DEBOUNCE_TIME), "the next one begins");
        assert_eq!(debounce.hold(&key, false, at(30)), None, "healed");
        assert_eq!(debounce.hold(&key, true, at(41)), Some(DEBOUNCE_TIME));
    }
}
