//! What can go wrong with a repository, in words for a status.

/// Why a repository could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// The URL, ref or path is not one that can be used.
    #[error("{0}")]
    InvalidSource(String),
    /// Plain http or loopback without the operator's flag.
    #[error("{0} is not allowed: the operator runs without --allow-insecure-git")]
    Insecure(String),
    /// The remote has no such branch, tag or commit.
    #[error("the repository has no {what}")]
    RefNotFound {
        /// For example: branch "main".
        what: String,
        /// Names that the remote has.
        near: Option<String>,
    },
    /// The commit has no such folder.
    #[error("path {0:?} does not exist at this commit")]
    PathMissing(String),
    /// The remote wants other credentials.
    #[error("the remote refuses access: {0}")]
    Authentication(String),
    /// No end within the time.
    #[error("no answer within {0} s")]
    Timeout(u64),
    /// The remote cannot be reached, or hangs up.
    #[error("cannot talk to the remote: {0}")]
    Connection(String),
    /// The fetch is larger than the budget.
    #[error("the fetch is larger than {0} bytes")]
    TooLarge(u64),
    /// What was read makes no sense.
    #[error("the data of the repository cannot be used: {0}")]
    Corrupt(String),
    /// The commit went away between asking and fetching.
    #[error("commit {0} is not offered any more")]
    CommitGone(String),
    /// The local store cannot be used.
    #[error("the local store cannot be used: {0}")]
    Storage(String),
}

impl GitError {
    /// The condition's reason.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidSource(_) => "InvalidSource",
            Self::Insecure(_) => "InsecureConnectionsDisallowed",
            Self::RefNotFound { .. } => "RefNotFound",
            Self::PathMissing(_) => "PathMissing",
            Self::Authentication(_) => "AuthenticationFailed",
            Self::Timeout(_) => "Timeout",
            Self::Connection(_) => "ConnectionFailed",
            Self::TooLarge(_) => "PackTooLarge",
            Self::Corrupt(_) => "CorruptData",
            Self::CommitGone(_) => "CommitGone",
            Self::Storage(_) => "StorageFailed",
        }
    }

    /// Whether only a change of the spec (or of the operator's flags) helps.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        matches!(self, Self::InvalidSource(_) | Self::Insecure(_))
    }

    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::RefNotFound { near: Some(near), .. } => Some(format!("it has {near}")),
            Self::TooLarge(_) => {
                Some("move large files out of the repository, or raise the operator's limit".into())
            }
            _ => None,
        }
    }

    /// From a library error, by its class.
    pub(super) fn from_gix(error: &gix::Error) -> Self {
        // The first sources say what failed, the last why; both help, and neither holds content.
        let text = chain(error);
        if error.is_unauthenticated() || error.is_permission_denied() {
            Self::Authentication(text)
        } else if error.is_corrupted() {
            Self::Corrupt(text)
        } else if error.is_resource_exhausted() {
            Self::Corrupt(format!("{text} (too much memory)"))
        } else {
            Self::Connection(text)
        }
    }
}

/// An error and its sources, each said once, at most 400 characters.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text.lines().next().unwrap_or_default().to_owned());
        }
        next = error.source();
    }
    parts.join(": ").chars().take(400).collect()
}
