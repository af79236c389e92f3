//! Keeps the layers that a build has made in the registry, beside the image, and fetches them for the next build.
//!
//! The folder of a build is hostile, as its layout is: whoever wrote the Dockerfile may have written it. So is what is fetched, though only
//! what has the digest that is asked for: it goes into a new folder, for a step without credentials. There each image has the manifest that
//! it had, with layers that are not packed: what buildah builds on it is then the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, openat};

use super::client::Registry;
use super::error::{BaseError, LayoutError, PushError};
use super::image::Tag;
use super::layers::{self, MAX_ABOUT, MAX_IMAGES, Pool};
use super::layout::{Blob, Layout, file_in, folder_flags, folder_in, invalid, not_opened, whole};
use super::manifest::{
    self, Descriptor, Digest, INDEX, MANIFEST, MAX_CONFIG, MAX_MANIFEST, Manifest,
};
use super::save::NewLayout;

/// The file with what is to be known of the layers.
const ABOUT: &str = "about";
/// The folder with the configurations: files that are called 0, 1, 2 and so on.
const CONFIGS: &str = "configs";
/// The folder with the manifests as buildah has them, called in the same way.
const MANIFESTS: &str = "manifests";
/// The layout with images whose layers the image itself does not have. It may be missing.
const STAGES: &str = "stages";

/// What a build has left for the next one. Its files are open.
#[derive(Debug)]
pub struct Made {
    manifests: Vec<Vec<u8>>,
    blobs: BTreeMap<String, Blob>,
    about: String,
    /// Configurations whose layers are not there.
    pub left_out: usize,
}

/// How much of a cache there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Images.
    pub images: usize,
    /// Bytes of their blobs.
    pub bytes: u64,
}

impl Made {
    /// Opens the folder that a build has left. `image` is the image that it has built.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn open(folder: &Path, image: &Layout) -> Result<Self, LayoutError> {
        let root = openat(CWD, folder, folder_flags(), Mode::empty())
            .map_err(|error| not_opened("the folder of layers", error, "a folder"))?;
        let about = whole(&file_in(&root, ABOUT, ABOUT)?, ABOUT, MAX_ABOUT)?;
        let about =
            String::from_utf8(about).map_err(|_| invalid(ABOUT, "it is not UTF-8".into()))?;
        let stages = match Layout::open_all(&root, STAGES) {
            Err(LayoutError::NotRead { .. }) => Vec::new(),
            opened => opened?,
        };
        let mut pool = Pool::default();
        let mut blobs = BTreeMap::new();
        for image in std::iter::once(image).chain(&stages) {
            let path = image.config.path();
            let config = read(&image.config)?;
            pool.add(&config, &image.manifest).map_err(|why| invalid(&path, why))?;
            blobs.extend(image.layers.iter().map(|it| (it.digest.hex().to_owned(), it.clone())));
        }
        let configs = folder_in(&root, CONFIGS, CONFIGS)?;
        let manifests = folder_in(&root, MANIFESTS, MANIFESTS)?;
        let mut made = Self { manifests: Vec::new(), blobs, about, left_out: 0 };
        for number in 0..MAX_IMAGES {
            if !made.add(&pool, [&configs, &manifests], number)? {
                break;
            }
        }
        Ok(made)
    }

    /// Adds the image with this configuration. `false`: there is none of this number.
    fn add(
        &mut self,
        pool: &Pool,
        [configs, manifests]: [&OwnedFd; 2],
        number: usize,
    ) -> Result<bool, LayoutError> {
        let path = format!("{CONFIGS}/{number}");
        let file = match file_in(configs, &number.to_string(), &path) {
            Err(LayoutError::NotRead { .. }) => return Ok(false),
            file => file?,
        };
        let bytes = whole(&file, &path, MAX_CONFIG)?;
        let own = format!("{MANIFESTS}/{number}");
        let own = whole(&file_in(manifests, &number.to_string(), &own)?, &own, MAX_MANIFEST)?;
        let found = pool.manifest(&bytes, &own).map_err(|why| invalid(&path, why))?;
        let Some(manifest) = found else {
            self.left_out += 1;
            return Ok(true);
        };
        let (digest, size) = (Digest::of(&bytes), bytes.len() as u64);
        let name = digest.hex().to_owned();
        self.blobs.entry(name).or_insert(Blob { digest, size, file: Arc::new(file) });
        self.manifests.push(manifest);
        let sizes = self.manifests.iter().map(|bytes| bytes.len() as u64);
        layers::manifests_fit(sizes).map_err(|why| invalid(MANIFESTS, why))?;
        Ok(true)
    }
}

