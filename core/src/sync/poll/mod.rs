//! When a remote is polled, and what is made of the answer. The poll itself runs beside the reconciles.

pub mod remote;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::{ObjectId, keys};
use crate::cluster::store::Key;
use crate::sync::commit::loaded::{Loaded, MAX_SPEC_TIMEOUT, parse_duration};
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::effect::{Effect, PollRequest};
use crate::sync::io::poll::{Answer, AnswerSlot, Found, Question, SourceFailure};
use crate::sync::order::Seq;
use crate::sync::peers::hand_over::{Announced, Peers};
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::Trigger;
use crate::sync::subject::Subject;

/// What has changed besides objects of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The values that `spec.variables` names.
    Variables,
    /// The folder that takes the place of the repository.
    Folder,
}

/// How long a look may take beyond what the spec gives to one answer of the remote: hundreds of others may have their turn first.
const HANGS: Duration = Duration::from_secs(30 * 60);

/// What of a GitSync makes it look at its remote, besides time and spec, and where the answer of a look is put.
#[derive(Default)]
struct Polling {
    /// Since when something has changed that only a look can tell of. It stands until a poll that began later has ended.
    variables: Option<Seq>,
    folder: Option<Seq>,
    /// The poll that is under way.
    slot: Option<Open>,
}

/// A poll that is under way.
struct Open {
    /// Its place in the order of things.
    at: Seq,
    /// UID and generation of the GitSync that it is for.
    of: (String, i64),
    /// Where its answer is put.
    slot: AnswerSlot,
}

/// The same for all GitSyncs of a namespace, by their names.
#[derive(Default)]
pub(crate) struct Polls(Mutex<BTreeMap<String, Polling>>);

impl Polls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Polling>> {
        self.0.lock()
    }

    pub(crate) fn moved(&self, name: &str, what: Moved) {
        let mut all = self.lock();
        let polling = all.entry(name.to_owned()).or_default();
        match what {
            Moved::Variables => polling.variables = Some(Seq::next()),
            Moved::Folder => polling.folder = Some(Seq::next()),
        }
    }

    /// What makes it look now.
    fn trigger(&self, name: &str) -> Option<Trigger> {
        let all = self.lock();
        let polling = all.get(name)?;
        let folder = polling.folder.map(|_| Trigger::Folder);
        polling.variables.map(|_| Trigger::Variables).or(folder)
    }

    fn began(&self, name: &str, look: Open) {
        self.lock().entry(name.to_owned()).or_default().slot = Some(look);
    }

    /// A poll that began there has read what had changed until then.
    fn ended(&self, name: &str, at: Seq) {
        let mut all = self.lock();
        let Some(polling) = all.get_mut(name) else { return };
        polling.variables.take_if(|since| *since < at);
        polling.folder.take_if(|since| *since < at);
        if polling.variables.is_none() && polling.folder.is_none() && polling.slot.is_none() {
            all.remove(name);
        }
    }

    /// Whether the answer of the poll that began there is still waited for, for tests.
    #[cfg(test)]
    pub(crate) fn awaits(&self, name: &str, at: Seq) -> bool {
        let all = self.lock();
        all.get(name).and_then(|polling| polling.slot.as_ref()).is_some_and(|open| open.at == at)
    }

    /// Of whom something is kept, for tests.
    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }
}

/// Polls of the GitSyncs of a namespace, and whom their answers are passed on to.
pub(crate) struct Poller<'a> {
    pub polls: &'a Polls,
    pub peers: &'a Peers,
}

/// What a poll needs to know of the objects that there are.
pub(crate) struct Before {
    /// What is remembered of earlier commits and is of no use any more.
    pub needless: BTreeSet<ObjectId>,
    /// Whether some object carries the mark of the GitSync.
    pub has_objects: bool,
    /// Whether the commit that was applied last is to be read beside the newest one.
    pub reads_last: bool,
}

/// What an answer of the remote changes besides what is known of the remote.
pub(crate) struct Learned {
    /// What started the poll.
    pub trigger: Trigger,
    /// When it began.
    pub began: Instant,
    /// Whether something new was read.
    pub changed: bool,
    /// The commit that was applied before, if it had to be read again.
    pub recalled: Option<Arc<Loaded>>,
}

