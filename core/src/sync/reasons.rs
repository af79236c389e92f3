//! The words of a GitSync's status: conditions' reasons, outcomes and triggers of the history. They are part of the API.

use std::fmt;

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// As the status says it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
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
    /// What started a look at a remote, or a plan.
    Trigger {
        /// The operator has started, or the GitSync is new.
        Start,
        /// The spec has changed.
        Spec,
        /// Somebody has asked for it (`convoke.dev/requestedAt`).
        Request,
        /// It is time, after a look that failed.
        Retry,
        /// It is time.
        Interval,
        /// Another GitSync of the namespace waits for it.
        Sibling,
        /// Somebody has approved deletes (`convoke.dev/approve-prune`).
        Approval,
        /// The values that `spec.variables` names have changed.
        Variables,
        /// The folder that takes the place of the repository has changed.
        Folder,
        /// An object of the cluster has changed.
        Cluster,
    }
}

words! {
    /// What came of a sync.
    SyncOutcome {
        /// The commit is applied whole.
        Applied,
        /// Some of it is.
        Partial,
        /// Deletes are held.
        Held,
        /// Something could not be written.
        Failed,
        /// It goes on: others are asked, or it was stopped in the middle.
        Progressing,
    }
}

words! {
    /// Why a sync is not Ready, or that it is, as far as the engine itself says it.
    EngineReason {
        /// The newest commit is applied whole.
        Succeeded,
        /// Work goes on, and nothing is known to be wrong.
        Progressing,
        /// `spec.suspend`.
        Suspended,
        /// It does not parse.
        InvalidSpec,
        /// The API server does not list all of our kinds.
        KindsNotListed,
        /// It is not seen what others change.
        KindsNotWatched,
        /// `dependsOn` goes in a circle.
        DependencyCycle,
        /// What it depends on is not there yet.
        DependencyNotReady,
        /// The commit has errors.
        ProblemsFound,
        /// Writes failed and are tried again.
        ApplyFailed,
        /// Rights are missing.
        Forbidden,
        /// Deletes wait for an approval.
        PruneHeld,
        /// Deletes wait until it is proven that nobody wants their objects.
        PruneWaiting,
        /// Deletes failed and are tried again.
        PruneFailed,
        /// Objects that are deleted have not ended.
        Terminating,
        /// Other GitSyncs take what it leaves.
        HandingOver,
        /// The GitSync ends, and deletes what it owns.
        Deleting,
        /// There is nobody to write as.
        ServiceAccountRequired,
        /// What is named cannot be a ServiceAccount.
        InvalidServiceAccount,
        /// The ServiceAccount does not exist.
        ServiceAccountNotFound,
        /// The operator may not act as the ServiceAccount.
        ImpersonationForbidden,
    }
}

/// Why a sync is not Ready, or that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The engine says so.
    Engine(EngineReason),
    /// The repository, or what is read beside it, cannot be read: a reason of its source.
    Source(&'static str),
}

impl Reason {
    /// As the condition says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Engine(said) => said.as_str(),
            Self::Source(reason) => reason,
        }
    }

    /// Whether the engine says just this.
    #[must_use]
    pub fn is(self, said: EngineReason) -> bool {
        self == Self::Engine(said)
    }
}

impl From<EngineReason> for Reason {
    fn from(said: EngineReason) -> Self {
        Self::Engine(said)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a sync is not Ready, or that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message.
    pub message: String,
    /// Whether the newest commit is applied whole.
    pub ready: bool,
    /// Whether only a change of the spec helps.
    pub stalled: bool,
    /// Whether work goes on by itself (a retry).
    pub reconciling: bool,
}

/// Not Ready, for this reason.
pub(crate) fn unready(reason: impl Into<Reason>, message: &str, stalled: bool) -> Verdict {
    Verdict {
        reason: reason.into(),
        message: message.into(),
        ready: false,
        stalled,
        reconciling: false,
    }
}
