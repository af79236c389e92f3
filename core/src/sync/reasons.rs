//! The fixed words of the API: reasons of conditions and events, outcomes and triggers of the history.
//!
//! Users see each word as it is written here. A word is never renamed.

use std::fmt;

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// The word as users see it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Reads a word as users see it.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What started a poll of a remote, or a plan.
    Trigger {
        /// The operator has started, or the GitSync is new.
        Start,
        /// The spec has changed.
        Spec,
        /// A user has requested it (`convoke.dev/requestedAt`).
        Request,
        /// The last poll failed, and the retry interval is over.
        Retry,
        /// The poll interval is over.
        Interval,
        /// Another GitSync of the namespace waits for the answer.
        Sibling,
        /// A user has approved deletes (`convoke.dev/approve-prune`).
        Approval,
        /// The values that `spec.variables` names have changed.
        Variables,
        /// The local folder that is used instead of the repository has changed.
        Folder,
        /// A webhook has told of a push.
        Webhook,
        /// Another GitSync of the same repository has found that the ref has moved.
        SharedRef,
        /// An object of the cluster has changed.
        Cluster,
    }
}

words! {
    /// The outcome of a sync.
    SyncOutcome {
        /// The commit is applied whole.
        Applied,
        /// Some of the commit is applied.
        Partial,
        /// Deletes are held.
        Held,
        /// A write failed.
        Failed,
        /// The sync goes on: it waits for other GitSyncs, or it was stopped before its end.
        Progressing,
    }
}

words! {
    /// Why a GitSync is Ready or not, as far as the reason is not one of its source.
    EngineReason {
        /// The newest commit is applied whole.
        Succeeded,
        /// The sync goes on, and no error is known.
        Progressing,
        /// `spec.suspend` is set.
        Suspended,
        /// The spec does not parse.
        InvalidSpec,
        /// The API server does not list all kinds that Convoke writes.
        KindsNotListed,
        /// A kind that Convoke writes is not watched, so changes of its objects are not seen.
        KindsNotWatched,
        /// `dependsOn` forms a cycle.
        DependencyCycle,
        /// A dependency is not ready.
        DependencyNotReady,
        /// The commit has errors.
        ProblemsFound,
        /// Writes failed and are retried.
        ApplyFailed,
        /// The account that writes lacks rights.
        Forbidden,
        /// Deletes wait for an approval.
        PruneHeld,
        /// Deletes wait until it is proven that no other GitSync wants the objects.
        PruneWaiting,
        /// Deletes failed and are retried.
        PruneFailed,
        /// Deleted objects still exist, because finalizers keep them.
        Terminating,
        /// Objects are handed over to other GitSyncs.
        HandingOver,
        /// The GitSync is being deleted, and deletes its objects.
        Deleting,
        /// No ServiceAccount is named to write with.
        ServiceAccountRequired,
        /// The name is no valid name of a ServiceAccount.
        InvalidServiceAccount,
        /// The ServiceAccount does not exist.
        ServiceAccountNotFound,
        /// The operator may not impersonate the ServiceAccount.
        ImpersonationForbidden,
    }
}

