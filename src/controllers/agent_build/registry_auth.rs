//! (pure) The credentials for a registry, from the data of a Secret, as files for the step that pushes: those of one registry, and no others.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::cluster::hidden::Hidden;
use crate::git::Files;

/// The key of a Secret of the type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";
/// What Docker's format says of a registry.
const FIELDS: [&str; 4] = ["auth", "username", "password", "identitytoken"];
/// The file with it.
const CONFIG: &str = "config.json";
/// Certificates of authorities that are trusted besides those of the system.
const AUTHORITIES: &str = "ca.crt";
/// Names of Docker's own registry.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

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
        Some(json!({"auth": STANDARD.encode(format!("{user}:{password}"))}))
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

/// What Docker's configuration says of an image. The entry that names most of it counts.
fn of_docker_config(text: &str, repository: &str) -> Result<Value, String> {
    // The error of a parser could quote what it has read.
    let config: Value =
        serde_json::from_str(text).map_err(|_| format!("{DOCKER_CONFIG} is no JSON"))?;
    let auths = config["auths"].as_object().ok_or(format!("{DOCKER_CONFIG} has no auths"))?;
    let fitting = auths.iter().filter_map(|(name, entry)| Some((fit(name, repository)?, entry)));
    let found = fitting.max_by_key(|(length, _)| *length);
    let (_, found) =
        found.ok_or_else(|| format!("{DOCKER_CONFIG} has nothing for {repository}"))?;
    let fields = FIELDS.into_iter().filter_map(|field| {
        let value = found[field].as_str().filter(|value| !value.is_empty())?;
        Some((field.to_owned(), Value::from(value)))
    });
    let fields: Map<_, _> = fields.collect();
    if fields.is_empty() {
        return Err(format!("{DOCKER_CONFIG} has no user and no token for {repository}"));
    }
    Ok(fields.into())
}

/// How much of an image an entry of Docker's configuration names. `None` when it is for others. An entry is a registry, with or without the
/// beginning of a path, or a URL: `https://index.docker.io/v1/`.
fn fit(entry: &str, repository: &str) -> Option<usize> {
    let entry = entry.split_once("://").map_or(entry, |(_, rest)| rest).trim_end_matches('/');
    let entry = entry.strip_suffix("/v1").or_else(|| entry.strip_suffix("/v2")).unwrap_or(entry);
    let (host, path) = entry.split_once('/').unwrap_or((entry, ""));
    let (registry, name) = repository.split_once('/')?;
    let is_hub = |host: &str| DOCKER_HUB.contains(&host);
    let same_host = host.eq_ignore_ascii_case(registry) || (is_hub(host) && is_hub(registry));
    let rest = name.strip_prefix(path)?;
    let fits = path.is_empty() || rest.is_empty() || rest.starts_with('/');
    (same_host && fits).then_some(path.len())
}

#[cfg(test)]
#[path = "tests/registry_auth.rs"]
mod tests;
