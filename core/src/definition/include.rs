//! Files that definitions include by their `*File` fields: relative to the definition, inside the repository,
//! never through a link.

use super::diagnostic::code;
use super::nul;
use super::places::Place;
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};
use crate::text::nearest;

/// A file that a definition includes.
#[derive(Debug)]
struct Included {
    path: String,
    found: Found,
}

/// What a tree has at the path of an included file.
#[derive(Debug, PartialEq)]
enum Found {
    /// An entry, with its content id.
    Something(EntryKind, String),
    /// Nothing; and the file that may have been meant.
    Nothing(Option<String>),
}

impl Found {
    fn at(tree: &dyn RepositoryTree, path: &str, entry: Option<&TreeEntry>) -> Self {
        match entry {
            Some(entry) => Self::Something(entry.kind, entry.id.clone()),
            None => Self::Nothing(near(tree, path)),
        }
    }
}

/// Why a file cannot be included: code, message, hint.
pub(super) type Refusal = (&'static str, String, Option<String>);

/// The files that one definition file includes, and what the tree had at their paths.
#[derive(Debug, Default)]
pub(super) struct Includes(Vec<Included>);

impl Includes {
    /// The paths of the included files.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|included| included.path.as_str())
    }

    /// Whether a tree has the same at all these paths.
    pub fn are_unchanged(&self, tree: &dyn RepositoryTree) -> bool {
        self.0.iter().all(|included| {
            let entry = tree.lookup(&included.path);
            entry.is_ok_and(|entry| {
                Found::at(tree, &included.path, entry.as_ref()) == included.found
            })
        })
    }

    /// Reads the file that `named` means in a definition at `path`. Remembers what the tree has there.
    pub fn read(
        &mut self,
        tree: &dyn RepositoryTree,
        path: &str,
        named: &str,
        max_bytes: u64,
    ) -> Result<String, Refusal> {
        let refused = |message: String, hint| Err((code::INCLUDE, message, hint));
        let unreadable = |error: TreeError| match error {
            TreeError::TooLarge { .. } | TreeError::NotAFile { .. } => {
                (code::INCLUDE, error.to_string(), None)
            }
            TreeError::Unreadable { .. } => (code::UNREADABLE, error.to_string(), None),
        };
        if named.len() > MAX_PATH_BYTES {
            return refused(format!("a path has at most {MAX_PATH_BYTES} bytes"), None);
        }
        let Some(target) = resolve(path, named) else {
            return refused("the file lies outside of the repository".into(), None);
        };
        let entry = tree.lookup(&target).map_err(unreadable)?;
        let found = Found::at(tree, &target, entry.as_ref());
        let hint = match &found {
            Found::Nothing(near) => near.as_ref().map(|name| format!("did you mean {name}?")),
            Found::Something(..) => None,
        };
        self.0.push(Included { path: target.clone(), found });
        let Some(entry) = entry else {
            return refused(format!("there is no file {target}"), hint);
        };
        if entry.kind != EntryKind::File {
            let hint = "links are never followed".to_owned();
            return refused(format!("{target} is a link or no regular file"), Some(hint));
        }
        let data = tree.read(&entry, max_bytes).map_err(unreadable)?;
        if data.starts_with(b"version https://git-lfs.github.com/spec/") {
            return refused(format!("{target} is a Git LFS pointer"), None);
        }
        match std::str::from_utf8(&data) {
            Ok(text) => match nul::first(text) {
                None => Ok(text.to_owned()),
                Some(Place { line, column }) => {
                    let message = format!("{target}:{line}:{column}: {}", nul::MESSAGE);
                    refused(message, Some(nul::HINT.to_owned()))
                }
            },
            Err(_) => refused(format!("{target} is not UTF-8"), None),
        }
    }
}

/// The file beside `path` whose name is nearest.
fn near(tree: &dyn RepositoryTree, path: &str) -> Option<String> {
    let parts = |path| str::rsplit_once(path, '/').unwrap_or(("", path));
    let (folder, wanted) = parts(path);
    let names = tree.entries().iter().filter_map(|entry| {
        let (parent, name) = parts(&entry.path);
        (parent == folder).then_some(name)
    });
    nearest(wanted, names).map(str::to_owned)
}

/// Longest path that a `*File` field may hold, in bytes: as long as Linux takes.
const MAX_PATH_BYTES: usize = 4096;

/// The path that `named` means in a file at `path`; `None` when it leaves the repository.
fn resolve(path: &str, named: &str) -> Option<String> {
    if named.is_empty() || named.contains(|c: char| c == '\\' || c.is_control()) {
        return None;
    }
    let mut parts: Vec<&str> = match named.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => {
            path.rsplit_once('/').map(|(folder, _)| folder.split('/').collect()).unwrap_or_default()
        }
    };
    for part in named.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part if part.eq_ignore_ascii_case(".git") => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
