//! What a status says about `spec.webhook`: the path, and the condition `WebhookReady`. It does not matter for `Ready`, because the remote
//! is polled all the same.

use crate::api::webhook::path;
use crate::sync::io::poll::WebhookState;
use crate::sync::poll::remote::Remote;
use crate::sync::subject::Subject;

/// The condition.
pub(super) const WEBHOOK_READY: &str = "WebhookReady";

/// What a report knows of the webhook of its GitSync.
#[derive(Debug, Clone)]
pub struct WebhookReport {
    /// The path; `None` without `spec.webhook`.
    pub path: Option<String>,
    /// The Secret of the webhook.
    pub secret: String,
    /// What the last poll found; `None` if none has ended for this spec.
    pub state: Option<WebhookState>,
}

impl WebhookReport {
    /// From the spec, and from what the last poll found.
    pub(crate) fn of(subject: &Subject<'_>, remote: &Remote) -> Self {
        let spec = subject.sync.spec.webhook.as_ref();
        let state = remote.webhook.as_ref().filter(|_| remote.generation == subject.generation);
        Self {
            path: spec.map(|_| path(&subject.entry.uid)),
            secret: spec.map(|spec| spec.secret_ref.name.clone()).unwrap_or_default(),
            state: state.cloned(),
        }
    }

    /// Status, reason and message of the condition, if something is known.
    pub(super) fn condition(&self) -> Option<(&'static str, &'static str, String)> {
        Some(match self.state.as_ref()? {
            WebhookState::Ready => {
                let path = self.path.as_deref().unwrap_or_default();
                let message = format!(
                    "deliveries at {path} are checked with the token of the Secret {}",
                    self.secret
                );
                ("True", "Listening", message)
            }
            WebhookState::NotServed => {
                let message = "the operator listens for no webhooks; hint: give it the option --webhook-addr=0.0.0.0:9292";
                ("False", "NotServed", message.to_owned())
            }
            WebhookState::Unreadable(failure) => {
                ("False", failure.reason.as_str(), failure.message.clone())
            }
        })
    }
}

#[cfg(test)]
#[path = "tests/webhook.rs"]
mod tests;
