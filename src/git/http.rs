//! The HTTP side of Git: one client per remote, kept between polls, and a [`Session`] per attempt.
//!
//! gix drives the protocol from a blocking thread; every wait on the network goes through [`Session::wait`], which ends
//! at the deadline and when the attempt is given up, so that no thread hangs on a silent server. Answers have a budget
//! in bytes. Nothing is retried, no redirect is followed, no proxy or netrc is read from the environment.

use std::future::Future;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Request, Response, StatusCode, Url};
use tokio::sync::watch;
use tokio::time::Instant;

use super::GitError;
use super::address::{self, Verdict};
use super::error::printable;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);
/// What we ask with is small: wants, haves and prefixes.
const QUESTION_BYTES: usize = 1024 * 1024;

/// Builds the client of one remote. `roots` (PEM) are trusted beside those of the system.
pub(super) fn client(
    allow_insecure: bool,
    roots: Option<&[u8]>,
) -> Result<reqwest::Client, GitError> {
    let roots = reqwest::Certificate::from_pem_bundle(roots.unwrap_or_default())
        .map_err(|error| GitError::ConnectionFailed { detail: describe(&error) })?;
    reqwest::Client::builder()
        .tls_certs_merge(roots)
        .user_agent(concat!("git/convoke-", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .https_only(!allow_insecure)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(1)
        .dns_resolver(Arc::new(Resolver { allow_insecure }))
        .build()
        .map_err(|error| GitError::ConnectionFailed { detail: describe(&error) })
}

/// Checks addresses where they are used, so that a name can't change its meaning between check and connect.
struct Resolver {
    allow_insecure: bool,
}

/// All addresses of a host are refused.
#[derive(Debug, thiserror::Error)]
#[error("{host}: {why}")]
struct Refused {
    host: String,
    why: String,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_insecure = self.allow_insecure;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let mut why = None;
            let allowed: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0))
                .await?
                .filter(|addr| match address::verdict(addr.ip()) {
                    Verdict::Allowed => true,
                    Verdict::Loopback => {
                        why = Some("loopback");
                        allow_insecure
                    }
                    Verdict::Refused(kind) => {
                        why = Some(kind);
                        false
                    }
                })
                .collect();
            if allowed.is_empty() {
                let why = why.unwrap_or("it has none").to_owned();
                return Err(Refused { host, why }.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// How one attempt is bounded and stopped. Cheap to clone.
#[derive(Clone)]
pub(super) struct Bounds {
    /// When the attempt ends.
    pub deadline: Instant,
    /// How long the attempt had in all, for messages.
    pub timeout: Duration,
    /// Turns true (or closes) when the attempt is given up.
    pub stop: watch::Receiver<bool>,
    /// What is being done, for messages.
    pub what: &'static str,
}

impl Bounds {
    /// The error for an attempt whose time is over.
    pub fn timed_out(&self) -> GitError {
        GitError::Timeout { what: self.what, after: self.timeout }
    }
}

/// One attempt's conversation with the server.
#[derive(Clone)]
pub(super) struct Session {
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
    bounds: Bounds,
    /// Bytes that one answer may have, and the error beyond.
    answer_bytes: u64,
    too_large: GitError,
    /// The first thing that went wrong here: gix's errors keep less of it.
    fault: Arc<Mutex<Option<GitError>>>,
}

impl Session {
    /// Must be made on a thread of the runtime (a blocking one is fine).
    pub fn new(
        client: reqwest::Client,
        bounds: Bounds,
        answer_bytes: u64,
        too_large: GitError,
    ) -> Self {
        let runtime = tokio::runtime::Handle::current();
        Self { client, runtime, bounds, answer_bytes, too_large, fault: Arc::default() }
    }

    /// What went wrong in the conversation, if anything.
    pub fn fault(&self) -> Option<GitError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, error: GitError) -> io::Error {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = fault.get_or_insert(error).clone();
        io::Error::other(shown)
    }

    /// Waits for the network, until the deadline or until the attempt is given up.
    fn wait<T>(&self, work: impl Future<Output = Result<T, reqwest::Error>>) -> io::Result<T> {
        let mut stop = self.bounds.stop.clone();
        let deadline = self.bounds.deadline;
        let done = self.runtime.block_on(async move {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stopped| *stopped) => None,
                done = tokio::time::timeout_at(deadline, work) => done.ok(),
            }
        });
        match done {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(self.fail(classify(&error))),
            None => Err(self.fail(self.bounds.timed_out())),
        }
    }

    fn send(&self, request: Request) -> io::Result<Response> {
        let response = self.wait(self.client.execute(request))?;
        if let Some(error) = refusal(&response) {
            return Err(self.fail(error));
        }
        if response.content_length().is_some_and(|bytes| bytes > self.answer_bytes) {
            return Err(self.fail(self.too_large.clone()));
        }
        Ok(response)
    }
}

