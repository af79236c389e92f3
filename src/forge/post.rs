//! Sends a commit status to a forge.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{Method, Request, Response, StatusCode, Url};
use serde_json::Value;

use super::api::{CommitStatus, Forge, request};
use crate::net::{ClientOptions, Dialler, NetError};
use convoke_core::text::printable;

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of an answer that are read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Characters of a forge's words that are kept.
const MAX_SAID: usize = 200;
/// The longest wait that a forge can ask for.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Why a forge has no status now. The text is for people, and holds no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The URL is none of a repository on such a forge.
    #[error("the URL of the repository is none of that forge: a path like /owner/name is needed")]
    NotARepository,
    /// Plain HTTP, which the operator does not allow.
    #[error("plain http is not allowed")]
    PlainHttp,
    /// The token is refused, or may not set a status.
    #[error("{host} refuses the token (HTTP {status}){said}")]
    Token {
        /// Whose API.
        host: String,
        /// 401 or 403.
        status: u16,
        /// What it says, after a colon.
        said: String,
    },
    /// The forge has no such repository or commit, or says so to those without rights.
    #[error(
        "{host} has no such repository or commit, or hides it from this token (HTTP {status}){said}"
    )]
    NotFound {
        /// Whose API.
        host: String,
        /// 404 or 422.
        status: u16,
        /// What it says, after a colon.
        said: String,
    },
    /// The forge wants a pause.
    #[error("{host} wants a pause of {} s", .after.as_secs())]
    Pause {
        /// Whose API.
        host: String,
        /// How long.
        after: Duration,
    },
    /// The forge cannot be asked, or fails.
    #[error("the forge cannot be asked: {detail}")]
    Unreachable {
        /// Why.
        detail: String,
    },
    /// Its certificate is not trusted.
    #[error("the forge cannot be asked: {0}")]
    NotTrusted(NetError),
}

impl Refused {
    /// Whether asking again soon may help.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Pause { .. } | Self::Unreachable { .. } | Self::NotTrusted(_))
    }

    /// What to do.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Token { status: 401, .. } => Some("the token is wrong or has expired"),
            Self::Token { .. } => Some(
                "the token needs the right to set commit statuses: repo:status or Commit statuses (GitHub), api (GitLab), write:repository (Gitea)",
            ),
            Self::NotFound { .. } => {
                Some("check that the token may see the repository, and spec.commitStatus.provider")
            }
            Self::NotARepository => {
                Some("commit statuses need the URL of the forge itself, not of a mirror")
            }
            Self::NotTrusted(_) => Some(
                "ca.crt of the Secret of spec.commitStatus, or of that of spec.secretRef, must have the authority that signed it, or the operator's machine trust it",
            ),
            _ => None,
        }
    }
}

/// Gives a commit of a repository a status. `connection` says how the forge is reached.
///
/// # Errors
/// [`Refused`].
pub async fn post(
    dialler: &Dialler,
    forge: Forge,
    repository: &Url,
    token: &str,
    connection: ClientOptions<'_>,
    status: &CommitStatus,
) -> Result<(), Refused> {
    let asked = request(forge, repository, status).ok_or(Refused::NotARepository)?;
    if asked.url.scheme() == "http" && !dialler.allows_plain_http() {
        return Err(Refused::PlainHttp);
    }
    let sent = send(dialler, forge, asked.url, token, connection, &asked.body);
    let sent = tokio::time::timeout(TIMEOUT, sent);
    sent.await.unwrap_or_else(|_| Err(Refused::Unreachable { detail: "it does not answer".into() }))
}

/// The header with the token.
fn authorization(forge: Forge, token: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, text) = match forge {
        Forge::GitHub => (AUTHORIZATION, format!("Bearer {token}")),
        Forge::Gitea => (AUTHORIZATION, format!("token {token}")),
        Forge::GitLab => (HeaderName::from_static("private-token"), token.to_owned()),
    };
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

async fn send(
    dialler: &Dialler,
    forge: Forge,
    url: Url,
    token: &str,
    connection: ClientOptions<'_>,
    body: &Value,
) -> Result<(), Refused> {
    let unreachable = |error: NetError| match error {
        NetError::CertificateNotTrusted { .. } => Refused::NotTrusted(error),
        error => Refused::Unreachable { detail: error.to_string() },
    };
    let client = dialler.client(&url, connection).map_err(unreachable)?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let (name, value) = authorization(forge, token).ok_or_else(|| Refused::Token {
        host: host.clone(),
        status: 0,
        said: ": it has characters that HTTP cannot send".into(),
    })?;
    let mut request = Request::new(Method::POST, url);
    let headers = request.headers_mut();
    headers.insert(name, value);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = Some(body.to_string().into());
    let response = client.execute(request).await.map_err(unreachable)?;
    judge(host, response).await
}

/// What the answer of a forge means.
async fn judge(host: String, response: Response) -> Result<(), Refused> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let pause = pause(status, response.headers(), Timestamp::now());
    if let Some(after) = pause {
        return Err(Refused::Pause { host, after });
    }
    let said = said(response).await;
    // GitLab: the status is that one already.
    if status == StatusCode::BAD_REQUEST && said.contains("Cannot transition status") {
        return Ok(());
    }
    let said = if said.is_empty() { said } else { format!(": {said}") };
    let code = status.as_u16();
    Err(match code {
        401 | 403 => Refused::Token { host, status: code, said },
        400 | 404 | 410 | 422 => Refused::NotFound { host, status: code, said },
        _ => Refused::Unreachable { detail: format!("{host} answers with HTTP {code}{said}") },
    })
}

/// How long the forge wants to be left alone: `Retry-After`, or GitHub's limit of requests.
fn pause(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    if !matches!(status.as_u16(), 403 | 429 | 503) {
        return None;
    }
    let seconds = match number(RETRY_AFTER.as_str()) {
        Some(seconds) => seconds,
        None if number("x-ratelimit-remaining") == Some(0) => {
            number("x-ratelimit-reset")?.saturating_sub(now.as_second())
        }
        None if status == StatusCode::TOO_MANY_REQUESTS => 60,
        None => return None,
    };
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1)).min(MAX_WAIT))
}

/// The words of a forge, from its JSON.
async fn said(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            break;
        }
        body.extend_from_slice(&chunk);
    }
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = ["message", "error"].iter().find_map(|key| match &value[key] {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    });
    printable(&text.unwrap_or_default()).chars().take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g19_a_forge_that_wants_a_pause_gets_it() {
        let now = Timestamp::from_second(1000).expect("a time");
        let of = |status: u16, headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_str(value).expect("a value"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            pause(status, &map, now).map(|pause| pause.as_secs())
        };
        assert_eq!(of(429, &[("retry-after", "7")]), Some(7));
        assert_eq!(of(429, &[]), Some(60));
        assert_eq!(
            of(403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1030")]),
            Some(30)
        );
        assert_eq!(of(503, &[("retry-after", "99999999")]), Some(3600));
        assert_eq!(of(503, &[("retry-after", "-5")]), Some(1));
        assert_eq!(of(403, &[("x-ratelimit-remaining", "5")]), None, "the token is refused");
        assert_eq!(of(401, &[("retry-after", "7")]), None);
    }
}
