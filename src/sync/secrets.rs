//! Reads one Secret that a GitSync or an AgentBuild names, with a right on it alone, and tells with the commands what is missing.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::cluster::account::OperatorAccount;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use crate::api::keys;
use crate::cluster::client::call;
use crate::git::{are_for, are_for_repository, origin, repository_place};
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;
use convoke_core::text::shell_word;

/// How long the content of a Secret is used without a look at it.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// When Secrets were read, and what for. The default was never read.
pub struct Freshness<K>(Option<(K, Instant)>);

impl<K> Default for Freshness<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: PartialEq> Freshness<K> {
    /// They were read just now.
    pub fn now(wanted: K) -> Self {
        Self(Some((wanted, Instant::now())))
    }

    /// Whether they were read for this a moment ago.
    pub fn is_of(&self, wanted: &K) -> bool {
        self.0.as_ref().is_some_and(|(known, at)| known == wanted && at.elapsed() < MAX_AGE)
    }
}

/// What a Secret is for: how its problems and the right on it are named.
#[derive(Debug)]
pub struct Purpose {
    /// What the names of the Role and the RoleBinding begin with that let the operator read it.
    role: &'static str,
    missing: SourceReason,
    forbidden: SourceReason,
    invalid: SourceReason,
    unreadable: SourceReason,
}

/// Credentials for a server.
pub const CREDENTIALS: &Purpose = &Purpose {
    role: "convoke-git",
    missing: SourceReason::CredentialsMissing,
    forbidden: SourceReason::CredentialsForbidden,
    invalid: SourceReason::CredentialsInvalid,
    unreadable: SourceReason::CredentialsUnreadable,
};

/// Credentials for a registry.
pub const REGISTRY: &Purpose = &Purpose { role: "convoke-registry", ..*CREDENTIALS };

/// Public keys that may sign.
pub const VERIFICATION_KEYS: &Purpose = &Purpose {
    role: "convoke-verify",
    missing: SourceReason::VerificationKeysMissing,
    forbidden: SourceReason::VerificationKeysForbidden,
    invalid: SourceReason::VerificationKeysInvalid,
    unreadable: SourceReason::VerificationKeysUnreadable,
};

/// A Secret, and the field of the spec that names it.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Its namespace, that of the GitSync.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The field: `spec.secretRef`.
    pub field: &'static str,
    /// What it is for.
    pub purpose: &'static Purpose,
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
        let Self { namespace, name, field, purpose } = self;
        match call(Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name)).await {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(missing()),
            Err(error) if error.is_missing_right() => Err(self.forbidden(operator)),
            Err(error) => {
                let message = format!("cannot read the Secret {name} of {field}: {error}");
                Err(input(purpose.unreadable, message, None))
            }
        }
    }

    /// The error for a Secret that does not exist. `values` are the arguments of the command that makes it, `commands` come after it.
    #[must_use]
    pub fn missing(self, values: &str, commands: &str) -> SourceError {
        let Self { namespace, name, field, purpose } = self;
        let message = format!("the Secret {name} of {field} does not exist");
        let hint =
            format!("kubectl -n {namespace} create secret generic {name} {values}{commands}");
        input(purpose.missing, message, Some(hint))
    }

    /// The error for a Secret that the operator may not read.
    #[must_use]
    pub fn forbidden(self, operator: &OperatorAccount) -> SourceError {
        let Self { namespace, name, field, purpose } = self;
        let message = format!("the operator may not read the Secret {name} of {field}");
        let role = format!("{}-{name}", purpose.role);
        let hint = format!(
            "kubectl -n {namespace} create role {role} --verb=get --resource=secrets --resource-name={name}; \
             kubectl -n {namespace} create rolebinding {role} --role={role} {}",
            operator.flag()
        );
        input(purpose.forbidden, message, Some(hint))
    }

    /// The error for a Secret that has nothing that can be used.
    #[must_use]
    pub fn invalid(self, problem: &str, hint: Option<String>) -> SourceError {
        let Self { name, field, purpose, .. } = self;
        let message = format!("the Secret {name} of {field} cannot be used: {problem}");
        input(purpose.invalid, message, hint)
    }
}

