//! (pure) The registry, the name and the tags of an image.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// Characters of the longest name, with the registry: what registries take.
const MAX_NAME: usize = 255;
/// Characters of the longest tag.
const MAX_TAG: usize = 128;
/// Docker Hub, as images name it, and where its registry is.
const DOCKER_HUB: [&str; 2] = ["docker.io", "index.docker.io"];
const DOCKER_HUB_SERVER: &str = "registry-1.docker.io";

/// An image without a tag: `HOST[:PORT]/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    registry: String,
    name: String,
}

impl Image {
    /// The registry, as the image names it.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The name in the registry.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the registry is Docker Hub.
    #[must_use]
    pub fn is_on_docker_hub(&self) -> bool {
        DOCKER_HUB.contains(&self.registry.as_str()) || self.registry == DOCKER_HUB_SERVER
    }

    /// Whether another image is in the same registry.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.registry == other.registry || (self.is_on_docker_hub() && other.is_on_docker_hub())
    }

    /// The URL of the registry's API. `None` when the host is none.
    #[must_use]
    pub fn api(&self, plain_http: bool) -> Option<Url> {
        let scheme = if plain_http { "http" } else { "https" };
        let host = if self.is_on_docker_hub() { DOCKER_HUB_SERVER } else { &self.registry };
        let url = Url::parse(&format!("{scheme}://{host}/v2/")).ok()?;
        let is_host_only = url.host_str().is_some() && url.path() == "/v2/";
        is_host_only.then_some(url)
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.name)
    }
}

impl FromStr for Image {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "it must look like registry.example.com:5000/team/name".to_owned();
        let (registry, name) = text.split_once('/').ok_or_else(wrong)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]_".contains(c);
        if registry.is_empty() || !registry.chars().all(is_plain) || text.len() > MAX_NAME {
            return Err(wrong());
        }
        if name.contains(['@', ':']) {
            return Err("it must have no tag and no digest: tags are given by themselves".into());
        }
        if !name.split('/').all(is_part) {
            return Err(wrong());
        }
        let image = Self { registry: registry.to_ascii_lowercase(), name: name.to_owned() };
        image.api(false).ok_or_else(wrong)?;
        Ok(image)
    }
}

/// Whether a text is one part of a name: lower-case letters and digits, between them `.`, `_`, `__` or dashes.
fn is_part(part: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends = [part.bytes().next(), part.bytes().next_back()];
    let mut separators = part.split(|c: char| c.is_ascii() && is_word(c as u8));
    ends.into_iter().all(|end| end.is_some_and(is_word))
        && separators
            .all(|one| matches!(one, "" | "." | "_" | "__") || one.bytes().all(|c| c == b'-'))
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag(String);

impl Tag {
    /// The tag as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        let good = (1..=MAX_TAG).contains(&text.len())
            && text.bytes().all(is_plain)
            && !text.starts_with(['.', '-']);
        if good {
            Ok(Self(text.to_owned()))
        } else {
            Err("it must have 1 to 128 letters, digits, dots, dashes and underscores".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b5_an_image_is_a_registry_and_a_name() {
        for (text, api) in [
            ("registry.example.com/a", "https://registry.example.com/v2/"),
            ("registry:5000/team/a-b.c__d", "https://registry:5000/v2/"),
            ("[::1]:5000/a", "https://[::1]:5000/v2/"),
            ("docker.io/team/a", "https://registry-1.docker.io/v2/"),
        ] {
            let image: Image = text.parse().expect(text);
            assert_eq!(
                (image.to_string().as_str(), image.api(false).map(String::from).as_deref()),
                (text, Some(api))
            );
        }
        let plain: Image = "localhost:1/a".parse().expect("an image");
        assert_eq!(plain.api(true).map(String::from).as_deref(), Some("http://localhost:1/v2/"));
        for text in [
            "",
            "a",
            "/a",
            "h/",
            "h/A",
            "h/a:tag",
            "h/a@sha256:0",
            "h/../b",
            "h/a//b",
            "h/a/",
            "u:p@h/a",
            "h?x/a",
            "h#/a",
            "h:x/a",
            "h:99999/a",
            "h/-a",
            "h/a..b",
            "h/a b",
            "h/ä",
            "h\\x/a",
            "https://h/a",
        ] {
            assert!(text.parse::<Image>().is_err(), "{text}");
        }
        assert!(format!("h/{}", "a".repeat(MAX_NAME)).parse::<Image>().is_err());
    }

    #[test]
    fn b5_a_tag_is_one_word() {
        for text in ["a", "1.2-x_Y", "cvk-0123", "_x"] {
            assert_eq!(text.parse::<Tag>().map(|tag| tag.to_string()).as_deref(), Ok(text));
        }
        for text in ["", ".a", "-a", "a/b", "../x", "a b", "a\n", &"a".repeat(MAX_TAG + 1)] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }
}
