//! Limits how many writes run at the same time, with a share for each namespace.
//!
//! A write waits for the admission webhooks of its namespace, and each webhook may take ten seconds. Meanwhile the write holds
//! one stream of the HTTP/2 connection (by default there are 100) and one of the places for requests that the API server works
//! on. Without shares, a namespace with a slow webhook would take all of them.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use http::{Method, Request, Uri};
use kube::Client;
use kube::client::Body;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::store::Key;
use crate::fair::Fair;

/// Writes that run at the same time. Watches, lists and statuses need streams of the connection, too.
const MAX_CONCURRENT_WRITES: usize = 64;

struct State {
    /// How many writes may run at the same time.
    limit: usize,
    fair: Fair,
    /// The writes that wait, by their number.
    waiting: HashMap<String, oneshot::Sender<()>>,
    count: u64,
}

impl State {
    /// Starts every write that may run now.
    fn start_waiting(&mut self) {
        while let Some(namespace) = self.fair.next(self.limit) {
            let Some(key) = self.fair.take(&namespace) else { return };
            if let Some(waiting) = self.waiting.remove(&key.name) {
                // A caller that no longer waits drops its ticket, which frees the place.
                let _ = waiting.send(());
            }
        }
    }
}

/// A limit of concurrent work with a share for each namespace. It is used for writes, and also for polls, reads and events.
pub struct Writes(Mutex<State>);

/// A place for one write. Dropping it frees the place.
#[must_use]
pub struct Ticket {
    writes: Arc<Writes>,
    key: Key,
    since: Instant,
}

impl Writes {
    /// The limit of writes to the API server.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with(MAX_CONCURRENT_WRITES)
    }

    /// A limit of this many at the same time.
    #[must_use]
    pub fn with(limit: usize) -> Arc<Self> {
        let (fair, waiting) = (Fair::default(), HashMap::new());
        Arc::new(Self(Mutex::new(State { limit, fair, waiting, count: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Waits for a place for a write in this namespace.
    pub async fn slot(self: &Arc<Self>, namespace: &str) -> Ticket {
        let (sender, receiver) = oneshot::channel();
        let since = Instant::now();
        let ticket = {
            let mut state = self.lock();
            state.count += 1;
            // Within a namespace, writes start in the order of their numbers.
            let number = format!("{:020}", state.count);
            let key = Key::new(namespace, &*number);
            state.waiting.insert(number, sender);
            state.fair.insert(key.clone(), since);
            state.start_waiting();
            Ticket { writes: self.clone(), key, since }
        };
        // This ends when the sender is used: it is dropped only together with the ticket.
        let _ = receiver.await;
        ticket
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.writes.lock();
        if state.waiting.remove(&self.key.name).is_some() {
            state.fair.remove(&self.key, self.since);
        } else {
            state.fair.done(&self.key.namespace);
        }
        state.start_waiting();
    }
}

/// The namespace whose share a request takes. Statuses and events are few and small, and people wait for them: they take no
/// share.
fn namespace<'a>(method: &Method, uri: &'a Uri) -> Option<&'a str> {
    if method == Method::GET {
        return None;
    }
    let (_, rest) = uri.path().split_once("/namespaces/")?;
    let (namespace, what) = rest.split_once('/')?;
    let resource = what.split('/').next();
    (!what.ends_with("/status") && resource != Some("events")).then_some(namespace)
}

impl Writes {
    /// A client whose writes wait for a place each, for callers that do not wait by themselves. It uses the connections of
    /// `client`.
    #[must_use]
    pub fn client(self: &Arc<Self>, client: Client) -> Client {
        let writes = self.clone();
        let home = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, writes) = (client.clone(), writes.clone());
            async move {
                let _slot = match namespace(request.method(), request.uri()) {
                    Some(namespace) => Some(writes.slot(namespace).await),
                    None => None,
                };
                inner.send(request).await
            }
        });
        Client::new(service, home)
    }
}

#[cfg(test)]
#[path = "tests/writes.rs"]
mod tests;
