//! (pure) One question from its first piece to its end: what is shown meanwhile, and what is left at the end.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::{Map, Value, json};

use super::a2a::{Artifact, Ids, Parts, State, Status, Update, name};

/// Bytes of the longest answer.
pub(super) const MAX_ANSWER_BYTES: usize = 10 << 20;
/// Calls of tools and agents that are kept of one question.
pub(super) const MAX_EVENTS: usize = 10_000;

/// The id of an answer that is not part of an artifact.
const NO_ARTIFACT: &str = "";

/// What is shown while an agent answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// Text of the answer, which goes on where the last text ended.
    Text(String),
    /// The next text is another one.
    Break,
    /// What the agent does.
    Note(String),
}

/// A tool that is to be called, and waits for an approval.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Approval {
    pub(super) token: String,
    pub(super) server: String,
    pub(super) tool: String,
    pub(super) arguments: Value,
    /// The agent that wants to call it, where that is another one.
    pub(super) agent: Option<String>,
}

impl Approval {
    /// The object of a message that decides.
    pub(super) fn decision(&self, approve: bool) -> Value {
        let decision = if approve { "approve" } else { "deny" };
        json!({"approval": {"token": self.token, "decision": decision}})
    }

    fn json(&self) -> Value {
        // Not the token: whoever has it may approve.
        let mut value =
            json!({"server": self.server, "tool": self.tool, "arguments": self.arguments});
        if let Some(agent) = &self.agent {
            value["agent"] = agent.as_str().into();
        }
        value
    }
}

/// A text of the answer.
#[derive(Debug)]
struct Piece {
    id: String,
    text: String,
    /// All of it has been shown.
    shown: bool,
}

/// One question.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) ids: Ids,
    pub(super) state: State,
    pieces: Vec<Piece>,
    /// The piece whose text was shown last.
    last: Option<String>,
    /// What the agent said with the last state.
    said: Parts,
    events: Vec<Value>,
    usage: Option<Value>,
}

impl Turn {
    /// A question of this conversation.
    pub(super) fn new(ids: Ids) -> Self {
        Self { ids, ..Self::default() }
    }

    /// The answer so far.
    pub(super) fn answer(&self) -> String {
        let texts = self.pieces.iter().map(|piece| piece.text.as_str());
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    }

    /// What the agent said with the last state: a question, or why it failed.
    pub(super) fn said(&self) -> &str {
        &self.said.text
    }

    /// The call that waits for an approval.
    pub(super) fn approval(&self) -> Option<Approval> {
        if self.state != State::InputRequired {
            return None;
        }
        let asked = self.said.find("approval")?;
        Some(Approval {
            // A token is given back as it came, so it is not cut.
            token: asked["token"].as_str()?.to_owned(),
            server: name(&asked["server"]).unwrap_or_default(),
            tool: name(&asked["tool"]).unwrap_or_default(),
            arguments: asked["arguments"].clone(),
            agent: name(&asked["agent"]),
        })
    }

    /// Nothing that was said before counts for what comes next.
    pub(super) fn goes_on(&mut self) {
        self.state = State::Submitted;
        self.said = Parts::default();
    }