words! {
    /// Why the newest commit, or a source of `spec.variables`, cannot be read.
    SourceReason {
        /// The repository URL is malformed, or of a kind that is not allowed.
        InvalidURL,
        /// The URL uses plain HTTP, which the operator does not allow.
        InsecureConnectionsDisallowed,
        /// The operator may not connect to the address of the host.
        AddressRefused,
        /// The branch, tag or commit is no valid name.
        InvalidRef,
        /// The path is no valid path of a repository.
        InvalidPath,
        /// The remote has no such branch, tag or revision.
        RefNotFound,
        /// The repository has no commit.
        EmptyRepository,
        /// The remote no longer serves the commit.
        CommitGone,
        /// The server refuses to serve the commit that the spec pins.
        CommitRefused,
        /// The ref leads to an object that is no commit.
        NotACommit,
        /// The commit has no such folder.
        PathMissing,
        /// The path is a file, a link or a submodule.
        PathNotAFolder,
        /// The server requires other credentials.
        AuthenticationFailed,
        /// The server has no such repository.
        RepositoryNotFound,
        /// The server answered with a redirect, which is not followed.
        RedirectRefused,
        /// The server does not speak Git's smart protocol.
        NotAGitServer,
        /// The server answered with an error.
        ServerFailed,
        /// The certificate of the server is not trusted.
        CertificateNotTrusted,
        /// The ssh server's key is not in `known_hosts`.
        HostKeyNotTrusted,
        /// The proxy makes no connection to the server.
        ProxyFailed,
        /// No connection was made, or it broke.
        ConnectionFailed,
        /// The deadline of one attempt has passed.
        Timeout,
        /// The server stopped sending during an attempt.
        ServerSilent,
        /// An earlier attempt has not ended yet.
        Busy,
        /// The commit exceeds a size limit.
        PackTooLarge,
        /// The list of refs exceeds its size limit.
        AnswerTooLarge,
        /// The received or stored Git data is damaged.
        CorruptData,
        /// The local disk failed.
        StorageFailed,
        /// A pattern of `spec.ignore` is invalid.
        InvalidIgnore,
        /// A ConfigMap of `spec.variables` does not exist.
        VariablesMissing,
        /// A ConfigMap of `spec.variables` cannot be read.
        VariablesUnreadable,
        /// A ConfigMap of `spec.variables` lacks the label that allows its use.
        VariablesNotAllowed,
        /// The Secret of `spec.secretRef`, or of `spec.webhook`, does not exist.
        CredentialsMissing,
        /// The operator may not read the Secret of `spec.secretRef`, or of `spec.webhook`.
        CredentialsForbidden,
        /// The Secret of `spec.secretRef` is not for this server.
        CredentialsNotAllowed,
        /// The Secret of `spec.secretRef`, or of `spec.webhook`, has nothing that can be used.
        CredentialsInvalid,
        /// The Secret of `spec.secretRef`, or of `spec.webhook`, cannot be read.
        CredentialsUnreadable,
        /// The Secret of `spec.verify` does not exist.
        VerificationKeysMissing,
        /// The operator may not read the Secret of `spec.verify`.
        VerificationKeysForbidden,
        /// The Secret of `spec.verify` has no keys that can be used.
        VerificationKeysInvalid,
        /// The Secret of `spec.verify` cannot be read.
        VerificationKeysUnreadable,
        /// The commit or the tag has no signature.
        SignatureMissing,
        /// The commit or the tag is signed by a key that is not known.
        SignatureKeyUnknown,
        /// The key that signed the commit or the tag, or the signature, has expired.
        SignatureKeyExpired,
        /// The key that signed the commit or the tag is revoked.
        SignatureKeyRevoked,
        /// The signature does not fit the commit or the tag.
        SignatureWrong,
        /// The signature, or its key, is of a kind that is not supported or too weak.
        SignatureUnsupported,
        /// The signature does not parse.
        SignatureMalformed,
        /// The signed tag is not the one that the spec names, or not of the commit.
        SignedTagMismatch,
        /// Reading the commit failed because of a bug of Convoke.
        InternalError,
    }
}

words! {
    /// The reasons of events that do not repeat the reason of a condition.
    ///
    /// In alphabetical order: an event that sums up others lists their reasons in the order of this enum.
    EventReason {
        /// An approval of deletes releases nothing.
        ApprovalOutdated,
        /// An object exists, and belongs to somebody else.
        Conflict,
        /// The GitSync was deleted, and so were its objects.
        Deleted,
        /// A manual change of an object was reverted.
        DriftCorrected,
        /// An object cannot be written, because rights are missing.
        Forbidden,
        /// The GitSync was deleted, and its objects stay.
        Orphaned,
        /// The API server refused the content of an object.
        Refused,
        /// The GitSync was deleted, and its objects are deleted with the namespace.
        Released,
        /// `spec.suspend` was removed.
        Resumed,
        /// The tag that is followed names another commit than before.
        TagMoved,
    }
}

