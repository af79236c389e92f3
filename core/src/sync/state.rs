//! What the engine keeps of a GitSync between two passes. All of it can be made anew.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::board::Board;
use super::fights::Fights;
use super::loaded::Loaded;
use super::machine::effect::Found;
use super::order::Seq;
use super::pieces::Pieces;
use super::plan::Settled;
use super::problems::Refused;
use super::references::References;
use super::source_error::SourceError;
use super::status::Done;
use super::words::Trigger;
use crate::api::ObjectId;
use crate::api::git_sync::{PendingPrune, Stages};
use crate::cluster::account::Account;
use crate::git::Revision;

/// Why the newest commit could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFailure {
    /// The condition's reason.
    pub reason: &'static str,
    /// Error and hint, for people.
    pub message: String,
    /// Whether only a change of the spec helps.
    pub terminal: bool,
    /// Whether what was read before may be at fault: the next look reads all of it anew.
    pub distrusts: bool,
}

impl From<SourceError> for SourceFailure {
    fn from(error: SourceError) -> Self {
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        let distrusts = matches!(error, SourceError::Panicked | SourceError::Hangs);
        Self { reason: error.reason(), message, terminal: error.is_terminal(), distrusts }
    }
}

/// Why and for what the remote is looked at.
#[derive(Debug, Clone)]
pub struct Question {
    /// What started it.
    pub trigger: Trigger,
    /// Generation of the spec.
    pub generation: i64,
    /// Value of `requestedAt`.
    pub request: Option<String>,
    /// When it began.
    pub began: Instant,
    /// The same in the order of what the operator came to know.
    pub at: Seq,
}

/// What a look at the remote found.
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// Newest commit that was tried.
    pub attempted: Option<Revision>,
    /// Timings.
    pub stages: Stages,
    /// Whether something new was read.
    pub changed: bool,
    /// Why not.
    pub failure: Option<SourceFailure>,
    /// The newest commit that was read whole, if it answers this spec.
    pub loaded: Option<Arc<Loaded>>,
    /// The commit that was applied before, if it had to be recalled beside that.
    pub recalled: Option<Arc<Loaded>>,
}

impl Answer {
    /// Nothing was found; what was read before stays.
    #[must_use]
    pub fn failed(question: Question, failure: SourceFailure, loaded: Option<Arc<Loaded>>) -> Self {
        Self {
            question,
            attempted: None,
            stages: Stages::default(),
            changed: false,
            failure: Some(failure),
            loaded,
            recalled: None,
        }
    }
}

/// Where the answer of a look is put, which runs beside the passes: a slow remote never delays the undoing of drift.
pub(super) type Slot = Arc<Mutex<Option<Found>>>;

/// A look at the remote that is under way.
struct Poll {
    question: Question,
    answer: Slot,
}

/// What is kept up to date between plans, object by object.
pub struct View {
    /// Which objects a plan has to look at.
    pub board: Board,
    /// References to nothing.
    pub references: References,
    /// The commit that both were made for.
    pub loaded: Arc<Loaded>,
}

/// What is known of the remote, and when it is looked at.
#[derive(Default)]
pub struct Remote {
    poll: Option<Poll>,
    /// The newest commit that was read whole.
    pub loaded: Option<Arc<Loaded>>,
    /// When the remote is asked next; `None` before the first time.
    pub next_poll: Option<Instant>,
    /// Generation that the source was last asked for.
    pub generation: i64,
    /// Value of `requestedAt` that was last acted on.
    pub request: Option<String>,
    /// When the look began that has ended last.
    pub looked: Seq,
    /// Whether approved deletes wait for a look that begins after the approval.
    pub owed: bool,
    /// Why the newest commit could not be read.
    pub source_error: Option<SourceFailure>,
    /// Newest commit that was tried.
    pub attempted: Option<Revision>,
    /// Timings of the last commit that was read.
    pub stages: Stages,
}

/// Since when the spec and the approval are what they are: what other GitSyncs found earlier counts for no delete.
pub struct Bar {
    /// The spec that was seen last, by its generation.
    spec: (i64, Seq),
    /// The approval that was seen last.
    approval: (Option<String>, Seq),
}

