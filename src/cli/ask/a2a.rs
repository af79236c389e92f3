//! (pure) A2A in its versions 1.0 and 0.3: cards, requests, and what comes back, as one form.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::{Value, json};

/// Characters of the longest path that a card may name.
const MAX_PATH_CHARS: usize = 1000;
/// Characters of a name or an id that are kept.
const MAX_NAME_CHARS: usize = 256;

/// The method of JSON-RPC is not known.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// The task cannot be cancelled, because it has ended.
pub(super) const NOT_CANCELABLE: i64 = -32002;
/// The task is not known.
const TASK_NOT_FOUND: i64 = -32001;
/// The operation is not supported: streaming, for example.
const UNSUPPORTED: i64 = -32004;
/// The version of the protocol is not supported.
const VERSION_NOT_SUPPORTED: i64 = -32009;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Methods have names such as `SendMessage`.
    V1,
    /// Methods have names such as `message/send`.
    V03,
}

/// A way to send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) version: Version,
    /// The answer comes in pieces.
    pub(super) stream: bool,
}

impl Way {
    /// The method of JSON-RPC.
    pub(super) const fn method(self) -> &'static str {
        match (self.version, self.stream) {
            (Version::V1, true) => "SendStreamingMessage",
            (Version::V1, false) => "SendMessage",
            (Version::V03, true) => "message/stream",
            (Version::V03, false) => "message/send",
        }
    }

    /// The way to try after this one was refused with a code; `None` if another way would not help.
    pub(super) const fn after(self, code: i64) -> Option<Self> {
        match (self.version, self.stream, code) {
            (Version::V1, stream, METHOD_NOT_FOUND | VERSION_NOT_SUPPORTED) => {
                Some(Self { version: Version::V03, stream })
            }
            (Version::V1, true, UNSUPPORTED)
            | (Version::V03, true, METHOD_NOT_FOUND | UNSUPPORTED) => {
                Some(Self { version: self.version, stream: false })
            }
            _ => None,
        }
    }
}

/// Where an agent takes JSON-RPC, and how.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interface {
    /// Path and query of the URL.
    pub(super) path: String,
    pub(super) way: Way,
}

impl Default for Interface {
    /// What is tried when there is no card.
    fn default() -> Self {
        Self { path: "/".into(), way: Way { version: Version::V1, stream: true } }
    }
}

/// The interface that a card names. Only the path of its URL counts: the stream leads to the pod, whatever its card says. `None`
/// if the card names no interface with JSON-RPC.
pub(super) fn interface(card: &Value) -> Option<Interface> {
    let stream = card["capabilities"]["streaming"] == true;
    let listed = card["supportedInterfaces"].as_array();
    let speaks = |one: &&Value, version: &str| {
        let starts = |text: &str| text.starts_with(version);
        one["protocolBinding"] == "JSONRPC" && one["protocolVersion"].as_str().is_some_and(starts)
    };
    for (start, version) in [("1", Version::V1), ("0", Version::V03)] {
        let found = listed.into_iter().flatten().find(|one| speaks(one, start));
        if let Some(url) = found.and_then(|one| one["url"].as_str()) {
            return Some(Interface { path: path_of(url), way: Way { version, stream } });
        }
    }
    let is_json_rpc = |transport: &Value| transport.is_null() || transport == "JSONRPC";
    let main = is_json_rpc(&card["preferredTransport"]).then(|| card["url"].as_str()).flatten();
    let others = card["additionalInterfaces"].as_array().into_iter().flatten();
    let other =
        || others.filter(|one| one["transport"] == "JSONRPC").find_map(|one| one["url"].as_str());
    let url = main.or_else(other)?;
    Some(Interface { path: path_of(url), way: Way { version: Version::V03, stream } })
}

/// The path and query of a URL; `/` if it has none that can be used.
fn path_of(url: &str) -> String {
    let url: Option<http::Uri> = url.parse().ok();
    let path =
        url.as_ref().and_then(http::Uri::path_and_query).map(http::uri::PathAndQuery::as_str);
    path.filter(|path| path.starts_with('/') && path.len() <= MAX_PATH_CHARS)
        .unwrap_or("/")
        .to_owned()
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    Text(String),
    Data(Value),
}

/// A message to an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub(super) content: Content,
    pub(super) context_id: Option<String>,
    /// The task that goes on with this message.
    pub(super) task_id: Option<String>,
}

