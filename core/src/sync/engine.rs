//! One pass for a GitSync: look at the remote if it is time, plan, write, tell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::approvals::taken_back;
use super::carry::Carry;
use super::desired::SyncRef;
use super::history::{event, newest, news, not_arrived, told_with};
use super::loaded::Loaded;
use super::look::Looks;
use super::machine::effect::Effect;
use super::machine::io::Io;
use super::machine::{Ended, Moved};
use super::rights::{Rules, retry_after};
use super::siblings::{GIVE_UP, Siblings};
use super::space::Space;
use super::spoken::Spoken;
use super::state::{SourceFailure, State};
use super::status::{Done, Report};
use super::tell::unready;
use super::touched::Touched;
use super::verdict::{READING, Verdict, unwatched, verdict};
use super::words::{Reason, Said, Trigger};
use crate::api::git_sync::{ApprovedPrune, GitSyncStatus};
use crate::api::{GitSync, keys};
use crate::cluster::call_error::CallError;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::git::Revision;
use crate::next::{Next, delay};

/// How long a first look at a remote may take before the status says that it is under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often kinds that the cluster does not list are looked for.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What decides for the GitSyncs of one namespace. All that it keeps can be made anew.
pub struct Engine {
    pub(super) namespace: String,
    pub(super) stores: Stores,
    pub(super) rules: Rules,
    pub(super) touched: Arc<Touched>,
    pub(super) spoken: Arc<Spoken>,
    pub(super) siblings: Siblings,
    pub(super) looks: Looks,
    states: Mutex<BTreeMap<String, Arc<futures::lock::Mutex<State>>>>,
}

/// Why a pass has to be tried again as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
    /// The finalizer could not be set or taken away.
    #[error("cannot write the finalizer: {0}")]
    Finalizer(#[source] CallError),
    /// A pass waits for nothing.
    #[error("internal error: a pass waits for nothing")]
    Stuck,
}

/// One GitSync as a reconcile looks at it.
pub(super) struct Subject<'a> {
    pub io: &'a Io,
    pub key: &'a Key,
    pub entry: &'a Entry<Managed<GitSync>>,
    pub sync: &'a Arc<GitSync>,
    pub generation: i64,
    /// What counts instead of its status, if somebody else has written over what this operator has said.
    pub own: Option<&'a GitSyncStatus>,
}

impl<'a> Subject<'a> {
    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        self.sync.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn status(&self) -> Option<&'a GitSyncStatus> {
        self.own.or(self.sync.status.as_ref())
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
            attempted: state.remote.attempted.as_ref().map(ToString::to_string),
            handled: state.remote.request.clone(),
            ..Report::of(self.generation, verdict, self.io.time())
        }
    }
}

impl Engine {
    /// An engine for one namespace, over these stores. What has changed in them is told by `touched` and `spoken`.
    #[must_use]
    pub fn new(
        namespace: &str,
        stores: Stores,
        rules: Rules,
        touched: Arc<Touched>,
        spoken: Arc<Spoken>,
    ) -> Self {
        let (siblings, looks, states) = (Siblings::default(), Looks::default(), Mutex::default());
        Self {
            namespace: namespace.to_owned(),
            stores,
            rules,
            touched,
            spoken,
            siblings,
            looks,
            states,
        }
    }

