//! Drives the machines: does what they ask for, each thing in one place, and tells them what came of it.

mod perform;
mod poll;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::Client;
use tokio::task::AbortHandle;

use self::perform::Clients;
use super::apply::CONCURRENCY;
use super::budgets::Budgets;
use super::concurrency::Slots;
use super::local::LocalFolders;
use super::published::build_sources::BuildSources;
use super::source::Source;
use super::variables::Changed;
use crate::cluster::events::Events;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::cluster::writes::{Ticket, Writes};
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker::{Next, Reconciler};
use crate::runtime::write_priority::{SyncWrites, WritePriority};
use crate::sync::apply::impersonation::Rules;
use crate::sync::io::Ended;
use crate::sync::io::EngineError;
use crate::sync::io::Sink;
use crate::sync::io::effect::{Effect, Published, Replied};
use crate::sync::io::{Coroutine, Now, Step};
use crate::sync::machine::Machine;
use crate::sync::plan::dirty::Dirty;
use crate::sync::poll::Moved;
use crate::sync::published::wanted_agents::{WantedAgents, tell_agents};
use crate::sync::reconcile::engine::Engine;
use crate::sync::status::last_written::LastWritten;
use crate::sync::triggers::listen;

/// How long the first lists of our kinds may take before the statuses say that one is missing.
const LISTED_WITHIN: Duration = Duration::from_secs(15);

/// How the operator was started, as far as syncing is concerned.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Makes the connections to repositories.
    pub dialler: Dialler,
    /// With whose rights is written.
    pub rules: Rules,
    /// Folders on disk in place of repositories.
    pub local: LocalFolders,
    /// Folder for bare stores; everything in it can be made anew.
    pub data_dir: PathBuf,
    /// What one repository may cost.
    pub budgets: Budgets,
}

/// Slots for which one pass waits at once: whoever else writes in the namespace comes in between.
const QUEUED: usize = 8;

/// What reads the repository of a GitSync, and the poll that is under way.
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
    events: Events,
    touched: Arc<Dirty>,
    spoken: Arc<LastWritten>,
    slots: Slots,
    started: tokio::time::Instant,
    /// Syncs whose variables have changed.
    pub variables: Arc<Changed>,
    /// One for each namespace that has GitSyncs.
    machines: Mutex<HashMap<String, Arc<Mutex<Machine>>>>,
    readers: Mutex<HashMap<Key, Reader>>,
}

/// What time it is, on the clock of the executor.
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
    /// Drives the engine over these stores. Its requests take slots among the `writes`, and `client` waits for none. `queue`
    /// hears of every change that concerns a GitSync.
    ///
    /// It tells `builds` the source of every AgentBuild of each commit that it reads, and `wanted` its Agents. While it
    /// writes, the controllers of the namespace wait.
    #[allow(clippy::too_many_arguments)] // what one process has one of
    pub fn new(
        client: Client,
        writes: &Arc<Writes>,
        stores: Stores,
        settings: Settings,
        builds: Arc<BuildSources>,
        wanted: Arc<WantedAgents>,
        write_priority: Arc<WritePriority>,
        queue: &Arc<Queue>,
    ) -> Arc<Self> {
        let (touched, spoken) = (Arc::new(Dirty::default()), Arc::new(LastWritten::default()));
        let sink = queue.clone();
        let sink: Sink = Arc::new(move |key, after| sink.add_after(key, after));
        listen(&stores, &touched, &spoken, || now().instant, &sink);
        let events = Events::new(client.clone());
        Arc::new(Self {
            client,
            writes: writes.clone(),
            stores,
            settings,
            builds,
            wanted,
            write_priority,
            queue: queue.clone(),
            events,
            touched,
            spoken,
            slots: Slots::default(),
            started: tokio::time::Instant::now(),
            variables: Arc::default(),
            machines: Mutex::default(),
            readers: Mutex::default(),
        })
    }

    fn machine(&self, namespace: &str) -> Arc<Mutex<Machine>> {
        let fresh = || {
            let (touched, spoken) = (self.touched.clone(), self.spoken.clone());
            let (stores, rules) = (self.stores.clone(), self.settings.rules.clone());
            let engine = Engine::new(namespace, stores, rules, touched, spoken);
            Arc::new(Mutex::new(Machine::new(engine, seed())))
        };
        lock(&self.machines).entry(namespace.to_owned()).or_insert_with(fresh).clone()
    }

    /// Nothing is kept for a namespace without GitSyncs.
    fn tidy(&self, namespace: &str) {
        let mut machines = lock(&self.machines);
        let unused = |machine: &Arc<Mutex<Machine>>| {
            // Nobody else has it, and nobody can get it now.
            Arc::strong_count(machine) == 1 && lock(machine).is_empty()
        };
        if machines.get(namespace).is_some_and(unused) {
            machines.remove(namespace);
            self.touched.forget_namespace(namespace);
        }
    }

    fn publish(&self, key: &Key, published: &Published) {
        let Published { uid, before, loaded } = published;
        let live = || {
            let live = self.stores.agent_builds.names(&key.namespace).into_iter();
            live.map(|name| Key::new(&*key.namespace, name)).collect()
        };
        // Whose they are is seen when they are used: the mark on the object says it.
        let errors = loaded.catalog.has_errors();
        self.builds.tell(key, uid, loaded.url(), &loaded.builds, errors, live);
        let before = before.as_ref().map(|before| &before.desired);
        tell_agents(&self.wanted, key, before, &loaded.desired);
    }

    fn forget(&self, key: &Key) {
        self.wanted.forget(key);
        self.builds.forget(key);
        self.variables.take(key);
        let Some(reader) = lock(&self.readers).remove(key) else { return };
        if let Some(poll) = reader.poll {
            poll.abort();
        }
        let store = self.settings.data_dir.join(reader.uid);
        tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(&store) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %store.display(), %error, "cannot remove fetched objects");
            }
            _ => {}
        });
    }

    /// Does what is asked for at once; gives back what takes time.
    fn does<'a>(
        self: &'a Arc<Self>,
        key: &'a Key,
        clients: &mut Clients,
        writing: &mut Option<SyncWrites>,
        effect: Effect,
    ) -> Option<BoxFuture<'a, Option<(u64, Replied)>>> {
        match effect {
            Effect::Request(number, request) => {
                let client = clients.of(request.account.as_ref());
                let work = perform::perform(client, &key.namespace, request.call);
                return Some(work.map(move |reply| Some((number, reply))).boxed());
            }
            Effect::Event(event) => {
                let tell = async move {
                    let about = &event.about;
                    self.events.tell(about, event.good, &event.reason, &event.note).await;
                    None
                };
                return Some(tell.boxed());
            }
            Effect::Poll(request) => self.poll(key, *request),
            Effect::StopPolling => {
                let reader = lock(&self.readers).get_mut(key).and_then(|reader| reader.poll.take());
                if let Some(poll) = reader {
                    poll.abort();
                }
            }
            Effect::Wake(name, after) => {
                self.queue.add_after(Key::new(&*key.namespace, name), after);
            }
            Effect::Publish(published) => self.publish(key, &published),
            Effect::Writing(true) => {
                *writing = Some(self.write_priority.sync_writes(&key.namespace));
            }
            Effect::Writing(false) => *writing = None,
            Effect::Tick => {}
            Effect::Forget => self.forget(key),
        }
        None
    }

    /// One pass for a GitSync, from its begin to its end.
    async fn drive(self: &Arc<Self>, key: &Key) -> Ended {
        let machine = self.machine(&key.namespace);
        if self.variables.take(key) {
            lock(&machine).changed(&key.name, Moved::Variables);
        }
        if self.settings.local.take_changed(key) {
            lock(&machine).changed(&key.name, Moved::Folder);
        }
        let pass = lock(&machine).begin(&key.name, now());
        // Also when this is dropped, or panics.
        let _ended = Ends { machine: &machine, name: &key.name };
        let (mut clients, mut writing) = (Clients::new(&self.client), None);
        let does = |effect| self.does(key, &mut clients, &mut writing, effect);
        let ended = run(&pass, (&self.writes, &key.namespace), does).await;
        ended.unwrap_or(Err(EngineError::Stuck))
    }
}

