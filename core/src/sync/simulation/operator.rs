//! An operator: the machine of one namespace over the production stores, the requests that are on their way, the polls at the
//! remote, and what watches have shown it so far. Dropping it kills it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use serde::Deserialize;
use serde_json::Value;

use super::NAMESPACE;
use super::server::{Name, Server, Shown};
use crate::api::{Agent, GitSync, Kind, ModelAPI};
use crate::cluster::live::{Managed, Ours, Stores};
use crate::cluster::store::{Entry, Health, Key, Store};
use crate::cluster::view;
use crate::next::{Next, delay};
use crate::sync::apply::impersonation::Rules;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::Sink;
use crate::sync::io::effect::{Effect, Event, PollRequest, Replied, Request};
use crate::sync::io::poll::Found;
use crate::sync::io::{Limit, Now, Step};
use crate::sync::machine::Machine;
use crate::sync::plan::dirty::Dirty;
use crate::sync::poll::Moved;
use crate::sync::reconcile::engine::Engine;
use crate::sync::status::last_written::LastWritten;
use crate::sync::transcripts::words;
use crate::sync::triggers::listen;

/// Every GitSync is looked at again after this time, whatever the watch says.
const RESYNC: Duration = Duration::from_secs(600);

/// A request on its way to the server, or back.
pub struct Flying {
    pub sync: String,
    pub number: u64,
    /// By which reconcile of all.
    pub pass: u64,
    pub asked: Rc<Request>,
    /// What the server has answered, once it has.
    pub reply: Option<Replied>,
}

/// A request that nobody waits for any more.
pub struct Orphaned {
    pub sync: String,
    pub asked: Rc<Request>,
}

/// A poll on its way.
pub struct Looking {
    pub look: PollRequest,
    /// The commit that the remote has shown, once it has.
    pub seen: Option<usize>,
    /// Whether it never ends by itself.
    pub hangs: bool,
}

/// What a watch still has to show, and whether it is down.
#[derive(Default)]
pub struct Watch {
    /// How much of the server's log it has shown.
    pub cursor: usize,
    pub is_down: bool,
    /// Whether it was down for so long that its kind is called silent.
    pub is_silent: bool,
}

/// The kinds whose watches fail apart.
pub const WATCHES: [&str; 3] = ["GitSync", "ModelAPI", "Agent"];

/// One operator, with its requests and polls that are under way.
pub struct Operator {
    pub machine: Machine,
    pub stores: Stores,
    /// When each GitSync is looked at again.
    due: Arc<Mutex<BTreeMap<String, Instant>>>,
    clock: Arc<Mutex<Instant>>,
    /// How long it takes to compute a plan.
    pub computing: Duration,
    /// The reconciles that are under way, and which of all reconciles each is.
    pub active: BTreeMap<String, u64>,
    /// How many have begun.
    pub passes: u64,
    pub failures: BTreeMap<String, u32>,
    pub flying: Vec<Flying>,
    pub polls: BTreeMap<String, Looking>,
    /// What the source of each GitSync keeps: its uid, and the commit that it has read last.
    pub read: BTreeMap<String, (String, Option<Arc<Loaded>>)>,
    pub watches: [Watch; 3],
    /// How many polls have begun.
    pub looked: BTreeMap<String, usize>,
    /// How many polls that hang were given up.
    pub given_up: usize,
    /// Requests in flight at once, for each GitSync.
    pub slots: usize,
    /// The events that it has sent.
    pub events: Vec<Event>,
    /// How often something in the stores has changed.
    changes: Arc<AtomicU64>,
    /// What reconciles have wanted besides requests, in words, if somebody listens.
    pub heard: Option<Vec<String>>,
}

pub fn watch_of(name: &Name) -> usize {
    match name {
        Name::Sync(_) => 0,
        Name::Object(id) if id.kind == Kind::Agent => 2,
        Name::Object(_) => 1,
    }
}

fn entry<K: Ours>(object: &Value) -> (Key, Entry<Managed<K>>) {
    let parsed = K::deserialize(object).map_err(|error| InvalidObject {
        error: error.to_string(),
        metadata: ObjectMeta::deserialize(&object["metadata"]).expect("its metadata parses"),
    });
    view::entry::<Managed<K>>(DeserializeGuard(parsed))
}

fn show<K: Ours>(store: &Store<Managed<K>>, shown: &Shown) {
    let name = match &shown.name {
        Name::Sync(name) => name,
        Name::Object(id) => &id.name,
    };
    match &shown.object {
        Some(object) => {
            let (key, entry) = entry::<K>(object);
            store.applied(key, entry);
        }
        None => store.removed(&Key::new(NAMESPACE, name), &shown.uid),
    }
}

fn list<K: Ours>(store: &Store<Managed<K>>, objects: &[Arc<Value>]) {
    loop {
        store.list_begins();
        for object in objects {
            let (key, entry) = entry::<K>(object);
            store.listed(key, entry);
        }
        if store.list_done() {
            return;
        }
    }
}

