//! Lists and watches one kind, and keeps its store up to date. Each kind has a backoff of its own, so a kind that cannot be
//! watched never slows down another.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, Resource};
use tokio::time::Instant;

use super::client::{CallError, jitter};
use super::read::{Event, MAX_PAGE_OBJECTS, Source, WATCH_SECONDS};
use super::store::{Entry, Key, Store};
pub use convoke_core::cluster::view::{View, entry, entry_of, identity};

/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two tries. A CRD that is just being installed answers 404 for a moment, so a longer pause would be
/// felt.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// After a watch has worked for this long, the next failure counts as the first one.
const QUIET_TIME: Duration = Duration::from_secs(10);
/// A watch that the server ends sooner than this counts as failed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// A watch that ends sooner than this was cut off. The server may have been replaced or restored meanwhile.
const WHOLE_WATCH: Duration = Duration::from_secs(WATCH_SECONDS as u64 - 10);
/// The pause before a list that ran beside own writes is repeated.
const PAUSE_BEFORE_RELIST: Duration = Duration::from_secs(1);

/// Whether one resource version is older than another one of the same kind.
fn is_before(one: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    number(one).zip(number(other)).is_some_and(|(one, other)| one < other)
}

/// The pauses between tries: each failure in a row doubles the pause, ±10%.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    /// The pause after a failure at `now`. After a quiet time this failure counts as the first one. A complete list is no reason
    /// to start again, because each list may succeed while no watch ever starts.
    fn next(&mut self, now: Instant, max: Duration) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > 2 * max + QUIET_TIME)
        {
            self.reset();
        }
        self.last = Some(now);
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(max);
        self.failures = self.failures.saturating_add(1);
        jitter(pause)
    }

    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Lists and watches a kind, for ever, and keeps its store up to date. `labels` selects the objects; our own kinds use none.
pub async fn run<V: View>(api: Api<V::Object>, store: Arc<Store<V>>, labels: Option<&str>) {
    let options = WatchOptions { labels, ..WatchOptions::default() };
    let read = |text: &str| V::read(text).map(|(key, entry)| (key, Some(entry)));
    run_some(api, store, options, read, |_| {}).await;
}

/// How a kind is listed and watched.
#[derive(Debug, Clone, Copy)]
pub struct WatchOptions<'a> {
    /// Selects the objects.
    pub labels: Option<&'a str>,
    /// The longest pause between two tries while the right is missing (HTTP 403). Each of these tries lists anew.
    pub max_pause_while_forbidden: Duration,
    /// Objects of the first page of a list. Few for kinds whose objects may be large.
    pub first_page_objects: u32,
}

impl Default for WatchOptions<'_> {
    fn default() -> Self {
        Self {
            labels: None,
            max_pause_while_forbidden: MAX_PAUSE,
            first_page_objects: MAX_PAGE_OBJECTS,
        }
    }
}

