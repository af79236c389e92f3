//! What really answers: cards of agents, tools of MCP servers, and whether ModelAPIs are there.
//!
//! ```text
//! reconcile ── follow ──► what to ask, of whom ──► queue ──► ask a pod or an address ──► found ──► queue of the controller
//! pods ── ready, lost ─────────────────────────────┘                                                    │
//!                                                                    step "status" tells what was found ◄┘
//! ```
//! An object has one entry here, and one question: its kind says which. It is asked when a new pod is ready or its spec has changed,
//! hourly, and sooner after a failure. What was found is kept only until the status tells it. A status that tells it already is
//! not written.
//!
//! | module | what |
//! |---|---|
//! | `subject` | (pure) what is known of one object |
//! | `schedule` | (pure) when an object is asked |
//! | `read` | which question leads to which answer |
//! | `card`, `tools` | (pure) what answers say, and how statuses tell it |
//! | `reachable` | the same for ModelAPIs |
//! | `mcp` | the protocol of tool servers, with `mcp_message` and `event_stream` (pure) |
//! | `ask` | sends requests: pace, deadlines, budgets |
//! | `failure` | (pure) why nothing usable was read |

mod ask;
pub mod card;
mod event_stream;
pub mod failure;
mod mcp;
mod mcp_message;
pub mod reachable;
mod read;
mod schedule;
#[cfg(test)]
#[path = "tests/server.rs"]
mod server;
mod subject;
pub mod tools;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::Instant;

use self::ask::{Asker, Destination};
use self::failure::{Failure, NO_READY_POD};
use self::mcp_message::Era;
pub use self::read::{Found, Topic};
use self::schedule::{Progress, Step};
use self::subject::{Asked, Subject, Whom};
pub use self::subject::{Question, Told};
use super::pods::{PodNews, Pods};
use crate::api::Kind;
use crate::api::common::Condition;
use crate::cluster::children::ChildStores;
use crate::cluster::client::CallError;
use crate::cluster::live::{Managed, Ours, Stores};
use crate::cluster::store::{Key, Store};
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker::{self, Next, Reconciler, jitter};

/// Objects that are asked at once.
const MAX_AT_ONCE: usize = 8;
/// The longest time for all requests to one object.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long changes of pods are collected: a rollout changes several.
const POD_DELAY: Duration = Duration::from_millis(500);
/// How soon it is tried again to prove that a pod is an object's.
const PROOF_RETRY: Duration = Duration::from_secs(60);

/// What really answers.
pub struct Discovery {
    client: Client,
    stores: Stores,
    children: ChildStores,
    pods: Arc<Pods>,
    asker: Asker,
    /// The objects, by [`id`].
    subjects: Mutex<HashMap<Key, Subject>>,
    queue: Arc<Queue>,
    /// The queues of the controllers.
    controllers: OnceLock<BTreeMap<Kind, Arc<Queue>>>,
    /// Whether it was said that ReplicaSets may not be read.
    has_warned: AtomicBool,
    started: Instant,
}

/// The key of an object in this module: that of the controllers' queues does not say the kind.
fn id(kind: Kind, key: &Key) -> Key {
    Key::new(&key.namespace, format!("{kind}/{}", key.name))
}

impl Discovery {
    /// Asks nobody until [`Discovery::run`] runs.
    #[must_use]
    pub fn new(
        client: Client,
        stores: Stores,
        children: ChildStores,
        pods: Arc<Pods>,
        dialler: Dialler,
    ) -> Arc<Self> {
        let discovery = Arc::new(Self {
            client,
            stores,
            children,
            pods: pods.clone(),
            asker: Asker::new(dialler, ask::PACE),
            subjects: Mutex::default(),
            queue: Queue::new(),
            controllers: OnceLock::new(),
            has_warned: AtomicBool::new(false),
            started: Instant::now(),
        });
        let weak = Arc::downgrade(&discovery);
        pods.on_ready(move |kind, key, news| {
            if let Some(discovery) = weak.upgrade() {
                discovery.pod_changed(kind, key, news);
            }
        });
        discovery
    }

