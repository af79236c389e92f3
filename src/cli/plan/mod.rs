//! `convoke plan [PATH] --against cluster|REF|DIR`: shows what a folder changes.

mod builds;
mod cluster;
mod inputs;
mod report;
mod templates;
mod upgrade;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};

use self::report::{Report, compare};
use super::context::ContextArgs;
use super::validate::{Loaded, load};
use super::{CHANGES, FOUND, Failure, USAGE, escaped, print};
use crate::api::git_sync::Severity;
use crate::definition::{Catalog, Limits, Loader, diagnostic};
use crate::git::{GitError, open_local};

/// Show what a folder changes.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with definitions (what spec.path of the GitSync names)
    #[arg(default_value = ".")]
    path: PathBuf,
    /// What to compare with: a branch, tag or commit; another folder; or `cluster`, as the operator would decide
    #[arg(long, default_value = "HEAD")]
    against: String,
    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Exit with 4 when there is anything to do
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    cluster: cluster::ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (report, broken) = if args.against == "cluster" {
        cluster::plan(&args.path, &args.context, &args.cluster)?
    } else {
        args.cluster.refuse()?;
        (offline(args)?, false)
    };
    print(&match args.output {
        Output::Text => report.text(),
        Output::Json => format!("{}\n", escaped(&report.json())),
    })?;
    Ok(if broken || report.summary.conflicts > 0 {
        ExitCode::from(FOUND)
    } else if args.exit_code && report.has_changes() {
        ExitCode::from(CHANGES)
    } else {
        ExitCode::SUCCESS
    })
}

/// Compares a folder with a Git ref or another folder.
fn offline(args: &Args) -> Result<Report, Failure> {
    let new = load(&args.path, |path| args.context.resolve(path))?;
    if print_errors(&new) {
        return Err(Failure::new(FOUND, "the folder has errors, so there is no plan")
            .hint("convoke validate shows warnings too"));
    }
    let (old, reference) = baseline(&args.against, &new)?;
    let mut report = compare(&old, &new.catalog);
    if let Some(reference) = reference {
        report.builds = builds::between(&new.root, reference, &old, &new.catalog);
    }
    Ok(report)
}

/// The definitions that `--against` names. A text that looks like a path is a folder. Any other text is a ref, or a folder if
/// there is no such ref. Gives the ref, too, if it is one.
fn baseline<'a>(against: &'a str, new: &Loaded) -> Result<(Catalog, Option<&'a str>), Failure> {
    let folder = Path::new(against);
    let like_a_path = [".", ".."].contains(&against)
        || ["./", "../", "/"].iter().any(|start| against.starts_with(start));
    if like_a_path {
        return Ok((load(folder, |path| Ok(new.at(path)))?.catalog, None));
    }
    match open_local(&new.root, against, &new.below, crate::git::Limits::default()) {
        Ok(tree) => Ok((Loader::new(Limits::default()).load(&tree, &new.context), Some(against))),
        // The commit does not have the folder, so everything in it is new.
        Err(GitError::PathMissing { .. }) => Ok((Catalog::default(), Some(against))),
        Err(_) if folder.is_dir() => Ok((load(folder, |path| Ok(new.at(path)))?.catalog, None)),
        Err(error) => Err(Failure::new(USAGE, format!("cannot read {against}: {error}"))
            .hint("name a branch, a tag, a commit, a folder (./folder), or cluster")),
    }
}

/// Prints the errors of a folder. Returns whether there are any.
pub(super) fn print_errors(loaded: &Loaded) -> bool {
    let problems = loaded.catalog.problems.iter();
    let errors: Vec<_> = problems.filter(|p| p.severity == Severity::Error).cloned().collect();
    if !errors.is_empty() {
        eprintln!("{}", diagnostic::render_text(&errors, Some(&loaded.folder)));
    }
    !errors.is_empty()
}
