//! Reads the Secrets of `spec.secretRef` and `spec.proxySecretRef`: the credentials for the server of one GitSync, and its proxy.
//!
//! No Secret is listed or watched: the operator needs `get` on these only. It is read again after some minutes, and at once when the
//! server refuses what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::cluster::account::OperatorAccount;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use crate::api::git_sync::{GitSyncSpec, SecretRef};
use crate::api::keys;
use crate::cluster::client::call;
use crate::git::{
    AppToken, Credentials, GitError, GitHubApp, NoCredentials, NoToken, are_for, origin,
};
use crate::net::Dialler;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;

/// How long credentials are used without a look at the Secret.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// The credentials of a GitSync, as they were read last.
#[derive(Default)]
pub struct Cached {
    /// For which Secrets and URL, and when they were read.
    known: Option<(Wanted, Instant)>,
    credentials: Credentials,
    /// The token of a GitHub App, with what it was asked for.
    token: Option<(GitHubApp, AppToken)>,
}

/// What is read: the names of the Secrets of `spec.secretRef` and `spec.proxySecretRef`, and the URL.
#[derive(Clone, PartialEq, Eq)]
struct Wanted {
    secret: Option<String>,
    proxy: Option<String>,
    url: String,
}

impl Cached {
    /// What was read last.
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Looks at the Secrets the next time.
    pub fn doubt(&mut self) {
        self.known = None;
    }

    /// The same after the server has refused the credentials: the token of a GitHub App is asked for anew, too.
    pub fn distrust(&mut self) {
        self.doubt();
        self.token = None;
    }

    /// Reads the Secrets, unless they were read a moment ago. Without a Secret there are no credentials.
    ///
    /// # Errors
    /// [`SourceError::Input`] when a Secret does not exist, may not be read, is not for this server, or has nothing that can be used, and
    /// when a GitHub App gets no token. Then no credentials are kept.
    pub async fn refresh(
        &mut self,
        client: &Client,
        namespace: &str,
        spec: &GitSyncSpec,
        operator: &OperatorAccount,
        dialler: &Dialler,
    ) -> Result<(), SourceError> {
        let name = |secret: &Option<SecretRef>| secret.as_ref().map(|secret| secret.name.clone());
        let (secret, proxy) = (name(&spec.secret_ref), name(&spec.proxy_secret_ref));
        let wanted = Wanted { secret, proxy, url: spec.url.clone() };
        let is_known = |(known, at): &(Wanted, Instant)| *known == wanted && at.elapsed() < MAX_AGE;
        if !self.known.as_ref().is_some_and(is_known) {
            (self.known, self.credentials) = (None, Credentials::default());
            let read = wanted.read(client, namespace, operator).await?;
            self.known = Some((wanted, Instant::now()));
            self.credentials = read;
        }
        let Some(app) = self.credentials.app().cloned() else {
            self.token = None;
            return Ok(());
        };
        let is_fresh = |(of, token): &(GitHubApp, AppToken)| *of == app && token.is_fresh();
        let token = match self.token.take().filter(is_fresh) {
            Some((_, token)) => token,
            None => match app.token(dialler, &self.credentials).await {
                Ok(token) => token,
                Err(error) => {
                    (self.known, self.credentials) = (None, Credentials::default());
                    return Err(no_token(&error));
                }
            },
        };
        self.credentials = std::mem::take(&mut self.credentials).with_token(&token);
        self.token = Some((app, token));
        Ok(())
    }
}

/// The error of a GitHub App without a token.
fn no_token(error: &NoToken) -> SourceError {
    let reason = match error {
        NoToken::Refused { status: 400..500, .. } => SourceReason::AuthenticationFailed,
        NoToken::Unreachable(error) => GitError::from(error.clone()).source_reason(),
        NoToken::Refused { .. } | NoToken::NotUnderstood(_) => SourceReason::ServerFailed,
    };
    input(reason, error.to_string(), error.hint().map(str::to_owned))
}

/// A Secret, the field that names it, and the repository that it is for.
#[derive(Clone, Copy)]
struct Place<'a> {
    namespace: &'a str,
    name: &'a str,
    field: Field,
    url: &'a str,
}

/// The field of a GitSync that names a Secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Secret,
    ProxySecret,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Secret => "spec.secretRef",
            Self::ProxySecret => "spec.proxySecretRef",
        })
    }
}

impl Wanted {
    async fn read(
        &self,
        client: &Client,
        namespace: &str,
        operator: &OperatorAccount,
    ) -> Result<Credentials, SourceError> {
        let url = self.url.as_str();
        let place = |name, field| Place { namespace, name, field, url };
        let mut credentials = Credentials::default();
        if let Some(name) = &self.secret {
            let place = place(name, Field::Secret);
            let (annotation, data) = read(client, place, operator).await?;
            credentials = place.credentials(annotation.as_deref(), &data)?;
        }
        if let Some(name) = &self.proxy {
            let place = place(name, Field::ProxySecret);
            let (annotation, data) = read(client, place, operator).await?;
            credentials = place.proxy(annotation.as_deref(), &data, credentials)?;
        }
        Ok(credentials)
    }
}

