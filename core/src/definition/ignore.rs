//! What of a tree is left out: `.convokeignore` files of the commit, and the patterns of the GitSync.
//!
//! The syntax and the rules are those of gitignore(5): a pattern is relative to the folder of its file, the last one
//! that matches wins, deeper files win over those above, and nothing comes back that lies in an ignored folder. The
//! GitSync's own patterns are relative to its path, and win over all files.
//!
//! A file of patterns that cannot be used says nothing about what lies beside and below it: neither that it is wanted,
//! nor that it is not.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use ::ignore::Match;
use ::ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::diagnostic::{code, quote};
use super::document::{Place, at};
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};

/// Name of the files that hold patterns.
pub const FILE: &str = ".convokeignore";
/// Bytes of one such file.
const MOST_BYTES: u64 = 64 << 10;
/// Patterns of all files of a tree together: compiling them takes time and memory.
const MOST_PATTERNS: usize = 1000;

/// Patterns that hold for the whole synced path.
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
    /// Which one is no pattern, and why.
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
    // For Git such a pattern matches nothing, which is a mistake that nobody sees.
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

/// What the patterns say about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is part of the commit.
    Kept,
    /// It is not.
    Ignored,
    /// A file of patterns that could say so cannot be used.
    Unknown,
}

/// Why a file of patterns cannot be used.
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
    /// By folder; `None` for one that cannot be used.
    files: BTreeMap<String, Option<Gitignore>>,
    folders: HashMap<String, Verdict>,
    /// What is wrong with files of patterns.
    pub faults: Vec<Fault>,
}

impl Rules {
    /// Reads the files of patterns of a tree whose entries lie below `path`.
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
        // From the top: what lies in an ignored folder is not read.
        found.sort_by_key(|entry| entry.path.matches('/').count());
        let mut left = MOST_PATTERNS;
        for entry in found {
            let folder = parent(&entry.path);
            // While a file above cannot be used, this one may have been meant to be ignored, or not.
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
            // What was said of folders below was said without this file.
            rules.folders.clear();
        }
        rules
    }

    /// Whether there is a pattern at all.
    pub fn is_empty(&self) -> bool {
        self.own.compiled.is_empty() && self.files.is_empty()
    }

    /// What the patterns say about a file, link or anything else but a folder.
    pub fn entry(&mut self, path: &str) -> Verdict {
        match self.folder(parent(path)) {
            Verdict::Kept => self.judge(path, false),
            above => above,
        }
    }

    /// The synced path, without `/` at its ends.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Forgets what was asked of folders, not the patterns.
    pub fn settle(&mut self) {
        self.folders = HashMap::new();
    }

    /// What they say about a folder, and so about all that lies in it.
    pub fn folder(&mut self, path: &str) -> Verdict {
        // The synced path itself is never ignored; a local folder that is a whole repository is called `.`.
        if path.len() <= self.base.len() || path == "." || self.is_empty() {
            return Verdict::Kept;
        }
        if let Some(known) = self.folders.get(path) {
            return *known;
        }
        // As deep as folders are: bounded by the budget of the tree.
        let verdict = match self.folder(parent(path)) {
            Verdict::Kept => self.judge(path, true),
            above => above,
        };
        self.folders.insert(path.to_owned(), verdict);
        verdict
    }

    /// What the patterns say about one path, whatever they say about the folders that it lies in.
    fn judge(&self, path: &str, is_folder: bool) -> Verdict {
        if let Some(verdict) = asked(&self.own.compiled, below(path, &self.base), is_folder) {
            return verdict;
        }
        let mut folder = path;
        while folder.len() > self.base.len() {
            folder = parent(folder);
            match self.files.get(folder) {
                Some(Some(patterns)) => {
                    if let Some(verdict) = asked(patterns, below(path, folder), is_folder) {
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

fn asked(patterns: &Gitignore, path: &str, is_folder: bool) -> Option<Verdict> {
    match patterns.matched(path, is_folder) {
        Match::None => None,
        Match::Ignore(_) => Some(Verdict::Ignored),
        Match::Whitelist(_) => Some(Verdict::Kept),
    }
}

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
    let data = match tree.read(entry, MOST_BYTES) {
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
            let message = format!("more than {MOST_PATTERNS} patterns in all {FILE} files");
            faults.push(fault(Some(at(number + 1, 0)), code::BUDGET, message, None));
            break;
        }
        *left -= 1;
        if let Err(why) = add(&mut builder, line) {
            let message = format!("{} is no pattern: {why}", quote(line));
            let hint =
                Some("the syntax is that of .gitignore; a backslash takes a character as it is");
            faults.push(fault(Some(at(number + 1, 0)), code::IGNORE, message, hint));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    builder.build().map_err(|error| vec![fault(None, code::IGNORE, error.to_string(), None)])
}

/// Whether a path is the one of a file of patterns.
pub(super) fn is_rules(path: &str) -> bool {
    name(path) == FILE
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `path` as seen from `folder`, which it lies in.
fn below<'p>(path: &'p str, folder: &str) -> &'p str {
    path.get(folder.len()..).unwrap_or(path).trim_start_matches('/')
}

#[cfg(test)]
#[path = "ignore_tests.rs"]
mod tests;
