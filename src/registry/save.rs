//! Writes an image as an OCI image layout: layers of a base image as they arrive, and what is new.
//!
//! The folder is a new one. Its files are made below it by its descriptor: nothing that is there is written over, and no symbolic link is
//! followed. `index.json` is written last, so what broke off is no layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::client::Registry;
use super::error::{BaseError, LayoutError, PushError};
use super::layout::{Blob, Layout};
use super::manifest::{Descriptor, Digest, INDEX, MANIFEST};
use super::push::Piece;

/// The most bytes of all blobs of a layout.
pub const MAX_BYTES: u64 = 16 << 30;
/// Bytes that are unpacked at once.
const PIECE: usize = 256 << 10;
/// Pieces of a blob that wait to be written.
const PIECES: usize = 4;
/// What tools call the image of the layout: `oci:DIR:image`.
const NAME: &str = "image";
/// Who may do what with files and folders: the steps that read them run as other users.
const FILE: Mode = Mode::from_raw_mode(0o644);
const FOLDER: Mode = Mode::from_raw_mode(0o755);

/// A layout that is being written.
#[derive(Debug)]
pub struct NewLayout {
    root: OwnedFd,
    blobs: OwnedFd,
    /// Digests in hex and sizes of the blobs that are there.
    written: BTreeMap<String, u64>,
}

impl NewLayout {
    /// Makes the folder, which must not be there.
    ///
    /// # Errors
    /// [`PushError::NotWritten`].
    pub fn create(folder: &Path) -> Result<Self, PushError> {
        let root = made(CWD, folder, "the folder")?;
        let blobs = made(made(&root, Path::new("blobs"), "blobs")?, Path::new("sha256"), "blobs")?;
        Ok(Self { root, blobs, written: BTreeMap::new() })
    }

    /// Copies a whole image into a folder, which must not be there. Nothing but the image is copied.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`], [`PushError::NotWritten`], and those of [`Blob::read`].
    pub fn copy_of(image: &Layout, folder: &Path) -> Result<(), PushError> {
        let blobs = std::iter::once(&image.config).chain(&image.layers);
        let sizes: BTreeMap<_, _> = blobs.map(|blob| (blob.digest.hex(), blob.size)).collect();
        if sizes.values().fold(0_u64, |sum, size| sum.saturating_add(*size)) > MAX_BYTES {
            let limit = MAX_BYTES >> 20;
            return Err(LayoutError::TooLarge { path: "the image".into(), limit }.into());
        }
        Self::create(folder)?.finish(image)
    }

