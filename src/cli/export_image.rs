//! `convoke export-image`: writes an image from an OCI image layout as an archive of docker, which scanners read. A step of builds runs it.
//!
//! The layout is hostile, as for `push-image`: it is read in the same way, so what is scanned is what is pushed.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;
use clap::Args as ClapArgs;
use flate2::Compression;
use flate2::read::GzEncoder;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde_json::json;
use tar::{Builder, Header};

use super::push_image::failure;
use super::{FOUND, Failure, print};
use crate::registry::layout::Blob;
use crate::registry::{Layout, LayoutError, PushError};

/// Pieces of a blob that wait to be written.
const PIECES: usize = 4;
/// How what is compressed begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Export an image.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with the OCI image layout
    #[arg(long, value_name = "DIR")]
    layout: PathBuf,
    /// The archive to write, which must not be there
    #[arg(long, value_name = "FILE")]
    archive: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let layout = Layout::open(&args.layout).map_err(|error| failure(&error.into()))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(CWD, &args.archive, flags, Mode::from_raw_mode(0o644));
    let file = file.map_err(|error| not_written(args, &error.into()))?;
    let mut tar = Builder::new(io::BufWriter::new(std::fs::File::from(file)));
    let failed = |error| match error {
        Problem::Layout(error) => failure(&PushError::from(error)),
        Problem::Archive(error) => not_written(args, &error),
    };
    let plain = plain_below(&layout).map_err(|error| failed(Problem::Layout(error)))?;
    let mut written: Vec<&str> = Vec::new();
    for blob in std::iter::once(&layout.config).chain(&layout.layers) {
        // An empty layer is often there twice.
        if !written.contains(&blob.digest.hex()) {
            let is_plain = plain.is_some_and(|plain| plain.digest == blob.digest);
            let done = if is_plain { in_gzip(&mut tar, blob) } else { append(&mut tar, blob) };
            done.map_err(failed)?;
            written.push(blob.digest.hex());
        }
    }
    let layers: Vec<_> = layout.layers.iter().map(Blob::path).collect();
    // A tag is wanted, and means nothing.
    let tags = ["localhost/image:scanned"];
    let manifest =
        json!([{"Config": layout.config.path(), "RepoTags": tags, "Layers": layers}]).to_string();
    let ended = entry(&mut tar, "manifest.json", manifest.len() as u64, manifest.as_bytes())
        .and_then(|()| tar.into_inner()?.flush());
    ended.map_err(|error| not_written(args, &error))?;
    print(&format!(
        "the image {} has {}\n",
        layout.digest,
        super::count(layout.layers.len(), "layer")
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn not_written(args: &Args, error: &io::Error) -> Failure {
    Failure::new(FOUND, format!("cannot write {}: {error}", args.archive.display()))
}

/// What went wrong with a blob.
enum Problem {
    /// It is not what the layout says.
    Layout(LayoutError),
    /// The archive cannot be written.
    Archive(io::Error),
}

/// The lowest layer, if it is not compressed and another one is. Scanners read all layers as they read the lowest one: if that is plain,
/// none is unpacked.
fn plain_below(layout: &Layout) -> Result<Option<&Blob>, LayoutError> {
    let Some((lowest, others)) = layout.layers.split_first() else { return Ok(None) };
    if is_compressed(lowest)? {
        return Ok(None);
    }
    for other in others {
        if is_compressed(other)? {
            return Ok(Some(lowest));
        }
    }
    Ok(None)
}

/// Whether a blob begins as gzip or zstd does.
fn is_compressed(blob: &Blob) -> Result<bool, LayoutError> {
    let mut begins = false;
    blob.read(|piece| {
        begins = [&GZIP[..], &ZSTD[..]].iter().any(|magic| piece.starts_with(magic));
        false
    })?;
    Ok(begins)
}

/// Adds a blob, in pieces.
fn append(tar: &mut Builder<impl Write>, blob: &Blob) -> Result<(), Problem> {
    with_pieces(blob, |pieces| entry(tar, &blob.path(), blob.size, pieces))
}

/// Adds a blob in gzip, which does not make it smaller. It is read twice: an archive tells the size first.
fn in_gzip(tar: &mut Builder<impl Write>, blob: &Blob) -> Result<(), Problem> {
    let packed = |pieces| GzEncoder::new(pieces, Compression::none());
    let size = with_pieces(blob, |pieces| io::copy(&mut packed(pieces), &mut io::sink()))?;
    with_pieces(blob, |pieces| entry(tar, &blob.path(), size, packed(pieces)))
}

/// Reads a blob while its pieces are taken.
fn with_pieces<T>(blob: &Blob, take: impl FnOnce(Pieces) -> io::Result<T>) -> Result<T, Problem> {
    let (send, receive) = sync_channel(PIECES);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || blob.read(|piece| send.send(piece).is_ok()));
        let done = take(Pieces { receive, piece: Bytes::new() });
        // The reader says why there are too few bytes.
        match reader.join() {
            Ok(Ok(())) => done.map_err(Problem::Archive),
            Ok(Err(error)) => Err(Problem::Layout(error)),
            Err(_) => Err(Problem::Archive(io::Error::other("the blob was not read"))),
        }
    })
}

/// Adds a file that has exactly this many bytes.
fn entry(
    tar: &mut Builder<impl Write>,
    path: &str,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    tar.append_data(&mut header, path, content)
}

/// Pieces as they come, as one stream.
struct Pieces {
    receive: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receive.recv() {
                Ok(piece) if piece.is_empty() => return Ok(0),
                Ok(piece) => self.piece = piece,
                Err(_) => return Ok(0),
            }
        }
        let length = into.len().min(self.piece.len());
        let piece = self.piece.split_to(length);
        into.get_mut(..length).unwrap_or_default().copy_from_slice(&piece);
        Ok(length)
    }
}
