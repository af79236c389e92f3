//! (pure) Whether a delivery is signed with the token of its webhook, and what it tells.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use aws_lc_rs::hmac;
use convoke_core::api::git_sync::GitRef;
pub use convoke_core::api::webhook::Provider;
use convoke_core::text::unhex;
use http::HeaderMap;
use serde::Deserialize;

/// Levels of JSON below which nothing is read. Deliveries of forges have fewer than ten.
const MOST_LEVELS: usize = 64;
/// The longest id of a delivery that is taken for one. Those of forges have 36 characters.
const LONGEST_ID: usize = 256;

/// The token of a webhook. It cannot be read back, and nothing prints it.
#[derive(Clone)]
pub struct Token {
    /// Checks signatures.
    key: hmac::Key,
    /// Checks a token that is sent as it is, whatever its length.
    tag: hmac::Tag,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(not shown)")
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.tag.as_ref() == other.tag.as_ref()
    }
}

/// What turns tokens into tags of one length: they are compared without regard to the length of the token.
fn comparing() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, b"convoke.dev compares tokens of webhooks")
}

/// Why a value of a Secret is no token. The text is for people, and quotes no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NoToken {
    /// What is wrong.
    pub problem: &'static str,
    /// How to mend it.
    pub hint: Option<&'static str>,
}

impl Token {
    /// A token from a value of a Secret.
    ///
    /// # Errors
    /// When it is empty, because everybody can sign with that, or has a line break, because no forge's form takes one.
    pub fn new(value: &[u8]) -> Result<Self, NoToken> {
        if value.is_empty() {
            return Err(NoToken { problem: "token is empty", hint: None });
        }
        if value.contains(&b'\n') || value.contains(&b'\r') {
            return Err(NoToken {
                problem: "token has a line break",
                hint: Some("make it anew without one: printf %s, not echo"),
            });
        }
        Ok(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, value),
            tag: hmac::sign(&comparing(), value),
        })
    }

    /// The token of a path that is nobody's, and of a webhook without one. What it signs counts for nothing.
    fn of_nobody() -> Self {
        let value = b"nobody";
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, value), tag: hmac::sign(&comparing(), value) }
    }
}

/// The only value of a header; `None` if there is none, or more than one.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

/// The HMAC-SHA256 that the headers give.
fn signature(provider: Provider, headers: &HeaderMap) -> Option<[u8; 32]> {
    let prefixed = |name: &str| unhex(only(headers, name)?.strip_prefix(b"sha256=")?);
    match provider {
        Provider::GitHub => prefixed("x-hub-signature-256"),
        Provider::Gitea if headers.contains_key("x-gitea-signature") => {
            unhex(only(headers, "x-gitea-signature")?)
        }
        Provider::Gitea => prefixed("x-hub-signature-256"),
        Provider::GenericHMAC => prefixed("x-signature"),
        Provider::GitLab => None,
    }
}

/// Whether a delivery proves that its sender has the token. The comparison takes the same time wherever two values differ, and the body is
/// hashed also where nothing depends on it: an answer tells nobody whether a path is somebody's.
#[must_use]
pub fn is_genuine(webhook: Option<(Provider, &Token)>, headers: &HeaderMap, body: &[u8]) -> bool {
    let of_nobody = Token::of_nobody();
    let (provider, token) = webhook.unwrap_or((Provider::GenericHMAC, &of_nobody));
    let given = signature(provider, headers);
    let is_signed = hmac::verify(&token.key, body, &given.unwrap_or_default()).is_ok();
    let sent = only(headers, "x-gitlab-token").unwrap_or_default();
    let sent = hmac::sign(&comparing(), sent);
    let is_sent =
        aws_lc_rs::constant_time::verify_slices_are_equal(sent.as_ref(), token.tag.as_ref());
    webhook.is_some()
        && match provider {
            Provider::GitLab => is_sent.is_ok(),
            _ => is_signed && given.is_some(),
        }
}

