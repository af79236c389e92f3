//! What the loader reads from: the tree of one commit, or a local folder, read only.
//!
//! No implementation here touches Git or a file system; [`MemoryTree`] serves tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

/// What an entry of a tree is. Only files are ever read; nothing is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file (executable or not).
    File,
    /// A symbolic link. Never followed.
    Symlink,
    /// A submodule (gitlink). Never followed.
    Submodule,
    /// Anything else: an unknown mode, a device, a socket.
    Odd,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TreeEntry {
    /// Relative to the root of the repository, `/`-separated, without a leading `./`.
    pub path: String,
    /// Id of the content (Git blob id, or a hash): the same id means the same bytes.
    pub id: String,
    /// What it is.
    pub kind: EntryKind,
}

/// A part of the tree that was left out. Becomes an error: absence must be proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeProblem {
    /// The entry, or the folder below which something was left out.
    pub path: String,
    /// Why (a budget, unreadable, no such folder), for people: lower-case, no trailing stop.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Why an entry could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// The content is larger than the caller allows.
    #[error("{path} is larger than {limit} bytes")]
    TooLarge {
        /// The entry.
        path: String,
        /// Bytes allowed.
        limit: u64,
    },
    /// The entry is no regular file.
    #[error("{path} is no regular file")]
    NotAFile {
        /// The entry.
        path: String,
    },
    /// The object store or the disk failed; trying again may help.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The entry.
        path: String,
        /// What happened, without content.
        reason: String,
    },
}

/// A commit's tree (or a local folder), read only.
pub trait RepositoryTree {
    /// All entries below the synced path, recursively, sorted by path, within budgets.
    fn entries(&self) -> &[TreeEntry];

    /// What was left out because a budget was exceeded or it could not be listed. Each becomes an error.
    fn problems(&self) -> &[TreeProblem];

    /// Any entry of the repository by its path, also outside of the synced path.
    ///
    /// Follows no links: for a path through a link the answer is `None` or the entry of the link itself.
    /// `None` for folders too.
    ///
    /// # Errors
    /// [`TreeError::Unreadable`] when it cannot be told.
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError>;

    /// The content of a file, at most `max_bytes`.
    ///
    /// # Errors
    /// [`TreeError::TooLarge`] beyond `max_bytes`, [`TreeError::NotAFile`] for anything but a file,
    /// [`TreeError::Unreadable`] when reading failed.
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError>;
}

/// A tree in memory, for tests. Every entry lies below the synced path unless it was put outside.
#[derive(Debug, Clone, Default)]
pub struct MemoryTree {
    files: BTreeMap<String, (TreeEntry, Arc<[u8]>)>,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
}

impl MemoryTree {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a file below the synced path.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.put(path, EntryKind::File, content.as_ref(), true);
        self
    }

    /// Adds or replaces a file that lies outside of the synced path.
    #[must_use]
    pub fn outside(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.put(path, EntryKind::File, content.as_ref(), false);
        self
    }

    /// Adds or replaces an entry that is no file.
    #[must_use]
    pub fn entry(mut self, path: &str, kind: EntryKind) -> Self {
        self.put(path, kind, b"", true);
        self
    }

    /// Adds a problem of the walk.
    #[must_use]
    pub fn problem(mut self, problem: TreeProblem) -> Self {
        self.problems.push(problem);
        self
    }

    /// Removes an entry.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.files.remove(path);
        self.entries.retain(|entry| entry.path != path);
        self
    }

    fn put(&mut self, path: &str, kind: EntryKind, content: &[u8], below: bool) {
        use sha2::{Digest, Sha256};
        let id = hex(&Sha256::digest(content));
        let entry = TreeEntry { path: path.to_owned(), id, kind };
        self.entries.retain(|known| known.path != path);
        if below {
            self.entries.push(entry.clone());
            self.entries.sort_by(|a, b| a.path.cmp(&b.path));
        }
        self.files.insert(path.to_owned(), (entry, content.into()));
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl RepositoryTree for MemoryTree {
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    fn problems(&self) -> &[TreeProblem] {
        &self.problems
    }

    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        Ok(self.files.get(path).map(|(entry, _)| entry.clone()))
    }

    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        if entry.kind != EntryKind::File {
            return Err(TreeError::NotAFile { path: entry.path.clone() });
        }
        match self.files.get(&entry.path) {
            Some((_, content)) if content.len() as u64 <= max_bytes => Ok(Arc::clone(content)),
            Some(_) => Err(TreeError::TooLarge { path: entry.path.clone(), limit: max_bytes }),
            None => Err(TreeError::Unreadable {
                path: entry.path.clone(),
                reason: "no such entry".into(),
            }),
        }
    }
}
