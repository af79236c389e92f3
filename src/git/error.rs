//! The errors of asking, fetching and reading a repository.

use std::time::Duration;

use super::github_app::NoToken;
use super::ssh::HostKeyProblem;
use super::verify::Unverified;
use crate::net::{NetError, NotAllowed};
use convoke_core::sync::commit::source_error::SourceError;
use convoke_core::sync::reasons::SourceReason;
use convoke_core::text::is_invisible;

/// What a range of versions looks for.
pub(super) const VERSIONED: &str = "tag with a version in";

/// Why a repository cannot be asked, fetched or read.
///
/// Texts from the remote lose their control characters, and are cut. No text holds a credential or the content of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    /// The URL is malformed, or of a kind that is not supported.
    #[error("the repository URL is refused: {reason}")]
    InvalidUrl {
        /// Why, without the URL itself (it may hold a password).
        reason: String,
    },
    /// The URL is plain HTTP, and the operator does not allow it.
    #[error("{what} is not allowed")]
    InsecureConnection {
        /// What is not allowed.
        what: String,
    },
    /// The host is or leads to no address that may be dialled. No connection was made.
    #[error(transparent)]
    AddressRefused(#[from] NotAllowed),
    /// The client certificate or its key cannot be read.
    #[error("the client certificate is refused: {reason}")]
    InvalidIdentity {
        /// Why.
        reason: String,
    },
    /// The extra certificate authorities cannot be read.
    #[error("the extra certificate authorities are refused: {reason}")]
    InvalidRoots {
        /// Why.
        reason: String,
    },
    /// The branch, tag or commit has no valid name.
    #[error("the ref {name:?} is refused: {reason}")]
    InvalidRef {
        /// What was asked for.
        name: String,
        /// Why.
        reason: String,
    },
    /// The path is no valid path inside of a repository.
    #[error("the path {path:?} is refused: {reason}")]
    InvalidPath {
        /// What was asked for.
        path: String,
        /// Why.
        reason: String,
    },
    /// The remote has no such branch or tag, or a local repository no such revision.
    #[error("the repository has no {kind} {name:?}")]
    RefNotFound {
        /// `branch`, `tag`, `commit` or `revision`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Names that look alike, best first.
        nearest: Vec<String>,
        /// Some of the names that there are, if none looks alike. Of versions the highest one.
        there: Vec<String>,
        /// What has this name instead: `tag` or `branch`.
        other: Option<&'static str>,
    },
    /// The repository has no commit yet.
    #[error("the repository is empty")]
    EmptyRepository,
    /// The ref has moved since it was resolved, and the server no longer hands out the commit. The caller resolves again at once.
    #[error("the commit {commit} is gone from the remote")]
    CommitGone {
        /// The commit that was wanted.
        commit: String,
    },
    /// The server does not hand out the commit that the spec pins.
    #[error("the server does not hand out the commit {commit}")]
    CommitRefused {
        /// The commit that was wanted.
        commit: String,
    },
    /// The ref leads to something else than a commit.
    #[error("{id} is a {kind}, not a commit")]
    NotACommit {
        /// The object.
        id: String,
        /// `tree`, `blob` or `tag`.
        kind: String,
    },
    /// The commit has no such folder.
    #[error("the commit has no folder {path:?}")]
    PathMissing {
        /// The path, relative to the root.
        path: String,
        /// Folders that look alike, best first.
        nearest: Vec<String>,
    },
    /// The path exists, but is a file, a link or a submodule.
    #[error("{path:?} is a {kind}, not a folder")]
    PathNotAFolder {
        /// The path, relative to the root.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// The server wants credentials, or other ones.
    #[error("the server refused {} (HTTP {status})", if *.given { "the credentials" } else { "access" })]
    AuthenticationFailed {
        /// 401 or 403.
        status: u16,
        /// Whether it got credentials.
        given: bool,
    },
    /// The ssh server does not take our key.
    #[error("the server refused the ssh key of {user}")]
    KeyRefused {
        /// Who was to log in.
        user: String,
    },
    /// The ssh server shows a key that is not trusted, so nothing was sent.
    #[error("the key of {host} is not trusted: {}", said_of(*.problem, .key))]
    HostKeyNotTrusted {
        /// The server, as `known_hosts` has it.
        host: String,
        /// The kind of the key that it shows, and its fingerprint.
        key: String,
        /// What is wrong with it.
        problem: HostKeyProblem,
    },
    /// The ssh server took our key, and does not give the repository.
    #[error("the server does not give the repository: {said}")]
    RepositoryRefused {
        /// What it says.
        said: String,
    },
    /// An ssh URL without credentials.
    #[error("an ssh:// URL needs credentials")]
    CredentialsNeeded,
    /// The commit, or its tag, does not count as signed. Nothing of it was read.
    #[error("{what} is not trusted: {why}")]
    NotVerified {
        /// The commit or the tag.
        what: String,
        /// Why.
        why: Unverified,
    },
    /// The server knows no such repository.
    #[error("the server has no such repository (HTTP {status})")]
    RepositoryNotFound {
        /// 404 or 410.
        status: u16,
    },
    /// The server answered with a redirect. None is followed.
    #[error("the server redirects to {to}; redirects are not followed")]
    Redirected {
        /// Where to: scheme and host only.
        to: String,
    },
    /// The server does not speak Git's smart protocol.
    #[error("there is no Git server at that URL: {detail}")]
    NotAGitServer {
        /// What it answers instead.
        detail: String,
    },
    /// The server answered with an error.
    #[error("the server answered with HTTP {status}")]
    ServerFailed {
        /// The HTTP status.
        status: u16,
    },
    /// The server's certificate is not trusted, so nothing was sent.
    #[error("the server's certificate is not trusted: {why}")]
    CertificateNotTrusted {
        /// What is wrong with it.
        why: String,
    },
    /// The server wants a client certificate, or refuses the one that it was shown.
    #[error("{why}")]
    ClientCertificateRefused {
        /// What it says.
        why: &'static str,
    },
    /// The proxy makes no connection.
    #[error("the connection through the proxy failed: {detail}")]
    ProxyFailed {
        /// What happened.
        detail: String,
        /// What to do.
        hint: &'static str,
    },
    /// There is no connection, or it broke.
    #[error("the connection failed: {detail}")]
    ConnectionFailed {
        /// What happened.
        detail: String,
    },
    /// An attempt has taken too long.
    #[error("{what} took longer than {}s", .after.as_secs_f64())]
    Timeout {
        /// What was being done.
        what: &'static str,
        /// The time it had.
        after: Duration,
    },
    /// The server has stopped sending during an attempt.
    #[error("{what}: the server has sent nothing for {}s", .after.as_secs_f64())]
    Silent {
        /// What was being done.
        what: &'static str,
        /// How long it has sent nothing.
        after: Duration,
    },
    /// An earlier attempt was abandoned, and has not ended yet.
    #[error("an earlier attempt has not ended yet")]
    Busy,
    /// The pack, or one object in it, exceeds the budget.
    #[error("the commit is too large: {detail}")]
    PackTooLarge {
        /// Which budget.
        detail: String,
    },
    /// The server's list of refs exceeds the budget.
    #[error("the server's answer is larger than {limit} bytes")]
    AnswerTooLarge {
        /// The budget, in bytes.
        limit: u64,
    },
    /// Received or stored data is damaged. The next fetch makes the store anew.
    #[error("the Git data is damaged: {detail}")]
    CorruptData {
        /// What is damaged.
        detail: String,
    },
    /// The local disk failed.
    #[error("the local store failed: {detail}")]
    StorageFailed {
        /// What failed.
        detail: String,
    },
}

impl GitError {
    /// The reason in conditions and events. It is CamelCase, and never changes.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.source_reason().as_str()
    }

    /// The reason for conditions and events.
    #[must_use]
    pub fn source_reason(&self) -> SourceReason {
        match self {
            Self::InvalidUrl { .. } => SourceReason::InvalidURL,
            Self::InsecureConnection { .. } => SourceReason::InsecureConnectionsDisallowed,
            Self::AddressRefused(_) => SourceReason::AddressRefused,
            Self::InvalidRoots { .. } | Self::InvalidIdentity { .. } => {
                SourceReason::CredentialsInvalid
            }
            Self::InvalidRef { .. } => SourceReason::InvalidRef,
            Self::InvalidPath { .. } => SourceReason::InvalidPath,
            Self::RefNotFound { .. } => SourceReason::RefNotFound,
            Self::EmptyRepository => SourceReason::EmptyRepository,
            Self::CommitGone { .. } => SourceReason::CommitGone,
            Self::CommitRefused { .. } => SourceReason::CommitRefused,
            Self::NotACommit { .. } => SourceReason::NotACommit,
            Self::PathMissing { .. } => SourceReason::PathMissing,
            Self::PathNotAFolder { .. } => SourceReason::PathNotAFolder,
            Self::AuthenticationFailed { .. }
            | Self::KeyRefused { .. }
            | Self::ClientCertificateRefused { .. } => SourceReason::AuthenticationFailed,
            Self::HostKeyNotTrusted { .. } => SourceReason::HostKeyNotTrusted,
            Self::CredentialsNeeded => SourceReason::CredentialsMissing,
            Self::NotVerified { why, .. } => match why {
                Unverified::Unsigned => SourceReason::SignatureMissing,
                Unverified::UnknownKey { .. } => SourceReason::SignatureKeyUnknown,
                Unverified::Expired { .. } => SourceReason::SignatureKeyExpired,
                Unverified::Revoked { .. } => SourceReason::SignatureKeyRevoked,
                Unverified::Wrong { .. } => SourceReason::SignatureWrong,
                Unverified::Unsupported(_) => SourceReason::SignatureUnsupported,
                Unverified::Malformed(_) => SourceReason::SignatureMalformed,
                Unverified::OtherTag(_) => SourceReason::SignedTagMismatch,
            },
            Self::RepositoryNotFound { .. } | Self::RepositoryRefused { .. } => {
                SourceReason::RepositoryNotFound
            }
            Self::Redirected { .. } => SourceReason::RedirectRefused,
            Self::NotAGitServer { .. } => SourceReason::NotAGitServer,
            Self::ServerFailed { .. } => SourceReason::ServerFailed,
            Self::CertificateNotTrusted { .. } => SourceReason::CertificateNotTrusted,
            Self::ProxyFailed { .. } => SourceReason::ProxyFailed,
            Self::ConnectionFailed { .. } => SourceReason::ConnectionFailed,
            Self::Timeout { .. } => SourceReason::Timeout,
            Self::Silent { .. } => SourceReason::ServerSilent,
            Self::Busy => SourceReason::Busy,
            Self::PackTooLarge { .. } => SourceReason::PackTooLarge,
            Self::AnswerTooLarge { .. } => SourceReason::AnswerTooLarge,
            Self::CorruptData { .. } => SourceReason::CorruptData,
            Self::StorageFailed { .. } => SourceReason::StorageFailed,
        }
    }

    /// Whether only a change of the spec or of the operator's flags can help.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::AddressRefused(refused) => refused.is_lasting(),
            Self::InvalidUrl { .. }
            | Self::InsecureConnection { .. }
            | Self::CredentialsNeeded
            | Self::InvalidRef { .. }
            | Self::InvalidPath { .. } => true,
            _ => false,
        }
    }

    /// The error for a failure of the local disk.
    pub(super) fn storage(doing: &str, error: &std::io::Error) -> Self {
        Self::StorageFailed { detail: format!("cannot {doing}: {error}") }
    }

    /// The error for damaged data. The text may come from the remote.
    pub(super) fn corrupt(detail: impl AsRef<str>) -> Self {
        Self::CorruptData { detail: printable(detail.as_ref()) }
    }
}

