//! Kubernetes events: on change and on failure only, short, and never in the way of the work.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::client::CALL_DEADLINE;
use convoke_core::text::printable;

/// Bytes of the longest note (the API server's limit is 1 KiB).
const MOST_NOTE: usize = 1000;

/// What is told again within this time is counted, and makes no event of its own.
const SERIES: Duration = Duration::from_secs(6 * 60);

/// So many are remembered to be counted: some KiB each. What is told beside these makes an event each time.
const MOST_SAID: usize = 1000;

/// What an event says: the uid of the object, the reason and the note.
type Said = (String, String, String);

/// Publishes events under the operator's name.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    /// A recorder for each note: one alone would count all that has the same reason under the note of the first.
    recorders: Arc<Mutex<HashMap<Said, (Instant, Recorder)>>>,
}

impl Events {
    /// Events through this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let reporter =
            Reporter { controller: "convoke".into(), instance: std::env::var("POD_NAME").ok() };
        Self { client, reporter, recorders: Arc::default() }
    }

    /// The recorder of what says this, and has said it not long ago.
    fn recorder(&self, said: Said) -> Recorder {
        let now = Instant::now();
        let mut recorders = self.recorders.lock();
        recorders.retain(|_, (last, _)| now.duration_since(*last) < SERIES);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        if recorders.len() >= MOST_SAID && !recorders.contains_key(&said) {
            return new();
        }
        let (last, recorder) = recorders.entry(said).or_insert_with(|| (now, new()));
        *last = now;
        recorder.clone()
    }

    /// Tells one thing about one object. A failure to tell is logged, nothing else.
    pub async fn tell(&self, about: &ObjectReference, good: bool, reason: &str, note: &str) {
        let type_ = if good { EventType::Normal } else { EventType::Warning };
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
    use crate::cluster::fake::Fake;

    #[tokio::test]
    async fn a8_of_ever_so_many_events_only_some_are_remembered() {
        let events = Events::new(Fake::default().client());
        let said = |number: usize| (format!("u{number}"), "Created".to_owned(), String::new());
        for number in 0..3 * MOST_SAID {
            events.recorder(said(number));
        }
        let known = events.recorders.lock();
        assert_eq!(known.len(), MOST_SAID);
        assert!(known.contains_key(&said(0)), "what is told again is still counted");
    }

    #[test]
    fn g18_a_note_is_never_longer_than_the_api_server_takes() {
        // Three bytes each: 900 characters of them would be refused.
        let note = fit(&"提".repeat(900));
        assert!(note.len() <= MOST_NOTE && note.ends_with("提…"), "{} {note}", note.len());
        assert_eq!(fit("a\u{202e}b\u{1b}[2J"), "a b [2J");
    }
}
