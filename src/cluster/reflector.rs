//! One watch a kind, with its own backoff: a kind that cannot be watched never slows down another.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::client::jitter;
use super::store::{Entry, Key, Store};

/// Load balancers drop quiet connections at 240 s; a watch ends before that by itself.
const WATCH_SECONDS: u32 = 200;
/// Objects of one page of a list. A page is in memory as text and as typed objects, for each kind at once: at a start
/// that is what takes the most memory.
const PAGE: u32 = 100;
/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two tries. Kinds appear while the operator runs (a CRD that is just being served answers 404
/// for a moment), so kube's half a minute would be felt.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A watch that worked this long starts with the first pause again.
const QUIET: Duration = Duration::from_secs(10);

/// What a store keeps of an object of type `K`.
pub trait View: Send + Sync + 'static {
    /// The API type that is watched.
    type Object: Resource + Clone + Debug + DeserializeOwned + Send + 'static;
    /// Takes what is worth keeping.
    fn of(object: Self::Object) -> Self;
}

/// Turns an object into a store entry.
pub fn entry<V: View>(object: V::Object) -> (Key, Entry<V>) {
    entry_of(object, &V::of)
}

fn entry_of<K: Resource, V>(object: K, view: &impl Fn(K) -> V) -> (Key, Entry<V>) {
    let meta = object.meta();
    let key = Key::of(meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
    (key, Entry { uid, version, value: view(object) })
}

/// Whether the right to list or watch is missing.
#[must_use]
pub fn is_forbidden(error: &watcher::Error) -> bool {
    refusal(error).is_some()
}

/// What the API server says when the right to list or watch is missing.
#[must_use]
pub fn refusal(error: &watcher::Error) -> Option<&str> {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status)
            if status.code == 403 =>
        {
            Some(&status.message)
        }
        _ => None,
    }
}

/// Pauses between tries: doubling with each failure in a row, ±10%.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    /// The pause after a failure at `now`. After a quiet time the first failure counts as the first again: a complete
    /// list alone proves nothing, because a watch that never starts may list well each time.
    fn next(&mut self, now: Instant, most: Duration) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > 2 * most + QUIET) {
            self.reset();
        }
        self.last = Some(now);
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures = self.failures.saturating_add(1);
        jitter(pause)
    }

    fn reset(&mut self) {
        self.failures = 0;
    }
}

fn config_of(labels: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    match labels {
        Some(labels) => config.labels(labels),
        None => config,
    }
}

/// Watches a kind into its store, for ever. `labels` restricts what is watched; our own kinds use none.
pub async fn run<V: View>(api: Api<V::Object>, store: Arc<Store<V>>, labels: Option<&str>) {
    run_with(api, store, labels, LONGEST_PAUSE, V::of, |_| {}).await;
}

/// What a watch tells while it runs.
pub enum Heard<'a> {
    /// A list is complete: the store holds all there is.
    Listed,
    /// It does not work, and is tried again.
    Failed(&'a watcher::Error),
}

/// The same for what is kept by `view` instead of a [`View`]. While the right is missing (403), pauses grow up to
/// `forbidden`, and each try lists anew.
pub async fn run_with<K, V>(
    api: Api<K>,
    store: Arc<Store<V>>,
    labels: Option<&str>,
    forbidden: Duration,
    view: impl Fn(K) -> V,
    heard: impl Fn(Heard<'_>),
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut pauses = Pauses::default();
    loop {
        let mut events = watcher(api.clone(), config_of(labels)).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => store.list_begins(),
                Ok(Event::InitApply(object)) => {
                    let (key, entry) = entry_of(object, &view);
                    store.listed(key, entry);
                }
                Ok(Event::InitDone) => {
                    tracing::debug!(kind = store.kind, "list complete");
                    if !store.list_done() {
                        break;
                    }
                    heard(Heard::Listed);
                }
                Ok(Event::Apply(object)) => {
                    pauses.reset();
                    let (key, entry) = entry_of(object, &view);
                    store.applied(key, entry);
                }
                Ok(Event::Delete(object)) => {
                    pauses.reset();
                    let key = Key::of(object.meta());
                    store.removed(&key, object.meta().uid.as_deref().unwrap_or_default());
                }
                Err(error) => {
                    heard(Heard::Failed(&error));
                    let refused = is_forbidden(&error);
                    let most = if refused { forbidden } else { LONGEST_PAUSE };
                    let pause = pauses.next(Instant::now(), most);
                    // A right may be missing for long, and somebody is told of it elsewhere.
                    if refused && pauses.failures > 1 {
                        tracing::debug!(kind = store.kind, %error, retry_in = ?pause, "still not allowed");
                    } else {
                        tracing::warn!(kind = store.kind, %error, retry_in = ?pause, "watch failed, trying again");
                    }
                    tokio::time::sleep(pause).await;
                    if refused {
                        // A list says when the right is there; the watch alone would be silent.
                        events = watcher(api.clone(), config_of(labels)).boxed();
                    }
                }
            }
        }
        // Only after a list that ran beside own writes: list again soon, with a pause so that it ends.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_cap_and_start_again_after_a_good_event_or_a_quiet_time() {
        let near = |pause: Duration, seconds: f64| {
            let ratio = pause.as_secs_f64() / seconds;
            assert!((0.89..1.11).contains(&ratio), "{pause:?} is not about {seconds} s");
        };
        let (mut pauses, start) = (Pauses::default(), Instant::now());
        for seconds in [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0] {
            near(pauses.next(start, LONGEST_PAUSE), seconds);
        }
        near(pauses.next(start, Duration::from_secs(60)), 25.6);
        pauses.reset();
        near(pauses.next(start, LONGEST_PAUSE), 0.2);
        near(pauses.next(start, LONGEST_PAUSE), 0.4);
        near(pauses.next(start + Duration::from_secs(30), LONGEST_PAUSE), 0.2);
    }

    #[test]
    fn only_a_403_counts_as_a_missing_right() {
        let status = |code: u16| {
            let status = serde_json::json!({"code": code, "message": "m", "status": "Failure", "reason": "r"});
            serde_json::from_value::<kube::core::Status>(status).expect("status")
        };
        let list = |code| watcher::Error::InitialListFailed(kube::Error::Api(status(code).boxed()));
        assert_eq!(refusal(&list(403)), Some("m"));
        assert_eq!(refusal(&list(404)), None);
        assert_eq!(refusal(&watcher::Error::WatchError(status(403).boxed())), Some("m"));
        assert!(!is_forbidden(&watcher::Error::NoResourceVersion));
    }
}
