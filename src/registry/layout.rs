//! Opens the files of an OCI image layout, and checks their sizes and digests.
//!
//! Everything in the folder is hostile. Each file is opened below the folder by its descriptor, without following a symbolic link, and
//! only a regular file is read. So what is checked is what is pushed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::error::LayoutError;
use super::manifest::{self, Descriptor, Digest, MAX_MANIFEST};
use convoke_core::text::hex;

/// Bytes that are read at once.
pub(super) const CHUNK: u64 = 256 << 10;
/// Bytes of the largest `oci-layout`.
const MAX_VERSION: u64 = 1 << 20;
/// The folder of blobs.
const BLOBS: &str = "blobs/sha256";

/// An image in a layout. Its files are open.
#[derive(Debug)]
pub struct Layout {
    /// The manifest, as it is.
    pub manifest: Bytes,
    /// The digest of the manifest.
    pub digest: Digest,
    /// The configuration.
    pub config: Blob,
    /// The layers, the lowest first.
    pub layers: Vec<Blob>,
}

/// A blob: a file that is open and has the right size.
#[derive(Debug, Clone)]
pub struct Blob {
    /// The digest that it must have.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    pub(super) file: Arc<File>,
}

impl Layout {
    /// Opens the layout in a folder. The last part of the folder's own path must be no symbolic link either. The digests of config and
    /// layers are not computed yet.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn open(folder: &Path) -> Result<Self, LayoutError> {
        let root = openat(CWD, folder, folder_flags(), Mode::empty())
            .map_err(|error| not_opened("the layout", error, "a folder"))?;
        let (index, blobs) = index_and_blobs(&root)?;
        let named = manifest::index(&index).map_err(|why| invalid("index.json", why))?;
        Self::of(&blobs, &named)
    }

    /// All images of the layout in a folder of this folder, at most [`super::layers::MAX_IMAGES`]. The same as [`Self::open`] otherwise.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn open_all(folder: &OwnedFd, name: &str) -> Result<Vec<Self>, LayoutError> {
        let (index, blobs) = index_and_blobs(&folder_in(folder, name, name)?)?;
        let all = super::layers::index(&index).map_err(|why| invalid("index.json", why))?;
        all.manifests.iter().map(|named| Self::of(&blobs, named)).collect()
    }

    /// The image that a descriptor names.
    fn of(blobs: &OwnedFd, named: &Descriptor) -> Result<Self, LayoutError> {
        let found = Blob::open(blobs, named)?;
        let path = found.path();
        let bytes = whole(&found.file, &path, MAX_MANIFEST)?;
        let digest = Digest::of(&bytes);
        if digest != found.digest {
            return Err(LayoutError::WrongDigest { path, found: digest.hex().to_owned() });
        }
        let all = manifest::manifest(&bytes)
            .map_err(|why| invalid(&format!("the manifest ({path})"), why))?;
        let config = Blob::open(blobs, &all.config)?;
        let layers =
            all.layers.iter().map(|layer| Blob::open(blobs, layer)).collect::<Result<_, _>>()?;
        Ok(Self { manifest: bytes.into(), digest, config, layers })
    }
}

/// `index.json` of a layout, and its folder of blobs.
fn index_and_blobs(root: &OwnedFd) -> Result<(Vec<u8>, OwnedFd), LayoutError> {
    let version = whole(&file_in(root, "oci-layout", "oci-layout")?, "oci-layout", MAX_VERSION)?;
    manifest::layout_version(&version).map_err(|why| invalid("oci-layout", why))?;
    let index = whole(&file_in(root, "index.json", "index.json")?, "index.json", MAX_MANIFEST)?;
    let blobs = folder_in(&folder_in(root, "blobs", "blobs")?, "sha256", BLOBS)?;
    Ok((index, blobs))
}

impl Blob {
    fn open(blobs: &OwnedFd, descriptor: &Descriptor) -> Result<Self, LayoutError> {
        let Descriptor { digest, size } = descriptor.clone();
        let path = format!("{BLOBS}/{}", digest.hex());
        let file = file_in(blobs, digest.hex(), &path)?;
        let found = size_of(&file, &path)?;
        if found != size {
            return Err(LayoutError::WrongSize { path, found, wanted: size });
        }
        Ok(Self { digest, size, file: Arc::new(file) })
    }

