//! Appends a folder to a base image, as one layer, and gives the registry what it needs for that: the layers of the base image, too. Or
//! writes all of it as an OCI image layout.

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
use super::save::NewLayout;

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
    /// The image, with only the layer that is new: the others are in the registry, or in the folder.
    pub layout: Layout,
    /// The digest that the base image has in its registry: of its index, if it has one.
    pub base: Digest,
    /// Files, folders and links of the layer.
    pub entries: usize,
    /// The layer of the packages.
    pub packages: Option<Layer>,
    /// How many layers the base image has.
    pub below: usize,
}

impl Append {
    /// Appends the folder, and brings the layers of the base image to the registry. `base` is the client of the base image, `registry` that
    /// of the image. Also gives how each layer came there.
    ///
    /// # Errors
    /// Why there is no image.
    pub async fn run(
        &self,
        base: &mut Registry,
        registry: &mut Registry,
    ) -> Result<(Appended, Vec<Copied>), PushError> {
        let (appended, found) = self.appended(base).await?;
        let is_near = base.is_at(registry);
        if is_near && base.image() != registry.image() {
            registry.mounts_from(base.image());
        }
        let mut copied = Vec::with_capacity(found.layers.len());
        for (_, named) in &found.layers {
            copied.push(registry.copy_blob(base, is_near, named).await?);
        }
        Ok((appended, copied))
    }

    /// Appends the folder, and writes the image with all of its layers as an OCI image layout. The folder `to` must not be there.
    ///
    /// # Errors
    /// Why there is no image.
    pub async fn save(&self, base: &mut Registry, to: &Path) -> Result<Appended, PushError> {
        let (appended, found) = self.appended(base).await?;
        let mut new = NewLayout::create(to)?;
        new.pull(base, &found.layers).await?;
        let writing = tokio::task::spawn_blocking(move || {
            new.finish(&appended.layout)?;
            Ok(appended)
        });
        let ended = |_| PushError::NotWritten {
            path: "the layout".into(),
            why: "the writing ended".into(),
        };
        writing.await.map_err(ended)?
    }

    /// The image with the layer of the folder, and its base.
    async fn appended(&self, base: &mut Registry) -> Result<(Appended, Base), PushError> {
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
        let below = found.layers.len();
        let entries = layer.entries;
        Ok((Appended { layout, base: digest, entries, packages, below }, found))
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