    /// All of it, for programs.
    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "answer": self.answer(),
            "contextId": self.ids.context,
            "taskId": self.ids.task,
            "state": self.state.name(),
            "events": self.events,
        });
        let approval = self.approval();
        if self.state != State::Completed && approval.is_none() && !self.said.text.is_empty() {
            value["message"] = self.said.text.as_str().into();
        }
        if let Some(approval) = approval {
            value["approval"] = approval.json();
        }
        if let Some(usage) = &self.usage {
            value["usage"] = usage.clone();
        }
        value
    }

    /// Whether the stream has nothing more to say. The first event of a task that goes on may still have the state in which it
    /// waited, without a message.
    pub(super) fn is_over(&self) -> bool {
        self.state.has_ended() || (self.state.waits() && self.said != Parts::default())
    }

    /// Takes what the agent sent. The error is what was too much.
    pub(super) fn take(&mut self, update: Update) -> Result<Vec<Shown>, String> {
        let mut shown = Vec::new();
        match update {
            Update::Task { ids, status, artifacts, said } => {
                self.identify(ids);
                let stands =
                    status.state.has_ended() || (status.state.waits() && status.message.is_some());
                self.artifacts(artifacts, stands, &mut shown);
                self.status(status, said, &mut shown)?;
            }
            Update::Message { ids, parts } => {
                self.identify(ids);
                self.state = State::Completed;
                self.replace(NO_ARTIFACT, parts.text, &mut shown);
            }
            Update::Status { ids, status } => {
                self.identify(ids);
                self.status(status, None, &mut shown)?;
            }
            Update::Artifact { ids, artifact, append } => {
                self.identify(ids);
                if append {
                    self.append(&artifact, &mut shown);
                } else {
                    self.replace(&artifact.id, artifact.text, &mut shown);
                }
            }
        }
        if self.pieces.iter().map(|piece| piece.text.len()).sum::<usize>() > MAX_ANSWER_BYTES {
            return Err(format!("the answer is longer than {} MiB", MAX_ANSWER_BYTES >> 20));
        }
        Ok(shown)
    }

    fn identify(&mut self, ids: Ids) {
        self.ids.context = ids.context.or_else(|| self.ids.context.take());
        self.ids.task = ids.task.or_else(|| self.ids.task.take());
    }

    /// The artifacts of a task, which are the answer if it `stands`. What a task had when it began to go on was shown before, or
    /// belongs to an earlier step.
    fn artifacts(&mut self, artifacts: Vec<Artifact>, stands: bool, shown: &mut Vec<Shown>) {
        let before = std::mem::take(&mut self.pieces);
        for Artifact { id, text } in artifacts {
            let known = before.iter().find(|piece| piece.id == id && piece.shown);
            let rest = known.and_then(|piece| text.strip_prefix(piece.text.as_str()));
            match rest {
                _ if !stands => {}
                Some("") => {}
                Some(rest) => self.show(&id, rest.to_owned(), false, shown),
                None => self.show(&id, text.clone(), true, shown),
            }
            let is_shown = stands || (known.is_some() && rest == Some(""));
            self.pieces.push(Piece { id, text, shown: is_shown });
        }
        // An answer that came in pieces stays, though the task does not repeat it.
        if self.pieces.is_empty() {
            self.pieces = before;
        }
    }

    fn append(&mut self, artifact: &Artifact, shown: &mut Vec<Shown>) {
        let id = &artifact.id;
        if let Some(piece) = self.pieces.iter_mut().find(|piece| piece.id == *id) {
            piece.text.push_str(&artifact.text);
        } else {
            let text = artifact.text.clone();
            self.pieces.push(Piece { id: id.clone(), text, shown: true });
        }
        self.show(id, artifact.text.clone(), false, shown);
    }

    fn replace(&mut self, id: &str, text: String, shown: &mut Vec<Shown>) {
        self.show(id, text.clone(), true, shown);
        self.pieces.retain(|piece| piece.id != id);
        self.pieces.push(Piece { id: id.to_owned(), text, shown: true });
    }

    /// Shows text of a piece. `anew` means that it does not go on with what was shown of the same piece.
    fn show(&mut self, id: &str, text: String, anew: bool, shown: &mut Vec<Shown>) {
        if text.is_empty() {
            return;
        }
        let goes_on = !anew && self.last.as_deref() == Some(id);
        if self.last.is_some() && !goes_on {
            shown.push(Shown::Break);
        }
        self.last = Some(id.to_owned());
        shown.push(Shown::Text(text));
    }

    fn status(
        &mut self,
        status: Status,
        history: Option<String>,
        shown: &mut Vec<Shown>,
    ) -> Result<(), String> {
        self.state = status.state;
        let said = status.message.unwrap_or_default();
        let of_metadata = |key: &str| status.metadata.get(key);
        if let Some(usage) = said.find("usage").or_else(|| of_metadata("usage"))
            && usage.is_object()
        {
            self.usage = Some(usage.clone());
        }
        let events = said.data.iter().filter_map(|data| data.get("event"));
        for event in events.chain(of_metadata("event")) {
            self.event(event, shown)?;
        }
        match self.state {
            // Some agents answer in the message of the state, or only in the history.
            State::Completed if self.answer().is_empty() => {
                let text =
                    if said.text.is_empty() { history.unwrap_or_default() } else { said.text };
                self.replace(NO_ARTIFACT, text, shown);
                self.said = Parts::default();
            }
            State::Submitted | State::Working | State::Unknown => {
                if !said.text.is_empty() {
                    shown.push(Shown::Note(format!("… {}", said.text)));
                }
                self.said = Parts::default();
            }
            _ => self.said = said,
        }
        Ok(())
    }

    /// A call of a tool or of another agent.
    fn event(&mut self, event: &Value, shown: &mut Vec<Shown>) -> Result<(), String> {
        let (Some(kind), Some(called)) = (name(&event["type"]), name(&event["name"])) else {
            return Ok(());
        };
        if self.events.len() >= MAX_EVENTS {
            return Err(format!("the agent reports more than {MAX_EVENTS} calls"));
        }
        let server = name(&event["server"]);
        let phase = name(&event["phase"]);
        let what = if kind == "peer" { "agent" } else { kind.as_str() };
        let whole = server.as_ref().map_or_else(|| called.clone(), |s| format!("{s}/{called}"));
        match (phase.as_deref(), event["ok"].as_bool()) {
            (Some("end"), Some(false)) => {
                shown.push(Shown::Note(format!("✗ {what} {whole} failed")));
            }
            (Some("end"), _) => {}
            _ => shown.push(Shown::Note(format!("→ {what} {whole}"))),
        }
        let mut kept = Map::new();
        kept.insert("type".into(), kind.into());
        kept.insert("name".into(), called.into());
        kept.extend(server.map(|server| ("server".to_owned(), Value::from(server))));
        kept.extend(phase.map(|phase| ("phase".to_owned(), Value::from(phase))));
        kept.extend(event["ok"].as_bool().map(|ok| ("ok".to_owned(), Value::from(ok))));
        self.events.push(Value::Object(kept));
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/turn.rs"]
mod tests;
