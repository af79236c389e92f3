//! (pure) Reasons of the condition `Ready` that more than one place of the controllers knows.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

/// A reason of `Ready=False` that is no failure of the object itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The Deployment replaces pods.
    RollingOut,
    /// A child of an earlier object of the same name has to go first.
    Replacing,
    /// A model or a tool server is missing or not ready.
    WaitingForDependencies,
    /// The AgentBuild has built no image yet.
    WaitingForBuild,
    /// A Secret or ConfigMap that pods need is missing or not labelled, or their keys cannot be written.
    WaitingForInputs,
    /// The newest revision was not available in time, and the last good one runs in its place.
    RolledBack,
    /// `spec.suspend` is true.
    Suspended,
    /// The Deployment is scaled to zero.
    Stopped,
    /// The build waits for its turn, or for another run of it.
    Queued,
    /// The build failed because of the cluster, and is tried again.
    Retrying,
    /// The build was stopped for a newer one.
    Superseded,
    /// The PipelineRun runs.
    Building,
    /// Tekton does nothing with the PipelineRun.
    TektonNotResponding,
    /// The image is built, and its provenance is not in the registry yet.
    ProvenancePending,
    /// The source changed, but `spec.trigger.onCommit` is false.
    TriggerOff,
    /// Tekton is not there.
    BuilderUnavailable,
    /// The commit with the build was not read yet.
    SourcePending,
    /// The newest commit does not hold the build.
    NotInGit,
    /// The live object is not the one that the newest commit wants.
    NotApplied,
}

impl Reason {
    /// All reasons.
    const ALL: [Self; 19] = [
        Self::RollingOut,
        Self::Replacing,
        Self::WaitingForDependencies,
        Self::WaitingForBuild,
        Self::WaitingForInputs,
        Self::RolledBack,
        Self::Suspended,
        Self::Stopped,
        Self::Queued,
        Self::Retrying,
        Self::Superseded,
        Self::Building,
        Self::TektonNotResponding,
        Self::ProvenancePending,
        Self::TriggerOff,
        Self::BuilderUnavailable,
        Self::SourcePending,
        Self::NotInGit,
        Self::NotApplied,
    ];

    /// The reason as a condition says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RollingOut => "RollingOut",
            Self::Replacing => "Replacing",
            Self::WaitingForDependencies => "WaitingForDependencies",
            Self::WaitingForBuild => "WaitingForBuild",
            Self::WaitingForInputs => "WaitingForInputs",
            Self::RolledBack => "RolledBack",
            Self::Suspended => "Suspended",
            Self::Stopped => "Stopped",
            Self::Queued => "Queued",
            Self::Retrying => "Retrying",
            Self::Superseded => "Superseded",
            Self::Building => "Building",
            Self::TektonNotResponding => "TektonNotResponding",
            Self::ProvenancePending => "ProvenancePending",
            Self::TriggerOff => "TriggerOff",
            Self::BuilderUnavailable => "BuilderUnavailable",
            Self::SourcePending => "SourcePending",
            Self::NotInGit => "NotInGit",
            Self::NotApplied => "NotApplied",
        }
    }

    /// The reason that a condition says, if it is one of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// Whether it goes on only if somebody does something.
    #[must_use]
    pub const fn needs_somebody(self) -> bool {
        matches!(self, Self::WaitingForInputs | Self::RolledBack)
    }

    /// Whether the reason says only that it is not known what Git wants.
    #[must_use]
    pub const fn is_unknown_source(self) -> bool {
        matches!(self, Self::SourcePending | Self::NotInGit | Self::NotApplied)
    }
}
