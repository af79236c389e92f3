//! (pure) The credentials for a Git server, from the data of a Secret.
//!
//! No text here holds a value of the Secret, and nothing prints one.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::HeaderValue;
use sha2::{Digest, Sha256};
use std::sync::Arc;

use super::GitError;
use super::check::ssh_host;
use super::github_app::{AppToken, GitHubApp};
use super::ssh::{self, KnownHosts, SshCredentials};
use crate::net::{ClientOptions, NetError, ProxyServer, tls};

/// The user name that forges take with a token as its password.
const TOKEN_USER: &str = "x-access-token";
/// The keys that are understood over http, and over ssh.
const HTTP_KEYS: [&str; 7] =
    ["username", "password", "bearerToken", "token", "ca.crt", "tls.crt", "tls.key"];
/// What Flux called `ca.crt`, `tls.crt` and `tls.key` once.
const OLD_KEYS: [&str; 3] = ["caFile", "certFile", "keyFile"];
const SSH_KEYS: [&str; 2] = ["identity", "known_hosts"];
/// The keys of a GitHub App. The fourth one may be missing.
const APP_KEYS: [&str; 4] =
    ["githubAppID", "githubAppInstallationID", "githubAppPrivateKey", "githubAppBaseURL"];
/// The scheme of ssh, as it begins a URL.
const SSH: &str = "ssh://";

/// The credentials for one server. The default has none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The value of the header `Authorization`.
    pub(super) authorization: Option<HeaderValue>,
    /// Certificates, in PEM, of authorities that are trusted besides those of the system.
    pub(super) roots: Option<Vec<u8>>,
    /// A client certificate and its key, in PEM.
    pub(super) identity: Option<Vec<u8>>,
    /// Those for ssh.
    pub(super) ssh: Option<SshCredentials>,
    /// What gives the token for `authorization`.
    pub(super) app: Option<GitHubApp>,
    /// What makes the connections.
    pub(super) proxy: Option<ProxyServer>,
    /// Digest of all that they were made from, but for tokens that were asked for. Other credentials have another one.
    pub(super) digest: [u8; 32],
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(not shown)")
    }
}

/// Digest of some parts.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut all = Sha256::new();
    for part in parts {
        all.update((part.len() as u64).to_be_bytes());
        all.update(part);
    }
    all.finalize().into()
}

/// Why the data of a Secret are no credentials. The text is for people, and quotes no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NoCredentials {
    /// What is wrong.
    pub problem: String,
    /// How to mend it.
    pub hint: Option<String>,
}

impl Credentials {
    /// Credentials that only trust these authorities, in PEM.
    #[must_use]
    pub fn trusting(roots: Vec<u8>) -> Self {
        let digest = digest([&b"ca.crt"[..], &roots]);
        Self { roots: Some(roots), digest, ..Self::default() }
    }

    /// What the data of a Secret say of connections: `ca.crt`, and `tls.crt` with `tls.key`. No user, no token.
    ///
    /// # Errors
    /// When a value cannot be used, or one half of a pair is missing.
    pub fn of_connection(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, NoCredentials> {
        Self::of_tls(data)
    }

    /// The same with the authorities, the client certificate and the proxy of others, as far as these have none.
    #[must_use]
    pub fn connecting_as(self, others: &Self) -> Self {
        let roots = self.roots.or_else(|| others.roots.clone());
        let identity = self.identity.or_else(|| others.identity.clone());
        let proxy = self.proxy.or_else(|| others.proxy.clone());
        Self { roots, identity, proxy, ..self }
    }

    /// Whether they name authorities and a client certificate.
    #[must_use]
    pub const fn has_tls(&self) -> bool {
        self.roots.is_some() && self.identity.is_some()
    }

    /// How a connection with them is made.
    pub(crate) fn client_options<'a>(&'a self, user_agent: &'a str) -> ClientOptions<'a> {
        let (roots, identity) = (self.roots.as_deref(), self.identity.as_deref());
        ClientOptions { user_agent, roots, identity, proxy: self.proxy.as_ref() }
    }

    /// Whether a key of a Secret means something here.
    #[must_use]
    pub fn knows(key: &str) -> bool {
        Self::all_keys().any(|known| known == key)
    }

    /// The keys that mean something, for people.
    #[must_use]
    pub fn keys() -> String {
        Self::all_keys().collect::<Vec<_>>().join(", ")
    }

    fn all_keys() -> impl Iterator<Item = &'static str> {
        HTTP_KEYS.into_iter().chain(SSH_KEYS).chain(APP_KEYS).chain(OLD_KEYS)
    }

    /// The GitHub App that these are of, if they need a token.
    #[must_use]
    pub const fn app(&self) -> Option<&GitHubApp> {
        self.app.as_ref()
    }

    /// The proxy, if any.
    #[must_use]
    pub const fn proxy(&self) -> Option<&ProxyServer> {
        self.proxy.as_ref()
    }

    /// The same with the token of the GitHub App.
    #[must_use]
    pub fn with_token(self, token: &AppToken) -> Self {
        // It has only characters that a header can hold.
        Self { authorization: basic(TOKEN_USER, &token.token).ok(), ..self }
    }

