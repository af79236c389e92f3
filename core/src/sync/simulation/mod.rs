//! Deterministic simulation of the engine: the machine that runs behind the API server, over the production stores, with
//! GitSyncs that share a namespace. What is simulated is everything else: a remote, an API server whose watches are late, people,
//! faults, a clock, and operators that are killed between any two requests. All of it from one seed.
//!
//! [`oracle`] states what users may rely on and shares no code with the machine. A scenario is a list of steps, each with dice of
//! its own, so a failing one is made shorter by leaving steps out, and printed with how to repeat it.
//!
//! | file | what |
//! |---|---|
//! | [`campaign`] | many scenarios, what must occur in them, and the shortest way to a failure |
//! | [`people`], [`stories`], [`faults`] | what people do, what belongs together of it, what breaks |
//! | [`traffic`], [`remote`], [`server`] | requests and replies, polls of the remote, the API server |
//! | [`operator`] | the machine with its stores, watches, requests and polls |
//! | [`rest`], [`memory`] | what must hold when nothing is going on, and what may be kept then |
//! | [`scripted`] | scenarios that are written out |

#![allow(clippy::unused_self)] // rules are methods of the oracle, whether or not they need what it remembers
#![allow(clippy::struct_field_names, clippy::nonminimal_bool)] // as they are said

mod campaign;
mod faults;
mod memory;
pub(super) mod operator;
mod oracle;
mod people;
mod remote;
mod rest;
mod scripted;
pub(super) mod server;
mod stories;
mod traffic;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::operator::{Flying, Operator, Orphaned, WATCHES};
use self::oracle::Oracle;
use self::server::{Name, Server};
use crate::sync::properties::repository::{Definitions, FOLDERS, Tree};
use crate::test_rng::TestRng;

/// The namespace of the machine.
pub const NAMESPACE: &str = "team";
/// Steps of one scenario.
const STEPS: usize = 24;
/// The GitSyncs, each with its folder and when it was made. The last one is not in each scenario.
const SYNCS: [(&str, &str, &str); 3] = [
    ("main", FOLDERS[0], "2026-01-01T00:00:00Z"),
    ("other", FOLDERS[1], "2026-01-02T00:00:00Z"),
    ("third", FOLDERS[2], "2026-01-03T00:00:00Z"),
];

/// How often something happened, over all scenarios.
pub type Counts = BTreeMap<&'static str, usize>;

/// Everything.
pub struct Sim {
    dice: TestRng,
    log: Option<Vec<String>>,
    now: Instant,
    /// Grows with everything that happens.
    tick: u64,
    server: Server,
    operator: Operator,
    /// Requests that nobody waits for and that may still arrive.
    late: Vec<Orphaned>,
    /// All commits, and the newest.
    trees: Vec<Tree>,
    head: usize,
    definitions: Definitions,
    /// Passes that may have something to ask for.
    hungry: Vec<String>,
    /// What may go wrong: replies, looks.
    faults: bool,
    oracle: Oracle,
    counts: Counts,
    seed: u64,
    /// How many operators there were.
    operators: u64,
    /// The GitSyncs of this scenario.
    syncs: &'static [(&'static str, &'static str, &'static str)],
}

fn commit(number: usize) -> String {
    format!("{number:040x}")
}

fn number(commit: &str) -> usize {
    usize::from_str_radix(commit, 16).unwrap_or(usize::MAX)
}

