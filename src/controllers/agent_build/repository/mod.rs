//! Polls the repositories of `spec.source.git`: finds the newest commit of each build's ref, and the ids of the trees that the build is made
//! of. They run beside the reconciles, so a remote that hangs delays no reconcile.
//!
//! Each AgentBuild has its own polls, in a queue of their own. Those of one repository with the same credentials share lists of refs, fetches
//! and the store, also with GitSyncs. What a poll has found is kept in memory only: after a restart it is found again, and the build key of it
//! is the same. A build is woken only when its poll has found something else than before.

mod reader;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use self::reader::{Reader, Seen};
use super::problem::BuildProblem;
use crate::api::agent_build::{AgentBuildSpec, GitSource};
use crate::api::git_sync::GitRef;
use crate::api::{AgentBuild, keys};
use crate::cluster::live::Managed;
use crate::cluster::store::{Key, Store};
use crate::git::Wake;
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker::{Next, Reconciler, jitter};
use crate::sync::commit::source_at::{SourceAt, followed_dockerfile};
use crate::sync::commit::source_error::SourceError;
use crate::sync::credentials::Access;
use crate::sync::newest::{Newest, Shares, remove_unused};
use convoke_core::cluster::account::OperatorAccount;
use convoke_core::time::parse_duration;

/// Polls that run at once; of one namespace half as many. How many of them ask and read at once is shared with GitSyncs.
pub const CONCURRENT_POLLS: usize = 256;
/// How soon a poll that failed is tried again, also when `interval` is shorter.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The interval and the timeout of a spec that cannot be read. The schema refuses those.
const ONE_MINUTE: Duration = Duration::from_secs(60);
/// How long a poll may take beyond its answers: hundreds of others may come first.
const MOST_WAIT: Duration = Duration::from_secs(30 * 60);
/// The most answers of a remote that one poll waits for.
const MOST_ANSWERS: u32 = 10;

/// What [`Polls`] are made of.
pub struct Parts {
    /// Reads Secrets.
    pub client: Client,
    /// The operator's own account, for commands that give it rights.
    pub operator: OperatorAccount,
    /// Makes the connections.
    pub dialler: Dialler,
    /// The builds.
    pub builds: Arc<Store<Managed<AgentBuild>>>,
    /// Gets the key of each build whose source is another one.
    pub wakes: Arc<Queue>,
    /// What is shared with GitSyncs.
    pub shares: Shares,
}

/// What is looked for, and where. Another place has another answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    access: Access,
    url: String,
    reference: GitRef,
    subfolder: String,
    paths: Vec<String>,
    /// The Dockerfile, if its base images are to be followed.
    dockerfile: Option<String>,
}

impl Place {
    /// The repository, and the Secrets for it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access.clone()
    }
}

/// What a build asks of its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poll {
    /// What is looked for.
    pub place: Place,
    /// How often.
    interval: Duration,
    /// How long one answer may take.
    timeout: Duration,
}

impl Poll {
    /// Of a spec. `None` when it has no repository of its own.
    #[must_use]
    pub fn of(spec: &AgentBuildSpec) -> Option<Self> {
        let source = spec.source.git.as_ref()?;
        let GitSource { url, reference, interval, timeout, secret_ref: _, proxy_secret_ref: _ } =
            source;
        let place = Place {
            access: Access::of_build(source),
            url: url.clone(),
            reference: reference.clone().unwrap_or_default(),
            subfolder: spec.source.subfolder.clone(),
            paths: spec.trigger.paths.clone(),
            dockerfile: followed_dockerfile(spec),
        };
        let time = |text: &str| parse_duration(text).unwrap_or(ONE_MINUTE);
        Some(Self { place, interval: time(interval), timeout: time(timeout) })
    }

    /// When it is polled again.
    fn pause(&self, failed: bool) -> Duration {
        if failed { RETRY_INTERVAL } else { self.interval }
    }
}

/// What the last poll of a build has found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    uid: String,
    place: Place,
    result: Result<Seen, BuildProblem>,
}

/// The polls of all builds.
pub struct Polls {
    parts: Parts,
    /// Builds that are due.
    due: Arc<Queue>,
    readers: Mutex<HashMap<Key, Reader>>,
    found: RwLock<HashMap<Key, Found>>,
    /// Builds whose ref has moved, as others have seen.
    moved: Arc<Mutex<HashSet<Key>>>,
}

/// An AgentBuild with a repository of its own.
struct Wanted {
    uid: String,
    poll: Poll,
    /// The value of `convoke.dev/requestedAt`.
    request: Option<String>,
}

impl Polls {
    /// The polls, and the queue of those that are due. The caller adds builds that change, and runs a worker on it.
    #[must_use]
    pub fn new(parts: Parts) -> (Arc<Self>, Arc<Queue>) {
        let due = Queue::new();
        let (readers, found, moved) = (Mutex::default(), RwLock::default(), Arc::default());
        (Arc::new(Self { parts, due: due.clone(), readers, found, moved }), due)
    }

