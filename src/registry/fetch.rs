//! Asks a registry for manifests.

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Method, Request, StatusCode};

use super::client::Registry;
use super::error::{BaseError, RegistryError, shown};
use super::image::Tag;
use super::manifest::{Digest, MANIFEST};

/// The media types of manifests with which a pod starts.
pub(super) const RUNNABLE: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// The header with the digest of what is asked for.
const DIGEST: &str = "docker-content-digest";

impl Registry {
    /// The manifest under a tag, as it is: at most one MiB of it. `None` if there is none.
    ///
    /// # Errors
    /// Why that is not known.
    pub async fn manifest(&mut self, tag: &Tag) -> Result<Option<Vec<u8>>, RegistryError> {
        let what = format!("cannot read {}:{tag}", self.image());
        let url = self.url(&format!("manifests/{tag}"))?;
        let make = || {
            let mut request = Request::new(Method::GET, url.clone());
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(MANIFEST));
            request
        };
        let answer = self.send(&what, make).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(answer.body)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(self.refused(&what, &answer)),
        }
    }

    /// Whether the registry has the manifest with this digest.
    ///
    /// # Errors
    /// Why that is not known.
    pub async fn has_manifest(&mut self, digest: &Digest) -> Result<bool, RegistryError> {
        let what = format!("cannot look for {}@{digest}", self.image());
        let url = self.url(&format!("manifests/{digest}"))?;
        let make = || {
            let mut request = Request::new(Method::HEAD, url.clone());
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(RUNNABLE));
            request
        };
        let answer = self.send(&what, make).await?;
        match answer.status {
            StatusCode::OK => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(self.refused(&what, &answer)),
        }
    }

    /// The digest of the image or index under a tag. `None` if there is none.
    ///
    /// # Errors
    /// Why that is not known.
    pub async fn digest_of(&mut self, tag: &str) -> Result<Option<Digest>, BaseError> {
        let what = format!("cannot look for {}:{}", self.image(), shown(tag));
        let url = self.url(&format!("manifests/{tag}")).map_err(BaseError::Registry)?;
        // Registries that count what is pulled do not count this.
        let make = || {
            let mut request = Request::new(Method::HEAD, url.clone());
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(RUNNABLE));
            request
        };
        let answer = self.send(&what, make).await.map_err(BaseError::Registry)?;
        match answer.status {
            StatusCode::OK => {
                let told = answer.headers.get(DIGEST).and_then(|value| value.to_str().ok());
                match told.and_then(|digest| digest.parse().ok()) {
                    Some(digest) => Ok(Some(digest)),
                    // Not all of them say it.
                    None => self.pull_manifest(tag).await.map(|(_, digest)| Some(digest)),
                }
            }
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(BaseError::Registry(self.refused(&what, &answer))),
        }
    }
}
