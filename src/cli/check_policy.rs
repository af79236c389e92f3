//! `convoke check-policy`: says which rules an image breaks, from what Open Policy Agent has found. A step of builds runs it.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde::Deserialize;
use serde_json::Value;

use super::check_scan::{NOT_WHOLE, tell};
use super::{Failure, print};
use convoke_core::text::printable;

/// Exit code: the image breaks a rule.
const BROKEN: u8 = 44;
/// Bytes of the largest report.
const MAX_REPORT: u64 = 16 << 20;
/// Errors of the rules that are told.
const MAX_ERRORS: usize = 5;

/// Check the report of the rules.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// What `opa eval --format json` has printed for the set of messages
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// File that gets the first message
    #[arg(long, value_name = "FILE")]
    finding_file: Option<PathBuf>,
}

/// What `opa eval` prints.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    result: Vec<Answer>,
    #[serde(default)]
    errors: Vec<Value>,
}

#[derive(Deserialize)]
struct Answer {
    expressions: Vec<Expression>,
}

#[derive(Deserialize)]
struct Expression {
    value: Value,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let broken = read(args).and_then(|bytes| judged(&bytes));
    let broken = broken.map_err(|why| {
        let why = format!("the rules cannot be used: {why}");
        tell(std::slice::from_ref(&why), args.finding_file.as_ref());
        Failure::new(NOT_WHOLE, why)
    })?;
    if broken.is_empty() {
        return print("the image breaks no rule\n");
    }
    tell(&broken, args.finding_file.as_ref());
    Err(Failure::new(BROKEN, format!("the image breaks {}", super::count(broken.len(), "rule"))))
}

fn read(args: &Args) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("their report cannot be read: {error}");
    let file = File::open(&args.report).map_err(wrong)?;
    let mut bytes = Vec::new();
    file.take(MAX_REPORT + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > MAX_REPORT {
        return Err(format!("their report has more than {} MiB", MAX_REPORT >> 20));
    }
    Ok(bytes)
}

/// The messages of the rules that are broken, each one line. Whatever is not clear is an error.
fn judged(report: &[u8]) -> Result<Vec<String>, String> {
    let report: Report = serde_json::from_slice(report)
        .map_err(|error| format!("their report is not what opa prints: {error}"))?;
    if !report.errors.is_empty() {
        let all: Vec<_> = report.errors.iter().take(MAX_ERRORS).map(error).collect();
        return Err(all.join("; "));
    }
    let [Answer { expressions }] = report.result.as_slice() else {
        return Err("there is no rule `deny` in the package `convoke`".into());
    };
    let [Expression { value: Value::Array(messages) }] = expressions.as_slice() else {
        return Err("`deny` is no set: write `deny contains message if { … }`".into());
    };
    let one = |message: &Value| match message {
        Value::String(text) if !text.trim().is_empty() => Ok(line(text)),
        _ => Err("`deny` contains something that is no text".to_owned()),
    };
    let mut messages: Vec<_> = messages.iter().map(one).collect::<Result<_, _>>()?;
    // opa has them in an order of its own.
    messages.sort();
    Ok(messages)
}

/// An error, with its place in the rules.
fn error(error: &Value) -> String {
    let message = line(error["message"].as_str().unwrap_or("an error without a message"));
    match error["location"]["row"].as_u64() {
        Some(row) => format!("line {row}: {message}"),
        None => message,
    }
}

/// A text as one line.
fn line(text: &str) -> String {
    printable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "tests/check_policy.rs"]
mod tests;
