//! A2A over JSON-RPC with one pod; chat completions with one that speaks no A2A.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::text::hex;
use http::StatusCode;
use serde_json::{Value, json};

use super::super::{CLUSTER, Failure};
use super::a2a::{self, Interface, Message, RpcError, Update, Version, Way};
use super::chat;
use super::http::{Dial, Reply, ask};
use super::sse;

/// Where cards are: since 0.3, and before.
const CARD_PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// What an answer may be.
const ACCEPTED: &str = "application/json, text/event-stream";
/// How long a card is waited for.
const CARD_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of the longest card.
const MAX_CARD_BYTES: usize = 1 << 20;
/// Bytes of the longest answer that comes in one piece.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Bytes of all pieces of an answer, with what stands around its text.
const MAX_STREAM_BYTES: usize = 256 << 20;

/// Why there is no answer.
pub(super) enum Refused {
    /// The agent says so.
    Rpc(RpcError),
    /// Nothing takes such requests there.
    NotServed(Failure),
    /// It cannot be asked, or its answer cannot be read.
    Failed(Failure),
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Refused {
    /// The failure of the command.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Rpc(error) if error.is_unknown_task() => Failure::new(CLUSTER, error.words())
                .hint("tasks end with the pod that has them; several pods of an agent share them only with memory of type Redis"),
            Self::Rpc(error) => Failure::new(CLUSTER, error.words()),
            Self::NotServed(failure) | Self::Failed(failure) => failure,
        }
    }
}

/// An agent that can be asked.
pub(super) struct Peer<D> {
    dial: D,
    path: String,
    /// The way that worked, or is to be tried first.
    way: Cell<Way>,
    /// Answers come in pieces, as the card says.
    stream: bool,
    /// It takes no messages of A2A.
    by_chat: Cell<bool>,
    /// Somebody was told of that.
    is_told: Cell<bool>,
    requests: Cell<u64>,
}

impl<D: Dial> Peer<D> {
    /// Reads the card of an agent. An agent without one is asked as if its card named the newest version.
    pub(super) async fn find(dial: D) -> Result<Self, Failure> {
        let card = tokio::time::timeout(CARD_DEADLINE, card(&dial)).await.map_err(|_| {
            let seconds = CARD_DEADLINE.as_secs();
            Failure::new(CLUSTER, format!("the agent did not send its card within {seconds} s"))
        })??;
        let interface = match &card {
            Some(card) => a2a::interface(card).ok_or_else(|| {
                Failure::new(CLUSTER, "the card of the agent names no A2A over JSON-RPC")
            })?,
            None => Interface::default(),
        };
        let Interface { path, way } = interface;
        Ok(Self {
            dial,
            path,
            way: Cell::new(way),
            stream: way.stream,
            by_chat: Cell::new(false),
            is_told: Cell::new(false),
            requests: Cell::new(0),
        })
    }

    /// Sends a message, in the newest version that the agent takes. One that takes none is asked over chat completions.
    pub(super) async fn send(&self, message: &Message) -> Result<Answers, Refused> {
        while !self.by_chat.get() {
            let way = self.way.get();
            match self.send_by(way, message).await {
                Err(Refused::Rpc(error)) => match way.after(error.code) {
                    Some(other) => self.way.set(other),
                    None if error.code == a2a::METHOD_NOT_FOUND => self.by_chat.set(true),
                    None => return Err(Refused::Rpc(error)),
                },
                Err(Refused::NotServed(_)) => self.by_chat.set(true),
                other => return other,
            }
        }
        self.complete(message).await
    }

    /// Whether somebody is to be told, once, that the agent is asked over chat completions.
    pub(super) fn tells_of_chat(&self) -> bool {
        self.by_chat.get() && !self.is_told.replace(true)
    }

    /// Asks over chat completions. A conversation is one there whose name the asker chose.
    async fn complete(&self, message: &Message) -> Result<Answers, Refused> {
        let Some(question) = chat::question(message) else {
            let why = "the agent speaks no A2A, so no task of it can go on";
            return Err(Failure::new(CLUSTER, why).into());
        };
        let session = match &message.context_id {
            Some(id) => id.clone(),
            None => message_id()?,
        };
        let headers = [("accept", ACCEPTED), (chat::SESSION, session.as_str())];
        let body = Bytes::from(chat::request(question, self.stream).to_string());
        let mut reply = ask(&self.dial, chat::PATH, &headers, Some(body)).await?;
        if is_not_served(reply.status) {
            let why = "the agent speaks neither A2A nor chat completions";
            return Err(Failure::new(CLUSTER, why).hint("what does its image serve?").into());
        }
        if !reply.status.is_success() {
            let status = reply.status;
            let body = reply.whole(MAX_CARD_BYTES).await?;
            let reason = chat::reason(&String::from_utf8_lossy(&body));
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            let why = format!("the agent answered with {status}{reason}");
            return Err(Failure::new(CLUSTER, why).into());
        }
        let mut answers = Answers::new(reply, Some(chat::Reader::new(session)));
        answers.fill().await?;
        Ok(answers)
    }

    async fn send_by(&self, way: Way, message: &Message) -> Result<Answers, Refused> {
        let params = message.params(way.version, &message_id()?);
        let reply = self.post(way, way.method(), params).await?;
        let mut answers = Answers::new(reply, None);
        // An error comes first.
        answers.fill().await?;
        Ok(answers)
    }

