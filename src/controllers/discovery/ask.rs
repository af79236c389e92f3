//! Sends requests to pods and to external addresses, with one pace, deadlines, and a budget of bytes for each answer.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Request, Response, StatusCode, Url};
use tokio::time::Instant;

use super::event_stream::EventStream;
use super::failure::{Failure, words};
use crate::controllers::pods::{OwnedPod, Pods};
use crate::net::{ClientOptions, Dialler, NetError};

/// The value of the header `User-Agent`.
const USER_AGENT: &str = concat!("convoke/", env!("CARGO_PKG_VERSION"));
/// The longest time for one request, from the connection to the last byte.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// The shortest time between the starts of two requests of the whole operator.
pub const PACE: Duration = Duration::from_millis(250);

/// Who is asked.
pub enum Destination<'a> {
    /// A pod. The URL is that of its Service: it says the path, and what the pod is called.
    Pod(&'a Pods, &'a OwnedPod, &'a Url),
    /// An address that somebody chose.
    External(&'a Url),
}

impl Destination<'_> {
    /// The URL, for the path and for the header `Host`.
    fn url(&self) -> &Url {
        match self {
            Self::Pod(_, _, url) | Self::External(url) => url,
        }
    }
}

/// A header of a request. Its name is in lower case.
pub type Header = (&'static str, HeaderValue);

/// A request.
pub struct Question<'a> {
    /// Its method.
    pub method: Method,
    /// The path instead of that of the destination.
    pub path: Option<&'a str>,
    /// Headers.
    pub headers: Vec<Header>,
    /// A JSON text.
    pub body: Option<String>,
    /// Bytes of the largest answer.
    pub max_bytes: usize,
}

impl<'a> Question<'a> {
    /// A GET request for this path.
    #[must_use]
    pub const fn get(path: &'a str, max_bytes: usize) -> Self {
        Self { method: Method::GET, path: Some(path), headers: Vec::new(), body: None, max_bytes }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; of a stream of events, the data of the one that was waited for.
    pub body: Vec<u8>,
}

/// Starts requests one after the other, with a pause between.
struct Pace {
    next: Mutex<Instant>,
    pause: Duration,
}

impl Pace {
    /// Waits for the turn of the next request.
    async fn turn(&self) {
        let at = {
            let mut next = self.next.lock();
            let at = (*next).max(Instant::now());
            *next = at + self.pause;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

/// Sends requests.
pub struct Asker {
    dialler: Dialler,
    pace: Pace,
}

impl Asker {
    /// Connects to external addresses with this dialler. `pause` is the time between two requests.
    #[must_use]
    pub fn new(dialler: Dialler, pause: Duration) -> Self {
        Self { dialler, pace: Pace { next: Mutex::new(Instant::now()), pause } }
    }

    /// Sends a request, and reads the whole answer. The wait for its turn does not count for its deadline.
    ///
    /// # Errors
    /// When there is no answer, or a larger one. An answer with any status is an answer.
    pub async fn ask(
        &self,
        to: &Destination<'_>,
        question: Question<'_>,
    ) -> Result<Answer, Failure> {
        self.ask_for(to, question, |_| true).await
    }

    /// The same, where the answer may be a stream of events: then it ends with the first event whose data `is_it`.
    ///
    /// # Errors
    /// Those of [`Self::ask`].
    pub async fn ask_for(
        &self,
        to: &Destination<'_>,
        question: Question<'_>,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<Answer, Failure> {
        self.pace.turn().await;
        let max_bytes = question.max_bytes;
        let work = async {
            let response = self.send(to, request(to.url(), question)).await?;
            read(response, max_bytes, is_it).await
        };
        if let Ok(answer) = tokio::time::timeout(REQUEST_DEADLINE, work).await {
            return answer;
        }
        Err(Failure::TooSlow(REQUEST_DEADLINE.as_secs()))
    }

    async fn send(&self, to: &Destination<'_>, request: Request) -> Result<Response, Failure> {
        let sent = match to {
            Destination::Pod(pods, pod, _) => pods.ask(pod, request).await,
            Destination::External(url) => {
                let options = ClientOptions {
                    user_agent: USER_AGENT,
                    roots: None,
                    identity: None,
                    proxy: None,
                };
                let client = self.dialler.client(url, options).map_err(failure)?;
                client.execute(request).await
            }
        };
        sent.map_err(failure)
    }
}

/// The failure that an error of a connection is.
fn failure(error: NetError) -> Failure {
    match error {
        NetError::NotAllowed(refusal) => Failure::NotAllowed(format!(
            "the operator does not ask it: {refusal}; {}",
            refusal.hint()
        )),
        other @ NetError::ConnectionRefused { .. } => {
            Failure::NotListening(words(&other.to_string()))
        }
        other => Failure::Unreachable(words(&other.to_string())),
    }
}

/// The request that asks a question.
fn request(url: &Url, question: Question<'_>) -> Request {
    let Question { method, path, headers, body, .. } = question;
    let mut url = url.clone();
    if let Some(path) = path {
        url.set_path(path);
        url.set_query(None);
    }
    url.set_fragment(None);
    let mut request = Request::new(method, url);
    for (name, value) in headers {
        request.headers_mut().insert(name, value);
    }
    if let Some(body) = body {
        *request.body_mut() = Some(body.into());
    }
    request
}

/// Reads an answer, within its budget.
async fn read(
    mut response: Response,
    max_bytes: usize,
    is_it: impl Fn(&[u8]) -> bool,
) -> Result<Answer, Failure> {
    let (status, headers) = (response.status(), response.headers().clone());
    let is_stream = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().starts_with("text/event-stream"));
    let mut events = EventStream::default();
    let mut body = Vec::new();
    let mut total = 0usize;
    loop {
        let chunk = response.chunk().await.map_err(|error| failure(error.into()))?;
        let Some(chunk) = chunk else { break };
        total = total.saturating_add(chunk.len());
        if total > max_bytes {
            return Err(Failure::TooLarge(max_bytes));
        }
        if !is_stream {
            body.extend_from_slice(&chunk);
        } else if let Some(data) = events.push(&chunk).into_iter().find(|data| is_it(data)) {
            return Ok(Answer { status, headers, body: data });
        }
    }
    Ok(Answer { status, headers, body })
}

#[cfg(test)]
#[path = "tests/ask.rs"]
mod tests;
