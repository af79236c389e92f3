//! `convoke trace agent/NAME`: where the newest commit is, from Git to the pods; of a build, to its image. One row
//! a stage, and one sentence.

mod facts;
mod read;
mod show;
mod verdict;

use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use self::facts::{Seen, Trace};
use self::verdict::{Verdict, verdict};
use super::builds::{self, of_build_namespace};
use super::connection::{Connection, ConnectionArgs, block_on};
use super::pods::{Workload, who_gives_rights};
use super::{CLUSTER, FOUND, Failure, USAGE, escaped, print};
use crate::api::Kind;

/// Show where the newest commit is.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What is traced: agent/NAME, mcpserver/NAME or build/NAME
    object: String,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// What `-o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    verdict: &'a Verdict,
    #[serde(flatten)]
    trace: &'a Trace,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let workload = match builds::name_of(&args.object) {
        Some(name) => Workload { kind: Kind::AgentBuild, name: name?.to_owned() },
        None => Workload::parse(&args.object, Some(Kind::Agent))?,
    };
    if workload.kind == Kind::ModelAPI {
        let message = "a ModelAPI runs no image that is built from a commit";
        return Err(
            Failure::new(USAGE, message).hint("name an agent, an mcpserver or a build: agent/NAME")
        );
    }
    block_on(async {
        let connection = Connection::open(&args.connection).await?;
        let trace = read::trace(&connection, &workload).await?;
        let verdict = verdict(&trace);
        print(&match args.output {
            Output::Text => show::text(&trace, &verdict, Timestamp::now()),
            Output::Json => json(&trace, &verdict),
        })?;
        if lacks_rights(&trace) {
            eprintln!("hint: {}", who_gives_rights(&trace.namespace));
        }
        if let Some(at) = unread_elsewhere(&trace) {
            eprintln!("hint: {}", of_build_namespace(at));
        }
        Ok(match verdict.runs {
            Some(true) => ExitCode::SUCCESS,
            Some(false) => ExitCode::from(FOUND),
            None => ExitCode::from(CLUSTER),
        })
    })
}

fn json(trace: &Trace, verdict: &Verdict) -> String {
    // Plain data with string keys can always be serialized.
    let text = serde_json::to_string_pretty(&Report { verdict, trace }).unwrap_or_default();
    format!("{}\n", escaped(&text))
}

/// Whether a stage may not be read.
fn lacks_rights(trace: &Trace) -> bool {
    let Trace { git_sync, build, deployment, pods, .. } = trace;
    let runs = build.as_ref().and_then(Seen::known).and_then(|build| build.pipeline_run.as_ref());
    git_sync.as_ref().and_then(Seen::refused).is_some()
        || build.as_ref().and_then(Seen::refused).is_some()
        || runs.is_some_and(|run| run.state.is_none() && run.namespace.is_none())
        || deployment.refused().is_some()
        || pods.refused().is_some()
}

/// The namespace of a PipelineRun that may not be read, if it is not that of the AgentBuild.
fn unread_elsewhere(trace: &Trace) -> Option<&str> {
    let build = trace.build.as_ref().and_then(Seen::known)?;
    let run = build.pipeline_run.as_ref().filter(|run| run.state.is_none())?;
    run.namespace.as_deref()
}
