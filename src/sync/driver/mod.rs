//! Drives the machines of the sync engine: does what they ask for, and gives them the answers.

mod perform;
mod poll;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::Client;
use tokio::task::AbortHandle;

use self::perform::Clients;
use super::apply::MAX_WRITES_IN_FLIGHT;
use super::budgets::Budgets;
use super::concurrency::ConcurrencyLimits;
use super::local::LocalFolders;
use super::published::build_sources::{Absence, BuildSources, CommitBuilds};
use super::source::Source;
use super::variables::Changed;
use super::webhooks::Webhooks;
use crate::cluster::events::Events;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::cluster::writes::{Ticket, Writes};
use crate::git::Repositories;
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker::{Next, Reconciler};
use crate::runtime::write_priority::{SyncWrites, WritePriority};
use crate::sync::apply::impersonation::Rules;
use crate::sync::io::Ended;
use crate::sync::io::EngineError;
use crate::sync::io::Sink;
use crate::sync::io::effect::{Effect, Published, Replied};
use crate::sync::io::{Coroutine, Limit, Now, Step};
use crate::sync::machine::Machine;
use crate::sync::plan::dirty::Dirty;
use crate::sync::poll::Moved;
use crate::sync::published::wanted_agents::{WantedAgents, publish_agents};
use crate::sync::reconcile::engine::Engine;
use crate::sync::status::last_written::LastWritten;
use crate::sync::triggers::listen;

/// How long a reconcile waits for the first lists of our kinds. After that, statuses report the kinds whose list is missing.
const MAX_WAIT_FOR_FIRST_LISTS: Duration = Duration::from_secs(15);
/// Places for writes that one reconcile waits for at the same time. Few, so that other writers of the namespace come in between.
const MAX_WAITING_WRITES: usize = 8;
/// How long a reconcile sleeps when it has no timer: it wakes earlier when an answer arrives.
const SLEEP_WITHOUT_TIMER: Duration = Duration::from_secs(3600);

/// The operator's options that concern syncing.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Makes the connections to repositories.
    pub dialler: Dialler,
    /// Which ServiceAccount the writes of a GitSync use.
    pub rules: Rules,
    /// Folders on disk that take the place of repositories.
    pub local: LocalFolders,
    /// Where fetched objects are kept. Everything there can be fetched again.
    pub repositories: Repositories,
    /// How large one repository may be.
    pub budgets: Budgets,
}

/// What a [`Driver`] is made of. Apart from the settings, other parts of the operator use the same values.
pub struct Parts {
    /// A client whose requests wait for no limit: the driver itself waits for `writes`.
    pub client: Client,
    /// The limit of concurrent writes.
    pub writes: Arc<Writes>,
    /// The live objects of our kinds.
    pub stores: Stores,
    /// The operator's options.
    pub settings: Settings,
    /// Gets the sources of the AgentBuilds of each commit that is read.
    pub builds: Arc<BuildSources>,
    /// Gets the agents of each commit that is read.
    pub wanted: Arc<WantedAgents>,
    /// Makes the controllers of a namespace wait while a sync writes there.
    pub write_priority: Arc<WritePriority>,
    /// Gets the key of each GitSync that has something to do.
    pub queue: Arc<Queue>,
    /// Tells of pushes.
    pub webhooks: Arc<Webhooks>,
}

/// The reader of a GitSync's repository, and the poll that runs.
struct Reader {
    uid: String,
    source: Arc<tokio::sync::Mutex<Source>>,
    poll: Option<AbortHandle>,
}

/// The reconciler of GitSyncs.
pub struct Driver {
    client: Client,
    writes: Arc<Writes>,
    stores: Stores,
    settings: Settings,
    builds: Arc<BuildSources>,
    wanted: Arc<WantedAgents>,
    write_priority: Arc<WritePriority>,
    queue: Arc<Queue>,
    webhooks: Arc<Webhooks>,
    events: Events,
    dirty: Arc<Dirty>,
    last_written: Arc<LastWritten>,
    concurrency: ConcurrencyLimits,
    started: tokio::time::Instant,
    /// GitSyncs whose variables have changed.
    pub variables: Arc<Changed>,
    /// GitSyncs whose ref has moved, as others have seen.
    moved_refs: Arc<Mutex<HashSet<Key>>>,
    /// One machine for each namespace that has GitSyncs.
    machines: Mutex<HashMap<String, Arc<Mutex<Machine>>>>,
    readers: Mutex<HashMap<Key, Reader>>,
}

