//! The reconciles of one namespace as a state machine without input and output.
//!
//! ```text
//!            begin, polled, changed, reply
//!  driver ──────────────────────────────────► Machine ── reconciles, one for each GitSync at a time
//!     ▲                                          │
//!     └──────── next(now, limit): an effect ─────┘
//! ```
//! A reconcile is an asynchronous function of the [`Engine`] that waits where it needs an answer ([`io`](super::io)). It
//! uses no socket, clock or executor. So the same code runs in the operator and in the simulation, and a test that drops a
//! machine simulates an operator that is killed between two requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::next::Next;
use crate::order::Seq;
use crate::sync::io::effect::{Effect, Replied};
use crate::sync::io::poll::Found;
use crate::sync::io::{Coroutine, Ended, Io, Limit, Now, Step};
use crate::sync::poll::Moved;
use crate::sync::reconcile::engine::Engine;

/// A running reconcile. Each has a lock of its own, so that one which computes does not block the others.
pub type Running = Arc<Mutex<Coroutine<'static, Ended>>>;

/// The running reconciles of one namespace, and what the engine remembers between reconciles.
pub struct Machine {
    engine: Arc<Engine>,
    /// The running reconciles, by name of the GitSync.
    running: BTreeMap<String, Running>,
    /// Effects of reconciles that panicked, which the driver has not carried out yet.
    pending_effects: BTreeMap<String, VecDeque<Effect>>,
    /// How many reconciles have begun.
    begun: u64,
    seed: u64,
}

impl Machine {
    /// A machine without running reconciles. `seed` determines the jitter of delays.
    #[must_use]
    pub fn new(engine: Engine, seed: u64) -> Self {
        let (running, pending_effects) = (BTreeMap::new(), BTreeMap::new());
        Self { engine: Arc::new(engine), running, pending_effects, begun: 0, seed }
    }

    /// Begins a reconcile of a GitSync, unless one is running. Once it is over, the driver calls [`Self::ended`].
    pub fn begin(&mut self, name: &str, now: Now) -> Running {
        if let Some(running) = self.running.get(name) {
            return running.clone();
        }
        self.begun += 1;
        let seed = self.seed.wrapping_add(self.begun.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Numbers of an earlier reconcile do not repeat, so late replies to its requests are ignored.
        let io = Io::new(now, self.begun << 32, seed);
        for effect in self.pending_effects.remove(name).into_iter().flatten() {
            io.emit(effect);
        }
        let (engine, inner, own_name) = (self.engine.clone(), io.clone(), name.to_owned());
        let work = async move { engine.reconcile(&inner, &own_name).await };
        let running = Arc::new(Mutex::new(Coroutine::new(io, work)));
        self.running.insert(name.to_owned(), running.clone());
        running
    }

    /// Runs the reconcile of a GitSync as far as it gets, and returns what the driver has to do next.
    pub fn next(&mut self, name: &str, now: Now, limit: Limit) -> Step<Ended> {
        let Some(running) = self.running.get(name) else { return Step::Over(Ok(Next::Settled)) };
        let step = running.lock().next(now, limit);
        if matches!(step, Step::Over(_)) {
            self.ended(name);
        }
        step
    }

    /// Hands over the reply to a request.
    pub fn reply(&mut self, name: &str, number: u64, reply: Replied) {
        if let Some(running) = self.running.get(name) {
            running.lock().reply(number, reply);
        }
    }

    /// Removes a reconcile that is over, or that the driver gives up. Effects that are not carried out yet, except requests, are
    /// emitted by the next reconcile: this one may have panicked.
    pub fn ended(&mut self, name: &str) {
        let Some(running) = self.running.remove(name) else { return };
        let effects = running.lock().take_effects();
        if !effects.is_empty() {
            self.pending_effects.entry(name.to_owned()).or_default().extend(effects);
        }
    }

    /// Hands over the answer of a poll, which began at this place in the order of events.
    pub fn polled(&mut self, name: &str, at: Seq, found: Found) {
        self.engine.polled(name, at, found);
    }

    /// Reports another change for a GitSync, such as one of its variables.
    pub fn changed(&mut self, name: &str, what: Moved) {
        self.engine.changed(name, what);
    }

    /// (tests) The engine.
    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// (tests) The GitSyncs with a running reconcile, or with effects that are not carried out.
    #[cfg(test)]
    pub(crate) fn left_over(&self) -> Vec<&String> {
        self.running.keys().chain(self.pending_effects.keys()).collect()
    }

    /// Whether nothing is running and nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.pending_effects.is_empty() && self.engine.is_empty()
    }
}
