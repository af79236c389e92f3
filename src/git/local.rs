//! What lies on this machine, seen like a fetched commit: a folder (work that is not committed yet), and a commit of a
//! local repository.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use sha2::{Digest, Sha256};

use super::error::{nearest, printable};
use super::protocol::cause;
use super::snapshot::TreeRequest;
use super::store::open_objects;
use super::{GitError, Limits, Snapshot, check};
use crate::definition::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};

/// A folder on disk. Links are listed, never followed; `.git` is left out. Ids are the SHA-256 of the content.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    file_bytes: u64,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
}

/// The top of the Git work tree that holds `dir`, or `dir` itself when there is none. Absolute, links resolved.
#[must_use]
pub fn repository_root(dir: &Path) -> PathBuf {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let top = dir.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
    top.unwrap_or(&dir).to_owned()
}

impl Folder {
    /// Lists `path` (relative to `root`, see [`repository_root`]) and hashes its files.
    ///
    /// # Errors
    /// [`GitError::InvalidPath`], [`GitError::PathMissing`], [`GitError::PathNotAFolder`], [`GitError::StorageFailed`].
    pub fn open(root: &Path, path: &str, limits: Limits) -> Result<Self, GitError> {
        let path = check::path(path)?;
        let mut at = root.to_owned();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at.push(part);
            let meta = fs::symlink_metadata(&at).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    GitError::PathMissing { path: path.clone(), nearest: Vec::new() }
                }
                _ => GitError::storage("look at the folder", &error),
            })?;
            if !meta.is_dir() {
                let kind = if meta.is_symlink() { "symbolic link" } else { "file" };
                return Err(GitError::PathNotAFolder { path, kind });
            }
        }
        let mut folder = Self {
            root: root.to_owned(),
            file_bytes: limits.file_bytes,
            entries: Vec::new(),
            problems: Vec::new(),
        };
        folder.walk(&path, &limits)?;
        folder.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(folder)
    }

    /// The folder `dir` inside of the work tree that holds it: paths are relative to the top of that work tree.
    ///
    /// # Errors
    /// Those of [`Folder::open`].
    pub fn containing(dir: &Path, limits: Limits) -> Result<Self, GitError> {
        let dir =
            dir.canonicalize().map_err(|error| GitError::storage("open the folder", &error))?;
        let root = repository_root(&dir);
        let path = dir.strip_prefix(&root).unwrap_or(Path::new(""));
        let Some(path) = path.to_str() else {
            let path = printable(&path.to_string_lossy());
            return Err(GitError::InvalidPath { path, reason: "it is not UTF-8".into() });
        };
        Self::open(&root, path, limits)
    }

    fn walk(&mut self, start: &str, limits: &Limits) -> Result<(), GitError> {
        let mut open = vec![(start.to_owned(), 0)];
        let mut folders = 0;
        while let Some((at, depth)) = open.pop() {
            let listing = fs::read_dir(self.root.join(&at));
            let listing = match listing {
                Ok(listing) => listing,
                Err(error) if at == start => {
                    return Err(GitError::storage("list the folder", &error));
                }
                Err(error) => {
                    self.leave_out(
                        &at,
                        format!("the folder cannot be listed: {error}"),
                        "check its permissions",
                    );
                    continue;
                }
            };
            for entry in listing {
                let entry = entry.map_err(|error| GitError::storage("list the folder", &error))?;
                let name = entry.file_name();
                if name == ".git" {
                    continue;
                }
                let odd = check::name_problem(name.as_encoded_bytes()).is_some();
                let name = match name.to_str() {
                    Some(text) if !odd => text.to_owned(),
                    _ => printable(&name.to_string_lossy()),
                };
                let below = if at.is_empty() { name } else { format!("{at}/{name}") };
                let meta = entry
                    .file_type()
                    .map_err(|error| GitError::storage("list the folder", &error))?;
                if meta.is_dir() && !odd {
                    folders += 1;
                    if depth >= limits.depth {
                        let message = format!(
                            "folders are nested deeper than {} levels; it is not read",
                            limits.depth
                        );
                        self.leave_out(&below, message, "move it up");
                    } else if folders > limits.files {
                        let message = format!(
                            "there are more than {} folders; the rest is not read",
                            limits.files
                        );
                        self.leave_out(start, message, "choose a smaller folder");
                        return Ok(());
                    } else {
                        open.push((below, depth + 1));
                    }
                    continue;
                }
                if self.entries.len() >= limits.files {
                    let message =
                        format!("there are more than {} files; the rest is not read", limits.files);
                    self.leave_out(start, message, "choose a smaller folder");
                    return Ok(());
                }
                let kind = if odd {
                    EntryKind::Odd
                } else if meta.is_symlink() {
                    EntryKind::Symlink
                } else if meta.is_file() {
                    EntryKind::File
                } else {
                    EntryKind::Odd
                };
                let id = if kind == EntryKind::File {
                    self.content_id(&entry.path())
                } else {
                    String::new()
                };
                self.entries.push(TreeEntry { path: below, id, kind });
            }
        }
        Ok(())
    }

    /// Files beyond the budget are not read; they have no id, and reading them fails.
    fn content_id(&self, path: &Path) -> String {
        read_at_most(path, self.file_bytes)
            .ok()
            .flatten()
            .map(|content| sha256(&content))
            .unwrap_or_default()
    }

    fn leave_out(&mut self, path: &str, message: String, hint: &str) {
        let path = if path.is_empty() { "." } else { path }.to_owned();
        self.problems.push(TreeProblem { path, message, hint: Some(hint.to_owned()) });
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
        let Ok(clean) = check::path(path) else { return Ok(None) };
        let mut at = self.root.clone();
        let parts: Vec<&str> = clean.split('/').filter(|part| !part.is_empty()).collect();
        for (index, part) in parts.iter().enumerate() {
            at.push(part);
            let meta = match fs::symlink_metadata(&at) {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    return Err(TreeError::Unreadable { path: clean, reason: error.to_string() });
                }
            };
            if meta.is_dir() {
                continue;
            }
            let kind = if meta.is_symlink() {
                EntryKind::Symlink
            } else if meta.is_file() {
                EntryKind::File
            } else {
                EntryKind::Odd
            };
            if kind == EntryKind::File && index + 1 < parts.len() {
                return Ok(None);
            }
            let id = if kind == EntryKind::File { self.content_id(&at) } else { String::new() };
            return Ok(Some(TreeEntry { path: clean, id, kind }));
        }
        Ok(None)
    }

    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        let path = || entry.path.clone();
        if entry.kind != EntryKind::File {
            return Err(TreeError::NotAFile { path: path() });
        }
        let unreadable = |reason: String| TreeError::Unreadable { path: path(), reason };
        // Looked up again: it may have become a link meanwhile.
        match self.lookup(&entry.path)? {
            Some(now) if now.kind == EntryKind::File => {}
            _ => return Err(unreadable("it is no longer a file".into())),
        }
        let limit = max_bytes.min(self.file_bytes);
        match read_at_most(&self.root.join(&entry.path), limit) {
            Ok(Some(content)) => Ok(content.into()),
            Ok(None) => Err(TreeError::TooLarge { path: path(), limit }),
            Err(error) => Err(unreadable(error.to_string())),
        }
    }
}

