//! Why the newest commit cannot be read, or what it means cannot be known.

/// Why the newest commit cannot be read, or what it means cannot be known. Nothing is written or deleted for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The repository.
    #[error("{message}")]
    Git {
        /// The condition's reason.
        reason: &'static str,
        /// What.
        message: String,
        /// What to do.
        hint: Option<String>,
        /// Whether only a change of the spec (or of the operator's flags) can help.
        terminal: bool,
    },
    /// `spec.ignore`.
    #[error("spec.ignore: {0}")]
    Ignore(String),
    /// A source of `spec.variables`.
    #[error("{message}")]
    Variables {
        /// The condition's reason.
        reason: &'static str,
        /// What.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A panic. What it says is in the log only: it may quote what was read.
    #[error("reading the commit failed unexpectedly: this is a bug of Convoke")]
    Panicked,
    /// A look that does not end, although each of its parts has a deadline.
    #[error("reading the commit does not end, and was given up: this is a bug of Convoke")]
    Hangs,
}

impl SourceError {
    /// The condition's reason.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Git { reason, .. } => reason,
            Self::Ignore(_) => "InvalidIgnore",
            Self::Variables { reason, .. } => reason,
            Self::Panicked | Self::Hangs => "InternalError",
        }
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Git { hint, .. } => hint.clone(),
            Self::Ignore(_) => Some("the syntax is that of .gitignore, one pattern an item".into()),
            Self::Variables { hint, .. } => hint.clone(),
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

    /// Whether only a change of the spec helps.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Git { terminal, .. } => *terminal,
            Self::Ignore(_) => true,
            Self::Variables { .. } | Self::Panicked | Self::Hangs => false,
        }
    }
}
