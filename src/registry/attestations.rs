//! (pure) The attestations of an image, as cosign keeps them: a manifest under the tag `sha256-<digits>.att`, whose layers are envelopes.
//!
//! Several people may attest one image. So what is there stays, and one layer is added: a writer marks its layers, and replaces only those with
//! its own mark. A registry has no way to compare before it writes.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::image::Tag;
use super::manifest::{Descriptor, Digest, MANIFEST};

/// The media type of an envelope.
pub const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The media type of the configuration, which cosign reads when it adds to the layers.
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The annotations that cosign writes. The signature is in the envelope.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const PREDICATE_TYPE: &str = "predicateType";
/// Our annotation of a layer: what has made the image.
const RUN: &str = "dev.convoke.run";
/// The most attestations of one image.
pub const MAX_LAYERS: usize = 100;
/// Bytes of the largest envelope.
pub const MAX_ENVELOPE: u64 = 1 << 20;
/// Bytes of the largest manifest: an answer of a registry is not read further.
const MAX_MANIFEST: usize = (1 << 20) - 1;

/// The tag of the attestations of an image.
#[must_use]
pub fn tag(digest: &Digest) -> Option<Tag> {
    format!("sha256-{}.att", digest.hex()).parse().ok()
}

/// An attestation that is written.
#[derive(Debug, Clone, Copy)]
pub struct Attestation<'a> {
    /// The envelope.
    pub envelope: &'a [u8],
    /// The type of the predicate in it.
    pub predicate_type: &'a str,
    /// What has made the image. An attestation of the same is replaced.
    pub run: &'a str,
}

/// What is written: the manifest, and the configuration that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The manifest.
    pub manifest: Vec<u8>,
    /// The configuration.
    pub config: Vec<u8>,
}

/// A layer, as it stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Value>,
}

#[derive(Deserialize)]
struct Existing {
    layers: Vec<Layer>,
    #[serde(default)]
    annotations: Map<String, Value>,
}

/// The manifest with one attestation more. `existing` is what the tag has. What is no manifest is replaced: it attests nothing.
///
/// # Errors
/// There is too much already to keep it.
pub fn with(existing: Option<&[u8]>, new: &Attestation<'_>) -> Result<Written, String> {
    let Attestation { envelope, predicate_type, run } = new;
    let too_large = || "it has more than 1 MiB".to_owned();
    if existing.is_some_and(|existing| existing.len() > MAX_MANIFEST) {
        return Err(too_large());
    }
    let existing = existing.and_then(|text| serde_json::from_slice(text).ok());
    let Existing { mut layers, annotations } =
        existing.unwrap_or(Existing { layers: Vec::new(), annotations: Map::new() });
    layers.retain(|layer| layer.digest.parse::<Digest>().is_ok());
    layers.retain(|layer| layer.annotations.get(RUN).and_then(Value::as_str) != Some(*run));
    if layers.len() >= MAX_LAYERS {
        return Err(format!("it has {} attestations, and the most is {MAX_LAYERS}", layers.len()));
    }
    let mut marks = Map::new();
    for (name, value) in [(SIGNATURE, ""), (PREDICATE_TYPE, *predicate_type), (RUN, *run)] {
        marks.insert(name.into(), value.into());
    }
    layers.push(Layer {
        media_type: ENVELOPE.into(),
        digest: Digest::of(envelope).to_string(),
        size: envelope.len() as u64,
        annotations: marks,
    });
    // As cosign writes it. The layers are not compressed, so each has the digest of its content.
    let digests: Vec<_> = layers.iter().map(|layer| layer.digest.as_str()).collect();
    let history: Vec<_> =
        layers.iter().map(|_| json!({"created": "0001-01-01T00:00:00Z"})).collect();
    let config = json!({
        "architecture": "", "created": "0001-01-01T00:00:00Z", "history": history, "os": "",
        "rootfs": {"type": "layers", "diff_ids": digests}, "config": {},
    });
    let config = config.to_string().into_bytes();
    let mut manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": Digest::of(&config).to_string(), "size": config.len()},
        "layers": layers,
    });
    if !annotations.is_empty() {
        manifest["annotations"] = annotations.into();
    }
    let manifest = manifest.to_string().into_bytes();
    if manifest.len() > MAX_MANIFEST { Err(too_large()) } else { Ok(Written { manifest, config }) }
}

/// The envelopes that a manifest names, with this type of predicate or without one: at most [`MAX_LAYERS`], each of at most
/// [`MAX_ENVELOPE`] bytes.
#[must_use]
pub fn envelopes(manifest: &[u8], predicate_type: &str) -> Vec<Descriptor> {
    let existing: Option<Existing> = serde_json::from_slice(manifest).ok();
    let layers = existing.map(|existing| existing.layers).unwrap_or_default();
    let is_wanted = |layer: &Layer| {
        let told = layer.annotations.get(PREDICATE_TYPE).and_then(Value::as_str);
        layer.media_type == ENVELOPE
            && told.is_none_or(|told| told == predicate_type)
            && layer.size <= MAX_ENVELOPE
    };
    let named =
        |layer: Layer| Some(Descriptor { digest: layer.digest.parse().ok()?, size: layer.size });
    layers.into_iter().filter(is_wanted).filter_map(named).take(MAX_LAYERS).collect()
}

/// The envelope that a manifest names with this type of predicate and this mark of a run.
#[must_use]
pub fn envelope_of(manifest: &[u8], predicate_type: &str, run: &str) -> Option<Descriptor> {
    let Existing { layers, .. } = serde_json::from_slice(manifest).ok()?;
    let is_it = |layer: &Layer| {
        let mark = |name: &str| layer.annotations.get(name).and_then(Value::as_str);
        mark(RUN) == Some(run)
            && mark(PREDICATE_TYPE) == Some(predicate_type)
            && layer.media_type == ENVELOPE
            && layer.size <= MAX_ENVELOPE
    };
    let found = layers.into_iter().find(is_it)?;
    Some(Descriptor { digest: found.digest.parse().ok()?, size: found.size })
}

#[cfg(test)]
#[path = "tests/attestations.rs"]
mod tests;
