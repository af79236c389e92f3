//! A conversation with an agent: questions, what is shown meanwhile, and approvals.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::super::terminal::{Input, Screen};
use super::super::{CLUSTER, FOUND, Failure, WAITS, escaped};
use super::a2a::{Content, Ids, Message, State, Update};
use super::http::Dial;
use super::rpc::{Peer, Refused};
use super::turn::{Approval, Shown, Turn};
use convoke_core::text::{printable, shell_word};

/// How often a task is looked at whose stream has ended.
const POLL: Duration = Duration::from_secs(1);
/// How long a task is given to be cancelled.
const CANCEL_DEADLINE: Duration = Duration::from_secs(5);

/// What is said when an agent is asked in another way than usual.
const BY_CHAT: &str =
    "note: the agent speaks no A2A; it is asked over chat completions, without approvals";

/// The task that runs and would be cancelled.
pub(super) type Running = RefCell<Option<String>>;

/// How questions are asked.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// The answer is not shown as it arrives.
    pub(super) quiet: bool,
    /// Whatever asks for an approval is denied.
    pub(super) deny: bool,
    /// How long the agent may take for a question.
    pub(super) timeout: Duration,
    /// The command without its question, for hints.
    pub(super) command: String,
}

/// A conversation.
pub(super) struct Talk<'a, D> {
    pub(super) peer: &'a Peer<D>,
    pub(super) running: &'a Running,
    pub(super) screen: Screen,
    pub(super) input: Input,
    pub(super) options: Options,
}

