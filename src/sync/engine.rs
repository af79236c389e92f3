//! One reconcile of a GitSync: look at the remote if it is time, plan, write, tell.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;

use super::budgets::Budgets;
use super::carry::Carry;
use super::desired::SyncRef;
use super::listen::listen;
use super::local::LocalFolders;
use super::rights::retry_after;
use super::siblings::Siblings;
use super::slots::Slots;
use super::source::{Loaded, Source, millis};
use super::space::Space;
use super::spoken::Spoken;
use super::state::State;
use super::status::{Done, PROGRESSING, READING, Report, Verdict, unwatched, verdict};
use super::tell::{now, outcome_word, unready};
use super::touched::Touched;
use super::variables::Changed;
use crate::api::git_sync::GitSyncStatus;
use crate::api::{GitSync, keys};
use crate::cluster::client::CallError;
use crate::cluster::events::Events;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::controllers::build_sources::BuildSources;
use crate::controllers::queue::Queue;
use crate::controllers::runtime::{Next, Reconciler, backoff};
use crate::controllers::turns::Turns;
use crate::controllers::wanted_agents::WantedAgents;
use crate::git::Revision;
use crate::net::Dialler;

/// How long a first look at a remote may take before the status says that it is under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the first lists of our kinds may take before the statuses say that one is missing.
const LISTED_WITHIN: Duration = Duration::from_secs(15);
/// How often they are looked for after that.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How the operator was started, as far as syncing is concerned.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Makes the connections to repositories.
    pub dialler: Dialler,
    /// The operator's own rights are used for writes where no ServiceAccount is named.
    pub single_tenant: bool,
    /// ServiceAccount of each GitSync's namespace that is used where it names none.
    pub default_service_account: Option<String>,
    /// Folders on disk in place of repositories.
    pub local: LocalFolders,
    /// Where the operator runs, for hints.
    pub operator_namespace: String,
    /// Folder for bare stores; everything in it can be made anew.
    pub data_dir: PathBuf,
    /// What one repository may cost.
    pub budgets: Budgets,
}

/// The engine: the reconciler of GitSyncs.
pub struct Engine {
    pub(super) client: Client,
    pub(super) stores: Stores,
    pub(super) settings: Settings,
    pub(super) builds: Arc<BuildSources>,
    pub(super) wanted: Arc<WantedAgents>,
    pub(super) turns: Arc<Turns>,
    pub(super) queue: Arc<Queue>,
    pub(super) events: Events,
    pub(super) touched: Arc<Touched>,
    pub(super) siblings: Arc<Siblings>,
    pub(super) slots: Slots,
    pub(super) spoken: Arc<Spoken>,
    started: tokio::time::Instant,
    /// Syncs whose variables have changed.
    pub variables: Arc<Changed>,
    states: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<State>>>>,
}

/// Why a reconcile has to be tried again as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
    /// The finalizer could not be set or taken away.
    #[error("cannot write the finalizer: {0}")]
    Finalizer(#[source] CallError),
}

/// One GitSync as a reconcile looks at it.
pub(super) struct Subject<'a> {
    pub key: &'a Key,
    pub entry: &'a Entry<Managed<GitSync>>,
    pub sync: &'a Arc<GitSync>,
    pub generation: i64,
}

impl<'a> Subject<'a> {
    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        self.sync.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn status(&self) -> Option<&'a GitSyncStatus> {
        self.sync.status.as_ref()
    }

    /// The commit that was applied whole for this very spec, as the status says.
    pub fn applied_before(&self) -> Option<Revision> {
        self.last_applied().filter(|_| self.entry.value.is_ready())
    }

    /// The commit that was applied whole last, for this spec or for another one.
    pub fn last_applied(&self) -> Option<Revision> {
        Revision::parse(self.status()?.last_applied_revision.as_deref()?)
    }

    /// Whether an operator before this one has applied the commit whole, for this spec. With variables the same commit may
    /// mean something else by now.
    pub fn was_applied_whole(&self, commit: &Revision) -> bool {
        self.sync.spec.variables.is_none() && self.applied_before().as_ref() == Some(commit)
    }

    pub fn reference(&self) -> SyncRef {
        SyncRef {
            uid: self.entry.uid.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            generation: self.generation,
        }
    }

    /// A report that knows nothing but a verdict.
    pub(super) fn blank(&self, verdict: Verdict, state: &State) -> Report<'static> {
        Report {
            attempted: state.attempted.as_ref().map(ToString::to_string),
            handled: state.request.clone(),
            ..Report::of(self.generation, verdict, now())
        }
    }
}

