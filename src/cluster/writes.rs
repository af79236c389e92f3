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
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::Response;

    use super::*;

    #[test]
    fn c15_writes_of_objects_take_a_share_of_their_namespace() {
        let of = |method: Method, path: &'static str| {
            namespace(&method, &Uri::from_static(path)).map(str::to_owned)
        };
        let object = "/apis/convoke.dev/v1alpha1/namespaces/team/agents/a?force=true";
        assert_eq!(of(Method::PATCH, object).as_deref(), Some("team"));
        assert_eq!(of(Method::DELETE, "/api/v1/namespaces/a/configmaps/c").as_deref(), Some("a"));
        assert_eq!(of(Method::GET, object), None);
        for path in [
            "/apis/convoke.dev/v1alpha1/namespaces/team/agents/a/status?x=y",
            "/apis/events.k8s.io/v1/namespaces/team/events",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "/api/v1/namespaces/team",
        ] {
            assert_eq!(of(Method::POST, path), None, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn c15_writes_that_hang_leave_room_for_those_of_other_namespaces() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path().contains("/hangs") {
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let client = Writes::new().client(Client::new(service, "default"));
        let write = |namespace: &str| {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/c");
            let request = Request::patch(path).body(Body::empty()).expect("a request");
            let client = client.clone();
            async move { client.send(request).await.map(drop) }
        };
        let began = Instant::now();
        let mut hanging = tokio::task::JoinSet::new();
        for number in 0..400 {
            hanging.spawn(write(&format!("hangs{}", number % 2)));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for _ in 0..100 {
            write("calm").await.expect("written");
        }
        assert_eq!(began.elapsed(), Duration::from_secs(1), "at once");
        // Who gives up takes no place.
        hanging.abort_all();
        while hanging.join_next().await.is_some() {}
        let mut calm: tokio::task::JoinSet<_> = (0..400).map(|_| write("calm")).collect();
        while let Some(written) = calm.join_next().await {
            written.expect("it ends").expect("written");
        }
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
