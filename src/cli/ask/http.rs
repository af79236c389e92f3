//! One HTTP/1.1 request over a stream of its own. There is no socket that somebody else could use.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::super::{CLUSTER, Failure};

/// How long the reason of a stream that broke is waited for.
const REASON_WAIT: Duration = Duration::from_millis(500);

/// A stream to an agent.
pub(super) struct Dialled<Io> {
    pub(super) io: Io,
    /// Why the stream cannot be used, if it cannot.
    pub(super) refusal: BoxFuture<'static, Option<String>>,
}

/// Opens streams to an agent.
pub(super) trait Dial {
    /// What bytes are read from and written to.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Opens another stream.
    fn dial(&self) -> impl Future<Output = Result<Dialled<Self::Io>, Failure>>;
}

/// The beginning of an answer, and the connection that the rest comes from. Dropping it closes the connection.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// The media type, in lower case, without parameters.
    pub(super) content_type: String,
    body: Incoming,
    refusal: Option<BoxFuture<'static, Option<String>>>,
    _sender: SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

/// A request with these headers, and with a body if there is one.
fn build(
    path: &str,
    headers: &[(&'static str, &str)],
    body: Option<Bytes>,
) -> Result<Request<Full<Bytes>>, Failure> {
    // Servers want to know a host, and none is right here.
    let mut request = Request::builder().uri(path).header(header::HOST, "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = match body {
        Some(body) => request
            .method("POST")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body)),
        None => request.method("GET").body(Full::default()),
    };
    request
        .map_err(|error| Failure::new(CLUSTER, format!("cannot ask the agent at {path}: {error}")))
}

/// Sends a request over a new stream, and gives the beginning of the answer.
pub(super) async fn ask<D: Dial>(
    dial: &D,
    path: &str,
    headers: &[(&'static str, &str)],
    body: Option<Bytes>,
) -> Result<Reply, Failure> {
    let request = build(path, headers, body)?;
    let Dialled { io, refusal } = dial.dial().await?;
    let (mut sender, connection) = match http1::handshake(TokioIo::new(io)).await {
        Ok(both) => both,
        Err(error) => return Err(broken(Some(refusal), &error).await),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // Whoever waits for the answer gets the error.
        let _ = connection.await;
    });
    let response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) => return Err(broken(Some(refusal), &error).await),
    };
    let (parts, body) = response.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let content_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    Ok(Reply {
        status: parts.status,
        content_type: content_type.trim().to_ascii_lowercase(),
        body,
        refusal: Some(refusal),
        _sender: sender,
        _connection: tasks,
    })
}

/// The failure of a stream that broke.
async fn broken(
    refusal: Option<BoxFuture<'static, Option<String>>>,
    error: &hyper::Error,
) -> Failure {
    let reason = match refusal {
        Some(refusal) => tokio::time::timeout(REASON_WAIT, refusal).await.ok().flatten(),
        None => None,
    };
    let reason = reason.unwrap_or_else(|| error.to_string());
    Failure::new(CLUSTER, format!("the connection to the agent broke: {}", reason.trim()))
        .hint("did its pod end? kubectl get pods")
}

impl Reply {
    /// The next bytes of the body; `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(broken(self.refusal.take(), &error).await),
            }
        }
    }

    /// All of the body, if it is not longer than `most` bytes.
    pub(super) async fn whole(&mut self, most: usize) -> Result<Vec<u8>, Failure> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if all.len() + bytes.len() > most {
                let message = format!("the agent sent more than {} MiB", most >> 20);
                return Err(Failure::new(CLUSTER, message));
            }
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}
