//! Whose turn it is to build: so many builds run at once, in all and of one namespace.
//!
//! Who waits, and since when, is in the statuses of the AgentBuilds; here is a copy. What runs is what the PipelineRuns say.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::owners::Owners;
use super::run::Run;
use crate::cluster::store::{Key, Store};

/// How long a build keeps its place while it is not known whether it still waits for its turn: after a restart, until the first poll of its source.
const DOUBT: Duration = Duration::from_secs(10);

/// How many builds run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub total: usize,
    /// Of one namespace.
    pub namespace: usize,
}

/// Those who wait, and those who are about to begin.
pub struct Turns {
    limits: Limits,
    owners: Arc<Owners>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<Key, Timestamp>,
    /// Those of them of which that is not known, and since when.
    doubtful: HashMap<Key, Instant>,
    /// Their PipelineRuns are being created.
    starting: HashSet<Key>,
}

/// A build whose PipelineRun is being created. It counts as running as long as this lives; then its PipelineRun counts.
pub struct Starting {
    turns: Arc<Turns>,
    key: Key,
    since: Timestamp,
}

impl Drop for Starting {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.starting.remove(&self.key);
        // It has its place until a reconcile ends with something else: its PipelineRun may not have been made.
        state.waiting.entry(self.key.clone()).or_insert(self.since);
    }
}

impl Turns {
    /// Nobody waits.
    #[must_use]
    pub fn new(limits: Limits, owners: Arc<Owners>) -> Arc<Self> {
        Arc::new(Self { limits, owners, state: Mutex::default() })
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// What the status of a build says: since when it waits.
    pub fn note(&self, key: &Key, since: Option<Timestamp>) {
        let mut state = self.state.lock();
        state.doubtful.remove(key);
        match since {
            Some(since) => state.waiting.insert(key.clone(), since),
            None => state.waiting.remove(key),
        };
    }

    /// It is not known whether a build still waits. It keeps its place for ten seconds, and does not hold up others for longer.
    pub fn doubt(&self, key: &Key, now: Instant) {
        let mut state = self.state.lock();
        if state.waiting.contains_key(key) {
            state.doubtful.entry(key.clone()).or_insert(now);
        }
    }

    /// Takes the turn of a build that waits, if it is its turn.
    #[must_use]
    pub fn take(self: &Arc<Self>, key: &Key, runs: &Store<Run>) -> Option<Starting> {
        let mut state = self.state.lock();
        state.forget_doubtful(Instant::now());
        let running = self.running(&state, runs);
        if !next(&state.waiting, &running, self.limits).contains(key) {
            return None;
        }
        let since = state.waiting.remove(key)?;
        state.starting.insert(key.clone());
        Some(Starting { turns: self.clone(), key: key.clone(), since })
    }

    /// The builds whose turn it is.
    #[must_use]
    pub fn next(&self, runs: &Store<Run>) -> Vec<Key> {
        let mut state = self.state.lock();
        state.forget_doubtful(Instant::now());
        if state.waiting.is_empty() {
            return Vec::new();
        }
        next(&state.waiting, &self.running(&state, runs), self.limits)
    }

    /// The builds that run. Each has one PipelineRun at a time, and counts for its own namespace, wherever that is. One that was deleted and made
    /// anew is another build.
    fn running(&self, state: &State, runs: &Store<Run>) -> Vec<Key> {
        let live = runs.all().into_iter().filter(|(_, run)| run.value.is_running());
        let live: HashSet<_> = live
            .filter_map(|(_, run)| {
                Some((self.owners.counts_for(&run.value)?, run.value.owner_uid.clone()))
            })
            .collect();
        let mut all: Vec<_> = live.into_iter().map(|(key, _)| key).collect();
        let more: Vec<_> =
            state.starting.iter().filter(|key| !all.contains(key)).cloned().collect();
        all.extend(more);
        all
    }
}

impl State {
    /// Takes the place of those of whom nothing was known for too long.
    fn forget_doubtful(&mut self, now: Instant) {
        let (waiting, doubtful) = (&mut self.waiting, &mut self.doubtful);
        doubtful.retain(|key, since| {
            let keeps = now.saturating_duration_since(*since) < DOUBT;
            if !keeps {
                waiting.remove(key);
            }
            keeps
        });
    }
}

/// (pure) The builds whose turn it is: the namespace in which fewest run comes first, and of one namespace who waits longest.
fn next(waiting: &HashMap<Key, Timestamp>, running: &[Key], limits: Limits) -> Vec<Key> {
    let mut order: Vec<_> = waiting.iter().filter(|(key, _)| !running.contains(key)).collect();
    // From the newest to the oldest: the oldest is taken from the end.
    order.sort_unstable_by(|one, other| (other.1, other.0).cmp(&(one.1, one.0)));
    let mut lines: HashMap<&str, Vec<(&Timestamp, &Key)>> = HashMap::new();
    for (key, since) in order {
        lines.entry(&key.namespace).or_default().push((since, key));
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for key in running {
        *counts.entry(&key.namespace).or_default() += 1;
    }
    // What somebody lets run beyond the limit of a namespace takes no turns of others.
    let taken: usize = counts.values().map(|count| *count.min(&limits.namespace)).sum();
    let mut chosen = Vec::new();
    while taken + chosen.len() < limits.total {
        let heads = lines.iter().filter_map(|(namespace, line)| {
            let (since, key) = line.last()?;
            let count = counts.get(namespace).copied().unwrap_or_default();
            (count < limits.namespace).then_some((count, *since, *key))
        });
        let Some((_, _, key)) = heads.min() else { break };
        *counts.entry(&key.namespace).or_default() += 1;
        if let Some(line) = lines.get_mut(key.namespace.as_str()) {
            line.pop();
        }
        chosen.push(key.clone());
    }
    chosen
}

#[cfg(test)]
#[path = "tests/turns.rs"]
mod tests;