    /// Brings the layers of a base image here. Each is there once, however often the image names it.
    ///
    /// # Errors
    /// Why one is not there.
    pub async fn pull(
        &mut self,
        base: &mut Registry,
        layers: &[(&'static str, Descriptor)],
    ) -> Result<(), PushError> {
        check(layers).map_err(|why| invalid(base, why))?;
        for (_, named) in layers {
            if self.begins(&named.digest, named.size) {
                self.pull_one(base, named).await?;
            }
        }
        Ok(())
    }

    async fn pull_one(&self, base: &mut Registry, named: &Descriptor) -> Result<(), PushError> {
        let path = path_of(&named.digest);
        let file = Arc::new(new_file(&self.blobs, named.digest.hex(), &path)?);
        fetched(base, named, &file, &path).await
    }

    /// Brings a layer here, and unpacks it. `plain` is what comes of it.
    ///
    /// # Errors
    /// Why it is not there.
    pub(super) async fn pull_unpacked(
        &mut self,
        base: &mut Registry,
        packed: &Descriptor,
        plain: &Descriptor,
    ) -> Result<(), PushError> {
        if packed == plain {
            return self.pull(base, &[("", plain.clone())]).await;
        }
        if !self.begins(&plain.digest, plain.size) {
            return Ok(());
        }
        let path = path_of(&plain.digest);
        let spool = Arc::new(spool(&self.root)?);
        fetched(base, packed, &spool, &path).await?;
        let file = new_file(&self.blobs, plain.digest.hex(), &path)?;
        let wanted = plain.clone();
        let unpacking = tokio::task::spawn_blocking(move || unpacked(&spool, file, &wanted));
        let ended = |_| io::Error::other("the unpacking ended");
        let found = unpacking.await.map_err(ended).and_then(|done| done);
        if found.map_err(|error| not_written(&path, &error))? {
            return Ok(());
        }
        Err(invalid(base, format!("{} does not become {}", packed.digest, plain.digest)))
    }

    /// Writes what is new of an image, and with that makes the folder a layout. Its other layers must be there.
    ///
    /// # Errors
    /// [`PushError::NotWritten`], and those of [`Blob::read`].
    pub fn finish(mut self, image: &Layout) -> Result<(), PushError> {
        for blob in std::iter::once(&image.config).chain(&image.layers) {
            if self.begins(&blob.digest, blob.size) {
                self.copy(blob)?;
            }
        }
        let Layout { manifest, digest, .. } = image;
        self.named(&[(NAME.to_owned(), digest.clone(), manifest.clone())])
    }

    /// Writes a file beside what a layout has.
    pub(super) fn beside(&self, name: &str, bytes: &[u8]) -> Result<(), PushError> {
        whole(&self.root, name, name, bytes)
    }

    /// Writes the manifests of images with their names, and with that makes the folder a layout. All that they name must be there.
    ///
    /// # Errors
    /// [`PushError::NotWritten`].
    pub(super) fn named(self, images: &[(String, Digest, Bytes)]) -> Result<(), PushError> {
        let mut manifests = Vec::new();
        let mut written = BTreeSet::new();
        for (name, digest, manifest) in images {
            if written.insert(digest.hex()) {
                whole(&self.blobs, digest.hex(), &path_of(digest), manifest)?;
            }
            manifests.push(json!({
                "mediaType": MANIFEST, "digest": digest.to_string(), "size": manifest.len(),
                "annotations": {"org.opencontainers.image.ref.name": name},
            }));
        }
        let version = json!({"imageLayoutVersion": "1.0.0"}).to_string();
        whole(&self.root, "oci-layout", "oci-layout", version.as_bytes())?;
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        whole(&self.root, "index.json", "index.json", index.to_string().as_bytes())
    }

    /// Whether a blob is not there yet. From now on it counts as there.
    fn begins(&mut self, digest: &Digest, size: u64) -> bool {
        self.written.insert(digest.hex().to_owned(), size).is_none()
    }

    /// Copies a blob.
    fn copy(&self, blob: &Blob) -> Result<(), PushError> {
        let path = blob.path();
        let file = new_file(&self.blobs, blob.digest.hex(), &path)?;
        let (mut at, mut wrong) = (0, None);
        blob.read(|piece| match file.write_all_at(&piece, at) {
            Ok(()) => {
                at += piece.len() as u64;
                true
            }
            Err(error) => {
                wrong = Some(error);
                false
            }
        })?;
        wrong.map_or(Ok(()), |error| Err(not_written(&path, &error)))
    }
}

/// Writes a small file.
fn whole(folder: &OwnedFd, name: &str, path: &str, bytes: &[u8]) -> Result<(), PushError> {
    let file = new_file(folder, name, path)?;
    file.write_all_at(bytes, 0).map_err(|error| not_written(path, &error))
}

/// Makes a file. `path` is what errors call it.
fn new_file(folder: &OwnedFd, name: &str, path: &str) -> Result<File, PushError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let failed = |error: Errno| not_written(path, &error.into());
    let file = openat(folder, name, flags, FILE).map_err(failed)?;
    // Whatever the process leaves out of modes by itself.
    fchmod(&file, FILE).map_err(failed)?;
    Ok(file.into())
}

/// Makes and opens a folder in another one. `what` is what errors call it.
fn made(parent: impl rustix::fd::AsFd, name: &Path, what: &str) -> Result<OwnedFd, PushError> {
    let failed = |error: Errno| not_written(what, &error.into());
    match mkdirat(&parent, name, FOLDER) {
        Err(Errno::EXIST) => {
            let why = "there is something in its place, and nothing is written over";
            return Err(PushError::NotWritten { path: what.to_owned(), why: why.into() });
        }
        done => done.map_err(failed)?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&parent, name, flags, Mode::empty()).map_err(failed)?;
    fchmod(&folder, FOLDER).map_err(failed)?;
    Ok(folder)
}

fn path_of(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn not_written(path: &str, error: &io::Error) -> PushError {
    PushError::NotWritten { path: path.to_owned(), why: error.to_string() }
}

fn invalid(base: &Registry, why: String) -> PushError {
    BaseError::Invalid { image: base.image().to_string(), why }.into()
}

/// What is wrong with the sizes of layers, before anything of them is there.
fn check(layers: &[(&'static str, Descriptor)]) -> Result<(), String> {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, Descriptor { digest, size }) in layers {
        if all.insert(digest.hex(), *size).is_some_and(|before| before != *size) {
            return Err(format!("it names {digest} twice, with two sizes"));
        }
    }
    let sum = all.values().fold(0_u64, |sum, size| sum.saturating_add(*size));
    if sum > MAX_BYTES {
        return Err(format!(
            "its layers have {sum} bytes, and the most that are brought here are {MAX_BYTES}"
        ));
    }
    Ok(())
}

/// A file that goes when it is closed.
fn spool(folder: &OwnedFd) -> Result<File, PushError> {
    const NAME: &str = "arriving";
    let failed = |error: Errno| not_written(NAME, &error.into());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(folder, NAME, flags, FILE).map_err(failed)?;
    unlinkat(folder, NAME, AtFlags::empty()).map_err(failed)?;
    Ok(file.into())
}

/// Unpacks a layer. Whether it is what was wanted; no more of it than that is written.
fn unpacked(mut spool: &File, file: File, wanted: &Descriptor) -> io::Result<bool> {
    spool.seek(SeekFrom::Start(0))?;
    let mut plain = MultiGzDecoder::new(io::BufReader::new(spool)).take(wanted.size + 1);
    let mut to = io::BufWriter::new(file);
    let (mut hash, mut size, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        let read = match plain.read(&mut piece)? {
            0 => break,
            read => piece.get(..read).unwrap_or_default(),
        };
        size += read.len() as u64;
        if size > wanted.size {
            return Ok(false);
        }
        hash.update(read);
        to.write_all(read)?;
    }
    to.flush()?;
    Ok(size == wanted.size && Digest::of_hash(hash) == wanted.digest)
}

/// Writes a blob to a file. What may pass by itself is tried again.
async fn fetched(
    base: &mut Registry,
    named: &Descriptor,
    file: &Arc<File>,
    path: &str,
) -> Result<(), PushError> {
    let mut tried = 0;
    loop {
        match arrived(base, named, file.clone(), path).await {
            Ok(()) => return Ok(()),
            Err(PushError::Base(BaseError::Registry(error)))
                if base.again(&mut tried, &error).await => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes a blob to a file while it arrives.
async fn arrived(
    base: &mut Registry,
    named: &Descriptor,
    file: Arc<File>,
    path: &str,
) -> Result<(), PushError> {
    let arriving = base.arriving(named).await?;
    let what = arriving.what.clone();
    let (sender, waiting) = mpsc::channel(PIECES);
    let writing = tokio::task::spawn_blocking(move || written(&file, waiting));
    let pieces = async move { Ok(arriving.pieces(&sender).await) };
    let arrived = base.within(&what, Duration::MAX, pieces).await;
    let ended = |_| io::Error::other("the writing ended");
    // A full disk ends the other side without an error.
    writing
        .await
        .map_err(ended)
        .and_then(|done| done)
        .map_err(|error| not_written(path, &error))?;
    Ok(arrived.map_err(BaseError::Registry)??)
}

/// Writes what arrives to a file, in place of what is in it.
fn written(file: &File, mut waiting: mpsc::Receiver<Piece>) -> io::Result<()> {
    file.set_len(0)?;
    let mut at = 0;
    while let Some(piece) = waiting.blocking_recv() {
        let piece = piece?;
        file.write_all_at(&piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/save.rs"]
mod tests;
