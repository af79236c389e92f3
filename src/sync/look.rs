//! The engine's look at a remote, which runs beside the reconciles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::{Engine, Subject};
use super::order::Seq;
use super::siblings::Told;
use super::source::parse_duration;
use super::source_error::SourceError;
use super::state::{Answer, Question, State, unpanicked};
use super::variables;
use crate::api::git_sync::Stages;
use crate::api::keys;
use crate::controllers::runtime::jitter;
use crate::git::Revision;

impl Engine {
    /// Takes in what a look at the remote found, and begins another one if it is time.
    pub(super) fn look(&self, state: &mut State, subject: &Subject<'_>) {
        let Subject { key, entry, sync, generation } = subject;
        if let Some(answer) = state.take_answer() {
            self.learn(state, subject, answer);
        }
        if state.polling().is_some() {
            return;
        }
        let request = subject.annotation(keys::REQUESTED_AT);
        let changed = self.settings.local.take_changed(key);
        let asked = self.siblings.is_asked(key).then_some("Sibling");
        let asked = if changed { Some("Folder") } else { asked };
        let moved = self.variables.take(key).then_some("Variables");
        let Some(trigger) = state.due(*generation, request, moved.or(asked)) else { return };
        let began = Instant::now();
        let question = Question {
            trigger,
            generation: *generation,
            request: request.map(str::to_owned),
            began,
            at: Seq::next(),
        };
        // If the look ends without an answer, it is begun again.
        let retry = parse_duration(&sync.spec.retry_interval).unwrap_or(Duration::from_secs(30));
        state.next_poll = Some(began + jitter(retry));
        let (source, slots, client) =
            (state.source.clone(), self.slots.clone(), self.client.clone());
        let budgets = self.settings.budgets;
        let last = state.source_error.as_ref().map(|failure| failure.reason);
        let panicked = last == Some(SourceError::Panicked.reason());
        let (sync, asking, mine) = (Arc::clone(sync), question.clone(), (*key).clone());
        let (applied, before) = (subject.applied_before(), subject.last_applied());
        // Whoever may have to wait for others keeps meanwhile what was applied before this operator started.
        let waits = !sync.spec.depends_on.is_empty() && state.released.is_none();
        let last = subject.last_applied().filter(|_| waits && state.recalled.is_none());
        // What nothing needs any more is not remembered beside the next commit.
        let (board, space) =
            (state.view.as_ref().map(|view| &view.board), self.space(&key.namespace));
        let needless = state.loaded.as_ref().map(|loaded| loaded.needless(board, &space));
        let look = async move {
            let mut source = source.lock().await;
            source.needless = needless.unwrap_or_default();
            if panicked {
                source.start_anew(budgets);
            }
            let (mut stages, mut attempted) = (Stages::default(), None);
            let slot = slots.ask().await;
            let values = variables::read(&client, &mine.namespace, &sync.spec).await;
            drop(slot);
            let known = values.as_ref().ok().cloned().flatten();
            let result = match values {
                Ok(values) => {
                    let (stages, attempted) = (&mut stages, &mut attempted);
                    unpanicked(source.refresh(&sync.spec, &mine, values, stages, attempted)).await
                }
                Err(error) => Err(error),
            };
            let (mut changed, failure) = match result {
                Ok(changed) => (changed, None),
                Err(error) => {
                    tracing::warn!(object = %mine, reason = error.reason(), %error, "cannot read the repository");
                    if error == SourceError::Panicked {
                        source.start_anew(budgets);
                    }
                    (false, Some(error.into()))
                }
            };
            if failure.is_none() {
                match source.reach_back(&sync.spec, &mine, before, known.clone()).await {
                    Ok(new) => changed |= new,
                    Err(error) => {
                        tracing::warn!(object = %mine, %error, "it is not known what was wanted before");
                    }
                }
            }
            if let Some(applied) = applied.filter(|_| failure.is_some()) {
                // Nothing new is known, but what was applied before is still to be kept so.
                if let Err(error) = source.recall(&sync.spec, &mine, applied).await {
                    tracing::warn!(object = %mine, %error, "changes by hand are not undone for now");
                }
            }
            let newest = source.loaded.as_ref().filter(|_| failure.is_none());
            let other = |last: &Revision| newest.is_some_and(|newest| newest.revision != *last);
            let recalled = match last.filter(other) {
                Some(last) => match source.before(&sync.spec, &mine, last, known).await {
                    Ok(before) => before,
                    Err(error) => {
                        tracing::warn!(object = %mine, %error, "changes by hand are not undone for now");
                        None
                    }
                },
                None => None,
            };
            let loaded = source.loaded.clone();
            Answer { question: asking, attempted, stages, changed, failure, loaded, recalled }
        };
        let (queue, mine) = (self.queue.clone(), (*key).clone());
        tracing::debug!(object = %key, uid = entry.uid, trigger, "looking at the remote");
        state.poll(question, look, move || queue.add(mine));
    }

    fn learn(&self, state: &mut State, subject: &Subject<'_>, answer: Answer) {
        let Subject { key, entry, sync, .. } = subject;
        let Answer { question, attempted, stages, changed, failure, loaded, recalled } = answer;
        state.trigger = question.trigger;
        state.started = Some(question.began);
        state.generation = question.generation;
        if attempted.is_some() {
            state.attempted = attempted;
        }
        if changed {
            state.attempts = 0;
            state.stages = stages;
        }
        // A new look is also a new try of what the server refused: a policy or a CRD may have changed.
        if question.trigger != "Sibling" {
            state.refused.clear();
        }
        if question.trigger == "Request" {
            state.fights.forget();
        }
        let interval =
            if failure.is_some() { &sync.spec.retry_interval } else { &sync.spec.interval };
        let interval = parse_duration(interval).unwrap_or(Duration::from_secs(60));
        state.next_poll = Some(Instant::now() + jitter(interval));
        state.request = question.request;
        state.loaded = loaded;
        state.recalled = recalled.or(state.recalled.take());
        state.source_error = failure;
        let told = Told {
            uid: entry.uid.clone(),
            generation: question.generation,
            polled: question.at,
            loaded: state.loaded.clone(),
            failed: state.source_error.is_some(),
        };
        self.wake(self.siblings.tell(key, told));
    }
}
