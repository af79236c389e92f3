//! How many remotes are looked at at once. Asking for a ref costs little, and a remote that is away lets one wait: many may.
//! Fetching and reading cost memory: few may, and nobody who is only waiting takes their place.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Remotes that are asked at once: a quarter of the threads that may block.
const ASKING: usize = 128;
/// Commits that are fetched and read at once.
const READING: usize = 16;

/// See the module. `Clone` shares the slots.
#[derive(Debug, Clone)]
pub struct Slots {
    asking: Arc<Semaphore>,
    reading: Arc<Semaphore>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            asking: Arc::new(Semaphore::new(ASKING)),
            reading: Arc::new(Semaphore::new(READING)),
        }
    }
}

/// A slot; dropping it frees it. Slots are never closed, so there always is a permit.
#[must_use]
pub struct Slot(#[allow(dead_code)] Option<OwnedSemaphorePermit>);

impl Slots {
    /// Waits for a slot to ask a remote.
    pub async fn ask(&self) -> Slot {
        Slot(self.asking.clone().acquire_owned().await.ok())
    }

    /// Waits for a slot to fetch and read a commit.
    pub async fn read(&self) -> Slot {
        Slot(self.reading.clone().acquire_owned().await.ok())
    }
}
