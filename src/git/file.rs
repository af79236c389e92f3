//! One file of a commit.

use std::sync::Arc;

use gix::ObjectId;

use super::attempt::Control;
use super::error::printable;
use super::snapshot::{self, Snapshot};
use super::{GitError, Inner, Remote, check};
use crate::definition::tree::RepositoryTree;

/// The content of a file, or why there is none, in words.
pub type FileAt = Result<Arc<[u8]>, String>;

/// That a commit lacks a file.
pub(super) fn missing(path: &str) -> String {
    format!("the commit has no file {}", printable(path))
}

impl Snapshot {
    /// The content of a file. The path is relative to the root of the repository. Links are not followed.
    ///
    /// # Errors
    /// Why there is none, in words: no such file, a link, too large, damaged.
    pub fn file(&self, path: &str, max_bytes: u64) -> FileAt {
        let entry = self.lookup(path).map_err(|error| error.to_string())?;
        let entry = entry.ok_or_else(|| missing(path))?;
        self.read(&entry, max_bytes).map_err(|error| error.to_string())
    }
}

impl Remote {
    /// Verifies a fetched commit, and reads one file of it, as [`Snapshot::file`] does. Nothing is listed.
    ///
    /// # Errors
    /// As [`Self::snapshot`], but for those of the path.
    pub async fn file(&self, commit: &str, path: String, max: u64) -> Result<FileAt, GitError> {
        let commit = check::commit_id(commit)?;
        let time = self.inner.timeout;
        let work = move |inner: &Inner, control: &Control| inner.file(commit, &path, max, control);
        self.attempt("reading a file", time, work).await
    }
}

impl Inner {
    fn file(
        &self,
        commit: ObjectId,
        path: &str,
        max: u64,
        control: &Control,
    ) -> Result<FileAt, GitError> {
        let now = self.store_of(&commit, control)?;
        self.verify(&now, &commit)?;
        let found = snapshot::file(now.objects()?, &commit, path, max.min(self.limits.file_bytes));
        if matches!(found, Err(GitError::CorruptData { .. })) {
            now.mark_damaged();
        }
        found
    }
}
