//! Deterministic simulation of the engine: the machine that runs behind the API server, over the production stores, with
//! GitSyncs that share a namespace. What is simulated is everything else: a remote, an API server whose watches are late, people,
//! faults, a clock, and operators that are killed between any two requests. All of it from one seed.
//!
//! [`oracle`] states what users may rely on and shares no code with the machine. A scenario is a list of steps, each with dice of
//! its own, so a failing one is made shorter by leaving steps out, and printed with how to repeat it.

pub(super) mod operator;
mod oracle;
mod people;
pub(super) mod server;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use self::operator::{Flying, Operator, WATCHES};
use self::oracle::Oracle;
use self::server::{Name, Server};
use super::loaded::Loaded;
use super::properties::repository::{Definitions, FOLDERS, Tree};
use super::state::{Answer, SourceFailure};
use crate::api::git_sync::Stages;
use crate::cluster::call_error::CallError;
use crate::dice::Dice;
use crate::git::Revision;
use crate::sync::machine::effect::Call;

/// The namespace of the machine.
pub const NAMESPACE: &str = "team";
/// Steps of one scenario.
const STEPS: usize = 24;
/// The GitSyncs, each with its folder and when it was made.
const SYNCS: [(&str, &str, &str); 2] =
    [("main", FOLDERS[0], "2026-01-01T00:00:00Z"), ("other", FOLDERS[1], "2026-01-02T00:00:00Z")];

/// What has to happen at least once in thousands of scenarios.
const MUST: [&str; 27] = [
    "GitSync deleted",
    "adopted by annotation",
    "approval",
    "came late",
    "change by hand undone",
    "conflict (409)",
    "crash",
    "delete",
    "delete at the end of a GitSync",
    "delete in spite of errors",
    "earlier commit not read",
    "earlier commit read",
    "handed over",
    "held delete goes after its approval",
    "held for an approval",
    "held until it is proven",
    "look failed",
    "quarantine",
    "quarantined object looked at",
    "refused (422)",
    "reply lost",
    "request late",
    "request lost",
    "server overloaded",
    "watch fails",
    "watch lost its place",
    "watch works again",
];

/// How often something happened, over all scenarios.
pub type Counts = BTreeMap<&'static str, usize>;

/// Everything.
pub struct Sim {
    dice: Dice,
    log: Option<Vec<String>>,
    now: Instant,
    /// Grows with everything that happens.
    tick: u64,
    server: Server,
    operator: Operator,
    /// Requests that nobody waits for and that may still arrive.
    late: Vec<(String, Call)>,
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
}

fn commit(number: usize) -> String {
    format!("{number:040x}")
}

fn number(commit: &str) -> usize {
    usize::from_str_radix(commit, 16).unwrap_or(usize::MAX)
}

impl Sim {
    fn new(seed: u64, start: Instant, log: bool) -> Self {
        let mut server = Server::default();
        for (name, path, created) in SYNCS {
            server.make(&Name::Sync(name.into()), sync(name, path, created));
        }
        let mut first = Tree::default();
        first.keep_company();
        let operator = Operator::new(&server, start, seed);
        let mut sim = Self {
            dice: Dice::new(seed),
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
        };
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
        self.oracle.observe(self.tick, &self.server, &self.trees[self.head]);
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
        for Flying { sync, call, reply, .. } in std::mem::take(&mut self.operator.flying) {
            if reply.is_none() && self.dice.one_in(2) {
                self.late.push((sync, call));
            }
        }
        self.operators += 1;
        self.operator = Operator::new(&self.server, self.now, self.seed ^ self.operators);
        self.hungry.clear();
        self.oracle.restarted();
    }

