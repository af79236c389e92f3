//! Errors of reading the newest commit, and the variables and credentials for it.

use crate::sync::reasons::SourceReason;

/// Why the newest commit, or what is needed for it, cannot be read. Nothing of the commit is written or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The repository cannot be read.
    #[error("{message}")]
    Git {
        /// The condition's reason.
        reason: SourceReason,
        /// The error.
        message: String,
        /// How to fix it.
        hint: Option<String>,
        /// Whether only a change of the spec (or of the operator's flags) can help.
        terminal: bool,
    },
    /// A pattern of `spec.ignore` is invalid.
    #[error("spec.ignore: {0}")]
    Ignore(String),
    /// A ConfigMap of `spec.variables` or the Secret of `spec.secretRef` cannot be used.
    #[error("{message}")]
    Input {
        /// The condition's reason.
        reason: SourceReason,
        /// The error.
        message: String,
        /// How to fix it.
        hint: Option<String>,
    },
    /// The reading panicked. The panic message is only logged, because it may quote file contents.
    #[error("reading the commit failed unexpectedly: this is a bug of Convoke")]
    Panicked,
    /// The poll did not end, although each of its parts has a deadline.
    #[error("reading the commit does not end, and was given up: this is a bug of Convoke")]
    Hangs,
}

impl SourceError {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> SourceReason {
        match self {
            Self::Git { reason, .. } | Self::Input { reason, .. } => *reason,
            Self::Ignore(_) => SourceReason::InvalidIgnore,
            Self::Panicked | Self::Hangs => SourceReason::InternalError,
        }
    }

    /// How to fix it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Git { hint, .. } => hint.clone(),
            Self::Ignore(_) => Some("the syntax is that of .gitignore, one pattern an item".into()),
            Self::Input { hint, .. } => hint.clone(),
            Self::Hangs => Some(
                "it is tried again; if it stays so, restart the operator and report it".into(),
            ),
            Self::Panicked => Some(
                "revert the newest commit, or leave the files out that it changed (spec.ignore); the operator's log says \
                 where it happened (\"panicked at\"): please report that"
                    .into(),
            ),
        }
    }

    /// Whether only a change of the spec (or of the operator's flags) can help.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Git { terminal, .. } => *terminal,
            Self::Ignore(_) => true,
            Self::Input { .. } | Self::Panicked | Self::Hangs => false,
        }
    }
}