/// Whether a commit waits for other GitSyncs (`dependsOn`), and what is brought about meanwhile.
#[derive(Default)]
pub struct Waits {
    /// The newest commit that did not have to wait.
    pub released: Option<Arc<Loaded>>,
    /// For which generation of the spec it did not.
    pub released_for: i64,
    /// What an operator that ran before this one has applied, while nothing is released.
    pub recalled: Option<Arc<Loaded>>,
    /// Whether the newest commit waits.
    pub waiting: bool,
}

/// What plans keep for the next one.
#[derive(Default)]
pub struct Plans {
    /// Writes that changed nothing.
    pub settled: Settled,
    /// Plans with failed writes, in a row.
    pub attempts: u32,
    /// How far a plan has come that takes several.
    pub pieces: Pieces,
    /// What a plan has to look at, and the commit that it was made for; `None` before the first plan.
    pub view: Option<View>,
    /// Content that the server refused: not sent again until it changes, or somebody asks.
    pub refused: Refused,
    /// Objects that somebody changes again and again.
    pub fights: Fights,
    /// When content that was refused for a missing right is sent again.
    pub denied_until: Option<Instant>,
    /// As whom the last plan was written, if that was no trouble.
    pub account: Option<Account>,
}

/// How far the end of a GitSync has come.
#[derive(Default)]
pub struct End {
    /// Since when it is known to be deleted.
    pub ended: Option<Seq>,
    /// Since when nothing but what others keep is left of it.
    pub parting: Option<Instant>,
    /// How many objects were deleted because of that.
    pub parted: usize,
}

/// What there is to tell.
pub struct Telling {
    /// What was done and could not be told.
    pub untold: Vec<Done>,
    /// What started the work that is being done.
    pub trigger: Trigger,
    /// When the work that is being done began.
    pub started: Option<Instant>,
    /// An approval that releases nothing, until that is told.
    pub outdated: Option<String>,
    /// The objects that cannot be written and that events have told of, each with the event's reason; `None` before that is known
    /// from the status.
    pub told: Option<BTreeSet<(ObjectId, &'static str)>>,
}

/// See the module. Each part is of one step.
pub struct State {
    /// UID of the GitSync: one of the same name made anew starts from nothing.
    pub uid: String,
    /// The look at the remote.
    pub remote: Remote,
    /// What others must have looked after.
    pub bar: Bar,
    /// Waiting for other GitSyncs.
    pub waits: Waits,
    /// Planning and writing.
    pub plans: Plans,
    /// The deletes that are held and shown; `None` before that is known from the status.
    #[allow(clippy::option_option)] // said in the line above
    pub latch: Option<Option<PendingPrune>>,
    /// Digest of the approval that was seen to be taken back last.
    pub unapproved: Option<String>,
    /// The end of the GitSync.
    pub end: End,
    /// The status.
    pub telling: Telling,
}

impl State {
    /// Nothing known yet.
    #[must_use]
    pub fn new(uid: &str) -> Self {
        let telling = Telling {
            untold: Vec::new(),
            trigger: Trigger::Start,
            started: None,
            outdated: None,
            told: None,
        };
        Self {
            uid: uid.to_owned(),
            remote: Remote::default(),
            bar: Bar { spec: (0, Seq::next()), approval: (None, Seq::next()) },
            waits: Waits::default(),
            plans: Plans::default(),
            latch: None,
            unapproved: None,
            end: End::default(),
            telling,
        }
    }
}

impl Bar {
    /// Takes note of the spec and of the approval that the GitSync has now. Returns whether it is another spec.
    pub fn note(&mut self, generation: i64, approval: Option<&str>) -> bool {
        let other = self.spec.0 != generation;
        if other {
            self.spec = (generation, Seq::next());
        }
        if self.approval.0.as_deref() != approval {
            self.approval = (approval.map(str::to_owned), Seq::next());
        }
        other
    }