impl Reconciler for Driver {
    type Error = EngineError;
    const KIND: &'static str = "GitSync";
    /// A minute of writes (`apply::LONGEST`), and what stands before and after them, each call as slow as it may be.
    const DEADLINE: Duration = Duration::from_secs(5 * 60);

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, EngineError> {
        let listed = self.stores.wait_ready();
        let _ = tokio::time::timeout_at(self.started + LISTED_WITHIN, listed).await;
        let ended = self.drive(&key).await;
        self.tidy(&key.namespace);
        ended
    }
}

/// Says in the end that nobody asks the pass any more.
struct Ends<'a> {
    machine: &'a Mutex<Machine>,
    name: &'a str,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        lock(self.machine).ended(self.name);
    }
}

/// A request on its way, with the slot that it takes.
type Flight<'a> = BoxFuture<'a, Option<(u64, Replied)>>;

/// Does what a pass asks for until it is over. A request is judged when there is a slot for it among the writes of all
/// namespaces. `None` when the pass waits for nothing, which would be a bug.
async fn run<'a, T>(
    pass: &Mutex<Coroutine<'_, T>>,
    (writes, namespace): (&Arc<Writes>, &str),
    mut does: impl FnMut(Effect) -> Option<Flight<'a>>,
) -> Option<T> {
    let mut flying: FuturesUnordered<Flight<'a>> = FuturesUnordered::new();
    let (mut slots, mut queued) = (Vec::<Ticket>::new(), FuturesUnordered::new());
    loop {
        let step = lock(pass).next(now(), !slots.is_empty());
        let until = match step {
            Step::Do(effect) => {
                // What needs none leaves it to the next one.
                let takes =
                    matches!(&effect, Effect::Request(_, request) if request.call.takes_slot());
                let slot = if takes { slots.pop() } else { None };
                flying.extend(does(effect).map(|flight| {
                    let landed = async move {
                        let landed = flight.await;
                        drop(slot);
                        landed
                    };
                    landed.boxed()
                }));
                continue;
            }
            Step::Over(over) => {
                // What is told beside it.
                while flying.next().await.is_some() {}
                return Some(over);
            }
            Step::Wait { until, wants } => {
                // Nobody wanted them after all.
                slots.clear();
                let most = wants.min(CONCURRENCY.saturating_sub(flying.len())).min(QUEUED);
                if most == 0 {
                    queued = FuturesUnordered::new();
                }
                queued.extend((queued.len()..most).map(|_| writes.slot(namespace)));
                until
            }
        };
        if flying.is_empty() && queued.is_empty() && until.is_none() {
            return None;
        }
        let far = tokio::time::Instant::now() + Duration::from_secs(3600);
        tokio::select! {
            // The first that can, in this order.
            biased;
            Some(landed) = flying.next(), if !flying.is_empty() => {
                if let Some((number, reply)) = landed {
                    lock(pass).reply(number, reply);
                }
            }
            Some(slot) = queued.next(), if !queued.is_empty() => slots.push(slot),
            () = tokio::time::sleep_until(until.map_or(far, Into::into)) => {}
        }
    }
}

/// Differs from operator to operator, so that not all of them wake at once.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}
