//! The sources of the AgentBuilds of a commit.

use std::collections::BTreeMap;

/// The source of one AgentBuild at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceAt {
    /// Name of the GitSync.
    pub sync: String,
    /// URL of the repository, without credentials.
    pub url: String,
    /// The commit, 40 or 64 hexadecimal digits.
    pub commit: String,
    /// Id of the tree of `source.subfolder`; `None` when the commit has no such folder.
    pub subfolder_tree: Option<String>,
    /// Id of the tree or blob of each of `trigger.paths`; `None` when the commit has no such path.
    pub paths: BTreeMap<String, Option<String>>,
    /// The value of the annotation [`crate::api::keys::APPLIED`] once the definition of this commit is applied. Until the object
    /// has it, its spec and this source are of different commits, and nothing is built. `None`: do not wait.
    pub applied: Option<String>,
}
