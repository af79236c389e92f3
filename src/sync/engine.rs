//! One reconcile of a GitSync: look at the remote if it is time, plan, write, tell.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;

use super::apply::{Failure, Outcome, Writer, apply};
use super::desired::SyncRef;
use super::listen::listen;
use super::plan::{Inputs, LiveSet, Plan, Settled, plan};
use super::problems::{Refused, leave_refused, write_problems};
use super::source::{Source, millis, parse_duration};
use super::status::{Done, Report, Verdict, status, verdict};
use crate::api::git_sync::{GitSyncStatus, Stages};
use crate::api::{GitSync, Kind, ObjectId, keys};
use crate::cluster::client::CallError;
use crate::cluster::events::Events;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::ssa;
use crate::cluster::store::{Entry, Key};
use crate::controllers::build_sources::BuildSources;
use crate::controllers::queue::Queue;
use crate::controllers::runtime::{Next, Reconciler, backoff, jitter};
use crate::controllers::wanted_agents::WantedAgents;
use crate::definition::{check_references, diagnostic};
use crate::git::{GitError, Revision};

/// How the operator was started, as far as syncing is concerned.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Plain `http://` and loopback addresses are allowed.
    pub allow_insecure_git: bool,
    /// The operator's own rights are used for writes.
    pub single_tenant: bool,
    /// Folder for bare stores; everything in it can be made anew.
    pub data_dir: PathBuf,
}

/// What is kept of a GitSync between two reconciles. All of it can be made anew.
struct State {
    /// UID of the GitSync: one of the same name made anew starts from nothing.
    uid: String,
    source: Source,
    /// When the remote is asked next.
    next_poll: Option<Instant>,
    /// Generation that the source was last asked for.
    generation: i64,
    /// Value of `requestedAt` that was last acted on.
    request: Option<String>,
    /// Why the newest commit could not be read.
    source_error: Option<SourceFailure>,
    /// Newest commit that was tried.
    attempted: Option<Revision>,
    /// Writes that changed nothing.
    settled: Settled,
    /// Objects that failed at the last plan, in a row.
    attempts: u32,
    /// Failures of content that the server refused: not tried again until the content changes.
    refused: Refused,
    trigger: &'static str,
    stages: Stages,
    started: Option<Instant>,
}

struct SourceFailure {
    reason: &'static str,
    message: String,
    terminal: bool,
}

impl From<GitError> for SourceFailure {
    fn from(error: GitError) -> Self {
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Self { reason: error.reason(), message, terminal: error.is_terminal() }
    }
}

/// The engine: the reconciler of GitSyncs.
pub struct Engine {
    client: Client,
    stores: Stores,
    settings: Settings,
    builds: Arc<BuildSources>,
    wanted: Arc<WantedAgents>,
    events: Events,
    states: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<State>>>>,
}

/// Why a reconcile has to be tried again as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
}

impl Engine {
    /// An engine over these stores; `queue` hears of every change that concerns a GitSync.
    ///
    /// It tells `builds` the source of every AgentBuild of each commit that it reads, and `wanted` its Agents.
    pub fn new(
        client: Client,
        stores: Stores,
        settings: Settings,
        builds: Arc<BuildSources>,
        wanted: Arc<WantedAgents>,
        queue: &Arc<Queue>,
    ) -> Arc<Self> {
        listen(&stores, queue);
        let events = Events::new(client.clone());
        Arc::new(Self {
            client,
            stores,
            settings,
            builds,
            wanted,
            events,
            states: Mutex::default(),
        })
    }

