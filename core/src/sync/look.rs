//! When a remote is looked at, and what is made of the answer. The look itself runs beside the passes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::board::{Namespace, mark};
use super::engine::{Engine, Subject};
use super::loaded::{MOST_TIMEOUT, parse_duration};
use super::machine::Moved;
use super::machine::effect::{Effect, Found, Look};
use super::order::Seq;
use super::siblings::Told;
use super::source_error::SourceError;
use super::state::{Answer, Question, Slot, SourceFailure, State};
use super::words::Trigger;
use crate::api::{ObjectId, keys};
use crate::cluster::store::Key;

/// How long a look may take beyond what the spec gives to one answer of the remote: hundreds of others may have their turn first.
const HANGS: Duration = Duration::from_secs(30 * 60);

/// What of a GitSync makes it look at its remote, besides time and spec, and where the answer of a look is put.
#[derive(Default)]
struct Looking {
    /// Since when something has changed that only a look can tell of. It stands until a look that began later has ended.
    variables: Option<Seq>,
    folder: Option<Seq>,
    /// The look that is under way.
    slot: Option<Open>,
}

/// A look that is under way.
struct Open {
    /// Its place in the order of things.
    at: Seq,
    /// UID and generation of the GitSync that it is for.
    of: (String, i64),
    /// Where its answer is put.
    slot: Slot,
}

/// The same for all GitSyncs of a namespace, by their names.
#[derive(Default)]
pub(super) struct Looks(Mutex<BTreeMap<String, Looking>>);

impl Looks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Looking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn moved(&self, name: &str, what: Moved) {
        let mut all = self.lock();
        let looking = all.entry(name.to_owned()).or_default();
        match what {
            Moved::Variables => looking.variables = Some(Seq::next()),
            Moved::Folder => looking.folder = Some(Seq::next()),
        }
    }

    /// What makes it look now.
    fn trigger(&self, name: &str) -> Option<Trigger> {
        let all = self.lock();
        let looking = all.get(name)?;
        let folder = looking.folder.map(|_| Trigger::Folder);
        looking.variables.map(|_| Trigger::Variables).or(folder)
    }

    fn began(&self, name: &str, look: Open) {
        self.lock().entry(name.to_owned()).or_default().slot = Some(look);
    }

    /// A look that began there has read what had changed until then.
    fn ended(&self, name: &str, at: Seq) {
        let mut all = self.lock();
        let Some(looking) = all.get_mut(name) else { return };
        looking.variables.take_if(|since| *since < at);
        looking.folder.take_if(|since| *since < at);
        if looking.variables.is_none() && looking.folder.is_none() && looking.slot.is_none() {
            all.remove(name);
        }
    }

    /// Whether the answer of the look that began there is still waited for, for tests.
    #[cfg(test)]
    pub(super) fn awaits(&self, name: &str, at: Seq) -> bool {
        let all = self.lock();
        all.get(name).and_then(|looking| looking.slot.as_ref()).is_some_and(|open| open.at == at)
    }

    /// Of whom something is kept, for tests.
    #[cfg(test)]
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }
}

impl Engine {
    /// A look at a remote has ended. Its answer is taken in by the next pass, and stops what is being written. The others know at
    /// once what it wants: they may be about to delete just that.
    pub(super) fn looked(&self, name: &str, at: Seq, found: Found) {
        // Until its answer is there: one that is suspended meanwhile finds the look under way, or its answer.
        let mut all = self.looks.lock();
        let open = all.get_mut(name).and_then(|looking| looking.slot.take_if(|open| open.at == at));
        let Some(Open { of: (uid, generation), slot, .. }) = open else { return };
        let key = Key::new(&*self.namespace, name);
        let (loaded, failed) = if let Ok(answer) = &found {
            (answer.loaded.clone(), answer.failure.is_some())
        } else {
            let told = self.siblings.told(&key).filter(|told| told.uid == uid);
            (told.and_then(|told| told.loaded), true)
        };
        self.siblings.hear(&key, Told { uid, generation, polled: at, loaded, failed });
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }

    /// Gives up the look that is under way; the next one begins as soon as it may. What one that has ended has found is taken in: the
    /// others know it already.
    pub(super) fn stop_looking(&self, state: &mut State, subject: &Subject<'_>) {
        if let Some(looking) = self.looks.lock().get_mut(&subject.key.name) {
            looking.slot = None;
        }
        if let Some(answer) = state.remote.take_answer() {
            self.learn(state, subject, answer);
        }
        if state.remote.polling().is_some() {
            subject.io.tell(Effect::StopLooking);
        }
        state.remote.stop_looking();
    }

