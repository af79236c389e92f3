//! Makes one layer of a folder: a tar in gzip, the same for the same content at any time and on any machine.
//!
//! Everything in the folder is hostile. Each file is opened below the folder by its descriptor, without following a symbolic link. Owner,
//! time and order of what is there do not matter, and neither do modes, but for whether a file can be run.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::{Compression, GzBuilder, write::GzEncoder};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::error::{FolderError, shown};
use super::layout::Blob;
use super::manifest::Digest;

/// Files, folders and links of the largest layer.
pub const MAX_ENTRIES: usize = 100_000;
/// Bytes of all its files.
pub const MAX_BYTES: u64 = 1 << 30;
/// Bytes of the longest path in the image.
pub const MAX_PATH: usize = 1024;
/// Folders in each other: each is open while what is in it is read.
const MAX_DEPTH: usize = 100;
/// How names begin that a layer takes as "this is deleted".
const WHITEOUT: &[u8] = b".wh.";
/// The level is part of the result: another one makes other bytes of the same folder.
const LEVEL: u32 = 6;
/// "Unknown", as gzip calls the system that it ran on.
const NO_SYSTEM: u8 = 255;

/// A layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The compressed tar.
    pub blob: Blob,
    /// The digest of the tar.
    pub diff_id: Digest,
    /// Files, folders and links in it.
    pub entries: usize,
}

/// Makes a layer of the folder `subfolder` below `root`. In the image it is at `into`, which is absolute. `scratch` is a folder for a file
/// without a name.
///
/// # Errors
/// What no layer takes, with its path.
pub fn layer(
    root: &Path,
    subfolder: &str,
    into: &str,
    scratch: &Path,
) -> Result<Layer, FolderError> {
    layer_without(&[], opened(root, subfolder)?, into, scratch)
}

/// Makes a layer of a folder with packages of Python. What Python has compiled is left out: it says when that was.
///
/// # Errors
/// What no layer takes, with its path.
pub fn packages(folder: &Path, into: &str, scratch: &Path) -> Result<Layer, FolderError> {
    layer_without(&[b"__pycache__"], opened(folder, "")?, into, scratch)
}

/// Makes a layer without what is called so.
fn layer_without(
    without: &'static [&'static [u8]],
    folder: OwnedFd,
    into: &str,
    scratch: &Path,
) -> Result<Layer, FolderError> {
    let written = |error: io::Error| FolderError::Scratch { why: error.to_string() };
    let file = tempfile::tempfile_in(scratch).map_err(written)?;
    let counted = Hashed::new(BufWriter::new(file));
    let gzip = GzBuilder::new().mtime(0).operating_system(NO_SYSTEM);
    let gzip: GzEncoder<_> = gzip.write(counted, Compression::new(LEVEL));
    let mut walk = Walk {
        tar: tar::Builder::new(Hashed::new(gzip)),
        without,
        entries: 0,
        bytes: 0,
        path: PathBuf::new(),
    };
    for part in into.split('/').filter(|part| !part.is_empty()) {
        walk.path.push(part);
    }
    // What is above stays as the base image has it: a link there must not become a folder. Runtimes make what is missing.
    walk.folder_entry()?;
    walk.folder(folder, 0)?;
    let Walk { tar, entries, .. } = walk;
    let (gzip, diff_id, _) = tar.into_inner().map_err(written)?.ended();
    let (file, digest, size) = gzip.finish().map_err(written)?.ended();
    let file = file.into_inner().map_err(|error| written(error.into_error()))?;
    let blob = Blob { digest, size, file: Arc::new(file) };
    Ok(Layer { blob, diff_id, entries })
}

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens a regular file. `path` is relative to `root`; from there on no symbolic link is followed.
///
/// # Errors
/// When it is not there, or something else.
pub fn file(root: &Path, path: &str) -> Result<File, FolderError> {
    let failed = |error: Errno| not_read(Path::new(path), error);
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let file = openat(opened(root, folder)?, name, FILE, Mode::empty()).map_err(failed)?;
    let found = fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(not_read(Path::new(path), Errno::LOOP));
    }
    Ok(file.into())
}

/// Opens a folder below another one.
fn opened(root: &Path, subfolder: &str) -> Result<OwnedFd, FolderError> {
    let failed = |error: Errno| not_read(Path::new(subfolder), error);
    let mut folder = openat(CWD, root, FOLDER, Mode::empty()).map_err(failed)?;
    for part in subfolder.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            return Err(FolderError::NotTaken {
                path: shown(subfolder),
                why: "a path with \"..\"".into(),
            });
        }
        folder = openat(&folder, part, FOLDER, Mode::empty()).map_err(failed)?;
    }
    Ok(folder)
}

fn not_read(path: &Path, error: Errno) -> FolderError {
    let path = shown(&path.to_string_lossy());
    match error {
        Errno::LOOP | Errno::NOTDIR => FolderError::NotTaken {
            path,
            why: "no folder or regular file (symbolic links are not followed)".into(),
        },
        _ => FolderError::NotRead { path, why: io::Error::from(error).to_string() },
    }
}

/// What is written, with its digest and its length.
struct Hashed<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W> Hashed<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    fn ended(self) -> (W, Digest, u64) {
        (self.inner, Digest::of_hash(self.hash), self.size)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A file of which exactly so many bytes are read.
struct Exactly<'a> {
    file: &'a File,
    left: u64,
}