impl Engine {
    /// An engine over these stores; `queue` hears of every change that concerns a GitSync.
    ///
    /// It tells `builds` the source of every AgentBuild of each commit that it reads, and `wanted` its Agents. While it
    /// writes it takes the turn of controllers.
    pub fn new(
        client: Client,
        stores: Stores,
        settings: Settings,
        builds: Arc<BuildSources>,
        wanted: Arc<WantedAgents>,
        turns: Arc<Turns>,
        queue: &Arc<Queue>,
    ) -> Arc<Self> {
        let (touched, spoken) = (Arc::new(Touched::default()), Arc::new(Spoken::default()));
        let siblings = Arc::new(Siblings::default());
        listen(&stores, &touched, &spoken, &siblings, queue);
        let events = Events::new(client.clone());
        Arc::new(Self {
            client,
            stores,
            settings,
            builds,
            wanted,
            turns,
            queue: queue.clone(),
            events,
            touched,
            siblings,
            slots: Slots::default(),
            spoken,
            started: tokio::time::Instant::now(),
            variables: Arc::default(),
            states: Mutex::default(),
        })
    }

    pub(super) fn state(&self, key: &Key, uid: &str) -> Arc<tokio::sync::Mutex<State>> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            let store = self.settings.data_dir.join(uid);
            let Settings { dialler, budgets, .. } = self.settings.clone();
            let source = Source::new(store, dialler, budgets)
                .taking(self.slots.clone())
                .in_place_of(self.settings.local.of(key));
            Arc::new(tokio::sync::Mutex::new(State::new(uid, source)))
        };
        states.entry(key.clone()).or_insert_with(fresh).clone()
    }

    pub(super) fn forget(&self, key: &Key) {
        self.wake(self.siblings.forget(key));
        self.wanted.forget(key);
        self.builds.forget(key);
        self.touched.forget(key);
        self.spoken.forget(key);
        self.variables.take(key);
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

    pub(super) fn wake(&self, keys: Vec<Key>) {
        for key in keys {
            self.queue.add(key);
        }
    }

    /// The live objects of our kinds in a namespace.
    pub(super) fn space<'a>(&'a self, namespace: &'a str) -> Space<'a> {
        Space { stores: &self.stores, namespace }
    }
}

impl Reconciler for Engine {
    type Error = EngineError;
    const KIND: &'static str = "GitSync";
    /// A minute of writes (`apply::LONGEST`), and what stands before and after them, each call as slow as it may be.
    const DEADLINE: Duration = Duration::from_secs(5 * 60);

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, EngineError> {
        let listed = self.stores.wait_ready();
        if tokio::time::timeout_at(self.started + LISTED_WITHIN, listed).await.is_err() {
            return self.unlisted(&key).await;
        }
        let Some(entry) = self.stores.git_syncs.get(&key) else {
            self.forget(&key);
            return Ok(Next::Forget);
        };
        if entry.value.facts.deleting {
            return self.end(&key, &entry).await;
        }
        let Some(sync) = entry.value.object() else {
            let error = entry.value.parse_error();
            tracing::warn!(object = %key, error, "this GitSync does not parse");
            return Ok(Next::Settled);
        };
        let state = self.state(&key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            drop(state);
            self.forget(&key);
            return Ok(Next::After(Duration::ZERO));
        }
        let generation = sync.metadata.generation.unwrap_or(0);
        let subject = Subject { key: &key, entry: &entry, sync: &sync, generation };
        if let Some(said) = self.spoken.answer(&key, &entry.uid, subject.status(), Instant::now()) {
            tracing::info!(object = %key, "somebody else has written the status: ours is written again");
            self.write_status(&subject, |_| said).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        self.sync(&mut state, &subject).await
    }
}

impl Engine {
    /// Says of which kinds there is no complete list: then nothing proves anything, and nothing is done.
    async fn unlisted(&self, key: &Key) -> Result<Next, EngineError> {
        let kinds = self.stores.pending().join(", ");
        let entry = self.stores.git_syncs.get(key).filter(|entry| !entry.value.facts.deleting);
        let sync = entry.as_ref().and_then(|entry| entry.value.object());
        if let (Some(entry), Some(sync)) = (&entry, sync.filter(|sync| !sync.spec.suspend)) {
            tracing::debug!(object = %key, kinds, "waiting for complete lists");
            let message = format!(
                "nothing is synced until the cluster lists its objects of kind {kinds}; is all of deploy/crds.yaml applied?"
            );
            let generation = sync.metadata.generation.unwrap_or(0);
            let subject = Subject { key, entry, sync: &sync, generation };
            let mut verdict = unready("KindsNotListed", &message, false);
            verdict.reconciling = true;
            let report = Report::of(generation, verdict, now());
            self.tell(&subject, report).await?;
        }
        Ok(Next::After(LOOK_AGAIN))
    }