impl Operator {
    /// An operator that starts at this time; its first lists show what the server has.
    pub fn new(server: &Server, now: Instant, seed: u64, slots: usize) -> Self {
        let stores = Stores::new();
        let (touched, spoken) = (Arc::new(Dirty::default()), Arc::new(LastWritten::default()));
        let due = Arc::new(Mutex::new(BTreeMap::<String, Instant>::new()));
        let clock = Arc::new(Mutex::new(now));
        let (adds, time) = (due.clone(), clock.clone());
        let sink: Sink = Arc::new(move |key: Key, after: Duration| {
            if key.namespace == NAMESPACE {
                let at = *time.lock() + after;
                let mut due = adds.lock();
                let known = due.entry(key.name).or_insert(at);
                *known = at.min(*known);
            }
        });
        let changes = Arc::new(AtomicU64::new(0));
        macro_rules! counted {
            ($($store:ident)*) => {$(
                let count = changes.clone();
                stores.$store.on_change(move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
            )*};
        }
        counted!(git_syncs model_apis agents);
        let time = clock.clone();
        listen(&stores, &touched, &spoken, move || *time.lock(), &sink);
        let rules = Rules {
            single_tenant: true,
            default_service_account: None,
            operator: crate::cluster::account::OperatorAccount::new("convoke-system"),
        };
        let engine = Engine::new(NAMESPACE, stores.clone(), rules, touched, spoken);
        let mut operator = Self {
            machine: Machine::new(engine, seed),
            stores,
            due,
            clock,
            computing: Duration::ZERO,
            active: BTreeMap::new(),
            passes: 0,
            failures: BTreeMap::new(),
            flying: Vec::new(),
            polls: BTreeMap::new(),
            read: BTreeMap::new(),
            watches: Default::default(),
            looked: BTreeMap::new(),
            given_up: 0,
            slots,
            events: Vec::new(),
            changes,
            heard: None,
        };
        for watch in 0..WATCHES.len() {
            operator.relist(server, watch);
        }
        list(&operator.stores.mcp_servers, &[]);
        list(&operator.stores.agent_builds, &[]);
        operator
    }

    pub fn at(&self, now: Instant) {
        *self.clock.lock() = now;
    }

    fn now(&self) -> Now {
        let instant = *self.clock.lock();
        Now { instant, time: Timestamp::UNIX_EPOCH }
    }

    /// A watch has lost its place: everything is listed.
    pub fn relist(&mut self, server: &Server, watch: usize) {
        let of = |(name, object): (&Name, &Arc<Value>)| {
            (watch_of(name) == watch).then(|| object.clone())
        };
        let objects: Vec<_> = server.all().filter_map(of).collect();
        match watch {
            0 => list(&self.stores.git_syncs, &objects),
            1 => list(&self.stores.model_apis, &objects),
            _ => list(&self.stores.agents, &objects),
        }
        self.watches[watch].cursor = server.log.len();
    }

    /// A watch shows the next thing that it has not shown yet; whether there was one.
    pub fn show(&mut self, server: &Server, watch: usize) -> bool {
        let from = self.watches[watch].cursor;
        let next = server.log[from..].iter().position(|shown| watch_of(&shown.name) == watch);
        let Some(next) = next.filter(|_| !self.watches[watch].is_down) else { return false };
        self.watches[watch].cursor = from + next + 1;
        let shown = &server.log[from + next];
        match watch {
            0 => show(&self.stores.git_syncs, shown),
            1 => show::<ModelAPI>(&self.stores.model_apis, shown),
            _ => show::<Agent>(&self.stores.agents, shown),
        }
        true
    }

    /// How often something in the stores has changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn health(&self, watch: usize) -> &Health {
        match watch {
            0 => &self.stores.git_syncs.health,
            1 => &self.stores.model_apis.health,
            _ => &self.stores.agents.health,
        }
    }

    /// Whether a watch has shown all that there is.
    pub fn has_shown(&self, server: &Server, watch: usize) -> bool {
        let Watch { cursor, is_down, .. } = self.watches[watch];
        !is_down && server.log[cursor..].iter().all(|shown| watch_of(&shown.name) != watch)
    }

    /// A watch fails, or works again.
    pub fn fail(&mut self, server: &Server, watch: usize, down: bool, now: Instant) {
        (self.watches[watch].is_down, self.watches[watch].is_silent) = (down, false);
        if down {
            self.health(watch).failed("cut off", now, self.now().time);
        } else {
            self.health(watch).works();
            self.relist(server, watch);
        }
    }

    /// Watches that are down are tried again, in vain; whether a kind has fallen silent.
    pub fn still_fails(&mut self, now: Instant) -> bool {
        let mut falls = false;
        for watch in 0..WATCHES.len() {
            if self.watches[watch].is_down {
                self.health(watch).failed("cut off", now, self.now().time);
                let silent = self.health(watch).silence().is_some();
                falls |= silent && !self.watches[watch].is_silent;
                self.watches[watch].is_silent = silent;
            }
        }
        falls
    }

