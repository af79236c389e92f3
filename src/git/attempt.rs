//! Runs blocking work for a remote with a deadline, one attempt at a time for each owner.
//!
//! The turn belongs to the owner, not to the [`Remote`](super::Remote). When a spec changes, a new remote takes the place of the old one,
//! whose last attempt may not have ended yet.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::GitError;
use super::wire::Bounds;

/// How long an attempt may take to end after its deadline. After that its thread is left behind.
const MAX_TIME_TO_STOP: Duration = Duration::from_secs(1);

/// Serializes the attempts of one owner.
#[derive(Default)]
pub(super) struct Turn {
    /// Held by the running attempt, on its blocking thread.
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Whether the running attempt was left behind.
    abandoned: AtomicBool,
}

impl Turn {
    /// The turn of an owner. The same name gives the same turn, as long as it is in use.
    pub fn of(owner: &str) -> Arc<Self> {
        static TURNS: Mutex<Option<HashMap<String, Weak<Turn>>>> = Mutex::new(None);
        let mut turns = TURNS.lock();
        let turns = turns.get_or_insert_default();
        if let Some(turn) = turns.get(owner).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Self::default());
        turns.insert(owner.to_owned(), Arc::downgrade(&turn));
        turn
    }

    /// Waits for its turn and runs blocking work, for at most `time` in all. Messages name the work, and say that it took `after`.
    ///
    /// # Errors
    /// The error of the work; [`GitError::Timeout`]; [`GitError::Busy`] when the turn does not come in time;
    /// [`GitError::CorruptData`] when the work panics, after `panicked` was called.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        (time, after): (Duration, Duration),
        work: impl FnOnce(&Control) -> Result<T, GitError> + Send + 'static,
        panicked: impl Fn(),
    ) -> Result<T, GitError> {
        let deadline = Instant::now() + time;
        let held = match Arc::clone(&self.lock).try_lock_owned() {
            Ok(held) => held,
            Err(_) if self.abandoned.load(Ordering::Acquire) => return Err(GitError::Busy),
            Err(_) => timeout_at(deadline, Arc::clone(&self.lock).lock_owned())
                .await
                .map_err(|_| GitError::Busy)?,
        };
        let (stop, stopped) = watch::channel(false);
        let interrupt = Arc::new(AtomicBool::new(false));
        // Stops the work, too, when this future is dropped.
        let guard = StopOnDrop { stop, interrupt: Arc::clone(&interrupt) };
        let bounds = Bounds { deadline, timeout: after, stop: stopped, what };
        let control = Control { bounds, interrupt };
        let turn = Arc::clone(self);
        let mut task = tokio::task::spawn_blocking(move || {
            let result = work(&control);
            turn.abandoned.store(false, Ordering::Release);
            drop(held);
            result
        });
        let joined = |joined: Result<Result<T, GitError>, tokio::task::JoinError>| {
            joined.unwrap_or_else(|error| {
                if error.is_cancelled() {
                    let detail = "the operator is shutting down".to_owned();
                    return Err(GitError::ConnectionFailed { detail });
                }
                panicked();
                Err(GitError::corrupt("reading it failed badly"))
            })
        };
        if let Ok(ended) = timeout_at(deadline, &mut task).await {
            return joined(ended);
        }
        guard.stop();
        let timed_out = GitError::Timeout { what, after };
        if let Ok(ended) = timeout(MAX_TIME_TO_STOP, &mut task).await {
            return joined(ended).map_err(|_| timed_out);
        }
        self.abandoned.store(true, Ordering::Release);
        // The work may have ended right before the flag was set.
        if task.is_finished() {
            self.abandoned.store(false, Ordering::Release);
        }
        Err(timed_out)
    }
}

/// Tells the work to stop, at the latest when it is dropped.
struct StopOnDrop {
    stop: watch::Sender<bool>,
    interrupt: Arc<AtomicBool>,
}

impl StopOnDrop {
    fn stop(&self) {
        self.interrupt.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The limits of blocking work, and the flag that stops it.
pub(super) struct Control {
    pub bounds: Bounds,
    pub interrupt: Arc<AtomicBool>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "tests/attempt.rs"]
mod tests;
