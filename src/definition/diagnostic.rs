//! Problems with a place: stable codes, hints, order, and how they are shown.
//!
//! A message quotes at most 80 characters of a name that the user wrote, never a value that could be a
//! secret, and never what an included file holds.

use std::fmt::{self, Write as _};

use crate::api::git_sync::{Problem, Severity};

use super::node::Position;
use super::tree::RepositoryTree;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Stable code of a problem. A code is never given another meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As written in a problem (`CVK0123`).
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// A file is larger than allowed.
    FileTooLarge = "CVK0001",
    /// A file or an entry could not be read.
    Unreadable = "CVK0002",
    /// A file is not UTF-8.
    NotUtf8 = "CVK0003",
    /// A file holds a control character.
    ControlCharacter = "CVK0004",
    /// A symbolic link lies below the synced path.
    Symlink = "CVK0005",
    /// A submodule lies below the synced path.
    Submodule = "CVK0006",
    /// An entry below the synced path is neither file nor folder.
    OddEntry = "CVK0007",
    /// A file is a Git LFS pointer instead of its content.
    LfsPointer = "CVK0008",
    /// The walk left something out: a budget (files, bytes, depth) was exceeded, or it could not be listed.
    LeftOut = "CVK0009",
    /// A file holds too many documents.
    TooManyDocuments = "CVK0010",
    /// Nothing lies below the synced path, or it does not exist.
    EmptyTree = "CVK0011",
    /// A file has more problems than are listed.
    MoreProblems = "CVK0012",
    /// The file is not valid YAML (or JSON).
    Syntax = "CVK0101",
    /// A key is given twice in one object.
    DuplicateKey = "CVK0102",
    /// A merge key (`<<`) is used.
    MergeKey = "CVK0103",
    /// A custom tag (`!something`) is used, or a tag does not fit its value.
    Tag = "CVK0104",
    /// An alias names no anchor, or itself.
    Alias = "CVK0105",
    /// A document is nested too deeply or grows too large.
    YamlBudget = "CVK0106",
    /// A number is not finite, too large, or ambiguous.
    Number = "CVK0107",
    /// A key is not a plain name.
    Key = "CVK0108",
    /// A document is no object.
    NotAnObject = "CVK0201",
    /// `apiVersion` or `kind` is missing or no string.
    NoApiVersionOrKind = "CVK0202",
    /// `apiVersion` looks like ours but isn't.
    NearMiss = "CVK0203",
    /// A version of our group that does not exist.
    UnknownVersion = "CVK0204",
    /// A kind of our group that does not exist.
    UnknownKind = "CVK0205",
    /// A list of objects instead of documents.
    List = "CVK0206",
    /// A kind of ours that may not come from a repository.
    KindNotSynced = "CVK0207",
    /// `metadata.name` is missing or no string.
    NoName = "CVK0208",
    /// `metadata.name` is no DNS label.
    BadName = "CVK0209",
    /// `metadata.namespace` is not the namespace of the `GitSync`.
    OtherNamespace = "CVK0210",
    /// A metadata field that only a server or another object's owner sets.
    ServerField = "CVK0211",
    /// A metadata field that does not exist.
    UnknownMetadata = "CVK0212",
    /// A label or annotation under `convoke.dev/`.
    ReservedKey = "CVK0213",
    /// A label or annotation is malformed.
    BadLabel = "CVK0214",
    /// A status in Git.
    StatusInGit = "CVK0215",
    /// The same kind and name in two documents.
    DuplicateObject = "CVK0216",
    /// A value of the wrong type.
    WrongType = "CVK0301",
    /// A field that does not exist.
    UnknownField = "CVK0302",
    /// A required field is missing.
    MissingField = "CVK0303",
    /// A value that is none of the allowed ones.
    NotAllowed = "CVK0304",
    /// A number out of range.
    OutOfRange = "CVK0305",
    /// A string, list or object that is too short or too long.
    WrongSize = "CVK0306",
    /// A string of the wrong form.
    WrongForm = "CVK0307",
    /// A list item given twice.
    DuplicateItem = "CVK0308",
    /// A field without a value.
    NullValue = "CVK0309",
    /// A rule of the kind is broken.
    Rule = "CVK0310",
    /// The schema accepts what the type cannot hold.
    DoesNotFit = "CVK0311",
    /// A field and its `…File` form are both given.
    BothForms = "CVK0401",
    /// An included file does not exist.
    IncludeMissing = "CVK0402",
    /// The path of an included file is malformed or leaves the repository.
    IncludePath = "CVK0403",
    /// An included file is a link, a submodule or no file.
    IncludeNotAFile = "CVK0404",
    /// An included file is too large.
    IncludeTooLarge = "CVK0405",
    /// An included file is not UTF-8 text, or a Git LFS pointer.
    IncludeNotText = "CVK0406",
    /// Warning: an object that is referred to is neither in the commit nor in the cluster.
    UnresolvedReference = "CVK0501",
    /// Warning: a package without a version.
    UnpinnedPackage = "CVK0502",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Most characters of a user's name that a message quotes.
