//! The order of writes: what comes from Git is written before what follows from it.
//!
//! Syncs and controllers write to one API server. Without an order, the children of a commit's first agents delay its
//! last agents, and with them the answer to "is my commit applied?". So the controllers of a namespace wait while a sync
//! writes there. Most syncs write for a second or two. Beside a longer one the controllers go on at full speed, because
//! what they make is what people wait for. Other namespaces never wait (docs/decisions/0016).

use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The longest time that the controllers of a namespace wait for its syncs. 1,000 new agents are applied in less than
/// half of it.
pub const MAX_WAIT_FOR_SYNCS: Duration = Duration::from_secs(3);

/// The syncs that write to one namespace.
#[derive(Clone, Copy)]
struct Writing {
    /// How many there are.
    syncs: usize,
    /// When the first of them began.
    since: Instant,
}

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// Which namespaces syncs write to now.
#[derive(Default)]
pub struct WritePriority {
    writing: Mutex<HashMap<String, Writing>>,
    listeners: RwLock<Vec<Listener>>,
}

impl WritePriority {
    /// No sync writes.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn writing(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Writing>> {
        self.writing.lock()
    }

    /// A sync writes to a namespace until the answer is dropped. Syncs never wait.
    #[must_use]
    pub fn sync_writes(self: &Arc<Self>, namespace: &str) -> SyncWrites {
        let new = || Writing { syncs: 0, since: Instant::now() };
        self.writing().entry(namespace.to_owned()).or_insert_with(new).syncs += 1;
        SyncWrites { priority: self.clone(), namespace: namespace.to_owned() }
    }

    /// The time until which the controllers of a namespace wait at most; `None` when no sync writes there.
    #[must_use]
    pub fn held_until(&self, namespace: &str) -> Option<Instant> {
        self.writing().get(namespace).map(|writing| writing.since + MAX_WAIT_FOR_SYNCS)
    }

    /// Calls `listener` with every namespace in which the last sync has ended its writes.
    pub fn on_release(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn end(&self, namespace: &str) {
        {
            let mut all = self.writing();
            let Some(writing) = all.get_mut(namespace) else { return };
            writing.syncs = writing.syncs.saturating_sub(1);
            if writing.syncs > 0 {
                return;
            }
            all.remove(namespace);
        }
        for listener in self.listeners.read().iter() {
            listener(namespace);
        }
    }
}

/// The writes of one sync. Dropping it ends them.
pub struct SyncWrites {
    priority: Arc<WritePriority>,
    namespace: String,
}

impl Drop for SyncWrites {
    fn drop(&mut self) {
        self.priority.end(&self.namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c15_controllers_wait_for_all_syncs_of_their_namespace_and_not_for_ever() {
        let priority = WritePriority::new();
        let released = Arc::new(Mutex::new(Vec::new()));
        let heard = released.clone();
        priority.on_release(move |namespace| heard.lock().push(namespace.to_owned()));
        let released = || released.lock().clone();
        assert_eq!(priority.held_until("a"), None, "nobody writes");

        let (began, first) = (Instant::now(), priority.sync_writes("a"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (second, other) = (priority.sync_writes("a"), priority.sync_writes("b"));
        let until = Some(began + MAX_WAIT_FOR_SYNCS);
        assert_eq!(priority.held_until("a"), until, "from the first one on");
        assert_eq!(priority.held_until("b"), Some(Instant::now() + MAX_WAIT_FOR_SYNCS));
        drop(first);
        assert_eq!(priority.held_until("a"), until, "the second one still writes");
        drop(second);
        assert_eq!((priority.held_until("a"), released()), (None, vec!["a".to_owned()]));
        assert!(priority.held_until("b").is_some());
        drop(other);
        assert_eq!(released(), ["a", "b"]);
    }
}