impl Read for Exactly<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if room == 0 {
            return Ok(0);
        }
        let read = self.file.read(into.get_mut(..room).unwrap_or_default())?;
        if read == 0 {
            return Err(io::Error::other("it became shorter while it was read"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// What goes through the folder.
struct Walk<W: Write> {
    tar: tar::Builder<W>,
    /// Names that are left out.
    without: &'static [&'static [u8]],
    entries: usize,
    bytes: u64,
    /// The path in the image, without a slash at its beginning.
    path: PathBuf,
}

impl<W: Write> Walk<W> {
    fn shown(&self) -> String {
        shown(&self.path.to_string_lossy())
    }

    fn not_taken(&self, why: impl Into<String>) -> FolderError {
        FolderError::NotTaken { path: self.shown(), why: why.into() }
    }

    fn not_written(&self, error: &io::Error) -> FolderError {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return FolderError::Scratch { why: error.to_string() };
        }
        FolderError::NotRead { path: self.shown(), why: error.to_string() }
    }

    /// What is in a folder, sorted by the bytes of the names.
    fn folder(&mut self, folder: OwnedFd, depth: usize) -> Result<(), FolderError> {
        if depth > MAX_DEPTH {
            return Err(self.not_taken(format!("more than {MAX_DEPTH} folders deep")));
        }
        for name in self.names(&folder)? {
            let bytes = name.as_bytes();
            self.path.push(OsStr::from_bytes(bytes));
            if self.path.as_os_str().len() > MAX_PATH {
                return Err(self.not_taken(format!("a path of more than {MAX_PATH} bytes")));
            }
            if bytes.starts_with(WHITEOUT) {
                return Err(self.not_taken("a name that a layer takes as a deleted file"));
            }
            self.entry(&folder, &name, depth)?;
            self.path.pop();
        }
        Ok(())
    }

    fn names(&self, folder: &OwnedFd) -> Result<Vec<CString>, FolderError> {
        let failed = |error| not_read(&self.path, error);
        let mut names = Vec::new();
        for entry in Dir::read_from(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || self.without.contains(&name) {
                continue;
            }
            if self.entries + names.len() >= MAX_ENTRIES {
                return Err(FolderError::TooLarge { limit: format!("{MAX_ENTRIES} files") });
            }
            names.push(entry.file_name().to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn entry(&mut self, folder: &OwnedFd, name: &CStr, depth: usize) -> Result<(), FolderError> {
        let failed = |error| not_read(&self.path, error);
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let inner = openat(folder, name, FOLDER, Mode::empty()).map_err(failed)?;
                self.folder_entry()?;
                self.folder(inner, depth + 1)
            }
            FileType::RegularFile => {
                let file = openat(folder, name, FILE, Mode::empty()).map_err(failed)?;
                let found = fstat(file.as_fd()).map_err(failed)?;
                if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                    return Err(self.not_taken("no regular file"));
                }
                let size = u64::try_from(found.st_size).unwrap_or(u64::MAX);
                self.file_entry(&file.into(), size, found.st_mode & 0o100 != 0)
            }
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new()).map_err(failed)?;
                self.link_entry(target.as_bytes(), depth)
            }
            _ => Err(self.not_taken("a pipe, a socket or a device")),
        }
    }

    fn counted(&mut self) -> Result<(), FolderError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(FolderError::TooLarge { limit: format!("{MAX_ENTRIES} files") });
        }
        Ok(())
    }

    fn folder_entry(&mut self) -> Result<(), FolderError> {
        self.counted()?;
        let mut header = header(EntryType::Directory, 0o755, 0);
        let path = self.path.join("");
        let written = self.tar.append_data(&mut header, path, io::empty());
        written.map_err(|error| self.not_written(&error))
    }

    fn file_entry(&mut self, file: &File, size: u64, runs: bool) -> Result<(), FolderError> {
        self.counted()?;
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_BYTES {
            return Err(FolderError::TooLarge { limit: format!("{} MiB", MAX_BYTES >> 20) });
        }
        let mode = if runs { 0o755 } else { 0o644 };
        let mut header = header(EntryType::Regular, mode, size);
        let content = Exactly { file, left: size };
        let written = self.tar.append_data(&mut header, &self.path, content);
        written.map_err(|error| self.not_written(&error))
    }

    fn link_entry(&mut self, target: &[u8], depth: usize) -> Result<(), FolderError> {
        self.counted()?;
        if !stays_inside(target, depth) {
            let target = shown(&String::from_utf8_lossy(target));
            return Err(self.not_taken(format!("a symbolic link out of the folder, to {target}")));
        }
        let mut header = header(EntryType::Symlink, 0o777, 0);
        let target = Path::new(OsStr::from_bytes(target));
        let written = self.tar.append_link(&mut header, &self.path, target);
        written.map_err(|error| self.not_written(&error))
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

/// Whether the target of a link stays in the folder. The link is in `depth` folders below it. Behind a name there must be no `..`: that name
/// may be a link, too, and nobody knows without following it what is above its target.
fn stays_inside(target: &[u8], depth: usize) -> bool {
    let mut up = 0;
    let mut has_name = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b".." if has_name => return false,
            b".." => up += 1,
            b"" | b"." => {}
            _ => has_name = true,
        }
    }
    !target.is_empty() && !target.starts_with(b"/") && up <= depth
}

/// A small blob in a file without a name.
///
/// # Errors
/// When it cannot be written.
pub fn spooled(bytes: &[u8], scratch: &Path) -> Result<Blob, FolderError> {
    let written = |error: io::Error| FolderError::Scratch { why: error.to_string() };
    let mut file = tempfile::tempfile_in(scratch).map_err(written)?;
    file.write_all(bytes).map_err(written)?;
    Ok(Blob { digest: Digest::of(bytes), size: bytes.len() as u64, file: Arc::new(file) })
}

#[cfg(test)]
#[path = "tests/folder.rs"]
mod tests;
