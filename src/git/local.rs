//! Reads files of this machine like a fetched commit: a folder, whose changes need not be committed, or a commit of a local
//! repository.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use sha2::{Digest, Sha256};

use super::error::{nearest, printable};
use super::generation::open_objects;
use super::protocol::cause;
use super::snapshot::TreeRequest;
use super::{GitError, Limits, Snapshot, check};
use crate::definition::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};

/// A folder on disk. Links are listed and never followed, and `.git` is left out. The id of a file is the SHA-256 of its content.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    file_bytes: u64,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
}

/// The top of the Git work tree that contains `dir`, or `dir` itself if there is none. The path is absolute, without links.
#[must_use]
pub fn repository_root(dir: &Path) -> PathBuf {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let top = dir.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
    top.unwrap_or(&dir).to_owned()
}

impl Folder {
    /// Lists the folder `path` below `root` (see [`repository_root`]), and hashes its files.
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

    /// Lists the folder `dir`. Paths are relative to the top of the work tree that contains it.
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

    /// Lists everything below `start`.
    fn walk(&mut self, start: &str, limits: &Limits) -> Result<(), GitError> {
        let mut open = vec![(start.to_owned(), 0)];
        let mut folders = 0;
        while let Some((at, depth)) = open.pop() {
            let listing = match fs::read_dir(self.root.join(&at)) {
                Ok(listing) => listing,
                Err(error) if at == start => {
                    return Err(GitError::storage("list the folder", &error));
                }
                Err(error) => {
                    let message = format!("the folder cannot be listed: {error}");
                    self.leave_out(&at, message, "check its permissions");
                    continue;
                }
            };
            for entry in listing {
                let entry = entry.map_err(|error| GitError::storage("list the folder", &error))?;
                let Some(found) = Found::new(&entry, &at)? else { continue };
                if !found.is_folder {
                    if self.entries.len() >= limits.files {
                        self.leave_out_rest(start, limits.files, "files");
                        return Ok(());
                    }
                    self.add(found, &entry.path());
                    continue;
                }
                folders += 1;
                if depth >= limits.depth {
                    let message = format!(
                        "folders are nested deeper than {} levels; it is not read",
                        limits.depth
                    );
                    self.leave_out(&found.path, message, "move it up");
                } else if folders > limits.files {
                    self.leave_out_rest(start, limits.files, "folders");
                    return Ok(());
                } else {
                    open.push((found.path, depth + 1));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, found: Found, on_disk: &Path) {
        let Found { path, kind, .. } = found;
        let id = if kind == EntryKind::File { self.content_id(on_disk) } else { String::new() };
        self.entries.push(TreeEntry { path, id, kind });
    }

    fn leave_out_rest(&mut self, start: &str, most: usize, what: &str) {
        let message = format!("there are more than {most} {what}; the rest is not read");
        self.leave_out(start, message, "choose a smaller folder");
    }

    /// The id of a file. A file that is too large has no id, and reading it fails.
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

/// An entry of a folder on disk.
struct Found {
    /// Relative to the root. A name that may do harm is replaced by a printable one.
    path: String,
    is_folder: bool,
    /// What it is, if it is no folder.
    kind: EntryKind,
}

impl Found {
    /// The entry of the folder at `folder`; `None` for `.git`.
    fn new(entry: &fs::DirEntry, folder: &str) -> Result<Option<Self>, GitError> {
        let name = entry.file_name();
        if name == ".git" {
            return Ok(None);
        }
        let is_odd = check::name_problem(name.as_encoded_bytes()).is_some();
        let name = match name.to_str() {
            Some(text) if !is_odd => text.to_owned(),
            _ => printable(&name.to_string_lossy()),
        };
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let file_type =
            entry.file_type().map_err(|error| GitError::storage("list the folder", &error))?;
        let kind = if is_odd { EntryKind::Odd } else { kind_of(file_type) };
        Ok(Some(Self { path, is_folder: file_type.is_dir() && !is_odd, kind }))
    }
}

/// What something on disk is that is no folder.
fn kind_of(file_type: fs::FileType) -> EntryKind {
    if file_type.is_symlink() {
        EntryKind::Symlink
    } else if file_type.is_file() {
        EntryKind::File
    } else {
        EntryKind::Odd
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
            let kind = kind_of(meta.file_type());
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
        // The file may have become a link meanwhile.
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

/// Reads a file; `None` if it is longer than `limit`.
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

/// Reads a commit of the repository on disk at or around `repo_dir`. `rev` is a branch, a tag, `HEAD`, a remote branch
/// (`origin/main`), a commit id (also a shortened one), or any other expression for one commit (`HEAD~1`, `main^2`). No
/// configuration is read but the repository's own format.
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
        other: None,
        kind: "revision",
        name: printable(rev),
        nearest: similar_refs(&repo, rev),
        there: Vec::new(),
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
    // A ref or an id is taken as it is written, so Git's syntax for expressions comes last. A range is no commit.
    let parsed = || repo.rev_parse_single(rev).ok().map(gix::Id::detach);
    let object = repo.find_object(shortened(repo, rev).or_else(parsed)?).ok()?;
    object.peel_to_kind(gix::objs::Kind::Commit).ok().map(|commit| commit.id)
}

/// The object with this shortened id, if there is only one.
fn shortened(repo: &gix::Repository, rev: &str) -> Option<ObjectId> {
    let hex = rev.len() >= 4 && rev.bytes().all(|byte| byte.is_ascii_hexdigit());
    let prefix = hex.then(|| gix::hash::Prefix::from_hex(rev).ok()).flatten()?;
    repo.objects.lookup_prefix(prefix, None).ok().flatten()?.ok()
}

/// Names of refs that look like `rev`.
fn similar_refs(repo: &gix::Repository, rev: &str) -> Vec<String> {
    let Ok(references) = repo.references() else { return Vec::new() };
    let Ok(all) = references.all() else { return Vec::new() };
    let names: Vec<String> =
        all.filter_map(Result::ok).map(|one| one.name().shorten().to_string()).collect();
    nearest(rev, names.iter().map(String::as_str))
}

#[cfg(test)]
#[path = "tests/local.rs"]
mod tests;