impl Poller<'_> {
    /// A poll has ended. Its answer is taken in by the next reconcile, and stops what is being written. The others know at
    /// once what it wants: they may be about to delete just that.
    pub(crate) fn ended(&self, key: &Key, at: Seq, found: Found) {
        // Until its answer is there: one that is suspended meanwhile finds the poll under way, or its answer.
        let mut all = self.polls.lock();
        let open =
            all.get_mut(&key.name).and_then(|polling| polling.slot.take_if(|open| open.at == at));
        let Some(Open { of: (uid, generation), slot, .. }) = open else { return };
        let (loaded, failed) = if let Ok(answer) = &found {
            (answer.loaded.clone(), answer.failure.is_some())
        } else {
            let told = self.peers.told(key).filter(|told| told.uid == uid);
            (told.and_then(|told| told.loaded), true)
        };
        self.peers.hear(key, Announced { uid, generation, polled: at, loaded, failed });
        *slot.lock() = Some(found);
    }

    /// Gives up the poll that is under way; the next one begins as soon as it may. What one that has ended has found is taken in: the
    /// others know it already.
    pub(crate) fn stop(&self, remote: &mut Remote, subject: &Subject<'_>) -> Option<Learned> {
        if let Some(polling) = self.polls.lock().get_mut(&subject.key.name) {
            polling.slot = None;
        }
        let learned = remote.take_answer().map(|answer| self.learn(remote, subject, answer));
        if remote.polling().is_some() {
            subject.io.emit(Effect::StopPolling);
        }
        remote.stop_polling();
        learned
    }

    /// Takes in the answer of a poll that has ended, or that does not end.
    pub(crate) fn take_in(&self, remote: &mut Remote, subject: &Subject<'_>) -> Option<Learned> {
        let Subject { io, key, sync, .. } = subject;
        if let Some(answer) = remote.take_answer() {
            return Some(self.learn(remote, subject, answer));
        }
        let question = remote.polling()?.clone();
        let timeout = parse_duration(&sync.spec.timeout).unwrap_or_default().min(MAX_SPEC_TIMEOUT);
        if io.now().saturating_duration_since(question.began) < timeout + HANGS {
            return None;
        }
        // It ends by itself long before: something is wrong, and nobody is to wait for it in silence.
        tracing::warn!(object = %key, "a poll of the remote does not end: it is given up");
        let _ended_just_now = self.stop(remote, subject);
        let failure = SourceFailure::from(SourceError::Hangs);
        let answer = Answer::failed(question, failure, remote.loaded.clone());
        Some(self.learn(remote, subject, answer))
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
        before: Before,
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
        self.polls.began(&key.name, Open { at, of: (entry.uid.clone(), *generation), slot });
        let Before { needless, has_objects, reads_last } = before;
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

    fn learn(&self, remote: &mut Remote, subject: &Subject<'_>, answer: Answer) -> Learned {
        let Subject { io, key, entry, sync, .. } = subject;
        self.polls.ended(&key.name, answer.question.at);
        let Answer { question, attempted, stages, changed, failure, loaded, recalled } = answer;
        remote.generation = question.generation;
        // Whether another one is owed is for the next plan to say.
        (remote.looked, remote.owed) = (question.at, false);
        if attempted.is_some() {
            remote.attempted = attempted;
        }
        if changed {
            remote.stages = stages;
        }
        let interval =
            if failure.is_some() { &sync.spec.retry_interval } else { &sync.spec.interval };
        let interval = parse_duration(interval).unwrap_or(Duration::from_secs(60));
        remote.next_poll = Some(io.now() + io.jitter(interval));
        remote.request = question.request;
        remote.loaded = loaded;
        remote.source_error = failure;
        let told = Announced {
            uid: entry.uid.clone(),
            generation: question.generation,
            polled: question.at,
            loaded: remote.loaded.clone(),
            failed: remote.source_error.is_some(),
        };
        io.wake(self.peers.tell(key, told));
        Learned { trigger: question.trigger, began: question.began, changed, recalled }
    }
}