    /// The same through a proxy.
    ///
    /// # Errors
    /// Over ssh there are no proxies.
    pub fn with_proxy(self, proxy: ProxyServer, url: &str) -> Result<Self, NoCredentials> {
        if url.starts_with(SSH) {
            let problem = "proxies are for https, and the URL is ssh://";
            return Err(NoCredentials::new(
                problem,
                "many servers give the repository over https, too",
            ));
        }
        let digest = digest([&self.digest[..], &proxy.digest()]);
        Ok(Self { proxy: Some(proxy), digest, ..self })
    }

    /// Reads the data of a Secret with an HTTP proxy: `address`, and `username` with `password`.
    ///
    /// # Errors
    /// When a key is missing, or its value cannot be used.
    pub fn proxy_of(data: &BTreeMap<String, Vec<u8>>) -> Result<ProxyServer, NoCredentials> {
        let form = "address is http://HOST:PORT; username and password are keys of their own";
        if !data.contains_key("address") {
            return Err(NoCredentials::new("it has no address", form));
        }
        let address = text(data, "address")?;
        let has_user = data.contains_key("username") || data.contains_key("password");
        let user = has_user.then(|| Ok((text(data, "username")?, text(data, "password")?)));
        ProxyServer::new(&address, user.transpose()?)
            .map_err(|why| NoCredentials::new(format!("address cannot be used: {why}"), form))
    }

    /// Reads the data of a Secret that is for this URL. It takes a second at most, for a key with a passphrase.
    ///
    /// # Errors
    /// When there is nothing that is understood, when one half of a pair is missing, when there is more than one way to log in, and when a
    /// value cannot be used.
    pub fn of(data: &BTreeMap<String, Vec<u8>>, url: &str) -> Result<Self, NoCredentials> {
        let read = if url.starts_with(SSH) { Self::of_ssh(data) } else { Self::of_http(data) }?;
        let parts = data.iter().flat_map(|(key, value)| [key.as_bytes(), value]);
        Ok(Self { digest: digest(parts), ..read })
    }