    /// The source of the build with this UID at its place, or why it is not known. `None`: it was not asked for yet.
    #[must_use]
    pub fn of(
        &self,
        key: &Key,
        uid: &str,
        place: &Place,
    ) -> Option<Result<SourceAt, BuildProblem>> {
        let found = self.found.read();
        let found = found.get(key).filter(|found| found.uid == uid && found.place == *place)?;
        Some(found.result.as_ref().map(|seen| seen.source.clone()).map_err(Clone::clone))
    }

    /// The newest commit that the build with this UID has been found at, at its place, with its ref. `None` while it is not known.
    #[must_use]
    pub fn revision(&self, key: &Key, uid: &str, place: &Place) -> Option<String> {
        let found = self.found.read();
        let found = found.get(key).filter(|found| found.uid == uid && found.place == *place)?;
        found.result.as_ref().ok().map(|seen| seen.revision.to_string())
    }

    fn wanted(&self, key: &Key) -> Option<Wanted> {
        let entry = self.parts.builds.get(key)?;
        let facts = &entry.value.facts;
        let build = entry.value.object().filter(|_| !facts.deleting)?;
        let request = facts.annotations.get(keys::REQUESTED_AT).map(ToString::to_string);
        Some(Wanted { uid: entry.uid.clone(), poll: Poll::of(&build.spec)?, request })
    }

    /// Makes a build poll when somebody else has seen that its ref has moved.
    fn wake(&self, key: &Key) -> Wake {
        let (moved, due, key) = (self.moved.clone(), self.due.clone(), key.clone());
        Wake(Arc::new(move |after| {
            moved.lock().insert(key.clone());
            due.add_after(key.clone(), after);
        }))
    }

    /// Drops everything that is kept for a build, and its fetched objects, unless others use them.
    async fn forget(&self, key: &Key) {
        self.moved.lock().remove(key);
        self.found.write().remove(key);
        let reader = self.readers.lock().remove(key);
        self.close(reader).await;
    }

    async fn close(&self, reader: Option<Reader>) {
        if let Some(store) = reader.and_then(Reader::close) {
            remove_unused(self.parts.shares.repositories.clone(), store).await;
        }
    }

    /// Keeps what a poll has found, and wakes its build if that is something else than before.
    fn publish(&self, key: &Key, found: Found) {
        let mut all = self.found.write();
        if all.get(key) == Some(&found) {
            return;
        }
        all.insert(key.clone(), found);
        drop(all);
        self.parts.wakes.add(key.clone());
    }
}

impl Reconciler for Polls {
    type Error = Infallible;
    const KIND: &'static str = "AgentBuild source";
    /// A poll ends earlier by itself: the longest timeout is an hour.
    const DEADLINE: Duration = Duration::from_secs(12 * 60 * 60);

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, Infallible> {
        let Some(Wanted { uid, poll, request }) = self.wanted(&key) else {
            self.forget(&key).await;
            return Ok(Next::Forget);
        };
        // While it is polled it is not in the table: if the poll panics, the next one starts anew.
        let before = self.readers.lock().remove(&key);
        let (before, other) = match before {
            Some(before) if before.is_of(&uid) => (Some(before), None),
            other => (None, other),
        };
        self.close(other).await;
        let mut reader = before.unwrap_or_else(|| {
            let Parts { shares, dialler, .. } = &self.parts;
            let mut newest = Newest::new(uid.clone(), shares.clone(), dialler.clone());
            newest.wake_with(self.wake(&key));
            Reader::new(uid.clone(), newest, request.clone())
        });
        let moved = self.moved.lock().remove(&key);
        let now = Instant::now();
        let max_age = match reader.due(&poll, request.as_deref(), moved, now) {
            Ok(max_age) => max_age,
            Err(left) => {
                self.readers.lock().insert(key, reader);
                return Ok(Next::After(left));
            }
        };
        let most = poll.timeout * MOST_ANSWERS + MOST_WAIT;
        let work = reader.poll(&key, &poll, max_age, &self.parts);
        let result = tokio::time::timeout(most, work).await.unwrap_or(Err(SourceError::Hangs));
        if let Err(error) = &result {
            let reason = error.reason().as_str();
            tracing::warn!(object = %key, reason, %error, "cannot read the repository of spec.source.git");
        }
        let pause = jitter(poll.pause(result.is_err())).saturating_sub(reader.age);
        reader.ended(&poll, request, Instant::now() + pause);
        self.readers.lock().insert(key.clone(), reader);
        let result = result.map_err(|error| BuildProblem::of_repository(&error));
        self.publish(&key, Found { uid, place: poll.place, result });
        Ok(Next::After(pause))
    }
}
