//! (pure) The request that tells a forge the status of a commit.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use reqwest::Url;
use serde_json::{Value, json};

pub use crate::api::git_sync::Forge;

/// Characters of the longest description: what GitHub takes.
const MAX_DESCRIPTION: usize = 140;

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Something is waited for.
    Pending,
    /// All is well.
    Success,
    /// Something is wrong.
    Failure,
}

/// The status of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStatus {
    /// 40 or 64 hex digits.
    pub commit: String,
    /// What became of it.
    pub state: State,
    /// Who says so: a forge shows the last status of each context.
    pub context: String,
    /// One line for people.
    pub description: String,
}

/// A request for the API of a forge.
#[derive(Debug, PartialEq, Eq)]
pub struct StatusRequest {
    /// Where to send it.
    pub url: Url,
    /// The body, in JSON.
    pub body: Value,
}

/// The host of an API, and the path of the repository on it.
struct Repository<'a> {
    url: &'a Url,
    /// The scheme, the host and the port of the forge's web pages.
    web: String,
    path: String,
}

impl<'a> Repository<'a> {
    fn of(url: &'a Url) -> Option<Self> {
        let host = url.host_str()?.to_ascii_lowercase();
        // A port of ssh says nothing of the one of https.
        let web = match (url.scheme(), url.port()) {
            ("ssh", _) | ("https", None) => format!("https://{host}"),
            (scheme @ ("https" | "http"), Some(port)) => format!("{scheme}://{host}:{port}"),
            ("http", None) => format!("http://{host}"),
            _ => return None,
        };
        let path = url.path().trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path).to_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/".contains(c);
        let good = path.contains('/')
            && path.chars().all(is_plain)
            && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        good.then_some(Self { url, web, path })
    }

    /// The owner and the name, if the path is just these.
    fn owner_and_name(&self) -> Option<&str> {
        (self.path.split('/').count() == 2).then_some(self.path.as_str())
    }
}

/// The request that gives a commit of a repository a status. `None` when the URL is none of a repository on such a forge.
#[must_use]
pub fn request(forge: Forge, repository: &Url, status: &CommitStatus) -> Option<StatusRequest> {
    let repository = Repository::of(repository)?;
    let CommitStatus { commit, state, context, description } = status;
    let description: String = description.chars().take(MAX_DESCRIPTION).collect();
    let web = &repository.web;
    let (url, body) = match forge {
        Forge::GitHub => {
            let is_dot_com = repository.url.host_str() == Some("github.com");
            let api =
                if is_dot_com { "https://api.github.com".into() } else { format!("{web}/api/v3") };
            let url = format!("{api}/repos/{}/statuses/{commit}", repository.owner_and_name()?);
            let state = word(*state, "failure");
            (url, json!({"state": state, "context": context, "description": description}))
        }
        Forge::Gitea => {
            let repo = repository.owner_and_name()?;
            let url = format!("{web}/api/v1/repos/{repo}/statuses/{commit}");
            let state = word(*state, "failure");
            (url, json!({"state": state, "context": context, "description": description}))
        }
        Forge::GitLab => {
            let project = repository.path.replace('/', "%2F");
            let url = format!("{web}/api/v4/projects/{project}/statuses/{commit}");
            let state = word(*state, "failed");
            (url, json!({"state": state, "name": context, "description": description}))
        }
    };
    Some(StatusRequest { url: Url::parse(&url).ok()?, body })
}

const fn word(state: State, failure: &'static str) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Success => "success",
        State::Failure => failure,
    }
}

#[cfg(test)]
#[path = "tests/api.rs"]
mod tests;