    async fn sync(&self, state: &mut State, subject: &Subject<'_>) -> Result<Next, EngineError> {
        state.note(subject.generation, subject.annotation(keys::APPROVE_PRUNE));
        if !subject.sync.spec.suspend {
            // Whatever it may write itself: others may wait to hear what it wants.
            self.look(state, subject);
        }
        self.prepare_end(subject).await?;
        if subject.sync.spec.suspend {
            // What is found meanwhile would be old news when it goes on.
            state.stop_looking();
            let mut report = subject.blank(unready("Suspended", "", false), state);
            report.suspended = true;
            self.tell(subject, report).await?;
            return Ok(Next::Settled);
        }
        let name = subject.sync.spec.service_account_name.as_deref();
        if let Err(refusal) = self.settings.account(&subject.key.namespace, name) {
            let report = subject.blank(unready(refusal.reason, &refusal.message, true), state);
            self.tell(subject, report).await?;
            return Ok(Next::Settled);
        }

        // A spec that names other files is answered by a look for it, and by nothing older.
        let loaded = state.loaded.clone().filter(|loaded| loaded.answers(&subject.sync.spec));
        if let Some(loaded) = loaded {
            let newest = loaded.clone();
            let turn = self.turn(state, subject, loaded);
            if let Some(loaded) = turn.loaded {
                return self.bring(state, subject, &loaded, turn.waits).await;
            }
            if let Some(waits) = turn.waits {
                let mut report = subject.blank(waits, state);
                report.problems = Some(&newest.catalog.problems);
                // Before the first commit is applied there is nothing to watch.
                report.blind = subject.last_applied().is_some();
                self.tell(subject, report).await?;
                return Ok(Next::After(state.until_poll()));
            }
        }
        let failure = state.source_error.clone().filter(|_| state.generation == subject.generation);
        let verdict = match (failure, state.polling()) {
            (Some(failure), _) => {
                let mut said = unready(failure.reason, &failure.message, failure.terminal);
                said.reconciling = !failure.terminal;
                said
            }
            // Most remotes answer in a moment: there is nothing to say before that.
            (None, Some(question)) if question.began.elapsed() < PATIENCE => {
                return Ok(Next::After(PATIENCE));
            }
            (None, _) => {
                let mut said = unready(PROGRESSING, READING, false);
                said.reconciling = true;
                said
            }
        };
        let polling = state.polling().is_some();
        let seen = subject.status().and_then(|status| status.observed_generation);
        // After a restart of the operator nothing is known for a moment, and nothing is worth telling.
        if verdict.reason != PROGRESSING || seen != Some(subject.generation) {
            let mut report = subject.blank(verdict, state);
            report.blind = state.source_error.is_some();
            self.tell(subject, report).await?;
        }
        Ok(Next::After(if polling { PATIENCE } else { state.until_poll() }))
    }

