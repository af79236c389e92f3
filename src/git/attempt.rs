//! One attempt at a remote: blocking work with a deadline, one at a time for each store folder.
//!
//! The turn belongs to the folder and not to the [`Remote`](super::Remote): when a spec changes, a new remote opens the folder of
//! the old one, whose last attempt may still be ending.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::GitError;
use super::http::Bounds;

/// How long an attempt may take to notice that its time is over, before its thread is left behind.
const GRACE: Duration = Duration::from_secs(1);

/// Who may work in a folder now.
#[derive(Default)]
pub(super) struct Turn {
    /// Held by the attempt in flight, on its blocking thread.
    lock: Arc<tokio::sync::Mutex<()>>,
    /// The attempt in flight was left behind.
    abandoned: AtomicBool,
}

impl Turn {
    /// The turn of a folder: the same one for all who name the folder alike, as long as anybody keeps it.
    pub fn of(folder: &Path) -> Arc<Self> {
        static TURNS: Mutex<Option<HashMap<PathBuf, Weak<Turn>>>> = Mutex::new(None);
        let mut turns = TURNS.lock();
        let turns = turns.get_or_insert_default();
        if let Some(turn) = turns.get(folder).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Self::default());
        turns.insert(folder.to_owned(), Arc::downgrade(&turn));
        turn
    }

    /// Runs blocking work when it is its turn, for at most `after` in all.
    ///
    /// # Errors
    /// What the work fails with; [`GitError::Timeout`]; [`GitError::Busy`] when the turn does not come in time;
    /// [`GitError::CorruptData`] when the work panics, after `panicked` was called.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        after: Duration,
        work: impl FnOnce(&Control) -> Result<T, GitError> + Send + 'static,
        panicked: impl Fn(),
    ) -> Result<T, GitError> {
        let deadline = Instant::now() + after;
        let held = match Arc::clone(&self.lock).try_lock_owned() {
            Ok(held) => held,
            Err(_) if self.abandoned.load(Ordering::Acquire) => return Err(GitError::Busy),
            Err(_) => timeout_at(deadline, Arc::clone(&self.lock).lock_owned())
                .await
                .map_err(|_| GitError::Busy)?,
        };
        let (stop, stopped) = watch::channel(false);
        let interrupt = Arc::new(AtomicBool::new(false));
        // Also stops the work when the caller gives up: this future is dropped.
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
        if let Ok(ended) = timeout(GRACE, &mut task).await {
            return joined(ended).map_err(|_| timed_out);
        }
        self.abandoned.store(true, Ordering::Release);
        // It may have ended right before the flag was set.
        if task.is_finished() {
            self.abandoned.store(false, Ordering::Release);
        }
        Err(timed_out)
    }
}

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

/// What blocking work is bounded and stopped by.
pub(super) struct Control {
    pub bounds: Bounds,
    pub interrupt: Arc<AtomicBool>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "tests/attempt.rs"]
mod tests;
