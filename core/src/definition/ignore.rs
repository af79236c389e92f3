//! Ignore patterns: the `.convokeignore` files of the commit, and the patterns of the GitSync.
//!
//! The syntax and the rules are those of gitignore(5): a pattern is relative to the folder of its file, the last one
//! that matches wins, deeper files win over those above, and no pattern takes an entry out of an ignored folder. The
//! GitSync's own patterns are relative to its path, and win over all files.
//!
//! When an ignore file cannot be used, it is not known which entries beside and below it are ignored.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ::ignore::Match;
use ::ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::diagnostic::code;
use super::places::{Place, place_at};
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};
use crate::text::quote;

/// Name of the ignore files.
pub const FILE: &str = ".convokeignore";
/// Most bytes of one ignore file.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Most patterns of all ignore files of a tree together: compiling them takes time and memory.
const MAX_PATTERNS: usize = 1000;

/// The ignore patterns of a GitSync. They hold for the whole synced path.
#[derive(Clone)]
pub struct Patterns {
    lines: Vec<String>,
    compiled: Gitignore,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { lines: Vec::new(), compiled: Gitignore::empty() }
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patterns({})", self.compiled.len())
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl Patterns {
    /// Compiles patterns, one an item.
    ///
    /// # Errors
    /// The first pattern that is invalid, and why.
    pub fn new<T: AsRef<str>>(patterns: &[T]) -> Result<Self, String> {
        let mut builder = builder();
        let lines: Vec<_> = patterns.iter().map(|line| line.as_ref().to_owned()).collect();
        for pattern in &lines {
            add(&mut builder, pattern)
                .map_err(|why| format!("{} is no pattern: {why}", quote(pattern)))?;
        }
        let compiled = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { lines, compiled })
    }
}

/// Paths are given relative to the folder of the patterns, so the root is empty.
fn builder() -> GitignoreBuilder {
    let mut builder = GitignoreBuilder::new("");
    // Git accepts a pattern with an unclosed `[`, which then matches nothing. Here it is an error.
    builder.allow_unclosed_class(false);
    builder
}

fn add(builder: &mut GitignoreBuilder, line: &str) -> Result<(), String> {
    if line.contains(['\n', '\r', '\0']) {
        return Err("a pattern is one line".into());
    }
    match builder.add_line(None, line) {
        Ok(_) => Ok(()),
        Err(::ignore::Error::Glob { err, .. }) => Err(err),
        Err(error) => Err(error.to_string()),
    }
}

/// What a path is: some patterns match only folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Folder,
    NoFolder,
}

/// What the patterns say about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The entry is not ignored.
    Kept,
    /// The entry is ignored.
    Ignored,
    /// Not known: an ignore file that may ignore the entry cannot be used.
    Unknown,
}

/// Why an ignore file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub path: String,
    pub place: Option<Place>,
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
}

/// All patterns that hold for a tree.
pub(super) struct Rules {
    own: Patterns,
    /// The synced path, without `/` at its ends; empty for the root.
    base: String,
    /// The patterns of the ignore files, by folder. `None`: the file cannot be used.
    files: BTreeMap<String, Option<Gitignore>>,
    /// The verdicts on folders that were asked for.
    folders: HashMap<String, Verdict>,
    /// Why ignore files cannot be used.
    pub faults: Vec<Fault>,
}

impl Rules {
    /// Reads the ignore files of a tree whose entries lie below `path`.
    pub fn read(tree: &dyn RepositoryTree, path: &str, own: &Patterns) -> Self {
        let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let mut rules = Self {
            own: own.clone(),
            base: parts.join("/"),
            files: BTreeMap::new(),
            folders: HashMap::new(),
            faults: Vec::new(),
        };
        let mut found: Vec<_> =
            tree.entries().iter().filter(|entry| is_rules(&entry.path)).collect();
        // From the top: an ignore file in an ignored folder is not read.
        found.sort_by_key(|entry| entry.path.matches('/').count());
        let mut left = MAX_PATTERNS;
        for entry in found {
            let folder = parent(&entry.path);
            // A file below one that cannot be used is read: it is not known whether it is ignored.
            if rules.folder(folder) == Verdict::Ignored {
                continue;
            }
            let read = read(tree, entry, &mut left);
            let patterns = match read {
                Ok(patterns) => Some(patterns),
                Err(faults) => {
                    rules.faults.extend(faults);
                    None
                }
            };
            rules.files.insert(folder.to_owned(), patterns);
            // Earlier verdicts on folders did not know this file.
            rules.folders.clear();
        }
        rules
    }

    /// Whether there are no patterns and no ignore files.
    pub fn is_empty(&self) -> bool {
        self.own.compiled.is_empty() && self.files.is_empty()
    }

