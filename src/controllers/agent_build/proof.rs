//! (pure) The proof that the operator has seen a build make an image: what it writes beside the image, and what it takes as proof later.
//!
//! Anybody can compute a build key, and whoever may push to a repository can give any tag to any image. So the tag of a key proves nothing. A
//! proof is a manifest of its own, under a tag that follows from the key. It names the digest of the image, with a MAC that only the operator
//! can make. The MAC is over the namespace and the name of the AgentBuild, the build key, the repository and the digest: a proof of something
//! else is none.
//!
//! An AgentBuild that is made anew knows nothing of `convoke rebuild`, and its keys are those of before. So a rebuild leaves a note in the
//! registry, too. It needs no MAC: whoever forges one has an image built.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::key::BuildKey;
use crate::controllers::inputs::digest::MacKey;
use crate::registry::manifest::{Digest, EMPTY, EMPTY_TYPE, MANIFEST};
use crate::registry::{Image, Tag};

/// The type of the manifest.
pub const TYPE: &str = "application/vnd.convoke.build-proof.v1+json";
/// Its annotations: the digest of the image, and the MAC in base64.
const DIGEST: &str = "dev.convoke.digest";
const MAC: &str = "dev.convoke.mac";
/// Bytes of the largest proof. One that is written has some 700.
const MAX_BYTES: usize = 4096;
/// The type of the note of a rebuild.
pub const REBUILT: &str = "application/vnd.convoke.build-rebuilt.v1+json";
/// Its annotation: a hash of the value of `convoke.dev/rebuild`.
const REBUILD: &str = "dev.convoke.rebuild";
/// What keeps this MAC apart from others.
const DOMAIN: &[u8] = b"convoke build proof 1";

/// The key of proofs. Its debug output does not show it.
pub struct ProofKey(hmac::Key);

impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProofKey(…)")
    }
}

/// The build that a proof is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    /// Namespace of the AgentBuild.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The build key.
    pub key: &'a BuildKey,
    /// Where the image is.
    pub image: &'a Image,
}

impl ProofKey {
    /// The key of an operator.
    #[must_use]
    pub fn of(operator: &MacKey) -> Self {
        let key = operator.derive(&["build-proof"]);
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.get().as_bytes()))
    }

    /// The proof that a build has made the image with this digest.
    #[must_use]
    pub fn proof(&self, about: About<'_>, digest: &Digest) -> Vec<u8> {
        let mac = STANDARD.encode(hmac::sign(&self.0, &signed(about, digest)));
        manifest(TYPE, &json!({DIGEST: digest.to_string(), MAC: mac}))
    }

    /// The digest of the image that a build has made, from what a registry has in place of the proof.
    ///
    /// # Errors
    /// Why this is no proof.
    pub fn digest(&self, about: About<'_>, proof: &[u8]) -> Result<Digest, NoProof> {
        let (digest, mac) = parse(proof)?;
        let signed = signed(about, &digest);
        // It takes the same time whatever the MAC is.
        hmac::verify(&self.0, &signed, &mac).map_err(|_| NoProof::Forged)?;
        Ok(digest)
    }
}

/// Why a manifest is no proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoProof {
    /// It is something else.
    #[error("it is something else")]
    Other,
    /// It is the proof of another build, or somebody has forged it.
    #[error("it is of another build, or forged")]
    Forged,
}

/// The tag of the proof of a key.
#[must_use]
pub fn tag(key: &BuildKey) -> Option<Tag> {
    format!("{}.proof", key.tag()).parse().ok()
}

/// The tag of the note that an AgentBuild was rebuilt.
#[must_use]
pub fn rebuilt_tag(namespace: &str, name: &str) -> Option<Tag> {
    let hash = convoke_core::text::hex(&Sha256::digest(lengthened(&[namespace, name])));
    format!("cvk-rebuilt-{hash}").parse().ok()
}

/// The note that an AgentBuild was rebuilt, for this value of `convoke.dev/rebuild`.
#[must_use]
pub fn rebuilt(value: &str) -> Vec<u8> {
    manifest(REBUILT, &json!({REBUILD: hash_of(value)}))
}

/// Whether a note tells of another rebuild than the one that the AgentBuild knows. What is no note does.
#[must_use]
pub fn is_of_another_rebuild(note: &[u8], known: Option<&str>) -> bool {
    let small = Some(note).filter(|note| note.len() <= MAX_BYTES);
    let note: Option<Value> = small.and_then(|note| serde_json::from_slice(note).ok());
    let told = note.as_ref().and_then(|note| note["annotations"][REBUILD].as_str());
    told.is_none() || told != known.map(hash_of).as_deref()
}

fn hash_of(value: &str) -> String {
    convoke_core::text::hex(&Sha256::digest(value.as_bytes()))
}

/// A manifest that has annotations and nothing else.
fn manifest(type_: &str, annotations: &Value) -> Vec<u8> {
    let empty = json!({"mediaType": EMPTY_TYPE, "digest": Digest::of(EMPTY).to_string(), "size": EMPTY.len()});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": type_,
        "config": empty, "layers": [empty], "annotations": annotations,
    });
    manifest.to_string().into_bytes()
}

/// What the MAC is over. Each part comes with its length, so that no two different ones are the same text.
fn signed(about: About<'_>, digest: &Digest) -> Vec<u8> {
    let About { namespace, name, key, image } = about;
    let (image, digest) = (image.to_string(), digest.to_string());
    let mut all = DOMAIN.to_vec();
    all.extend(lengthened(&[namespace, name, key.as_str(), &image, &digest]));
    all
}

/// Parts, each with its length.
fn lengthened(parts: &[&str]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend(part.as_bytes());
    }
    all
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    artifact_type: String,
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "dev.convoke.digest")]
    digest: String,
    #[serde(rename = "dev.convoke.mac")]
    mac: String,
}

/// The digest and the MAC that a manifest tells.
///
/// # Errors
/// [`NoProof::Other`].
pub fn parse(manifest: &[u8]) -> Result<(Digest, Vec<u8>), NoProof> {
    let small = Some(manifest).filter(|manifest| manifest.len() <= MAX_BYTES);
    let written: Written =
        small.and_then(|text| serde_json::from_slice(text).ok()).ok_or(NoProof::Other)?;
    let Written { artifact_type, annotations: Annotations { digest, mac } } = written;
    let digest = digest.parse().map_err(|_| NoProof::Other)?;
    let mac = STANDARD.decode(mac).map_err(|_| NoProof::Other)?;
    if artifact_type == TYPE { Ok((digest, mac)) } else { Err(NoProof::Other) }
}

#[cfg(test)]
#[path = "tests/proof.rs"]
mod tests;
