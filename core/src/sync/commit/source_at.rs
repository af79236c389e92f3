//! What the builds of a commit are made from.

use std::collections::BTreeMap;

/// The source of one build at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAt {
    /// Name of the GitSync.
    pub sync: String,
    /// URL of the repository, without credentials.
    pub url: String,
    /// Commit (40 or 64 hex digits).
    pub commit: String,
    /// Id of the tree of `source.subfolder`; `None` when the commit has no such folder.
    pub subfolder_tree: Option<String>,
    /// Id of the tree or blob of each of `trigger.paths`; `None` when the commit has no such path.
    pub paths: BTreeMap<String, Option<String>>,
    /// What [`crate::api::keys::APPLIED`] says on the object once the definition of this commit is applied. Until
    /// then spec and source belong to different commits, and nothing is built. `None`: don't wait for it.
    pub applied: Option<String>,
}
