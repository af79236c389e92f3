//! Reads the Secrets that a GitSync or an AgentBuild names: the credentials for the server of its repository, and its proxy.
//!
//! No Secret is listed or watched: the operator needs `get` on these only. It is read again after some minutes, and at once when the
//! server refuses what it says.

use convoke_core::cluster::account::OperatorAccount;
use kube::Client;

use crate::api::agent_build::GitSource;
use crate::api::git_sync::{GitSyncSpec, SecretRef};
use crate::git::{AppToken, Credentials, Files, GitHubApp, NoCredentials};
use crate::net::Dialler;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::{Bound, CREDENTIALS, Data, Freshness, Guard, Named};

/// Credentials, as they were read last.
#[derive(Default)]
pub struct Cached {
    /// For which Secrets and URL.
    known: Freshness<Access>,
    credentials: Credentials,
    /// The token of a GitHub App, with what it was asked for.
    token: Option<(GitHubApp, AppToken)>,
}

/// A repository, and the names of the Secrets for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    secret: Option<String>,
    proxy: Option<String>,
    url: String,
    guard: Guard,
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

    /// The same after a server or a proxy has refused them. If the server has refused the token of a GitHub App, another one is asked for.
    pub fn refused(&mut self, reason: SourceReason) {
        self.doubt();
        if reason == SourceReason::AuthenticationFailed {
            self.token = None;
        }
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
        access: &Access,
        operator: &OperatorAccount,
        dialler: &Dialler,
    ) -> Result<(), SourceError> {
        if !self.known.is_of(access) {
            (self.known, self.credentials) = (Freshness::default(), Credentials::default());
            let read = access.read(client, namespace, operator).await?;
            self.known = Freshness::now(access.clone());
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

/// The credentials with which a program clones a repository, read now. The token of a GitHub App is a new one.
///
/// # Errors
/// [`SourceError::Input`], as [`Cached::refresh`].
pub async fn files(
    client: &Client,
    namespace: &str,
    access: &Access,
    operator: &OperatorAccount,
    dialler: &Dialler,
) -> Result<Files, SourceError> {
    let mut read = Cached::default();
    read.refresh(client, namespace, access, operator, dialler).await?;
    let name = access.secret.as_ref().or(access.proxy.as_ref()).map_or("", String::as_str);
    let files = read.credentials().files(&access.url);
    files.map_err(|NoCredentials { problem, hint }| {
        access.place(namespace, name).secret.invalid(&problem, hint)
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
    let (access, mut all) = (Access::of_sync(spec), given);
    if access.url.starts_with("ssh://") {
        return Ok(all);
    }
    if let Some(name) = access.secret.as_deref().filter(|_| !all.has_tls()) {
        let place = access.place(namespace, name);
        let read = Credentials::of_connection(&place.read(client, operator).await?);
        let read = read.map_err(|error| place.secret.invalid(&error.problem, error.hint))?;
        all = all.connecting_as(&read);
    }
    match &access.proxy {
        Some(name) => access.through(all, client, (namespace, name), operator).await,
        None => Ok(all),
    }
}

impl Access {
    /// That of a GitSync.
    #[must_use]
    pub fn of_sync(spec: &GitSyncSpec) -> Self {
        let GitSyncSpec { url, secret_ref, proxy_secret_ref, .. } = spec;
        Self::new(url, (secret_ref.as_ref(), proxy_secret_ref.as_ref()), Guard::Origins)
    }

    /// That of an AgentBuild. It comes from a commit, so its Secrets have to name the repository.
    #[must_use]
    pub fn of_build(source: &GitSource) -> Self {
        let GitSource { url, secret_ref, proxy_secret_ref, .. } = source;
        Self::new(url, (secret_ref.as_ref(), proxy_secret_ref.as_ref()), Guard::Repositories)
    }

    fn new(
        url: &str,
        (secret, proxy): (Option<&SecretRef>, Option<&SecretRef>),
        guard: Guard,
    ) -> Self {
        let name = |secret: Option<&SecretRef>| secret.map(|secret| secret.name.clone());
        Self { secret: name(secret), proxy: name(proxy), url: url.to_owned(), guard }
    }

    /// The names of its Secrets, each with what it is for.
    pub fn secrets(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("git", &self.secret), ("proxy", &self.proxy)];
        all.into_iter().filter_map(|(purpose, name)| Some((purpose, name.as_deref()?)))
    }

    /// Whether it names a Secret.
    #[must_use]
    pub const fn has_secrets(&self) -> bool {
        self.secret.is_some() || self.proxy.is_some()
    }

    async fn read(
        &self,
        client: &Client,
        namespace: &str,
        operator: &OperatorAccount,
    ) -> Result<Credentials, SourceError> {
        let mut credentials = Credentials::default();
        if let Some(name) = &self.secret {
            let place = self.place(namespace, name);
            let data = place.read(client, operator).await?;
            credentials = of(place, &data)?;
        }
        if let Some(name) = &self.proxy {
            credentials = self.through(credentials, client, (namespace, name), operator).await?;
        }
        Ok(credentials)
    }

    /// Credentials with the proxy of a Secret, given by its namespace and name.
    async fn through(
        &self,
        credentials: Credentials,
        client: &Client,
        (namespace, name): (&str, &str),
        operator: &OperatorAccount,
    ) -> Result<Credentials, SourceError> {
        let field = match self.guard {
            Guard::Origins => "spec.proxySecretRef",
            Guard::Repositories => "spec.source.git.proxySecretRef",
        };
        let secret = Named { namespace, name, field, purpose: CREDENTIALS };
        let (url, values) = (self.url.as_str(), "--from-literal=address=http://HOST:PORT");
        let place = Bound { secret, url, values, guard: self.guard };
        let data = place.read(client, operator).await?;
        let proxy = Credentials::proxy_of(&data);
        let with = proxy.and_then(|proxy| credentials.with_proxy(proxy, url));
        with.map_err(|error| secret.invalid(&error.problem, error.hint))
    }

    /// The Secret with the credentials.
    fn place<'a>(&'a self, namespace: &'a str, name: &'a str) -> Bound<'a> {
        let url = self.url.as_str();
        let values = if url.starts_with("ssh://") {
            "--from-file=identity=id_ed25519 --from-file=known_hosts=known_hosts"
        } else {
            "--from-literal=token=..."
        };
        let field = match self.guard {
            Guard::Origins => "spec.secretRef",
            Guard::Repositories => "spec.source.git.secretRef",
        };
        let secret = Named { namespace, name, field, purpose: CREDENTIALS };
        Bound { secret, url, values, guard: self.guard }
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
