//! Appends a folder to a base image, as one layer, and gives the registry what it needs for that: the layers of the base image, too.

use std::path::{Path, PathBuf};

use super::base::{self, Base, Change, Found, Platform};
use super::client::Registry;
use super::error::{BaseError, FolderError, PushError};
use super::folder::{self, Layer};
use super::layout::Layout;
use super::manifest::{Descriptor, Digest};
use super::packages::{self, Packages};
use super::pull::Copied;
use super::reference::Reference;

/// What is appended, and to what.
#[derive(Debug, Clone)]
pub struct Append {
    /// The base image.
    pub reference: Reference,
    /// The platform that is taken if it has several.
    pub platform: Platform,
    /// A folder that holds `subfolder`. No symbolic link is followed from there on.
    pub root: PathBuf,
    /// The folder, relative to `root`.
    pub subfolder: String,
    /// The packages that the folder needs.
    pub packages: Option<Packages>,
    /// A folder for files without a name.
    pub scratch: PathBuf,
    /// What the image is to run.
    pub change: Change,
}

/// What was appended.
#[derive(Debug)]
pub struct Appended {
    /// The image, with only the layer that is new: the others are in the registry.
    pub layout: Layout,
    /// The digest that the base image has in its registry: of its index, if it has one.
    pub base: Digest,
    /// Files, folders and links of the layer.
    pub entries: usize,
    /// The layer of the packages.
    pub packages: Option<Layer>,
    /// How the layers of the base image came to the registry.
    pub copied: Vec<Copied>,
}

impl Append {
    /// Appends the folder, and brings the layers of the base image to the registry. `base` is the client of the base image, `registry` that
    /// of the image.
    ///
    /// # Errors
    /// Why there is no image.
    pub async fn run(
        &self,
        base: &mut Registry,
        registry: &mut Registry,
    ) -> Result<Appended, PushError> {
        // The layer is made while the base image is asked for.
        let Self { root, subfolder, packages, scratch, change, .. } = self.clone();
        let layering = tokio::task::spawn_blocking(move || {
            let packages = packages.map(|packages| packages.layer(&scratch)).transpose()?;
            Ok::<_, FolderError>((
                packages,
                folder::layer(&root, &subfolder, &change.into, &scratch)?,
            ))
        });
        let (digest, found) = self.find(base).await?;
        let config = base.pull_blob(&found.config).await?;
        let (packages, layer) = layering
            .await
            .map_err(|_| FolderError::Scratch { why: "the reading ended".into() })??;
        let layout = self.image(&digest, &found, &config, packages.clone(), layer.clone())?;
        let is_near = base.is_at(registry);
        if is_near && base.image() != registry.image() {
            registry.mounts_from(base.image());
        }
        let mut copied = Vec::with_capacity(found.layers.len());
        for (_, named) in &found.layers {
            copied.push(registry.copy_blob(base, is_near, named).await?);
        }
        Ok(Appended { layout, base: digest, entries: layer.entries, packages, copied })
    }

    /// The manifest of the base image for the platform, and the digest that the reference has.
    async fn find(&self, base: &mut Registry) -> Result<(Digest, Base), BaseError> {
        let (bytes, digest) = base.pull_manifest(&self.reference.version()).await?;
        let found = match base::read(&bytes, &self.platform).map_err(|why| self.invalid(why))? {
            Found::Image(image) => image,
            Found::Elsewhere(named) => {
                let (bytes, _) = base.pull_manifest(&named.digest.to_string()).await?;
                match base::read(&bytes, &self.platform).map_err(|why| self.invalid(why))? {
                    Found::Image(image) => image,
                    Found::Elsewhere(_) => return Err(self.invalid("it is an index in an index")),
                }
            }
        };
        Ok((digest, found))
    }

    fn image(
        &self,
        digest: &Digest,
        found: &Base,
        config: &[u8],
        packages: Option<Layer>,
        layer: Layer,
    ) -> Result<Layout, PushError> {
        let described = |blob: &super::layout::Blob| Descriptor {
            digest: blob.digest.clone(),
            size: blob.size,
        };
        let below = match (&self.packages, &packages) {
            (Some(Packages { into, .. }), Some(Layer { blob, diff_id, .. })) => {
                let layer = (&described(blob), diff_id);
                packages::below(config, found, layer, into).map_err(|why| self.invalid(why))?
            }
            _ => (config.to_vec(), found.clone()),
        };
        let (config, found) = (&below.0, &below.1);
        let config = base::configuration(config, found, &layer.diff_id, &self.change)
            .map_err(|why| self.invalid(why))?;
        let config = folder::spooled(&config, Path::new(&self.scratch))?;
        let named = (&self.reference, digest);
        let manifest = base::manifest(named, found, &described(&config), &described(&layer.blob));
        let digest = Digest::of(&manifest);
        let layers = packages.into_iter().chain([layer]).map(|layer| layer.blob).collect();
        Ok(Layout { manifest: manifest.into(), digest, config, layers })
    }

    fn invalid(&self, why: impl Into<String>) -> BaseError {
        BaseError::Invalid { image: self.reference.to_string(), why: why.into() }
    }
}
