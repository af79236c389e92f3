//! How many writes are on their way to the API server at once, with a share for each namespace.
//!
//! A write waits for the admission webhooks of its namespace, and there one may take ten seconds for each. Meanwhile it
//! holds a stream of the one connection (100 of them, unless the API server is told otherwise) and a seat among the
//! requests that the API server works on at once. Without shares a namespace with a slow webhook takes all of them.

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

/// Writes on their way at once. Watches, lists and statuses need streams, too.
const SLOTS: usize = 64;

struct State {
    /// How many may be on their way at once.
    slots: usize,
    fair: Fair,
    /// Who waits, by number.
    waiting: HashMap<String, oneshot::Sender<()>>,
    count: u64,
}

impl State {
    /// Lets go whoever may.
    fn serve(&mut self) {
        while let Some(namespace) = self.fair.next(self.slots) {
            let Some(key) = self.fair.take(&namespace) else { return };
            if let Some(waiting) = self.waiting.remove(&key.name) {
                // Who does not listen any more drops its ticket.
                let _ = waiting.send(());
            }
        }
    }
}

/// See the module. The same shares serve whatever else many namespaces want at once.
pub struct Writes(Mutex<State>);

/// Leave for one write, until it is dropped.
#[must_use]
pub struct Ticket {
    writes: Arc<Writes>,
    key: Key,
    since: Instant,
}

impl Writes {
    /// Nothing is on its way.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with(SLOTS)
    }

    /// The same with so many slots.
    #[must_use]
    pub fn with(slots: usize) -> Arc<Self> {
        let (fair, waiting) = (Fair::default(), HashMap::new());
        Arc::new(Self(Mutex::new(State { slots, fair, waiting, count: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Waits for a slot. Dropping the ticket gives it back.
    pub async fn slot(self: &Arc<Self>, namespace: &str) -> Ticket {
        let (sender, receiver) = oneshot::channel();
        let since = Instant::now();
        let ticket = {
            let mut state = self.lock();
            state.count += 1;
            // In the order in which they came.
            let number = format!("{:020}", state.count);
            let key = Key::new(namespace, &*number);
            state.waiting.insert(number, sender);
            state.fair.insert(key.clone(), since);
            state.serve();
            Ticket { writes: self.clone(), key, since }
        };
        // A sender is dropped only with the ticket.
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
        state.serve();
    }
}

/// The namespace whose share a request takes. Statuses and events are small, few, and tell what goes on: they take none.
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
    /// A client whose writes wait for a slot each, over the connections of `client`. For those who do not wait by themselves.
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
