//! (pure) The objects that fill a namespace from a repository: those of `deploy/team.yaml` that are needed, the Secrets, and the GitSync.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::git_sync::GitRef;
use crate::api::{API_VERSION, keys};
use crate::cli::{FOUND, Failure, USAGE};
use crate::git::origin;

/// What a namespace gives, for the namespace `team-a` with a Secret `team-a-git`. `---` is before each document.
const TEAM: &str = include_str!("../../../deploy/team.yaml");

/// A ServiceAccount.
#[derive(Debug, Clone)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What the objects are made of.
pub struct Given<'a> {
    /// The name of the GitSync.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// The URL of the repository.
    pub url: &'a str,
    /// What is followed.
    pub reference: &'a GitRef,
    /// The folder.
    pub path: &'a str,
    /// The ServiceAccount that writes; none with the operator's own rights.
    pub service_account: Option<&'a str>,
    /// The operator's account.
    pub operator: &'a Account,
    /// The data of the Secret with the credentials. Without any there is none.
    pub secret: &'a BTreeMap<String, Vec<u8>>,
    /// The data of the Secret with the proxy. Without any there is none.
    pub proxy: &'a BTreeMap<String, Vec<u8>>,
    /// Whether the operator may make keys of model proxies.
    pub model_keys: bool,
    /// Whether the operator may copy credentials for builds, and read logs of steps.
    pub builds: bool,
}

/// Words that YAML reads as something else than text.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// A name as YAML has it where nothing else stands.
fn scalar(name: &str) -> String {
    // Numbers and times begin with a digit.
    let is_text = !WORDS.contains(&name) && !name.starts_with(|c: char| c.is_ascii_digit());
    if is_text { name.to_owned() } else { format!("\"{name}\"") }
}

/// The objects as a stream of YAML documents.
///
/// # Errors
/// When a Role that is printed for something else has the name of the ServiceAccount.
pub fn render(given: &Given<'_>) -> Result<String, Failure> {
    let Given { name, namespace, url, service_account, .. } = *given;
    let (git, proxy) = (format!("{name}-git"), format!("{name}-proxy"));
    let mut text = String::new();
    let roles = [format!("convoke-git-{git}"), format!("convoke-git-{proxy}")];
    let taken = ["convoke-ask", "convoke-keys", "convoke-builds", "convoke-build-logs"]
        .into_iter()
        .chain(roles.iter().map(String::as_str));
    if let Some(name) = service_account.filter(|name| taken.into_iter().any(|taken| taken == *name))
    {
        let message =
            format!("--service-account {name}: a role of this name is for something else");
        return Err(Failure::new(USAGE, message).hint("choose another name"));
    }
    for document in documents() {
        // What needs rights of its own, or is made below.
        let is_account = document.contains("convoke-sync");
        let is_secret = document.contains("team-a-git");
        let is_left_out = document.contains("kind: GitSync\n")
            || (is_account && service_account.is_none())
            || (document.contains("name: convoke-keys\n") && !given.model_keys)
            || (!given.builds && is_of_builds(document));
        if is_left_out {
            continue;
        }
        let account = service_account.unwrap_or_default();
        let mut add = |secret: &str| {
            text += "---\n";
            text += &filled(document, given, account, secret);
        };
        if !is_secret {
            add("");
            continue;
        }
        for (name, data) in [(&git, given.secret), (&proxy, given.proxy)] {
            if !data.is_empty() {
                add(name);
            }
        }
    }
    let mut spec = json!({"url": url, "ref": given.reference});
    if *given.reference == GitRef::default() {
        spec["ref"] = json!({"branch": "main"});
    }
    if given.path != "." {
        spec["path"] = json!(given.path);
    }
    for (name, data, field) in
        [(&git, given.secret, "secretRef"), (&proxy, given.proxy, "proxySecretRef")]
    {
        if data.is_empty() {
            continue;
        }
        spec[field] = json!({"name": name});
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, value)| (key, STANDARD.encode(value))).collect();
        let annotations = json!({keys::GIT_ORIGINS: origin(url)});
        let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
        text += &yaml(
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}),
        )?;
    }
    if let Some(account) = service_account {
        spec["serviceAccountName"] = json!(account);
    }
    let metadata = json!({"name": name, "namespace": namespace});
    let sync =
        json!({"apiVersion": API_VERSION, "kind": "GitSync", "metadata": metadata, "spec": spec});
    Ok(text + &yaml(&sync)?)
}

/// The documents of `deploy/team.yaml`, without what is said of the whole file.
fn documents() -> impl Iterator<Item = &'static str> {
    let begin = TEAM.find("apiVersion:").unwrap_or_default();
    TEAM[begin..].split("---\n")
}

/// Whether the operator needs a document for builds only.
fn is_of_builds(document: &str) -> bool {
    ["convoke-builds", "convoke-build-logs"]
        .iter()
        .any(|name| document.contains(&format!("name: {name}\n")))
}

/// A document with the names that are wanted.
fn filled(document: &str, given: &Given<'_>, account: &str, secret: &str) -> String {
    let Account { namespace: home, name: operator } = given.operator;
    let operator = format!("name: {}, namespace: {}", scalar(operator), scalar(home));
    // At each place the first one that is there.
    let names = [
        ("name: convoke, namespace: convoke-system", operator.as_str()),
        ("convoke-sync", account),
        ("team-a-git", secret),
        ("team-a", given.namespace),
    ];
    let (mut text, mut rest) = (String::new(), document);
    while !rest.is_empty() {
        let found = names.iter().find(|(name, _)| rest.starts_with(name));
        let (taken, by) = match (found, rest.chars().next()) {
            (Some((name, by)), _) => (name.len(), *by),
            (None, Some(c)) => (c.len_utf8(), &rest[..c.len_utf8()]),
            (None, None) => break,
        };
        let after = &rest[taken..];
        let is_alone = text.ends_with([' ', '[']) && after.starts_with(['\n', ',', ']', '}']);
        text += &if found.is_some() && is_alone { scalar(by) } else { by.to_owned() };
        rest = after;
    }
    text
}

fn yaml(object: &Value) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(object).map_err(|e| Failure::new(FOUND, e.to_string()))?;
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("---\n{text}{end}"))
}

#[cfg(test)]
#[path = "tests/manifests.rs"]
mod tests;
