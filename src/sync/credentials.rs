//! Reads the Secrets of `spec.secretRef` and `spec.proxySecretRef`: the credentials for the server of one GitSync, and its proxy.
//!
//! No Secret is listed or watched: the operator needs `get` on these only. It is read again after some minutes, and at once when the
//! server refuses what it says.

use convoke_core::cluster::account::OperatorAccount;
use kube::Client;

use crate::api::git_sync::{GitSyncSpec, SecretRef};
use crate::git::{AppToken, Credentials, Files, GitHubApp, NoCredentials};
use crate::net::Dialler;
use crate::sync::commit::source_error::SourceError;
use crate::sync::secrets::{Bound, CREDENTIALS, Data, Freshness, Named};

/// The credentials of a GitSync, as they were read last.
#[derive(Default)]
pub struct Cached {
    /// For which Secrets and URL.
    known: Freshness<Wanted>,
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
        self.known = Freshness::default();
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
        let wanted = Wanted::of(spec);
        if !self.known.is_of(&wanted) {
            (self.known, self.credentials) = (Freshness::default(), Credentials::default());
            let read = wanted.read(client, namespace, operator).await?;
            self.known = Freshness::now(wanted);
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
                    (self.known, self.credentials) = (Freshness::default(), Credentials::default());
                    return Err(error.into());
                }
            },
        };
        self.credentials = std::mem::take(&mut self.credentials).with_token(&token);
        self.token = Some((app, token));
        Ok(())
    }
}

/// The credentials with which a program clones the repository of a GitSync, read now. The token of a GitHub App is a new one.
///
/// # Errors
/// [`SourceError::Input`], as [`Cached::refresh`].
pub async fn of_sync(
    client: &Client,
    namespace: &str,
    spec: &GitSyncSpec,
    operator: &OperatorAccount,
    dialler: &Dialler,
) -> Result<Files, SourceError> {
    let mut read = Cached::default();
    read.refresh(client, namespace, spec, operator, dialler).await?;
    let name = spec.secret_ref.as_ref().or(spec.proxy_secret_ref.as_ref());
    let name = name.map_or("", |secret| secret.name.as_str());
    let files = read.credentials().files(&spec.url);
    files.map_err(|NoCredentials { problem, hint }| {
        place(namespace, name, &spec.url).secret.invalid(&problem, hint)
    })
}

/// Adds to what a connection to the host of a GitSync's repository needs what the GitSync's own Secrets say of that: authorities, a client
/// certificate, a proxy. Over ssh they say nothing of it, and are not read.
///
/// # Errors
/// [`SourceError::Input`], as [`Cached::refresh`].
pub async fn connecting(
    given: Credentials,
    client: &Client,
    namespace: &str,
    spec: &GitSyncSpec,
    operator: &OperatorAccount,
) -> Result<Credentials, SourceError> {
    let (Wanted { secret, proxy, url }, mut all) = (Wanted::of(spec), given);
    if url.starts_with("ssh://") {
        return Ok(all);
    }
    if let Some(name) = secret.filter(|_| !all.has_tls()) {
        let place = place(namespace, &name, &url);
        let read = Credentials::of_connection(&place.read(client, operator).await?);
        let read = read.map_err(|error| place.secret.invalid(&error.problem, error.hint))?;
        all = all.connecting_as(&read);
    }
    match proxy {
        Some(name) => through(all, client, (namespace, &name, &url), operator).await,
        None => Ok(all),
    }
}

/// Credentials with the proxy of a Secret, given by its namespace and name, and the URL of the repository.
async fn through(
    credentials: Credentials,
    client: &Client,
    (namespace, name, url): (&str, &str, &str),
    operator: &OperatorAccount,
) -> Result<Credentials, SourceError> {
    let secret = Named { namespace, name, field: "spec.proxySecretRef", purpose: CREDENTIALS };
    let place = Bound { secret, url, values: "--from-literal=address=http://HOST:PORT" };
    let data = place.read(client, operator).await?;
    let proxy = Credentials::proxy_of(&data);
    let with = proxy.and_then(|proxy| credentials.with_proxy(proxy, url));
    with.map_err(|error| secret.invalid(&error.problem, error.hint))
}

impl Wanted {
    fn of(spec: &GitSyncSpec) -> Self {
        let name = |secret: &Option<SecretRef>| secret.as_ref().map(|secret| secret.name.clone());
        let (secret, proxy) = (name(&spec.secret_ref), name(&spec.proxy_secret_ref));
        Self { secret, proxy, url: spec.url.clone() }
    }

    async fn read(
        &self,
        client: &Client,
        namespace: &str,
        operator: &OperatorAccount,
    ) -> Result<Credentials, SourceError> {
        let url = self.url.as_str();
        let mut credentials = Credentials::default();
        if let Some(name) = &self.secret {
            let place = place(namespace, name, url);
            let data = place.read(client, operator).await?;
            credentials = of(place, &data)?;
        }
        if let Some(name) = &self.proxy {
            credentials = through(credentials, client, (namespace, name, url), operator).await?;
        }
        Ok(credentials)
    }
}

/// The Secret of `spec.secretRef`.
fn place<'a>(namespace: &'a str, name: &'a str, url: &'a str) -> Bound<'a> {
    let values = if url.starts_with("ssh://") {
        "--from-file=identity=id_ed25519 --from-file=known_hosts=known_hosts"
    } else {
        "--from-literal=token=..."
    };
    Bound {
        secret: Named { namespace, name, field: "spec.secretRef", purpose: CREDENTIALS },
        url,
        values,
    }
}

/// The credentials in the data of a Secret.
fn of(place: Bound<'_>, data: &Data) -> Result<Credentials, SourceError> {
    // A key with a passphrase takes long enough to leave the async threads alone.
    let read = tokio::task::block_in_place(|| Credentials::of(data, place.url));
    read.map_err(|NoCredentials { problem, hint }| place.secret.invalid(&problem, hint))
}

#[cfg(test)]
#[path = "tests/credentials.rs"]
mod tests;
