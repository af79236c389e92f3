//! (pure) What decides for the GitSyncs of one namespace, without input and output: it is told what happened and what time it
//! is, and asked for what is to be done next.
//!
//! ```text
//!            begin, looked, changed, reply
//!  driver ──────────────────────────────────► Machine ── passes of the engine, one for each GitSync at a time
//!     ▲                                          │
//!     └──────── next(now, free): an effect ──────┘
//! ```
//! A pass is a function of the [`Engine`] that reads straight down and waits where it needs an answer ([`io`]). Nothing in it
//! knows a socket, a clock or an executor, so the same code runs behind the API server and in a simulation, and whoever drops
//! a machine has killed an operator between two requests.
#![deny(clippy::disallowed_methods)]

pub mod effect;
pub mod io;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::effect::{Found, Replied};
use self::io::{Io, Now, Pass, Step};
use super::engine::{Engine, EngineError};
use super::order::Seq;
use crate::controllers::runtime::Next;

/// How a pass ended: when to begin the next one.
pub type Ended = Result<Next, EngineError>;

/// See the module.
pub struct Machine {
    engine: Arc<Engine>,
    /// The passes that are under way, by name of the GitSync.
    passes: BTreeMap<String, Pass<'static, Ended>>,
    begun: u64,
    seed: u64,
}

/// What has changed besides objects of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The values that `spec.variables` names.
    Variables,
    /// The folder that takes the place of the repository.
    Folder,
}

impl Machine {
    /// Nothing is known yet. `seed` decides how delays are spread.
    #[must_use]
    pub fn new(engine: Engine, seed: u64) -> Self {
        Self { engine: Arc::new(engine), passes: BTreeMap::new(), begun: 0, seed }
    }

    /// Looks at a GitSync again, unless a pass is under way.
    pub fn begin(&mut self, name: &str, now: Now) {
        if self.passes.contains_key(name) {
            return;
        }
        self.begun += 1;
        let seed = self.seed.wrapping_add(self.begun.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Late replies to requests of an earlier pass find nobody.
        let io = Io::new(now, self.begun << 32, seed);
        let (engine, asks, mine) = (self.engine.clone(), io.clone(), name.to_owned());
        let work = async move { engine.reconcile(&asks, &mine).await };
        self.passes.insert(name.to_owned(), Pass::new(io, work));
    }

    /// What is to be done next for a GitSync. Once its pass is over, a new one has to begin.
    pub fn next(&mut self, name: &str, now: Now, free: bool) -> Step<Ended> {
        // A pass that panics is not gone on with.
        let Some(mut pass) = self.passes.remove(name) else { return Step::Over(Ok(Next::Settled)) };
        let step = pass.next(now, free);
        if !matches!(step, Step::Over(_)) {
            self.passes.insert(name.to_owned(), pass);
        }
        step
    }

    /// What came of a request.
    pub fn reply(&mut self, name: &str, number: u64, reply: Replied) {
        if let Some(pass) = self.passes.get_mut(name) {
            pass.reply(number, reply);
        }
    }

    /// Nobody waits any more for what a pass has asked: whether it was done is not known.
    pub fn abandon(&mut self, name: &str) {
        self.passes.remove(name);
    }

    /// A look at a remote has ended, which began at this place in the order of things.
    pub fn looked(&mut self, name: &str, at: Seq, found: Found) {
        self.engine.looked(name, at, found);
    }

    /// Something else has changed for a GitSync.
    pub fn changed(&mut self, name: &str, what: Moved) {
        self.engine.changed(name, what);
    }

    /// Whether nothing is kept and nothing under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty() && self.engine.is_empty()
    }
}
