//! One pass for a GitSync: look at the remote if it is time, plan, write, tell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::carry::Carry;
use super::desired::SyncRef;
use super::loaded::Loaded;
use super::look::Looks;
use super::machine::effect::{Call, Effect, Event, Reply};
use super::machine::io::Io;
use super::machine::{Ended, Moved};
use super::rights::{Rules, retry_after};
use super::siblings::{GIVE_UP, Siblings};
use super::space::Space;
use super::spoken::Spoken;
use super::state::State;
use super::status::{Done, Report, status};
use super::tell::{outcome_word, unready};
use super::touched::Touched;
use super::verdict::{READING, Verdict, unwatched, verdict};
use super::words::{Came, Reason, Said, Trigger};
use crate::api::git_sync::{GitSyncStatus, HistoryEntry};
use crate::api::{GitSync, keys};
use crate::cluster::call_error::CallError;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::git::Revision;
use crate::next::{Next, delay};

/// How long a first look at a remote may take before the status says that it is under way.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many syncs are remembered that could not be told: as many as a history has.
const MOST_UNTOLD: usize = 10;
/// How often kinds that the cluster does not list are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

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
        self.wake(io, self.siblings.forget(key));
        self.touched.forget(key);
        self.spoken.forget(key);
        self.looks.forget(&key.name);
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
        let subject = Subject { io, key: &key, entry: &entry, sync: &sync, generation };
        if let Some(said) = self.spoken.answer(&key, &entry.uid, subject.status(), io.now()) {
            tracing::info!(object = %key, "somebody else has written the status: ours is written again");
            self.write_status(&subject, |_| said).await?;
            return Ok(Next::After(Duration::ZERO));
        }
        self.sync(&mut state, &subject).await
    }

    /// Says of which kinds there is no complete list: then nothing proves anything, and nothing is done.
    async fn unlisted(&self, io: &Io, key: &Key) -> Ended {
        let kinds = self.stores.pending().join(", ");
        let entry = self.stores.git_syncs.get(key).filter(|entry| !entry.value.facts.deleting);
        let sync = entry.as_ref().and_then(|entry| entry.value.object());
        if let (Some(entry), Some(sync)) = (&entry, sync.filter(|sync| !sync.spec.suspend)) {
            tracing::debug!(object = %key, kinds, "waiting for complete lists");
            let message = format!(
                "nothing is synced until the cluster lists its objects of kind {kinds}; is all of deploy/crds.yaml applied?"
            );
            let generation = sync.metadata.generation.unwrap_or(0);
            let subject = Subject { io, key, entry, sync: &sync, generation };
            let mut verdict = unready(Said::KindsNotListed, &message, false);
            verdict.reconciling = true;
            let report = Report::of(generation, verdict, io.time());
            self.tell(&subject, report).await?;
        }
        Ok(Next::After(LOOK_AGAIN))
    }

    /// A GitSync of which not all can be read: nothing is done for it, and it says so.
    async fn unreadable(&self, io: &Io, key: &Key, entry: &Entry<Managed<GitSync>>) -> Ended {
        let error = entry.value.parse_error().unwrap_or_default();
        tracing::warn!(object = %key, error, "this GitSync does not parse");
        let live = match io.ask(None, Call::GetSync { name: key.name.clone() }).await {
            Ok(Reply::Object(live)) => live,
            Err(error) if error.is_gone() => return Ok(Next::Settled),
            Err(error) => return Err(EngineError::Status(error)),
            Ok(_) => return Ok(Next::Settled),
        };
        let raw = live.data.get("status").cloned().unwrap_or_default();
        // It may be just this part that is wrong.
        let old = serde_json::from_value(raw.clone()).unwrap_or_default();
        let message = format!(
            "this GitSync cannot be read by this version of Convoke: {error}; nothing is done for it until its spec is changed"
        );
        let generation = live.metadata.generation.unwrap_or_default();
        let verdict = unready(Said::InvalidSpec, &message, true);
        let new = status(Some(&old), Report::of(generation, verdict, io.time()));
        if serde_json::to_value(&new).ok() == Some(raw) {
            return Ok(Next::Settled);
        }
        let (name, uid) = (key.name.clone(), entry.uid.clone());
        self.spoken.say(key, &uid, &new, Some(&old));
        match io.ask(None, Call::Status { name, uid, status: Box::new(new) }).await {
            Err(error) if !error.is_gone() => Err(EngineError::Status(error)),
            _ => Ok(Next::Settled),
        }
    }

    async fn sync(&self, state: &mut State, subject: &Subject<'_>) -> Ended {
        let io = subject.io;
        if state.bar.note(subject.generation, subject.annotation(keys::APPROVE_PRUNE)) {
            // One that is suspended contests nothing until it is resumed.
            self.wake(io, self.siblings.rivals(subject.key));
        }
        if !subject.sync.spec.suspend {
            // Whatever it may write itself: others may wait to hear what it wants.
            self.look(state, subject);
        }
        self.prepare_end(subject).await?;
        if subject.sync.spec.suspend {
            // What is found meanwhile would be old news when it goes on.
            self.stop_looking(state, subject);
            let mut report = subject.blank(unready(Said::Suspended, "", false), state);
            report.suspended = true;
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
            (Some(failure), _) => {
                let mut said =
                    unready(Reason::Source(failure.reason), &failure.message, failure.terminal);
                said.reconciling = !failure.terminal;
                said
            }
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
        let Subject { io, key, sync, generation, .. } = subject;
        let began = io.now();
        let Carry {
            plan,
            recalled,
            pending,
            outcome,
            blocked,
            carried,
            approved,
            handled,
            problems,
            stages,
            counts,
        } = self.carry_out(state, subject, loaded).await?;
        let writes = outcome.created + outcome.updated + outcome.pruned;
        if outcome.stopped && writes == 0 {
            return Ok(Next::After(Duration::ZERO));
        }
        if state.remote.owed && state.remote.polling().is_none() && plan.is_settled() {
            // Nothing was done, and the next pass begins with a look.
            return Ok(Next::After(Duration::ZERO));
        }
        let asked = state.remote.polling().filter(|_| carried.unanswered && plan.is_settled());
        if asked
            .is_some_and(|question| io.now().saturating_duration_since(question.began) < PATIENCE)
        {
            // Nothing was done, and most remotes answer in a moment.
            return Ok(Next::After(PATIENCE));
        }

        let revision = loaded.revision.to_string();
        let waiting = waits.is_some();
        let mut said = waits.unwrap_or_else(|| verdict(&revision, &problems, &plan, &carried));
        if let Some(failure) = state.remote.source_error.as_ref().filter(|_| !carried.unanswered) {
            said = unready(Reason::Source(failure.reason), &failure.message, failure.terminal);
            said.reconciling = !failure.terminal;
        }
        if outcome.stopped {
            let message = format!(
                "{revision}: {writes} object(s) were written or deleted before the GitSync or its commit changed"
            );
            said = unready(Said::Progressing, &message, false);
            said.reconciling = true;
        }
        let failed = carried.transient > 0 || carried.refusal.is_some();
        let applied = said.ready;
        if let (true, Some(silent)) = (applied, self.stores.silent()) {
            said = unwatched(&revision, &silent);
        }
        let result = outcome_word(&said, &plan, failed);
        let last = subject.status().and_then(|status| status.history.first());
        // What was applied whole once is no news when it can only not be watched.
        let other =
            |h: &HistoryEntry| h.revision != revision || (h.outcome != result.as_str() && !applied);
        let news = writes > 0
            || !state.telling.untold.is_empty()
            || (!waiting
                && !said.reason.is(Said::Progressing)
                && last.is_none_or(|h| other(h) || (said.ready && h.outcome != result.as_str())));
        let done = news.then(|| Done {
            revision: revision.clone(),
            author: loaded.info.author.clone(),
            subject: loaded.info.subject.clone(),
            outcome: result,
            counts: (outcome.created, outcome.updated, outcome.pruned),
            duration_ms: io.millis_since(state.telling.started.unwrap_or(began)),
            trigger: state.telling.trigger,
        });
        let event = news.then(|| {
            tracing::info!(object = %key, revision, outcome = result.as_str(), created = outcome.created,
                updated = outcome.updated, pruned = outcome.pruned, reason = said.reason.as_str(), "synced");
            let note = format!(
                "{} ({} created, {} updated, {} pruned)",
                said.message, outcome.created, outcome.updated, outcome.pruned
            );
            // An end that is awaited is nothing bad.
            (said.ready || said.reason.is(Said::Terminating), said.reason, note)
        });
        let untold = std::mem::take(&mut state.telling.untold);
        let done = told_with(not_arrived(untold, last), done);
        // What is not any more what was planned with is planned anew, whether or not the change alone starts a plan.
        let retry =
            carried.transient > 0 || (carried.undeleted > 0 && !waiting) || outcome.taken > 0;
        let fought = carried.wait;
        let finished = !said.reason.is(Said::Progressing);
        let report = Report {
            generation: *generation,
            verdict: said,
            attempted: state.remote.attempted.as_ref().map(ToString::to_string),
            revision: Some(revision),
            handled: state
                .remote
                .request
                .clone()
                .filter(|_| finished || (outcome.left == 0 && !outcome.stopped)),
            problems: Some(&problems),
            plan: Some(&plan),
            counts: Some(&counts),
            no_delete_due: plan.proves_its_size(outcome.pruned),
            failed: outcome.failures.len() + blocked,
            approved,
            handled_approval: handled,
            pending: pending.clone(),
            recalled,
            done: done.clone(),
            stages: Some(stages),
            suspended: false,
            blind: false,
            silent: None,
            now: io.time(),
        };
        // Until it is told: this pass may be given up just now. It is said with what is said next.
        let more = done.len().saturating_sub(MOST_UNTOLD);
        state.telling.untold = done[more..].to_vec();
        let written = self.tell(subject, report).await;
        // What waited for the commit to be applied may go on.
        io.tell(Effect::Writing(false));
        if let Some((good, reason, note)) = event {
            let about = Arc::clone(sync);
            io.tell(Effect::Event(Box::new(Event {
                about,
                good,
                reason: reason.to_string(),
                note,
            })));
        }
        self.tell_drift(subject, &outcome.drifts);
        self.tell_outdated(state, subject, &plan, outcome.pruned);
        written?;
        state.telling.untold.clear();
        state.latch = Some(pending);
        if outcome.stopped {
            return Ok(Next::After(Duration::ZERO));
        }

        if finished {
            state.telling.trigger = Trigger::Cluster;
            state.telling.started = None;
        }
        state.plans.attempts = if retry { state.plans.attempts.saturating_add(1) } else { 0 };
        let until_poll = state.remote.until_poll(io.now());
        let mut wait = fought.map_or(until_poll, |fought| fought.min(until_poll));
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
            wait = wait.min(io.jitter(delay(state.plans.attempts)));
        } else if outcome.left > 0 {
            // The next piece.
            wait = Duration::ZERO;
        }
        Ok(Next::After(wait))
    }
}