/// The time, on the clock of the executor.
fn now() -> Now {
    let time = Timestamp::now();
    // Kubernetes keeps whole seconds.
    let time = Timestamp::from_second(time.as_second()).unwrap_or(time);
    Now { instant: tokio::time::Instant::now().into_std(), time }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Driver {
    /// Makes a driver, and connects it to the stores: every change that concerns a GitSync puts its key on the queue.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { client, writes, stores, settings, .. } = parts;
        let Parts { builds, wanted, write_priority, queue, webhooks, .. } = parts;
        let (dirty, last_written) = (Arc::new(Dirty::default()), Arc::new(LastWritten::default()));
        let sink = queue.clone();
        let sink: Sink = Arc::new(move |key, after| sink.add_after(key, after));
        listen(&stores, &dirty, &last_written, || now().instant, &sink);
        let events = Events::new(client.clone());
        Arc::new(Self {
            client,
            writes,
            stores,
            settings,
            builds,
            wanted,
            write_priority,
            queue,
            webhooks,
            events,
            dirty,
            last_written,
            concurrency: ConcurrencyLimits::default(),
            started: tokio::time::Instant::now(),
            variables: Arc::default(),
            moved_refs: Arc::default(),
            machines: Mutex::default(),
            readers: Mutex::default(),
        })
    }

    /// How many remotes are polled and read at once. Whoever polls besides GitSyncs shares it.
    #[must_use]
    pub fn concurrency(&self) -> ConcurrencyLimits {
        self.concurrency.clone()
    }

    fn machine(&self, namespace: &str) -> Arc<Mutex<Machine>> {
        let fresh = || {
            let (dirty, last_written) = (self.dirty.clone(), self.last_written.clone());
            let (stores, rules) = (self.stores.clone(), self.settings.rules.clone());
            let engine = Engine::new(namespace, stores, rules, dirty, last_written);
            Arc::new(Mutex::new(Machine::new(engine, seed())))
        };
        lock(&self.machines).entry(namespace.to_owned()).or_insert_with(fresh).clone()
    }

    /// Drops the machine of a namespace that has no GitSyncs any more.
    fn tidy(&self, namespace: &str) {
        let mut machines = lock(&self.machines);
        let is_unused = |machine: &Arc<Mutex<Machine>>| {
            // While `machines` is locked, nobody can get another reference.
            Arc::strong_count(machine) == 1 && lock(machine).is_empty()
        };
        if machines.get(namespace).is_some_and(is_unused) {
            machines.remove(namespace);
            self.dirty.forget_namespace(namespace);
        }
    }

    fn publish(&self, key: &Key, published: &Published) {
        let Published { uid, before, loaded } = published;
        // The builds of all owners: a controller that asks later checks the owner mark of its build.
        let live = || {
            let live = self.stores.agent_builds.names(&key.namespace).into_iter();
            live.map(|name| Key::new(&*key.namespace, name)).collect()
        };
        let absence = if loaded.catalog.has_errors() { Absence::Unproven } else { Absence::Proven };
        let commit = CommitBuilds { uid, url: loaded.url(), builds: &loaded.builds, absence };
        self.builds.publish(key, commit, live);
        let before = before.as_ref().map(|before| &before.desired);
        publish_agents(&self.wanted, key, before, &loaded.desired);
    }

    /// Drops everything that is kept for a GitSync that is gone, and its fetched objects, unless another one uses them.
    fn forget(&self, key: &Key) {
        self.wanted.forget(key);
        self.builds.forget(key);
        self.variables.take(key);
        lock(&self.moved_refs).remove(key);
        let Some(reader) = lock(&self.readers).remove(key) else { return };
        if let Some(poll) = reader.poll {
            poll.abort();
        }
        let repositories = self.settings.repositories.clone();
        tokio::spawn(async move {
            // The poll has just been aborted.
            let Some(id) = reader.source.lock().await.close() else { return };
            let remove = move || {
                if let Err(error) = repositories.remove_unused(&id) {
                    tracing::warn!(%error, "cannot remove fetched objects");
                }
            };
            let _ = tokio::task::spawn_blocking(remove).await;
        });
    }

    fn stop_polling(&self, key: &Key) {
        let poll = lock(&self.readers).get_mut(key).and_then(|reader| reader.poll.take());
        if let Some(poll) = poll {
            poll.abort();
        }
    }

    /// Does what a machine asks for. Work that takes time is returned as a future.
    fn perform<'a>(
        self: &'a Arc<Self>,
        key: &'a Key,
        session: &mut Session,
        effect: Effect,
    ) -> Option<InFlight<'a>> {
        match effect {
            Effect::Request(number, request) => {
                let client = session.clients.of(request.account.as_ref());
                let work = perform::perform(client, &key.namespace, request.call);
                return Some(work.map(move |reply| Some((number, reply))).boxed());
            }
            Effect::Event(event) => {
                let publish = async move {
                    let about = &event.about;
                    self.events.publish(about, event.type_, &event.reason, &event.note).await;
                    None
                };
                return Some(publish.boxed());
            }
            Effect::Poll(request) => self.poll(key, *request),
            Effect::StopPolling => self.stop_polling(key),
            Effect::Wake(name, after) => {
                self.queue.add_after(Key::new(&*key.namespace, name), after);
            }
            Effect::Publish(published) => self.publish(key, &published),
            Effect::Writing(true) => {
                session.writing = Some(self.write_priority.sync_writes(&key.namespace));
            }
            Effect::Writing(false) => session.writing = None,
            Effect::Tick => {}
            Effect::Forget => self.forget(key),
        }
        None
    }

    /// One reconcile of a GitSync, from its begin to its end.
    async fn drive(self: &Arc<Self>, key: &Key) -> Ended {
        let machine = self.machine(&key.namespace);
        if self.variables.take(key) {
            lock(&machine).changed(&key.name, Moved::Variables);
        }
        if self.settings.local.take_changed(key) {
            lock(&machine).changed(&key.name, Moved::Folder);
        }
        if self.webhooks.take(key) {
            lock(&machine).changed(&key.name, Moved::Webhook);
        }
        if lock(&self.moved_refs).remove(key) {
            lock(&machine).changed(&key.name, Moved::SharedRef);
        }
        let reconcile = lock(&machine).begin(&key.name, now());
        let _end = EndOnDrop { machine: &machine, name: &key.name };
        let mut session = Session { clients: Clients::new(&self.client), writing: None };
        let perform = |effect| self.perform(key, &mut session, effect);
        let ended = run(&reconcile, (&self.writes, &key.namespace), perform).await;
        ended.unwrap_or(Err(EngineError::Stuck))
    }
}

