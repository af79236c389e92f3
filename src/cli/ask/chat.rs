//! (pure) Chat completions, for agents that speak no A2A: what is sent, and what comes back, as updates of A2A.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::{Value, json};

use super::a2a::{Artifact, Content, Ids, Message, Parts, State, Status, Update, name};

/// Where agents take questions.
pub(super) const PATH: &str = "/v1/chat/completions";
/// The header that names the conversation.
pub(super) const SESSION: &str = "x-session-id";
/// The last event of a stream.
const DONE: &str = "[DONE]";
/// The id of the answer.
const ANSWER: &str = "answer";
/// Characters of a reason that are kept.
const MAX_REASON_CHARS: usize = 2000;

/// What a message asks; `None` if it goes on with a task, which only A2A has.
pub(super) fn question(message: &Message) -> Option<&str> {
    match (&message.content, &message.task_id) {
        (Content::Text(text), None) => Some(text),
        _ => None,
    }
}

/// The body of a request. The agent knows which model it asks.
pub(super) fn request(question: &str, stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": question}]);
    json!({"model": "agent", "messages": messages, "stream": stream})
}

/// Why an agent refuses a question: what the body of its answer says.
pub(super) fn reason(body: &str) -> Option<String> {
    reason_in(&serde_json::from_str(body).ok()?)
}

fn reason_in(value: &Value) -> Option<String> {
    let error = &value["error"];
    let text = error["message"].as_str().or_else(|| error.as_str())?;
    Some(text.chars().take(MAX_REASON_CHARS).collect())
}

/// What came back is no chat completion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Reads the answer to one question, whole or in pieces.
#[derive(Debug)]
pub(super) struct Reader {
    ids: Ids,
    usage: Value,
    /// A piece said that it is the last one of the text.
    has_finished: bool,
}

impl Reader {
    /// Reads the answer to a question of this conversation.
    pub(super) fn new(session: String) -> Self {
        let ids = Ids { context: Some(session), task: None };
        Self { ids, usage: Value::Null, has_finished: false }
    }

    /// Reads a whole answer, or the data of an event; `None` if it says nothing new.
    pub(super) fn read(&mut self, text: &str) -> Result<Option<Update>, Unreadable> {
        if text.trim() == DONE {
            return Ok(Some(self.status(State::Completed, None)));
        }
        let value: Value = serde_json::from_str(text).map_err(|_| Unreadable)?;
        if let Some(reason) = reason_in(&value) {
            return Ok(Some(
                self.status(State::Failed, Some(Parts { text: reason, data: Vec::new() })),
            ));
        }
        if value["usage"].is_object() {
            self.usage = value["usage"].clone();
        }
        let choices = value["choices"].as_array().ok_or(Unreadable)?;
        let Some(choice) = choices.first() else { return Ok(None) };
        if choice["message"].is_object() {
            let text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
            let said = Parts { text, data: Vec::new() };
            return Ok(Some(self.status(State::Completed, Some(said))));
        }
        self.has_finished |= choice["finish_reason"].is_string();
        let content = choice["delta"]["content"].as_str().unwrap_or_default();
        Ok(match call(content) {
            _ if content.is_empty() => None,
            Some(event) => {
                let said = Parts { text: String::new(), data: vec![event] };
                Some(self.status(State::Working, Some(said)))
            }
            None => Some(self.piece(content)),
        })
    }

    /// What the end of a stream says that had no last event.
    pub(super) fn end(&self) -> Option<Update> {
        self.has_finished.then(|| self.status(State::Completed, None))
    }

    fn status(&self, state: State, message: Option<Parts>) -> Update {
        let metadata = json!({"usage": self.usage});
        Update::Status { ids: self.ids.clone(), status: Status { state, message, metadata } }
    }

    fn piece(&self, text: &str) -> Update {
        let artifact = Artifact { id: ANSWER.into(), text: text.into() };
        Update::Artifact { ids: self.ids.clone(), artifact, append: true }
    }
}

/// The call of a tool or an agent that a piece reports, as our agents report theirs. pydantic-ai-server sends such pieces between
/// those of the answer.
fn call(content: &str) -> Option<Value> {
    let reported: Value =
        content.starts_with('{').then(|| serde_json::from_str(content).ok())??;
    let kind = match (reported["type"].as_str()?, reported["action"].as_str()?) {
        ("progress", "delegate") => "peer",
        ("progress", "tool_call") => "tool",
        _ => return None,
    };
    let called = name(&reported["target"])?;
    Some(json!({"event": {"type": kind, "name": called, "phase": "start"}}))
}

#[cfg(test)]
#[path = "tests/chat.rs"]
mod tests;
