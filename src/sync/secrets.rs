//! Reads one Secret that a GitSync names, with a right on it alone, and tells with the commands what is missing.

use convoke_core::cluster::account::OperatorAccount;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use crate::cluster::client::call;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;

/// A Secret, and the field of the spec that names it.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Its namespace, that of the GitSync.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The field: `spec.secretRef`.
    pub field: &'static str,
}

/// An error of a Secret.
#[must_use]
pub fn input(reason: SourceReason, message: String, hint: Option<String>) -> SourceError {
    SourceError::Input { reason, message, hint }
}

impl Named<'_> {
    /// Reads the Secret. No other is read, listed or watched.
    ///
    /// # Errors
    /// [`SourceError::Input`] when it does not exist, may not be read, or the API server does not answer.
    pub async fn read(
        self,
        client: &Client,
        operator: &OperatorAccount,
        missing: impl FnOnce() -> SourceError,
    ) -> Result<Secret, SourceError> {
        let Self { namespace, name, field } = self;
        match call(Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name)).await {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(missing()),
            Err(error) if error.is_missing_right() => Err(self.forbidden(operator)),
            Err(error) => {
                let message = format!("cannot read the Secret {name} of {field}: {error}");
                Err(input(SourceReason::CredentialsUnreadable, message, None))
            }
        }
    }

    /// The error for a Secret that does not exist. `commands` come after the one that makes it.
    #[must_use]
    pub fn missing(self, commands: &str) -> SourceError {
        let Self { namespace, name, field } = self;
        let message = format!("the Secret {name} of {field} does not exist");
        let hint = format!(
            "kubectl -n {namespace} create secret generic {name} --from-literal=token=...{commands}"
        );
        input(SourceReason::CredentialsMissing, message, Some(hint))
    }

    /// The error for a Secret that the operator may not read.
    #[must_use]
    pub fn forbidden(self, operator: &OperatorAccount) -> SourceError {
        let Self { namespace, name, field } = self;
        let message = format!("the operator may not read the Secret {name} of {field}");
        let role = format!("convoke-git-{name}");
        let hint = format!(
            "kubectl -n {namespace} create role {role} --verb=get --resource=secrets --resource-name={name}; \
             kubectl -n {namespace} create rolebinding {role} --role={role} {}",
            operator.flag()
        );
        input(SourceReason::CredentialsForbidden, message, Some(hint))
    }

    /// The error for a Secret that has nothing that can be used.
    #[must_use]
    pub fn invalid(self, problem: &str, hint: Option<String>) -> SourceError {
        let Self { name, field, .. } = self;
        let message = format!("the Secret {name} of {field} cannot be used: {problem}");
        input(SourceReason::CredentialsInvalid, message, hint)
    }
}
