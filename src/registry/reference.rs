//! (pure) A base image, as people name it: `python:3.12-slim`, `registry.example.com:5000/team/base@sha256:…`.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;
use std::str::FromStr;

use super::image::{Image, Tag};
use super::manifest::Digest;

/// The registry of names that name none.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Where that has its images of one word.
const DEFAULT_FOLDER: &str = "library";

/// An image with a tag, a digest, or both. The digest counts if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The image.
    pub image: Image,
    tag: Option<Tag>,
    digest: Option<Digest>,
}

impl Reference {
    /// The digest that the image must have.
    #[must_use]
    pub const fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The digest or the tag, for a URL.
    #[must_use]
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.as_ref().map_or("latest", Tag::as_str).to_owned(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.image)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':') {
            // A colon before the last slash is a port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag.parse::<Tag>()?)),
            _ => (name, None),
        };
        if tag.is_none() && digest.is_none() {
            return Err("it needs a tag or a digest: NAME:TAG or NAME@sha256:...".into());
        }
        // As docker tells a registry from the first part of a name.
        let is_registry =
            |first: &str| first.contains(['.', ':']) || first.eq_ignore_ascii_case("localhost");
        let full = match name.split_once('/') {
            Some((first, rest)) if is_registry(first) => {
                let on_hub = first.eq_ignore_ascii_case(DEFAULT_REGISTRY);
                if on_hub && !rest.contains('/') {
                    format!("{DEFAULT_REGISTRY}/{DEFAULT_FOLDER}/{rest}")
                } else {
                    name.to_owned()
                }
            }
            Some(_) => format!("{DEFAULT_REGISTRY}/{name}"),
            None => format!("{DEFAULT_REGISTRY}/{DEFAULT_FOLDER}/{name}"),
        };
        let wrong = |_| "it must look like python:3.13 or registry.example.com/team/name:tag";
        Ok(Self { image: full.parse().map_err(wrong)?, tag, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b11_a_base_image_is_named_as_docker_names_it() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, full, version) in [
            ("python:3.13", "docker.io/library/python:3.13", "3.13"),
            ("docker.io/python:3.13", "docker.io/library/python:3.13", "3.13"),
            ("team/base:1", "docker.io/team/base:1", "1"),
            ("localhost/base:1", "localhost/base:1", "1"),
            ("Reg.example:5000/a/b:c", "reg.example:5000/a/b:c", "c"),
            (&format!("r.example/a@{digest}"), &format!("r.example/a@{digest}"), &digest),
            (&format!("r.example/a:1@{digest}"), &format!("r.example/a:1@{digest}"), &digest),
        ] {
            let found: Reference = text.parse().expect(text);
            assert_eq!((found.to_string().as_str(), found.version().as_str()), (full, version));
        }
        for text in [
            "",
            "python",
            "r.example/a",
            "r.example:5000/a",
            "a:",
            "a:b:c",
            "a@sha256:1",
            "a:-x",
            "https://r.example/a:1",
            "A:1",
            "a/../b:1",
            "a b:1",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
    }
}
