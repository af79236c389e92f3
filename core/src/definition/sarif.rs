//! Problems as SARIF 2.1.0, the format that editors and the code scanning of Git hosts read.
//!
//! Only what is used of the format is typed here (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>).

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::rules::{RULES, Rule};
use crate::api::git_sync::{Problem, Severity};

/// The name of the repository root, which the reader replaces by a path.
const BASE: &str = "%SRCROOT%";

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Tool,
    /// Columns count characters, not UTF-16 units.
    column_kind: &'static str,
    original_uri_base_ids: BTreeMap<&'static str, Base>,
    results: Vec<Finding<'a>>,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    semantic_version: &'static str,
    information_uri: &'static str,
    rules: Vec<Descriptor>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    id: &'static str,
    short_description: Message<'static>,
    help_uri: String,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Configuration {
    level: &'static str,
}

/// The repository root, without its absolute path: that belongs to one machine.
#[derive(Serialize)]
struct Base {
    description: Message<'static>,
}

#[derive(Serialize)]
struct Message<'a> {
    text: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding<'a> {
    rule_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_index: Option<usize>,
    level: &'static str,
    message: Message<'a>,
    locations: [Location<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location<'a> {
    physical_location: PhysicalLocation,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logical_locations: Vec<LogicalLocation<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLocation {
    uri: String,
    uri_base_id: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_column: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation<'a> {
    fully_qualified_name: &'a str,
    kind: &'static str,
}

/// One run with these problems of a folder, as indented JSON. All rules are listed, also those without a problem.
#[must_use]
pub fn render(problems: &[Problem], folder: &str) -> String {
    let base = Base { description: Message { text: "The root of the repository.".into() } };
    let run = Run {
        tool: Tool {
            driver: Driver {
                name: "convoke",
                semantic_version: env!("CARGO_PKG_VERSION"),
                information_uri: env!("CARGO_PKG_REPOSITORY"),
                rules: RULES.iter().map(descriptor).collect(),
            },
        },
        column_kind: "unicodeCodePoints",
        original_uri_base_ids: BTreeMap::from([(BASE, base)]),
        results: problems.iter().map(|problem| finding(problem, folder)).collect(),
    };
    let log = Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [run],
    };
    // Plain data with string keys: writing it cannot fail.
    serde_json::to_string_pretty(&log).unwrap_or_default()
}

fn descriptor(rule: &Rule) -> Descriptor {
    Descriptor {
        id: rule.code,
        short_description: Message { text: rule.meaning.into() },
        help_uri: concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/problems.md").into(),
        default_configuration: Configuration { level: level(rule.severity) },
    }
}

fn finding<'a>(problem: &'a Problem, folder: &str) -> Finding<'a> {
    let text = match &problem.hint {
        Some(hint) => format!("{}\nHint: {hint}", problem.message).into(),
        None => problem.message.as_str().into(),
    };
    Finding {
        rule_id: &problem.code,
        rule_index: RULES.iter().position(|rule| rule.code == problem.code),
        level: level(problem.severity),
        message: Message { text },
        locations: [location(problem, folder)],
    }
}

/// The location of a problem. Code scanning takes no finding without a file and a line: a problem without a file is located
/// in the folder, and one without a line in the first line.
fn location<'a>(problem: &'a Problem, folder: &str) -> Location<'a> {
    let path = problem.path.as_deref().unwrap_or(folder);
    let (start_line, start_column) =
        problem.line.map_or((1, Some(1)), |line| (line, problem.column));
    let object = problem.object.as_deref();
    let logical = object.map(|name| LogicalLocation { fully_qualified_name: name, kind: "object" });
    Location {
        physical_location: PhysicalLocation {
            artifact_location: ArtifactLocation { uri: relative_uri(path), uri_base_id: BASE },
            region: Region { start_line, start_column },
        },
        logical_locations: logical.into_iter().collect(),
    }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// A path as a relative reference (RFC 3986): everything but unreserved characters and `/` is escaped.
fn relative_uri(path: &str) -> String {
    path.bytes().fold(String::with_capacity(path.len()), |mut uri, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
        uri
    })
}

#[cfg(test)]
#[path = "tests/sarif.rs"]
mod tests;
