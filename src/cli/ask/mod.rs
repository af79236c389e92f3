//! `convoke ask agent/NAME QUESTION`: asks an agent, and shows its answer as it arrives.
//!
//! ```text
//! mod ─► talk ─► rpc ─► http ─► forward ─► a port of a Ready pod
//!          │       └─► sse, a2a, chat (pure)
//!          └─► turn (pure)
//! ```

mod a2a;
mod chat;
mod forward;
mod http;
mod rpc;
mod sse;
mod talk;
mod turn;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};

use self::a2a::Ids;
use self::forward::Forward;
use self::rpc::Peer;
use self::talk::{Options, Talk, cancel, outcome};
use super::connection::{Connection, ConnectionArgs, block_on};
use super::pods::Workload;
use super::terminal::{Input, Screen, all_of_stdin};
use super::{Failure, INTERRUPTED, USAGE, duration, escaped, print};
use crate::api::Kind;
use convoke_core::text::shell_word;

/// Ask an agent a question.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The agent: agent/NAME or NAME
    agent: String,
    /// The question; `-` reads it from standard input
    question: Option<String>,
    /// Hold a conversation: read questions line by line, until the end of the input or /quit
    #[arg(short, long)]
    interactive: bool,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// How long the agent may take for a question
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// Go on with this conversation
    #[arg(long, value_name = "ID")]
    context_id: Option<String>,
    /// Go on with this task, which waits for an answer or an approval
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Deny every call of a tool that asks for an approval
    #[arg(long)]
    deny: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The answer, as it arrives
    Text,
    /// One object at the end: answer, contextId, taskId, state, events
    Json,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let agent = Workload::parse(&args.agent, Some(Kind::Agent))?;
    if agent.kind != Kind::Agent {
        return Err(Failure::new(USAGE, "only agents can be asked").hint("name one: agent/NAME"));
    }
    let question = question(args)?;
    block_on(ask(args, &agent, question))
}

/// The question of the arguments. There is none with `-i`, nor when a task goes on.
fn question(args: &Args) -> Result<Option<String>, Failure> {
    let refused = |why: &str| Err(Failure::new(USAGE, why));
    let question = match (&args.question, args.interactive) {
        (Some(_), true) => return refused("-i reads the questions from standard input"),
        (None, true) if args.output == Output::Json => {
            return refused("-o json is for one question, not for a conversation");
        }
        (None, true) => return Ok(None),
        (None, false) if args.task.is_some() => return Ok(None),
        (None, false) => {
            return Err(Failure::new(USAGE, "the question is missing")
                .hint("write it behind the agent, read it from standard input with -, or hold a conversation with -i"));
        }
        (Some(text), false) if text == "-" => all_of_stdin()?,
        (Some(text), false) => text.clone(),
    };
    if question.trim().is_empty() { refused("the question is empty") } else { Ok(Some(question)) }
}

async fn ask(args: &Args, agent: &Workload, question: Option<String>) -> Result<ExitCode, Failure> {
    let connection = Connection::open_for_upgrades(&args.connection).await?;
    let peer = Peer::find(Forward::find(&connection, agent).await?).await?;
    let running = RefCell::new(None);
    let options = Options {
        quiet: args.output == Output::Json,
        deny: args.deny,
        timeout: args.timeout,
        command: command(&args.connection, &connection.namespace, &agent.name),
    };
    let (screen, input) = (Screen::new(), Input::new()?);
    let mut talk = Talk { peer: &peer, running: &running, screen, input, options };
    let ids = Ids { context: args.context_id.clone(), task: args.task.clone() };
    let work = async {
        if args.interactive {
            return talk.converse(ids).await;
        }
        let turn = talk.turn(question, ids).await?;
        if args.output == Output::Json {
            print(&format!("{}\n", escaped(&turn.json().to_string())))?;
        }
        outcome(&turn, &talk.options.command)
    };
    tokio::select! {
        result = work => return result,
        () = interrupted() => {}
    }
    // Whoever is in a hurry does not wait for the agent.
    tokio::select! {
        () = cancel(&peer, &running) => {}
        () = interrupted() => {}
    }
    Ok(ExitCode::from(INTERRUPTED))
}

/// The command without its question, for hints.
fn command(args: &ConnectionArgs, namespace: &str, agent: &str) -> String {
    let context = args.context.as_deref().map(|name| format!(" --context {}", shell_word(name)));
    let (context, namespace) = (context.unwrap_or_default(), shell_word(namespace));
    format!("convoke ask{context} -n {namespace} agent/{}", shell_word(agent))
}

/// Waits for Ctrl-C.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // The signal cannot be waited for, so it ends the process as usual.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_a_printed_command_asks_the_same_agent_of_the_same_cluster() {
        let args = |context: Option<&str>| ConnectionArgs {
            namespace: None,
            context: context.map(ToOwned::to_owned),
        };
        assert_eq!(command(&args(None), "team", "a"), "convoke ask -n team agent/a");
        assert_eq!(
            command(&args(Some("test; x")), "$team", "a"),
            "convoke ask --context 'test; x' -n '$team' agent/a"
        );
    }
}
