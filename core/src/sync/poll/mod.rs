//! When a remote is polled, and what its answer changes. The poll itself runs concurrently with the reconciles.

pub mod pace;
pub mod remote;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::{ObjectId, keys};
use crate::cluster::store::Key;
use crate::order::Seq;
use crate::sync::commit::loaded::{Loaded, MAX_SPEC_TIMEOUT};
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::effect::{Effect, PollRequest};
use crate::sync::io::poll::{Answer, AnswerSlot, Found, Question, SourceFailure};
use crate::sync::peers::hand_over::{Announced, Peers};
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::Trigger;
use crate::sync::subject::Subject;
use crate::time::parse_duration;

/// A change besides objects of the cluster that makes a GitSync poll its remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The values that `spec.variables` names.
    Variables,
    /// The folder that takes the place of the repository.
    Folder,
    /// A ref of the repository, as a webhook tells. It is trusted in nothing else.
    Webhook,
    /// The ref, as a list of refs shows that was made for another GitSync of the repository.
    SharedRef,
}

/// How long a poll may take beyond `spec.timeout`, which is the time for one answer of the remote: hundreds of other
/// polls may come first.
const MOST_POLL_QUEUE_TIME: Duration = Duration::from_secs(30 * 60);

/// What makes one GitSync poll, besides time and spec, and the poll that is under way.
#[derive(Default)]
struct PollState {
    /// Since when the variables have changed, until a poll that began later has ended.
    variables: Option<Seq>,
    /// The same for the folder.
    folder: Option<Seq>,
    /// The same for the repository, as far as webhooks tell.
    pushed: Option<Seq>,
    /// The same for the ref, as far as other GitSyncs know. The answer that they have got is good enough.
    shared: bool,
    /// The poll that is under way.
    open: Option<OpenPoll>,
}

/// A poll that is under way.
struct OpenPoll {
    /// When it began.
    at: Seq,
    /// UID and generation of its GitSync.
    of: (String, i64),
    /// Where its answer is put.
    slot: AnswerSlot,
}

/// The polls of a namespace, by the names of the GitSyncs.
#[derive(Default)]
pub(crate) struct Polls(Mutex<BTreeMap<String, PollState>>);

impl Polls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PollState>> {
        self.0.lock()
    }

    /// Notes a change that needs a poll.
    pub(crate) fn moved(&self, name: &str, what: Moved) {
        let mut all = self.lock();
        let polling = all.entry(name.to_owned()).or_default();
        match what {
            Moved::Variables => polling.variables = Some(Seq::next()),
            Moved::Folder => polling.folder = Some(Seq::next()),
            // A poll that is under way may have asked before the push: only a later one answers this.
            Moved::Webhook => polling.pushed = Some(Seq::next()),
            Moved::SharedRef => polling.shared = true,
        }
    }

    /// Which change needs a poll, if any.
    fn trigger(&self, name: &str) -> Option<Trigger> {
        let all = self.lock();
        let polling = all.get(name)?;
        let folder = polling.folder.map(|_| Trigger::Folder);
        let pushed = polling.pushed.map(|_| Trigger::Webhook);
        let shared = polling.shared.then_some(Trigger::SharedRef);
        polling.variables.map(|_| Trigger::Variables).or(folder).or(pushed).or(shared)
    }

    fn began(&self, name: &str, poll: OpenPoll) {
        let mut all = self.lock();
        let polling = all.entry(name.to_owned()).or_default();
        (polling.open, polling.shared) = (Some(poll), false);
    }

    /// A poll that began at `at` has ended: it has read all changes before that.
    fn ended(&self, name: &str, at: Seq) {
        let mut all = self.lock();
        let Some(polling) = all.get_mut(name) else { return };
        polling.variables.take_if(|since| *since < at);
        polling.folder.take_if(|since| *since < at);
        polling.pushed.take_if(|since| *since < at);
        let moved = [polling.variables, polling.folder, polling.pushed];
        if moved.iter().all(Option::is_none) && !polling.shared && polling.open.is_none() {
            all.remove(name);
        }
    }

    /// Whether the poll that began at `at` is still under way, for tests.
    #[cfg(test)]
    pub(crate) fn awaits(&self, name: &str, at: Seq) -> bool {
        let all = self.lock();
        all.get(name).and_then(|polling| polling.open.as_ref()).is_some_and(|open| open.at == at)
    }

    /// The GitSyncs that have an entry, for tests.
    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }
}

