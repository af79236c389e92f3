//! One watch a kind, with its own backoff: a kind that cannot be watched never slows down another.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::store::{Entry, Key, Store};

/// Load balancers drop quiet connections at 240 s; a watch ends before that by itself.
const WATCH_SECONDS: u32 = 200;

/// What a store keeps of an object of type `K`.
pub trait View: Send + Sync + 'static {
    /// The API type that is watched.
    type Object: Resource + Clone + Debug + DeserializeOwned + Send + 'static;
    /// Takes what is worth keeping.
    fn of(object: Self::Object) -> Self;
}

/// Turns an object into a store entry.
pub fn entry<V: View>(object: V::Object) -> (Key, Entry<V>) {
    let meta = object.meta();
    let key = Key::of(meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
    (key, Entry { uid, version, value: V::of(object) })
}

/// Watches a kind into its store, for ever. `labels` restricts what is watched; our own kinds use none.
pub async fn run<V: View>(api: Api<V::Object>, store: Arc<Store<V>>, labels: Option<&str>) {
    loop {
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
        if let Some(labels) = labels {
            config = config.labels(labels);
        }
        let mut events = watcher(api.clone(), config).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => store.list_begins(),
                Ok(Event::InitApply(object)) => {
                    let (key, entry) = entry::<V>(object);
                    store.listed(key, entry);
                }
                Ok(Event::InitDone) => {
                    tracing::debug!(kind = store.kind, "list complete");
                    if !store.list_done() {
                        break;
                    }
                }
                Ok(Event::Apply(object)) => {
                    let (key, entry) = entry::<V>(object);
                    store.applied(key, entry);
                }
                Ok(Event::Delete(object)) => {
                    let key = Key::of(object.meta());
                    store.removed(&key, object.meta().uid.as_deref().unwrap_or_default());
                }
                Err(error) => {
                    tracing::warn!(kind = store.kind, %error, "watch failed, trying again");
                }
            }
        }
        // Only after a list that ran beside own writes: list again soon, with a pause so that it ends.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
