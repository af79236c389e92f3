//! (pure) How the client of a registry signs in: the credentials in docker's `config.json`, and what a registry asks for in
//! `WWW-Authenticate`.
//!
//! No error here quotes a credential, and nothing prints one.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;

use super::image::Image;

/// What is shown in place of a credential.
const HIDDEN: &str = "(not shown)";
/// Credentials that are shorter are not searched for in texts: they would make every text unreadable.
const MIN_HIDDEN: usize = 4;

/// What a client signs in with. The default is anonymous.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Login {
    /// With nothing.
    #[default]
    Anonymous,
    /// With a user and a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// With a token that a token service takes for another one.
    IdentityToken(String),
}

/// The credentials for one registry, and the authorities that sign its certificate. The default has none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// What the client signs in with.
    pub login: Login,
    /// Certificates, in PEM, of authorities that are trusted besides those of the system.
    pub roots: Option<Vec<u8>>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(not shown)")
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(not shown)")
    }
}

impl Login {
    /// Whether there is nothing to sign in with.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        *self == Self::Anonymous
    }

    /// The value of `Authorization` for HTTP basic authentication. `None` without a user.
    #[must_use]
    pub fn basic(&self) -> Option<HeaderValue> {
        let Self::Password { user, password } = self else { return None };
        secret("Basic", &STANDARD.encode(format!("{user}:{password}")))
    }

    /// A text without the credentials, should a server repeat them.
    #[must_use]
    pub fn hidden(&self, text: String) -> String {
        match self {
            Self::Anonymous => text,
            Self::Password { user, password } => {
                hidden(hidden(text, &STANDARD.encode(format!("{user}:{password}"))), password)
            }
            Self::IdentityToken(token) => hidden(text, token),
        }
    }
}

/// A text without a secret.
#[must_use]
pub fn hidden(text: String, secret: &str) -> String {
    if secret.len() < MIN_HIDDEN { text } else { text.replace(secret, HIDDEN) }
}

/// The value of a header that nothing prints. `None` when it is none.
#[must_use]
pub fn secret(scheme: &str, value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("{scheme} {value}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// What docker's `config.json` has for an image. The key that names most of the image counts: a registry, or a registry and the
/// first parts of a name. Credential helpers are not run.
///
/// # Errors
/// Why the file cannot be used.
pub fn login(config: &[u8], image: &Image) -> Result<Login, String> {
    // The text of the error could quote a password.
    let config: Config = serde_json::from_slice(config).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("config.json is not as docker writes it (line {line}, column {column})")
    })?;
    let found =
        config.auths.iter().filter_map(|(key, entry)| Some((covers(key, image)?, key, entry)));
    let Some((_, key, entry)) = found.max_by_key(|(length, ..)| *length) else {
        return Ok(Login::Anonymous);
    };
    if !entry.identitytoken.is_empty() {
        return Ok(Login::IdentityToken(entry.identitytoken.clone()));
    }
    if entry.auth.is_empty() {
        let Entry { username: user, password, .. } = entry;
        if user.is_empty() && password.is_empty() {
            return Ok(Login::Anonymous);
        }
        return Ok(Login::Password { user: user.clone(), password: password.clone() });
    }
    let wrong = || {
        let key = super::error::shown(key);
        format!("config.json: auth of {key} is not the base64 of user:password")
    };
    let decoded = STANDARD.decode(entry.auth.trim()).map_err(|_| wrong())?;
    let decoded = String::from_utf8(decoded).map_err(|_| wrong())?;
    let (user, password) = decoded.trim_end_matches('\0').split_once(':').ok_or_else(wrong)?;
    Ok(Login::Password { user: user.to_owned(), password: password.to_owned() })
}

/// How many characters of an image a key of `auths` names. `None`: it is about another one.
fn covers(key: &str, image: &Image) -> Option<usize> {
    let bare = key.trim_start_matches("https://").trim_start_matches("http://");
    let bare = bare.trim_end_matches('/');
    // As docker writes the key of its hub, and others have copied.
    let bare = bare.strip_suffix("/v1").or_else(|| bare.strip_suffix("/v2")).unwrap_or(bare);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let hub = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let is_host = host.eq_ignore_ascii_case(image.registry())
        || (image.is_on_docker_hub() && hub(&host.to_ascii_lowercase()));
    let rest = image.name().strip_prefix(path)?;
    let is_whole = path.is_empty() || rest.is_empty() || rest.starts_with('/');
    (is_host && is_whole).then_some(path.len())
}

/// How a registry wants a client to sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// With a token of a token service.
    Bearer {
        /// The URL of the token service.
        realm: String,
        /// What the registry is called there.
        service: Option<String>,
    },
    /// With a user and a password.
    Basic,
}

/// What the values of `WWW-Authenticate` ask for: a token, if that is offered.
#[must_use]
pub fn challenge<'a>(values: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let mut basic = None;
    for value in values {
        for one in http_auth::parser::ChallengeParser::new(value).map_while(Result::ok) {
            let parameter = |name: &str| {
                let found = one.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            if one.scheme.eq_ignore_ascii_case("bearer")
                && let Some(realm) = parameter("realm")
            {
                return Some(Challenge::Bearer { realm, service: parameter("service") });
            }
            if one.scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            }
        }
    }
    basic
}

/// The URL of a token service that may get the credentials for a registry: over https, as every client of registries does it.
/// Over plain http only on the registry's own host, and only if the registry is asked over plain http, too.
///
/// # Errors
/// Why it gets none.
pub fn token_service(registry: &Url, realm: &str) -> Result<Url, String> {
    let mut url = Url::parse(realm).map_err(|_| "the token service has no URL".to_owned())?;
    let place = super::error::shown(&url.origin().ascii_serialization());
    let is_here = url.host_str().is_some() && url.host_str() == registry.host_str();
    match url.scheme() {
        "https" => {}
        "http" if registry.scheme() == "http" && is_here => {}
        "http" => {
            return Err(format!(
                "the token service is at {place}: credentials are not sent there over plain http"
            ));
        }
        _ => return Err(format!("the token service is at {place}, which is no URL of https")),
    }
    if !url.username().is_empty() || url.password().is_some() || url.host_str().is_none() {
        return Err(format!("the token service is at {place}, with a user in its URL"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// The answer of a token service.
#[derive(Deserialize)]
struct Tokens {
    token: Option<String>,
    access_token: Option<String>,
}

/// The value of `Authorization` that a token service gives. `None` when it gives none.
#[must_use]
pub fn token(answer: &[u8]) -> Option<HeaderValue> {
    let tokens: Tokens = serde_json::from_slice(answer).ok()?;
    let all = [tokens.token, tokens.access_token];
    let token = all.into_iter().flatten().find(|token| !token.is_empty())?;
    secret("Bearer", &token)
}

#[cfg(test)]
#[path = "tests/auth.rs"]
mod tests;