const MAX_QUOTE: usize = 80;

/// Cuts what a user wrote to at most 80 characters, and makes it one visible line.
pub(super) fn clip(text: &str) -> String {
    let mut out: String = text.chars().take(MAX_QUOTE).map(visible).collect();
    if text.chars().nth(MAX_QUOTE).is_some() {
        out.pop();
        out.push('…');
    }
    out
}

/// Control characters and those that reorder text would let a file write on a reader's terminal.
fn visible(c: char) -> char {
    let reorders =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || reorders { '\u{fffd}' } else { c }
}

/// The candidate that was probably meant, if one is near.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // The distance is quadratic in the length: nobody mistypes a name of hundreds of characters.
    if word.len() > 128 {
        return None;
    }
    let lower = word.to_lowercase();
    let allowed = (lower.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 256)
        .map(|candidate| {
            (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// "did you mean …" for the nearest candidate.
pub(super) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest(word, candidates).map(|name| format!("did you mean `{name}`?"))
}

/// A problem at a place of a file.
pub(super) fn problem(
    severity: Severity,
    path: &str,
    at: Option<Position>,
    code: Code,
    message: impl Into<String>,
    hint: Option<String>,
) -> Problem {
    Problem {
        severity,
        path: Some(path.to_owned()),
        line: at.map(|at| i64::from(at.line)),
        column: at.map(|at| i64::from(at.column)),
        code: code.as_str().to_owned(),
        message: message.into(),
        hint,
        object: None,
    }
}

/// Collects the problems of one file, up to a cap; beyond it they are only counted.
pub(super) struct Sink<'a> {
    path: &'a str,
    /// `Kind/name` of the document at hand.
    pub object: Option<String>,
    problems: Vec<Problem>,
    errors: usize,
    cap: usize,
    more: usize,
}

impl<'a> Sink<'a> {
    pub fn new(path: &'a str, cap: usize) -> Self {
        Self { path, object: None, problems: Vec::new(), errors: 0, cap, more: 0 }
    }

    pub fn error(
        &mut self,
        at: Position,
        code: Code,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.errors += 1;
        self.push(problem(Severity::Error, self.path, Some(at), code, message, hint));
    }

    /// An error of the whole file.
    pub fn file_error(&mut self, code: Code, message: impl Into<String>, hint: Option<String>) {
        self.errors += 1;
        self.push(problem(Severity::Error, self.path, None, code, message, hint));
    }

    pub fn warning(
        &mut self,
        at: Position,
        code: Code,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.push(problem(Severity::Warning, self.path, Some(at), code, message, hint));
    }

    /// How many errors there are so far, listed or not.
    pub fn errors(&self) -> usize {
        self.errors
    }

    fn push(&mut self, mut problem: Problem) {
        if self.problems.len() >= self.cap {
            self.more += 1;
            return;
        }
        problem.object.clone_from(&self.object);
        // Two aliases of one broken node would say the same twice.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub fn finish(mut self) -> Vec<Problem> {
        if self.more > 0 {
            let message = format!("{} more problems in this file are not listed", self.more);
            self.problems.push(problem(
                Severity::Error,
                self.path,
                None,
                Code::MoreProblems,
                message,
                None,
            ));
        }
        self.problems
    }
}

/// Puts problems into the order in which they are shown: errors first, then by path, line, column and code.
pub fn sort(problems: &mut [Problem]) {
    problems.sort_by(|a, b| {
        (a.severity, &a.path, a.line, a.column, &a.code, &a.message)
            .cmp(&(b.severity, &b.path, b.line, b.column, &b.code, &b.message))
    });
}

/// Problems as text for people: `path:line:column: error[CVK0123]: message`, the line itself when there is
/// a tree to read it from, and the hint. No colours, one blank line between two problems.
#[must_use]
pub fn render_text(problems: &[Problem], tree: Option<&dyn RepositoryTree>) -> String {
    let mut out = String::new();
    let mut open: Option<(&str, Option<String>)> = None;
    for (index, problem) in problems.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = write_problem(&mut out, problem);
        if let (Some(path), Some(line)) = (problem.path.as_deref(), problem.line) {
            if open.as_ref().is_none_or(|(name, _)| *name != path) {
                open = Some((path, tree.and_then(|tree| read_source(tree, path))));
            }
            if let Some((_, Some(text))) = &open {
                let _ = write_snippet(&mut out, text, line, problem.column.unwrap_or(1));
            }
        }
        if let Some(hint) = &problem.hint {
            let _ = writeln!(out, "  hint: {}", one_line(hint));
        }
    }
    out
}

