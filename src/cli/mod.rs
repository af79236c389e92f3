//! The command line, with one file for each command. No other code prints.
//!
//! Exit codes: 0 success, 1 problems were found, 2 wrong usage, 3 the cluster or a remote could not be reached or has refused,
//! 4 there are changes (only with `plan --exit-code`), 5 an agent waits for a person (only `ask`), 130 Ctrl-C (only `ask`).
//! `push-image`, `push-layers`, `fetch-layers`, `append-image`, `copy-image`, `export-image`, `check-scan`, `check-lock-file`, `check-sbom`, `describe-image` and
//! `check-policy` have those of steps of builds (`deploy/pipelines/README.md`).

mod append_image;
mod approve;
mod ask;
mod builds;
mod check_lock_file;
mod check_policy;
mod check_sbom;
mod check_scan;
mod completions;
mod connection;
mod context;
mod copy_image;
mod crds;
mod describe_image;
mod export_image;
mod init;
mod layer_cache;
mod lock_file;
mod logs;
mod operator;
mod plan;
mod pods;
mod push_image;
mod render;
mod sbom;
mod scan_report;
mod templates;
mod terminal;
mod trace;
mod validate;
mod verify;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use convoke_core::text::{is_invisible, printable};
use convoke_core::time::parse_duration;

/// Exit code: problems were found.
pub const FOUND: u8 = 1;
/// Exit code: the command was used wrongly.
pub const USAGE: u8 = 2;
/// Exit code: the cluster or a remote could not be reached.
pub const CLUSTER: u8 = 3;
/// Exit code: there is something to do (`plan --exit-code`).
pub const CHANGES: u8 = 4;
/// Exit code: an agent waits for an approval or an answer that nobody could give.
pub const WAITS: u8 = 5;
/// Exit code: Ctrl-C, as shells count it.
pub const INTERRUPTED: u8 = 130;

/// Run AI agents on Kubernetes from a Git repository.
#[derive(Debug, Parser)]
#[command(name = "convoke", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator against the cluster of $KUBECONFIG or of the pod
    Operator(Box<operator::Args>),
    /// Print what a namespace needs so that it is synced from a repository
    Init(Box<init::Args>),
    /// Check the definitions of a folder, without a cluster
    Validate(validate::Args),
    /// Show what the definitions of a folder change against a Git ref, another folder, or the cluster
    Plan(plan::Args),
    /// Release the deletes that the prune brake holds
    Approve(approve::Args),
    /// Ask an agent a question, and show its answer as it arrives
    Ask(ask::Args),
    /// Show the logs of the pods of an agent, a model API or a tool server, or of a build
    Logs(logs::Args),
    /// Build an image once more, whatever was built before
    Rebuild(builds::Args),
    /// Stop the build that runs or waits
    Cancel(builds::Args),
    /// Show where the newest commit of an agent or a tool server is, from Git to its pods
    Trace(trace::Args),
    /// Verify the provenance of an image that was built
    Verify(Box<verify::Args>),
    /// Push an image from an OCI image layout to its registry; a step of builds does it
    #[command(hide = true)]
    PushImage(Box<push_image::Args>),
    /// Keep the layers of a build in its registry; a step of builds does it
    #[command(hide = true)]
    PushLayers(Box<layer_cache::Push>),
    /// Fetch the layers that a build has kept; a step of builds does it
    #[command(hide = true)]
    FetchLayers(Box<layer_cache::Fetch>),
    /// Append a folder to a base image, and push the image; a step of builds does it
    #[command(hide = true)]
    AppendImage(Box<append_image::Args>),
    /// Write an image from an OCI image layout as an archive for a scanner; a step of builds does it
    #[command(hide = true)]
    ExportImage(export_image::Args),
    /// Copy an image from an OCI image layout into a new one; a step of builds does it
    #[command(hide = true)]
    CopyImage(copy_image::Args),
    /// Say what of a scanner's report counts; a step of builds does it
    #[command(hide = true)]
    CheckScan(Box<check_scan::Args>),
    /// Check a lock file of pip, and write what pip is to install; a step of builds does it
    #[command(hide = true)]
    CheckLockFile(check_lock_file::Args),
    /// Take the list of packages that a scanner has made; a step of builds does it
    #[command(hide = true)]
    CheckSbom(check_sbom::Args),
    /// Write what rules see of an image; a step of builds does it
    #[command(hide = true)]
    DescribeImage(Box<describe_image::Args>),
    /// Say which rules an image breaks; a step of builds does it
    #[command(hide = true)]
    CheckPolicy(check_policy::Args),
    /// Print the plain form of the definitions of a folder
    Render(render::Args),
    /// Print all custom resource definitions as YAML
    Crds,
    /// Print the completions of a shell
    Completions(completions::Args),
    /// Print the version
    Version,
}

/// The error that ends a command.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
    /// Another try may soon be better.
    may_pass: bool,
    /// The right that is missing: `get pods`.
    lacks: Option<String>,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, may_pass: false, lacks: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Runs one command.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Operator(args) => operator::run(*args),
        Command::Init(args) => init::run(*args),
        Command::Validate(args) => validate::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Approve(args) => approve::run(&args),
        Command::Ask(args) => ask::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Rebuild(args) => builds::rebuild(&args),
        Command::Cancel(args) => builds::cancel(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Verify(args) => verify::run(*args),
        Command::PushImage(args) => push_image::run(*args),
        Command::PushLayers(args) => layer_cache::push(*args),
        Command::FetchLayers(args) => layer_cache::fetch(*args),
        Command::AppendImage(args) => append_image::run(&args),
        Command::ExportImage(args) => export_image::run(&args),
        Command::CopyImage(args) => copy_image::run(&args),
        Command::CheckScan(args) => check_scan::run(*args),
        Command::CheckLockFile(args) => check_lock_file::run(&args),
        Command::CheckSbom(args) => check_sbom::run(&args),
        Command::DescribeImage(args) => describe_image::run(&args),
        Command::CheckPolicy(args) => check_policy::run(&args),
        Command::Render(args) => render::run(&args),
        Command::Crds => crds::run(),
        Command::Completions(args) => completions::run(&args),
        Command::Version => print(&format!("convoke {}\n", env!("CARGO_PKG_VERSION"))),
    };
    match result {
        Ok(code) => code,
        Err(Failure { code, message, hint, may_pass: _, lacks: _ }) => {
            // The message may quote a server.
            let shown = |text: &str| text.lines().map(printable).collect::<Vec<_>>().join("\n");
            eprintln!("error: {}", shown(&message));
            if let Some(hint) = hint {
                eprintln!("hint: {}", shown(&hint));
            }
            ExitCode::from(code)
        }
    }
}

/// A number with a noun: `1 file`, `2 files`.
fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Parses a duration of the command line: `90s`, `5m`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write it like 90s, 5m or 1h30m".to_owned())
}

/// Escapes control characters and invisible characters in JSON. The JSON means the same, and is safe to show on a terminal.
fn escaped(json: &str) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && (c.is_control() || is_invisible(c)) {
            // JSON has such characters only in strings. Writing to a String cannot fail.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Writes to standard output. It is no error if the reader has ended (`convoke crds | head`).
fn print(text: &str) -> Result<ExitCode, Failure> {
    use std::io::Write;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(CLUSTER, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