/// A request with gix's header lines.
fn request(
    method: reqwest::Method,
    url: &str,
    lines: impl IntoIterator<Item = impl AsRef<str>>,
) -> io::Result<Request> {
    let url = Url::parse(url).map_err(io::Error::other)?;
    let mut request = Request::new(method, url);
    for line in lines {
        let Some((name, value)) = line.as_ref().split_once(':') else { continue };
        // The client has its own.
        if name.eq_ignore_ascii_case("user-agent") {
            continue;
        }
        let name: HeaderName = name.parse().map_err(io::Error::other)?;
        let value = HeaderValue::from_str(value.trim()).map_err(io::Error::other)?;
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// What an answer's status says, when it is not 200.
fn refusal(response: &Response) -> Option<GitError> {
    let status = response.status();
    let code = status.as_u16();
    Some(match status {
        StatusCode::OK => return None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            GitError::AuthenticationFailed { status: code }
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => GitError::RepositoryNotFound { status: code },
        _ if status.is_redirection() => GitError::Redirected { to: redirect_origin(response) },
        _ => GitError::ServerFailed { status: code },
    })
}

/// Scheme and host of a redirect; the rest may hold tokens.
fn redirect_origin(response: &Response) -> String {
    response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| response.url().join(value).ok())
        .map_or_else(|| "an unknown place".into(), |url| url.origin().ascii_serialization())
}

fn classify(error: &reqwest::Error) -> GitError {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(Refused { host, why }) = cause.downcast_ref() {
            return GitError::AddressRefused { host: printable(host), why: why.clone() };
        }
        source = cause.source();
    }
    GitError::ConnectionFailed { detail: describe(error) }
}

/// The innermost cause: the outer ones repeat the URL.
fn describe(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let kind = if error.is_connect() {
        "cannot connect"
    } else if error.is_body() || error.is_decode() {
        "the answer ended early"
    } else {
        "no usable answer"
    };
    printable(&format!("{kind}: {cause}"))
}

impl Http for Session {
    type Headers = HeaderLines;
    type ResponseBody = Body;
    type PostBody = Question;

