//! (pure) Why no image can be built: each problem with the reason of the condition `Ready`.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::key::KeyError;
use super::pipeline_run::SpecError;
use super::template::WORKSPACE_PUSH_AUTH;
use super::template_error::TemplateError;
use crate::cluster::client::CallError;
use crate::sync::commit::source_error::SourceError;
use convoke_core::cluster::account::OperatorAccount;

/// The most problems of a template that one message tells.
const MAX_TEMPLATE_PROBLEMS: usize = 5;

/// The fields of `spec.source.git`, which a GitSync has in its `spec`.
const REPOSITORY_FIELDS: [&str; 5] = ["secretRef", "proxySecretRef", "ref.", "interval", "timeout"];

/// Why there is no build key, or why its run cannot be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildProblem {
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
    /// Whether it may heal without a change of the AgentBuild.
    pub waiting: bool,
}

impl BuildProblem {
    /// A problem that only a change of the AgentBuild or of its source heals.
    const fn of_spec(reason: &'static str, message: String) -> Self {
        Self { reason, message, waiting: false }
    }

    /// A problem that may heal without a change of the AgentBuild.
    const fn of_cluster(reason: &'static str, message: String) -> Self {
        Self { reason, message, waiting: true }
    }

    /// Neither the AgentBuild nor the operator names a registry.
    #[must_use]
    pub fn no_registry() -> Self {
        let message =
            "spec.output.registry is not set, and the operator has no --internal-registry";
        Self::of_spec("RegistryMissing", message.into())
    }

    /// The image of a build in the internal registry does not begin with its namespace.
    #[must_use]
    pub fn image_path(namespace: &str, image: &str) -> Self {
        let message = format!(
            "spec.output.image: {image} does not begin with {namespace}/, as every image of this namespace does in the operator's registry"
        );
        Self::of_spec("ImagePathNotAllowed", message)
    }

    /// The template may not be read.
    #[must_use]
    pub fn template_unreadable(error: &CallError) -> Self {
        Self::of_cluster("TemplateUnreadable", format!("cannot read the template: {error}"))
    }

    /// The template cannot be used. The first error gives the reason; the message tells all of them, up to a length.
    #[must_use]
    pub fn of_template(errors: &[TemplateError]) -> Self {
        let told: Vec<_> =
            errors.iter().take(MAX_TEMPLATE_PROBLEMS).map(ToString::to_string).collect();
        let mut message = told.join("; ");
        if errors.len() > MAX_TEMPLATE_PROBLEMS {
            message = format!("{message}; and {} more", errors.len() - MAX_TEMPLATE_PROBLEMS);
        }
        let reason = errors.first().map_or("TemplateInvalid", TemplateError::reason);
        // All of these heal when a ConfigMap is added or changed.
        Self::of_cluster(reason, message)
    }

    /// There are no credentials, or they cannot be used.
    #[must_use]
    pub fn of_credentials(error: &SourceError) -> Self {
        let hint = error.hint().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
        Self::of_cluster(error.reason().as_str(), format!("{error}{hint}"))
    }

    /// The repository of `spec.source.git` cannot be read.
    #[must_use]
    pub fn of_repository(error: &SourceError) -> Self {
        let Self { reason, message, .. } = Self::of_credentials(error);
        // Hints name the fields of a GitSync.
        let message = REPOSITORY_FIELDS.iter().fold(message, |text, field| {
            text.replace(&format!("spec.{field}"), &format!("spec.source.git.{field}"))
        });
        Self { reason, message, waiting: !error.is_terminal() }
    }

    /// The machine gives no random numbers, from which the names of Secrets are made.
    #[must_use]
    pub fn no_random_numbers() -> Self {
        Self::of_cluster("InternalError", "this machine gives no random numbers".into())
    }

    /// The key is not known with which runs are sealed that are to be attested.
    #[must_use]
    pub fn no_seal() -> Self {
        let message = "mode asks for provenance, and the operator's Secret convoke-hmac cannot be read yet: its log says why";
        Self::of_cluster("SealKeyMissing", message.into())
    }

    /// No step takes the credentials for the registry.
    #[must_use]
    pub fn push_auth_unused(mode: &str) -> Self {
        let message = format!(
            "spec.output.secretRef is set, but no step of template {mode} has the workspace {WORKSPACE_PUSH_AUTH}"
        );
        Self::of_spec("CredentialsUnused", message)
    }

    /// With `trigger.baseImage`: it is not known what the tag of the base image names.
    #[must_use]
    pub fn base_image_unknown(what: &str, why: &str) -> Self {
        let message = format!("it is not known which image {what} names: {why}");
        Self::of_cluster("BaseImageUnknown", message)
    }

    /// Tekton gives no pod a user namespace.
    #[must_use]
    pub fn no_user_namespaces() -> Self {
        let message = "the operator has --build-profile=userns, and this Tekton has no podTemplate.hostUsers: it needs 1.9 or newer";
        Self::of_cluster("ProfileNotSupported", message.into())
    }

