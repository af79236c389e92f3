//! A folder on this disk as a tree: for `convoke validate`. Links are reported, never followed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::url::clean_path;
use super::{GitError, Limits};
use crate::definition::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};

/// A folder, listed once.
pub struct Folder {
    root: PathBuf,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
}

/// The top of the work tree that holds `dir`, or `dir` itself.
#[must_use]
pub fn repository_root(dir: &Path) -> PathBuf {
    dir.ancestors().find(|parent| parent.join(".git").exists()).unwrap_or(dir).to_owned()
}

impl Folder {
    /// Lists the files below `path` of the folder `root`.
    ///
    /// # Errors
    /// When there is no such folder, or it cannot be read.
    pub fn open(root: &Path, path: &str, limits: &Limits) -> Result<Self, GitError> {
        let path = clean_path(path)?;
        let mut folder = Self { root: root.to_owned(), entries: Vec::new(), problems: Vec::new() };
        let start = root.join(&path);
        if !start.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            return Err(GitError::PathMissing(path));
        }
        folder.list(&path, 0, limits)?;
        folder.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(folder)
    }

    fn list(&mut self, prefix: &str, depth: usize, limits: &Limits) -> Result<(), GitError> {
        let problem = |path: &str, message: String| TreeProblem {
            path: path.to_owned(),
            message,
            hint: None,
        };
        if depth > limits.depth {
            self.problems
                .push(problem(prefix, format!("folders are nested deeper than {}", limits.depth)));
            return Ok(());
        }
        let storage = |error: std::io::Error| GitError::Storage(format!("{prefix}: {error}"));
        for entry in std::fs::read_dir(self.root.join(prefix)).map_err(storage)? {
            let entry = entry.map_err(storage)?;
            let Ok(name) = entry.file_name().into_string() else {
                self.problems.push(problem(prefix, "a file name here is not UTF-8".into()));
                continue;
            };
            if name == ".git" {
                continue;
            }
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if self.entries.len() >= limits.files {
                self.problems.push(problem(
                    &path,
                    format!("more than {} files: the rest is not read", limits.files),
                ));
                return Ok(());
            }
            let kind = entry.file_type().map_err(storage)?;
            let kind = if kind.is_dir() {
                self.list(&path, depth + 1, limits)?;
                continue;
            } else if kind.is_symlink() {
                EntryKind::Symlink
            } else if kind.is_file() {
                EntryKind::File
            } else {
                EntryKind::Odd
            };
            let id = path.clone();
            self.entries.push(TreeEntry { path, id, kind });
        }
        Ok(())
    }
}

impl RepositoryTree for Folder {
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    fn problems(&self) -> &[TreeProblem] {
        &self.problems
    }

    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        let Ok(clean) = clean_path(path) else { return Ok(None) };
        let mut at = self.root.clone();
        let mut parts = clean.split('/').peekable();
        while let Some(part) = parts.next() {
            at.push(part);
            let Ok(meta) = at.symlink_metadata() else { return Ok(None) };
            if parts.peek().is_some() {
                if !meta.is_dir() {
                    return Ok(None);
                }
                continue;
            }
            let kind = if meta.is_symlink() {
                EntryKind::Symlink
            } else if meta.is_file() {
                EntryKind::File
            } else {
                return Ok(None);
            };
            return Ok(Some(TreeEntry { id: clean.clone(), path: clean, kind }));
        }
        Ok(None)
    }

    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        let unreadable =
            |reason: String| TreeError::Unreadable { path: entry.path.clone(), reason };
        let file = std::fs::File::open(self.root.join(&entry.path))
            .map_err(|e| unreadable(e.to_string()))?;
        let mut data = Vec::new();
        file.take(max_bytes + 1).read_to_end(&mut data).map_err(|e| unreadable(e.to_string()))?;
        if data.len() as u64 > max_bytes {
            return Err(TreeError::TooLarge { path: entry.path.clone(), limit: max_bytes });
        }
        Ok(data.into())
    }
}