    /// Something small happens; whether there was anything.
    fn micro(&mut self) -> bool {
        self.tick += 1;
        self.operator.at(self.now);
        let before = self.operator.active.clone();
        self.operator.begin();
        for name in self.operator.active.difference(&before) {
            self.hungry.push(name.clone());
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

    /// A pass says what it wants to have done.
    fn asks(&mut self) -> bool {
        if self.hungry.is_empty() {
            return false;
        }
        let at = self.dice.roll(self.hungry.len());
        let name = self.hungry[at].clone();
        let (asked, more) = self.operator.pull(&name);
        let call = asked.map(|flying| flying.call.clone());
        if !more {
            self.hungry.swap_remove(at);
        }
        if let Some(call) = call {
            self.tick += 1;
            self.say(|| format!("{name} asks: {}", oracle::short(&call)));
            let truth = (&self.server, &*self.trees);
            self.oracle.asked(&name, &call, &self.operator, truth, &mut self.counts);
        }
        true
    }

    /// A request gets to the server.
    fn arrives(&mut self) -> bool {
        let waiting: Vec<_> = (0..self.operator.flying.len())
            .filter(|at| self.operator.flying[*at].reply.is_none())
            .collect();
        if waiting.is_empty() {
            return false;
        }
        let at = self.dice.of(&waiting);
        let (sync, call) = {
            let flying = &self.operator.flying[at];
            (flying.sync.clone(), flying.call.clone())
        };
        let fate = if self.faults { self.dice.roll(40) } else { 40 };
        let reply = match fate {
            0 => {
                self.count("request lost");
                Err(CallError::Deadline(Duration::from_secs(20)))
            }
            1 => {
                self.count("reply lost");
                let _lost = self.carry(&sync, false, &call);
                Err(CallError::Deadline(Duration::from_secs(20)))
            }
            2 => {
                self.count("request late");
                self.late.push((sync, call));
                Err(CallError::Deadline(Duration::from_secs(20)))
            }
            3 => {
                self.count("server overloaded");
                Err(server::overloaded())
            }
            _ => self.carry(&sync, false, &call),
        };
        if let Err(error) = &reply
            && error.is_conflict()
        {
            self.count("conflict (409)");
        }
        if let Err(error) = &reply
            && error.is_denied()
        {
            self.count("refused (422)");
        }
        self.operator.flying[at].reply = Some(reply);
        true
    }

    /// The server does what it is asked for.
    fn carry(
        &mut self,
        sync: &str,
        late: bool,
        call: &Call,
    ) -> crate::sync::machine::effect::Replied {
        self.tick += 1;
        self.oracle.arrives(sync, call, &self.server, &mut self.counts);
        let before = self.server.version;
        let reply = self.server.answer(call);
        if self.server.version != before {
            self.oracle.arrived((sync, late), call, &self.server, &mut self.counts);
            if matches!(call, Call::Finalizers { .. } | Call::Status { .. }) {
                self.observe();
            }
        }
        reply
    }

    /// A reply gets back.
    fn lands(&mut self) -> bool {
        let landing: Vec<_> = (0..self.operator.flying.len())
            .filter(|at| self.operator.flying[*at].reply.is_some())
            .collect();
        if landing.is_empty() {
            return false;
        }
        let at = self.dice.of(&landing);
        let Flying { sync, number, reply, .. } = self.operator.flying.swap_remove(at);
        if let Some(reply) = reply {
            self.operator.machine.reply(&sync, number, reply);
        }
        self.hungry.push(sync);
        true
    }

    /// A look goes on.
    fn looks(&mut self) -> bool {
        let names: Vec<_> = self.operator.looks.keys().cloned().collect();
        if names.is_empty() {
            return false;
        }
        let name = names[self.dice.roll(names.len())].clone();
        let Some(looking) = self.operator.looks.get_mut(&name) else { return false };
        if looking.seen.is_none() {
            looking.seen = Some(self.head);
            let tick = self.tick;
            self.oracle.looks(&name, self.head, tick);
            return true;
        }
        let fails = self.faults && self.dice.one_in(10);
        if fails {
            self.count("look failed");
        }
        let found = self.found(&name, fails);
        self.say(|| format!("{name} has looked{}", if fails { " in vain" } else { "" }));
        let folder = self.operator.sync(&name).map(|sync| sync.spec.path.clone());
        self.oracle.looked(&name, fails, &folder.unwrap_or_default(), &self.trees);
        self.operator.looked(&name, Ok(found));
        true
    }

    /// What a look finds.
    fn found(&mut self, name: &str, fails: bool) -> Answer {
        let looking = &self.operator.looks[name];
        let (spec, uid) = {
            let sync = &looking.look.sync;
            (sync.spec.clone(), sync.metadata.uid.clone().unwrap_or_default())
        };
        let (head, question) = (looking.seen.unwrap_or_default(), looking.look.question.clone());
        let (applied, before) = (looking.look.applied.clone(), looking.look.before.clone());
        let needless = looking.look.needless.clone();
        let known =
            self.operator.read.entry(name.to_owned()).or_insert_with(|| (uid.clone(), None));
        if known.0 != uid {
            *known = (uid, None);
        }
        let mut loaded = known.1.clone().filter(|loaded| loaded.answers(&spec));
        let mut read = |number: usize, before: Option<&Loaded>| {
            let catalog = self.definitions.catalog(&self.trees[number], &spec.path);
            Loaded::of_without(&spec, &commit(number), catalog, before, &needless)
        };
        let (mut failure, mut changed) = (None, false);
        if fails {
            let message = "the remote does not answer".to_owned();
            failure = Some(SourceFailure { reason: "GitUnreachable", message, terminal: false });
            if let (None, Some(applied)) = (&loaded, applied) {
                loaded = Some(Arc::new(read(number(&applied.commit), None)));
            }
        } else if loaded.as_ref().is_none_or(|old| old.revision.commit != commit(head) || old.lost)
        {
            let mut new = read(head, loaded.as_deref());
            let first = loaded.as_ref().is_none_or(|old| old.lost);
            if first && new.catalog.has_errors() {
                // What was applied before can be read, or cannot for now.
                match before.map(|before| number(&before.commit)) {
                    None if looking.look.has_objects => new = new.started_after(None),
                    None => {}
                    Some(before) if before == head => {}
                    Some(_) if self.faults && self.dice.one_in(3) => {
                        *self.counts.entry("earlier commit not read").or_default() += 1;
                        new = new.started_after(None);
                    }
                    Some(before) => {
                        let before = read(before, None);
                        *self.counts.entry("earlier commit read").or_default() += 1;
                        new = new.started_after(Some(&before));
                    }
                }
            }
            loaded = Some(Arc::new(new));
            changed = true;
        }
        known.1.clone_from(&loaded);
        let attempted = (!fails).then(|| Revision { commit: commit(head), name: "main".into() });
        let stages = Stages::default();
        Answer { question, attempted, stages, changed, failure, loaded, recalled: None }
    }

    /// A request of somebody who does not wait any more arrives.
    fn comes_late(&mut self) -> bool {
        if self.late.is_empty() || (self.faults && !self.dice.one_in(4)) {
            return false;
        }
        let at = self.dice.roll(self.late.len());
        let (sync, call) = self.late.swap_remove(at);
        self.count("came late");
        let _nobody = self.carry(&sync, true, &call);
        true
    }

    /// Goes on for so many small things; some time may pass when there is nothing else to do.
    fn run(&mut self, most: usize) {
        let mut waits = self.dice.roll(3);
        for _ in 0..most {
            if self.micro() {
                continue;
            }
            if waits == 0 || !self.pass_time(Duration::from_secs(90)) {
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
        true
    }

    /// Whether something is going on that takes no time.
    fn drain(&mut self) {
        for _ in 0..20_000 {
            if !self.micro() {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Nobody interferes any more, and what people hold up they let go: everything must come to rest, as Git says.
    fn settle(&mut self) {
        self.faults = false;
        self.half_calm();
        self.calm();
        // A fight with somebody who changed an object pauses for a quarter of an hour at most.
        let limit = self.now + Duration::from_secs(3600);
        loop {
            self.drain();
            let approved = self.approve_all();
            let unrest = self.oracle.unrest(&self.server, &self.trees, self.head);
            // What has just changed is looked at a moment later.
            let soon = |due: Instant| due <= self.now + Duration::from_secs(5);
            let more = approved || self.operator.next_due().is_some_and(soon);
            let Some(unrest) = unrest.or_else(|| more.then(String::new)) else { break };
            let goes_on = self.now < limit && self.pass_time(Duration::from_secs(700));
            assert!(goes_on, "no rest: {unrest}");
        }
        // From now on nobody writes, and looks happen at the interval only.
        let (version, looked) = (self.server.version, self.operator.looked.clone());
        let until = self.now + Duration::from_secs(150);
        while self.now < until && self.pass_time(Duration::from_secs(700)) {
            self.drain();
        }
        assert_eq!(self.server.version, version, "a settled namespace is written to");
        for (name, count) in &self.operator.looked {
            let looks = count - looked.get(name).copied().unwrap_or_default();
            assert!(looks <= 4, "{name} has looked {looks} times in three minutes");
        }
    }

    /// Nobody interferes for a while, and what is broken in Git stays broken.
    fn half_calm(&mut self) {
        if self.server.refuses.is_some() || self.operator.watches.iter().any(|watch| watch.is_down)
        {
            return;
        }
        self.say(|| "half calm".into());
        let until = self.now + Duration::from_secs(400);
        self.drain();
        while self.now < until && self.pass_time(Duration::from_secs(400)) {
            self.drain();
        }
        self.oracle.heals(&self.server, &self.trees[self.head], &mut self.counts);
    }

    fn step(&mut self, number: usize) {
        // Dice of its own: the other steps stay the same when one is left out.
        self.dice = Dice::new(self.seed.wrapping_mul(1009).wrapping_add(number as u64));
        match self.dice.roll(20) {
            0..=5 => self.in_git(),
            6..=9 => self.by_hand(),
            10..=12 => self.user(),
            13 => self.fault(),
            _ => {}
        }
        self.faults = self.dice.one_in(3);
        let most = [3, 10, 40, 200][self.dice.roll(4)];
        self.run(most);
    }
}

fn sync(name: &str, path: &str, created: &str) -> serde_json::Value {
    json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"url": "https://git.example", "path": path, "interval": "1m", "retryInterval": "30s",
            "prune": {"maxDeletions": "60%"}},
    })
}

/// One scenario without these steps; how it failed, with a log of it if wanted.
fn scenario(seed: u64, without: &[usize], log: bool) -> Result<Counts, String> {
    let mut sim = Sim::new(seed, Instant::now(), log);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        for number in 0..STEPS {
            if !without.contains(&number) {
                sim.say(|| format!("step {number}"));
                sim.step(number);
            }
        }
        sim.settle();
    }));
    match ended {
        Ok(()) => Ok(sim.counts),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(|why| (*why).to_owned()));
            let log = sim.log.unwrap_or_default().join("\n  ");
            Err(format!("{}\n  {log}", why.unwrap_or_default()))
        }
    }
}