    /// The operator may not create Secrets in the namespace.
    #[must_use]
    pub fn secrets_forbidden(namespace: &str, operator: &OperatorAccount) -> Self {
        let flag = operator.flag();
        let message = format!(
            "the operator may not create the Secrets with which a build clones and pushes; hint: \
             kubectl -n {namespace} create rolebinding convoke-builds --clusterrole=convoke-builds {flag}"
        );
        Self::of_cluster("CredentialsForbidden", message)
    }

    /// The namespace of `--build-namespace` is not there, or is about to go.
    #[must_use]
    pub fn build_namespace_missing(namespace: &str, is_ending: bool) -> Self {
        let message = if is_ending {
            format!("the namespace {namespace} of --build-namespace is being deleted")
        } else {
            let named = "kubectl apply -f deploy/build-namespace.yaml";
            let named = match namespace {
                "convoke-builds" => named.to_owned(),
                other => {
                    format!("{named}, after you have put {other} in place of convoke-builds there")
                }
            };
            format!("the namespace {namespace} of --build-namespace does not exist; hint: {named}")
        };
        Self::of_cluster("BuildNamespaceMissing", message)
    }

    /// The finalizer of builds in another namespace was refused.
    #[must_use]
    pub fn finalizer_refused(error: &CallError) -> Self {
        let message = format!(
            "a build in the namespace of --build-namespace needs a finalizer on the AgentBuild, which was refused: {error}"
        );
        Self::of_cluster("BuildNamespaceForbidden", message)
    }

    /// The operator lacks a right without which no build runs in another namespace.
    #[must_use]
    pub fn build_namespace_forbidden(error: &CallError, operator: &OperatorAccount) -> Self {
        let flag = operator.flag();
        let message = format!(
            "a build in the namespace of --build-namespace needs a finalizer on the AgentBuild: {error}; hint: \
             kubectl create clusterrolebinding convoke-build-namespace --clusterrole=convoke-build-namespace {flag}"
        );
        Self::of_cluster("BuildNamespaceForbidden", message)
    }

    /// What an AgentBuild that is being deleted has left in another namespace cannot be removed.
    #[must_use]
    pub fn runs_left(namespace: &str, error: &CallError, operator: &OperatorAccount) -> Self {
        let flag = operator.flag();
        let message = format!(
            "it is being deleted, and its PipelineRuns in the namespace {namespace} cannot be removed: {error}; hint: \
             kubectl create clusterrolebinding convoke-build-namespace --clusterrole=convoke-build-namespace {flag}"
        );
        Self::of_cluster("PipelineRunsLeft", message)
    }

    /// The API server refuses a Secret of the run.
    #[must_use]
    pub fn secret_refused(why: &str) -> Self {
        Self::of_cluster("CredentialsRefused", format!("a Secret of the build was refused: {why}"))
    }

    /// The API server refuses the PipelineRun.
    #[must_use]
    pub fn run_refused(error: &CallError) -> Self {
        let help = if error.is_missing_right() {
            "; it is tried again within a minute: apply deploy/rbac.yaml of this version"
        } else {
            ""
        };
        let message = format!("the PipelineRun was refused: {error}{help}");
        Self::of_cluster("PipelineRunRefused", message)
    }
}

impl From<KeyError> for BuildProblem {
    fn from(error: KeyError) -> Self {
        let message = error.to_string();
        match error {
            KeyError::SubfolderMissing { .. } => Self::of_spec("SubfolderMissing", message),
        }
    }
}

impl From<SpecError> for BuildProblem {
    fn from(error: SpecError) -> Self {
        Self::of_spec(error.reason(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b8_only_a_missing_right_asks_for_the_roles_of_this_version() {
        let refused = |message: &str| {
            let status = json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": message});
            let status = serde_json::from_value(status).expect("a status");
            BuildProblem::run_refused(&CallError::Refused(Box::new(status))).message
        };
        let right = "pipelineruns.tekton.dev is forbidden: User \"system:serviceaccount:convoke-system:convoke\" cannot create resource \"pipelineruns\" in API group \"tekton.dev\" in the namespace \"team\"";
        let said = refused(right);
        let help = "; it is tried again within a minute: apply deploy/rbac.yaml of this version";
        assert!(said.ends_with(help), "{said}");
        let quota = "pipelineruns.tekton.dev \"x\" is forbidden: exceeded quota: runs";
        assert_eq!(refused(quota), format!("the PipelineRun was refused: {quota}"));
    }

    #[test]
    fn b5_a_build_namespace_is_made_from_the_shipped_file() {
        let file = "hint: kubectl apply -f deploy/build-namespace.yaml";
        let shipped = BuildProblem::build_namespace_missing("convoke-builds", false).message;
        assert!(shipped.ends_with(file), "{shipped}");
        let other = BuildProblem::build_namespace_missing("builds", false).message;
        let end = format!("{file}, after you have put builds in place of convoke-builds there");
        assert!(other.ends_with(&end), "{other}");
    }
}