    fn state(&self, key: &Key, uid: &str) -> Arc<tokio::sync::Mutex<State>> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            Arc::new(tokio::sync::Mutex::new(State {
                uid: uid.to_owned(),
                source: Source::new(
                    self.settings.data_dir.join(uid),
                    self.settings.allow_insecure_git,
                ),
                next_poll: None,
                generation: 0,
                request: None,
                source_error: None,
                attempted: None,
                settled: Settled::new(),
                attempts: 0,
                refused: Refused::new(),
                trigger: "Start",
                stages: Stages::default(),
                started: None,
            }))
        };
        states.entry(key.clone()).or_insert_with(fresh).clone()
    }

    fn forget(&self, key: &Key) {
        self.wanted.forget(key);
        let state = self.states.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let Some(uid) =
            state.and_then(|state| state.try_lock().ok().map(|state| state.uid.clone()))
        else {
            return;
        };
        let store = self.settings.data_dir.join(uid);
        tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(&store) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %store.display(), %error, "cannot remove fetched objects");
            }
            _ => {}
        });
    }

    /// Every live object of our kinds in a namespace.
    fn live(&self, namespace: &str) -> LiveSet {
        let mut set = LiveSet::new();
        for kind in Kind::ALL {
            for live in self.stores.managed(kind).live(namespace) {
                set.insert(ObjectId::new(kind, live.name.clone()), live);
            }
        }
        set
    }

    async fn write_status(
        &self,
        key: &Key,
        entry: &Entry<Managed<GitSync>>,
        sync: &GitSync,
        new: &GitSyncStatus,
    ) -> Result<(), EngineError> {
        if sync.status.as_ref() == Some(new) {
            return Ok(());
        }
        match ssa::apply_status::<GitSync>(&self.client, &key.namespace, &key.name, &entry.uid, new)
            .await
        {
            Ok(object) => {
                if let Ok(object) = serde_json::to_value(&object).and_then(serde_json::from_value) {
                    let (key, entry) = crate::cluster::reflector::entry::<Managed<GitSync>>(object);
                    self.stores.git_syncs.wrote(key, entry);
                }
                Ok(())
            }
            // Deleted meanwhile: nobody is left to tell.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(EngineError::Status(error)),
        }
    }

    /// Looks at the remote if it is time to.
    async fn refresh(&self, state: &mut State, key: &Key, sync: &GitSync, request: Option<&str>) {
        let generation = sync.metadata.generation.unwrap_or(0);
        let now = Instant::now();
        let trigger = if state.next_poll.is_none() {
            "Start"
        } else if state.generation != generation {
            "Spec"
        } else if request.is_some() && state.request.as_deref() != request {
            "Request"
        } else if state.next_poll.is_some_and(|due| due <= now) {
            if state.source_error.is_some() { "Retry" } else { "Interval" }
        } else {
            return;
        };
        state.trigger = trigger;
        state.started = Some(now);
        state.generation = generation;
        let mut stages = Stages::default();
        let result = state.source.refresh(&sync.spec, key, &mut stages, &mut state.attempted).await;
        let interval = match result {
            Ok(changed) => {
                if changed {
                    if let Some(loaded) = &state.source.loaded {
                        for (build, source) in &loaded.builds {
                            self.builds.set(Key::new(&key.namespace, build), source.clone());
                        }
                        let agents = loaded.desired.iter().filter(|(id, _)| id.kind == Kind::Agent);
                        self.wanted.set(key, agents.map(|(id, d)| (&*id.name, &d.definition.spec)));
                    }
                    state.refused.clear();
                    state.attempts = 0;
                    state.stages = stages;
                }
                state.source_error = None;
                &sync.spec.interval
            }
            Err(error) => {
                tracing::warn!(object = %key, reason = error.reason(), %error, "cannot read the repository");
                state.source_error = Some(error.into());
                &sync.spec.retry_interval
            }
        };
        state.request = request.map(str::to_owned);
        let interval = parse_duration(interval).unwrap_or(Duration::from_secs(60));
        state.next_poll = Some(Instant::now() + jitter(interval));
    }
}

impl Reconciler for Engine {
    type Error = EngineError;
    const KIND: &'static str = "GitSync";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, EngineError> {
        self.stores.wait_ready().await;
        let Some(entry) = self.stores.git_syncs.get(&key) else {
            self.forget(&key);
            return Ok(Next::Forget);
        };
        let sync = match &entry.value.object {
            Ok(sync) => sync.clone(),
            Err(error) => {
                tracing::warn!(object = %key, %error, "this GitSync does not parse");
                return Ok(Next::Settled);
            }
        };
        if sync.metadata.deletion_timestamp.is_some() {
            self.forget(&key);
            return Ok(Next::Forget);
        }
        let state = self.state(&key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            drop(state);
            self.forget(&key);
            return Ok(Next::After(Duration::ZERO));
        }
        self.sync(&mut state, &key, &entry, &sync).await
    }
}

