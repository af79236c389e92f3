//! (pure) The credentials for a registry, from the data of a Secret, as files for the step that pushes: those of one registry, and no others.
//! A step that appends gets those of its two images, and of no others in their registries.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::agent_build::AgentBuildSpec;
use crate::cluster::hidden::Hidden;
use crate::git::Files;
use crate::registry::auth::{self, Login};
use crate::registry::{Image, Reference};

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
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// A base image of a build, for the credentials of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseImage {
    image: Image,
    /// Whether the annotation of the Secret allows that it is pulled with it.
    is_allowed: bool,
}

impl BaseImage {
    /// The base image of a spec. `annotation`, `repository` and `insecure` are as for [`is_for`]. `None` if nothing is appended, or to
    /// something that is no image.
    #[must_use]
    pub fn of(spec: &AgentBuildSpec, annotation: &str, repository: &str) -> Option<Self> {
        let append = spec.append.as_ref()?;
        let image = append.base_image.parse::<Reference>().ok()?.image;
        Some(Self::named(image, spec, annotation, repository))
    }

    /// The same of a base image that a Dockerfile names.
    #[must_use]
    pub fn named(image: Image, spec: &AgentBuildSpec, annotation: &str, repository: &str) -> Self {
        let is_near = repository.parse().is_ok_and(|ours: Image| ours.is_beside(&image));
        let insecure = spec.output.insecure && is_near;
        let is_allowed = is_for(annotation, &image.to_string(), insecure);
        Self { image, is_allowed }
    }
}

/// The files for the registry of an image: `config.json` in Docker's format, and `ca.crt`.
///
/// # Errors
/// What is wrong with the data. No value is quoted.
pub fn files(
    data: &BTreeMap<String, Vec<u8>>,
    repository: &str,
    base: Option<&BaseImage>,
) -> Result<Files, String> {
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
        let auths = match base {
            None => json!({registry: auth}),
            // The rest of the registry is nothing that a commit may read with it.
            Some(base) => {
                let mut auths = json!({repository: auth});
                if let Some(of_base) = of_base(data, repository, base, &auth)? {
                    auths[base.image.to_string()] = of_base;
                }
                auths
            }
        };
        let config = json!({ "auths": auths }).to_string();
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

/// The entry for a base image. `None` if there is none, or it must not be used. User and password are for the registry of the image.
fn of_base(
    data: &BTreeMap<String, Vec<u8>>,
    repository: &str,
    base: &BaseImage,
    of_image: &Value,
) -> Result<Option<Value>, String> {
    if !base.is_allowed {
        return Ok(None);
    }
    if data.contains_key(DOCKER_CONFIG) {
        return docker_entry(&text(data, DOCKER_CONFIG)?, &base.image);
    }
    let is_near = repository.parse().is_ok_and(|ours: Image| ours.is_beside(&base.image));
    Ok(is_near.then(|| of_image.clone()))
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
    docker_entry(text, &image)?
        .ok_or_else(|| format!("{DOCKER_CONFIG} has no user and no token for {repository}"))
}

/// The entry of Docker's configuration for an image, if there is one.
fn docker_entry(text: &str, image: &Image) -> Result<Option<Value>, String> {
    let login = auth::login(text.as_bytes(), image).map_err(|error| {
        // There it is a file, and here a key.
        error.replace("config.json", DOCKER_CONFIG)
    })?;
    Ok(match login {
        Login::Password { user, password } => Some(basic(&user, &password)),
        Login::IdentityToken(token) => Some(json!({ "identitytoken": token })),
        Login::Anonymous => None,
    })
}

/// An entry of Docker's configuration for a user with a password.
fn basic(user: &str, password: &str) -> Value {
    json!({"auth": STANDARD.encode(format!("{user}:{password}"))})
}

#[cfg(test)]
#[path = "tests/registry_auth.rs"]
mod tests;
