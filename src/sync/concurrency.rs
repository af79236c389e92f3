//! Limits how many remotes are polled and how many commits are read at the same time, with a share for each namespace.
//!
//! A poll costs little, but a remote that does not answer keeps it waiting. So many polls may run at once. Fetching and reading a
//! commit costs memory, so few may run at once. A poll that only waits for an answer takes no place among those that read.

use std::fmt;
use std::sync::Arc;

use crate::cluster::writes::{Ticket, Writes};

/// Remotes that are polled at the same time: half of the threads that tokio keeps for blocking work. A namespace that is alone
/// gets half of these places.
const MAX_CONCURRENT_POLLS: usize = 256;
/// Commits that are fetched and read at the same time. Each takes some MiB of memory, more for a larger pack. A namespace that
/// is alone gets half of these places.
const MAX_CONCURRENT_READS: usize = 8;

/// The concurrency limits of all GitSyncs. A clone shares the limits.
#[derive(Clone)]
pub struct ConcurrencyLimits {
    polls: Arc<Writes>,
    reads: Arc<Writes>,
}

impl fmt::Debug for ConcurrencyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConcurrencyLimits")
    }
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        Self {
            polls: Writes::with(MAX_CONCURRENT_POLLS),
            reads: Writes::with(MAX_CONCURRENT_READS),
        }
    }
}

/// A place within a limit. Dropping it frees the place.
#[must_use]
pub struct Permit(#[allow(dead_code)] Ticket);

impl ConcurrencyLimits {
    /// Waits until a remote may be polled for a GitSync of this namespace.
    pub async fn poll(&self, namespace: &str) -> Permit {
        Permit(self.polls.slot(namespace).await)
    }

    /// Waits until a commit may be fetched and read for a GitSync of this namespace.
    pub async fn read(&self, namespace: &str) -> Permit {
        Permit(self.reads.slot(namespace).await)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn c15_remotes_of_one_namespace_that_hang_leave_slots_for_the_others() {
        let limits = ConcurrencyLimits::default();
        let (mut hanging, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let mut permit =
                Box::pin(async { (limits.poll("hangs").await, limits.read("hangs").await) });
            hanging.extend((&mut permit).now_or_never());
            waiting.push(permit);
            // Otherwise the task's budget ends, and nothing is ready any more.
            tokio::task::yield_now().await;
        }
        assert_eq!(hanging.len(), MAX_CONCURRENT_READS / 2, "those that wait to read were polled");
        for namespace in ["calm", "quiet"] {
            let poll = limits.poll(namespace).now_or_never();
            let read = limits.read(namespace).now_or_never();
            assert!(poll.is_some() && read.is_some(), "{namespace} waits");
        }
    }
}
