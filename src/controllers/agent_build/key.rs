//! (pure) The build key (B1): a hash of everything that goes into an image, and of nothing else.
//!
//! These go into the key: the trees of the source folder and of `trigger.paths`, the recipe, the image's name and the resolved
//! template. Commit, tag, timeout and the address of the repository do not. So a commit that touches other files builds nothing,
//! and a revert finds the image that was built before.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use sha2::{Digest, Sha256};

use crate::api::agent_build::{
    AgentBuildSpec, BuildAppend, BuildOutput, BuildSource, BuildStrategy, BuildTrigger,
};
use convoke_core::sync::commit::source_at::SourceAt;

/// The version of the encoding. Keys of different versions are never equal.
const VERSION: &str = "convoke build key 2";

/// Names one build: sha256 in 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildKey(String);

impl BuildKey {
    /// A key as a status says it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self(text.to_owned()))
    }

    /// All 64 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 10 hex digits, for names: 40 bits tell the builds of one object apart.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..10).unwrap_or(&self.0)
    }

    /// The first 32 hex digits: fits into a label.
    #[must_use]
    pub fn label(&self) -> &str {
        self.0.get(..32).unwrap_or(&self.0)
    }

    /// The tag by which a registry finds the image of this key.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("cvk-{}", self.0)
    }
}

impl fmt::Display for BuildKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The commit has no such folder.
    #[error("commit {commit} has no folder {subfolder}")]
    SubfolderMissing {
        /// `spec.source.subfolder`.
        subfolder: String,
        /// Commit, shortened.
        commit: String,
    },
}

/// The key of a build. `registry` is the registry host that is really used; `template_hash` is that of
/// [`super::pipeline_run::template_hash`]. `rebuild` is the value of the annotation `convoke.dev/rebuild`: what was built before
/// it was set is not used again.
///
/// # Errors
/// When the commit has no such source folder.
pub fn build_key(
    spec: &AgentBuildSpec,
    source: &SourceAt,
    registry: &str,
    template_hash: &str,
    rebuild: Option<&str>,
) -> Result<BuildKey, KeyError> {
    // Without `..`: whoever adds a field decides here whether it goes into the key.
    let AgentBuildSpec {
        source: from,
        output,
        strategy,
        append,
        dockerfile,
        mode: _,
        // What of it reaches a step is in the hash of the template.
        pipeline: _,
        build_args,
        layer_cache,
        timeout: _,
        trigger,
        retry_limit: _,
        history: _,
    } = spec;
    // The trees say what the source is. Where it comes from goes into no image.
    let BuildSource { git_sync: _, git: _, subfolder } = from;
    // A build that failed for want of `insecure` or of credentials must run again when they are given. Which credentials they are goes
    // into no image.
    let BuildOutput { registry: _, image, tag: _, insecure, secret_ref } = output;
    // With `baseImage`, what is appended to has a digest, and the source has those of a Dockerfile.
    let BuildTrigger { on_commit: _, paths, base_image: _ } = trigger;
    let tree = source.subfolder_tree.as_deref().ok_or_else(|| KeyError::SubfolderMissing {
        subfolder: subfolder.clone(),
        commit: source.commit.chars().take(12).collect(),
    })?;
    let mut encoding = Encoding::new();
    encoding.text("subfolder", subfolder);
    encoding.text("tree", tree);
    let mut paths: Vec<_> = paths.iter().collect();
    paths.sort_unstable();
    paths.dedup();
    encoding.list("paths", paths.len());
    for path in paths {
        encoding.text("path", path);
        // A path that the commit lacks is no error: it counts as soon as it is there.
        encoding.option("object", source.paths.get(path).and_then(Option::as_deref));
    }
    encoding.text("dockerfile", dockerfile);
    encoding.list("build args", build_args.len());
    for (name, value) in build_args {
        encoding.text("name", name);
        encoding.text("value", value);
    }
    // Without it a key stays what it is. Which layers are there does not count.
    if *layer_cache {
        encoding.text("layer cache", "true");
    }
    if *strategy == BuildStrategy::Append
        && let Some(append) = append
    {
        self::append(&mut encoding, append);
    }
    // Without any it adds nothing: a key without them stays what it is.
    if !source.base_images.is_empty() {
        encoding.list("base images", source.base_images.len());
        for (word, image) in &source.base_images {
            encoding.text("word", word);
            encoding.text("image", image);
        }
    }
    encoding.text("registry", registry);
    encoding.text("image", image);
    encoding.text("insecure", if *insecure { "true" } else { "false" });
    if secret_ref.is_some() {
        encoding.text("credentials", "true");
    }
    encoding.text("template", template_hash);
    encoding.option("rebuild", rebuild);
    Ok(BuildKey(encoding.finish()))
}

/// What is appended to what.
fn append(encoding: &mut Encoding, append: &BuildAppend) {
    let BuildAppend { base_image, into, command, user, lock_file, platform } = append;
    encoding.text("base image", base_image);
    encoding.text("into", into);
    encoding.list("command", command.len());
    for word in command {
        encoding.text("word", word);
    }
    encoding.option("user", user.as_deref());
    // One that is not set adds nothing: a key without them stays what it is.
    for (label, value) in [("lock file", lock_file), ("platform", platform)] {
        if let Some(value) = value {
            encoding.text(label, value);
        }
    }
}

/// Hash of labelled values: every text carries its length and every list its count, so that no two different
/// splits of the same characters are equal.
pub(super) struct Encoding(Sha256);

impl Encoding {
    pub(super) fn new() -> Self {
        let mut encoding = Self(Sha256::new());
        encoding.bytes(VERSION.as_bytes());
        encoding
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn text(&mut self, label: &str, value: &str) {
        self.bytes(label.as_bytes());
        self.bytes(value.as_bytes());
    }

    pub(super) fn option(&mut self, label: &str, value: Option<&str>) {
        self.list(label, usize::from(value.is_some()));
        if let Some(value) = value {
            self.bytes(value.as_bytes());
        }
    }

    pub(super) fn list(&mut self, label: &str, count: usize) {
        self.bytes(label.as_bytes());
        self.0.update((count as u64).to_be_bytes());
    }

    pub(super) fn finish(self) -> String {
        convoke_core::text::hex(&self.0.finalize())
    }
}

#[cfg(test)]
#[path = "tests/key.rs"]
mod tests;
