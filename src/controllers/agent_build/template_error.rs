//! (pure) What can be wrong with a template: each problem by name, with its place.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::template::{ParameterType, STEP_LABEL, WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH};

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum TemplateError {
    #[error("no ConfigMap {config_map} in {namespaces}")]
    TemplateNotFound { config_map: String, namespaces: String },
    #[error("ConfigMap {config_map}: {message}")]
    TemplateInvalid { config_map: String, message: String },
    #[error("step {step}: no ConfigMap {config_map} in {namespaces}")]
    StepNotFound { step: String, config_map: String, namespaces: String },
    #[error("step {step}: ConfigMap {config_map} lacks the label {STEP_LABEL}: \"true\"")]
    StepNotAllowed { step: String, config_map: String },
    #[error("step {step}: {message}")]
    StepInvalid { step: String, message: String },
    #[error("step {step}: {refused}")]
    PodNotAllowed { step: String, refused: String },
    #[error("{place} has no parameter {name}")]
    UnknownParameter { place: String, name: String },
    #[error("{place} needs a value for parameter {name}")]
    MissingParameter { place: String, name: String },
    #[error("{place} has no parameter {name}; {known}")]
    UnknownOverride { place: String, name: String, known: String },
    #[error("{place}: parameter {name} must not be set: {why}")]
    ParameterNotAllowed { place: String, name: String, why: String },
    #[error("template {template} lets no AgentBuild name steps of its own (fixedSteps)")]
    StepsNotAllowed { template: String },
    #[error(
        "step {step} has the workspace {WORKSPACE_GIT_AUTH}: only steps that have it, too, may come before it"
    )]
    StepOrderNotAllowed { step: String },
    #[error("spec.pipeline: {message}")]
    PipelineInvalid { message: String },
    #[error("{place}: parameter {name} must be of type {want}")]
    WrongParameterType { place: String, name: String, want: ParameterType },
    #[error("{place}: the value of parameter {name} must not contain \"$(\" or \"$$\"")]
    UnsafeValue { place: String, name: String },
    #[error("step {step}: when: {message}")]
    WhenInvalid { step: String, message: String },
    #[error("steps {one} and {other} cannot be in one pod: {what}")]
    StepsDisagree { one: String, other: String, what: String },
    #[error("step {step}: workspace {name} is not there")]
    MissingWorkspace { step: String, name: String },
    #[error(
        "step {step}: {WORKSPACE_GIT_AUTH} and {WORKSPACE_PUSH_AUTH} must not meet in one step"
    )]
    WorkspacesNotIsolated { step: String },
    #[error("no step has the result IMAGE_DIGEST")]
    NoDigestResult,
}

impl TemplateError {
    /// The reason of the condition.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::TemplateNotFound { .. } => "TemplateNotFound",
            Self::TemplateInvalid { .. } => "TemplateInvalid",
            Self::StepNotFound { .. } => "StepNotFound",
            Self::StepNotAllowed { .. } => "StepNotAllowed",
            Self::StepInvalid { .. } => "StepInvalid",
            Self::PodNotAllowed { .. } => "PodNotAllowed",
            Self::UnknownParameter { .. } | Self::UnknownOverride { .. } => "UnknownParameter",
            Self::ParameterNotAllowed { .. } => "ParameterNotAllowed",
            Self::StepsNotAllowed { .. } => "StepsNotAllowed",
            Self::StepOrderNotAllowed { .. } => "StepOrderNotAllowed",
            Self::PipelineInvalid { .. } => "PipelineInvalid",
            Self::MissingParameter { .. } => "MissingParameter",
            Self::WrongParameterType { .. } => "WrongParameterType",
            Self::UnsafeValue { .. } => "UnsafeValue",
            Self::WhenInvalid { .. } => "WhenInvalid",
            Self::StepsDisagree { .. } => "StepsDisagree",
            Self::MissingWorkspace { .. } => "MissingWorkspace",
            Self::WorkspacesNotIsolated { .. } => "WorkspacesNotIsolated",
            Self::NoDigestResult => "NoDigestResult",
        }
    }
}
