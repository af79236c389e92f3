//! The question and the answer of a poll of a remote.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::api::git_sync::Stages;
use crate::git::Revision;
use crate::order::Seq;
use crate::sync::commit::loaded::Loaded;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::{SourceReason, Trigger};

/// Why the newest commit could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFailure {
    /// The condition's reason.
    pub reason: SourceReason,
    /// Error and hint, for the condition's message.
    pub message: String,
    /// Whether only a change of the spec (or of the operator's flags) can help.
    pub terminal: bool,
    /// Whether the local copy of the repository may be the cause. Then the next poll discards it.
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

/// Whether deliveries of the webhook of a GitSync can be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookState {
    /// They can.
    Ready,
    /// The operator listens at no address for webhooks.
    NotServed,
    /// The Secret cannot be used.
    Unreadable(SourceFailure),
}

/// Why a remote is polled, and for which spec.
#[derive(Debug, Clone)]
pub struct Question {
    /// What started the poll.
    pub trigger: Trigger,
    /// `metadata.generation` of the polled spec.
    pub generation: i64,
    /// Value of the annotation `convoke.dev/requestedAt`.
    pub request: Option<String>,
    /// When the poll began.
    pub began: Instant,
    /// The place of the poll in the order of events.
    pub at: Seq,
}

/// The answer of a poll.
pub struct Answer {
    /// The question.
    pub question: Question,
    /// When the remote was asked, in the order of events: what was pushed before is known. It may have been asked for another GitSync,
    /// before the question.
    pub asked: Seq,
    /// How long before the question that was.
    pub age: Duration,
    /// The newest commit of the remote that was tried.
    pub attempted: Option<Revision>,
    /// How long each stage took.
    pub stages: Stages,
    /// Whether a commit was read that was not known before.
    pub changed: bool,
    /// Why the newest commit could not be read.
    pub failure: Option<SourceFailure>,
    /// The newest commit that was read whole, if it answers this spec.
    pub loaded: Option<Arc<Loaded>>,
    /// The commit that was applied last, if it was read besides the newest one.
    pub recalled: Option<Arc<Loaded>>,
    /// What was found of the Secret of `spec.webhook`; `None` without one, or if it was not looked for.
    pub webhook: Option<WebhookState>,
}

impl Answer {
    /// The answer of a poll that failed. `loaded` is the commit that was read before.
    #[must_use]
    pub fn failed(question: Question, failure: SourceFailure, loaded: Option<Arc<Loaded>>) -> Self {
        Self {
            asked: question.at,
            age: Duration::ZERO,
            question,
            attempted: None,
            stages: Stages::default(),
            changed: false,
            failure: Some(failure),
            loaded,
            recalled: None,
            webhook: None,
        }
    }
}

/// The answer of a poll, or why there is none.
pub type Found = Result<Answer, SourceError>;

/// Where a poll leaves its answer. A poll runs beside the reconciles, so that a slow remote does not delay drift correction.
pub type AnswerSlot = Arc<Mutex<Option<Found>>>;
