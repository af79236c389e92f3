//! What is known of a remote, and when it is polled next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::git_sync::Stages;
use crate::git::Revision;
use crate::order::Seq;
use crate::sync::commit::loaded::Loaded;
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::poll::{Answer, AnswerSlot, Question, SourceFailure, WebhookState};
use crate::sync::reasons::Trigger;

/// A poll that is under way.
struct Poll {
    question: Question,
    answer: AnswerSlot,
}

/// What is known of the remote of a GitSync, and when it is polled next.
#[derive(Default)]
pub struct Remote {
    poll: Option<Poll>,
    /// The newest commit that was read whole.
    pub loaded: Option<Arc<Loaded>>,
    /// When the remote is polled next; `None` before the first poll.
    pub next_poll: Option<Instant>,
    /// Generation of the spec that the last poll was made for.
    pub generation: i64,
    /// Value of `requestedAt` that the last poll handled.
    pub request: Option<String>,
    /// When the poll began that has ended last.
    pub last_polled: Seq,
    /// Whether approved deletes wait for a poll that begins after the approval.
    pub owes_approval_poll: bool,
    /// Why the newest commit could not be read.
    pub source_error: Option<SourceFailure>,
    /// The newest commit that was tried.
    pub attempted: Option<Revision>,
    /// Timings of the last commit that was read.
    pub stages: Stages,
    /// What the last poll found of the Secret of `spec.webhook`.
    pub webhook: Option<WebhookState>,
}

impl Remote {
    /// Why the remote is to be polled now, if it is. `asked` is a reason outside of the spec.
    #[must_use]
    pub fn due(
        &self,
        generation: i64,
        request: Option<&str>,
        asked: Option<Trigger>,
        now: Instant,
    ) -> Option<Trigger> {
        let Some(next) = self.next_poll else { return Some(Trigger::Start) };
        if self.generation != generation {
            Some(Trigger::Spec)
        } else if request.is_some() && self.request.as_deref() != request {
            Some(Trigger::Request)
        } else if asked.is_some() {
            asked
        } else if self.owes_approval_poll {
            Some(Trigger::Approval)
        } else if next <= now {
            Some(if self.source_error.is_some() { Trigger::Retry } else { Trigger::Interval })
        } else {
            None
        }
    }

    /// Whether a poll has found another commit or failed, and its answer is not taken in yet. For use while a plan is
    /// applied.
    pub fn has_news(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let answer = self.poll.as_ref().map(|poll| poll.answer.clone());
        move || {
            answer.as_ref().is_some_and(|answer| {
                let answer = answer.lock();
                answer.as_ref().is_some_and(|answer| match answer {
                    Ok(answer) => answer.changed || answer.failure.is_some(),
                    Err(_) => true,
                })
            })
        }
    }

    /// The poll that is under way.
    #[must_use]
    pub fn polling(&self) -> Option<&Question> {
        self.poll.as_ref().map(|poll| &poll.question)
    }

    /// Begins a poll. Returns the slot for its answer.
    pub(crate) fn poll(&mut self, question: Question) -> AnswerSlot {
        let answer = AnswerSlot::default();
        self.poll = Some(Poll { question, answer: answer.clone() });
        answer
    }

    /// The answer of the poll that was under way, once it is there. A panic is a failure like any other: the commit
    /// that was read before stays, and does not count as the newest.
    pub fn take_answer(&mut self) -> Option<Answer> {
        let poll = self.poll.as_ref()?;
        let found = poll.answer.lock().take()?;
        let question = poll.question.clone();
        self.poll = None;
        let failed =
            |error: SourceError| Answer::failed(question, error.into(), self.loaded.clone());
        Some(found.unwrap_or_else(failed))
    }

    /// Gives up the poll that is under way; the next poll begins as soon as it may.
    pub fn stop_polling(&mut self) {
        (self.poll, self.next_poll) = (None, None);
    }

    /// Time until the remote is polled next.
    #[must_use]
    pub fn until_poll(&self, now: Instant) -> Duration {
        if self.poll.is_some() {
            // The answer wakes the GitSync.
            return Duration::from_secs(10);
        }
        if self.owes_approval_poll {
            return Duration::ZERO;
        }
        self.next_poll.map_or(Duration::from_secs(1), |due| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
#[path = "tests/remote.rs"]
mod tests;
