//! The worker of one reconciler. It works on a bounded number of objects at once, with a share for each namespace. Each
//! reconcile has a deadline. Each object has a backoff that resets on success. Every object is reconciled again after the
//! resync period, because a watch may lose an event.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};

use super::queue::Queue;
pub use convoke_core::next::{Next, delay};

pub use crate::cluster::client::jitter;
use crate::cluster::store::Key;

/// The longest time for one reconcile, unless the reconciler says another one.
pub const RECONCILE_DEADLINE: Duration = Duration::from_secs(120);
/// The resync period (±10%): every object is reconciled again after it, whatever the watch says.
pub const RESYNC: Duration = Duration::from_secs(600);

/// Brings the objects of one kind where they should be.
pub trait Reconciler: Send + Sync + 'static {
    /// What can go wrong. It is logged, and answered with a backoff.
    type Error: std::fmt::Display + Send;
    /// Kind, for logs.
    const KIND: &'static str;
    /// The longest time for one reconcile. A reconcile that is dropped tells nobody why, so one that takes long has to end
    /// earlier by itself.
    const DEADLINE: Duration = RECONCILE_DEADLINE;
    /// Brings one object where it should be. Must be safe to stop between any two writes.
    fn reconcile(
        self: Arc<Self>,
        key: Key,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

/// [`delay`] ±10%.
#[must_use]
pub fn backoff(attempt: u32) -> Duration {
    jitter(delay(attempt))
}

/// Works on the queue until the task is dropped, on so many keys at once; alone, a namespace gets half of them.
pub async fn run<R: Reconciler>(reconciler: Arc<R>, queue: Arc<Queue>, concurrency: usize) {
    let mut tasks: JoinSet<Result<Next, String>> = JoinSet::new();
    let mut keys: HashMap<Id, Key> = HashMap::new();
    let mut failures: HashMap<Key, u32> = HashMap::new();
    queue.limit(concurrency);
    loop {
        tokio::select! {
            key = queue.next(), if tasks.len() < concurrency => {
                let reconciler = reconciler.clone();
                let work = key.clone();
                let handle = tasks.spawn(async move {
                    match tokio::time::timeout(R::DEADLINE, reconciler.reconcile(work)).await {
                        Ok(result) => result.map_err(|e| e.to_string()),
                        Err(_) => Err(format!("not finished within {} s", R::DEADLINE.as_secs())),
                    }
                });
                keys.insert(handle.id(), key);
            }
            Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let (id, result) = match ended {
                    Ok((id, result)) => (id, result),
                    // A panic in one reconcile must not stop the others.
                    Err(error) => (error.id(), Err(format!("internal error: {error}"))),
                };
                let Some(key) = keys.remove(&id) else { continue };
                match result {
                    Ok(Next::Forget) => { failures.remove(&key); }
                    Ok(next) => {
                        failures.remove(&key);
                        let delay = match next { Next::After(delay) => delay, _ => jitter(RESYNC) };
                        queue.add_after(key.clone(), delay);
                    }
                    Err(error) => {
                        let attempt = failures.entry(key.clone()).or_default();
                        let delay = backoff(*attempt);
                        *attempt = attempt.saturating_add(1);
                        tracing::warn!(kind = R::KIND, object = %key, %error, retry_in = ?delay, "reconcile failed");
                        queue.add_after(key.clone(), delay);
                    }
                }
                queue.done(&key);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/worker.rs"]
mod tests;
