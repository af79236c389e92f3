//! (pure) A base image: which manifest of an index it is, its layers, and what becomes of its configuration when a layer is appended.
//!
//! Only what is listed here of a manifest is taken over. So fields that are not known do no harm.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::error::shown;
use super::manifest::{
    Descriptor, Digest, MANIFEST, MAX_CONFIG, MAX_LAYER, MAX_LAYERS, MAX_MANIFEST,
};
use super::reference::Reference;
use convoke_core::text::quote;

/// The media types of manifests and indexes that a registry is asked for.
pub const ACCEPTED: [&str; 4] = [
    MANIFEST,
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The media type of the layer that is appended.
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Media types of layers: those of OCI, and what docker calls the same.
const LAYERS: [(&str, &str); 6] = [
    ("application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar"),
    (LAYER, LAYER),
    ("application/vnd.oci.image.layer.v1.tar+zstd", "application/vnd.oci.image.layer.v1.tar+zstd"),
    ("application/vnd.docker.image.rootfs.diff.tar", "application/vnd.oci.image.layer.v1.tar"),
    ("application/vnd.docker.image.rootfs.diff.tar.gzip", LAYER),
    (
        "application/vnd.docker.image.rootfs.diff.tar.zstd",
        "application/vnd.oci.image.layer.v1.tar+zstd",
    ),
];
/// Platforms of an index that a message names.
const MAX_SHOWN: usize = 8;
/// What the history of an image calls the layer.
const CREATED_BY: &str = "convoke append-image";

/// What a machine runs: always Linux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// The platform of this machine.
    #[must_use]
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { architecture: architecture.to_owned(), variant: None }
    }

    /// Whether an image for that platform runs here. Every arm64 image is one of the variant v8.
    fn takes(&self, other: &WrittenPlatform) -> bool {
        let variant = |text: Option<&str>| match (self.architecture.as_str(), text) {
            ("arm64", None | Some("")) => "v8".to_owned(),
            (_, text) => text.unwrap_or_default().to_owned(),
        };
        other.os == "linux"
            && other.architecture == self.architecture
            && (self.variant.is_none() && self.architecture != "arm64"
                || variant(other.variant.as_deref()) == variant(self.variant.as_deref()))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let is_word =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("linux"), Some(architecture), variant, None)
                if is_word(architecture) && variant.is_none_or(is_word) =>
            {
                Ok(Self {
                    architecture: architecture.to_owned(),
                    variant: variant.map(str::to_owned),
                })
            }
            _ => Err("it must look like linux/amd64 or linux/arm/v7".into()),
        }
    }
}

/// What a registry gives for a reference.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The manifest of an image.
    Image(Base),
    /// An index: the image for the platform is there.
    Elsewhere(Descriptor),
}

/// The manifest of a base image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers with their media types, the lowest first.
    pub layers: Vec<(&'static str, Descriptor)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    schema_version: u64,
    config: Option<WrittenDescriptor>,
    layers: Option<Vec<WrittenDescriptor>>,
    manifests: Option<Vec<WrittenDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenDescriptor {
    media_type: String,
    digest: String,
    size: u64,
    urls: Option<IgnoredAny>,
    platform: Option<WrittenPlatform>,
}

#[derive(Deserialize)]
struct WrittenPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    variant: Option<String>,
}

impl WrittenDescriptor {
    fn checked(&self, what: &str, limit: u64) -> Result<Descriptor, String> {
        let digest = self.digest.parse().map_err(|why| format!("{what}: {why}"))?;
        if self.size > limit {
            return Err(format!("{what} has {} bytes, and the most is {limit}", self.size));
        }
        Ok(Descriptor { digest, size: self.size })
    }
}

/// Reads a manifest or an index. Of an index, it gives the image for a platform.
///
/// # Errors
/// Why nothing can be appended to it.
pub fn read(bytes: &[u8], platform: &Platform) -> Result<Found, String> {
    let written: Written =
        serde_json::from_slice(bytes).map_err(|error| shown(&error.to_string()))?;
    if written.schema_version != 2 {
        return Err("the schemaVersion is not 2".into());
    }
    match (written.config, written.layers, written.manifests) {
        (None, None, Some(manifests)) => chosen(&manifests, platform).map(Found::Elsewhere),
        (Some(config), Some(layers), None) => image(&config, &layers).map(Found::Image),
        _ => Err("it is neither the manifest of an image nor an index".into()),
    }
}

fn chosen(manifests: &[WrittenDescriptor], platform: &Platform) -> Result<Descriptor, String> {
    let is_image = |one: &&WrittenDescriptor| {
        [ACCEPTED[0], ACCEPTED[2]].contains(&one.media_type.as_str())
            && one.platform.as_ref().is_some_and(|has| platform.takes(has))
    };
    if let Some(found) = manifests.iter().find(is_image) {
        return found.checked("its manifest", MAX_MANIFEST);
    }
    let names = manifests.iter().filter_map(|one| one.platform.as_ref());
    // What describes an image is in an index, too.
    let names = names.filter(|platform| platform.os != "unknown").take(MAX_SHOWN);
    let names: Vec<_> = names
        .map(|platform| shown(&format!("{}/{}", platform.os, platform.architecture)))
        .collect();
    Err(format!("it has no image for {platform}, but for: {}", names.join(", ")))
}