/// Leaves out as many steps as may be left out while it still fails.
fn shrink(seed: u64) -> (Vec<usize>, String) {
    let mut without = Vec::new();
    // A step that could not be left out at first may be later.
    for number in (0..STEPS).chain(0..STEPS) {
        let mut fewer = without.clone();
        fewer.push(number);
        if !without.contains(&number) && scenario(seed, &fewer, false).is_err() {
            without = fewer;
        }
    }
    let why = scenario(seed, &without, true).err().unwrap_or_default();
    (without, why)
}

/// Runs these scenarios on all processors; gives what happened, and the first that failed.
fn campaign(first: u64, count: u64) -> (Counts, Option<u64>) {
    let next = AtomicUsize::new(0);
    let failed = std::sync::Mutex::new(None::<u64>);
    let total = std::sync::Mutex::new(Counts::new());
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut mine = Counts::new();
                loop {
                    let at = next.fetch_add(1, Ordering::SeqCst) as u64;
                    if at >= count || failed.lock().expect("lock").is_some() {
                        break;
                    }
                    if at > 0 && at.is_multiple_of(10_000) {
                        // Where to go on after a break.
                        println!("so far: {at} scenarios from {first}");
                    }
                    if let Ok(counts) = scenario(first + at, &[], false) {
                        for (what, number) in counts {
                            *mine.entry(what).or_default() += number;
                        }
                    } else {
                        let mut failed = failed.lock().expect("lock");
                        *failed = Some(failed.map_or(first + at, |old| old.min(first + at)));
                    }
                }
                let mut total = total.lock().expect("lock");
                for (what, number) in mine {
                    *total.entry(what).or_default() += number;
                }
            });
        }
    });
    std::panic::set_hook(quiet);
    (total.into_inner().expect("lock"), failed.into_inner().expect("lock"))
}