/// What one reconcile keeps while it runs.
struct Session {
    clients: Clients,
    /// Held while the reconcile writes: the controllers of the namespace wait.
    #[allow(dead_code)] // dropping it is its use
    writing: Option<SyncWrites>,
}

impl Reconciler for Driver {
    type Error = EngineError;
    const KIND: &'static str = "GitSync";
    /// Long enough for a minute of writes (`apply::MAX_APPLY_TIME`) and for the requests before and after it, each as slow as its own
    /// deadline allows.
    const DEADLINE: Duration = Duration::from_secs(5 * 60);

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, EngineError> {
        let listed = self.stores.wait_ready();
        let _ = tokio::time::timeout_at(self.started + MAX_WAIT_FOR_FIRST_LISTS, listed).await;
        let ended = self.drive(&key).await;
        self.tidy(&key.namespace);
        ended
    }
}

/// Reports the end of a reconcile to its machine, also when the reconcile is dropped or panics.
struct EndOnDrop<'a> {
    machine: &'a Mutex<Machine>,
    name: &'a str,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        lock(self.machine).ended(self.name);
    }
}

/// A request on its way. Gives its number and its reply; an event gives `None`.
type InFlight<'a> = BoxFuture<'a, Option<(u64, Replied)>>;

/// Runs a reconcile until its end: does what it asks for, and gives it the replies. A write is asked for only when there is a
/// place for it among the writes of all namespaces, so the reconcile decides on it with what is known then. `None` when the
/// reconcile waits for nothing, which would be a bug.
async fn run<'a, T>(
    reconcile: &Mutex<Coroutine<'_, T>>,
    (writes, namespace): (&Arc<Writes>, &str),
    mut perform: impl FnMut(Effect) -> Option<InFlight<'a>>,
) -> Option<T> {
    let mut in_flight: FuturesUnordered<InFlight<'a>> = FuturesUnordered::new();
    let (mut tickets, mut waiting) = (Vec::<Ticket>::new(), FuturesUnordered::new());
    loop {
        let limit = if tickets.is_empty() { Limit::Reached } else { Limit::Free };
        let step = lock(reconcile).next(now(), limit);
        let until = match step {
            Step::Do(effect) => {
                // A request that needs no ticket leaves it to the next one.
                let needs_ticket = matches!(&effect, Effect::Request(_, request) if request.call.counts_toward_limit());
                let ticket = if needs_ticket { tickets.pop() } else { None };
                in_flight.extend(perform(effect).map(|work| hold(ticket, work)));
                continue;
            }
            Step::Over(over) => {
                // Events may still be on their way.
                while in_flight.next().await.is_some() {}
                return Some(over);
            }
            Step::Wait { until, requests } => {
                // Tickets that were not used are given back.
                tickets.clear();
                let free = MAX_WRITES_IN_FLIGHT.saturating_sub(in_flight.len());
                let wanted = requests.min(free).min(MAX_WAITING_WRITES);
                if wanted == 0 {
                    waiting = FuturesUnordered::new();
                }
                waiting.extend((waiting.len()..wanted).map(|_| writes.slot(namespace)));
                until
            }
        };
        if in_flight.is_empty() && waiting.is_empty() && until.is_none() {
            return None;
        }
        let far = tokio::time::Instant::now() + SLEEP_WITHOUT_TIMER;
        tokio::select! {
            // In this order when several are ready.
            biased;
            Some(landed) = in_flight.next(), if !in_flight.is_empty() => {
                if let Some((number, reply)) = landed {
                    lock(reconcile).reply(number, reply);
                }
            }
            Some(ticket) = waiting.next(), if !waiting.is_empty() => tickets.push(ticket),
            () = tokio::time::sleep_until(until.map_or(far, Into::into)) => {}
        }
    }
}

/// Keeps the ticket of a request until its reply is there.
fn hold(ticket: Option<Ticket>, work: InFlight<'_>) -> InFlight<'_> {
    let held = async move {
        let reply = work.await;
        drop(ticket);
        reply
    };
    held.boxed()
}

/// Differs from operator to operator, so that not all of them wake at the same time.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
