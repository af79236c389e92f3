//! Whose turn it is: what comes from Git is written before what follows from it.
//!
//! Both write to one API server. Without an order, the children of a commit's first agents delay its last agents, and
//! with them the answer to "is my commit applied?". So the controllers of a namespace wait while a plan is carried out
//! there. Most plans are done within a second or two; beside a longer one controllers go on as fast as they can, because
//! what they make is what somebody waits for. Other namespaces never wait (docs/decisions/0016).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

/// The controllers of a namespace wait for this long at most before they go on beside its syncs: 1,000 new agents are
/// applied in less than half of it.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// The syncs of a namespace that write: how many, and since when there has been one.
#[derive(Clone, Copy)]
struct Writing {
    syncs: usize,
    since: Instant,
}

type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub struct Turns {
    writing: Mutex<HashMap<String, Writing>>,
    listeners: RwLock<Vec<Listener>>,
}

impl Turns {
    /// Nobody writes.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn writing(&self) -> std::sync::MutexGuard<'_, HashMap<String, Writing>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sync writes to a namespace until the answer is dropped. Syncs never wait.
    #[must_use]
    pub fn sync(self: &Arc<Self>, namespace: &str) -> Turn {
        let new = || Writing { syncs: 0, since: Instant::now() };
        self.writing().entry(namespace.to_owned()).or_insert_with(new).syncs += 1;
        Turn { turns: self.clone(), namespace: namespace.to_owned() }
    }

    /// Until when the controllers of a namespace wait at most; `None` when no sync writes there.
    #[must_use]
    pub fn held(&self, namespace: &str) -> Option<Instant> {
        self.writing().get(namespace).map(|writing| writing.since + PATIENCE)
    }

    /// Calls `listener` with every namespace in which the last sync has ended its writes.
    pub fn on_release(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
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
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(namespace);
        }
    }
}

/// The turn of one sync.
pub struct Turn {
    turns: Arc<Turns>,
    namespace: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.end(&self.namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c15_controllers_wait_for_all_syncs_of_their_namespace_and_not_for_ever() {
        let turns = Turns::new();
        let released = Arc::new(Mutex::new(Vec::new()));
        let heard = released.clone();
        turns.on_release(move |namespace| heard.lock().expect("lock").push(namespace.to_owned()));
        let released = || released.lock().expect("lock").clone();
        assert_eq!(turns.held("a"), None, "nobody writes");

        let (began, first) = (Instant::now(), turns.sync("a"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (second, other) = (turns.sync("a"), turns.sync("b"));
        assert_eq!(turns.held("a"), Some(began + PATIENCE), "from the first one on");
        assert_eq!(turns.held("b"), Some(Instant::now() + PATIENCE));
        drop(first);
        assert_eq!(turns.held("a"), Some(began + PATIENCE), "the second one still writes");
        drop(second);
        assert_eq!((turns.held("a"), released()), (None, vec!["a".to_owned()]));
        assert!(turns.held("b").is_some());
        drop(other);
        assert_eq!(released(), ["a", "b"]);
    }
}
