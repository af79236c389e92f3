//! Work that is done once for all who need its result while it runs.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::GitError;

type Outcome<T> = Option<Result<T, GitError>>;

/// The work that runs, by what it is for.
pub(super) struct Flights<K, T>(Mutex<HashMap<K, watch::Receiver<Outcome<T>>>>);

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Work that somebody else does.
pub(super) struct Running<T>(watch::Receiver<Outcome<T>>);

impl<T: Clone> Running<T> {
    /// Its result, once it has ended. `None` if whoever did it gave up, because their time was over or nobody wanted it any more.
    ///
    /// # Errors
    /// The error of the work. [`GitError::Busy`] when it does not end until the deadline.
    pub async fn result(mut self, deadline: Instant) -> Option<Result<T, GitError>> {
        let Ok(ended) = timeout_at(deadline, self.0.wait_for(Option::is_some)).await else {
            return Some(Err(GitError::Busy));
        };
        // An error of `wait_for` says that the other one was dropped.
        match ended.ok().and_then(|outcome| outcome.clone()) {
            None | Some(Err(GitError::Timeout { .. } | GitError::Busy)) => None,
            result => result,
        }
    }
}

/// Work that this future does for others, too. Dropping it lets one of them begin anew.
struct Lead<'a, K: Eq + Hash, T> {
    flights: &'a Flights<K, T>,
    key: &'a K,
    sender: watch::Sender<Outcome<T>>,
}

impl<K: Eq + Hash, T> Drop for Lead<'_, K, T> {
    fn drop(&mut self) {
        self.flights.0.lock().remove(self.key);
    }
}

impl<K: Eq + Hash + Clone, T: Clone> Flights<K, T> {
    /// The result of work that runs already, or of `work`. If the other one gave up, because its time was over or nobody wanted it any more,
    /// `work` is done.
    ///
    /// # Errors
    /// The error of the work. [`GitError::Busy`] when the other one does not end until the deadline.
    pub async fn join<F: Future<Output = Result<T, GitError>>>(
        &self,
        key: &K,
        deadline: Instant,
        work: impl FnOnce() -> F,
    ) -> Result<T, GitError> {
        loop {
            let other = match self.begin(key) {
                Ok(lead) => {
                    let result = work().await;
                    lead.sender.send_replace(Some(result.clone()));
                    return result;
                }
                Err(other) => Running(other),
            };
            if let Some(result) = other.result(deadline).await {
                return result;
            }
        }
    }

    /// The work that runs now, if any.
    pub fn running(&self, key: &K) -> Option<Running<T>> {
        self.0.lock().get(key).cloned().map(Running)
    }

    fn begin<'a>(&'a self, key: &'a K) -> Result<Lead<'a, K, T>, watch::Receiver<Outcome<T>>> {
        let mut running = self.0.lock();
        if let Some(other) = running.get(key) {
            return Err(other.clone());
        }
        let (sender, receiver) = watch::channel(None);
        running.insert(key.clone(), receiver);
        Ok(Lead { flights: self, key, sender })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "tests/flights.rs"]
mod tests;
