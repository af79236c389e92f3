//! (pure) What an OCI image layout says: `oci-layout`, `index.json`, the manifest, and their descriptors.
//!
//! The manifest is pushed as it is. A field that is not known here is refused in it: a registry could read it in another way.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::error::shown;
use convoke_core::text::{hex, quote};

/// The media type of the manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a blob that says nothing.
pub const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// The blob that says nothing.
pub const EMPTY: &[u8] = b"{}";
/// Layers of the largest image.
pub const MAX_LAYERS: usize = 512;
/// The most bytes of a layer: reading it must end.
pub const MAX_LAYER: u64 = 32 << 30;
/// Bytes of the largest `index.json`, and of the largest manifest.
pub const MAX_MANIFEST: u64 = 4 << 20;
/// Bytes of the largest configuration of an image.
pub const MAX_CONFIG: u64 = 8 << 20;

const CONFIGS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
const LAYERS: [&str; 6] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];
/// How media types of layers begin that a registry gets from elsewhere.
const FOREIGN: [&str; 2] = [
    "application/vnd.oci.image.layer.nondistributable.",
    "application/vnd.docker.image.rootfs.foreign.",
];

/// The SHA-256 digest of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Digest(String);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)))
    }

    /// The digest of what was hashed.
    #[must_use]
    pub(super) fn of_hash(hash: Sha256) -> Self {
        Self(hex(&hash.finalize()))
    }

    /// 64 lower-case hex digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        if digits.len() == 64 && digits.bytes().all(is_digit) {
            return Ok(Self(digits.to_owned()));
        }
        Err(format!("the digest {} is not \"sha256:\" and 64 lower-case hex digits", quote(text)))
    }
}

/// What a descriptor says of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Its digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
}

/// The blobs of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct WrittenLayout {
    #[serde(rename = "imageLayoutVersion")]
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenIndex {
    schema_version: u64,
    manifests: Vec<WrittenDescriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenManifest {
    schema_version: u64,
    media_type: Option<String>,
    config: WrittenDescriptor,
    layers: Vec<WrittenDescriptor>,
    subject: Option<IgnoredAny>,
    #[serde(rename = "artifactType")]
    _artifact_type: Option<String>,
    #[serde(rename = "annotations")]
    _annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenDescriptor {
    media_type: String,
    digest: String,
    size: u64,
    urls: Option<IgnoredAny>,
    data: Option<IgnoredAny>,
    #[serde(rename = "annotations")]
    _annotations: Option<BTreeMap<String, String>>,
    #[serde(rename = "platform")]
    _platform: Option<BTreeMap<String, Value>>,
    #[serde(rename = "artifactType")]
    _artifact_type: Option<String>,
}

impl WrittenDescriptor {
    /// What is pushed of it. `what` names it in the error.
    fn checked(&self, what: &str) -> Result<Descriptor, String> {
        if self.urls.is_some() {
            return Err(format!(
                "{what} has `urls`: what is to be fetched from elsewhere is not pushed"
            ));
        }
        if self.data.is_some() {
            return Err(format!("{what} has `data`, which is not pushed"));
        }
        let digest = self.digest.parse().map_err(|why| format!("{what}: {why}"))?;
        Ok(Descriptor { digest, size: self.size })
    }
}

/// Parses JSON. The error says where it is wrong.
fn parsed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| shown(&error.to_string()))
}

/// Checks `oci-layout`.
///
/// # Errors
/// Why it is none.
pub fn layout_version(bytes: &[u8]) -> Result<(), String> {
    let WrittenLayout { version } = parsed(bytes)?;
    if version == "1.0.0" {
        return Ok(());
    }
    Err(format!("the version of the layout is {}, not \"1.0.0\"", quote(&version)))
}

/// The manifest that `index.json` names.
///
/// # Errors
/// Why it names none that is pushed.
pub fn index(bytes: &[u8]) -> Result<Descriptor, String> {
    let index: WrittenIndex = parsed(bytes)?;
    if index.schema_version != 2 {
        return Err("the schemaVersion is not 2".into());
    }
    let [manifest] = index.manifests.as_slice() else {
        return Err(format!("it names {} manifests, and must name one", index.manifests.len()));
    };
    if manifest.media_type != MANIFEST {
        let found = quote(&manifest.media_type);
        return Err(format!("the manifest is of type {found}, not {MANIFEST}"));
    }
    let found = manifest.checked("the manifest")?;
    if found.size > MAX_MANIFEST {
        return Err(format!("the manifest is larger than {} MiB", MAX_MANIFEST >> 20));
    }
    Ok(found)
}

/// The blobs that a manifest names.
///
/// # Errors
/// Why it is not pushed.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, String> {
    let written: WrittenManifest = parsed(bytes)?;
    if written.schema_version != 2 {
        return Err("the schemaVersion is not 2".into());
    }
    if let Some(found) = written.media_type.filter(|found| found != MANIFEST) {
        return Err(format!("it says that it is of type {}, not {MANIFEST}", quote(&found)));
    }
    if written.subject.is_some() {
        return Err("it has a `subject`: what belongs to another image is not pushed".into());
    }
    if !CONFIGS.contains(&written.config.media_type.as_str()) {
        let found = quote(&written.config.media_type);
        return Err(format!("the configuration is of type {found}, which is none of an image"));
    }
    let config = written.config.checked("the configuration")?;
    if config.size > MAX_CONFIG {
        return Err(format!("the configuration is larger than {} MiB", MAX_CONFIG >> 20));
    }
    if written.layers.len() > MAX_LAYERS {
        return Err(format!(
            "it has {} layers, and the most is {MAX_LAYERS}",
            written.layers.len()
        ));
    }
    let mut layers = Vec::with_capacity(written.layers.len());
    for (number, layer) in (1..).zip(&written.layers) {
        let what = format!("layer {number}");
        let found = layer.media_type.as_str();
        if FOREIGN.iter().any(|start| found.starts_with(start)) {
            return Err(format!(
                "{what} is a foreign layer ({}), which is not pushed",
                quote(found)
            ));
        }
        if !LAYERS.contains(&found) {
            return Err(format!("{what} is of type {}, which is none of a layer", quote(found)));
        }
        let layer = layer.checked(&what)?;
        if layer.size > MAX_LAYER {
            return Err(format!("{what} is larger than {} GiB", MAX_LAYER >> 30));
        }
        layers.push(layer);
    }
    Ok(Manifest { config, layers })
}

#[cfg(test)]
#[path = "tests/manifest.rs"]
mod tests;
