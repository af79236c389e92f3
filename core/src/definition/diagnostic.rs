//! The codes of problems, and the text and JSON forms of problems.

use std::fmt::Write;

use super::tree::RepositoryTree;
use crate::api::common::LITERAL_SECRET;
use crate::api::git_sync::{Problem, Severity};
use crate::text::printable;

/// Largest file whose lines are shown, in bytes.
const MAX_SHOWN_FILE_BYTES: u64 = 1 << 20;
/// Longest line that is shown, in characters.
const MAX_SHOWN_LINE_CHARS: usize = 120;

/// The codes of problems. A code never changes its meaning.
pub mod code {
    /// The file is no YAML or JSON.
    pub const SYNTAX: &str = "CVK0001";
    /// A mapping has the same key twice.
    pub const DUPLICATE_KEY: &str = "CVK0002";
    /// YAML that is not accepted: merge keys, custom tags, keys that are no scalars, ambiguous numbers.
    pub const YAML: &str = "CVK0003";
    /// A budget is exceeded: size, depth, documents, nodes, files.
    pub const BUDGET: &str = "CVK0004";
    /// The file is not UTF-8.
    pub const ENCODING: &str = "CVK0005";
    /// A link, submodule, LFS pointer or odd entry.
    pub const ENTRY: &str = "CVK0006";
    /// The file cannot be read.
    pub const UNREADABLE: &str = "CVK0007";
    /// The path holds no definition at all.
    pub const EMPTY: &str = "CVK0008";
    /// A pattern of a `.convokeignore` file that cannot be used.
    pub const IGNORE: &str = "CVK0009";
    /// An `agent.md` whose front matter is missing or cannot be one.
    pub const FRONT_MATTER: &str = "CVK0010";
    /// The document is no object, or apiVersion or kind is missing.
    pub const NOT_AN_OBJECT: &str = "CVK0101";
    /// The group or version is almost ours, or one that does not exist.
    pub const API_VERSION: &str = "CVK0102";
    /// The kind does not exist, or may not be synced.
    pub const KIND: &str = "CVK0103";
    /// The name is missing or no DNS label.
    pub const NAME: &str = "CVK0104";
    /// Metadata that may not come from Git.
    pub const METADATA: &str = "CVK0105";
    /// The same object twice in the commit.
    pub const DUPLICATE_OBJECT: &str = "CVK0106";
    /// A field that does not exist.
    pub const UNKNOWN_FIELD: &str = "CVK0201";
    /// A required field is missing.
    pub const MISSING_FIELD: &str = "CVK0202";
    /// A value of the wrong type.
    pub const TYPE: &str = "CVK0203";
    /// A value that is not allowed.
    pub const VALUE: &str = "CVK0204";
    /// A rule over several fields is broken.
    pub const RULE: &str = "CVK0205";
    /// A `*File` field whose file cannot be used.
    pub const INCLUDE: &str = "CVK0206";
    /// A variable that does not exist, or does not fit where it stands.
    pub const VARIABLE: &str = "CVK0207";
    /// An image that does not begin with the namespace, where it must.
    pub const IMAGE_PATH: &str = "CVK0208";
    /// A reference to an object that is neither in the commit nor in the cluster (a warning).
    pub const REFERENCE: &str = "CVK0301";
    /// A package without a version (a warning).
    pub const UNPINNED: &str = "CVK0302";
    /// A model that the referenced ModelAPI does not serve (a warning).
    pub const MODEL: &str = "CVK0303";
    /// A field that only the image of an agent can keep (a warning).
    pub const LEFT_TO_IMAGE: &str = "CVK0304";
}

/// Errors first, then path, line, column, code.
pub fn sort(problems: &mut [Problem]) {
    problems.sort_by(|a, b| {
        (a.severity, &a.path, a.line, a.column, &a.code)
            .cmp(&(b.severity, &b.path, b.line, b.column, &b.code))
    });
}

/// Problems as text: place, message, the line with a mark below it, and the hint.
#[must_use]
pub fn render_text(problems: &[Problem], tree: Option<&dyn RepositoryTree>) -> String {
    let mut text = String::new();
    // Problems are sorted by file: each file is read once.
    let mut source: (Option<&str>, Vec<String>) = (None, Vec::new());
    for problem in problems {
        if problem.path.is_some() && source.0 != problem.path.as_deref() {
            source = (problem.path.as_deref(), lines(problem, tree));
        }
        let word = match problem.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let message = printable(&problem.message);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}{word}[{}]: {message}", place(problem), problem.code);
        if let Some(line) = source_line(problem, &source.1) {
            let number = problem.line.unwrap_or(0);
            let mark = usize::try_from(problem.column.unwrap_or(1)).unwrap_or(1).saturating_sub(1);
            let _ = writeln!(text, "{number:>5} | {line}\n      | {}^", " ".repeat(mark));
        }
        if let Some(hint) = &problem.hint {
            let _ = writeln!(text, "      = hint: {}", printable(hint));
        }
    }
    text
}

fn place(problem: &Problem) -> String {
    let mut text = String::new();
    if let Some(path) = &problem.path {
        text.push_str(&printable(path));
        for number in [problem.line, problem.column].into_iter().flatten() {
            let _ = write!(text, ":{number}");
        }
        text.push_str(": ");
    }
    text
}

/// The lines of a problem's file, as far as it can be read.
fn lines(problem: &Problem, tree: Option<&dyn RepositoryTree>) -> Vec<String> {
    let read = || {
        let (tree, path) = (tree?, problem.path.as_deref()?);
        let entry = tree.lookup(path).ok()??;
        let data = tree.read(&entry, MAX_SHOWN_FILE_BYTES).ok()?;
        let text = std::str::from_utf8(&data).ok()?;
        // A byte order mark at the start of the file does not count as a column.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Some(text.lines().map(str::to_owned).collect())
    };
    read().unwrap_or_default()
}

/// The line of a problem. `None` when it is too long to be shown, or holds a secret.
fn source_line(problem: &Problem, lines: &[String]) -> Option<String> {
    if problem.message == LITERAL_SECRET {
        return None;
    }
    let line = lines.get(usize::try_from(problem.line?).ok()?.checked_sub(1)?)?;
    (line.chars().count() <= MAX_SHOWN_LINE_CHARS).then(|| printable(line))
}

/// Problems as a JSON array.
#[must_use]
pub fn render_json(problems: &[Problem]) -> String {
    // Problems are plain data: writing them cannot fail.
    serde_json::to_string_pretty(problems).unwrap_or_default()
}