/// A number from the environment.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[allow(clippy::disallowed_methods)] // said in the message of a failure
fn g12_g22_no_scenario_deletes_without_proof_and_all_come_to_rest_as_git_says() {
    let (first, count) = (given("SIMULATION_SEED"), given("SIMULATION_COUNT"));
    let all = if given("CONVOKE_FULL").is_some() { 200_000 } else { 2000 };
    let count = count.unwrap_or(if first.is_some() { 1 } else { all });
    let began = Instant::now();
    let (counts, failed) = campaign(first.unwrap_or(1), count);
    let spent = began.elapsed().as_secs_f64();
    if let Some(seed) = failed {
        println!("failed after {} scenarios", seed + 1 - first.unwrap_or(1));
        std::panic::set_hook(Box::new(|_| {}));
        let (without, why) = shrink(seed);
        let _ours = std::panic::take_hook();
        panic!(
            "scenario {seed} fails without the steps {without:?}; to repeat it: SIMULATION_SEED={seed} cargo test --lib simulation\n{why}"
        );
    }
    // What never happens proves nothing.
    if count >= 2000 {
        let never: Vec<_> = MUST.iter().filter(|what| !counts.contains_key(**what)).collect();
        assert!(never.is_empty(), "in {count} scenarios there was no {never:?}");
    }
    let mut table = String::new();
    for (what, number) in &counts {
        let _ = write!(table, "\n  {number:>9} {what}");
    }
    println!("{count} scenarios in {spent:.1} s:{table}");
}