    /// A look of another GitSync tells what it wants, as far as a delete of this commit is concerned, if it began after
    /// this: the commit was found, the spec changed (a resume is a change, too) and the delete was approved.
    #[must_use]
    pub fn since(&self, loaded: &Loaded) -> Seq {
        loaded.found.max(self.spec.1).max(self.approval.1)
    }

    /// Whether the approval was changed after a look began there: what a commit wants again by then is not seen by it.
    #[must_use]
    pub fn is_approved_after(&self, looked: Seq) -> bool {
        self.approval.1 > looked
    }
}

impl Remote {
    /// Why the remote is to be looked at now, if it is.
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
        } else if self.owed {
            Some(Trigger::Approval)
        } else if next <= now {
            Some(if self.source_error.is_some() { Trigger::Retry } else { Trigger::Interval })
        } else {
            None
        }
    }

    /// Whether a look has found something new that is not taken in yet: for asking while a plan is carried out.
    pub fn has_news(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let answer = self.poll.as_ref().map(|poll| poll.answer.clone());
        move || {
            answer.as_ref().is_some_and(|answer| {
                let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
                answer.as_ref().is_some_and(|answer| match answer {
                    Ok(answer) => answer.changed || answer.failure.is_some(),
                    Err(_) => true,
                })
            })
        }
    }

    /// The look that is under way.
    #[must_use]
    pub fn polling(&self) -> Option<&Question> {
        self.poll.as_ref().map(|poll| &poll.question)
    }

    /// A look at the remote begins; gives where its answer is to be put.
    pub(super) fn poll(&mut self, question: Question) -> Slot {
        let answer = Slot::default();
        self.poll = Some(Poll { question, answer: answer.clone() });
        answer
    }

    /// The answer of the look that was under way, once it is there. One that panicked is a failure like any other: what was
    /// read before stays, and nobody believes it to be the newest.
    pub fn take_answer(&mut self) -> Option<Answer> {
        let poll = self.poll.as_ref()?;
        let found = poll.answer.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let question = poll.question.clone();
        self.poll = None;
        let failed =
            |error: SourceError| Answer::failed(question, error.into(), self.loaded.clone());
        Some(found.unwrap_or_else(failed))
    }

    /// Gives up the look that is under way; the next one begins as soon as it may.
    pub fn stop_looking(&mut self) {
        (self.poll, self.next_poll) = (None, None);
    }

    /// Time until the remote is asked next.
    #[must_use]
    pub fn until_poll(&self, now: Instant) -> Duration {
        if self.poll.is_some() {
            // Its answer wakes.
            return Duration::from_secs(10);
        }
        if self.owed {
            return Duration::ZERO;
        }
        self.next_poll.map_or(Duration::from_secs(1), |due| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // a point to count from

    use super::super::loaded::tests::commit;
    use super::*;

    #[test]
    fn g18_a_look_that_panics_is_a_failure_and_what_was_read_before_stays() {
        let mut state = State::new("u");
        state.remote.loaded = Some(Arc::new(commit(None, &[("a", "a.yaml")], false)));
        let (trigger, request) = (Trigger::Request, Some("now".to_owned()));
        let (began, at) = (Instant::now(), Seq::next());
        let slot = state.remote.poll(Question { trigger, generation: 7, request, began, at });
        let news = state.remote.has_news();
        assert!(!news() && state.remote.take_answer().is_none(), "it is under way");
        *slot.lock().expect("lock") = Some(Err(SourceError::Panicked));
        assert!(news(), "a plan that is being carried out stops");
        let answer = state.remote.take_answer().expect("an answer");
        let failure = answer.failure.expect("a failure");
        assert_eq!((failure.reason, failure.terminal), ("InternalError", false));
        assert!(failure.message.contains("bug of Convoke; hint: revert"), "{}", failure.message);
        assert_eq!((answer.question.generation, answer.changed), (7, false));
        assert_eq!(answer.question.request.as_deref(), Some("now"));
        assert!(answer.loaded.is_some(), "what was read before");
        assert!(
            state.remote.polling().is_none() && state.remote.take_answer().is_none(),
            "the next look may begin"
        );
    }
}
