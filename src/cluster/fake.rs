//! An API server for tests of watches. It lists the objects that it is given, and sends their changes to watches.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tower::service_fn;

#[derive(Default)]
struct State {
    version: u64,
    objects: Vec<Value>,
    watchers: Vec<UnboundedSender<Bytes>>,
    /// Path and query of every request but watches.
    lists: Vec<String>,
    /// The answer to everything but watches.
    reply: Option<Value>,
}

/// The API server. A clone shares it.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

impl Fake {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("lock")
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        let fake = self.clone();
        let service = service_fn(move |request: Request<kube::client::Body>| {
            let answer = fake.answer(request.uri());
            async move { Ok::<_, Infallible>(Response::new(answer)) }
        });
        Client::new(service, "default")
    }

    fn answer(&self, uri: &http::Uri) -> Body {
        let mut state = self.lock();
        if uri.query().is_some_and(|query| query.contains("watch=true")) {
            let (sender, receiver) = unbounded_channel::<Bytes>();
            state.watchers.push(sender);
            let events = futures::stream::unfold(receiver, |mut receiver| async move {
                let event = receiver.recv().await?;
                Some((Ok::<_, Infallible>(event), receiver))
            });
            return Body::from_stream(events);
        }
        state.lists.push(uri.to_string());
        if let Some(reply) = &state.reply {
            return Body::from(reply.to_string());
        }
        let namespace = uri.path().split_once("/namespaces/");
        let namespace = namespace.and_then(|(_, rest)| rest.split('/').next());
        let here = |object: &&Value| namespace.is_none_or(|n| object["metadata"]["namespace"] == n);
        let items: Vec<_> = state.objects.iter().filter(here).collect();
        let version = state.version.to_string();
        let list = json!({"metadata": {"resourceVersion": version}, "items": items});
        Body::from(list.to_string())
    }

    fn show(state: &mut State, what: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": what, "object": object}));
        state.watchers.retain(|watcher| watcher.send(line.clone().into()).is_ok());
    }

    /// Creates or replaces an object.
    pub fn put(&self, mut object: Value) {
        let mut state = self.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let id = |object: &Value| {
            (object["metadata"]["namespace"].clone(), object["metadata"]["name"].clone())
        };
        let old = state.objects.iter().position(|old| id(old) == id(&object));
        let uid = match old.map(|at| state.objects.remove(at)) {
            Some(old) => old["metadata"]["uid"].clone(),
            None => format!("u{}", state.version).into(),
        };
        object["metadata"]["uid"] = uid;
        Self::show(&mut state, "MODIFIED", &object);
        state.objects.push(object);
        state.objects.sort_by_key(|object| {
            let part = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
            (part("namespace"), part("name"))
        });
    }

    /// Deletes an object.
    pub fn delete(&self, namespace: &str, name: &str) {
        let mut state = self.lock();
        state.version += 1;
        let at = state.objects.iter().position(|object| {
            object["metadata"]["namespace"] == namespace && object["metadata"]["name"] == name
        });
        let mut object = state.objects.remove(at.expect("an object"));
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        Self::show(&mut state, "DELETED", &object);
    }

    /// Removes an object without an event to any watch.
    pub fn lose(&self, namespace: &str, name: &str) {
        self.lock().objects.retain(|object| {
            object["metadata"]["namespace"] != namespace || object["metadata"]["name"] != name
        });
    }

    /// Ends all watches with "too old", so that they list anew.
    pub fn expire(&self) {
        let mut state = self.lock();
        let status = json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old", "reason": "Expired"});
        Self::show(&mut state, "ERROR", &status);
    }

    /// Answers all requests but watches with this object from now on.
    pub fn reply(&self, object: Value) {
        self.lock().reply = Some(object);
    }

    /// Path and query of every request so far, but for watches.
    pub fn lists(&self) -> Vec<String> {
        self.lock().lists.clone()
    }
}