    /// Takes in what a look at the remote found, and begins another one if it is time.
    pub(super) fn look(&self, state: &mut State, subject: &Subject<'_>) {
        let Subject { io, key, entry, sync, generation, .. } = subject;
        if let Some(answer) = state.remote.take_answer() {
            self.learn(state, subject, answer);
        }
        if let Some(question) = state.remote.polling() {
            let timeout = parse_duration(&sync.spec.timeout).unwrap_or_default().min(MOST_TIMEOUT);
            if io.now().saturating_duration_since(question.began) < timeout + HANGS {
                return;
            }
            // It ends by itself long before: something is wrong, and nobody is to wait for it in silence.
            let question = question.clone();
            tracing::warn!(object = %key, "a look at the remote does not end: it is given up");
            self.stop_looking(state, subject);
            let failure = SourceFailure::from(SourceError::Hangs);
            self.learn(
                state,
                subject,
                Answer::failed(question, failure, state.remote.loaded.clone()),
            );
        }
        let request = subject.annotation(keys::REQUESTED_AT);
        let asked = self.siblings.is_asked(key).then_some(Trigger::Sibling);
        let asked = self.looks.trigger(&key.name).or(asked);
        let Some(trigger) = state.remote.due(*generation, request, asked, io.now()) else { return };
        let question = Question {
            trigger,
            generation: *generation,
            request: request.map(str::to_owned),
            began: io.now(),
            at: Seq::next(),
        };
        // If the look ends without an answer, it is begun again.
        let retry = parse_duration(&sync.spec.retry_interval).unwrap_or(Duration::from_secs(30));
        state.remote.next_poll = Some(io.now() + io.jitter(retry));
        let anew = state.remote.source_error.as_ref().is_some_and(|failure| failure.distrusts);
        // Whoever may have to wait for others keeps meanwhile what was applied before this operator started.
        let waits = !sync.spec.depends_on.is_empty() && state.waits.released.is_none();
        // What nothing needs any more is not remembered beside the next commit.
        let (board, space) =
            (state.plans.view.as_ref().map(|view| &view.board), self.space(&key.namespace));
        let needless = state.remote.loaded.as_ref().map(|loaded| loaded.needless(board, &space));
        tracing::debug!(object = %key, uid = entry.uid, trigger = trigger.as_str(), "looking at the remote");
        let (at, slot) = (question.at, state.remote.poll(question.clone()));
        self.looks.began(&key.name, Open { at, of: (entry.uid.clone(), *generation), slot });
        io.tell(Effect::Look(Box::new(Look {
            sync: (*sync).clone(),
            question,
            anew,
            needless: needless.unwrap_or_default(),
            before: subject.last_applied(),
            has_objects: self.has_objects(state, subject),
            applied: subject.applied_before(),
            last: subject.last_applied().filter(|_| waits && state.waits.recalled.is_none()),
        })));
    }

    /// Whether some object carries the mark of this GitSync.
    fn has_objects(&self, state: &State, subject: &Subject<'_>) -> bool {
        if let Some(view) = &state.plans.view {
            return view.board.ours().next().is_some();
        }
        let (sync, space) = (subject.reference(), self.space(&subject.key.namespace));
        let ours = |id: &ObjectId| {
            let live = space.get(id);
            live.is_some_and(|live| {
                mark(&live, id, &sync).is_some_and(|mark| mark.sync_uid == sync.uid)
            })
        };
        space.ids().iter().any(ours)
    }

    fn learn(&self, state: &mut State, subject: &Subject<'_>, answer: Answer) {
        let Subject { io, key, entry, sync, .. } = subject;
        self.looks.ended(&key.name, answer.question.at);
        let Answer { question, attempted, stages, changed, failure, loaded, recalled } = answer;
        state.telling.trigger = question.trigger;
        state.telling.started = Some(question.began);
        state.remote.generation = question.generation;
        // Whether another one is owed is for the next plan to say.
        (state.remote.looked, state.remote.owed) = (question.at, false);
        if attempted.is_some() {
            state.remote.attempted = attempted;
        }
        if changed {
            state.plans.attempts = 0;
            state.remote.stages = stages;
        }
        // A new look is also a new try of what the server refused: a policy or a CRD may have changed.
        if question.trigger != Trigger::Sibling {
            state.plans.refused.clear();
        }
        if question.trigger == Trigger::Request {
            state.plans.fights.forget();
        }
        let interval =
            if failure.is_some() { &sync.spec.retry_interval } else { &sync.spec.interval };
        let interval = parse_duration(interval).unwrap_or(Duration::from_secs(60));
        state.remote.next_poll = Some(io.now() + io.jitter(interval));
        state.remote.request = question.request;
        state.remote.loaded = loaded;
        state.waits.recalled = recalled.or(state.waits.recalled.take());
        state.remote.source_error = failure;
        let told = Told {
            uid: entry.uid.clone(),
            generation: question.generation,
            polled: question.at,
            loaded: state.remote.loaded.clone(),
            failed: state.remote.source_error.is_some(),
        };
        self.wake(io, self.siblings.tell(key, told));
    }
}
