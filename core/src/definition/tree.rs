//! The interface of what the loader reads: the tree of a commit, or a local folder. Read only.

use std::sync::Arc;

/// What an entry of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link: never followed.
    Symlink,
    /// A submodule: never entered.
    Submodule,
    /// Anything else, or an entry with a forged name or mode.
    Odd,
}

/// One entry that is not a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Content id: blob id, or a hash of the content.
    pub id: String,
    /// The kind of entry.
    pub kind: EntryKind,
}

/// A part of the tree that was left out, because a budget was exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeProblem {
    /// Path of the part.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Why an entry cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// It is larger than the budget.
    #[error("{path} is larger than {limit} bytes")]
    TooLarge {
        /// Path of the entry.
        path: String,
        /// The budget, in bytes.
        limit: u64,
    },
    /// It is a folder, a link or something else that has no content.
    #[error("{path} is no regular file")]
    NotAFile {
        /// Path of the entry.
        path: String,
    },
    /// It cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Unreadable {
        /// Path of the entry.
        path: String,
        /// Why.
        reason: String,
    },
}

/// One entry in which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryChange {
    /// Path from the root of the repository.
    pub path: String,
    /// What the earlier tree has there.
    pub old: Option<EntryKind>,
    /// What the later tree has there.
    pub new: Option<TreeEntry>,
}

/// How a tree differs from an earlier one of the same repository and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeChanges {
    /// [`RepositoryTree::number`] of the earlier one.
    pub since: u64,
    /// All entries below the synced path that came, went, or are another content now.
    pub entries: Vec<EntryChange>,
    /// Whether anything outside of the synced path may differ.
    pub elsewhere: bool,
}

/// A commit's tree, or a local folder.
pub trait RepositoryTree {
    /// A number that identifies this tree within the process. The tree never changes. `None`: it may change while it is
    /// read.
    fn number(&self) -> Option<u64> {
        None
    }
    /// How it differs from a tree that was read before it, if that is known. Then neither of the two has problems.
    fn changes(&self) -> Option<&TreeChanges> {
        None
    }
    /// All entries below the synced path, recursively, sorted by path, within budgets.
    fn entries(&self) -> &[TreeEntry];
    /// The parts that were left out.
    fn problems(&self) -> &[TreeProblem];
    /// Any entry of the repository by path, never through a link; folders are `None`.
    ///
    /// # Errors
    /// When a tree on the way cannot be read.
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError>;
    /// Content of an entry.
    ///
    /// # Errors
    /// When it is larger than `max_bytes` or cannot be read.
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError>;
}