    /// A task as it is now.
    pub(super) async fn task(&self, id: &str) -> Result<Update, Refused> {
        let way = self.way.get();
        match self.call(way, a2a::get_task(way.version), id).await {
            // Nothing was sent yet that would have told the version.
            Err(Refused::Rpc(error)) => match way.after(error.code) {
                Some(other) if other.version != way.version => {
                    self.way.set(other);
                    let task = self.call(other, a2a::get_task(other.version), id).await?;
                    Ok(a2a::task(&task))
                }
                _ => Err(Refused::Rpc(error)),
            },
            other => other.map(|task| a2a::task(&task)),
        }
    }

    /// Cancels a task. One that has ended meanwhile is no error.
    pub(super) async fn cancel(&self, id: &str) -> Result<(), Refused> {
        let way = self.way.get();
        match self.call(way, a2a::cancel_task(way.version), id).await {
            Err(Refused::Rpc(error)) if error.code == a2a::NOT_CANCELABLE => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Calls a method that takes the id of a task.
    async fn call(&self, way: Way, method: &str, id: &str) -> Result<Value, Refused> {
        let mut reply = self.post(way, method, json!({"id": id})).await?;
        let body = reply.whole(MAX_BODY_BYTES).await?;
        result_of(&String::from_utf8_lossy(&body))
    }

    async fn post(&self, way: Way, method: &str, params: Value) -> Result<Reply, Refused> {
        let id = self.requests.get() + 1;
        self.requests.set(id);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut headers = vec![("accept", ACCEPTED)];
        if way.version == Version::V1 {
            headers.push(("a2a-version", "1.0"));
        }
        let body = Bytes::from(body.to_string());
        let mut reply = ask(&self.dial, &self.path, &headers, Some(body)).await?;
        if reply.status.is_success() {
            return Ok(reply);
        }
        let status = reply.status;
        let body = reply.whole(MAX_CARD_BYTES).await?;
        let said = a2a::result(&String::from_utf8_lossy(&body));
        if let Err(Some(error)) = said {
            return Err(Refused::Rpc(error));
        }
        let failure = Failure::new(CLUSTER, format!("the agent answered with {status}"))
            .hint("does its image speak A2A?");
        Err(if is_not_served(status) {
            Refused::NotServed(failure)
        } else {
            Refused::Failed(failure)
        })
    }
}

/// Whether nothing takes such requests at that path.
fn is_not_served(status: StatusCode) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status)
}

/// The card of an agent; `None` if it has none.
async fn card<D: Dial>(dial: &D) -> Result<Option<Value>, Failure> {
    for path in CARD_PATHS {
        let mut reply = ask(dial, path, &[("accept", "application/json")], None).await?;
        if reply.status == StatusCode::OK {
            let body = reply.whole(MAX_CARD_BYTES).await?;
            return Ok(serde_json::from_slice(&body).ok());
        }
    }
    Ok(None)
}

/// An id that no other message has.
fn message_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Failure::new(CLUSTER, "the system gives no random bytes"))?;
    Ok(hex(&bytes))
}

/// The result of a response.
fn result_of(text: &str) -> Result<Value, Refused> {
    a2a::result(text).map_err(|error| match error {
        Some(error) => Refused::Rpc(error),
        None => Failure::new(CLUSTER, "the agent sent something that is no answer of A2A").into(),
    })
}

fn too_much(most: usize) -> Failure {
    Failure::new(CLUSTER, format!("the agent sent more than {} MiB", most >> 20))
}

/// What an agent answers to a message, as it arrives.
pub(super) struct Answers {
    reply: Reply,
    /// Reads chat completions, if it is not A2A.
    chat: Option<chat::Reader>,
    /// Reads events, if the answer is a stream of them.
    events: Option<sse::Parser>,
    ready: VecDeque<Update>,
    read: usize,
    is_done: bool,
}

impl Answers {
    fn new(reply: Reply, chat: Option<chat::Reader>) -> Self {
        let is_stream = reply.content_type == "text/event-stream";
        let events = is_stream.then(sse::Parser::default);
        Self { reply, chat, events, ready: VecDeque::new(), read: 0, is_done: false }
    }

    /// What comes next; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Update>, Refused> {
        self.fill().await?;
        Ok(self.ready.pop_front())
    }

    /// Waits until something is ready, or all has been read.
    async fn fill(&mut self) -> Result<(), Refused> {
        while self.ready.is_empty() && !self.is_done {
            let Some(events) = &mut self.events else {
                self.is_done = true;
                let body = self.reply.whole(MAX_BODY_BYTES).await?;
                self.take(&String::from_utf8_lossy(&body))?;
                return Ok(());
            };
            let Some(bytes) = self.reply.chunk().await? else {
                self.is_done = true;
                self.ready.extend(self.chat.as_ref().and_then(chat::Reader::end));
                return Ok(());
            };
            self.read += bytes.len();
            if self.read > MAX_STREAM_BYTES {
                return Err(too_much(MAX_STREAM_BYTES).into());
            }
            let events = events.push(&bytes).map_err(|_| too_much(sse::MAX_EVENT_BYTES))?;
            // An event without data only keeps the connection alive.
            for text in events.iter().filter(|text| !text.trim().is_empty()) {
                self.take(text)?;
            }
        }
        Ok(())
    }

    /// Takes a whole answer, or the data of an event.
    fn take(&mut self, text: &str) -> Result<(), Refused> {
        let update = match &mut self.chat {
            None => a2a::update(&result_of(text)?),
            Some(chat) => chat.read(text).map_err(|_| {
                Failure::new(CLUSTER, "the agent sent something that is no chat completion")
            })?,
        };
        self.ready.extend(update);
        Ok(())
    }
}