    /// The verdict on an entry that is not a folder.
    pub fn entry(&mut self, path: &str) -> Verdict {
        match self.folder(parent(path)) {
            Verdict::Kept => self.judge(path, What::NoFolder),
            above => above,
        }
    }

    /// The synced path, without `/` at its ends.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Forgets the verdicts on folders that were asked for. Keeps the patterns.
    pub fn forget_verdicts(&mut self) {
        self.folders = HashMap::new();
    }

    /// The verdict on a folder, and so on everything in it.
    pub fn folder(&mut self, path: &str) -> Verdict {
        // The synced path itself is never ignored; a local folder that is a whole repository is called `.`.
        if path.len() <= self.base.len() || path == "." || self.is_empty() {
            return Verdict::Kept;
        }
        if let Some(known) = self.folders.get(path) {
            return *known;
        }
        // The recursion is as deep as the folders, whose depth the budget of the tree limits.
        let verdict = match self.folder(parent(path)) {
            Verdict::Kept => self.judge(path, What::Folder),
            above => above,
        };
        self.folders.insert(path.to_owned(), verdict);
        verdict
    }

    /// The verdict on one path, without the verdicts on the folders that it is in.
    fn judge(&self, path: &str, what: What) -> Verdict {
        if let Some(verdict) = matched(&self.own.compiled, below(path, &self.base), what) {
            return verdict;
        }
        let mut folder = path;
        while folder.len() > self.base.len() {
            folder = parent(folder);
            match self.files.get(folder) {
                Some(Some(patterns)) => {
                    if let Some(verdict) = matched(patterns, below(path, folder), what) {
                        return verdict;
                    }
                }
                Some(None) => return Verdict::Unknown,
                None => {}
            }
        }
        Verdict::Kept
    }
}

/// What one set of patterns says about a path.
fn matched(patterns: &Gitignore, path: &str, what: What) -> Option<Verdict> {
    match patterns.matched(path, what == What::Folder) {
        Match::None => None,
        Match::Ignore(_) => Some(Verdict::Ignored),
        Match::Whitelist(_) => Some(Verdict::Kept),
    }
}

/// Reads an ignore file. Takes its patterns from those that are `left` of the budget.
fn read(
    tree: &dyn RepositoryTree,
    entry: &TreeEntry,
    left: &mut usize,
) -> Result<Gitignore, Vec<Fault>> {
    let fault = |place, code, message: String, hint: Option<&str>| Fault {
        path: entry.path.clone(),
        place,
        code,
        message,
        hint: hint.map(str::to_owned),
    };
    let one = |code, message: String, hint| Err(vec![fault(None, code, message, hint)]);
    if entry.kind != EntryKind::File {
        let hint = Some("put the file itself here");
        return one(code::ENTRY, "this is no regular file".into(), hint);
    }
    let data = match tree.read(entry, MAX_FILE_BYTES) {
        Ok(data) => data,
        Err(TreeError::TooLarge { limit, .. }) => {
            let message = format!("the file is larger than {limit} bytes");
            return one(code::BUDGET, message, Some("write fewer patterns"));
        }
        Err(error) => return one(code::UNREADABLE, error.to_string(), None),
    };
    if data.starts_with(b"version https://git-lfs.github.com/spec/") {
        return one(code::ENTRY, "the file is a Git LFS pointer".into(), None);
    }
    let Ok(text) = std::str::from_utf8(&data) else {
        return one(code::ENCODING, "the file is not UTF-8".into(), Some("save it as UTF-8"));
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut builder, mut faults) = (builder(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if *left == 0 {
            let message = format!("more than {MAX_PATTERNS} patterns in all {FILE} files");
            faults.push(fault(Some(place_at(number + 1, 0)), code::BUDGET, message, None));
            break;
        }
        *left -= 1;
        if let Err(why) = add(&mut builder, line) {
            let message = format!("{} is no pattern: {why}", quote(line));
            let hint =
                Some("the syntax is that of .gitignore; a backslash takes a character as it is");
            faults.push(fault(Some(place_at(number + 1, 0)), code::IGNORE, message, hint));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    builder.build().map_err(|error| vec![fault(None, code::IGNORE, error.to_string(), None)])
}

/// Whether the file at this path is an ignore file.
pub(super) fn is_rules(path: &str) -> bool {
    name(path) == FILE
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `path` relative to `folder`, which it is in.
fn below<'p>(path: &'p str, folder: &str) -> &'p str {
    path.get(folder.len()..).unwrap_or(path).trim_start_matches('/')
}

#[cfg(test)]
#[path = "tests/ignore.rs"]
mod tests;