/// All of a small blob.
fn read(blob: &Blob) -> Result<Vec<u8>, LayoutError> {
    // Its size was checked when it was opened.
    let mut bytes = Vec::new();
    blob.read(|piece| {
        bytes.extend_from_slice(&piece);
        true
    })?;
    Ok(bytes)
}

/// What a manifest of ours names.
fn named(bytes: &[u8]) -> Result<Manifest, PushError> {
    let wrong = |why| invalid("an image of the layers", why);
    Ok(manifest::manifest(bytes).map_err(wrong)?)
}

impl Registry {
    /// Keeps layers under a tag, in place of those that are there. Gives the digest by which they are fetched.
    ///
    /// # Errors
    /// Why the registry does not have them. The tag then names what it did.
    pub async fn keep_layers(
        &mut self,
        made: &Made,
        tag: &Tag,
    ) -> Result<(Digest, Kept), PushError> {
        let images = made.manifests.iter().map(|bytes| named(bytes));
        let images: Vec<_> = images.collect::<Result<_, _>>()?;
        let blobs = layers::blobs(&images).map_err(|why| invalid("the folder of layers", why))?;
        for Descriptor { digest, .. } in &blobs {
            let gone = || invalid("the folder of layers", format!("{digest} is not there"));
            let blob = made.blobs.get(digest.hex()).ok_or_else(gone)?;
            self.push_blob(blob).await?;
        }
        for bytes in &made.manifests {
            let digest = Digest::of(bytes);
            self.put_manifest(bytes, &digest, &digest.to_string(), MANIFEST).await?;
        }
        let index = layers::written(&made.manifests, &made.about);
        let digest = Digest::of(&index);
        self.put_manifest(&index, &digest, tag.as_str(), INDEX).await?;
        let bytes = blobs.iter().map(|blob| blob.size).sum();
        Ok((digest, Kept { images: images.len(), bytes }))
    }

    /// Fetches the layers with this digest as an OCI image layout into a new folder. Its images are called 0, 1, 2 and so on. What is to be
    /// known of them is in the file `about` beside.
    ///
    /// # Errors
    /// Why they are not there. The folder is then no layout.
    pub async fn fetch_layers(
        &mut self,
        digest: &Digest,
        folder: &Path,
    ) -> Result<Kept, PushError> {
        let wrong = |registry: &Self, why| {
            PushError::Base(BaseError::Invalid { image: registry.image().to_string(), why })
        };
        let (bytes, _) = self.pull_manifest(&digest.to_string()).await?;
        let index = layers::index(&bytes).map_err(|why| wrong(self, why))?;
        let mut images = Vec::new();
        let (mut all, mut unpacked, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for (number, Descriptor { digest, size }) in index.manifests.iter().enumerate() {
            let (bytes, _) = self.pull_manifest(&digest.to_string()).await?;
            // Their sum was looked at.
            if bytes.len() as u64 != *size {
                return Err(wrong(self, format!("{digest} has another size than it should")));
            }
            let found = layers::kept(&bytes).map_err(|why| wrong(self, why))?;
            let layers::Kept { manifest, config, layers } = found;
            images.push((number.to_string(), Digest::of(&manifest), Bytes::from(manifest)));
            let (packed, plain): (Vec<_>, Vec<_>) = layers.iter().cloned().unzip();
            all.push(Manifest { config: config.clone(), layers: packed });
            unpacked.push(Manifest { config, layers: plain });
            pairs.extend(layers);
        }
        let blobs = layers::blobs(&all).map_err(|why| wrong(self, why))?;
        layers::blobs(&unpacked).map_err(|why| wrong(self, why))?;
        let kept = Kept { images: images.len(), bytes: blobs.iter().map(|blob| blob.size).sum() };
        let mut layout = NewLayout::create(folder)?;
        let configs: Vec<_> = all.into_iter().map(|image| ("", image.config)).collect();
        layout.pull(self, &configs).await?;
        for (packed, plain) in &pairs {
            layout.pull_unpacked(self, packed, plain).await?;
        }
        layout.beside(ABOUT, index.about.as_bytes())?;
        layout.named(&images)?;
        Ok(kept)
    }
}
