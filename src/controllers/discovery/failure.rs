//! (pure) Why nothing usable was read, and how conditions tell it. Foreign texts are cut and made printable.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::cluster::conditions::Observed;
use convoke_core::text::printable;

/// The reason of a condition that nobody can confirm, because no pod is ready.
pub const NO_READY_POD: &str = "NoReadyPod";
/// Bytes of a foreign text in a message.
const MAX_WORDS_BYTES: usize = 160;

/// Why nothing usable was read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The operator may not dial the address. What to do is part of the text.
    #[error("{0}")]
    NotAllowed(String),
    /// There is no connection, or it breaks.
    #[error("{0}")]
    Unreachable(String),
    /// Nothing listens there.
    #[error("{0}")]
    NotListening(String),
    /// There is no whole answer within these seconds.
    #[error("no answer within {0} s")]
    TooSlow(u64),
    /// An answer that says only that it does not work.
    #[error("it answers HTTP {0}")]
    Refused(u16),
    /// It wants credentials, which the operator does not have.
    #[error("it answers HTTP {0} to a request without credentials; the operator sends none")]
    Unauthorized(u16),
    /// The answer has more bytes than this.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The answer is not what was asked for.
    #[error("{0}")]
    Invalid(String),
}

impl Failure {
    /// The answer has another HTTP status than a good one.
    #[must_use]
    pub fn status(code: u16) -> Self {
        match code {
            401 | 403 => Self::Unauthorized(code),
            _ => Self::Refused(code),
        }
    }

    /// The answer is not what was asked for.
    #[must_use]
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// Whether another try may soon be better.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        !matches!(self, Self::Unauthorized(_))
    }
}

/// The first bytes of a foreign text, in one line.
#[must_use]
pub fn cut(text: &str, max_bytes: usize) -> String {
    let end = text.floor_char_boundary(max_bytes);
    printable(&text[..end]).trim().to_owned()
}

/// Foreign words for a message.
#[must_use]
pub fn words(text: &str) -> String {
    cut(text, MAX_WORDS_BYTES)
}

/// No pod is ready, so nobody confirms this condition, if it is there: it becomes `Unknown`. What the status shows besides may well
/// be what the next pod says, so it stays.
pub fn nobody_confirms(list: &mut Vec<Condition>, type_: &str, at: Observed) {
    if list.iter().any(|c| c.type_ == type_) {
        at.set(list, type_, "Unknown", NO_READY_POD, "no pod is ready that could be asked");
    }
}

/// The message of a condition that is not `True` any more while what was read before is still shown. It says since when: the
/// condition itself has the same time.
#[must_use]
pub fn unconfirmed(list: &[Condition], type_: &str, at: Observed, failure: &Failure) -> String {
    let before = list.iter().find(|c| c.type_ == type_ && c.status == "False");
    let since = before.map_or(at.now, |c| c.last_transition_time.0);
    format!("not confirmed since {since}: {failure}")
}
