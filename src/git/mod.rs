//! All that knows Git: ask a remote, fetch shallow into a bare store, read trees. No checkout, no subprocess.

mod error;
pub mod local;
mod remote;
mod snapshot;
mod url;

pub use error::GitError;
pub use remote::{Remote, RemoteOptions, Revision};
pub use snapshot::{CommitInfo, Snapshot, open_local};

/// Budgets on what a remote may make us read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one fetch on disk.
    pub pack_bytes: u64,
    /// Entries below the path.
    pub files: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Folders in folders.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pack_bytes: 64 << 20, files: 10_000, file_bytes: 1 << 20, depth: 32 }
    }
}
