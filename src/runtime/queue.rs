//! A queue of object keys. A key waits at most once, with a delay when that is asked for. Namespaces are served fairly. A key
//! that is being worked on is not handed out.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::write_priority::WritePriority;
use crate::cluster::store::Key;
use crate::fair::Fair;

/// A waiting key is in one of three places: in `later` until it is due, then in `fair`; in neither while it is worked on.
#[derive(Default)]
struct QueueState {
    /// When each waiting key is due.
    waiting: HashMap<Key, Instant>,
    later: BTreeSet<(Instant, Key)>,
    fair: Fair,
    running: HashSet<Key>,
    /// Keys that are not handed out before a time, whoever adds them.
    held: HashMap<Key, Instant>,
    /// Namespaces that wait for a sync, and until when at most.
    behind: BTreeSet<(Instant, Arc<str>)>,
    /// How many keys may be worked on at once; `None`: any number.
    slots: Option<usize>,
}

impl QueueState {
    /// A key waits until `due`. An earlier time of the same key no longer counts.
    fn wait(&mut self, key: Key, due: Instant) {
        if let Some(old) = self.waiting.insert(key.clone(), due)
            && !self.later.remove(&(old, key.clone()))
        {
            self.fair.remove(&key, old);
        }
        if !self.running.contains(&key) {
            self.later.insert((due, key));
        }
    }

    /// Moves keys that are due from `later` to `fair`, and releases namespaces that have waited long enough for their syncs.
    fn ripen(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(due, _)| *due <= now) {
            let Some((due, key)) = self.later.pop_first() else { return };
            self.fair.insert(key, due);
        }
        while self.behind.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, namespace)) = self.behind.pop_first() else { return };
            self.fair.release(&namespace);
        }
    }
}

/// The keys of the objects of one reconciler. Its size is bounded by the number of objects: a key waits at most once.
#[derive(Default)]
pub struct Queue {
    state: Mutex<QueueState>,
    wake: Notify,
    priority: Option<Arc<WritePriority>>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// An empty queue that hands out no key of a namespace while a sync writes there.
    #[must_use]
    pub fn behind_syncs(priority: &Arc<WritePriority>) -> Arc<Self> {
        let queue = Arc::new(Self { priority: Some(priority.clone()), ..Self::default() });
        let weak = Arc::downgrade(&queue);
        priority.on_release(move |namespace| {
            if let Some(queue) = weak.upgrade() {
                queue.release(namespace);
            }
        });
        queue
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Sets how many keys may be worked on at once. [`Fair`] says what one namespace gets of them. Without this call there is
    /// no limit.
    pub fn limit(&self, slots: usize) {
        self.lock().slots = Some(slots);
        self.wake.notify_one();
    }

    /// Work on `key` as soon as possible.
    pub fn add(&self, key: Key) {
        self.add_after(key, Duration::ZERO);
    }

    /// Work on `key` after `delay`, or earlier if it is added with a shorter one.
    pub fn add_after(&self, key: Key, delay: Duration) {
        let mut due = Instant::now() + delay;
        {
            let mut state = self.lock();
            due = state.held.get(&key).map_or(due, |until| due.max(*until));
            if state.waiting.get(&key).is_some_and(|have| *have <= due) {
                return;
            }
            state.wait(key, due);
        }
        self.wake.notify_one();
    }

    /// Work on `key` after `pause`, and not earlier, whoever adds it meanwhile. A key that is held already is not held for
    /// longer: constant changes must not keep an object from being worked on.
    pub fn hold(&self, key: Key, pause: Duration) {
        let now = Instant::now();
        let until = now + pause;
        {
            let mut state = self.lock();
            if state.held.get(&key).is_some_and(|held| *held > now) {
                return;
            }
            state.held.insert(key.clone(), until);
            state.wait(key, until);
        }
        self.wake.notify_one();
    }

    /// How many keys wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key that is due, when there is a slot for it. The caller says [`Queue::done`] when it has worked on it.
    pub async fn next(&self) -> Key {
        loop {
            let notified = self.wake.notified();
            let wait = match self.take() {
                Ok(key) => {
                    // Another worker may be waiting for what comes next.
                    self.wake.notify_one();
                    return key;
                }
                Err(wait) => wait,
            };
            match wait {
                Some(until) => {
                    let _ = tokio::time::timeout_at(until, notified).await;
                }
                None => notified.await,
            }
        }
    }

    /// A key, or the time when there may be one if nothing happens until then.
    fn take(&self) -> Result<Key, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        state.ripen(now);
        let slots = state.slots.unwrap_or(usize::MAX);
        while let Some(namespace) = state.fair.next(slots) {
            let until = self.priority.as_ref().and_then(|priority| priority.held_until(&namespace));
            if let Some(until) = until.filter(|until| *until > now) {
                state.fair.hold(&namespace);
                state.behind.insert((until, namespace));
                continue;
            }
            let Some(key) = state.fair.take(&namespace) else { continue };
            state.waiting.remove(&key);
            state.held.remove(&key);
            state.running.insert(key.clone());
            return Ok(key);
        }
        let due = state.later.first().map(|(due, _)| *due);
        let until = state.behind.first().map(|(until, _)| *until);
        Err(due.into_iter().chain(until).min())
    }

    /// No sync of this namespace writes any more.
    fn release(&self, namespace: &str) {
        {
            let mut state = self.lock();
            state.behind.retain(|(_, behind)| **behind != *namespace);
            state.fair.release(namespace);
        }
        self.wake.notify_one();
    }

    /// The work on `key` has ended; if it was added meanwhile, it is handed out again.
    pub fn done(&self, key: &Key) {
        {
            let mut state = self.lock();
            if state.running.remove(key) {
                state.fair.done(&key.namespace);
            }
            if let Some(due) = state.waiting.get(key).copied() {
                state.later.insert((due, key.clone()));
            }
        }
        self.wake.notify_one();
    }
}

#[cfg(test)]
#[path = "tests/queue.rs"]
mod tests;
