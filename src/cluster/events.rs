//! Kubernetes events: on change and on failure only, short, and never in the way of the work.

use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

use super::client::CALL_DEADLINE;
use crate::definition::diagnostic::printable;

/// Bytes of the longest note (the API server's limit is 1 KiB).
const MOST_NOTE: usize = 1000;

/// Publishes events under the operator's name.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let reporter =
            Reporter { controller: "convoke".into(), instance: std::env::var("POD_NAME").ok() };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Tells one thing about one object. A failure to tell is logged, nothing else.
    pub async fn tell<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        good: bool,
        reason: &str,
        note: &str,
    ) {
        let type_ = if good { EventType::Normal } else { EventType::Warning };
        let note = Some(fit(note));
        let event =
            Event { type_, reason: reason.into(), note, action: reason.into(), secondary: None };
        let reference = about.object_ref(&());
        match tokio::time::timeout(CALL_DEADLINE, self.recorder.publish(&event, &reference)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, reason, "cannot write an event"),
            Err(_) => tracing::debug!(reason, "an event took too long"),
        }
    }
}

/// A note that the API server takes, whatever it quotes.
fn fit(note: &str) -> String {
    let mut note = printable(note);
    if note.len() > MOST_NOTE {
        note.truncate(note.floor_char_boundary(MOST_NOTE - '…'.len_utf8()));
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g18_a_note_is_never_longer_than_the_api_server_takes() {
        // Three bytes each: 900 characters of them would be refused.
        let note = fit(&"提".repeat(900));
        assert!(note.len() <= MOST_NOTE && note.ends_with("提…"), "{} {note}", note.len());
        assert_eq!(fit("a\u{202e}b\u{1b}[2J"), "a b [2J");
    }
}
