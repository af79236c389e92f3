//! Which path is the webhook of which GitSync, with which token, and what becomes of a delivery.

use std::collections::HashMap;
use std::sync::Arc;

use convoke_core::cluster::store::Key;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::delivery::{self, Follows, Provider, Token, Told};
use super::seen::Seen;

/// The webhook of a GitSync, as its spec has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The GitSync.
    pub key: Key,
    /// Who sends the deliveries.
    pub provider: Provider,
    /// Which pushes matter.
    pub follows: Follows,
    /// Whether nothing is to be woken.
    pub suspended: bool,
}

struct Entry {
    hook: Hook,
    token: Option<Token>,
    seen: Seen,
}

/// What a delivery means for its GitSync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// Poll the remote.
    Wake,
    /// This ref has moved, which the GitSync does not follow. Others of the repository may.
    Elsewhere(String),
    /// A signature did not match the token: it may have been changed.
    Doubt,
    /// A delivery was genuine, and nothing is to be polled.
    Heard,
}

/// Called with each delivery to the path of a GitSync. It must not wait.
pub type Listener = Arc<dyn Fn(&Key, &Signal) + Send + Sync>;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The GitSync is woken.
    Woken,
    /// The forge has tried the webhook.
    Ping,
    /// The push was to another ref.
    OtherRef,
    /// The delivery was taken before.
    Repeated,
    /// The GitSync is suspended.
    Suspended,
    /// The path is nobody's, or the signature does not match.
    Refused,
    /// The body is not JSON.
    Malformed,
    /// The method is not POST.
    NotPost,
    /// The body is too large.
    TooLarge,
    /// The body did not arrive in time, or not whole.
    TooSlow,
    /// Too many bodies are read at the moment.
    Busy,
}

impl Outcome {
    /// The word in metrics; status and body of the answer.
    const fn told(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::Woken => ("woken", StatusCode::ACCEPTED, "the GitSync polls its repository\n"),
            Self::Ping => ("ping", StatusCode::OK, "pong\n"),
            Self::OtherRef => {
                ("other_ref", StatusCode::OK, "the GitSync follows another branch or tag\n")
            }
            Self::Repeated => ("repeated", StatusCode::OK, "this delivery was taken before\n"),
            Self::Suspended => ("suspended", StatusCode::OK, "the GitSync is suspended\n"),
            Self::Refused => (
                "refused",
                StatusCode::UNAUTHORIZED,
                "no webhook here, or its signature is not that of its token\n",
            ),
            Self::Malformed => (
                "malformed",
                StatusCode::BAD_REQUEST,
                "not a JSON object: choose the content type application/json at the forge\n",
            ),
            Self::NotPost => ("not_post", StatusCode::METHOD_NOT_ALLOWED, "use POST\n"),
            Self::TooLarge => {
                ("too_large", StatusCode::PAYLOAD_TOO_LARGE, "a body has at most 1 MiB\n")
            }
            Self::TooSlow => {
                ("too_slow", StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n")
            }
            Self::Busy => {
                ("busy", StatusCode::SERVICE_UNAVAILABLE, "too many deliveries at once\n")
            }
        }
    }

    /// The word in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.told().0
    }

    /// Status and body of the answer. It depends on nothing else.
    #[must_use]
    pub const fn answer(self) -> (StatusCode, &'static str) {
        let (_, status, text) = self.told();
        (status, text)
    }
}

/// The labels of the counter of requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    /// `unknown` if the path is nobody's.
    provider: &'static str,
    outcome: &'static str,
}

/// All webhooks, by path.
pub struct Hooks {
    by_path: Mutex<HashMap<String, Entry>>,
    listener: Listener,
    requests: Family<Labels, Counter>,
}

impl Hooks {
    /// No webhooks yet.
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        Self { by_path: Mutex::default(), listener, requests: Family::default() }
    }

    /// Adds the metrics of webhooks: `webhook_requests_total{provider, outcome}`.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests to the server for webhooks";
        registry.register("webhook_requests", help, self.requests.clone());
    }

    /// Puts a webhook at a path. One that is there keeps its token, until [`Self::set_token`], and the ids of its deliveries.
    pub fn put(&self, path: &str, hook: Hook) {
        let mut all = self.by_path.lock();
        if let Some(entry) = all.get_mut(path) {
            entry.hook = hook;
        } else {
            all.insert(path.to_owned(), Entry { hook, token: None, seen: Seen::default() });
        }
    }

    /// Sets the token of a webhook. Returns whether it is another one than before. Without a token every delivery is refused.
    pub fn set_token(&self, path: &str, token: Option<Token>) -> bool {
        let mut all = self.by_path.lock();
        let Some(entry) = all.get_mut(path) else { return false };
        let changed = entry.token != token;
        entry.token = token;
        changed
    }

    /// Removes a webhook.
    pub fn remove(&self, path: &str) {
        self.by_path.lock().remove(path);
    }

    /// Takes a whole delivery, whose signature is checked before anything of it is read. It waits for nothing.
    pub fn receive(&self, path: &str, headers: &HeaderMap, body: &[u8]) -> Outcome {
        let known =
            self.by_path.lock().get(path).map(|entry| (entry.hook.clone(), entry.token.clone()));
        let token = known.as_ref().and_then(|(hook, token)| Some((hook.provider, token.as_ref()?)));
        let genuine = delivery::is_genuine(token, headers, body);
        let Some((hook, _)) = known else { return Outcome::Refused };
        if !genuine {
            (self.listener)(&hook.key, &Signal::Doubt);
            return Outcome::Refused;
        }
        let (outcome, pushed) = self.judge(path, &hook, headers, body);
        let signal = match (outcome, pushed) {
            (Outcome::Woken, _) => Signal::Wake,
            (Outcome::OtherRef, Some(pushed)) => Signal::Elsewhere(pushed),
            _ => Signal::Heard,
        };
        (self.listener)(&hook.key, &signal);
        tracing::debug!(object = %hook.key, outcome = outcome.as_str(), "a delivery of the webhook");
        outcome
    }

    /// What becomes of a genuine delivery, and which ref has moved, if it says that.
    fn judge(
        &self,
        path: &str,
        hook: &Hook,
        headers: &HeaderMap,
        body: &[u8],
    ) -> (Outcome, Option<String>) {
        let Ok(told) = delivery::read(hook.provider, headers, body) else {
            return (Outcome::Malformed, None);
        };
        if hook.suspended {
            // Its id is not remembered: sent again after that, it counts.
            return (Outcome::Suspended, None);
        }
        let pushed = match told {
            Told::Ping => return (Outcome::Ping, None),
            Told::Pushed(reference) => Some(reference),
            Told::Something => None,
        };
        let id = delivery::id(hook.provider, headers);
        let is_new = id.is_none_or(|id| {
            self.by_path.lock().get_mut(path).is_none_or(|entry| entry.seen.note(id))
        });
        let is_elsewhere = pushed.as_ref().is_some_and(|pushed| hook.follows.is_elsewhere(pushed));
        let outcome = match (is_new, is_elsewhere) {
            (false, _) => Outcome::Repeated,
            (true, true) => Outcome::OtherRef,
            (true, false) => Outcome::Woken,
        };
        (outcome, pushed)
    }

    /// Counts a request, whatever became of it.
    pub fn count(&self, path: &str, outcome: Outcome) {
        let provider = self.by_path.lock().get(path).map(|entry| entry.hook.provider);
        let provider = provider.map_or("unknown", Provider::as_str);
        let labels = Labels { provider, outcome: outcome.as_str() };
        self.requests.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
#[path = "tests/hooks.rs"]
mod tests;
