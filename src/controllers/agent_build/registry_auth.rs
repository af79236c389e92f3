//! (pure) The credentials for a registry, from the data of a Secret, as files for the step that pushes: those of one registry, and no others.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::hidden::Hidden;
use crate::git::Files;
use crate::registry::Image;
use crate::registry::auth::{self, Login};

/// The key of a Secret of the type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// The file in Docker's format.
pub const CONFIG: &str = "config.json";
/// Certificates of authorities that are trusted besides those of the system.
pub const AUTHORITIES: &str = "ca.crt";

/// Whether the annotation of a Secret allows that it is used for this image. The annotation lists registries, each with or without the
/// beginning of a path: `registry.example.com:5000/team-a`. For a registry over plain HTTP, to which the credentials go as they are, an entry
/// begins with `http://`.
#[must_use]
pub fn is_for(annotation: &str, repository: &str, insecure: bool) -> bool {
    let mut allowed = annotation.split([',', ' ', '\n']).filter(|one| !one.is_empty());
    allowed.any(|one| {
        let one = match (one.strip_prefix("http://"), insecure) {
            (Some(plain), true) => plain,
            (None, false) => one,
            _ => return false,
        };
        let rest = repository.strip_prefix(one.trim_end_matches('/'));
        // Not the beginning of another name.
        rest.is_some_and(|rest| rest.starts_with('/'))
    })
}

/// The files for the registry of an image: `config.json` in Docker's format, and `ca.crt`.
///
/// # Errors
/// What is wrong with the data. No value is quoted.
pub fn files(data: &BTreeMap<String, Vec<u8>>, repository: &str) -> Result<Files, String> {
    let registry = repository.split('/').next().unwrap_or_default();
    let mut files = Files::new();
    let has = |key: &str| data.contains_key(key);
    let auth = if has(DOCKER_CONFIG) {
        Some(of_docker_config(&text(data, DOCKER_CONFIG)?, repository)?)
    } else if has("username") || has("password") {
        let (user, password) = (text(data, "username")?, text(data, "password")?);
        if user.contains(':') {
            return Err("username has a colon: HTTP allows none there".into());
        }
        Some(basic(&user, &password))
    } else {
        None
    };
    if let Some(auth) = auth {
        let config = json!({"auths": {registry: auth}}).to_string();
        files.insert(CONFIG, Hidden::new(config));
    }
    if has(AUTHORITIES) {
        files.insert(AUTHORITIES, Hidden::new(text(data, AUTHORITIES)?));
    }
    if files.is_empty() {
        return Err(format!(
            "it has no credentials: the keys are {DOCKER_CONFIG}, or username and password; and {AUTHORITIES}"
        ));
    }
    Ok(files)
}

/// A value as text.
fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Result<String, String> {
    let value = data.get(key).ok_or_else(|| format!("it has no {key}"))?;
    let text = std::str::from_utf8(value).map_err(|_| format!("{key} is no text"))?;
    if text.is_empty() {
        return Err(format!("{key} is empty"));
    }
    let has_break = text.contains(['\n', '\r']);
    if has_break && matches!(key, "username" | "password") {
        return Err(format!("{key} has a line break: make it anew with printf %s, not echo"));
    }
    Ok(text.to_owned())
}

/// What Docker's configuration says of an image: that, and nothing else of it.
fn of_docker_config(text: &str, repository: &str) -> Result<Value, String> {
    let image: Image = repository.parse().map_err(|error| format!("{repository}: {error}"))?;
    let login = auth::login(text.as_bytes(), &image).map_err(|error| {
        // There it is a file, and here a key.
        error.replace("config.json", DOCKER_CONFIG)
    })?;
    match login {
        Login::Password { user, password } => Ok(basic(&user, &password)),
        Login::IdentityToken(token) => Ok(json!({ "identitytoken": token })),
        Login::Anonymous => {
            Err(format!("{DOCKER_CONFIG} has no user and no token for {repository}"))
        }
    }
}

/// An entry of Docker's configuration for a user with a password.
fn basic(user: &str, password: &str) -> Value {
    json!({"auth": STANDARD.encode(format!("{user}:{password}"))})
}

#[cfg(test)]
#[path = "tests/registry_auth.rs"]
mod tests;
