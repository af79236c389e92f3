//! A commit, read from the object database: its tree below one path, and single blobs on demand.

use std::path::Path;
use std::sync::Arc;

use gix::objs::tree::EntryKind as Mode;

use super::error::chain;
use super::url::clean_path;
use super::{GitError, Limits};
use crate::definition::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};

/// Author and subject of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// Full id.
    pub id: String,
    /// Name of the author, without the address.
    pub author: String,
    /// First line of the message, at most 120 characters.
    pub subject: String,
    /// Commit time, in seconds since 1970.
    pub time_seconds: i64,
}

/// One commit.
pub struct Snapshot {
    repository: gix::ThreadSafeRepository,
    root: gix::ObjectId,
    commit: CommitInfo,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
}

impl Snapshot {
    /// Reads the listing below `path` of a commit that the repository holds.
    pub(super) fn read_commit(
        repository: gix::ThreadSafeRepository,
        commit: gix::ObjectId,
        path: &str,
        limits: &Limits,
    ) -> Result<Self, GitError> {
        let path = clean_path(path)?;
        let repo = repository.to_thread_local();
        let corrupt = |error: gix::Error| GitError::Corrupt(chain(&error));
        let object = repo.find_commit(commit).map_err(corrupt)?;
        let root = object.tree_id().map_err(|e| GitError::Corrupt(chain(&e)))?.detach();
        let info = info(&object)?;
        let mut snapshot =
            Self { repository, root, commit: info, entries: Vec::new(), problems: Vec::new() };
        let Some((Mode::Tree, tree)) = snapshot.find(&repo, &path)? else {
            return Err(GitError::PathMissing(if path.is_empty() { ".".into() } else { path }));
        };
        snapshot.list(&repo, tree, &path, 0, limits)?;
        snapshot.entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(snapshot)
    }

    /// Author, subject and id.
    #[must_use]
    pub fn commit(&self) -> &CommitInfo {
        &self.commit
    }

    /// Id of the tree or blob at `path`; `None` when there is nothing, or a link or submodule.
    ///
    /// # Errors
    /// When a tree on the way cannot be read.
    pub fn tree_id(&self, path: &str) -> Result<Option<String>, GitError> {
        let Ok(path) = clean_path(path) else { return Ok(None) };
        let repo = self.repository.to_thread_local();
        Ok(self.find(&repo, &path)?.and_then(|(mode, id)| match mode {
            Mode::Tree | Mode::Blob | Mode::BlobExecutable => Some(id.to_string()),
            Mode::Link | Mode::Commit => None,
        }))
    }