/// The text of a file with a problem; what is wrong with it is known already, so errors do not count.
fn read_source(tree: &dyn RepositoryTree, path: &str) -> Option<String> {
    /// Only files within the default budget get a snippet.
    const MAX_BYTES: u64 = 1024 * 1024;
    let entry = tree.lookup(path).ok()??;
    let content = tree.read(&entry, MAX_BYTES).ok()?;
    std::str::from_utf8(&content).ok().map(str::to_owned)
}

/// One problem on one line, without hint or snippet: for logs and events.
#[must_use]
pub fn render_line(problem: &Problem) -> String {
    let mut out = String::new();
    let _ = write_problem(&mut out, problem);
    out.truncate(out.trim_end().len());
    out
}

/// Problems as a JSON array, in the fields of a `GitSync`'s `status.problems`.
#[must_use]
pub fn render_json(problems: &[Problem]) -> String {
    // A list of plain strings and numbers always serialises.
    serde_json::to_string_pretty(problems).unwrap_or_else(|_| "[]".to_owned())
}

fn one_line(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn write_problem(out: &mut String, problem: &Problem) -> fmt::Result {
    if let Some(path) = &problem.path {
        write!(out, "{}:", one_line(path))?;
        if let Some(line) = problem.line {
            write!(out, "{line}:")?;
            if let Some(column) = problem.column {
                write!(out, "{column}:")?;
            }
        }
        out.push(' ');
    }
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    writeln!(out, "{severity}[{}]: {}", problem.code, one_line(&problem.message))
}

/// The line with a caret below the column. A long line is cut around the caret.
fn write_snippet(out: &mut String, text: &str, line: i64, column: i64) -> fmt::Result {
    const WIDTH: usize = 100;
    let (Ok(index), Ok(column)) = (usize::try_from(line - 1), usize::try_from(column - 1)) else {
        return Ok(());
    };
    let Some(content) = text.trim_start_matches('\u{feff}').lines().nth(index) else {
        return Ok(());
    };
    let start = column.saturating_sub(WIDTH / 2).min(column);
    let start = if content.chars().count() <= WIDTH { 0 } else { start };
    let shown: String = content
        .chars()
        .skip(start)
        .take(WIDTH)
        .map(|c| if c == '\t' { ' ' } else { visible(c) })
        .collect();
    let gutter = line.to_string();
    let blank = " ".repeat(gutter.len());
    writeln!(out, "{blank} |")?;
    writeln!(out, "{gutter} | {}", shown.trim_end())?;
    writeln!(out, "{blank} | {}^", " ".repeat(column - start))
}
