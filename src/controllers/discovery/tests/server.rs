//! A server for tests, on loopback: it answers by a function, and keeps what it was asked.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::Value;

use super::ask::Asker;
use crate::net::{Dialler, Policy};

/// A request as the server sees it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    /// The body, null if it is not JSON.
    pub(super) body: Value,
}

impl Seen {
    /// A header, empty if it is not there.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The method of its message, or that of the request itself.
    pub(super) fn what(&self) -> String {
        self.body["method"].as_str().map_or_else(|| self.method.to_string(), str::to_owned)
    }
}

/// An answer: status, headers and body.
pub(super) type Reply = (u16, Vec<(&'static str, String)>, String);

type Answers = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

struct Inner {
    answers: Answers,
    seen: Mutex<Vec<Seen>>,
}

/// The server.
pub(super) struct Server {
    inner: Arc<Inner>,
    /// Its address, with the path `/mcp`.
    pub(super) url: Url,
}

impl Server {
    pub(super) async fn new(answers: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let inner = Arc::new(Inner { answers: Box::new(answers), seen: Mutex::default() });
        let routes = Router::new().fallback(answer).with_state(inner.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let url = Url::parse(&format!("http://127.0.0.1:{port}/mcp")).expect("a URL");
        Self { inner, url }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().clone()
    }

    /// What it was asked, in order.
    pub(super) fn asked(&self) -> Vec<String> {
        self.seen().iter().map(Seen::what).collect()
    }
}

async fn answer(
    State(inner): State<Arc<Inner>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let seen = Seen { method, path: uri.path().to_owned(), headers, body };
    let (status, headers, text) = (inner.answers)(&seen);
    inner.seen.lock().push(seen);
    let mut response = (StatusCode::from_u16(status).expect("a status"), text).into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().expect("a header"));
    }
    response
}

/// An answer in JSON.
pub(super) fn json(status: u16, body: &Value) -> Reply {
    (status, vec![("content-type", "application/json".into())], body.to_string())
}

/// Asks servers on loopback, without a pause.
pub(super) fn asker() -> Asker {
    let policy = Policy { insecure: true, ..Policy::default() };
    Asker::new(Dialler::new(policy), Duration::ZERO)
}