/// The id of a delivery, which a repeated one has, too; `None` if it has none.
///
/// `X-Gitlab-Webhook-UUID` is left out: it names a webhook or an attempt, depending on the version of GitLab.
#[must_use]
pub fn id(provider: Provider, headers: &HeaderMap) -> Option<&[u8]> {
    let names: &[&str] = match provider {
        Provider::GitHub => &["x-github-delivery"],
        Provider::GitLab => &["idempotency-key", "x-gitlab-event-uuid"],
        Provider::Gitea => &["x-gitea-delivery", "x-github-delivery"],
        Provider::GenericHMAC => &["idempotency-key"],
    };
    let mut ids = names.iter().filter_map(|name| only(headers, name));
    ids.find(|id| !id.is_empty() && id.len() <= LONGEST_ID)
}

/// What a genuine delivery tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The forge tries the webhook.
    Ping,
    /// This ref, as its full name or in some other form, has moved.
    Pushed(String),
    /// Something else, or a push that does not say where to.
    Something,
}

/// Why a body tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object: choose the content type application/json at the forge")]
pub struct Malformed;

/// The part of a payload that is read. Everything else is skipped, and nothing of it is kept.
#[derive(Deserialize)]
struct Payload {
    #[serde(default, rename = "ref")]
    reference: Option<String>,
}

/// Reads a genuine delivery.
///
/// # Errors
/// When the body is not a JSON object with at most 64 levels, or its `ref` is not text.
pub fn read(provider: Provider, headers: &HeaderMap, body: &[u8]) -> Result<Told, Malformed> {
    let is_object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if !is_object || levels(body) > MOST_LEVELS {
        return Err(Malformed);
    }
    let payload: Payload = serde_json::from_slice(body).map_err(|_| Malformed)?;
    let event = match provider {
        Provider::GitHub => only(headers, "x-github-event"),
        Provider::Gitea => only(headers, "x-gitea-event"),
        Provider::GitLab | Provider::GenericHMAC => None,
    };
    if event == Some(b"ping") {
        return Ok(Told::Ping);
    }
    Ok(payload.reference.map_or(Told::Something, Told::Pushed))
}

/// How deep objects and lists of a JSON text are in each other. Of a text that is no JSON it is some number.
fn levels(body: &[u8]) -> usize {
    let (mut level, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => level += 1,
            b'}' | b']' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// Which pushes matter for a GitSync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Follows {
    /// This ref, by its full name.
    Ref(String),
    /// Every tag: which one has the highest version may change.
    Tags,
    /// Anything: a pinned commit may come with any push, and a ref that is neither branch nor tag is in no push.
    Anything,
}

impl Follows {
    /// What `spec.ref` follows.
    #[must_use]
    pub fn of(reference: Option<&GitRef>) -> Self {
        let Some(GitRef { branch, tag, semver, name, commit }) = reference else {
            return Self::Ref("refs/heads/main".into());
        };
        match (branch, tag, name) {
            (Some(branch), _, _) => Self::Ref(format!("refs/heads/{branch}")),
            (_, Some(tag), _) => Self::Ref(format!("refs/tags/{tag}")),
            (_, _, Some(name)) if is_branch(name) || is_tag(name) => Self::Ref(name.clone()),
            (_, _, Some(_)) => Self::Anything,
            _ if semver.is_some() => Self::Tags,
            _ if commit.is_some() => Self::Anything,
            _ => Self::Ref("refs/heads/main".into()),
        }
    }

    /// Whether a push to this ref clearly does not matter.
    #[must_use]
    pub fn is_elsewhere(&self, pushed: &str) -> bool {
        match self {
            Self::Ref(followed) => (is_branch(pushed) || is_tag(pushed)) && followed != pushed,
            Self::Tags => is_branch(pushed),
            Self::Anything => false,
        }
    }
}

fn is_branch(reference: &str) -> bool {
    reference.starts_with("refs/heads/")
}

fn is_tag(reference: &str) -> bool {
    reference.starts_with("refs/tags/")
}

#[cfg(test)]
#[path = "tests/delivery.rs"]
pub(super) mod tests;
