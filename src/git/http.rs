//! The HTTP transport for gix. Each attempt has a [`Session`], and all attempts of a remote share its client.
//!
//! A request is sent when its answer is first read, because gix writes its body bit by bit.

use parking_lot::Mutex;
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use gix::protocol::transport::client::blocking_io::http::{
    GetResponse, Http, PostBodyDataKind, PostResponse,
};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Request, Response, StatusCode, Url};

use super::GitError;
use super::wire::{MAX_REQUEST_BYTES, Wire};
use crate::net::{Client, NetError};

/// The HTTP session of one attempt.
#[derive(Clone)]
pub(super) struct Session {
    client: Client,
    /// The value of the header `Authorization`, for every request. None goes to another server: redirects are not followed.
    authorization: Option<HeaderValue>,
    wire: Wire,
}

impl Session {
    pub const fn new(client: Client, authorization: Option<HeaderValue>, wire: Wire) -> Self {
        Self { client, authorization, wire }
    }

    fn send(&self, mut request: Request) -> io::Result<Response> {
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let response = self.wire.wait(self.client.execute(request))?;
        // As nginx refuses a client certificate, or that there is none.
        if response.status() == StatusCode::BAD_REQUEST && self.client.asks_for_certificate() {
            let why = "the server asks for a client certificate, and answers with HTTP 400";
            return Err(self.wire.fail(GitError::ClientCertificateRefused { why }));
        }
        if let Some(error) = status_error(&response, self.authorization.is_some()) {
            return Err(self.wire.fail(error));
        }
        self.wire.check_bytes(response.content_length().unwrap_or_default())?;
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

/// The error that the status of an answer means, if it is not 200. `given` says whether the request had credentials.
fn status_error(response: &Response, given: bool) -> Option<GitError> {
    let status = response.status();
    let code = status.as_u16();
    Some(match status {
        StatusCode::OK => return None,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            GitError::AuthenticationFailed { status: code, given }
        }
        StatusCode::NOT_FOUND | StatusCode::GONE => GitError::RepositoryNotFound { status: code },
        _ if status.is_redirection() => GitError::Redirected { to: redirect_origin(response) },
        _ => GitError::ServerFailed { status: code },
    })
}

/// Scheme and host of a redirect. The rest of the URL may hold tokens.
fn redirect_origin(response: &Response) -> String {
    response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| response.url().join(value).ok())
        .map_or_else(|| "an unknown place".into(), |url| url.origin().ascii_serialization())
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

/// A POST request. It is sent when its answer is first read.
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

fn locked(exchange: &Mutex<Exchange>) -> parking_lot::MutexGuard<'_, Exchange> {
    exchange.lock()
}

/// The body of a POST while it is being written.
pub(super) struct Question(Arc<Mutex<Exchange>>);

impl Write for Question {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut exchange = locked(&self.0);
        if exchange.question.len() + bytes.len() > MAX_REQUEST_BYTES {
            return Err(io::Error::other("the question to the server is too long"));
        }
        exchange.question.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The only header that gix reads, as a line.
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

/// The chunks of an answer, counted against the limit.
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
            let chunk = self.response.chunk();
            let next = async { Ok::<_, NetError>(chunk.await?) };
            match self.session.wire.wait(next)? {
                Some(bytes) => {
                    if self.received == 0 {
                        self.session.wire.note_error_line(&bytes);
                    }
                    self.received += bytes.len() as u64;
                    self.session.wire.check_bytes(self.received)?;
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