impl Message {
    /// The params of a request with this message.
    pub(super) fn params(&self, version: Version, message_id: &str) -> Value {
        let (kind, mut part) = match &self.content {
            Content::Text(text) => ("text", json!({"text": text})),
            Content::Data(data) => ("data", json!({"data": data})),
        };
        let mut message = json!({"messageId": message_id, "role": "ROLE_USER"});
        if version == Version::V03 {
            part["kind"] = kind.into();
            message["role"] = "user".into();
            message["kind"] = "message".into();
        }
        message["parts"] = json!([part]);
        for (key, id) in [("contextId", &self.context_id), ("taskId", &self.task_id)] {
            if let Some(id) = id {
                message[key] = id.as_str().into();
            }
        }
        json!({"message": message})
    }
}

/// The method that asks for a task.
pub(super) const fn get_task(version: Version) -> &'static str {
    match version {
        Version::V1 => "GetTask",
        Version::V03 => "tasks/get",
    }
}

/// The method that cancels a task.
pub(super) const fn cancel_task(version: Version) -> &'static str {
    match version {
        Version::V1 => "CancelTask",
        Version::V03 => "tasks/cancel",
    }
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Unknown,
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl State {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Unknown, "unknown"),
        (Self::Submitted, "submitted"),
        (Self::Working, "working"),
        (Self::InputRequired, "input-required"),
        (Self::AuthRequired, "auth-required"),
        (Self::Completed, "completed"),
        (Self::Failed, "failed"),
        (Self::Canceled, "canceled"),
        (Self::Rejected, "rejected"),
    ];

    /// A state as 1.0 (`TASK_STATE_INPUT_REQUIRED`) or 0.3 (`input-required`) writes it.
    fn parse(value: &Value) -> Self {
        let text = value.as_str().unwrap_or_default();
        let text = text.strip_prefix("TASK_STATE_").unwrap_or(text);
        let text = text.to_ascii_lowercase().replace('_', "-");
        let found = Self::ALL.into_iter().find(|(_, name)| *name == text);
        found.map(|(state, _)| state).unwrap_or_default()
    }

    /// Its name, as 0.3 writes it.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(state, _)| *state == self).map_or("unknown", |(_, name)| name)
    }

    /// Whether the task has ended.
    pub(super) const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Whether the task waits for somebody.
    pub(super) const fn waits(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// Texts and objects of a message or an artifact. Files are left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Parts {
    pub(super) text: String,
    pub(super) data: Vec<Value>,
}

impl Parts {
    /// `separator` stands between texts.
    fn parse(parts: &Value, separator: &str) -> Self {
        let mut found = Self::default();
        for part in parts.as_array().into_iter().flatten() {
            if let Some(text) = part["text"].as_str() {
                if !found.text.is_empty() {
                    found.text.push_str(separator);
                }
                found.text.push_str(text);
            } else if part["data"].is_object() {
                found.data.push(part["data"].clone());
            }
        }
        found
    }

    /// The first object with this key: what it has there.
    pub(super) fn find(&self, key: &str) -> Option<&Value> {
        self.data.iter().find_map(|data| data.get(key))
    }
}

/// What an agent says about the state of a task.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Status {
    pub(super) state: State,
    /// The message with it.
    pub(super) message: Option<Parts>,
    /// The metadata of the event.
    pub(super) metadata: Value,
}

impl Status {
    fn parse(status: &Value, metadata: &Value) -> Self {
        let message = status["message"].is_object();
        Self {
            state: State::parse(&status["state"]),
            message: message.then(|| Parts::parse(&status["message"]["parts"], "\n")),
            metadata: metadata.clone(),
        }
    }
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Artifact {
    pub(super) id: String,
    pub(super) text: String,
}

impl Artifact {
    fn parse(artifact: &Value) -> Self {
        let parts = Parts::parse(&artifact["parts"], "");
        let text = if parts.text.is_empty() {
            parts.data.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
        } else {
            parts.text
        };
        Self { id: name(&artifact["artifactId"]).unwrap_or_default(), text }
    }
}

/// What an agent answers: one thing of a stream, or all of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    /// The task as it is now, with the last thing that the agent said in it.
    Task { ids: Ids, status: Status, artifacts: Vec<Artifact>, said: Option<String> },
    /// An answer without a task.
    Message { ids: Ids, parts: Parts },
    /// The task has another state.
    Status { ids: Ids, status: Status },
    /// A piece of the answer; with `append` it goes on with what this artifact had.
    Artifact { ids: Ids, artifact: Artifact, append: bool },
}