/// The data of a Secret.
type Data = BTreeMap<String, Vec<u8>>;

/// The annotation with the origins of a Secret, and its data.
async fn read(
    client: &Client,
    place: Place<'_>,
    operator: &OperatorAccount,
) -> Result<(Option<String>, Data), SourceError> {
    let Place { namespace, name, field, .. } = place;
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    match call(secrets.get_opt(name)).await {
        Ok(Some(secret)) => {
            let annotation = secret.annotations().get(keys::GIT_ORIGINS).cloned();
            let data = secret.data.unwrap_or_default().into_iter();
            Ok((annotation, data.map(|(key, value)| (key, value.0)).collect()))
        }
        Ok(None) => Err(place.missing()),
        Err(error) if error.is_missing_right() => Err(place.forbidden(operator)),
        Err(error) => {
            let message = format!("cannot read the Secret {name} of {field}: {error}");
            Err(input(SourceReason::CredentialsUnreadable, message, None))
        }
    }
}

fn input(reason: SourceReason, message: String, hint: Option<String>) -> SourceError {
    SourceError::Input { reason, message, hint }
}

impl Place<'_> {
    /// The credentials in the data of the Secret, if its annotation allows them for this repository.
    fn credentials(
        self,
        annotation: Option<&str>,
        data: &Data,
    ) -> Result<Credentials, SourceError> {
        self.allow(annotation)?;
        // A key with a passphrase takes long enough to leave the async threads alone.
        let read = tokio::task::block_in_place(|| Credentials::of(data, self.url));
        read.map_err(|error| self.invalid(error))
    }

    /// The same with the proxy in the data of the Secret.
    fn proxy(
        self,
        annotation: Option<&str>,
        data: &Data,
        credentials: Credentials,
    ) -> Result<Credentials, SourceError> {
        self.allow(annotation)?;
        let proxy = Credentials::proxy_of(data);
        let with = proxy.and_then(|proxy| credentials.with_proxy(proxy, self.url));
        with.map_err(|error| self.invalid(error))
    }

    /// Checks whether the annotation allows that the Secret is used for this repository.
    fn allow(self, annotation: Option<&str>) -> Result<(), SourceError> {
        let Self { namespace, name, field, url } = self;
        if annotation.is_some_and(|annotation| are_for(annotation, url)) {
            return Ok(());
        }
        let server = self.server();
        let message = format!("the Secret {name} of {field} is not for {server}");
        let key = keys::GIT_ORIGINS;
        // What it is for already stays, and is not quoted.
        let hint = if annotation.is_none() {
            format!("kubectl -n {namespace} annotate secret {name} {key}={server}")
        } else {
            format!("if the server may get it, add {server} to its annotation {key}, after a comma")
        };
        Err(input(SourceReason::CredentialsNotAllowed, message, Some(hint)))
    }

    fn invalid(self, NoCredentials { problem, hint }: NoCredentials) -> SourceError {
        let Self { name, field, .. } = self;
        let message = format!("the Secret {name} of {field} cannot be used: {problem}");
        input(SourceReason::CredentialsInvalid, message, hint)
    }

    /// The origin of the repository.
    fn server(self) -> String {
        origin(self.url).unwrap_or_else(|| "that URL".into())
    }

    fn missing(self) -> SourceError {
        let Self { namespace, name, field, .. } = self;
        let (key, server) = (keys::GIT_ORIGINS, self.server());
        let message = format!("the Secret {name} of {field} does not exist");
        let values = if field == Field::ProxySecret {
            "--from-literal=address=http://HOST:PORT"
        } else if self.url.starts_with("ssh://") {
            "--from-file=identity=id_ed25519 --from-file=known_hosts=known_hosts"
        } else {
            "--from-literal=token=..."
        };
        let hint = format!(
            "kubectl -n {namespace} create secret generic {name} {values}; \
             kubectl -n {namespace} annotate secret {name} {key}={server}"
        );
        input(SourceReason::CredentialsMissing, message, Some(hint))
    }

    fn forbidden(self, operator: &OperatorAccount) -> SourceError {
        let Self { namespace, name, field, .. } = self;
        let message = format!("the operator may not read the Secret {name} of {field}");
        let role = format!("convoke-git-{name}");
        let hint = format!(
            "kubectl -n {namespace} create role {role} --verb=get --resource=secrets --resource-name={name}; \
             kubectl -n {namespace} create rolebinding {role} --role={role} {}",
            operator.flag()
        );
        input(SourceReason::CredentialsForbidden, message, Some(hint))
    }
}

#[cfg(test)]
#[path = "tests/credentials.rs"]
mod tests;
