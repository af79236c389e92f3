//! What decides for the GitSyncs of one namespace, without input and output: it is told what happened and what time it
//! is, and asked for what is to be done next.
//!
//! ```text
//!            begin, polled, changed, reply
//!  driver ──────────────────────────────────► Machine ── passes of the engine, one for each GitSync at a time
//!     ▲                                          │
//!     └──────── next(now, free): an effect ──────┘
//! ```
//! A pass is a function of the [`Engine`] that reads straight down and waits where it needs an answer ([`io`](super::io)). Nothing in it
//! knows a socket, a clock or an executor, so the same code runs behind the API server and in a simulation, and whoever drops
//! a machine has killed an operator between two requests.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::next::Next;
use crate::sync::io::effect::{Effect, Found, Replied};
use crate::sync::io::{Coroutine, Ended, Io, Now, Step};
use crate::sync::order::Seq;
use crate::sync::poll::Moved;
use crate::sync::reconcile::engine::Engine;

/// A pass that is under way. Whoever asks it for what is to be done keeps no other one from going on.
pub type Running = Arc<Mutex<Coroutine<'static, Ended>>>;

/// See the module.
pub struct Machine {
    engine: Arc<Engine>,
    /// The passes that are under way, by name of the GitSync.
    passes: BTreeMap<String, Running>,
    /// What a pass that panicked had asked for, and nobody did yet.
    left: BTreeMap<String, VecDeque<Effect>>,
    begun: u64,
    seed: u64,
}

impl Machine {
    /// Nothing is known yet. `seed` decides how delays are spread.
    #[must_use]
    pub fn new(engine: Engine, seed: u64) -> Self {
        let (passes, left) = (BTreeMap::new(), BTreeMap::new());
        Self { engine: Arc::new(engine), passes, left, begun: 0, seed }
    }

    /// Looks at a GitSync again, unless a pass is under way. Once that is over, it has to be [ended](Self::ended).
    pub fn begin(&mut self, name: &str, now: Now) -> Running {
        if let Some(pass) = self.passes.get(name) {
            return pass.clone();
        }
        self.begun += 1;
        let seed = self.seed.wrapping_add(self.begun.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Late replies to requests of an earlier pass find nobody.
        let io = Io::new(now, self.begun << 32, seed);
        for effect in self.left.remove(name).into_iter().flatten() {
            io.tell(effect);
        }
        let (engine, asks, mine) = (self.engine.clone(), io.clone(), name.to_owned());
        let work = async move { engine.reconcile(&asks, &mine).await };
        let pass = Arc::new(Mutex::new(Coroutine::new(io, work)));
        self.passes.insert(name.to_owned(), pass.clone());
        pass
    }

    /// What is to be done next for a GitSync. Once its pass is over, a new one has to begin.
    pub fn next(&mut self, name: &str, now: Now, free: bool) -> Step<Ended> {
        let Some(pass) = self.passes.get(name) else { return Step::Over(Ok(Next::Settled)) };
        let step = pass.lock().next(now, free);
        if matches!(step, Step::Over(_)) {
            self.ended(name);
        }
        step
    }

    /// What came of a request.
    pub fn reply(&mut self, name: &str, number: u64, reply: Replied) {
        if let Some(pass) = self.passes.get(name) {
            pass.lock().reply(number, reply);
        }
    }

    /// The pass is over, or nobody waits any more for what it has asked: then it is not known whether that was done. What it
    /// wanted to have done besides requests is asked for again by the next one: it may have panicked just then.
    pub fn ended(&mut self, name: &str) {
        let Some(pass) = self.passes.remove(name) else { return };
        let left = pass.lock().left();
        if !left.is_empty() {
            self.left.entry(name.to_owned()).or_default().extend(left);
        }
    }

    /// A poll of a remote has ended, which began at this place in the order of things.
    pub fn polled(&mut self, name: &str, at: Seq, found: Found) {
        self.engine.polled(name, at, found);
    }

    /// Something else has changed for a GitSync.
    pub fn changed(&mut self, name: &str, what: Moved) {
        self.engine.changed(name, what);
    }

    /// What decides, for tests.
    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The GitSyncs with passes that are not over, or that have left something to be done; for tests.
    #[cfg(test)]
    pub(crate) fn left_over(&self) -> Vec<&String> {
        self.passes.keys().chain(self.left.keys()).collect()
    }

    /// Whether nothing is kept and nothing under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty() && self.left.is_empty() && self.engine.is_empty()
    }
}