/// Begins and ends the polls of a namespace, and announces their answers to the peers.
pub(crate) struct Poller<'a> {
    pub polls: &'a Polls,
    pub peers: &'a Peers,
}

/// What a poll needs to know of the live objects.
pub(crate) struct PollContext {
    /// Objects whose earlier definitions are kept and are of no use any more.
    pub needless: BTreeSet<ObjectId>,
    /// Whether some object carries the mark of the GitSync.
    pub has_objects: bool,
    /// Whether the commit that was applied last is to be read besides the newest one.
    pub reads_last: bool,
}

/// What the answer of a poll changes besides [`Remote`].
pub(crate) struct PollResult {
    /// What started the poll.
    pub trigger: Trigger,
    /// When it began.
    pub began: Instant,
    /// Whether another commit was read.
    pub changed: bool,
    /// The commit that was applied before, if it had to be read again.
    pub recalled: Option<Arc<Loaded>>,
}

impl Poller<'_> {
    /// A poll has ended. Its answer stops writes that are under way, and the next reconcile takes it in. The peers
    /// learn at once what the GitSync wants: they may be about to delete it.
    pub(crate) fn ended(&self, key: &Key, at: Seq, found: Found) {
        // Locked until the answer is in its slot: a GitSync that is suspended meanwhile finds either the poll or the answer.
        let mut all = self.polls.lock();
        let open =
            all.get_mut(&key.name).and_then(|polling| polling.open.take_if(|open| open.at == at));
        let Some(OpenPoll { of: (uid, generation), slot, .. }) = open else { return };
        let (loaded, failed, polled) = if let Ok(answer) = &found {
            (answer.loaded.clone(), answer.failure.is_some(), answer.asked)
        } else {
            let before = self.peers.announced(key).filter(|before| before.uid == uid);
            (before.and_then(|before| before.loaded), true, at)
        };
        self.peers
            .announce_unreconciled(key, Announced { uid, generation, polled, loaded, failed });
        *slot.lock() = Some(found);
    }

    /// Gives up the poll that is under way; the next poll begins as soon as it may. The answer of a poll that has just
    /// ended is taken in: the peers know it already.
    pub(crate) fn stop(&self, remote: &mut Remote, subject: &Subject<'_>) -> Option<PollResult> {
        if let Some(polling) = self.polls.lock().get_mut(&subject.key.name) {
            polling.open = None;
        }
        let result = remote.take_answer().map(|answer| self.record_answer(remote, subject, answer));
        if remote.polling().is_some() {
            subject.io.emit(Effect::StopPolling);
        }
        remote.stop_polling();
        result
    }

    /// Takes in the answer of a poll that has ended, or that does not end.
    pub(crate) fn take_in(&self, remote: &mut Remote, subject: &Subject<'_>) -> Option<PollResult> {
        let Subject { io, key, sync, .. } = subject;
        if let Some(answer) = remote.take_answer() {
            return Some(self.record_answer(remote, subject, answer));
        }
        let question = remote.polling()?.clone();
        let timeout = parse_duration(&sync.spec.timeout).unwrap_or_default().min(MAX_SPEC_TIMEOUT);
        if io.now().saturating_duration_since(question.began) < timeout + MOST_POLL_QUEUE_TIME {
            return None;
        }
        // A poll ends long before this: something is wrong, and the status has to say so.
        tracing::warn!(object = %key, "a poll of the remote does not end: it is given up");
        let ended_just_now = self.stop(remote, subject);
        let failure = SourceFailure::from(SourceError::Hangs);
        let answer = Answer::failed(question, failure, remote.loaded.clone());
        let mut result = self.record_answer(remote, subject, answer);
        if let Some(ended) = ended_just_now {
            result.changed |= ended.changed;
            result.recalled = ended.recalled;
        }
        Some(result)
    }

    /// Why the remote is to be polled now, if it is.
    pub(crate) fn due(&self, remote: &Remote, subject: &Subject<'_>) -> Option<Trigger> {
        let Subject { io, key, generation, .. } = subject;
        if remote.polling().is_some() {
            return None;
        }
        let asked = self.peers.is_asked(key).then_some(Trigger::Sibling);
        let asked = self.polls.trigger(&key.name).or(asked);
        remote.due(*generation, subject.annotation(keys::REQUESTED_AT), asked, io.now())
    }

    /// Begins a poll.
    pub(crate) fn begin(
        &self,
        remote: &mut Remote,
        subject: &Subject<'_>,
        trigger: Trigger,
        context: PollContext,
    ) {
        let Subject { io, key, entry, sync, generation, .. } = subject;
        let question = Question {
            trigger,
            generation: *generation,
            request: subject.annotation(keys::REQUESTED_AT).map(str::to_owned),
            began: io.now(),
            at: Seq::next(),
        };
        // If the poll ends without an answer, it is begun again.
        remote.next_poll = Some(io.now() + io.jitter(subject.retry_after()));
        let anew = remote.source_error.as_ref().is_some_and(|failure| failure.distrusts);
        tracing::debug!(object = %key, uid = entry.uid, trigger = trigger.as_str(), "polling the remote");
        let (at, slot) = (question.at, remote.poll(question.clone()));
        self.polls.began(&key.name, OpenPoll { at, of: (entry.uid.clone(), *generation), slot });
        let PollContext { needless, has_objects, reads_last } = context;
        io.emit(Effect::Poll(Box::new(PollRequest {
            sync: (*sync).clone(),
            question,
            anew,
            needless,
            before: subject.last_applied(),
            has_objects,
            applied: subject.applied_before(),
            last: subject.last_applied().filter(|_| reads_last),
        })));
    }

    /// Takes the answer of a poll into `remote`, and announces it to the peers.
    fn record_answer(
        &self,
        remote: &mut Remote,
        subject: &Subject<'_>,
        answer: Answer,
    ) -> PollResult {
        let Subject { io, key, entry, sync, .. } = subject;
        self.polls.ended(&key.name, answer.asked);
        let Answer { question, asked, age, attempted, stages, changed, failure, .. } = answer;
        let (loaded, recalled, webhook) = (answer.loaded, answer.recalled, answer.webhook);
        remote.generation = question.generation;
        // The next plan decides whether an approval needs another poll.
        (remote.last_polled, remote.owes_approval_poll) = (asked, false);
        if attempted.is_some() {
            remote.attempted = attempted;
        }
        if changed {
            remote.stages = stages;
        }
        let interval =
            if failure.is_some() { &sync.spec.retry_interval } else { &sync.spec.interval };
        let interval = parse_duration(interval).unwrap_or(Duration::from_secs(60));
        // The interval counts from when the remote was asked.
        remote.next_poll = Some(io.now() + io.jitter(interval).saturating_sub(age));
        if webhook.is_some() {
            remote.webhook = webhook;
        }
        remote.request = question.request;
        remote.loaded = loaded;
        remote.source_error = failure;
        let announced = Announced {
            uid: entry.uid.clone(),
            generation: question.generation,
            polled: asked,
            loaded: remote.loaded.clone(),
            failed: remote.source_error.is_some(),
        };
        io.wake(self.peers.announce(key, announced));
        PollResult { trigger: question.trigger, began: question.began, changed, recalled }
    }
}
