//! Attaches files to an image: each becomes an artifact in the image's repository (OCI 1.1), whose subject is the image.
//!
//! The files are hostile, as those of a layout are. A registry with the API of referrers lists artifacts by itself, and says so. For others the list is
//! an index under a tag that follows from the image's digest. It is read, made longer, and written again.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, Request, StatusCode};
use rustix::fs::CWD;

use super::client::Registry;
use super::error::{LayoutError, PushError, RegistryError};
use super::fetch::RUNNABLE;
use super::layout::{Blob, Layout, file_at, whole};
use super::manifest::{Descriptor, Digest, MANIFEST};
use super::referrers::{self, INDEX, MediaType};

/// Bytes of the largest file.
const MAX_FILE: u64 = 32 << 20;
/// The header with which a registry says that it lists the artifact.
const SUBJECT: &str = "oci-subject";

/// A file that is attached to an image. It is open.
#[derive(Debug)]
pub struct Attachment {
    name: String,
    kind: MediaType,
    blob: Blob,
}

impl Attachment {
    /// Opens a file: a regular one, with 1 byte to 32 MiB. Its path's last part must be no symbolic link.
    ///
    /// # Errors
    /// Why it is not attached.
    pub fn open(path: &Path, kind: MediaType) -> Result<Self, LayoutError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file: File = file_at(CWD, path, &name)?;
        let bytes = whole(&file, &name, MAX_FILE)?;
        if bytes.is_empty() {
            return Err(LayoutError::Invalid { path: name, why: "it is empty".into() });
        }
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        Ok(Self { name, kind, blob: Blob { digest, size, file: Arc::new(file) } })
    }

    /// The name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Registry {
    /// Pushes the manifest under its digest. No tag names it by that. All blobs must be there.
    ///
    /// # Errors
    /// Why the registry does not have it.
    pub async fn push_untagged(&mut self, layout: &Layout) -> Result<(), PushError> {
        let digest = layout.digest.to_string();
        self.put_manifest(&layout.manifest, &layout.digest, &digest, MANIFEST).await?;
        Ok(())
    }

    /// Attaches a file to an image whose manifest is there. Gives the digest of the artifact.
    ///
    /// # Errors
    /// Why the registry does not have it, or does not list it.
    pub async fn attach(
        &mut self,
        layout: &Layout,
        attachment: &Attachment,
    ) -> Result<Digest, PushError> {
        let Attachment { name, kind, blob } = attachment;
        self.push_empty().await?;
        self.push_blob(blob).await?;
        let file = Descriptor { digest: blob.digest.clone(), size: blob.size };
        let subject =
            Descriptor { digest: layout.digest.clone(), size: layout.manifest.len() as u64 };
        let manifest = referrers::artifact(kind, name, &file, &subject);
        let digest = Digest::of(&manifest);
        let answer = self.put_manifest(&manifest, &digest, &digest.to_string(), MANIFEST).await?;
        let listed = answer.headers.get(SUBJECT).and_then(|value| value.to_str().ok());
        if listed != Some(subject.digest.to_string().as_str()) {
            let artifact = Descriptor { digest: digest.clone(), size: manifest.len() as u64 };
            self.list(&subject.digest, kind, &artifact).await?;
        }
        Ok(digest)
    }

    /// Adds an artifact to the list of an image, in a registry that does not do it by itself.
    async fn list(
        &mut self,
        subject: &Digest,
        kind: &MediaType,
        artifact: &Descriptor,
    ) -> Result<(), RegistryError> {
        let what = format!("cannot list what belongs to {}@{subject}", self.image());
        let not_used = |why: String| RegistryError::NotUsed { what: what.clone(), why };
        let tag = referrers::list_tag(subject)
            .ok_or_else(|| not_used("the digest makes no tag".into()))?;
        let url = self.url(&format!("manifests/{tag}"))?;
        // Whatever is there: what is not asked for may be told as missing.
        let accepted = HeaderValue::from_str(&format!("{RUNNABLE}, */*"))
            .unwrap_or_else(|_| HeaderValue::from_static("*/*"));
        let make = || {
            let mut request = Request::new(Method::GET, url.clone());
            request.headers_mut().insert(ACCEPT, accepted.clone());
            request
        };
        let is_known =
            |status: &StatusCode| matches!(*status, StatusCode::OK | StatusCode::NOT_FOUND);
        let answer = self.tried(&what, make, is_known).await?;
        let there = (answer.status == StatusCode::OK).then_some(answer.body.as_slice());
        let list = referrers::listed(there, kind, artifact).map_err(|why| {
            not_used(format!("the tag {tag} has something that is not written over: {why}"))
        })?;
        if let Some(list) = list {
            self.put_manifest(&list, &Digest::of(&list), tag.as_str(), INDEX).await?;
        }
        Ok(())
    }
}