    /// Mode and id at a clean path, component by component: a link is never gone through.
    fn find(
        &self,
        repo: &gix::Repository,
        path: &str,
    ) -> Result<Option<(Mode, gix::ObjectId)>, GitError> {
        let mut at = (Mode::Tree, self.root);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if at.0 != Mode::Tree {
                return Ok(None);
            }
            let tree = repo.find_tree(at.1).map_err(|e| GitError::Corrupt(chain(&e)))?;
            let mut found = None;
            for entry in tree.iter() {
                let entry = entry.map_err(|e| GitError::Corrupt(e.to_string()))?;
                if entry.filename() == part {
                    found = Some((entry.mode().kind(), entry.oid().to_owned()));
                    break;
                }
            }
            match found {
                Some(next) => at = next,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn list(
        &mut self,
        repo: &gix::Repository,
        tree: gix::ObjectId,
        prefix: &str,
        depth: usize,
        limits: &Limits,
    ) -> Result<(), GitError> {
        if depth > limits.depth {
            self.problem(prefix, format!("folders are nested deeper than {}", limits.depth));
            return Ok(());
        }
        let tree = repo.find_tree(tree).map_err(|e| GitError::Corrupt(chain(&e)))?;
        let mut seen = std::collections::HashSet::new();
        for entry in tree.iter() {
            let entry = entry.map_err(|e| GitError::Corrupt(e.to_string()))?;
            let name = entry.filename().to_string();
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if self.entries.len() >= limits.files {
                let message = format!("more than {} files: the rest is not read", limits.files);
                if !self.problems.iter().any(|p| p.message == message) {
                    self.problem(&path, message);
                }
                return Ok(());
            }
            let honest = !matches!(name.as_str(), "" | "." | "..")
                && !name.eq_ignore_ascii_case(".git")
                && !name.contains(['/', '\\', '\0'])
                && seen.insert(name);
            let kind = match entry.mode().kind() {
                _ if !honest => EntryKind::Odd,
                Mode::Tree => {
                    self.list(repo, entry.oid().to_owned(), &path, depth + 1, limits)?;
                    continue;
                }
                Mode::Blob | Mode::BlobExecutable => EntryKind::File,
                Mode::Link => EntryKind::Symlink,
                Mode::Commit => EntryKind::Submodule,
            };
            self.entries.push(TreeEntry { path, id: entry.oid().to_string(), kind });
        }
        Ok(())
    }

    fn problem(&mut self, path: &str, message: String) {
        let hint = Some(
            "put fewer files below spec.path, or split the folder over several GitSyncs".into(),
        );
        self.problems.push(TreeProblem { path: path.to_owned(), message, hint });
    }
}

impl RepositoryTree for Snapshot {
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    fn problems(&self) -> &[TreeProblem] {
        &self.problems
    }

    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        let Ok(clean) = clean_path(path) else { return Ok(None) };
        let repo = self.repository.to_thread_local();
        let unreadable = |error: GitError| TreeError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        Ok(self.find(&repo, &clean).map_err(unreadable)?.and_then(|(mode, id)| {
            let kind = match mode {
                Mode::Tree => return None,
                Mode::Blob | Mode::BlobExecutable => EntryKind::File,
                Mode::Link => EntryKind::Symlink,
                Mode::Commit => EntryKind::Submodule,
            };
            Some(TreeEntry { path: clean, id: id.to_string(), kind })
        }))
    }

    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        let unreadable =
            |reason: String| TreeError::Unreadable { path: entry.path.clone(), reason };
        if entry.kind != EntryKind::File {
            return Err(unreadable("it is no regular file".into()));
        }
        let repo = self.repository.to_thread_local();
        let id =
            gix::ObjectId::from_hex(entry.id.as_bytes()).map_err(|e| unreadable(e.to_string()))?;
        // The header tells the size before anything is unpacked.
        let header = repo.find_header(id).map_err(|e| unreadable(chain(&e)))?;
        if header.size() > max_bytes {
            return Err(TreeError::TooLarge { path: entry.path.clone(), limit: max_bytes });
        }
        let mut object = repo.find_object(id).map_err(|e| unreadable(chain(&e)))?;
        Ok(std::mem::take(&mut object.data).into())
    }
}

fn info(commit: &gix::Commit<'_>) -> Result<CommitInfo, GitError> {
    let corrupt = |error: gix::Error| GitError::Corrupt(chain(&error));
    let author = commit.author().map_err(|e| GitError::Corrupt(e.to_string()))?.name.to_string();
    let time_seconds = commit.time().map_err(corrupt)?.seconds;
    let message = commit.message_raw_sloppy().to_string();
    let clean = |text: &str| text.chars().filter(|c| !c.is_control()).take(120).collect::<String>();
    let subject = clean(message.trim_start().lines().next().unwrap_or_default());
    Ok(CommitInfo { id: commit.id.to_string(), author: clean(&author), subject, time_seconds })
}

/// How every repository is opened: no environment, no configuration of the system or the user.
pub(super) fn options() -> gix::open::Options {
    gix::open::Options::isolated().config_overrides([
        "gitoxide.objects.allocLimit=256m",
        "http.followRedirects=false",
        "gitoxide.http.connectTimeout=10000",
        "pack.threads=1",
    ])
}

/// A commit of a repository on this disk, for comparing a folder with a ref.
///
/// # Errors
/// When there is no repository, no such revision, or no such path.
pub fn open_local(
    repo_dir: &Path,
    rev: &str,
    path: &str,
    limits: &Limits,
) -> Result<Snapshot, GitError> {
    let repository =
        options().open(repo_dir.to_owned()).map_err(|error| GitError::Storage(chain(&error)))?;
    let repo = repository.to_thread_local();
    let missing = || GitError::RefNotFound { what: format!("revision {rev:?}"), near: None };
    let id = repo.rev_parse_single(rev).map_err(|_| missing())?;
    let commit = id.object().ok().and_then(|o| o.peel_to_commit().ok()).ok_or_else(missing)?.id;
    drop(repo);
    Snapshot::read_commit(repository, commit, path, limits)
}