fn image(config: &WrittenDescriptor, layers: &[WrittenDescriptor]) -> Result<Base, String> {
    let config = config.checked("its configuration", MAX_CONFIG)?;
    // One more is appended.
    if layers.len() >= MAX_LAYERS {
        return Err(format!("it has {} layers, and the most is {}", layers.len(), MAX_LAYERS - 1));
    }
    let one = |(number, layer): (usize, &WrittenDescriptor)| {
        let what = format!("layer {number}");
        let media_type = LAYERS.iter().find(|(name, _)| *name == layer.media_type);
        let Some((_, media_type)) = media_type else {
            let found = quote(&layer.media_type);
            return Err(format!("{what} is of type {found}, which is none of a layer"));
        };
        if layer.urls.is_some() {
            return Err(format!("{what} has `urls`: what is elsewhere is not copied"));
        }
        Ok((*media_type, layer.checked(&what, MAX_LAYER)?))
    };
    let layers = (1..).zip(layers).map(one).collect::<Result<_, _>>()?;
    Ok(Base { config, layers })
}

/// What the image is to run, and where the layer is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The folder in the image: the working directory.
    pub into: String,
    /// The program and its arguments. Empty: what the base image runs.
    pub command: Vec<String>,
    /// As whom it runs. `None`: as the base image says.
    pub user: Option<String>,
}

/// A configuration with one more layer. `layers` is how many it has, `diff_id` the digest of the new one's tar, `into` where that is in the image.
///
/// # Errors
/// Why nothing can be appended to it.
pub(super) fn with_layer(
    bytes: &[u8],
    layers: usize,
    diff_id: &Digest,
    into: &str,
) -> Result<Map<String, Value>, String> {
    let mut all: Map<String, Value> = serde_json::from_slice(bytes)
        .map_err(|error| format!("its configuration: {}", shown(&error.to_string())))?;
    if all.get("os").and_then(Value::as_str).is_some_and(|os| os != "linux") {
        return Err("it is not for Linux".into());
    }
    let diff_ids = all.get_mut("rootfs").and_then(|rootfs| rootfs.get_mut("diff_ids"));
    let Some(Value::Array(diff_ids)) = diff_ids else {
        return Err("its configuration has no rootfs.diff_ids".into());
    };
    if diff_ids.len() != layers {
        let found = diff_ids.len();
        return Err(format!("it has {layers} layers, and its configuration knows {found}"));
    }
    diff_ids.push(diff_id.to_string().into());
    // The same layer makes the same image at any time.
    let created = all.get("created").cloned();
    if let Some(Value::Array(history)) = all.get_mut("history") {
        let with_layer = history.iter().filter(|one| one["empty_layer"] != true).count();
        // One that does not fit to the layers gets no better.
        if with_layer == layers {
            let mut entry = json!({"created_by": CREATED_BY, "comment": into});
            if let Some(created) = created {
                entry["created"] = created;
            }
            history.push(entry);
        }
    }
    Ok(all)
}

/// The part of a configuration that says what runs.
///
/// # Errors
/// When it is no object.
pub(super) fn config(all: &mut Map<String, Value>) -> Result<&mut Map<String, Value>, String> {
    let config = all.entry("config").or_insert(Value::Null);
    if config.is_null() {
        *config = json!({});
    }
    config.as_object_mut().ok_or("its configuration has a config that is no object".into())
}

/// The configuration of the image, from that of its base. `diff_id` is the digest of the layer's tar.
///
/// # Errors
/// Why nothing can be appended to it.
pub fn configuration(
    bytes: &[u8],
    base: &Base,
    diff_id: &Digest,
    change: &Change,
) -> Result<Vec<u8>, String> {
    let mut all = with_layer(bytes, base.layers.len(), diff_id, &change.into)?;
    let config = config(&mut all)?;
    config.insert("WorkingDir".into(), change.into.as_str().into());
    if !change.command.is_empty() {
        config.insert("Entrypoint".into(), json!(change.command));
        config.remove("Cmd");
    }
    if let Some(user) = &change.user {
        config.insert("User".into(), user.as_str().into());
    }
    Ok(Value::Object(all).to_string().into_bytes())
}

/// The manifest of the image. `digest` is the one that the reference has in the registry.
#[must_use]
pub fn manifest(
    (reference, digest): (&Reference, &Digest),
    base: &Base,
    config: &Descriptor,
    layer: &Descriptor,
) -> Vec<u8> {
    let described = |media_type: &str, Descriptor { digest, size }: &Descriptor| json!({"mediaType": media_type, "digest": digest.to_string(), "size": size});
    let mut layers: Vec<_> =
        base.layers.iter().map(|(media_type, layer)| described(media_type, layer)).collect();
    layers.push(described(LAYER, layer));
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described(CONFIG, config),
        "layers": layers,
        "annotations": {
            "org.opencontainers.image.base.name": reference.to_string(),
            "org.opencontainers.image.base.digest": digest.to_string(),
        },
    })
    .to_string()
    .into_bytes()
}

#[cfg(test)]
#[path = "tests/base.rs"]
mod tests;
