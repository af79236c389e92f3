//! How many remotes are looked at at once, with a share for each namespace. Asking for a ref costs little, and a remote that is away
//! lets one wait: many may. Fetching and reading cost memory: few may, and nobody who is only waiting takes their place.

use std::sync::Arc;

use crate::cluster::writes::{Ticket, Writes};

/// Remotes that are asked at once: half of the threads that may block. A namespace alone has half of these.
const ASKING: usize = 256;
/// Commits that are fetched and read at once: each takes some MiB of memory meanwhile, the more the larger its pack. A namespace alone
/// has half of these.
const READING: usize = 8;

/// See the module. `Clone` shares the slots.
#[derive(Clone)]
pub struct Slots {
    asking: Arc<Writes>,
    reading: Arc<Writes>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { asking: Writes::with(ASKING), reading: Writes::with(READING) }
    }
}

/// A slot; dropping it frees it.
#[must_use]
pub struct Slot(#[allow(dead_code)] Ticket);

impl Slots {
    /// DependencyState for a slot to ask a remote for a GitSync of that namespace.
    pub async fn ask(&self, namespace: &str) -> Slot {
        Slot(self.asking.slot(namespace).await)
    }

    /// DependencyState for a slot to fetch and read a commit.
    pub async fn read(&self, namespace: &str) -> Slot {
        Slot(self.reading.slot(namespace).await)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn c15_remotes_of_one_namespace_that_hang_leave_slots_for_the_others() {
        let slots = Slots::default();
        let (mut hanging, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let mut slot =
                Box::pin(async { (slots.ask("hangs").await, slots.read("hangs").await) });
            hanging.extend((&mut slot).now_or_never());
            waiting.push(slot);
            // Else nothing is ready any more after so many.
            tokio::task::yield_now().await;
        }
        assert_eq!(hanging.len(), READING / 2, "those that wait to read have been asked");
        for namespace in ["calm", "quiet"] {
            let slot = slots.ask(namespace).now_or_never();
            let read = slots.read(namespace).now_or_never();
            assert!(slot.is_some() && read.is_some(), "{namespace} waits");
        }
    }
}