impl SourceReason {
    /// Whether it says that the signature of the newest commit was not verified.
    #[must_use]
    pub const fn is_of_verification(self) -> bool {
        matches!(
            self,
            Self::VerificationKeysMissing
                | Self::VerificationKeysForbidden
                | Self::VerificationKeysInvalid
                | Self::VerificationKeysUnreadable
        ) || self.is_of_signature()
    }

    /// Whether other credentials may help: those of the Secret may be newer than those that were used.
    #[must_use]
    pub const fn is_of_credentials(self) -> bool {
        matches!(
            self,
            Self::AuthenticationFailed
                | Self::HostKeyNotTrusted
                | Self::CertificateNotTrusted
                | Self::ProxyFailed
                // What many servers say to somebody who may not read it.
                | Self::RepositoryNotFound
        )
    }

    /// Whether it says that a signature was looked at, and does not count.
    #[must_use]
    pub const fn is_of_signature(self) -> bool {
        matches!(
            self,
            Self::SignatureMissing
                | Self::SignatureKeyUnknown
                | Self::SignatureKeyExpired
                | Self::SignatureKeyRevoked
                | Self::SignatureWrong
                | Self::SignatureUnsupported
                | Self::SignatureMalformed
                | Self::SignedTagMismatch
        )
    }
}

/// Why a GitSync is Ready or not: the reason of its `Ready` condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A reason of the sync itself.
    Engine(EngineReason),
    /// A reason of the source: the repository or the variables cannot be read.
    Source(SourceReason),
}

impl Reason {
    /// The word as the condition has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Engine(reason) => reason.as_str(),
            Self::Source(reason) => reason.as_str(),
        }
    }

    /// The reason, if it is one of the sync itself.
    #[must_use]
    pub const fn engine(self) -> Option<EngineReason> {
        match self {
            Self::Engine(reason) => Some(reason),
            Self::Source(_) => None,
        }
    }

    /// Whether it is this reason.
    #[must_use]
    pub fn is(self, reason: EngineReason) -> bool {
        self == Self::Engine(reason)
    }
}

impl From<EngineReason> for Reason {
    fn from(reason: EngineReason) -> Self {
        Self::Engine(reason)
    }
}

impl From<SourceReason> for Reason {
    fn from(reason: SourceReason) -> Self {
        Self::Source(reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the conditions of a GitSync say after a reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The reason of the `Ready` condition.
    pub reason: Reason,
    /// The message of the `Ready` condition.
    pub message: String,
    /// Whether the newest commit is applied whole.
    pub ready: bool,
    /// Whether the GitSync stays not Ready until the spec (or a flag of the operator) changes.
    pub stalled: bool,
    /// Whether the operator retries or continues without a change of the spec.
    pub reconciling: bool,
}

/// The verdict of a GitSync that is not Ready. It is not stalled.
pub(crate) fn unready(reason: impl Into<Reason>, message: &str) -> Verdict {
    Verdict {
        reason: reason.into(),
        message: message.into(),
        ready: false,
        stalled: false,
        reconciling: false,
    }
}

/// The verdict of a GitSync that is not Ready until its spec (or a flag of the operator) changes.
pub(crate) fn stalled(reason: impl Into<Reason>, message: &str) -> Verdict {
    Verdict { stalled: true, ..unready(reason, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g18_a_word_is_read_as_it_is_written() {
        for reason in [SourceReason::InvalidURL, SourceReason::InternalError] {
            assert_eq!(SourceReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(EngineReason::parse("PruneHeld"), Some(EngineReason::PruneHeld));
        assert_eq!(EngineReason::parse("Timeout"), None, "a reason of the source");
    }
}
