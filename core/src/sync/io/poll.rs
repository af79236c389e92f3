//! A poll of the remote as it is asked for, and its answer.

use std::sync::Arc;

use parking_lot::Mutex;
use std::time::Instant;

use crate::api::git_sync::Stages;
use crate::git::Revision;
use crate::sync::commit::loaded::Loaded;
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::effect::Found;
use crate::sync::order::Seq;
use crate::sync::reasons::Trigger;

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
pub type AnswerSlot = Arc<Mutex<Option<Found>>>;
