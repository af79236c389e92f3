//! Whether the watch of a store works, and since when it fails.
//!
//! A single failure means nothing: watches end and begin again all the time. Nor does a watch work only because it began: it
//! may break each time before it shows anything. The watch works when a list was completed, when it showed an object, or
//! when it lasted for some seconds.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A store is silent when its watch has failed for this long.
pub const SILENT_AFTER: Duration = Duration::from_secs(60);
/// Longest error that is kept, in characters.
const MAX_ERROR_CHARS: usize = 250;

/// A watch that fails.
struct Failing {
    since: Instant,
    /// The same time for people.
    time: Timestamp,
    /// The latest error.
    error: String,
    /// Whether it has failed for so long that the store is silent.
    silent: bool,
}

type Listener = Box<dyn Fn() + Send + Sync>;

/// The health of the watch of one store.
pub struct Health {
    silent_after: Duration,
    failing: Mutex<Option<Failing>>,
    listeners: RwLock<Vec<Listener>>,
}

impl Health {
    /// The health of a watch that has not failed. It is silent when it has failed for this long.
    #[must_use]
    pub fn new(silent_after: Duration) -> Self {
        Self { silent_after, failing: Mutex::default(), listeners: RwLock::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock()
    }

    /// Calls `listener` whenever the store falls silent, and when its watch works again. The listener must not block.
    pub fn on_silence_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn notify(&self) {
        for listener in self.listeners.read().iter() {
            listener();
        }
    }

    /// The watch failed, and is tried again. `now` measures how long it fails; `time` is shown to people.
    pub fn failed(&self, error: &str, now: Instant, time: Timestamp) {
        let mut guard = self.lock();
        let failing = guard.get_or_insert_with(|| Failing {
            since: now,
            time,
            error: String::new(),
            silent: false,
        });
        failing.error = error.chars().take(MAX_ERROR_CHARS).collect();
        let lasts = now.saturating_duration_since(failing.since) >= self.silent_after;
        let falls_silent = lasts && !failing.silent;
        failing.silent |= lasts;
        drop(guard);
        if falls_silent {
            self.notify();
        }
    }

    /// The watch works.
    pub fn works(&self) {
        if self.lock().take().is_some_and(|failing| failing.silent) {
            self.notify();
        }
    }

    /// Whether the watch fails now, for long or not. Then an object that the store does not have may exist.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.lock().is_some()
    }

    /// Since when the store is silent, and why. `None`: it is not silent.
    #[must_use]
    pub fn silence(&self) -> Option<String> {
        let guard = self.lock();
        let Failing { time, error, .. } = guard.as_ref().filter(|failing| failing.silent)?;
        Some(format!("since {time:.0}: {error}"))
    }
}

#[cfg(test)]
#[path = "tests/health.rs"]
mod tests;
