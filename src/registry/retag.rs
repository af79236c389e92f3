//! Has a tag name an image that the registry has already.

use serde_json::Value;

use super::base::ACCEPTED;
use super::client::Registry;
use super::error::{BaseError, RegistryError};
use super::image::Tag;
use super::manifest::{Digest, MANIFEST};

impl Registry {
    /// Has a tag name the image or index with this digest. Returns whether it named another one, or none.
    ///
    /// # Errors
    /// Why it does not name it.
    pub async fn retag(&mut self, tag: &Tag, digest: &Digest) -> Result<bool, RegistryError> {
        let named = self.digest_of(tag.as_str()).await.map_err(|error| self.plain(tag, error))?;
        if named.as_ref() == Some(digest) {
            return Ok(false);
        }
        let (manifest, _) = self
            .pull_manifest(&digest.to_string())
            .await
            .map_err(|error| self.plain(tag, error))?;
        self.put_manifest(&manifest, digest, tag.as_str(), media_type(&manifest)).await?;
        Ok(true)
    }

    /// The same error; it is no base image that is pulled here.
    fn plain(&self, tag: &Tag, error: BaseError) -> RegistryError {
        match error {
            BaseError::Registry(error) => error,
            BaseError::Invalid { why, .. } => {
                RegistryError::NotUsed { what: format!("cannot tag {}:{tag}", self.image()), why }
            }
        }
    }
}

/// The media type that a manifest says. One that says none is an image of OCI.
fn media_type(manifest: &[u8]) -> &'static str {
    let told: Option<Value> = serde_json::from_slice(manifest).ok();
    let told = told.as_ref().and_then(|manifest| manifest["mediaType"].as_str());
    ACCEPTED.into_iter().find(|one| Some(*one) == told).unwrap_or(MANIFEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b1_a_manifest_is_put_with_the_media_type_that_it_has() {
        for one in ACCEPTED {
            let manifest = serde_json::json!({ "mediaType": one }).to_string();
            assert_eq!(media_type(manifest.as_bytes()), one);
        }
        for other in ["{}", "no JSON", r#"{"mediaType": "text/html"}"#, r#"{"mediaType": 1}"#] {
            assert_eq!(media_type(other.as_bytes()), MANIFEST);
        }
    }
}
