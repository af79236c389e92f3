//! Publishes Kubernetes events. Callers publish one when something changes or fails, not when it stays as it is.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use convoke_core::sync::io::effect::EventType;

use super::client::CALL_DEADLINE;
use convoke_core::text::printable;

/// Bytes of the longest note. The API server's limit is 1 KiB.
const MAX_NOTE_BYTES: usize = 1000;

/// The name under which events are published.
const CONTROLLER: &str = "convoke";

/// An event that is published again within this time makes no new event: the count of the first one is raised.
const SERIES_TIME: Duration = Duration::from_secs(6 * 60);

/// Events that are remembered to count them when they are published again. The others are new each time.
const MAX_SERIES: usize = 1000;

/// A digest of what makes two events the same: the UID of the object, the reason and the note. The library's recorder would count all events of
/// one reason under the note of the first, and keep each event whole.
type EventKey = [u8; 32];

/// An event that was published not long ago.
#[derive(Clone)]
struct Series {
    name: String,
    count: i32,
    last: Instant,
}

/// Publishes events under the operator's name.
#[derive(Clone)]
pub struct Events {
    client: Client,
    /// The pod, or the program's name.
    instance: String,
    series: Arc<Mutex<HashMap<EventKey, Series>>>,
}

impl Events {
    /// A publisher that uses this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let instance = std::env::var("POD_NAME").unwrap_or_else(|_| CONTROLLER.to_owned());
        Self { client, instance, series: Arc::default() }
    }

    /// The event that was published not long ago.
    fn known(&self, key: &EventKey) -> Option<Series> {
        let now = Instant::now();
        let mut series = self.series.lock();
        series.retain(|_, one| now.duration_since(one.last) < SERIES_TIME);
        series.get(key).cloned()
    }

    fn remember(&self, key: EventKey, name: String, count: i32) {
        let mut series = self.series.lock();
        if series.len() < MAX_SERIES || series.contains_key(&key) {
            series.insert(key, Series { name, count, last: Instant::now() });
        }
    }

    /// Publishes one event about one object. A failure is only logged.
    pub async fn publish(
        &self,
        about: &ObjectReference,
        type_: EventType,
        reason: &str,
        note: &str,
    ) {
        let published = self.write(about, type_, reason, fit(note));
        match tokio::time::timeout(CALL_DEADLINE, published).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, reason, "cannot write an event"),
            Err(_) => tracing::debug!(reason, "an event took too long"),
        }
    }

    async fn write(
        &self,
        about: &ObjectReference,
        type_: EventType,
        reason: &str,
        note: String,
    ) -> kube::Result<()> {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        let (key, now) = (event_key(about, reason, &note), Timestamp::now());
        if let Some(Series { name, count, .. }) = self.known(&key) {
            let count = count.saturating_add(1);
            let series = json!({"count": count, "lastObservedTime": MicroTime(now)});
            let patch = Patch::Merge(json!({"series": series}));
            match events.patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    self.remember(key, name, count);
                    return Ok(());
                }
                // Somebody has deleted it: there is a new one.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let name = about.name.as_deref().unwrap_or(CONTROLLER);
        let name = format!("{name}.{:x}", now.as_nanosecond());
        let type_ = match type_ {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let event = Event {
            action: Some(reason.to_owned()),
            event_time: Some(MicroTime(now)),
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            note: Some(note),
            reason: Some(reason.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(type_.to_owned()),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await?;
        self.remember(key, name, 1);
        Ok(())
    }
}

fn event_key(about: &ObjectReference, reason: &str, note: &str) -> EventKey {
    let mut digest = Sha256::new();
    for part in [about.uid.as_deref().unwrap_or_default(), reason, note] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
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
        let key = |number: usize| {
            let uid = Some(format!("u{number}"));
            event_key(&ObjectReference { uid, ..ObjectReference::default() }, "Created", "")
        };
        for number in 0..3 * MAX_SERIES {
            events.remember(key(number), format!("e{number}"), 1);
        }
        assert_eq!(events.series.lock().len(), MAX_SERIES);
        assert!(events.known(&key(MAX_SERIES)).is_none());
        events.remember(key(0), "e0".to_owned(), 2);
        let first = events.known(&key(0)).map(|one| (one.name, one.count));
        assert_eq!(first, Some(("e0".to_owned(), 2)), "what is published again is still counted");
    }

    #[test]
    fn g18_a_note_is_never_longer_than_the_api_server_takes() {
        // Three bytes each: 900 characters of them would be refused.
        let note = fit(&"提".repeat(900));
        assert!(note.len() <= MAX_NOTE_BYTES && note.ends_with("提…"), "{} {note}", note.len());
        assert_eq!(fit("a\u{202e}b\u{1b}[2J"), "a b [2J");
    }
}