    /// Begins the reconciles that are due; gives their names.
    pub fn begin(&mut self) -> Vec<String> {
        let now = self.now();
        let mut ready = Vec::new();
        self.due.lock().retain(|name, at| {
            let begins = *at <= now.instant && !self.active.contains_key(name);
            if begins {
                ready.push(name.clone());
            }
            !begins
        });
        for name in &ready {
            self.passes += 1;
            let _pass = self.machine.begin(name, now);
            self.active.insert(name.clone(), self.passes);
        }
        ready
    }

    /// A reconcile is dropped: nobody waits any more for what it has asked for. Gives what has not arrived yet.
    pub fn drop_pass(&mut self, name: &str) -> Vec<Orphaned> {
        self.machine.ended(name);
        self.active.remove(name);
        self.fails(name);
        let (mine, others) = self.flying.drain(..).partition(|flying| flying.sync == name);
        self.flying = others;
        let mine: Vec<Flying> = mine;
        let open = mine.into_iter().filter(|flying| flying.reply.is_none());
        open.map(|Flying { sync, asked, .. }| Orphaned { sync, asked }).collect()
    }

    /// A reconcile has failed: it is tried again.
    fn fails(&mut self, name: &str) {
        let failures = self.failures.entry(name.to_owned()).or_default();
        let after = delay(*failures);
        *failures += 1;
        self.wake(name, after);
    }

    /// Something besides objects has changed for a GitSync.
    pub fn moved(&mut self, name: &str, what: Moved) {
        self.machine.changed(name, what);
        self.wake(name, Duration::ZERO);
    }

    /// When something is due that is not under way.
    pub fn next_due(&self) -> Option<Instant> {
        let due = self.due.lock();
        due.iter().filter(|(name, _)| !self.active.contains_key(*name)).map(|(_, at)| *at).min()
    }

    pub fn wake(&self, name: &str, after: Duration) {
        let at = self.now().instant + after;
        let mut due = self.due.lock();
        let known = due.entry(name.to_owned()).or_insert(at);
        *known = at.min(*known);
    }

    /// Asks a reconcile what is to be done, and takes note of it. Gives the request, if it is one; whether there is more.
    pub fn pull(&mut self, name: &str) -> (Option<&Flying>, bool) {
        let mine = self.flying.iter().filter(|flying| flying.sync == name).count();
        let limit = if mine < self.slots { Limit::Free } else { Limit::Reached };
        let step = self.machine.next(name, self.now(), limit);
        if let Some(heard) = &mut self.heard {
            heard.extend(words::of_step(name, &step));
        }
        match step {
            Step::Do(Effect::Request(number, request)) => {
                let (sync, pass) = (name.to_owned(), self.active.get(name).copied());
                let pass = pass.unwrap_or_default();
                let asked = Rc::new(request);
                self.flying.push(Flying { sync, number, pass, asked, reply: None });
                return (self.flying.last(), true);
            }
            Step::Do(Effect::Poll(look)) => {
                *self.looked.entry(name.to_owned()).or_default() += 1;
                self.polls
                    .insert(name.to_owned(), Looking { look: *look, seen: None, hangs: false });
            }
            Step::Do(Effect::StopPolling) => {
                let looking = self.polls.remove(name);
                self.given_up += usize::from(looking.is_some_and(|looking| looking.hangs));
            }
            Step::Do(Effect::Wake(other, after)) => self.wake(&other, after),
            Step::Do(Effect::Forget) => {
                self.polls.remove(name);
                self.read.remove(name);
            }
            Step::Do(Effect::Event(event)) => self.events.push(*event),
            Step::Do(Effect::Tick) => *self.clock.lock() += self.computing,
            Step::Do(Effect::Publish(_) | Effect::Writing(_)) => {}
            Step::Wait { .. } => return (None, false),
            Step::Over(ended) => {
                self.active.remove(name);
                match ended {
                    Ok(Next::Forget) => drop(self.failures.remove(name)),
                    Ok(next) => {
                        self.failures.remove(name);
                        let after = if let Next::After(after) = next { after } else { RESYNC };
                        self.wake(name, after);
                    }
                    Err(_) => self.fails(name),
                }
                return (None, false);
            }
        }
        (None, true)
    }

    /// The GitSync as the operator knows it.
    pub fn sync(&self, name: &str) -> Option<Arc<GitSync>> {
        self.entry(name)?.value.object()
    }

    /// The same, also of one that does not parse.
    pub fn entry(&self, name: &str) -> Option<Arc<Entry<Managed<GitSync>>>> {
        self.stores.git_syncs.get(&Key::new(NAMESPACE, name))
    }

    /// Whether the poll of a GitSync is still waited for: that it was given up may not be told yet.
    pub fn awaits(&self, name: &str) -> bool {
        let at = self.polls.get(name).map(|looking| looking.look.question.at);
        at.is_some_and(|at| self.machine.engine().polls.awaits(name, at))
    }

    /// The poll of a GitSync has ended.
    pub fn polled(&mut self, name: &str, found: Found) {
        let Some(Looking { look, .. }) = self.polls.remove(name) else { return };
        self.machine.polled(name, look.question.at, found);
        self.wake(name, Duration::ZERO);
    }
}