    /// The path below the layout.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{BLOBS}/{}", self.digest.hex())
    }

    /// Reads the blob, and gives it away in pieces. The last piece is given away only when the digest of all of them is right. `take`
    /// says whether to go on.
    ///
    /// # Errors
    /// [`LayoutError::NotRead`], [`LayoutError::WrongSize`], [`LayoutError::WrongDigest`].
    pub fn read(&self, mut take: impl FnMut(Bytes) -> bool) -> Result<(), LayoutError> {
        let mut hash = Sha256::new();
        let mut at = 0;
        loop {
            let length = usize::try_from((self.size - at).min(CHUNK)).unwrap_or(0);
            let mut piece = vec![0; length];
            self.file.read_exact_at(&mut piece, at).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let found = size_of(&self.file, "").unwrap_or(at);
                    LayoutError::WrongSize { path: self.path(), found, wanted: self.size }
                }
                _ => LayoutError::NotRead { path: self.path(), why: error.to_string() },
            })?;
            hash.update(&piece);
            at += length as u64;
            if at == self.size {
                let found = hex(&hash.finalize());
                if found != self.digest.hex() {
                    return Err(LayoutError::WrongDigest { path: self.path(), found });
                }
                take(piece.into());
                return Ok(());
            }
            if !take(piece.into()) {
                return Ok(());
            }
        }
    }
}

pub(super) const fn folder_flags() -> OFlags {
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
}

/// Opens a folder in a folder. `path` is what errors call it.
pub(super) fn folder_in(folder: &OwnedFd, name: &str, path: &str) -> Result<OwnedFd, LayoutError> {
    openat(folder, name, folder_flags(), Mode::empty())
        .map_err(|error| not_opened(path, error, "a folder"))
}

/// Opens a regular file in a folder.
pub(super) fn file_in(folder: &OwnedFd, name: &str, path: &str) -> Result<File, LayoutError> {
    file_at(folder, Path::new(name), path)
}

/// Opens a regular file. Its last part must be no symbolic link. A pipe that nobody writes to does not hold it up. `path` is what errors call it.
pub(super) fn file_at(folder: impl AsFd, name: &Path, path: &str) -> Result<File, LayoutError> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(folder, name, flags, Mode::empty())
        .map_err(|error| not_opened(path, error, "a file"))?;
    let found = fstat(&file).map_err(|error| not_opened(path, error, "a file"))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(LayoutError::NotPlain { path: path.to_owned(), what: "no regular file" });
    }
    Ok(file.into())
}

pub(super) fn not_opened(path: &str, error: Errno, wanted: &str) -> LayoutError {
    let path = path.to_owned();
    match error {
        Errno::LOOP => {
            LayoutError::NotPlain { path, what: "a symbolic link, and none is followed" }
        }
        // What a symbolic link is called where a folder is wanted.
        Errno::NOTDIR => {
            LayoutError::NotPlain { path, what: "no folder (symbolic links are not followed)" }
        }
        // As for a socket.
        Errno::NXIO => LayoutError::NotPlain { path, what: "no regular file" },
        Errno::NOENT => LayoutError::NotRead {
            path,
            why: format!("there is no such thing, and it must be {wanted}"),
        },
        _ => LayoutError::NotRead { path, why: io::Error::from(error).to_string() },
    }
}

fn size_of(file: &File, path: &str) -> Result<u64, LayoutError> {
    let found = file.metadata();
    found.map(|found| found.len()).map_err(|error| not_read(path, &error))
}

fn not_read(path: &str, error: &io::Error) -> LayoutError {
    LayoutError::NotRead { path: path.to_owned(), why: error.to_string() }
}

pub(super) fn invalid(path: &str, why: String) -> LayoutError {
    LayoutError::Invalid { path: path.to_owned(), why }
}

/// All of a small file.
pub(super) fn whole(file: &File, path: &str, limit: u64) -> Result<Vec<u8>, LayoutError> {
    use std::io::Read;
    let too_large = || LayoutError::TooLarge { path: path.to_owned(), limit: limit >> 20 };
    if size_of(file, path)? > limit {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| not_read(path, &error))?;
    if bytes.len() as u64 > limit { Err(too_large()) } else { Ok(bytes) }
}
