//! `convoke check-scan`: says what of a scanner's report keeps an image from being built or pushed. A step of builds runs it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args as ClapArgs, ValueEnum};

use super::push_image::results;
use super::scan_report::{Judgement, Report, Rules, Severity, judge};
use super::{Failure, print};

/// Exit code: a lock file names a package with a known vulnerability.
const DEPENDENCY: u8 = 41;
/// Exit code: the image has a package with a known vulnerability.
const IMAGE: u8 = 42;
/// Exit code: the scan is not whole.
pub(super) const NOT_WHOLE: u8 = 43;
/// Bytes of the largest report. One of an image with a thousand findings has about 20 MiB.
const MAX_REPORT: u64 = 256 << 20;
/// Bytes of a finding in the result.
const MAX_RESULT: usize = 300;
/// The most findings that are printed.
const MAX_FINDINGS: usize = 50;

/// Check the report of a scan.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The report of osv-scanner, as JSON
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// What was scanned
    #[arg(long, value_name = "WHAT")]
    what: What,
    /// What is less bad does not count
    #[arg(long, value_name = "SEVERITY", default_value = "low")]
    minimum_severity: Severity,
    /// Leave out what has no fixed version
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    ignore_unfixed: bool,
    /// Folder that paths are shown relative to
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    root: String,
    /// File that gets the first finding
    #[arg(long, value_name = "FILE")]
    finding_file: Option<PathBuf>,
    /// Ids of vulnerabilities that do not count
    #[arg(value_name = "ID")]
    ignored: Vec<String>,
}

/// What was scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The lock files of a folder.
    Dependencies,
    /// An image.
    Image,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let report = read(&args)?;
    let rules = Rules {
        minimum: args.minimum_severity,
        ignore_unfixed: args.ignore_unfixed,
        ignored: args.ignored.into_iter().collect(),
        root: args.root,
    };
    let judgement = judge(&report, &rules);
    if judgement.findings.is_empty() {
        print(&format!("no known vulnerability counts{}\n", left_out(&judgement)))?;
        return Ok(ExitCode::SUCCESS);
    }
    tell(&judgement.findings, args.finding_file.as_ref());
    let (code, whose) = match args.what {
        What::Dependencies => (DEPENDENCY, "the lock files name packages with"),
        What::Image => (IMAGE, "the image has packages with"),
    };
    let found = judgement.findings.len();
    let known = if found == 1 {
        "1 known vulnerability".to_owned()
    } else {
        format!("{found} known vulnerabilities")
    };
    Err(Failure::new(code, format!("{whose} {known}{}", left_out(&judgement))))
}

/// Prints findings, and writes the first one into the result. What was found refuses also when nobody can be told of it.
pub(super) fn tell(findings: &[String], file: Option<&PathBuf>) {
    let mut lines: Vec<_> = findings.iter().take(MAX_FINDINGS).cloned().collect();
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    let first = findings.first().map(String::as_str).unwrap_or_default();
    let others = findings.len().saturating_sub(1);
    let others = if others == 0 { String::new() } else { format!(" (and {others} more)") };
    // Tekton has little room for results.
    let first = first.get(..first.floor_char_boundary(MAX_RESULT)).unwrap_or_default();
    if let Err(failure) = results(&[(&file.cloned(), &format!("{first}{others}"))]) {
        lines.push(failure.message);
    }
    let _ = print(&(lines.join("\n") + "\n"));
}

fn read(args: &Args) -> Result<Report, Failure> {
    let failure = |why: String| {
        Failure::new(NOT_WHOLE, format!("the report of the scan cannot be read: {why}"))
    };
    let file = File::open(&args.report).map_err(|error| failure(error.to_string()))?;
    Report::read(BufReader::new(file.take(MAX_REPORT))).map_err(|error| failure(error.to_string()))
}

/// What does not count, in words.
fn left_out(judgement: &Judgement) -> String {
    let Judgement { findings: _, below, unfixed, ignored } = *judgement;
    let parts =
        [(below, "less bad"), (unfixed, "without a fix"), (ignored, "ignored by the template")];
    let parts: Vec<_> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { String::new() } else { format!("; left out: {}", parts.join(", ")) }
}
