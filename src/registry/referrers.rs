//! (pure) What is attached to an image: an artifact whose `subject` is the image, and the list of artifacts for registries without an API for
//! them (OCI distribution 1.1, "Referrers Tag Schema").
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::error::shown;
use super::image::Tag;
use super::manifest::{Descriptor, Digest, EMPTY, EMPTY_TYPE, MANIFEST};

/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Bytes of the largest list of artifacts.
pub const MAX_LIST: usize = 1 << 20;
/// Characters of the longest type, and of the longest name before and behind its slash.
const MAX_TYPE: usize = 255;
const MAX_PART: usize = 127;

/// A media type without parameters, as `application/spdx+json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType(String);

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MediaType {
    type Err = String;

    /// As RFC 6838 has them.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| {
            (1..=MAX_PART).contains(&part.len())
                && part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.bytes().all(|c| c.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&c))
        };
        match text.split_once('/') {
            Some((kind, name)) if text.len() <= MAX_TYPE && is_name(kind) && is_name(name) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err("the media type must look like application/spdx+json".into()),
        }
    }
}

/// The manifest of an artifact that has one file and belongs to an image. `subject` is the image's manifest. The same file gives the same manifest.
#[must_use]
pub fn artifact(kind: &MediaType, name: &str, file: &Descriptor, subject: &Descriptor) -> Vec<u8> {
    let described = |media_type: &str, Descriptor { digest, size }: &Descriptor| json!({"mediaType": media_type, "digest": digest.to_string(), "size": size});
    let empty = Descriptor { digest: Digest::of(EMPTY), size: EMPTY.len() as u64 };
    let mut layer = described(&kind.0, file);
    layer["annotations"] = json!({"org.opencontainers.image.title": name});
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": kind.0,
        "config": described(EMPTY_TYPE, &empty),
        "layers": [layer],
        "subject": described(MANIFEST, subject),
    })
    .to_string()
    .into_bytes()
}

/// The tag of the list of artifacts of an image.
#[must_use]
pub fn list_tag(subject: &Digest) -> Option<Tag> {
    format!("sha256-{}", subject.hex()).parse().ok()
}

/// The list of artifacts with one more. `list` is what the registry has; what others have written into it stays. `None` if the artifact is there.
///
/// # Errors
/// Why what the registry has is no such list, or cannot be longer.
pub fn listed(
    list: Option<&[u8]>,
    kind: &MediaType,
    artifact: &Descriptor,
) -> Result<Option<Vec<u8>>, String> {
    let mut all = match list {
        None => json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}),
        Some(bytes) if bytes.len() >= MAX_LIST => return Err(too_long()),
        Some(bytes) => serde_json::from_slice(bytes)
            .map_err(|error| format!("it is no JSON: {}", shown(&error.to_string())))?,
    };
    let is_index = all["schemaVersion"] == 2
        && (all["mediaType"].is_null() || all["mediaType"] == INDEX)
        && all["config"].is_null()
        && all["layers"].is_null();
    let entries = all.get_mut("manifests").and_then(Value::as_array_mut).filter(|_| is_index);
    let Some(entries) = entries else { return Err("it is no image index".into()) };
    if let Some(wrong) = entries.iter().find(|entry| !is_entry(entry)) {
        return Err(format!("its entry {} is none of an index", shown(&wrong.to_string())));
    }
    let Descriptor { digest, size } = artifact;
    let digest = digest.to_string();
    if entries.iter().any(|entry| entry["digest"] == digest.as_str()) {
        return Ok(None);
    }
    entries.push(
        json!({"mediaType": MANIFEST, "digest": digest, "size": size, "artifactType": kind.0}),
    );
    let bytes = all.to_string().into_bytes();
    if bytes.len() >= MAX_LIST { Err(too_long()) } else { Ok(Some(bytes)) }
}

fn is_entry(entry: &Value) -> bool {
    entry["mediaType"].is_string() && entry["digest"].is_string() && entry["size"].is_u64()
}

fn too_long() -> String {
    format!("it has {} MiB, and no more is read or written", MAX_LIST >> 20)
}

#[cfg(test)]
#[path = "tests/referrers.rs"]
mod tests;