    /// Brings the namespace where a commit wants it, and tells: the newest that was read whole, or while that `waits`
    /// the one before.
    async fn bring(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
        waits: Option<Verdict>,
    ) -> Result<Next, EngineError> {
        let Subject { key, sync, generation, .. } = subject;
        let began = Instant::now();
        let Carry {
            plan,
            recalled,
            pending,
            outcome,
            blocked,
            postponed,
            carried,
            approved,
            problems,
            stages,
            counts,
            turn,
        } = self.carry_out(state, subject, loaded).await?;
        if outcome.stopped {
            return Ok(Next::After(Duration::ZERO));
        }
        let asked = state.polling().filter(|_| carried.unanswered && plan.is_settled());
        if asked.is_some_and(|question| question.began.elapsed() < PATIENCE) {
            // Nothing was done, and most remotes answer in a moment.
            return Ok(Next::After(PATIENCE));
        }

        let revision = loaded.revision.to_string();
        let waiting = waits.is_some();
        let mut said = waits.unwrap_or_else(|| verdict(&revision, &problems, &plan, &carried));
        if let Some(failure) = state.source_error.as_ref().filter(|_| !carried.unanswered) {
            said = unready(failure.reason, &failure.message, failure.terminal);
            said.reconciling = !failure.terminal;
        }
        let writes = outcome.created + outcome.updated + outcome.pruned;
        let failed = carried.transient > 0 || carried.refusal.is_some();
        let result = outcome_word(&said, &plan, failed);
        if let (true, Some(silent)) = (said.ready, self.stores.silent()) {
            said = unwatched(&revision, &silent);
        }
        let last = subject.status().and_then(|status| status.history.first());
        let news = writes > 0
            || (!waiting
                && said.reason != PROGRESSING
                && last.is_none_or(|h| h.revision != revision || h.outcome != result));
        let done = news.then(|| Done {
            revision: revision.clone(),
            author: loaded.info.author.clone(),
            subject: loaded.info.subject.clone(),
            outcome: result,
            counts: (outcome.created, outcome.updated, outcome.pruned),
            duration_ms: millis(state.started.unwrap_or(began)),
            trigger: state.trigger,
        });
        let event = news.then(|| {
            tracing::info!(object = %key, revision, outcome = result, created = outcome.created,
                updated = outcome.updated, pruned = outcome.pruned, reason = said.reason, "synced");
            let note = format!(
                "{} ({} created, {} updated, {} pruned)",
                said.message, outcome.created, outcome.updated, outcome.pruned
            );
            (said.ready, said.reason.clone(), note)
        });
        let unfinished = !outcome.undeleted.is_empty()
            || !outcome.failures.is_empty()
            || outcome.left + outcome.taken > 0
            || postponed > 0
            || carried.refusal.is_some()
            || !plan.terminating.is_empty();
        // What is not any more what was planned with is planned anew, whether or not the change alone starts a plan.
        let retry =
            carried.transient > 0 || (carried.undeleted > 0 && !waiting) || outcome.taken > 0;
        let fought = carried.wait;
        let finished = said.reason != PROGRESSING;
        let report = Report {
            generation: *generation,
            verdict: said,
            attempted: state.attempted.as_ref().map(ToString::to_string),
            revision: Some(revision),
            handled: state.request.clone().filter(|_| finished || outcome.left == 0),
            problems: Some(&problems),
            plan: Some(&plan),
            counts: Some(&counts),
            no_delete_due: plan.due <= outcome.pruned,
            failed: outcome.failures.len() + blocked,
            approved: approved.filter(|_| unfinished),
            pending: pending.clone(),
            recalled,
            done,
            stages: Some(stages),
            suspended: false,
            blind: false,
            silent: None,
            now: now(),
        };
        let written = self.tell(subject, report).await;
        // What waited for the commit to be applied may go on.
        drop(turn);
        if let Some((ready, reason, note)) = event {
            self.events.tell(sync.as_ref(), ready, &reason, &note).await;
        }
        self.tell_drift(sync, &outcome.drifts).await;
        written?;
        state.pending = Some(pending);

        if finished {
            state.trigger = "Cluster";
            state.started = None;
        }
        state.attempts = if retry { state.attempts.saturating_add(1) } else { 0 };
        let mut wait = fought.map_or(state.until_poll(), |fought| fought.min(state.until_poll()));
        if carried.unseen.is_some() {
            wait = wait.min(LOOK_AGAIN);
        }
        if carried.refusal.is_some() || state.denied_until.is_some() {
            wait = wait.min(retry_after(subject));
        }
        if retry {
            wait = wait.min(backoff(state.attempts));
        } else if outcome.left > 0 {
            // The next piece.
            wait = Duration::ZERO;
        }
        Ok(Next::After(wait))
    }
}