/// The data of a Secret.
pub type Data = BTreeMap<String, Vec<u8>>;

/// What the annotation of a Secret has to name before the Secret is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The origin of the URL ([`keys::GIT_ORIGINS`]), for a URL that those name who run the cluster.
    Origins,
    /// The repository ([`keys::REPOSITORIES`]), for a URL that a commit names.
    Repositories,
}

impl Guard {
    const fn key(self) -> &'static str {
        match self {
            Self::Origins => keys::GIT_ORIGINS,
            Self::Repositories => keys::REPOSITORIES,
        }
    }

    fn allows(self, annotation: &str, url: &str) -> bool {
        match self {
            Self::Origins => are_for(annotation, url),
            Self::Repositories => are_for_repository(annotation, url),
        }
    }
}

/// A Secret for one server. Its annotation must name what the guard asks for.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// The Secret.
    pub secret: Named<'a>,
    /// The URL of the repository.
    pub url: &'a str,
    /// The arguments of the command that makes the Secret, for messages.
    pub values: &'static str,
    /// What the annotation has to name.
    pub guard: Guard,
}

impl Bound<'_> {
    /// Reads the Secret.
    ///
    /// # Errors
    /// As [`Named::read`], and when it is not for this server.
    pub async fn read(
        self,
        client: &Client,
        operator: &OperatorAccount,
    ) -> Result<Data, SourceError> {
        let secret = self.secret.read(client, operator, || self.missing()).await?;
        self.allow(secret.annotations().get(self.guard.key()).map(String::as_str))?;
        let data = secret.data.unwrap_or_default().into_iter();
        Ok(data.map(|(key, value)| (key, value.0)).collect())
    }

    /// Checks whether the annotation allows that the Secret is used for this server.
    ///
    /// # Errors
    /// [`SourceError::Input`] with the command that allows it.
    pub fn allow(self, annotation: Option<&str>) -> Result<(), SourceError> {
        if annotation.is_some_and(|annotation| self.guard.allows(annotation, self.url)) {
            return Ok(());
        }
        let Named { name, field, .. } = self.secret;
        let (place, key) = (self.place(), self.guard.key());
        let what = place.as_deref().unwrap_or("that URL");
        let message = format!("the Secret {name} of {field} is not for {what}");
        // What it is for already stays, and is not quoted.
        let hint = match (self.guard, annotation, &place) {
            (Guard::Repositories, _, None) => {
                "credentials are only for URLs whose path has letters, digits and - . _ ~ + alone"
                    .into()
            }
            (_, None, _) => self.annotate(),
            (Guard::Origins, ..) => {
                format!(
                    "if the server may get it, add {what} to its annotation {key}, after a comma"
                )
            }
            (Guard::Repositories, ..) => {
                format!(
                    "if builds may read that repository with it, add {what} to its annotation {key}, after a comma"
                )
            }
        };
        Err(input(SourceReason::CredentialsNotAllowed, message, Some(hint)))
    }

    /// The error for a Secret that does not exist.
    #[must_use]
    pub fn missing(self) -> SourceError {
        self.secret.missing(self.values, &format!("; {}", self.annotate()))
    }

    /// The command that allows the use for this server.
    fn annotate(self) -> String {
        let Named { namespace, name, .. } = self.secret;
        let (key, place) = (self.guard.key(), self.place());
        let place = place.as_deref().unwrap_or("URL");
        format!("kubectl -n {namespace} annotate secret {name} {key}={}", shell_word(place))
    }

    /// What the annotation has to name. `None` if it cannot name it.
    fn place(self) -> Option<String> {
        match self.guard {
            Guard::Origins => origin(self.url),
            Guard::Repositories => repository_place(self.url),
        }
    }
}