impl From<GitError> for SourceError {
    fn from(error: GitError) -> Self {
        let (reason, message, hint) = (error.source_reason(), error.to_string(), error.hint());
        Self::Git { reason, message, hint, terminal: error.is_terminal() }
    }
}

impl From<NoToken> for SourceError {
    fn from(error: NoToken) -> Self {
        let (message, hint) = (error.to_string(), error.hint().map(str::to_owned));
        let reason = match error {
            NoToken::Refused { status: 400..500, .. } => SourceReason::AuthenticationFailed,
            NoToken::Unreachable(error) => GitError::from(error).source_reason(),
            NoToken::Refused { .. } | NoToken::NotUnderstood(_) => SourceReason::ServerFailed,
        };
        Self::Input { reason, message, hint }
    }
}

impl From<NetError> for GitError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::NotAllowed(refused) => Self::AddressRefused(refused),
            NetError::InvalidRoots { reason } => Self::InvalidRoots { reason },
            NetError::InvalidIdentity { reason } => Self::InvalidIdentity { reason },
            NetError::CertificateNotTrusted { why } => Self::CertificateNotTrusted { why },
            NetError::ClientCertificateRefused { why } => Self::ClientCertificateRefused { why },
            NetError::ProxyFailed { detail, hint } => Self::ProxyFailed { detail, hint },
            NetError::Failed { detail } | NetError::ConnectionRefused { detail } => {
                Self::ConnectionFailed { detail }
            }
        }
    }
}