/// What was done, after what was done before and could not be told. What belongs to one commit is one entry.
fn told_with(mut untold: Vec<Done>, new: Option<Done>) -> Vec<Done> {
    let Some(mut new) = new else { return untold };
    let wrote_nothing = new.counts == (0, 0, 0);
    if let Some(last) = untold.pop_if(|last| last.revision == new.revision) {
        let (created, updated, pruned) = last.counts;
        new.counts.0 += created;
        new.counts.1 += updated;
        new.counts.2 += pruned;
        new.duration_ms = new.duration_ms.max(last.duration_ms);
        new.trigger = last.trigger;
        if wrote_nothing && last.outcome != Came::Progressing && new.outcome != Came::Applied {
            // What became of it then is what its counts are of.
            new.outcome = last.outcome;
        }
    }
    untold.push(new);
    untold
}

/// Without what has arrived although there was no reply: it is the newest entry of the history.
fn not_arrived(mut untold: Vec<Done>, newest: Option<&HistoryEntry>) -> Vec<Done> {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let same = |done: &Done, entry: &HistoryEntry| {
        let (created, updated, pruned) = done.counts;
        (&*done.revision, done.outcome.as_str(), done.duration_ms)
            == (&*entry.revision, &*entry.outcome, entry.duration_ms)
            && [created, updated, pruned].map(count) == [entry.created, entry.updated, entry.pruned]
    };
    if untold.last().zip(newest).is_some_and(|(done, entry)| same(done, entry)) {
        untold.clear();
    }
    untold
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn done(revision: &str, outcome: Came, created: usize) -> Done {
        Done {
            revision: revision.into(),
            author: String::new(),
            subject: String::new(),
            outcome,
            counts: (created, 0, 0),
            duration_ms: 5,
            trigger: Trigger::Interval,
        }
    }

    #[test]
    fn g18_what_could_not_be_told_is_told_with_what_is_done_next_for_its_commit() {
        let told = told_with(vec![done("a", Came::Applied, 2)], Some(done("a", Came::Partial, 1)));
        assert_eq!(told, [done("a", Came::Partial, 3)]);
        // What comes after it and writes nothing does not change what became of it.
        let told = told_with(vec![done("a", Came::Applied, 2)], Some(done("a", Came::Failed, 0)));
        assert_eq!(told, [done("a", Came::Applied, 2)]);
        // Unless all is well then, because somebody else has written it for example.
        for before in [Came::Progressing, Came::Failed, Came::Partial] {
            let told = told_with(vec![done("a", before, 2)], Some(done("a", Came::Applied, 0)));
            assert_eq!(told, [done("a", Came::Applied, 2)]);
        }
        let told = told_with(vec![done("a", Came::Applied, 2)], Some(done("b", Came::Applied, 1)));
        assert_eq!(told, [done("a", Came::Applied, 2), done("b", Came::Applied, 1)]);
        assert_eq!(
            told_with(vec![done("a", Came::Applied, 2)], None),
            [done("a", Came::Applied, 2)]
        );
    }

    #[test]
    fn g18_what_has_arrived_without_a_reply_is_not_told_twice() {
        let entry = |created| HistoryEntry {
            revision: "a".into(),
            author: None,
            subject: None,
            outcome: "Applied".into(),
            created,
            updated: 0,
            pruned: 0,
            duration_ms: 5,
            trigger: "Interval".into(),
            time: Time(Timestamp::UNIX_EPOCH),
        };
        let untold = || vec![done("a", Came::Applied, 2)];
        assert_eq!(not_arrived(untold(), Some(&entry(2))), []);
        assert_eq!(not_arrived(untold(), Some(&entry(1))), untold());
        assert_eq!(not_arrived(untold(), None), untold());
    }
}