    /// Sets the queues of the objects of which something is found. Only the first call counts.
    pub fn notify(&self, controllers: BTreeMap<Kind, Arc<Queue>>) {
        let _ = self.controllers.set(controllers);
    }

    /// Asks, for ever.
    pub async fn run(self: Arc<Self>) {
        let queue = self.queue.clone();
        worker::run(self, queue, MAX_AT_ONCE).await;
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// An object was reconciled: what it is asked from now on. `None`: nothing.
    pub fn follow(&self, kind: Kind, key: &Key, uid: &str, question: Option<Question>) {
        let id = id(kind, key);
        let mut subjects = self.subjects.lock();
        let Some(question) = question else {
            subjects.remove(&id);
            return;
        };
        let is_told = self.tells(kind, key, question.generation);
        let before = subjects.remove(&id).filter(|before| before.uid == uid);
        let (subject, wait, has_news) = match before {
            Some(mut same) if same.question == question => {
                same.pending.take_if(|told| !self.is_news(kind, key, told));
                if same.pending.is_none() && !is_told {
                    same.progress.untold();
                }
                // The pods may be others by now.
                (same, POD_DELAY, false)
            }
            before => {
                // Right after a start, what is told already has time.
                let has_time = is_told && before.is_none();
                let wait = schedule::first_turn(self.objects(), share(&id));
                let wait = if has_time { wait } else { Duration::ZERO };
                let mut subject = Subject {
                    kind,
                    key: key.clone(),
                    uid: uid.to_owned(),
                    question,
                    progress: Progress::starting(self.now() + wait),
                    era: before.as_ref().map_or(Era::Stateless, |before| before.era),
                    pod: before.and_then(|before| before.pod),
                    pending: None,
                };
                subject.pending = self.unusable(&subject).map(Arc::new);
                let has_news = subject.pending.is_some();
                (subject, wait, has_news)
            }
        };
        subjects.insert(id.clone(), subject);
        drop(subjects);
        self.queue.add_after(id, wait);
        if has_news {
            self.wake(kind, key.clone());
        }
    }

    /// What is told of an object whose URL is none: nobody can be asked. `None` if it is one, or if that is told already.
    fn unusable(&self, subject: &Subject) -> Option<Told> {
        let Subject { kind, key, question, .. } = subject;
        let why = Url::parse(&question.url).err()?;
        let failure = Failure::invalid(format!("its URL is not valid: {why}"));
        let told = Told {
            found: Found::failed(&question.topic, failure),
            revision: question.generation.to_string(),
            generation: question.generation,
        };
        self.is_news(*kind, key, &told).then_some(told)
    }

    /// Puts an object on the queue of its controller.
    fn wake(&self, kind: Kind, key: Key) {
        if let Some(queue) = self.controllers.get().and_then(|all| all.get(&kind)) {
            queue.add(key);
        }
    }

    /// The object is gone: nothing is kept of it.
    pub fn forget(&self, kind: Kind, key: &Key) {
        self.subjects.lock().remove(&id(kind, key));
    }

    /// What was found of this generation of an object, if its status may not tell it yet.
    #[must_use]
    pub fn told(&self, kind: Kind, key: &Key, generation: Option<i64>) -> Option<Arc<Told>> {
        let subjects = self.subjects.lock();
        let told = subjects.get(&id(kind, key))?.pending.clone()?;
        (Some(told.generation) == generation).then_some(told)
    }

    /// A pod of an object is ready, or is not ready any more.
    fn pod_changed(&self, kind: Kind, key: &Key, news: PodNews<'_>) {
        let id = id(kind, key);
        {
            let mut subjects = self.subjects.lock();
            let Some(subject) = subjects.get_mut(&id) else { return };
            match news {
                PodNews::Lost(lost) => return subject.progress.lost(lost),
                PodNews::Ready => subject.progress.ready(),
                PodNews::Seen => {}
            }
        }
        self.queue.add_after(id, POD_DELAY);
    }

    /// How many objects there are.
    fn objects(&self) -> usize {
        let Stores { agents, mcp_servers, model_apis, .. } = &self.stores;
        agents.len() + mcp_servers.len() + model_apis.len()
    }

    /// Whether the status of an object tells already what was found of this generation of its spec.
    fn tells(&self, kind: Kind, key: &Key, generation: i64) -> bool {
        let told = |conditions: &[Condition], type_: &str| {
            let condition = conditions.iter().find(|c| c.type_ == type_);
            condition.is_some_and(|c| {
                c.observed_generation == Some(generation) && c.reason != NO_READY_POD
            })
        };
        match kind {
            Kind::Agent => object(&self.stores.agents, key)
                .and_then(|agent| agent.status.clone())
                .is_some_and(|status| told(&status.conditions, card::CARD_READ)),
            Kind::MCPServer => object(&self.stores.mcp_servers, key)
                .and_then(|server| server.status.clone())
                .is_some_and(|status| told(&status.conditions, tools::TOOLS_DISCOVERED)),
            Kind::ModelAPI => object(&self.stores.model_apis, key)
                .and_then(|api| api.status.clone())
                .is_some_and(|status| told(&status.conditions, reachable::REACHABLE)),
            Kind::AgentBuild => false,
        }
    }

    /// Whether the status of an object does not tell this.
    fn is_news(&self, kind: Kind, key: &Key, told: &Told) -> bool {
        let now = Timestamp::now();
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        match kind {
            Kind::Agent => object(&self.stores.agents, key).is_some_and(|agent| {
                differs(agent.status.as_ref(), |status| told.tell_card(status, now))
            }),
            Kind::MCPServer => object(&self.stores.mcp_servers, key).is_some_and(|server| {
                differs(server.status.as_ref(), |status| told.tell_tools(status, now))
            }),
            Kind::ModelAPI => object(&self.stores.model_apis, key).is_some_and(|api| {
                differs(api.status.as_ref(), |status| told.tell_reach(status, now))
            }),
            Kind::AgentBuild => false,
        }
    }

    /// What is needed to ask an object.
    fn begin(&self, id: &Key) -> Option<Asked> {
        let subjects = self.subjects.lock();
        let Subject { kind, key, uid, question, pod, era, .. } = subjects.get(id)?;
        let url = Url::parse(&question.url).ok()?;
        Some(Asked {
            kind: *kind,
            key: key.clone(),
            uid: uid.clone(),
            question: question.clone(),
            pod: pod.clone(),
            era: *era,
            url,
        })
    }

    /// The pod that is to be asked, or the address, by name. `None` while there is no pod.
    fn candidate(&self, asked: &Asked) -> Option<String> {
        match asked.owner() {
            Some(owner) => self.pods.candidate(&self.children, owner, asked.pod.as_ref()),
            None => Some(Whom::Address.name().to_owned()),
        }
    }

    /// The same, once it is proven whose pod it is.
    async fn whom(&self, asked: &Asked) -> Result<Option<Whom>, CallError> {
        let Some(owner) = asked.owner() else { return Ok(Some(Whom::Address)) };
        let owned = self.pods.owned(&self.client, &self.children, owner, asked.pod.as_ref()).await;
        match &owned {
            Err(error) if error.is_forbidden() => {
                // Once is enough: it is the same for all pods.
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "ReplicaSets may not be read, so pods are not asked: see replicasets in deploy/rbac.yaml"
                    );
                }
            }
            Err(error) => {
                tracing::debug!(object = %asked.key, %error, "cannot read the ReplicaSet of a pod");
            }
            Ok(_) => {}
        }
        Ok(owned?.map(Whom::Pod))
    }

    /// What to do now with an object whose pod or address has this name. `None` when it is gone.
    fn step(&self, id: &Key, whom: &str) -> Option<Step> {
        Some(self.subjects.lock().get(id)?.progress.step(whom, self.now()))
    }

    /// Asks, within the deadline.
    async fn ask(&self, asked: &mut Asked, whom: &Whom) -> Found {
        let to = match whom {
            Whom::Pod(pod) => Destination::Pod(&self.pods, pod, &asked.url),
            Whom::Address => Destination::External(&asked.url),
        };
        let Question { topic, .. } = &asked.question;
        let work = read::read(&self.asker, &to, topic, &asked.url, &mut asked.era);
        tokio::time::timeout(DEADLINE, work).await.unwrap_or_else(|_| {
            Found::failed(topic, Failure::Unreachable("its answers take too long".into()))
        })
    }

    /// The operator may not read a resource without which it asks no pod. Gives the time until the next try.
    fn bar(&self, id: &Key, asked: &Asked, resource: &str) -> Next {
        let why =
            format!("the operator may not read {resource}: see {resource} in deploy/rbac.yaml");
        let Asked { kind, key, uid, question, .. } = asked;
        let told = Told {
            found: Found::failed(&question.topic, Failure::NotAllowed(why)),
            revision: question.generation.to_string(),
            generation: question.generation,
        };
        let is_news = self.is_news(*kind, key, &told);
        {
            let mut subjects = self.subjects.lock();
            let Some(subject) = subjects.get_mut(id) else { return Next::Forget };
            if subject.uid != *uid || subject.question != *question {
                return Next::After(Duration::ZERO);
            }
            // As soon as it may, it asks.
            subject.progress.untold();
            subject.pending = is_news.then(|| Arc::new(told));
        }
        if is_news {
            self.wake(*kind, key.clone());
        }
        Next::After(jitter(PROOF_RETRY))
    }

    /// Takes note of what was found. Gives the time until the next question.
    fn end(&self, id: &Key, asked: Asked, whom: Whom, found: Found) -> Next {
        let period = schedule::period(self.objects());
        let Asked { kind, key, uid, question, era, .. } = asked;
        let (pause, is_news) = {
            let mut subjects = self.subjects.lock();
            let Some(subject) = subjects.get_mut(id) else { return Next::Forget };
            if subject.uid != uid || subject.question != question {
                // It was asked something that is not the question any more.
                return Next::After(Duration::ZERO);
            }
            let told = Told {
                revision: whom.revision(question.generation),
                generation: question.generation,
                found,
            };
            let failed = told.found.has_failed();
            let times = (self.now(), period);
            let pause = subject.progress.asked(whom.name(), failed, times, jitter);
            subject.era = era;
            subject.pod = whom.pod();
            let is_early = failed && subject.progress.is_first_failure();
            let is_news = !is_early && self.is_news(kind, &key, &told);
            subject.pending = is_news.then(|| Arc::new(told));
            (pause, is_news)
        };
        if is_news {
            self.wake(kind, key);
        }
        Next::After(pause)
    }
}