    pub(super) fn states(
        &self,
    ) -> MutexGuard<'_, BTreeMap<String, Arc<futures::lock::Mutex<State>>>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state(&self, key: &Key, uid: &str) -> Arc<futures::lock::Mutex<State>> {
        let fresh = || Arc::new(futures::lock::Mutex::new(State::new(uid)));
        self.states().entry(key.name.clone()).or_insert_with(fresh).clone()
    }

    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.states().is_empty()
    }

    /// Something besides objects of the cluster has changed for a GitSync: it looks at its remote.
    pub(super) fn changed(&self, name: &str, what: Moved) {
        self.looks.moved(name, what);
    }

    pub(super) fn forget(&self, io: &Io, key: &Key) {
        // First: what a look finds from now on is told to nobody.
        self.looks.forget(&key.name);
        self.wake(io, self.siblings.forget(key));
        self.touched.forget(key);
        self.spoken.forget(key);
        self.states().remove(&key.name);
        io.tell(Effect::Forget);
    }

    #[allow(clippy::unused_self)] // it is of this namespace
    pub(super) fn wake(&self, io: &Io, keys: Vec<Key>) {
        for key in keys {
            io.tell(Effect::Wake(key.name, Duration::ZERO));
        }
    }

    /// The live objects of our kinds in the namespace.
    pub(super) fn space<'a>(&'a self, namespace: &'a str) -> Space<'a> {
        Space { stores: &self.stores, namespace }
    }

    /// What the others of the namespace want, and which of them there are, may have changed when this number has. Passes of
    /// one namespace run beside each other, so it is asked for before what it is to guard is looked at.
    pub(super) fn news(&self) -> u64 {
        self.siblings.news(&self.namespace) + self.touched.syncs_changed(&self.namespace)
    }

    /// One pass for the GitSync of that name.
    ///
    /// # Errors
    /// When what it had to say could not be written: then it is tried again.
    pub async fn reconcile(&self, io: &Io, name: &str) -> Ended {
        let key = Key::new(&*self.namespace, name);
        if !self.stores.pending().is_empty() {
            return self.unlisted(io, &key).await;
        }
        let Some(entry) = self.stores.git_syncs.get(&key) else {
            self.forget(io, &key);
            return Ok(Next::Forget);
        };
        let sync = entry.value.object();
        if entry.value.facts.deleting || sync.as_ref().is_none_or(|sync| sync.spec.suspend) {
            // It will not look: whoever waits for that is to see it.
            self.wake(io, self.siblings.take_waiters(&key));
        }
        if entry.value.facts.deleting {
            return self.end(io, &key, &entry).await;
        }
        let Some(sync) = sync else {
            return self.unreadable(io, &key, &entry).await;
        };
        let state = self.state(&key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            drop(state);
            self.forget(io, &key);
            return Ok(Next::After(Duration::ZERO));
        }
        let generation = sync.metadata.generation.unwrap_or(0);
        let live = sync.status.as_ref();
        let own = self.spoken.own(&key, &entry.uid, live);
        let own = own.as_ref();
        let subject = Subject { io, key: &key, entry: &entry, sync: &sync, generation, own };
        let approved = taken_back(&mut state, &self.touched, &subject);
        let answer = own.and_then(|_| self.spoken.answer(&key, &entry.uid, live, io.now()));
        if let Some(said) = answer {
            tracing::info!(object = %key, "somebody else has written the status: ours is written again");
            self.write_status(&subject, |_| said).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        self.sync(&mut state, &subject, approved).await
    }

    /// The same for one that is not being deleted. What was `approved` is taken back.
    async fn sync(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        approved: Option<&ApprovedPrune>,
    ) -> Ended {
        let io = subject.io;
        if state.bar.note(subject.generation, subject.annotation(keys::APPROVE_PRUNE)) {
            // One that is suspended contests nothing until it is resumed.
            self.wake(io, self.siblings.rivals(subject.key));
        }
        if !subject.sync.spec.suspend {
            // Whatever it may write itself: others may wait to hear what it wants.
            self.look(state, subject);
        }
        if let Some(approved) = approved {
            // Here and not in a plan: there is none while nothing can be read.
            return self.take_back(state, subject, approved).await;
        }
        self.prepare_end(subject).await?;
        if subject.sync.spec.suspend {
            // What is found meanwhile would be old news when it goes on.
            self.stop_looking(state, subject);
            let mut report = subject.blank(unready(Said::Suspended, "", false), state);
            report.suspended = true;
            // What was found of it is not applied.
            report.handled = None;
            self.tell(subject, report).await?;
            return Ok(Next::Settled);
        }
        let name = subject.sync.spec.service_account_name.as_deref();
        if let Err(refusal) = self.rules.account(&subject.key.namespace, name) {
            let report = subject.blank(unready(refusal.reason, &refusal.message, true), state);
            self.tell(subject, report).await?;
            return Ok(Next::Settled);
        }

        // A spec that names other files is answered by a look for it, and by nothing older.
        let loaded =
            state.remote.loaded.clone().filter(|loaded| loaded.answers(&subject.sync.spec));
        if let Some(loaded) = loaded {
            let newest = loaded.clone();
            let turn = self.turn(state, subject, loaded);
            if let Some(loaded) = turn.loaded {
                return self.bring(state, subject, &loaded, turn.waits).await;
            }
            if let Some(waits) = turn.waits {
                self.offer_all(state, subject);
                let mut report = subject.blank(waits, state);
                report.problems = Some(&newest.catalog.problems);
                // Before the first commit is applied there is nothing to watch.
                report.blind = subject.last_applied().is_some();
                self.tell(subject, report).await?;
                return Ok(Next::After(state.remote.until_poll(io.now())));
            }
        }
        let failure = state
            .remote
            .source_error
            .clone()
            .filter(|_| state.remote.generation == subject.generation);
        let verdict = match (failure, state.remote.polling()) {
            (Some(failure), _) => unread(&failure),
            // Most remotes answer in a moment: there is nothing to say before that.
            (None, Some(question))
                if io.now().saturating_duration_since(question.began) < PATIENCE =>
            {
                return Ok(Next::After(PATIENCE));
            }
            (None, _) => {
                let mut said = unready(Said::Progressing, READING, false);
                said.reconciling = true;
                said
            }
        };
        let polling = state.remote.polling().is_some();
        let seen = subject.status().and_then(|status| status.observed_generation);
        // After a restart of the operator nothing is known for a moment, and nothing is worth telling.
        if !verdict.reason.is(Said::Progressing) || seen != Some(subject.generation) {
            let mut report = subject.blank(verdict, state);
            report.blind = state.remote.source_error.is_some();
            self.tell(subject, report).await?;
        }
        Ok(Next::After(if polling { PATIENCE } else { state.remote.until_poll(io.now()) }))
    }

    /// Brings the namespace where a commit wants it, and tells: the newest that was read whole, or while that `waits`
    /// the one before.
    async fn bring(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
        waits: Option<Verdict>,
    ) -> Ended {
        let io = subject.io;
        let began = io.now();
        let carry = self.carry_out(state, subject, loaded).await?;
        if let Some(wait) = too_early(state, io, &carry) {
            return Ok(Next::After(wait));
        }
        let waiting = waits.is_some();
        let said = self.judge(state, loaded, &carry, waits);
        let finished = !said.reason.is(Said::Progressing);
        let news = news(state, subject, loaded, &carry, &said, waiting, began);
        self.report(state, subject, loaded, &carry, said, news).await?;
        if carry.outcome.stopped {
            return Ok(Next::After(Duration::ZERO));
        }
        if finished {
            state.telling.trigger = Trigger::Cluster;
            state.telling.started = None;
        }
        Ok(Next::After(come_back(state, subject, &carry, waiting)))
    }

    /// What is to be said of a commit after its plan was carried out, as far as it was.
    fn judge(
        &self,
        state: &State,
        loaded: &Loaded,
        carry: &Carry,
        waits: Option<Verdict>,
    ) -> Verdict {
        let Carry { plan, outcome, carried, problems, .. } = carry;
        let revision = loaded.revision.to_string();
        if outcome.stopped {
            let writes = carry.writes();
            let message = format!(
                "{revision}: {writes} object(s) were written or deleted before the GitSync or its commit changed"
            );
            let mut said = unready(Said::Progressing, &message, false);
            said.reconciling = true;
            return said;
        }
        if let Some(failure) = state.remote.source_error.as_ref().filter(|_| !carried.unanswered) {
            return unread(failure);
        }
        let said = waits.unwrap_or_else(|| verdict(&revision, problems, plan, carried));
        match self.stores.silent().filter(|_| said.ready) {
            Some(silent) => unwatched(&revision, &silent),
            None => said,
        }
    }

    /// Writes the status, and tells events of what it says and of what became of single objects.
    async fn report(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        loaded: &Loaded,
        carry: &Carry,
        said: Verdict,
        news: Option<Done>,
    ) -> Result<(), EngineError> {
        let Carry { plan, outcome, .. } = carry;
        let finished =
            !said.reason.is(Said::Progressing) || (outcome.left == 0 && !outcome.stopped);
        let is_news = news.is_some();
        let last = subject.status().and_then(|status| status.history.first());
        let untold = std::mem::take(&mut state.telling.untold);
        let done = told_with(not_arrived(untold, last), news);
        let event = done.last().filter(|_| is_news).map(|done| event(subject, &said, done));
        let report = Report {
            generation: subject.generation,
            verdict: said,
            attempted: state.remote.attempted.as_ref().map(ToString::to_string),
            revision: Some(loaded.revision.to_string()),
            handled: state.remote.request.clone().filter(|_| finished),
            problems: Some(&carry.problems),
            plan: Some(plan),
            counts: Some(&carry.counts),
            no_delete_due: plan.proves_its_size(outcome.pruned),
            failed: outcome.failures.len() + carry.blocked,
            approved: carry.approved.clone(),
            handled_approval: carry.handled.clone(),
            pending: carry.pending.clone(),
            recalled: carry.recalled,
            done: done.clone(),
            stages: Some(carry.stages.clone()),
            suspended: false,
            blind: false,
            silent: None,
            now: subject.io.time(),
        };
        // Until it is told: this pass may be given up just now. It is said with what is said next.
        state.telling.untold = newest(&done);
        if carry.outdated.is_some() {
            state.telling.outdated.clone_from(&carry.outdated);
        }
        let written = self.tell_news(subject, report, event).await;
        // What waited for the commit to be applied may go on.
        subject.io.tell(Effect::Writing(false));
        self.tell_objects(state, subject, carry);
        written?;
        let given = state.telling.outdated.take();
        if let Some(given) = given.filter(|it| subject.annotation(keys::APPROVE_PRUNE) == Some(it))
        {
            // After that the status says that it was acted on.
            self.tell_outdated(subject, &given, plan.held.as_ref());
        }
        state.telling.untold.clear();
        state.latch = Some(carry.pending.clone());
        Ok(())
    }
}