    fn of_ssh(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, NoCredentials> {
        if !SSH_KEYS.iter().any(|key| data.contains_key(*key)) {
            return Err(nothing(data, true));
        }
        let text = |key: &str, beside: &str| -> Result<&str, NoCredentials> {
            let value = data.get(key).ok_or_else(|| missing(key, beside))?;
            let problem = || NoCredentials { problem: format!("{key} is no text"), hint: None };
            std::str::from_utf8(value).map_err(|_| problem())
        };
        let key = text("identity", "known_hosts").map_err(|error| NoCredentials {
            hint: Some("identity is a private key: ssh-keygen -t ed25519 makes one".to_owned()),
            ..error
        })?;
        let known_hosts = text("known_hosts", "identity").map_err(|error| NoCredentials {
            hint: Some(
                "it says how the server's key is known: ssh-keyscan HOST (with -p PORT, if it is not 22) prints the lines; \
                 compare them with what the server's owner publishes"
                    .to_owned(),
            ),
            ..error
        })?;
        let passphrase = data.get("password").map(|_| text("password", "identity")).transpose()?;
        let known_hosts = KnownHosts::parse(known_hosts)?;
        let key = Arc::new(ssh::identity(key, passphrase)?);
        Ok(Self { ssh: Some(SshCredentials { key, known_hosts }), ..Self::default() })
    }

    fn of_http(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, NoCredentials> {
        let has = |key: &str| data.contains_key(key);
        let app = APP_KEYS.iter().any(|key| has(key));
        let ways = [has("username") || has("password"), has("bearerToken"), has("token"), app];
        if ways.iter().filter(|way| **way).count() > 1 {
            let problem = "it has more than one of username with password, bearerToken, token, and a GitHub App";
            return Err(NoCredentials::new(problem, "leave one of them"));
        }
        if !app && !HTTP_KEYS.iter().chain(&OLD_KEYS).any(|key| has(key)) {
            return Err(nothing(data, false));
        }
        let text = |key: &str| text(data, key);
        let authorization = if ways[0] {
            let (user, password) = (text("username")?, text("password")?);
            if user.contains(':') {
                return Err(NoCredentials::new("username has a colon", "HTTP allows none there"));
            }
            Some(basic(&user, &password)?)
        } else if has("token") {
            Some(basic(TOKEN_USER, &text("token")?)?)
        } else if has("bearerToken") {
            Some(header("bearerToken", &format!("Bearer {}", text("bearerToken")?))?)
        } else {
            None
        };
        let app = app.then(|| github_app(data)).transpose()?;
        Ok(Self { authorization, app, ..Self::of_tls(data)? })
    }

    /// Which authorities are trusted, and the client certificate: what connections to the server need besides a user.
    fn of_tls(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, NoCredentials> {
        let either = |new: &str, old: &str| data.get(new).or_else(|| data.get(old));
        let roots = either("ca.crt", OLD_KEYS[0]).cloned();
        let identity = match (either("tls.crt", OLD_KEYS[1]), either("tls.key", OLD_KEYS[2])) {
            (Some(certificate), Some(key)) => Some([certificate, &b"\n"[..], key].concat()),
            (None, None) => None,
            (Some(_), None) => return Err(missing("tls.key", "tls.crt")),
            (None, Some(_)) => return Err(missing("tls.crt", "tls.key")),
        };
        tls::check(roots.as_deref(), identity.as_deref()).map_err(|error| {
            let problem = match &error {
                NetError::InvalidRoots { reason } => format!("ca.crt: {reason}"),
                NetError::InvalidIdentity { reason } => format!("tls.crt and tls.key: {reason}"),
                other => other.to_string(),
            };
            NoCredentials { problem, hint: GitError::from(error).hint() }
        })?;
        Ok(Self { roots, identity, ..Self::default() })
    }
}

impl NoCredentials {
    pub(super) fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: Some(hint.into()) }
    }
}

fn missing(key: &str, beside: &str) -> NoCredentials {
    let hint = format!("add {key} to it, or leave {beside} out");
    NoCredentials { problem: format!("it has {beside} and no {key}"), hint: Some(hint) }
}

/// The error for a Secret without any key that is understood.
fn nothing(data: &BTreeMap<String, Vec<u8>>, over_ssh: bool) -> NoCredentials {
    let has = |keys: &[&str]| keys.iter().any(|key| data.contains_key(*key));
    let problem = if over_ssh && (has(&HTTP_KEYS) || has(&APP_KEYS)) {
        "it has credentials for https, and the URL is ssh://"
    } else if !over_ssh && has(&SSH_KEYS) {
        "it has credentials for ssh, and the URL is https://"
    } else {
        "it has no credentials"
    };
    let keys = if over_ssh {
        "the keys are identity and known_hosts; password for the passphrase of identity"
    } else {
        "the keys are username and password, or token, or bearerToken, or those of a GitHub App; ca.crt; tls.crt and tls.key"
    };
    NoCredentials::new(problem, keys)
}

/// The GitHub App of a Secret.
fn github_app(data: &BTreeMap<String, Vec<u8>>) -> Result<GitHubApp, NoCredentials> {
    for key in &APP_KEYS[..3] {
        if !data.contains_key(*key) {
            let problem = format!("it has a GitHub App without {key}");
            return Err(NoCredentials::new(
                problem,
                "needed are githubAppID, githubAppInstallationID and githubAppPrivateKey",
            ));
        }
    }
    let base = data.contains_key(APP_KEYS[3]).then(|| text(data, APP_KEYS[3])).transpose()?;
    let (id, installation) = (text(data, APP_KEYS[0])?, text(data, APP_KEYS[1])?);
    let key = data.get(APP_KEYS[2]).map_or(&[][..], Vec::as_slice);
    GitHubApp::new(&id, &installation, key, base.as_deref())
}

/// A value of the Secret as text that a header can hold.
fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Result<String, NoCredentials> {
    let other = if key == "username" { "password" } else { "username" };
    let value = data.get(key).ok_or_else(|| missing(key, other))?;
    let text = std::str::from_utf8(value)
        .map_err(|_| NoCredentials { problem: format!("{key} is no text"), hint: None })?;
    if text.is_empty() {
        return Err(NoCredentials { problem: format!("{key} is empty"), hint: None });
    }
    if text.contains(['\n', '\r']) {
        let problem = format!("{key} has a line break");
        return Err(NoCredentials::new(problem, "make it anew without one: printf %s, not echo"));
    }
    Ok(text.to_owned())
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, NoCredentials> {
    header("password", &format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

fn header(key: &str, value: &str) -> Result<HeaderValue, NoCredentials> {
    let mut value = HeaderValue::from_str(value).map_err(|_| NoCredentials {
        problem: format!("{key} has characters that HTTP cannot send"),
        hint: None,
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The origin of a repository, as people write it: `https://HOST` or `ssh://HOST`, with the port unless it is the usual one.
#[must_use]
pub fn origin(url: &str) -> Option<String> {
    let url = Url::parse(url).ok().filter(|url| url.host_str().is_some())?;
    if url.scheme() != "ssh" {
        return Some(url.origin().ascii_serialization()).filter(|origin| origin != "null");
    }
    let host = ssh_host(&url)?;
    let port = url.port().filter(|port| *port != ssh::PORT);
    Some(port.map_or_else(|| format!("{SSH}{host}"), |port| format!("{SSH}{host}:{port}")))
}

/// Whether the annotation of a Secret allows that the server of a URL gets its credentials.
#[must_use]
pub fn are_for(annotation: &str, url: &str) -> bool {
    let wanted = origin(url);
    let mut allowed = annotation.split([',', ' ', '\n']).filter(|one| !one.is_empty());
    wanted.is_some() && allowed.any(|one| is_origin(one) && origin(one) == wanted)
}

/// Whether a text is an origin and nothing more.
fn is_origin(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.path(), "" | "/")
            && (url.query(), url.fragment()) == (None, None)
            && url.username().is_empty()
            && url.password().is_none()
    })
}

#[cfg(test)]
#[path = "tests/credentials.rs"]
mod tests;
