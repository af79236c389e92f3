//! A queue of object keys: coalescing, delayed, and never handing out a key that is being worked on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::turns::Turns;
use crate::cluster::store::Key;

#[derive(Default)]
struct State {
    /// When each waiting key is due. The heap may hold older entries for it: those are skipped.
    due: HashMap<Key, Instant>,
    heap: BinaryHeap<Reverse<(Instant, Key)>>,
    running: HashSet<Key>,
    /// Keys that are not handed out before a time, whoever adds them.
    held: HashMap<Key, Instant>,
    /// When the last key was handed out.
    last: Option<Instant>,
}

/// See the module. Bounded by the number of objects: a key waits at most once.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    wake: Notify,
    turns: Option<Arc<Turns>>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// An empty queue that hands out keys when it is the turn of controllers.
    #[must_use]
    pub fn behind(turns: &Arc<Turns>) -> Arc<Self> {
        Arc::new(Self { turns: Some(turns.clone()), ..Self::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            if state.due.get(&key).is_some_and(|have| *have <= due) {
                return;
            }
            state.due.insert(key.clone(), due);
            state.heap.push(Reverse((due, key)));
        }
        self.wake.notify_one();
    }

    /// Work on `key` after `pause`, and not earlier, whoever adds it meanwhile. What is held already is not held for
    /// longer: who changes something all the time must not keep it from being worked on.
    pub fn hold(&self, key: Key, pause: Duration) {
        let now = Instant::now();
        let until = now + pause;
        {
            let mut state = self.lock();
            if state.held.get(&key).is_some_and(|held| *held > now) {
                return;
            }
            state.held.insert(key.clone(), until);
            state.due.insert(key.clone(), until);
            state.heap.push(Reverse((until, key)));
        }
        self.wake.notify_one();
    }

    /// How many keys wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().due.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key that is due. The caller says [`Queue::done`] when it has worked on it.
    pub async fn next(&self) -> Key {
        loop {
            if let Some(turns) = &self.turns {
                let last = self.lock().last;
                turns.controller(last).await;
            }
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

    fn take(&self) -> Result<Key, Option<Instant>> {
        let now = Instant::now();
        let mut state = self.lock();
        while let Some(Reverse((due, key))) = state.heap.peek().cloned() {
            if state.due.get(&key) != Some(&due) {
                state.heap.pop();
                continue;
            }
            if due > now {
                return Err(Some(due));
            }
            state.heap.pop();
            if state.running.contains(&key) {
                // It stays in `due` without a heap entry; `done` puts it back.
                continue;
            }
            state.due.remove(&key);
            state.held.remove(&key);
            state.running.insert(key.clone());
            state.last = Some(now);
            return Ok(key);
        }
        Err(None)
    }

    /// The work on `key` has ended; if it was added meanwhile, it is handed out again.
    pub fn done(&self, key: &Key) {
        {
            let mut state = self.lock();
            state.running.remove(key);
            if let Some(due) = state.due.get(key).copied() {
                state.heap.push(Reverse((due, key.clone())));
            }
        }
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[tokio::test(start_paused = true)]
    async fn g14_a_key_that_is_held_is_not_handed_out_before_its_time_whoever_adds_it() {
        let queue = Queue::new();
        queue.add(key("a"));
        queue.hold(key("a"), Duration::from_secs(1));
        queue.add(key("a"));
        queue.add(key("b"));
        let began = Instant::now();
        assert_eq!(queue.next().await, key("b"), "others are not held");
        tokio::time::sleep(Duration::from_millis(500)).await;
        queue.hold(key("a"), Duration::from_secs(1));
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        // Once, and not for ever.
        queue.done(&key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("a"));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_coalesce_and_the_shortest_delay_wins() {
        let queue = Queue::new();
        queue.add_after(key("a"), Duration::from_secs(60));
        queue.add_after(key("a"), Duration::from_secs(1));
        queue.add(key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("a"));
        queue.done(&key("a"));
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_worked_on_twice_at_once() {
        let queue = Queue::new();
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("a"));
        queue.add(key("a"));
        let second = tokio::time::timeout(Duration::from_secs(5), queue.next()).await;
        assert!(second.is_err(), "handed out while running");
        queue.done(&key("a"));
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn c15_a_queue_behind_hands_out_nothing_while_a_sync_writes() {
        let turns = Turns::new();
        let queue = Queue::behind(&turns);
        let sync = turns.sync();
        queue.add(key("a"));
        let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(early.is_err(), "handed out beside a sync");
        drop(sync);
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_keys_come_in_order() {
        let queue = Queue::new();
        queue.add_after(key("late"), Duration::from_secs(9));
        queue.add_after(key("soon"), Duration::from_secs(2));
        assert_eq!(queue.next().await, key("soon"));
        assert_eq!(queue.next().await, key("late"));
    }
}
