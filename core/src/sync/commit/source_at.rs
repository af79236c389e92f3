//! The sources of the AgentBuilds of a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::agent_build::{AgentBuildSpec, BuildStrategy};
use crate::dockerfile::Dockerfile;

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
    /// Its Dockerfile, if the base images of that are to be followed.
    pub dockerfile: Option<DockerfileAt>,
    /// The images of the Dockerfile that are followed, as `NAME@DIGEST`, by the words that stand for them in it. A commit has none: whoever
    /// asks registries puts them in.
    pub base_images: BTreeMap<String, String>,
    /// The value of the annotation [`crate::api::keys::APPLIED`] once the definition of this commit is applied. Until the object
    /// has it, its spec and this source are of different commits, and nothing is built. `None`: do not wait.
    pub applied: Option<String>,
}

/// A Dockerfile of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerfileAt {
    /// Its path from the root of the repository.
    pub path: String,
    /// What it says, or why it cannot be read.
    pub read: Result<Arc<Dockerfile>, String>,
}

impl DockerfileAt {
    /// A Dockerfile with this content, or the reason why there is none.
    #[must_use]
    pub fn new(path: String, content: Result<&[u8], String>) -> Self {
        let text = content.and_then(|bytes| {
            std::str::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8"))
        });
        let read = text.map(|text| Arc::new(Dockerfile::parse(text)));
        Self { path, read }
    }
}

/// The path of the Dockerfile of a spec whose base images are to be followed, from the root of the repository. `None` if they are not.
#[must_use]
pub fn followed_dockerfile(spec: &AgentBuildSpec) -> Option<String> {
    let follows = spec.trigger.base_image && spec.strategy == BuildStrategy::Dockerfile;
    follows.then(|| match spec.source.subfolder.trim_end_matches('/') {
        "" | "." => spec.dockerfile.clone(),
        subfolder => format!("{subfolder}/{}", spec.dockerfile),
    })
}
