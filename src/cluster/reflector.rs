//! One watch a kind, with its own backoff: a kind that cannot be watched never slows down another.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Resource};
use tokio::time::Instant;

use super::client::{CallError, jitter};
use super::read::{Event, PAGE, Source, WATCH_SECONDS};
use super::store::{Entry, Key, Store};
pub use convoke_core::cluster::view::{View, entry, entry_of, identity};

/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause between two tries. Kinds appear while the operator runs (a CRD that is just being served answers 404
/// for a moment), so half a minute would be felt.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A watch that worked this long starts with the first pause again.
const QUIET: Duration = Duration::from_secs(10);
/// A watch that the server ends sooner than that counts as failed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// A watch that ends sooner than that was cut off: perhaps the server is another one now.
const WHOLE_WATCH: Duration = Duration::from_secs(WATCH_SECONDS as u64 - 10);

/// Whether one version is older than the other; both are those of one kind.
fn is_before(one: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    number(one).zip(number(other)).is_some_and(|(one, other)| one < other)
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

/// Watches a kind into its store, for ever. `labels` restricts what is watched; our own kinds use none.
pub async fn run<V: View>(api: Api<V::Object>, store: Arc<Store<V>>, labels: Option<&str>) {
    run_with(api, store, Manner { labels, ..Manner::default() }, V::read, |_| {}).await;
}

/// How a kind is listed and watched.
#[derive(Debug, Clone, Copy)]
pub struct Manner<'a> {
    /// Restricts what is watched.
    pub labels: Option<&'a str>,
    /// Longest pause between two tries while the right is missing (403); each of them lists anew.
    pub forbidden: Duration,
    /// Objects of the first page of a list; few for kinds whose objects may be large.
    pub page: u32,
}

impl Default for Manner<'_> {
    fn default() -> Self {
        Self { labels: None, forbidden: LONGEST_PAUSE, page: PAGE }
    }
}

/// What a watch tells while it runs.
pub enum Heard<'a> {
    /// A list begins: what is read now is of it.
    Lists,
    /// A list is complete: the store holds all there is.
    Listed,
    /// The watch has shown the end of an object, whether it was kept or not.
    Ended(&'a Key),
    /// It does not work, and is tried again.
    Failed(&'a CallError),
}

/// The same for what is read by `read` instead of a [`View`].
pub async fn run_with<K: Resource, V>(
    api: Api<K>,
    store: Arc<Store<V>>,
    manner: Manner<'_>,
    read: impl Fn(&str) -> serde_json::Result<(Key, Entry<V>)>,
    heard: impl Fn(Heard<'_>),
) {
    let read = |text: &str| read(text).map(|(key, entry)| (key, Some(entry)));
    run_some(api, store, manner, read, heard).await;
}

/// The same for objects of which only some are kept: those for which `read` gives an entry.
pub async fn run_some<K: Resource, V>(
    api: Api<K>,
    store: Arc<Store<V>>,
    manner: Manner<'_>,
    read: impl Fn(&str) -> serde_json::Result<(Key, Option<Entry<V>>)>,
    heard: impl Fn(Heard<'_>),
) {
    let url = api.resource_url().to_owned();
    let Manner { labels, forbidden, page } = manner;
    let source = Source::new(api.into_client(), &url, labels, page);
    let mut pauses = Pauses::default();
    let failed = async |error: &CallError, pauses: &mut Pauses| {
        heard(Heard::Failed(error));
        store.health.failed(&error.words(), Instant::now().into(), Timestamp::now());
        let refused = error.is_forbidden();
        let most = if refused { forbidden } else { LONGEST_PAUSE };
        let pause = pauses.next(Instant::now(), most);
        // A right may be missing for long, and somebody is told of it elsewhere.
        if refused && pauses.failures > 1 {
            tracing::debug!(kind = store.kind, %error, retry_in = ?pause, "still not allowed");
        } else {
            tracing::warn!(kind = store.kind, %error, retry_in = ?pause, "watch failed, trying again");
        }
        tokio::time::sleep(pause).await;
    };
    loop {
        store.list_begins();
        heard(Heard::Lists);
        let listed = source.list(|text| {
            if let (key, Some(entry)) = read(text)? {
                store.listed(key, entry);
            }
            Ok(())
        });
        let mut version = match listed.await {
            Ok(version) => version,
            Err(error) => {
                failed(&error, &mut pauses).await;
                continue;
            }
        };
        tracing::debug!(kind = store.kind, "list complete");
        let certain = store.list_done();
        store.health.works();
        if !certain {
            // It ran beside own writes: list again soon, with a pause so that it ends.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        heard(Heard::Listed);
        let mut cut = false;
        loop {
            if cut {
                match source.version().await {
                    Ok(now) if is_before(&now, &version) => {
                        // Restored from a backup: a watch from a version of the future would hear nothing.
                        tracing::warn!(
                            kind = store.kind,
                            now,
                            version,
                            "the API server has gone back, listing anew"
                        );
                        break;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        failed(&error, &mut pauses).await;
                        if error.is_forbidden() {
                            break;
                        }
                        continue;
                    }
                }
            }
            let (began, mut shown) = (Instant::now(), false);
            let begun = AtomicBool::new(false);
            let ended = {
                let mut watched = pin!(source.watch(&mut version, |event| {
                    match event {
                        Event::Begun => {
                            begun.store(true, Ordering::Relaxed);
                            return Ok(());
                        }
                        Event::Applied(text) => match read(text)? {
                            (key, Some(entry)) => store.applied(key, entry),
                            (key, None) => store.left(&key),
                        },
                        Event::Deleted(object) => {
                            let meta = object.metadata;
                            let key = Key::new(meta.namespace, meta.name);
                            store.removed(&key, &meta.uid);
                            heard(Heard::Ended(&key));
                        }
                    }
                    if !std::mem::replace(&mut shown, true) {
                        store.health.works();
                    }
                    Ok(())
                }));
                let mut goes_on = false;
                loop {
                    match tokio::time::timeout(QUIET, &mut watched).await {
                        Ok(ended) => break ended,
                        Err(_) if goes_on => {
                            store.health.works();
                            break watched.await;
                        }
                        Err(_) => goes_on = begun.load(Ordering::Relaxed),
                    }
                }
            };
            cut = began.elapsed() < WHOLE_WATCH;
            if shown {
                pauses.reset();
            }
            let anew = ended.is_ok() && store.wants_list();
            match ended {
                Ok(()) if anew && began.elapsed() >= SHORTEST_WATCH => break,
                Ok(()) if shown || began.elapsed() >= SHORTEST_WATCH => {}
                Ok(()) => {
                    store.health.failed(
                        "each watch ends at once",
                        Instant::now().into(),
                        Timestamp::now(),
                    );
                    tokio::time::sleep(pauses.next(Instant::now(), LONGEST_PAUSE)).await;
                }
                Err(error) if error.is_expired() => {
                    tracing::debug!(kind = store.kind, %error, "the watch fell behind");
                    store.health.failed(
                        "the watch fell behind",
                        Instant::now().into(),
                        Timestamp::now(),
                    );
                    tokio::time::sleep(pauses.next(Instant::now(), LONGEST_PAUSE)).await;
                    break;
                }
                Err(error) => {
                    failed(&error, &mut pauses).await;
                    // A list says when the right is there; the watch alone would be silent.
                    if error.is_forbidden() {
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/reflector.rs"]
mod tests;
