//! (pure) The layers of a build that are kept for the next one: an image index. Its images are those that buildah makes after each command of
//! a Dockerfile. They share their layers, and each has its own configuration.
//!
//! A configuration names its layers by the digests of their unpacked content (`diff_ids`). So the layers of an image are found among those
//! of others, which are packed, and an image is kept by another manifest than it has.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::error::shown;
use super::manifest::{self, Descriptor, Digest, INDEX, MANIFEST, MAX_MANIFEST};

/// The most images.
pub const MAX_IMAGES: usize = 128;
/// The most bytes of all blobs of all images.
pub const MAX_BYTES: u64 = 4 << 30;
/// The most bytes of all their manifests, which are held in memory.
pub const MAX_MANIFESTS: u64 = 16 << 20;
/// The most bytes of what the step that builds writes about them.
pub const MAX_ABOUT: u64 = 1 << 20;
/// The annotation of the index with that.
const ABOUT: &str = "convoke.dev/layers-of";
/// The annotation of a kept manifest with the manifest that the image has. What is built on it names that by its digest.
const OWN: &str = "convoke.dev/manifest";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An index.
#[derive(Debug, PartialEq, Eq)]
pub struct Index {
    /// The manifests of its images.
    pub manifests: Vec<Descriptor>,
    /// What is written about them; empty if nothing is.
    pub about: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenIndex {
    schema_version: u64,
    manifests: Vec<WrittenDescriptor>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenDescriptor {
    media_type: String,
    digest: String,
    size: u64,
}

/// Reads an index.
///
/// # Errors
/// Why it is not used.
pub fn index(bytes: &[u8]) -> Result<Index, String> {
    let mut written: WrittenIndex = parsed(bytes)?;
    if written.schema_version != 2 {
        return Err("the schemaVersion is not 2".into());
    }
    if written.manifests.len() > MAX_IMAGES {
        let found = written.manifests.len();
        return Err(format!("it names {found} images, and the most is {MAX_IMAGES}"));
    }
    let one = |written: &WrittenDescriptor| {
        if written.media_type != MANIFEST || written.size > MAX_MANIFEST {
            return Err("an entry is no manifest of an image, or too large".to_owned());
        }
        Ok(Descriptor { digest: written.digest.parse()?, size: written.size })
    };
    let manifests = written.manifests.iter().map(one).collect::<Result<_, _>>()?;
    manifests_fit(written.manifests.iter().map(|one| one.size))?;
    let about = written.annotations.remove(ABOUT).unwrap_or_default();
    if about.len() as u64 > MAX_ABOUT {
        return Err(format!("its annotation {ABOUT} is larger than {} MiB", MAX_ABOUT >> 20));
    }
    Ok(Index { manifests, about })
}

/// Whether manifests of these sizes are within [`MAX_MANIFESTS`].
///
/// # Errors
/// That they are not.
pub fn manifests_fit(sizes: impl IntoIterator<Item = u64>) -> Result<(), String> {
    if sizes.into_iter().fold(0_u64, u64::saturating_add) > MAX_MANIFESTS {
        return Err(format!("the manifests are larger than {} MiB", MAX_MANIFESTS >> 20));
    }
    Ok(())
}

/// The index of these manifests. The same gives the same bytes.
#[must_use]
pub fn written(manifests: &[Vec<u8>], about: &str) -> Vec<u8> {
    let one = |bytes: &Vec<u8>| json!({"mediaType": MANIFEST, "digest": Digest::of(bytes).to_string(), "size": bytes.len()});
    let manifests: Vec<_> = manifests.iter().map(one).collect();
    let annotations = json!({ABOUT: about});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": annotations});
    index.to_string().into_bytes()
}

#[derive(Deserialize)]
struct WrittenConfig {
    rootfs: WrittenRootfs,
}

#[derive(Deserialize)]
struct WrittenRootfs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Deserialize)]
struct WrittenManifest {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The layers that a configuration names, the lowest first.
///
/// # Errors
/// Why it is none.
pub fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, String> {
    let written: WrittenConfig = parsed(config)?;
    written.rootfs.diff_ids.iter().map(|id| id.parse()).collect()
}

/// The layers of images by the digests of their content, as manifests describe them.
#[derive(Debug, Default)]
pub struct Pool(BTreeMap<String, Value>);

impl Pool {
    /// Adds those of an image.
    ///
    /// # Errors
    /// When configuration and manifest do not belong together.
    pub fn add(&mut self, config: &[u8], manifest: &[u8]) -> Result<(), String> {
        let ids = diff_ids(config)?;
        let mut written: Value = parsed(manifest)?;
        let layers = match written.get_mut("layers").map(Value::take) {
            Some(Value::Array(layers)) if layers.len() == ids.len() => layers,
            _ => return Err("the manifest has not the layers of the configuration".into()),
        };
        for (id, layer) in ids.iter().zip(layers) {
            self.0.entry(id.hex().to_owned()).or_insert(layer);
        }
        Ok(())
    }