/// Which conversation and which task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ids {
    pub(super) context: Option<String>,
    pub(super) task: Option<String>,
}

impl Ids {
    fn parse(value: &Value, task: &str) -> Self {
        Self { context: name(&value["contextId"]), task: name(&value[task]) }
    }
}

/// A text that is a name or an id, cut where it is too long for one.
pub(super) fn name(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty())?;
    Some(text.chars().take(MAX_NAME_CHARS).collect())
}

/// Reads a result of either version; `None` if it is none that is known.
pub(super) fn update(result: &Value) -> Option<Update> {
    let kinds = [
        ("task", "task"),
        ("message", "message"),
        ("statusUpdate", "status-update"),
        ("artifactUpdate", "artifact-update"),
    ];
    // 1.0 wraps what 0.3 gives a kind.
    let (kind, value) = if let Some(kind) = result["kind"].as_str() {
        (kinds.into_iter().find(|(_, old)| *old == kind)?.0, result)
    } else {
        let (kind, _) = kinds.into_iter().find(|(new, _)| result[*new].is_object())?;
        (kind, &result[kind])
    };
    Some(match kind {
        "task" => task(value),
        "message" => Update::Message {
            ids: Ids::parse(value, "taskId"),
            parts: Parts::parse(&value["parts"], "\n"),
        },
        "statusUpdate" => Update::Status {
            ids: Ids::parse(value, "taskId"),
            status: Status::parse(&value["status"], &value["metadata"]),
        },
        _ => Update::Artifact {
            ids: Ids::parse(value, "taskId"),
            artifact: Artifact::parse(&value["artifact"]),
            append: value["append"] == true,
        },
    })
}

/// Reads a task, as it also comes for itself.
pub(super) fn task(value: &Value) -> Update {
    let artifacts = value["artifacts"].as_array().into_iter().flatten().map(Artifact::parse);
    let of_agent =
        |message: &&Value| matches!(message["role"].as_str(), Some("ROLE_AGENT" | "agent"));
    let history = value["history"].as_array().into_iter().flatten();
    let said =
        history.rev().find(of_agent).map(|message| Parts::parse(&message["parts"], "\n").text);
    Update::Task {
        ids: Ids::parse(value, "id"),
        status: Status::parse(&value["status"], &value["metadata"]),
        artifacts: artifacts.collect(),
        said: said.filter(|text| !text.is_empty()),
    }
}

/// An error of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    reason: Option<String>,
}

impl RpcError {
    /// What happened, in words.
    pub(super) fn words(&self) -> String {
        let (code, said) = (self.code, &self.message);
        let what = match code {
            TASK_NOT_FOUND => "the agent does not know the task".to_owned(),
            NOT_CANCELABLE => "the task cannot be cancelled".to_owned(),
            METHOD_NOT_FOUND => "the agent takes no such messages".to_owned(),
            VERSION_NOT_SUPPORTED => "the agent speaks another version of A2A".to_owned(),
            _ => "the agent refused".to_owned(),
        };
        match &self.reason {
            Some(reason) => format!("{what}: {said} ({reason}, {code})"),
            None => format!("{what}: {said} ({code})"),
        }
    }

    /// Whether the task is not known.
    pub(super) const fn is_unknown_task(&self) -> bool {
        self.code == TASK_NOT_FOUND
    }
}

/// The result of a response of JSON-RPC. The error is `None` if the text is no response.
pub(super) fn result(text: &str) -> Result<Value, Option<RpcError>> {
    let Ok(mut response) = serde_json::from_str::<Value>(text) else { return Err(None) };
    let error = &response["error"];
    if error.is_object() {
        // 1.0 has a list of details, of which one has the reason; 0.3 has what the agent likes.
        let data = &error["data"];
        let details = data.as_array().into_iter().flatten();
        let reason = details
            .filter_map(|one| name(&one["metadata"]["reason"]).or_else(|| name(&one["reason"])));
        return Err(Some(RpcError {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"]
                .as_str()
                .unwrap_or("it gives no reason")
                .chars()
                .take(2000)
                .collect(),
            reason: reason.chain(name(&data["reason"])).next(),
        }));
    }
    if !response["result"].is_object() {
        return Err(None);
    }
    Ok(response["result"].take())
}

#[cfg(test)]
#[path = "tests/a2a.rs"]
mod tests;