impl<D: Dial> Talk<'_, D> {
    /// Asks one question, or goes on with a task that waits, until the agent has answered or waits for what cannot be given here.
    pub(super) async fn turn(
        &mut self,
        question: Option<String>,
        ids: Ids,
    ) -> Result<Turn, Failure> {
        let mut turn = Turn::new(ids);
        let mut content = question.map(Content::Text);
        let mut left = self.options.timeout;
        loop {
            let began = Instant::now();
            let exchange = self.exchange(content.take(), &mut turn);
            let result = tokio::time::timeout(left, exchange).await;
            left = left.saturating_sub(began.elapsed());
            self.end_line()?;
            match result {
                Ok(result) => result?,
                Err(_) => return Err(self.too_late().await),
            }
            let Some(approval) = turn.approval() else { break };
            let Some(approve) = self.decide(&approval).await? else { break };
            content = Some(Content::Data(approval.decision(approve)));
            turn.goes_on();
        }
        // What waits for somebody stays there, for another command.
        *self.running.borrow_mut() = None;
        Ok(turn)
    }

    /// Sends a message, and follows the task until it has ended or waits.
    async fn exchange(&mut self, content: Option<Content>, turn: &mut Turn) -> Result<(), Failure> {
        let mut broke = None;
        if let Some(content) = content {
            let Ids { context, task } = turn.ids.clone();
            let message = Message { content, context_id: context, task_id: task };
            let mut answers = self.peer.send(&message).await.map_err(Refused::failure)?;
            if self.peer.tells_of_chat() {
                self.screen.note(BY_CHAT)?;
            }
            while !turn.is_over() {
                match answers.next().await {
                    Ok(Some(update)) => self.take(turn, update)?,
                    Ok(None) => break,
                    Err(Refused::Failed(failure)) => {
                        broke = Some(failure);
                        break;
                    }
                    Err(error) => return Err(error.failure()),
                }
            }
        }
        // A stream may end before its task does: when the connection breaks, or when the agent had more to say than fits.
        while !turn.is_over() {
            let Some(id) = turn.ids.task.clone() else {
                let silent =
                    || Failure::new(CLUSTER, "the agent ended its answer without saying so");
                return Err(broke.unwrap_or_else(silent));
            };
            let task = self.peer.task(&id).await;
            let task = task.map_err(|error| broke.take().unwrap_or_else(|| error.failure()))?;
            self.take(turn, task)?;
            if turn.state.waits() {
                break;
            }
            if !turn.is_over() {
                tokio::time::sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Takes what the agent sent, and shows what is to be shown of it.
    fn take(&mut self, turn: &mut Turn, update: Update) -> Result<(), Failure> {
        let shown = turn.take(update).map_err(|why| Failure::new(CLUSTER, why))?;
        let task = turn.ids.task.clone().filter(|_| !turn.state.has_ended());
        *self.running.borrow_mut() = task;
        for one in shown {
            match one {
                Shown::Text(text) if !self.options.quiet => self.screen.text(&text)?,
                Shown::Break if !self.options.quiet => self.screen.end_line()?,
                Shown::Text(_) | Shown::Break => {}
                Shown::Note(note) => self.screen.note(&note)?,
            }
        }
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if self.options.quiet { Ok(()) } else { self.screen.end_line() }
    }

    /// Asks whether a tool may be called; `None` if there is nobody to ask.
    async fn decide(&mut self, approval: &Approval) -> Result<Option<bool>, Failure> {
        if self.options.deny {
            let (server, tool) = (&approval.server, &approval.tool);
            self.screen.note(&format!("✗ tool {server}/{tool} is denied"))?;
            return Ok(Some(false));
        }
        if !self.input.is_terminal {
            return Ok(None);
        }
        self.screen.lines(&describe(approval))?;
        // Whatever was typed before the call was shown is no answer to it.
        self.input.forget()?;
        self.screen.lines("approve? [y/N] ")?;
        let line = self.input.line().await?.unwrap_or_default();
        Ok(Some(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")))
    }

    /// The failure of a question that took too long. Its task is cancelled.
    async fn too_late(&mut self) -> Failure {
        cancel(self.peer, self.running).await;
        let seconds = self.options.timeout.as_secs();
        Failure::new(CLUSTER, format!("the agent did not answer within {seconds} s"))
            .hint("give it more time with --timeout")
    }

    /// Reads questions and asks them, until the end of the input.
    pub(super) async fn converse(&mut self, mut ids: Ids) -> Result<ExitCode, Failure> {
        loop {
            if self.input.is_terminal {
                self.screen.lines("> ")?;
            }
            let Some(line) = self.input.line().await? else { break };
            match line.trim() {
                "" => continue,
                "/quit" => break,
                _ => {}
            }
            let result = match self.turn(Some(line), ids.clone()).await {
                Ok(turn) => {
                    // A question of the agent is answered in its task. Everything else is a task of its own.
                    let task = turn.ids.task.clone().filter(|_| turn.state.waits());
                    ids = Ids { context: turn.ids.context.clone(), task };
                    self.go_on(&turn)
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = result {
                // Nobody reads what went wrong on the way, so that must be the end.
                if !self.input.is_terminal {
                    return Err(failure);
                }
                self.screen.lines(&format!("error: {}\n", failure.message))?;
                if let Some(hint) = failure.hint {
                    self.screen.lines(&format!("hint: {hint}\n"))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What a conversation does with the end of a question: a question of the agent is shown, because the next line answers it.
    fn go_on(&mut self, turn: &Turn) -> Result<(), Failure> {
        if turn.state == State::InputRequired && turn.approval().is_none() {
            return self.screen.lines(&format!("{}\n", turn.said()));
        }
        outcome(turn, &self.options.command).map(|_| ())
    }
}

/// Cancels the task that runs, if the agent takes that in time. The command ends either way.
pub(super) async fn cancel<D: Dial>(peer: &Peer<D>, running: &Running) {
    let task = running.borrow_mut().take();
    if let Some(id) = task {
        // Nothing can be done about a task that cannot be cancelled.
        let _ = tokio::time::timeout(CANCEL_DEADLINE, peer.cancel(&id)).await;
    }
}

/// What a tool is to be called with, for people. The arguments are JSON in which nothing changes how a terminal looks.
pub(super) fn describe(approval: &Approval) -> String {
    let who = approval.agent.as_ref().map_or_else(|| "The agent".into(), |a| format!("Agent {a}"));
    let arguments = serde_json::to_string_pretty(&approval.arguments).unwrap_or_default();
    let arguments = escaped(&arguments).replace('\n', "\n    ");
    format!(
        "{} asks to call a tool:\n    server: {}\n    tool: {}\n    arguments: {arguments}\n",
        printable(&who),
        printable(&approval.server),
        printable(&approval.tool),
    )
}

/// How the command ends after a question. `command` is the command without its question.
pub(super) fn outcome(turn: &Turn, command: &str) -> Result<ExitCode, Failure> {
    let said = |what: &str| match turn.said() {
        "" => what.to_owned(),
        said => format!("{what}: {said}"),
    };
    // The agent chose it, and it becomes part of a command that is printed.
    let task = shell_word(&printable(turn.ids.task.as_deref().unwrap_or_default()));
    Err(match turn.state {
        State::Completed => return Ok(ExitCode::SUCCESS),
        State::Failed => Failure::new(FOUND, said("the agent failed")),
        State::Rejected => Failure::new(FOUND, said("the agent does not take the question")),
        State::Canceled => Failure::new(FOUND, said("the task was cancelled")),
        State::InputRequired => match turn.approval() {
            Some(Approval { server, tool, .. }) => Failure::new(
                WAITS,
                format!(
                    "the agent waits for an approval to call {}/{}, and there is no terminal to ask on",
                    printable(&server),
                    printable(&tool),
                ),
            )
            .hint(format!("decide on a terminal: {command} --task {task}; or refuse it: {command} --task {task} --deny")),
            None => Failure::new(WAITS, said("the agent asks"))
                .hint(format!("answer it: {command} --task {task} <answer>")),
        },
        State::AuthRequired => Failure::new(WAITS, said("the agent asks for credentials, which cannot be given here")),
        State::Unknown | State::Submitted | State::Working => {
            Failure::new(CLUSTER, format!("the agent ended its answer while the task is {}", turn.state.name()))
        }
    })
}

#[cfg(test)]
#[path = "tests/talk.rs"]
mod tests;