    /// The manifest by which the image with this configuration is kept. `None` if a layer is not here. `own` is the manifest that it has, with
    /// layers that are not packed.
    ///
    /// # Errors
    /// Why configuration or manifest is none, or why they do not belong together.
    pub fn manifest(&self, config: &[u8], own: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let ids = diff_ids(config)?;
        let layers: Option<Vec<_>> = ids.iter().map(|id| self.0.get(id.hex())).collect();
        let Some(layers) = layers else { return Ok(None) };
        let config = json!({"mediaType": CONFIG, "digest": Digest::of(config).to_string(), "size": config.len()});
        let named = manifest::manifest(own)?;
        let plain = named.layers.iter().map(|layer| &layer.digest);
        if config["digest"] != named.config.digest.to_string() || !plain.eq(&ids) {
            return Err("the manifest is not that of the configuration".into());
        }
        let own = std::str::from_utf8(own).map_err(|error| error.to_string())?;
        let annotations = json!({OWN: own});
        let made = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers, "annotations": annotations});
        Ok(Some(made.to_string().into_bytes()))
    }
}

/// An image that was kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// The manifest that it has.
    pub manifest: Vec<u8>,
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first: as they are kept, and not packed.
    pub layers: Vec<(Descriptor, Descriptor)>,
}

/// Reads the manifest by which an image is kept.
///
/// # Errors
/// Why it is none.
pub fn kept(bytes: &[u8]) -> Result<Kept, String> {
    let packed = manifest::manifest(bytes)?;
    let WrittenManifest { mut annotations } = parsed(bytes)?;
    let own = annotations.remove(OWN).ok_or("it does not have the manifest of the image")?;
    let plain = manifest::manifest(own.as_bytes())?;
    if plain.config != packed.config || plain.layers.len() != packed.layers.len() {
        return Err("it is not of the image whose manifest it has".into());
    }
    let layers = packed.layers.into_iter().zip(plain.layers).collect();
    Ok(Kept { manifest: own.into_bytes(), config: packed.config, layers })
}

/// The blobs of images, each once.
///
/// # Errors
/// Why they are not used: two sizes for one, or more than [`MAX_BYTES`] in all.
pub fn blobs<'a>(
    images: impl IntoIterator<Item = &'a manifest::Manifest>,
) -> Result<Vec<Descriptor>, String> {
    let mut all: BTreeMap<&str, &Descriptor> = BTreeMap::new();
    for image in images {
        for blob in image.layers.iter().chain([&image.config]) {
            let before = all.insert(blob.digest.hex(), blob);
            if before.is_some_and(|before| before.size != blob.size) {
                return Err(format!("it names {} twice, with two sizes", blob.digest));
            }
        }
    }
    let sum = all.values().fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
    if sum > MAX_BYTES {
        let (found, most) = (sum >> 20, MAX_BYTES >> 20);
        return Err(format!(
            "the layers have {found} MiB, and the most that is kept is {most} MiB"
        ));
    }
    Ok(all.into_values().cloned().collect())
}

fn parsed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| shown(&error.to_string()))
}

#[cfg(test)]
#[path = "tests/layers.rs"]
mod tests;