/// An object, if it is there and parses.
fn object<K: Ours>(store: &Store<Managed<K>>, key: &Key) -> Option<Arc<K>> {
    store.get(key)?.value.object()
}

/// Whether telling something changes a status.
fn differs<S: Clone + Default + PartialEq>(old: Option<&S>, tell: impl FnOnce(&mut S)) -> bool {
    let mut new = old.cloned().unwrap_or_default();
    tell(&mut new);
    old != Some(&new)
}

/// The place of an object in the first round after a start.
fn share(id: &Key) -> u8 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish().to_le_bytes()[0]
}

impl Reconciler for Discovery {
    type Error = Infallible;
    const KIND: &'static str = "Discovery";

    async fn reconcile(self: Arc<Self>, id: Key) -> Result<Next, Infallible> {
        let Some(mut asked) = self.begin(&id) else { return Ok(Next::Forget) };
        let Some(candidate) = self.candidate(&asked) else {
            if asked.owner().is_some() && self.pods.is_forbidden() {
                return Ok(self.bar(&id, &asked, "pods"));
            }
            // A ready pod wakes it.
            return Ok(Next::Settled);
        };
        match self.step(&id, &candidate) {
            None => return Ok(Next::Forget),
            Some(Step::Wait(pause)) => return Ok(Next::After(pause)),
            Some(Step::Ask) => {}
        }
        match self.whom(&asked).await {
            Ok(Some(whom)) => {
                let found = self.ask(&mut asked, &whom).await;
                Ok(self.end(&id, asked, whom, found))
            }
            Ok(None) => Ok(Next::Settled),
            Err(error) if error.is_forbidden() => Ok(self.bar(&id, &asked, "replicasets")),
            Err(_) => Ok(Next::After(jitter(PROOF_RETRY))),
        }
    }
}

#[cfg(test)]
#[path = "tests/discovery.rs"]
mod tests;
