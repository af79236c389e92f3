//! Publishes Kubernetes events. Callers publish one when something changes or fails, not when it stays as it is.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};

pub use convoke_core::sync::io::effect::EventType;

use super::client::CALL_DEADLINE;
use convoke_core::text::printable;

/// Bytes of the longest note. The API server's limit is 1 KiB.
const MAX_NOTE_BYTES: usize = 1000;

/// An event that is published again within this time makes no new event: the count of the first one is raised.
const SERIES_TIME: Duration = Duration::from_secs(6 * 60);

/// Recorders that are kept to count repeated events, of some KiB each. An event without one is published each time.
const MAX_RECORDERS: usize = 1000;

/// What makes two events the same: the UID of the object, the reason and the note.
type EventKey = (String, String, String);

/// Publishes events under the operator's name.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    /// A recorder for each event: a single recorder would count all events of one reason under the note of the first.
    recorders: Arc<Mutex<HashMap<EventKey, (Instant, Recorder)>>>,
}

impl Events {
    /// A publisher that uses this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let reporter =
            Reporter { controller: "convoke".into(), instance: std::env::var("POD_NAME").ok() };
        Self { client, reporter, recorders: Arc::default() }
    }

    /// The recorder of an event: the one that published it not long ago, or a new one.
    fn recorder(&self, key: EventKey) -> Recorder {
        let now = Instant::now();
        let mut recorders = self.recorders.lock();
        recorders.retain(|_, (last, _)| now.duration_since(*last) < SERIES_TIME);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        if recorders.len() >= MAX_RECORDERS && !recorders.contains_key(&key) {
            return new();
        }
        let (last, recorder) = recorders.entry(key).or_insert_with(|| (now, new()));
        *last = now;
        recorder.clone()
    }

    /// Publishes one event about one object. A failure is only logged.
    pub async fn publish(
        &self,
        about: &ObjectReference,
        type_: EventType,
        reason: &str,
        note: &str,
    ) {
        let type_ = match type_ {
            EventType::Normal => kube::runtime::events::EventType::Normal,
            EventType::Warning => kube::runtime::events::EventType::Warning,
        };
        let note = fit(note);
        let uid = about.uid.clone().unwrap_or_default();
        let recorder = self.recorder((uid, reason.to_owned(), note.clone()));
        let (note, reason_, action) = (Some(note), reason.to_owned(), reason.to_owned());
        let event = Event { type_, reason: reason_, note, action, secondary: None };
        match tokio::time::timeout(CALL_DEADLINE, recorder.publish(&event, about)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, reason, "cannot write an event"),
            Err(_) => tracing::debug!(reason, "an event took too long"),
        }
    }
}

/// Makes a text fit for a note: printable, and within the API server's limit.
fn fit(note: &str) -> String {
    let mut note = printable(note);
    if note.len() > MAX_NOTE_BYTES {
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES - '…'.len_utf8()));
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fake::Fake;

    #[tokio::test]
    async fn a8_of_ever_so_many_events_only_some_are_remembered() {
        let events = Events::new(Fake::default().client());
        let event = |number: usize| (format!("u{number}"), "Created".to_owned(), String::new());
        for number in 0..3 * MAX_RECORDERS {
            events.recorder(event(number));
        }
        let known = events.recorders.lock();
        assert_eq!(known.len(), MAX_RECORDERS);
        assert!(known.contains_key(&event(0)), "what is published again is still counted");
    }

    #[test]
    fn g18_a_note_is_never_longer_than_the_api_server_takes() {
        // Three bytes each: 900 characters of them would be refused.
        let note = fit(&"提".repeat(900));
        assert!(note.len() <= MAX_NOTE_BYTES && note.ends_with("提…"), "{} {note}", note.len());
        assert_eq!(fit("a\u{202e}b\u{1b}[2J"), "a b [2J");
    }
}