/// Makes a foreign text fit for a status: one line of at most 300 characters, without control characters.
pub(super) fn printable(text: &str) -> String {
    let mut out: String = text
        .chars()
        .map(|c| if c.is_control() || is_invisible(c) { ' ' } else { c })
        .take(300)
        .collect();
    out.truncate(out.trim_end().len());
    out
}

/// What is wrong with the key of a server, for people.
fn said_of(problem: HostKeyProblem, key: &str) -> String {
    match problem {
        HostKeyProblem::Unknown => format!("known_hosts has no key of it; it shows {key}"),
        HostKeyProblem::Other => format!("known_hosts has another one; it shows {key}"),
        HostKeyProblem::Revoked => format!("known_hosts says that {key} is revoked"),
    }
}

/// Bytes of the longest name that is compared. Comparing takes time by the length of both.
const MAX_NAME: usize = 255;

/// At most three names that look like `wanted`, the best first.
pub(super) fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = names
        .into_iter()
        .filter(|name| name.len() <= MAX_NAME)
        .take(2000)
        .map(|name| (strsim::jaro_winkler(wanted, name), name))
        .filter(|(score, _)| *score > 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(3).map(|(_, name)| printable(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_from_outside_lose_control_characters_and_length() {
        assert_eq!(printable("a\r\nb\u{202e}c\u{1b}[31m"), "a  b c [31m");
        assert_eq!(printable(&"x".repeat(1000)).len(), 300);
    }

    #[test]
    fn nearest_names_come_best_first() {
        assert_eq!(nearest("mian", ["release", "main", "maint"]), ["main", "maint"]);
        assert!(nearest("main", ["zzz"]).is_empty());
    }

    #[test]
    fn only_errors_of_the_spec_are_terminal() {
        assert!(GitError::InvalidUrl { reason: String::new() }.is_terminal());
        assert!(!GitError::AuthenticationFailed { status: 401, given: false }.is_terminal());
        assert!(!GitError::EmptyRepository.is_terminal());
    }
}