/// What happens to a watch while it runs.
pub enum WatchNews<'a> {
    /// A list begins: the objects that are read from now on belong to it.
    ListBegins,
    /// A list is complete: the store holds all objects.
    ListComplete,
    /// An object was deleted, whether it was kept or not.
    Deleted(&'a Key),
    /// A list or a watch has failed. It is tried again.
    Failed(&'a CallError),
}

/// Lists and watches a kind of which only some objects are kept: those for which `read` gives an entry. `news` is called when
/// something happens to the watch.
pub async fn run_some<K: Resource, V>(
    api: Api<K>,
    store: Arc<Store<V>>,
    options: WatchOptions<'_>,
    read: impl Fn(&str) -> serde_json::Result<(Key, Option<Entry<V>>)>,
    news: impl Fn(WatchNews<'_>),
) {
    let url = api.resource_url().to_owned();
    let WatchOptions { labels, max_pause_while_forbidden, first_page_objects } = options;
    let source = Source::new(api.into_client(), &url, labels, first_page_objects);
    let pauses = Pauses::default();
    Reflector { source, store, max_pause_while_forbidden, read, news, pauses }.run().await;
}

/// The list and the watch of one kind.
struct Reflector<V, R, N> {
    source: Source,
    store: Arc<Store<V>>,
    max_pause_while_forbidden: Duration,
    read: R,
    news: N,
    pauses: Pauses,
}

/// What follows the end of a watch.
#[derive(PartialEq, Eq)]
enum AfterWatch {
    /// Another watch from the same version.
    WatchAgain,
    /// A new list.
    ListAnew,
}

/// How a watch ended.
struct Watched {
    result: Result<(), CallError>,
    /// Whether it has shown any change.
    has_shown: bool,
    /// How long it ran.
    lasted: Duration,
}

impl<V, R, N> Reflector<V, R, N>
where
    R: Fn(&str) -> serde_json::Result<(Key, Option<Entry<V>>)>,
    N: Fn(WatchNews<'_>),
{
    async fn run(mut self) {
        loop {
            if let Some(version) = self.list().await {
                self.follow(version).await;
            }
        }
    }

    /// Reports a failure, and waits until the next try.
    async fn pause_after(&mut self, error: &CallError) {
        (self.news)(WatchNews::Failed(error));
        let store = &self.store;
        store.health.failed(&error.words(), Instant::now().into(), Timestamp::now());
        let is_forbidden = error.is_forbidden();
        let max = if is_forbidden { self.max_pause_while_forbidden } else { MAX_PAUSE };
        let pause = self.pauses.next(Instant::now(), max);
        // A right may be missing for long, and a condition reports it.
        if is_forbidden && self.pauses.failures > 1 {
            tracing::debug!(kind = store.kind, %error, retry_in = ?pause, "still not allowed");
        } else {
            tracing::warn!(kind = store.kind, %error, retry_in = ?pause, "watch failed, trying again");
        }
        tokio::time::sleep(pause).await;
    }

    /// Notes in the store's health why it is out of date, and waits until the next try.
    async fn pause_because(&mut self, why: &str) {
        self.store.health.failed(why, Instant::now().into(), Timestamp::now());
        tokio::time::sleep(self.pauses.next(Instant::now(), MAX_PAUSE)).await;
    }

    /// Reads all objects into the store. Returns the version to watch from; `None` when another list is needed.
    async fn list(&mut self) -> Option<String> {
        self.store.list_begins();
        (self.news)(WatchNews::ListBegins);
        let listed = self.source.list(|text| {
            if let (key, Some(entry)) = (self.read)(text)? {
                self.store.listed(key, entry);
            }
            Ok(())
        });
        let version = match listed.await {
            Ok(version) => version,
            Err(error) => {
                self.pause_after(&error).await;
                return None;
            }
        };
        tracing::debug!(kind = self.store.kind, "list complete");
        let is_certain = self.store.list_done();
        self.store.health.works();
        if !is_certain {
            // The list ran beside own writes, so it may be older than they are. The pause lets them end.
            tokio::time::sleep(PAUSE_BEFORE_RELIST).await;
            return None;
        }
        (self.news)(WatchNews::ListComplete);
        Some(version)
    }

    /// Watches from this version until another list is needed.
    async fn follow(&mut self, mut version: String) {
        let mut was_cut_off = false;
        loop {
            if was_cut_off {
                match self.source.version().await {
                    Ok(now) if is_before(&now, &version) => {
                        // The server was restored from a backup. A watch from a version of its future would show nothing.
                        tracing::warn!(
                            kind = self.store.kind,
                            now,
                            version,
                            "the API server has gone back, listing anew"
                        );
                        return;
                    }
                    Ok(_) => {}
                    Err(error) => {
                        self.pause_after(&error).await;
                        if error.is_forbidden() {
                            return;
                        }
                        continue;
                    }
                }
            }
            let watched = self.watch(&mut version).await;
            was_cut_off = watched.lasted < WHOLE_WATCH;
            if self.end_watch(watched).await == AfterWatch::ListAnew {
                return;
            }
        }
    }

    /// Watches once, from this version on, and moves the version with each event.
    async fn watch(&self, version: &mut String) -> Watched {
        let Self { source, store, read, news, .. } = self;
        let (began, mut has_shown) = (Instant::now(), false);
        let has_begun = AtomicBool::new(false);
        let result = {
            let mut watch = pin!(source.watch(version, |event| {
                match event {
                    Event::Begun => {
                        has_begun.store(true, Ordering::Relaxed);
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
                        news(WatchNews::Deleted(&key));
                    }
                }
                if !std::mem::replace(&mut has_shown, true) {
                    store.health.works();
                }
                Ok(())
            }));
            // A watch that shows nothing counts as working once it has been open for a whole quiet time.
            let mut was_open = false;
            loop {
                match tokio::time::timeout(QUIET_TIME, &mut watch).await {
                    Ok(result) => break result,
                    Err(_) if was_open => {
                        store.health.works();
                        break watch.await;
                    }
                    Err(_) => was_open = has_begun.load(Ordering::Relaxed),
                }
            }
        };
        Watched { result, has_shown, lasted: began.elapsed() }
    }

    /// Decides what follows a watch, and waits before that where it has failed.
    async fn end_watch(&mut self, watched: Watched) -> AfterWatch {
        let Watched { result, has_shown, lasted } = watched;
        if has_shown {
            self.pauses.reset();
        }
        let wants_list = result.is_ok() && self.store.wants_list();
        match result {
            Ok(()) if wants_list && lasted >= SHORTEST_WATCH => AfterWatch::ListAnew,
            Ok(()) if has_shown || lasted >= SHORTEST_WATCH => AfterWatch::WatchAgain,
            Ok(()) => {
                self.pause_because("each watch ends at once").await;
                AfterWatch::WatchAgain
            }
            Err(error) if error.is_expired() => {
                tracing::debug!(kind = self.store.kind, %error, "the watch fell behind");
                self.pause_because("the watch fell behind").await;
                AfterWatch::ListAnew
            }
            Err(error) => {
                self.pause_after(&error).await;
                // After a missing right, only a list shows that the right is there again.
                if error.is_forbidden() { AfterWatch::ListAnew } else { AfterWatch::WatchAgain }
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/reflector.rs"]
mod tests;
