//! A registry and a token service that answer as the protocols say, and note what they are asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;

/// A request, as far as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// `PUT /v2/…`, with the query.
    pub line: String,
    pub authorization: String,
    pub body: Vec<u8>,
    /// Whether all of the body came.
    pub whole: bool,
}

/// What is answered: a status, headers, a body. `None`: as a registry without credentials does.
type Rule = Box<dyn Fn(&Asked, usize) -> Option<Answer> + Send + Sync>;
pub type Answer = (u16, Vec<(&'static str, String)>, String);

struct Inner {
    asked: Mutex<Vec<Asked>>,
    rule: Rule,
}

/// The server. Ends when dropped.
pub struct StandIn {
    inner: Arc<Inner>,
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl StandIn {
    /// The rule sees the request, and how many of the same line came before it.
    pub async fn start(
        rule: impl Fn(&Asked, usize) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let inner = Arc::new(Inner { asked: Mutex::default(), rule: Box::new(rule) });
        let app = Router::new().fallback(answer).with_state(inner.clone());
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("a server");
        });
        Self { inner, address, task }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.asked.lock().expect("the list").clone()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri());
    let authorization = request.headers().get("authorization");
    let authorization =
        authorization.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    // Noted at once: a connection that breaks off ends this.
    let mut asked = Asked { line, authorization, whole: false, body: Vec::new() };
    let (before, at) = {
        let mut all = inner.asked.lock().expect("the list");
        let before = all.iter().filter(|one| one.line == asked.line).count();
        all.push(asked.clone());
        (before, all.len() - 1)
    };
    let body = axum::body::to_bytes(request.into_body(), 1 << 26).await;
    asked.whole = body.is_ok();
    asked.body = body.unwrap_or_default().to_vec();
    inner.asked.lock().expect("the list")[at] = asked.clone();
    let (status, headers, body) = (inner.rule)(&asked, before).unwrap_or_else(|| by_itself(&asked));
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(Body::from(body)).expect("an answer")
}

/// What a registry answers that has nothing and takes everything.
fn by_itself(asked: &Asked) -> Answer {
    let (method, path) = asked.line.split_once(' ').expect("a line");
    match method {
        "HEAD" => (404, Vec::new(), String::new()),
        "POST" => (202, vec![("location", format!("{path}upload?state=1"))], String::new()),
        "PUT" => (201, Vec::new(), String::new()),
        _ => (405, Vec::new(), String::new()),
    }
}
