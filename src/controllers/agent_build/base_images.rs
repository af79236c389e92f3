//! (pure) The base images of a Dockerfile whose tags are followed (B1): which images they are, and how the step that builds gets their digests.
//!
//! Which digests tags have, registries are asked in `bases.rs`. What cannot be followed is told, and built as the Dockerfile says.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};

use super::pipeline::may_set;
use super::template::ParameterValue;
use crate::api::agent_build::{AgentBuildSpec, AgentBuildStatus, BuildStrategy};
use crate::registry::{Digest, Reference};
use convoke_core::dockerfile::{Base, Bases};
use convoke_core::sync::commit::source_at::{SourceAt, followed_dockerfile};

/// The parameter with the images, as `WORD=docker-image://NAME@DIGEST`: what buildah takes with `--build-context`.
pub const BASE_IMAGES: &str = "base-images";
/// How buildah tells an image from a folder.
const SCHEME: &str = "docker-image://";

/// An image to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// What stands for it in the Dockerfile.
    pub word: String,
    /// The image, with its tag.
    pub reference: Reference,
    /// The line.
    pub line: usize,
}

impl Followed {
    /// The image with this digest, as buildah takes it: without a tag.
    #[must_use]
    pub fn with(&self, digest: &Digest) -> String {
        format!("{}@{digest}", self.reference.image)
    }
}

/// Whether the tags of a Dockerfile are to be followed.
#[must_use]
pub fn follows(spec: &AgentBuildSpec) -> bool {
    spec.trigger.base_image && spec.strategy == BuildStrategy::Dockerfile
}

/// The images of a Dockerfile that are to be followed, and what cannot be, in words.
#[must_use]
pub fn followed(spec: &AgentBuildSpec, source: &SourceAt) -> (Vec<Followed>, Vec<String>) {
    let Some(path) = followed_dockerfile(spec) else { return (Vec::new(), Vec::new()) };
    let nothing = |why: &str| (Vec::new(), vec![why.to_owned()]);
    let pipeline = spec.pipeline.iter();
    let mut set = pipeline.flat_map(|pipeline| {
        let of_steps = pipeline.steps.iter().flat_map(|step| &step.parameters);
        pipeline.parameters.iter().chain(of_steps)
    });
    if let Some(parameter) = set.find(|parameter| may_set(&parameter.name)) {
        return nothing(&format!(
            "spec.pipeline sets {}: no base image is followed",
            parameter.name
        ));
    }
    let file = match source.dockerfile.as_ref().filter(|file| file.path == path) {
        Some(file) => match &file.read {
            Ok(file) => file,
            Err(why) => return nothing(&format!("no base image is followed: {why}")),
        },
        None => {
            return nothing(
                "no base image is followed: the definition in Git does not ask for it, or names another Dockerfile",
            );
        }
    };
    let Bases { images, unknown } = file.bases(&spec.build_args);
    let mut problems: Vec<_> =
        unknown.iter().map(|one| format!("{path}, line {}: {}", one.line, one.why)).collect();
    let mut followed = Vec::new();
    for Base { word, image, line } in images {
        match named(&image) {
            Ok(reference) => followed.push(Followed { word, reference, line }),
            Err(why) => problems.push(format!("{path}, line {line}: {image}: {why}")),
        }
    }
    (followed, problems)
}

/// An image with a tag, as a Dockerfile names it.
fn named(image: &str) -> Result<Reference, String> {
    let has_tag = image.rsplit('/').next().is_some_and(|name| name.contains(':'));
    if has_tag { image.parse() } else { format!("{image}:latest").parse() }
}

/// The digest that a status has for an image.
#[must_use]
pub fn digest_of(status: &AgentBuildStatus, reference: &Reference) -> Option<Digest> {
    let mut known = status.base_images.iter().filter_map(|one| one.split_once('@'));
    let (_, digest) = known.find(|(image, _)| *image == reference.to_string())?;
    digest.parse().ok()
}

/// The images with the digests that a status has for them, by word. For who cannot ask.
#[must_use]
pub fn pinned_by(
    spec: &AgentBuildSpec,
    source: &SourceAt,
    status: &AgentBuildStatus,
) -> BTreeMap<String, String> {
    let (all, _) = followed(spec, source);
    let one =
        |one: &Followed| Some((one.word.clone(), one.with(&digest_of(status, &one.reference)?)));
    all.iter().filter_map(one).collect()
}

/// The value of the parameter [`BASE_IMAGES`].
#[must_use]
pub fn value(source: &SourceAt) -> ParameterValue {
    let one = |(word, image): (&String, &String)| format!("{word}={SCHEME}{image}");
    ParameterValue::List(source.base_images.iter().map(one).collect())
}

/// The images of the parameter [`BASE_IMAGES`], each once.
///
/// # Errors
/// It has something else.
pub fn of_value(list: &[&str]) -> Result<Vec<Reference>, String> {
    let mut images = BTreeSet::new();
    for one in list {
        let image = one.split_once('=').and_then(|(_, image)| image.strip_prefix(SCHEME));
        let wrong = || format!("the parameter {BASE_IMAGES} is none of this version");
        images.insert(image.ok_or_else(wrong)?);
    }
    images.into_iter().map(str::parse).collect()
}

#[cfg(test)]
#[path = "tests/base_images.rs"]
mod tests;
