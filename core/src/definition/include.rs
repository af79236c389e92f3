//! Files that definitions include by their `*File` fields: relative to the definition, inside the repository,
//! never through a link.

use super::diagnostic::{code, nearest};
use super::document::Place;
use super::nul;
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};

/// What a file's result depends on besides the file itself: files that it includes.
pub(super) type Includes = Vec<Included>;

/// A file that a definition includes.
#[derive(Debug)]
pub(super) struct Included {
    /// Its path.
    pub path: String,
    /// What is there.
    found: Found,
}

#[derive(Debug, PartialEq)]
enum Found {
    Something(EntryKind, String),
    /// Nothing; and the file that may have been meant.
    Nothing(Option<String>),
}

fn found(tree: &dyn RepositoryTree, path: &str, entry: Option<&TreeEntry>) -> Found {
    match entry {
        Some(entry) => Found::Something(entry.kind, entry.id.clone()),
        None => Found::Nothing(near(tree, path)),
    }
}

/// Why a file cannot be included: code, message, hint.
pub(super) type Refusal = (&'static str, String, Option<String>);

/// Whether the included files are what they were.
pub(super) fn still(includes: &Includes, tree: &dyn RepositoryTree) -> bool {
    includes.iter().all(|include| {
        let entry = tree.lookup(&include.path);
        entry.is_ok_and(|entry| found(tree, &include.path, entry.as_ref()) == include.found)
    })
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

/// The text of the file that `named` means in a definition at `path`. Notes what was looked at in `includes`.
pub(super) fn included(
    tree: &dyn RepositoryTree,
    path: &str,
    named: &str,
    max_bytes: u64,
    includes: &mut Includes,
) -> Result<String, Refusal> {
    let refused = |message: String, hint| Err((code::INCLUDE, message, hint));
    let unreadable = |error: TreeError| match error {
        TreeError::TooLarge { .. } | TreeError::NotAFile { .. } => {
            (code::INCLUDE, error.to_string(), None)
        }
        TreeError::Unreadable { .. } => (code::UNREADABLE, error.to_string(), None),
    };
    if named.len() > MOST_PATH {
        return refused(format!("a path has at most {MOST_PATH} bytes"), None);
    }
    let Some(target) = resolve(path, named) else {
        return refused("the file lies outside of the repository".into(), None);
    };
    let entry = tree.lookup(&target).map_err(unreadable)?;
    let found = found(tree, &target, entry.as_ref());
    let hint = match &found {
        Found::Nothing(near) => near.as_ref().map(|name| format!("did you mean {name}?")),
        Found::Something(..) => None,
    };
    includes.push(Included { path: target.clone(), found });
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

/// Bytes of the longest path that a `*File` field may hold; as many as Linux takes.
const MOST_PATH: usize = 4096;

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