    fn get(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> gix::Result<GetResponse<HeaderLines, Body>> {
        let request =
            request(reqwest::Method::GET, url, headers).map_err(gix::Error::from_error)?;
        let response = self.send(request).map_err(gix::Error::from_error)?;
        let lines = HeaderLines::Known(header_lines(response.headers()));
        let body = Body::Open(Box::new(Stream::new(self.clone(), response)));
        Ok(GetResponse { headers: lines, body })
    }

    fn post(
        &mut self,
        url: &str,
        _base_url: &str,
        headers: impl IntoIterator<Item = impl AsRef<str>>,
        _body: PostBodyDataKind,
    ) -> gix::Result<PostResponse<HeaderLines, Body, Question>> {
        let request =
            request(reqwest::Method::POST, url, headers).map_err(gix::Error::from_error)?;
        let exchange = Arc::new(Mutex::new(Exchange {
            session: self.clone(),
            question: Vec::new(),
            request: Some(request),
            response: None,
        }));
        Ok(PostResponse {
            post_body: Question(Arc::clone(&exchange)),
            headers: HeaderLines::Waiting(Arc::clone(&exchange)),
            body: Body::Waiting(exchange),
        })
    }

    fn configure(&mut self, _config: &dyn std::any::Any) -> gix::Result {
        Ok(())
    }
}

/// A POST that is sent when its answer is first looked at.
pub(super) struct Exchange {
    session: Session,
    question: Vec<u8>,
    request: Option<Request>,
    response: Option<Response>,
}

impl Exchange {
    fn send(&mut self) -> io::Result<()> {
        let Some(mut request) = self.request.take() else { return Ok(()) };
        *request.body_mut() = Some(std::mem::take(&mut self.question).into());
        self.response = Some(self.session.send(request)?);
        Ok(())
    }
}

fn locked(exchange: &Mutex<Exchange>) -> std::sync::MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of a POST while it is being written.
pub(super) struct Question(Arc<Mutex<Exchange>>);

impl Write for Question {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut exchange = locked(&self.0);
        if exchange.question.len() + bytes.len() > QUESTION_BYTES {
            return Err(io::Error::other("the question to the server is too long"));
        }
        exchange.question.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The one header that gix looks at, as a line.
fn header_lines(headers: &HeaderMap) -> io::Cursor<Vec<u8>> {
    let mut lines = Vec::new();
    if let Some(value) = headers.get(CONTENT_TYPE) {
        lines.extend_from_slice(b"content-type: ");
        lines.extend_from_slice(value.as_bytes());
        lines.push(b'\n');
    }
    io::Cursor::new(lines)
}

/// The headers of an answer.
pub(super) enum HeaderLines {
    Waiting(Arc<Mutex<Exchange>>),
    Known(io::Cursor<Vec<u8>>),
}

impl HeaderLines {
    fn known(&mut self) -> io::Result<&mut io::Cursor<Vec<u8>>> {
        if let Self::Waiting(exchange) = self {
            let lines = {
                let mut exchange = locked(exchange);
                exchange.send()?;
                exchange.response.as_ref().map(|response| header_lines(response.headers()))
            };
            *self = Self::Known(lines.unwrap_or_default());
        }
        match self {
            Self::Known(lines) => Ok(lines),
            Self::Waiting(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Read for HeaderLines {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.known()?.read(buf)
    }
}

impl BufRead for HeaderLines {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.known()?.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        if let Self::Known(lines) = self {
            lines.consume(amount);
        }
    }
}

/// The body of an answer.
pub(super) enum Body {
    Waiting(Arc<Mutex<Exchange>>),
    Open(Box<Stream>),
}

impl Body {
    fn open(&mut self) -> io::Result<&mut Stream> {
        if let Self::Waiting(exchange) = self {
            let stream = {
                let mut exchange = locked(exchange);
                exchange.send()?;
                let response = exchange.response.take().ok_or(io::ErrorKind::UnexpectedEof)?;
                Stream::new(exchange.session.clone(), response)
            };
            *self = Self::Open(Box::new(stream));
        }
        match self {
            Self::Open(stream) => Ok(stream),
            Self::Waiting(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(buf.len());
        buf[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

impl BufRead for Body {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.open()?.fill()
    }

    fn consume(&mut self, amount: usize) {
        if let Self::Open(stream) = self {
            stream.used += amount;
        }
    }
}

/// Chunks of an answer, counted against the budget.
pub(super) struct Stream {
    session: Session,
    response: Response,
    chunk: Vec<u8>,
    used: usize,
    received: u64,
    ended: bool,
}

impl Stream {
    fn new(session: Session, response: Response) -> Self {
        Self { session, response, chunk: Vec::new(), used: 0, received: 0, ended: false }
    }

    fn fill(&mut self) -> io::Result<&[u8]> {
        while self.used >= self.chunk.len() && !self.ended {
            match self.session.wait(self.response.chunk())? {
                Some(bytes) => {
                    self.received += bytes.len() as u64;
                    if self.received > self.session.answer_bytes {
                        return Err(self.session.fail(self.session.too_large.clone()));
                    }
                    self.chunk.clear();
                    self.chunk.extend_from_slice(&bytes);
                    self.used = 0;
                }
                None => self.ended = true,
            }
        }
        Ok(self.chunk.get(self.used..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn v12_addresses_are_judged_when_a_name_is_resolved() {
        let resolve = |allow_insecure| {
            Resolver { allow_insecure }.resolve("localhost".parse().expect("a name"))
        };
        let Err(error) = resolve(false).await else { panic!("loopback was handed out") };
        assert_eq!(error.to_string(), "localhost: loopback");
        let mut allowed = resolve(true).await.expect("allowed");
        assert!(allowed.all(|address| address.ip().is_loopback()));
    }
}