/// `None` when there is more.
fn read_at_most(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= limit).then_some(content))
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A commit of the repository on disk at or around `repo_dir`: `rev` is a branch, a tag, `HEAD`, a remote branch (`origin/main`), a commit id, also
/// shortened, or what Git makes one commit of (`HEAD~1`, `main^2`). Reads no configuration but the repository's own format.
///
/// # Errors
/// [`GitError::StorageFailed`] when there is no repository, [`GitError::RefNotFound`], and those of [`super::Remote::snapshot`].
pub fn open_local(
    repo_dir: &Path,
    rev: &str,
    path: &str,
    limits: Limits,
) -> Result<Snapshot, GitError> {
    let path = check::path(path)?;
    let open = |dir: &Path| gix::open_opts(dir, gix::open::Options::isolated());
    let opened = open(repo_dir).or_else(|_| open(&repository_root(repo_dir)));
    let repo = opened.map_err(|error| GitError::StorageFailed {
        detail: format!("no Git repository at {}: {}", repo_dir.display(), cause(&error)),
    })?;
    let missing = || GitError::RefNotFound {
        kind: "revision",
        name: printable(rev),
        nearest: branches(&repo, rev),
    };
    let commit = resolve_local(&repo, rev).ok_or_else(missing)?;
    let objects = open_objects(repo.objects.store_ref().path(), commit.kind(), None)
        .map_err(|error| GitError::storage("open the repository's objects", &error))?;
    let never = AtomicBool::new(false);
    let request = TreeRequest { commit, path: &path, limits, interrupt: &never, before: None };
    Snapshot::read_from(objects.to_cache_arc(), request)
}

fn resolve_local(repo: &gix::Repository, rev: &str) -> Option<ObjectId> {
    let bare = rev.strip_prefix("refs/").unwrap_or(rev);
    if rev == "HEAD" || check::ref_name(bare).is_ok() {
        let named = repo.try_find_reference(rev).ok().flatten();
        if let Some(id) = named.and_then(|mut found| found.peel_to_id().ok()) {
            return Some(id.detach());
        }
    }
    // Git's own syntax comes last: it takes names apart, and a ref or an id is meant as it is written. A range is no commit.
    let parsed = || repo.rev_parse_single(rev).ok().map(gix::Id::detach);
    let object = repo.find_object(shortened(repo, rev).or_else(parsed)?).ok()?;
    object.peel_to_kind(gix::objs::Kind::Commit).ok().map(|commit| commit.id)
}

/// The only object whose id begins so.
fn shortened(repo: &gix::Repository, rev: &str) -> Option<ObjectId> {
    let hex = rev.len() >= 4 && rev.bytes().all(|byte| byte.is_ascii_hexdigit());
    let prefix = hex.then(|| gix::hash::Prefix::from_hex(rev).ok()).flatten()?;
    repo.objects.lookup_prefix(prefix, None).ok().flatten()?.ok()
}

fn branches(repo: &gix::Repository, rev: &str) -> Vec<String> {
    let Ok(references) = repo.references() else { return Vec::new() };
    let Ok(all) = references.all() else { return Vec::new() };
    let names: Vec<String> =
        all.filter_map(Result::ok).map(|one| one.name().shorten().to_string()).collect();
    nearest(rev, names.iter().map(String::as_str))
}

#[cfg(test)]
#[path = "tests/local.rs"]
mod tests;
