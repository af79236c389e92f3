//! Writes and reads the attestations of an image ([`super::attestations`]).

use super::attestations::{self, Attestation, Written};
use super::client::Registry;
use super::error::{BaseError, RegistryError};
use super::image::Tag;
use super::manifest::{Descriptor, Digest, MANIFEST};
use super::push::blob_request;

/// Bytes of all attestations of an image that are read together.
const MAX_READ: u64 = 16 << 20;

impl Registry {
    /// Adds an attestation to those of an image, and looks whether it is there.
    ///
    /// # Errors
    /// Why the registry does not have it.
    pub async fn attest(
        &mut self,
        digest: &Digest,
        attestation: &Attestation<'_>,
    ) -> Result<(), RegistryError> {
        let tag = self.tag_of(digest)?;
        let what = format!("cannot attest {}@{digest}", self.image());
        let existing = self.manifest(&tag).await?;
        let Written { manifest, config } = attestations::with(existing.as_deref(), attestation)
            .map_err(|why| RegistryError::NotUsed {
                what: what.clone(),
                why: format!("{why}: delete the tag {tag}"),
            })?;
        self.push_small(attestation.envelope).await?;
        self.push_small(&config).await?;
        let written = Digest::of(&manifest);
        self.put_manifest(&manifest, &written, tag.as_str(), MANIFEST).await?;
        // Somebody else may have written at the same time.
        let there = self.manifest(&tag).await?.unwrap_or_default();
        let envelope = Digest::of(attestation.envelope);
        let found = attestations::envelopes(&there, attestation.predicate_type);
        if found.iter().any(|one| one.digest == envelope) {
            return Ok(());
        }
        let why = format!("somebody else has written {tag} at the same time");
        Err(RegistryError::Unreachable { what, why, after: None })
    }

    /// The envelopes of an image with this type of predicate. What cannot be read is left out, unless the registry may give it later.
    ///
    /// # Errors
    /// Why they are not known.
    pub async fn attestations(
        &mut self,
        digest: &Digest,
        predicate_type: &str,
    ) -> Result<Vec<Vec<u8>>, RegistryError> {
        let tag = self.tag_of(digest)?;
        let manifest = self.manifest(&tag).await?.unwrap_or_default();
        let (mut all, mut room) = (Vec::new(), MAX_READ);
        for named in attestations::envelopes(&manifest, predicate_type) {
            let Some(left) = room.checked_sub(named.size) else { break };
            match self.pull_blob(&named).await {
                Ok(envelope) => {
                    room = left;
                    all.push(envelope);
                }
                Err(BaseError::Registry(error)) if error.may_pass() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(all)
    }

    /// The envelope that was written for a run, if it is there and can be read.
    ///
    /// # Errors
    /// Why it is not known.
    pub async fn attestation_of(
        &mut self,
        digest: &Digest,
        predicate_type: &str,
        run: &str,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let tag = self.tag_of(digest)?;
        let manifest = self.manifest(&tag).await?.unwrap_or_default();
        let Some(named) = attestations::envelope_of(&manifest, predicate_type, run) else {
            return Ok(None);
        };
        match self.pull_blob(&named).await {
            Ok(envelope) => Ok(Some(envelope)),
            Err(BaseError::Registry(error)) if error.may_pass() => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn tag_of(&self, digest: &Digest) -> Result<Tag, RegistryError> {
        let none = || RegistryError::NotUsed {
            what: format!("cannot attest {}@{digest}", self.image()),
            why: "there is no tag for it".into(),
        };
        attestations::tag(digest).ok_or_else(none)
    }

    /// Pushes a small blob, if it is not there.
    async fn push_small(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        let digest = Digest::of(bytes);
        let what = format!("cannot push {digest} of {}", self.image());
        if self.has_blob(&what, &digest).await? {
            return Ok(());
        }
        let url = self.begin(&what).await?;
        let named = Descriptor { digest, size: bytes.len() as u64 };
        let make = || {
            let mut request = blob_request(url.clone(), &named);
            *request.body_mut() = Some(bytes.to_vec().into());
            request
        };
        let answer = self.send(&what, make).await?;
        if answer.status.is_success() { Ok(()) } else { Err(self.refused(&what, &answer)) }
    }
}