/// Not Ready, because the newest commit cannot be read.
fn unread(failure: &SourceFailure) -> Verdict {
    let mut said = unready(Reason::Source(failure.reason), &failure.message, failure.terminal);
    said.reconciling = !failure.terminal;
    said
}

/// When to come back, if nothing was done and there is nothing to tell yet.
fn too_early(state: &State, io: &Io, carry: &Carry) -> Option<Duration> {
    if carry.outcome.stopped && carry.writes() == 0 {
        return Some(Duration::ZERO);
    }
    if !carry.plan.is_settled() {
        return None;
    }
    let question = state.remote.polling();
    if state.remote.owed && question.is_none() {
        // The next pass begins with a look.
        return Some(Duration::ZERO);
    }
    // Most remotes answer in a moment.
    let asked = question.filter(|_| carry.carried.unanswered)?;
    (io.now().saturating_duration_since(asked.began) < PATIENCE).then_some(PATIENCE)
}

/// When to come back after all was told.
fn come_back(state: &mut State, subject: &Subject<'_>, carry: &Carry, waiting: bool) -> Duration {
    let Carry { outcome, carried, .. } = carry;
    // What is not any more what was planned with is planned anew, whether or not the change alone starts a plan.
    let retry = carried.transient > 0 || (carried.undeleted > 0 && !waiting) || outcome.taken > 0;
    state.plans.attempts = if retry { state.plans.attempts.saturating_add(1) } else { 0 };
    let mut wait = state.remote.until_poll(subject.io.now());
    if let Some(fought) = carried.wait {
        wait = wait.min(fought);
    }
    if carried.unseen.is_some() {
        wait = wait.min(LOOK_AGAIN);
    }
    if !carried.asked.is_empty() {
        wait = wait.min(GIVE_UP);
    }
    if carried.refusal.is_some() || state.plans.denied_until.is_some() {
        wait = wait.min(retry_after(subject));
    }
    if retry {
        wait = wait.min(subject.io.jitter(delay(state.plans.attempts)));
    } else if outcome.left > 0 {
        // The next piece.
        wait = Duration::ZERO;
    }
    wait
}