impl Sim {
    fn new(seed: u64, start: Instant, log: bool) -> Self {
        let mut dice = TestRng::new(seed ^ 0x5eed);
        let syncs = if dice.one_in(4) { &SYNCS[..] } else { &SYNCS[..2] };
        let mut server = Server::default();
        for (name, path, created) in syncs {
            server.make(&Name::Sync((*name).into()), sync(name, path, created));
        }
        let mut first = Tree::default();
        first.keep_company();
        let slots = 1 + dice.roll(4);
        let operator = Operator::new(&server, start, seed, slots);
        let mut sim = Self {
            dice,
            log: log.then(Vec::new),
            now: start,
            tick: 0,
            server,
            operator,
            late: Vec::new(),
            trees: vec![first],
            head: 0,
            definitions: Definitions::default(),
            hungry: Vec::new(),
            faults: false,
            oracle: Oracle::default(),
            counts: Counts::new(),
            seed,
            operators: 1,
            syncs,
        };
        if syncs.len() > 2 {
            sim.count("three GitSyncs");
        }
        sim.observe();
        sim
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Keeps what happened, when somebody is to read it.
    fn say(&mut self, text: impl FnOnce() -> String) {
        let tick = self.tick;
        if let Some(log) = &mut self.log {
            log.push(format!("{tick}: {}", text()));
        }
    }

    /// The truth has changed.
    fn observe(&mut self) {
        self.tick += 1;
        self.oracle.observe(self.tick, &self.server, (self.head, &self.trees[self.head]));
    }

    fn push(&mut self, tree: Tree) {
        self.trees.push(tree);
        self.head = self.trees.len() - 1;
        let head = self.head;
        self.say(|| format!("commit {head}"));
        self.observe();
    }

    /// The operator is killed. What it has asked for may be done or not, now or later. Another one starts.
    fn crash(&mut self) {
        self.count("crash");
        self.say(|| "crash".into());
        for Flying { sync, asked, reply, .. } in std::mem::take(&mut self.operator.flying) {
            if reply.is_none() && self.dice.one_in(2) {
                self.late.push(Orphaned { sync, asked });
            }
        }
        self.operators += 1;
        let slots = self.operator.slots;
        self.operator = Operator::new(&self.server, self.now, self.seed ^ self.operators, slots);
        self.hungry.clear();
        self.oracle.restarted();
    }

    /// Something small happens; whether there was anything.
    fn micro(&mut self) -> bool {
        self.tick += 1;
        self.operator.at(self.now);
        for name in self.operator.begin() {
            self.oracle.begins(&name, &self.operator);
            self.hungry.push(name);
        }
        // In an order that differs each time: the first that is possible happens.
        let first = self.dice.roll(7);
        (0..7).any(|next| self.happens((first + next) % 7))
    }

    fn happens(&mut self, what: usize) -> bool {
        match what {
            0 | 1 => self.asks(),
            2 => self.arrives(),
            3 => self.lands(),
            4 => {
                let watch = self.dice.roll(WATCHES.len());
                (0..WATCHES.len())
                    .any(|next| self.operator.show(&self.server, (watch + next) % WATCHES.len()))
            }
            5 => self.looks(),
            _ => self.comes_late(),
        }
    }

    /// Goes on for so many small things; some time may pass when there is nothing else to do.
    fn run(&mut self, most: usize) {
        let mut waits = self.dice.roll(3);
        let longest = if self.dice.one_in(12) { 2000 } else { 90 };
        for _ in 0..most {
            if self.micro() {
                continue;
            }
            if waits == 0 || !self.pass_time(Duration::from_secs(longest)) {
                return;
            }
            waits -= 1;
        }
    }

    /// Lets time pass until something is due, if that is soon enough.
    fn pass_time(&mut self, most: Duration) -> bool {
        let Some(due) = self.operator.next_due() else { return false };
        if due > self.now + most {
            return false;
        }
        self.now = self.now.max(due) + Duration::from_millis(1);
        if self.operator.still_fails(self.now) {
            self.count("kind falls silent");
        }
        true
    }

    /// Goes on until nothing is left that takes no time.
    fn drain(&mut self) {
        for _ in 0..20_000 {
            if !self.micro() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn step(&mut self, number: usize) {
        // A generator of its own: the other steps stay the same when one is left out.
        self.dice = TestRng::new(self.seed.wrapping_mul(1009).wrapping_add(number as u64));
        match self.dice.roll(24) {
            0..=5 => self.in_git(),
            6..=9 => self.by_hand(),
            10..=13 => self.user(),
            14 | 15 => self.fault(),
            16 | 17 => self.story(),
            _ => {}
        }
        self.faults = self.dice.one_in(3);
        let most = [3, 10, 40, 200][self.dice.roll(4)];
        self.run(most);
        self.quiet();
    }
}

fn sync(name: &str, path: &str, created: &str) -> Value {
    json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"url": "https://git.example", "path": path, "interval": "1m", "retryInterval": "30s",
            "prune": {"maxDeletions": "60%"}},
    })
}

/// One scenario without these steps; how it failed, with a log of it if wanted.
fn scenario(seed: u64, without: &[usize], log: bool) -> Result<Sim, String> {
    let work = |sim: &mut Sim| {
        for number in 0..STEPS {
            if !without.contains(&number) {
                sim.say(|| format!("step {number}"));
                sim.step(number);
            }
        }
        sim.settle();
    };
    played(seed, log, work)
}

/// Plays this, from a new beginning.
#[allow(clippy::disallowed_methods)] // a point to count from
fn played(seed: u64, log: bool, work: impl FnOnce(&mut Sim)) -> Result<Sim, String> {
    let mut sim = Sim::new(seed, Instant::now(), log);
    match catch_unwind(AssertUnwindSafe(|| work(&mut sim))) {
        Ok(()) => Ok(sim),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(|why| (*why).to_owned()));
            let log = sim.log.unwrap_or_default().join("\n  ");
            Err(format!("{}\n  {log}", why.unwrap_or_default()))
        }
    }
}
