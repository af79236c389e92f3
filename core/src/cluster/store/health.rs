//! Whether a store can be believed: since when its kind can be neither listed nor watched.
//!
//! One failure says nothing; watches end and begin again all the time. Nor does one success: a watch may begin well each
//! time, and break before it shows anything. So the watch works when a list was complete, when it showed something, or
//! when it went on for some seconds.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How long a kind may fail before its store is called silent.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Longest error that is kept, in characters.
const MOST_ERROR: usize = 250;

struct Failing {
    since: Instant,
    time: Timestamp,
    error: String,
    /// Whether it has lasted so long that it was told.
    told: bool,
}

type Listener = Box<dyn Fn() + Send + Sync>;

/// See the module.
pub struct Health {
    patience: Duration,
    failing: Mutex<Option<Failing>>,
    listeners: RwLock<Vec<Listener>>,
}

impl Health {
    /// Nothing has failed yet. What fails for longer than `patience` makes silent.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self { patience, failing: Mutex::default(), listeners: RwLock::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock()
    }

    /// Calls `listener` whenever the store falls silent, and when it can be believed again. It must not block.
    pub fn on_turn(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn turn(&self) {
        for listener in self.listeners.read().iter() {
            listener();
        }
    }

    /// It does not work at this time, and is tried again. The second one is for people.
    pub fn failed(&self, error: &str, now: Instant, time: Timestamp) {
        let mut guard = self.lock();
        let failing = guard.get_or_insert_with(|| Failing {
            since: now,
            time,
            error: String::new(),
            told: false,
        });
        failing.error = error.chars().take(MOST_ERROR).collect();
        let lasts = now.saturating_duration_since(failing.since) >= self.patience;
        let turns = lasts && !failing.told;
        failing.told |= lasts;
        drop(guard);
        if turns {
            self.turn();
        }
    }

    /// It works.
    pub fn works(&self) {
        if self.lock().take().is_some_and(|failing| failing.told) {
            self.turn();
        }
    }

    /// Whether it fails right now, for long or not: what it does not show may be there all the same.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.lock().is_some()
    }

    /// Since when nothing is known, and why, if that is so for long.
    #[must_use]
    pub fn silence(&self) -> Option<String> {
        let guard = self.lock();
        let Failing { time, error, .. } = guard.as_ref().filter(|failing| failing.told)?;
        Some(format!("since {time:.0}: {error}"))
    }
}

#[cfg(test)]
#[path = "tests/health.rs"]
mod tests;
