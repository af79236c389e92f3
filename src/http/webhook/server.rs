//! Connections of forges, with their limits and deadlines, and the answers.
//!
//! hyper is used directly, because `axum::serve` has no deadline for headers and no limit of connections.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::body::{self, Memory};
use super::hooks::{Hooks, Outcome};

/// Open connections.
const MOST_CONNECTIONS: usize = 256;
/// How long the headers of a request may take, and how long a connection stays open between two requests.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of the headers of a request; hyper's own buffer.
const MOST_HEADER_BYTES: usize = 16 * 1024;
/// Headers of a request. Forges send about twenty.
const MOST_HEADERS: usize = 64;
/// How long a connection may be used. It ends after the request that is under way.
const MOST_CONNECTION_TIME: Duration = Duration::from_secs(300);
/// How long after that, whatever happens.
const LAST_REQUEST_TIME: Duration = Duration::from_secs(15);
/// How long nothing is accepted after an accept has failed, because no file descriptor was left for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// One open connection.
struct Open {
    task: AbortHandle,
    /// Whether a request is under way whose headers are there.
    busy: Arc<AtomicBool>,
}

/// The open connections, oldest first. When there are too many, one that sends nothing gives way: so connections that do nothing keep
/// nobody out.
#[derive(Default)]
struct Connections(Mutex<BTreeMap<u64, Open>>);

impl Connections {
    /// Makes room for another connection.
    fn make_room(&self) {
        let mut all = self.0.lock();
        while all.len() >= MOST_CONNECTIONS {
            let idle = all.iter().find(|(_, open)| !open.busy.load(Ordering::Relaxed));
            let Some((&number, _)) = idle.or_else(|| all.iter().next()) else { return };
            if let Some(open) = all.remove(&number) {
                open.task.abort();
            }
        }
    }

    fn ended(&self, number: u64) {
        self.0.lock().remove(&number);
    }
}

/// Removes a connection when its task ends, however it ends.
struct EndOnDrop(Arc<Connections>, u64);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

/// Serves webhooks until the process ends.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: SocketAddr, hooks: Arc<Hooks>) -> std::io::Result<()> {
    serve_on(TcpListener::bind(address).await?, hooks).await;
    Ok(())
}

async fn serve_on(listener: TcpListener, hooks: Arc<Hooks>) {
    let (connections, memory) = (Arc::new(Connections::default()), Memory::default());
    let mut number = 0_u64;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for webhooks");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Answers are short: none waits for more of it.
        let _ = stream.set_nodelay(true);
        connections.make_room();
        number += 1;
        let busy = Arc::new(AtomicBool::new(false));
        let work = connection(stream, hooks.clone(), memory.clone(), busy.clone());
        // The task waits for the lock, so it cannot end before it is among the connections.
        let mut all = connections.0.lock();
        let end = EndOnDrop(connections.clone(), number);
        let task = tokio::spawn(async move {
            let _end = end;
            work.await;
        });
        all.insert(number, Open { task: task.abort_handle(), busy });
    }
}

/// Serves one connection to its end.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    hooks: Arc<Hooks>,
    memory: Memory,
    busy: Arc<AtomicBool>,
) {
    let service = service_fn(move |request| {
        let (hooks, memory, busy) = (hooks.clone(), memory.clone(), busy.clone());
        async move {
            busy.store(true, Ordering::Relaxed);
            let outcome = answer(&hooks, &memory, request).await;
            busy.store(false, Ordering::Relaxed);
            Ok::<_, Infallible>(response(outcome))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(MOST_HEADER_BYTES)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A client that breaks off is no news.
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(MOST_CONNECTION_TIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LAST_REQUEST_TIME, connection).await;
}

/// What becomes of a request. Nothing but its body is waited for.
async fn answer(hooks: &Hooks, memory: &Memory, request: Request<Incoming>) -> Outcome {
    let (parts, incoming) = request.into_parts();
    let path = parts.uri.path();
    let outcome = if parts.method == Method::POST {
        match body::read(incoming, memory).await {
            Ok(body) => hooks.receive(path, &parts.headers, &body.bytes),
            Err(outcome) => outcome,
        }
    } else {
        Outcome::NotPost
    };
    hooks.count(path, outcome);
    outcome
}

fn response(outcome: Outcome) -> Response<Full<Bytes>> {
    let (status, text) = outcome.answer();
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match outcome {
        Outcome::NotPost => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        // The rest of the body is not read.
        Outcome::TooLarge | Outcome::TooSlow | Outcome::Busy => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    response
}

#[cfg(test)]
#[path = "tests/server.rs"]
mod tests;