impl Engine {
    async fn sync(
        &self,
        state: &mut State,
        key: &Key,
        entry: &Entry<Managed<GitSync>>,
        sync: &Arc<GitSync>,
    ) -> Result<Next, EngineError> {
        let generation = sync.metadata.generation.unwrap_or(0);
        let annotation =
            |name: &str| sync.metadata.annotations.as_ref()?.get(name).map(String::as_str);
        let request = annotation(keys::REQUESTED_AT);
        let previous = sync.status.as_ref();
        let blank = |verdict: Verdict, suspended: bool, state: &State| Report {
            generation,
            verdict,
            attempted: state.attempted.as_ref().map(ToString::to_string),
            revision: None,
            handled: state.request.clone(),
            problems: &[],
            plan: None,
            live: None,
            failed: 0,
            approved: None,
            done: None,
            stages: None,
            suspended,
            now: now(),
        };
        let plain = |reason: &str, message: &str, stalled: bool| Verdict {
            reason: reason.into(),
            message: message.into(),
            ready: false,
            stalled,
            reconciling: false,
        };

        if sync.spec.suspend {
            state.next_poll = None;
            let report = blank(plain("Suspended", "spec.suspend is true", false), true, state);
            self.write_status(key, entry, sync, &status(previous, report)).await?;
            return Ok(Next::Settled);
        }
        if !self.settings.single_tenant {
            let message = "no ServiceAccount to write with: start the operator with --single-tenant to use its own rights";
            let report = blank(plain("ServiceAccountRequired", message, true), false, state);
            self.write_status(key, entry, sync, &status(previous, report)).await?;
            return Ok(Next::Settled);
        }

        self.refresh(state, key, sync, request).await;
        // The remote may have taken its time: a spec that was changed meanwhile (suspended, no pruning) decides.
        let newest = self.stores.git_syncs.get(key);
        if !newest.is_some_and(|newest| newest.value.same_input(&entry.value)) {
            return Ok(Next::After(Duration::ZERO));
        }
        let until_poll = |state: &State| {
            let now = Instant::now();
            state.next_poll.map_or(Duration::from_secs(1), |due| due.saturating_duration_since(now))
        };

        let Some(loaded) = &state.source.loaded else {
            let failure = state.source_error.as_ref();
            let (reason, message, terminal) = failure
                .map_or(("Progressing", "", false), |f| (f.reason, f.message.as_str(), f.terminal));
            let mut verdict = plain(reason, message, terminal);
            verdict.reconciling = !terminal;
            self.write_status(key, entry, sync, &status(previous, blank(verdict, false, state)))
                .await?;
            return Ok(Next::After(until_poll(state)));
        };

        // Plan and write, from the newest commit that was read whole.
        let plan_start = Instant::now();
        let reference = SyncRef {
            uid: entry.uid.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            generation,
        };
        let live = self.live(&key.namespace);
        let mut problems = loaded.catalog.problems.clone();
        problems.extend(check_references(&loaded.catalog, &|id| live.contains_key(id)));
        let exists = |namespace: &str, name: &str, uid: &str| {
            self.stores.git_syncs.get(&Key::new(namespace, name)).is_some_and(|e| e.uid == uid)
        };
        let approved = previous.and_then(|status| status.approved_prune.as_ref());
        // A changed spec ends an approval: `maxDeletions: 0` must stop what is under way.
        let input_key = format!("{} {generation}", loaded.input_key);
        let mut made = plan(&Inputs {
            sync: &reference,
            input_key: &input_key,
            desired: &loaded.desired,
            live: &live,
            has_errors: loaded.catalog.has_errors(),
            broken: &loaded.catalog.broken,
            broken_paths: &loaded.catalog.broken_paths,
            prune: &sync.spec.prune,
            approval: annotation(keys::APPROVE_PRUNE),
            approved,
            sync_exists: &exists,
            settled: &state.settled,
        });
        // What the server refused is not sent again until its content changes.
        let blocked = leave_refused(&mut made, &loaded.desired, &state.refused);
        // While the newest commit cannot be read, an older one proves no absence.
        let unproven = blocked > 0 || state.source_error.is_some();
        let deletes = if unproven { std::mem::take(&mut made.prune) } else { Vec::new() };
        let plan_ms = millis(plan_start);

        // Remember an approval before the first delete: after a crash the rest is still approved.
        if let Some(released) = &made.released
            && approved != Some(released)
        {
            let mut status = previous.cloned().unwrap_or_default();
            status.approved_prune = Some(released.clone());
            self.write_status(key, entry, sync, &status).await?;
        }

        let apply_start = Instant::now();
        let commit = loaded.revision.commit.clone();
        let writer = Writer {
            client: &self.client,
            stores: &self.stores,
            sync: &reference,
            commit: &commit,
        };
        let outcome = if made.is_settled() {
            Outcome::default()
        } else {
            apply(&writer, &loaded.desired, &made, &mut state.settled).await
        };
        for (id, failure) in &outcome.failures {
            if let (Failure::Refused(message), Some(want)) = (failure, loaded.desired.get(id)) {
                state.refused.insert(id.clone(), (want.applied.clone(), message.clone()));
            }
        }
        problems.extend(write_problems(&loaded.desired, &made, &outcome, &state.refused));
        diagnostic::sort(&mut problems);

        let transient = outcome
            .failures
            .values()
            .filter(|f| matches!(f, Failure::Transient(_) | Failure::Conflict))
            .count();
        let revision = loaded.revision.to_string();
        let mut said = verdict(
            &revision,
            &problems,
            &made,
            transient,
            outcome.undeleted.len() + deletes.len(),
        );
        if let Some(failure) = &state.source_error {
            said = plain(failure.reason, &failure.message, failure.terminal);
            said.reconciling = !failure.terminal;
        }
        let pruned_all = made.released.is_some()
            && outcome.undeleted.is_empty()
            && outcome.failures.is_empty()
            && deletes.is_empty()
            && made.terminating.is_empty();
        let writes = outcome.created + outcome.updated + outcome.pruned;
        let result = outcome_word(&said, &made, transient);
        let news = writes > 0
            || previous
                .and_then(|s| s.history.first())
                .is_none_or(|h| h.revision != revision || h.outcome != result);
        let stages = Stages { plan_ms, apply_ms: millis(apply_start), ..state.stages.clone() };
        let done = news.then(|| Done {
            revision: revision.clone(),
            author: loaded.info.author.clone(),
            subject: loaded.info.subject.clone(),
            outcome: result,
            counts: (outcome.created, outcome.updated, outcome.pruned),
            duration_ms: millis(state.started.unwrap_or(plan_start)),
            trigger: state.trigger,
        });
        if news {
            tracing::info!(object = %key, revision, outcome = result, created = outcome.created,
                updated = outcome.updated, pruned = outcome.pruned, reason = said.reason, "synced");
            let note = format!(
                "{} ({} created, {} updated, {} pruned)",
                said.message, outcome.created, outcome.updated, outcome.pruned
            );
            self.events.tell(sync.as_ref(), said.ready, &said.reason, &note).await;
        }
        let after = if writes > 0 { self.live(&key.namespace) } else { live };
        let report = Report {
            generation,
            verdict: said,
            attempted: state.attempted.as_ref().map(ToString::to_string),
            revision: Some(revision),
            handled: state.request.clone(),
            problems: &problems,
            plan: Some(&made),
            live: Some((&after, &entry.uid)),
            failed: outcome.failures.len() + blocked,
            approved: if pruned_all { None } else { made.released.clone() },
            done,
            stages: Some(stages),
            suspended: false,
            now: now(),
        };
        let retry = transient + outcome.undeleted.len() > 0;
        // The store may have moved on (the approval was remembered): write over the newest status.
        let newest = self.stores.git_syncs.get(key);
        let (entry, sync) = match &newest {
            Some(newest) if newest.uid == entry.uid => match newest.value.object() {
                Some(object) => (newest.as_ref(), object),
                None => (entry, sync),
            },
            _ => (entry, sync),
        };
        let new = status(sync.status.as_ref(), report);
        self.write_status(key, entry, sync, &new).await?;

        state.trigger = "Cluster";
        state.started = None;
        state.attempts = if retry { state.attempts.saturating_add(1) } else { 0 };
        let wait = until_poll(state);
        Ok(Next::After(if retry { wait.min(backoff(state.attempts)) } else { wait }))
    }
}

/// Now, in whole seconds: what Kubernetes keeps of a time.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn outcome_word(verdict: &Verdict, plan: &Plan, transient: usize) -> &'static str {
    if verdict.ready {
        "Applied"
    } else if transient > 0 {
        "Failed"
    } else if plan.held.is_some() && verdict.reason == "PruneHeld" {
        "Held"
    } else {
        "Partial"
    }
}
