//! The sources of the AgentBuilds of a commit.

use std::collections::BTreeMap;

use crate::api::Kind;
use crate::api::agent_build::AgentBuildSpec;
use crate::git::{GitError, Snapshot};
use crate::sync::commit::desired::DesiredSet;
use crate::sync::commit::source_at::{DockerfileAt, SourceAt, followed_dockerfile};
use convoke_core::dockerfile::MAX_BYTES;

/// The source of each AgentBuild of a commit, with the tree ids of the folders that it names in this repository. Without a snapshot, only those
/// that are built from another repository.
pub(in crate::sync) fn build_sources(
    desired: &DesiredSet,
    snapshot: Option<&Snapshot>,
    sync: &str,
    url: &str,
    commit: &str,
) -> Result<Vec<(String, SourceAt)>, GitError> {
    let mut builds = Vec::new();
    let from = desired.iter_from(|id| id.kind < Kind::AgentBuild);
    for (id, want) in from.take_while(|(id, _)| id.kind == Kind::AgentBuild) {
        // The definition was validated against the schema that this type gives.
        let Some(spec) = want.definition.canonical_spec.get::<AgentBuildSpec>() else {
            continue;
        };
        let (mut subfolder_tree, mut paths, mut dockerfile) = (None, BTreeMap::new(), None);
        // What is built from another repository has nothing here that counts but its definition.
        if spec.source.git.is_none() {
            let Some(snapshot) = snapshot else { continue };
            subfolder_tree = tree_id(snapshot, &spec.source.subfolder)?;
            dockerfile = dockerfile_of(snapshot, &spec);
            for path in spec.trigger.paths {
                let tree = tree_id(snapshot, &path)?;
                paths.insert(path, tree);
            }
        }
        let source = SourceAt {
            sync: sync.to_owned(),
            url: url.to_owned(),
            commit: commit.to_owned(),
            subfolder_tree,
            paths,
            dockerfile,
            base_images: BTreeMap::new(),
            applied: Some(want.applied.clone()),
        };
        builds.push((id.name.clone(), source));
    }
    Ok(builds)
}

/// The Dockerfile of a build, if its base images are to be followed.
#[must_use]
pub fn dockerfile_of(snapshot: &Snapshot, spec: &AgentBuildSpec) -> Option<DockerfileAt> {
    let path = followed_dockerfile(spec)?;
    let content = snapshot.file(&path, MAX_BYTES);
    Some(DockerfileAt::new(path, content.as_deref().map_err(Clone::clone)))
}

/// The id of the object at a path that a definition names. A path that no tree may have counts as missing: then only this build
/// reports a problem, and the rest of the commit is applied.
fn tree_id(snapshot: &Snapshot, path: &str) -> Result<Option<String>, GitError> {
    match snapshot.tree_id(path) {
        Err(GitError::InvalidPath { .. }) => Ok(None),
        other => other,
    }
}
