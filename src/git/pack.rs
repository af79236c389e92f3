//! Takes in the pack of a fetch: writes it into a file, completes it with objects that the server left out because we have them, and
//! writes its index.
//!
//! What a pack takes is bounded before it is taken:
//! ```text
//! receive ─► the bytes of the server, into a file               a few KiB of memory
//! index   ─► its entries are read, and completed                one entry at a time, and 100 bytes for each
//!         ─► the memory for its deltas is reckoned (weight)     more than allowed: PackTooLarge
//!         ─► the deltas are put together, for the ids           what was reckoned, by one thread
//! ```
//! A large pack, or one that needs much memory, waits until no other one is indexed ([`Turn`]).

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gix::hash::Kind;
use gix::objs::{Data, Find};
use gix::odb::HandleArc;
use gix::odb::pack::data::entry::Header;
use gix::odb::pack::data::input::{
    BytesToEntriesIter, EntriesToBytesIter, Entry, EntryDataMode, LookupRefDeltaObjectsIter, Mode,
};
use gix::odb::pack::{data, index};
use gix::progress::Discard;
use gix::zlib::{Compression, Inflate};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::protocol::{cause, of_io};
use super::weight::{Weight, size_of_result};
use super::wire::Bounds;
use super::{GitError, Limits};

/// A pack with more bytes is large.
const LARGE_PACK: u64 = 1 << 20;
/// Deltas that need more bytes of memory are large.
const LARGE_DELTAS: u64 = 8 << 20;
/// The file with what the server sends.
const RECEIVED: &str = "received";
/// The pack that is being completed.
const DRAFT: &str = "draft";

/// Writes what the server sends into a file of the folder.
pub(super) fn receive(from: &mut dyn Read, folder: &Path, stop: &AtomicBool) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(folder.join(RECEIVED))?);
    let mut buffer = [0; 16 << 10];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return file.flush(),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        file.write_all(buffer.get(..count).unwrap_or_default())?;
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// What a received pack is indexed with.
pub(super) struct Indexing<'a> {
    /// The folder that [`receive`] wrote into. The pack and its index are put there.
    pub folder: &'a Path,
    /// The hash of the repository's ids.
    pub kind: Kind,
    /// Objects that we have, and that deltas of the pack may be made of.
    pub base: Option<&'a dyn Bases>,
    pub limits: Limits,
    pub bounds: &'a Bounds,
    pub stop: &'a AtomicBool,
}

/// The objects that we have.
pub(super) trait Bases {
    /// Those that take little memory; and all within the limit for one object, however they are stored.
    fn open(&self, is_large: bool) -> Result<HandleArc, GitError>;
}

/// The turn to index something large. One at a time has it.
struct Turn<'a> {
    held: RefCell<Option<MutexGuard<'static, ()>>>,
    indexing: &'a Indexing<'a>,
}

impl Turn<'_> {
    /// Waits for it, if we do not have it.
    fn take(&self) -> Result<(), GitError> {
        static LARGE: Mutex<()> = Mutex::new(());
        let Indexing { bounds, stop, .. } = self.indexing;
        let mut held = self.held.borrow_mut();
        while held.is_none() {
            let left = bounds.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                return Err(bounds.timed_out());
            }
            *held = LARGE.try_lock_for(left.min(Duration::from_millis(100)));
        }
        Ok(())
    }
}

/// The first error that is ours. gix's own errors keep less of it.
#[derive(Clone, Default)]
struct Fault(Rc<RefCell<Option<GitError>>>);

impl Fault {
    fn keep(&self, error: GitError) -> gix::Error {
        let told = error.to_string();
        self.0.borrow_mut().get_or_insert(error);
        gix::Error::from_error(io::Error::other(told))
    }
}

/// Indexes a received pack: `pack-*.pack` and `pack-*.idx` are in the folder then.
///
/// # Errors
/// [`GitError::PackTooLarge`], [`GitError::CorruptData`], [`GitError::StorageFailed`], [`GitError::Timeout`].
pub(super) fn index(indexing: &Indexing<'_>) -> Result<(), GitError> {
    let fault = Fault::default();
    // gix trusts some of what it reads.
    let work = AssertUnwindSafe(|| write(indexing, &fault));
    let done = catch_unwind(work)
        .map_err(|_| GitError::corrupt("the pack that the server sent makes no sense"))?;
    done.map_err(|error| match fault.0.take() {
        Some(fault) => fault,
        None => explain(&error, indexing),
    })
}

/// The error for a pack that cannot be indexed.
fn explain(error: &gix::Error, Indexing { limits, bounds, stop, .. }: &Indexing<'_>) -> GitError {
    if stop.load(Ordering::Relaxed) || error.is_cancelled() {
        return bounds.timed_out();
    }
    if let Some(error) = of_io(error) {
        return error;
    }
    if error.is_resource_exhausted() {
        return GitError::PackTooLarge {
            detail: format!(
                "an object in it needs more memory than allowed (pack budget: {} bytes)",
                limits.pack_bytes
            ),
        };
    }
    GitError::corrupt(cause(error))
}

fn write(indexing: &Indexing<'_>, fault: &Fault) -> gix::Result<()> {
    let Indexing { folder, kind, base, limits, stop, .. } = *indexing;
    let failed = |what: &'static str| {
        let fault = fault.clone();
        move |error: io::Error| fault.keep(GitError::storage(what, &error))
    };
    let (received, draft) = (folder.join(RECEIVED), folder.join(DRAFT));
    let file = File::open(&received).map_err(failed("read the pack"))?;
    let turn = Turn { held: RefCell::default(), indexing };
    let bytes = file.metadata().map_err(failed("read the pack"))?.len();
    if bytes > LARGE_PACK {
        turn.take().map_err(|error| fault.keep(error))?;
    }
    let mode = EntryDataMode::KeepAndCrc32;
    let reader = BufReader::with_capacity(
        64 << 10,
        gix::utils::interrupt::Read { inner: file, should_interrupt: stop },
    );
    let entries = BytesToEntriesIter::new_from_header(reader, Mode::Verify, mode, kind)?;
    let version = entries.version();
    let lookup = Lookup { base, turn: &turn, fault, open: RefCell::default() };
    let entries = LookupRefDeltaObjectsIter::new(entries, lookup, Compression::BEST_SPEED);
    let output = Output(BufWriter::with_capacity(
        64 << 10,
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&draft)
            .map_err(failed("write the pack"))?,
    ));
    let weight = Rc::new(RefCell::new(Weight::default()));
    let mut inflate = Inflate::default();
    let entries = EntriesToBytesIter::new(entries, output, version, kind);
    let mut entries = entries.inspect(|entry| {
        if let Ok(entry) = entry {
            weigh(entry, &mut weight.borrow_mut(), &mut inflate);
        }
    });
    let weigh_all = || {
        let needed = weight.take().bytes();
        let allowed = limits.index_bytes();
        if needed > allowed {
            let detail = format!(
                "it takes {needed} bytes of memory at the same time to put its objects together, and {allowed} are allowed"
            );
            return Err(GitError::PackTooLarge { detail });
        }
        if needed > LARGE_DELTAS { turn.take() } else { Ok(()) }
    };
    let resolver = || {
        weigh_all().map_err(|error| io::Error::other(fault.keep(error).to_string()))?;
        let pack = data::File::at(&draft, kind).map_err(|error| io::Error::other(cause(&error)))?;
        Ok((bytes_of, pack))
    };
    let index_file = folder.join("draft.index");
    let mut out = BufWriter::new(File::create(&index_file).map_err(failed("write the index"))?);
    let written = index::write_data_iter_to_stream(
        index::Version::default(),
        resolver,
        &mut entries,
        // The memory is reckoned for one thread.
        Some(1),
        &mut Discard,
        &mut out,
        stop,
        kind,
        Some(limits.object_bytes()),
        version,
    )?;
    drop(entries);
    if written.num_objects == 0 {
        return Err(fault.keep(GitError::corrupt("the server sent an empty pack")));
    }
    let name = format!("pack-{}", written.data_hash);
    let finish = || {
        out.into_inner()?;
        std::fs::remove_file(&received)?;
        std::fs::rename(&draft, folder.join(format!("{name}.pack")))?;
        std::fs::rename(&index_file, folder.join(format!("{name}.idx")))
    };
    finish().map_err(failed("write the pack"))
}

fn bytes_of(range: data::EntryRange, pack: &data::File) -> Option<&[u8]> {
    pack.entry_slice(range)
}

/// Adds an entry. A delta has its size among its first instructions.
fn weigh(entry: &Entry, weight: &mut Weight, inflate: &mut Inflate) {
    let Entry { header, pack_offset, decompressed_size, compressed, .. } = entry;
    let base = match header {
        Header::Tree | Header::Blob | Header::Commit | Header::Tag => {
            return weight.whole(*pack_offset, *decompressed_size);
        }
        Header::OfsDelta { base_distance } => pack_offset.checked_sub(*base_distance),
        Header::RefDelta { .. } => None,
    };
    // Two numbers of at most ten bytes. What cannot be read here is an error, too, when the deltas are put together.
    let mut start = [0; 20];
    inflate.reset();
    let read = inflate.prefix(compressed.as_deref().unwrap_or_default(), &mut start);
    let count = read.map_or(0, |(_, _, count)| count);
    let size = start.get(..count).and_then(size_of_result).unwrap_or(0);
    weight.delta(*pack_offset, base, (*decompressed_size, size));
}

/// Finds objects that we have. One that takes much memory waits for the turn.
struct Lookup<'a> {
    base: Option<&'a dyn Bases>,
    turn: &'a Turn<'a>,
    fault: &'a Fault,
    /// The handles, once they were needed.
    open: RefCell<[Option<HandleArc>; 2]>,
}

impl Lookup<'_> {
    fn copy(
        &self,
        id: &gix::oid,
        buffer: &mut Vec<u8>,
        is_large: bool,
    ) -> gix::Result<Option<Found>> {
        let Some(base) = self.base else { return Ok(None) };
        let mut open = self.open.borrow_mut();
        let slot = &mut open[usize::from(is_large)];
        let handle = match slot {
            Some(handle) => handle,
            None => slot.insert(base.open(is_large).map_err(|error| self.fault.keep(error))?),
        };
        let mut own = Vec::new();
        let Some(found) = handle.try_find(id, &mut own)? else { return Ok(None) };
        buffer.clear();
        buffer.extend_from_slice(found.data);
        Ok(Some(Found { kind: found.kind, hash: found.object_hash }))
    }
}

struct Found {
    kind: gix::objs::Kind,
    hash: Kind,
}

impl Find for Lookup<'_> {
    fn try_find<'a>(
        &self,
        id: &gix::oid,
        buffer: &'a mut Vec<u8>,
    ) -> gix::Result<Option<Data<'a>>> {
        let found = match self.copy(id, buffer, false) {
            Err(error) if error.is_resource_exhausted() => {
                self.turn.take().map_err(|error| self.fault.keep(error))?;
                self.copy(id, buffer, true)
            }
            other => other,
        };
        let data = |Found { kind, hash }| Data { kind, object_hash: hash, data: buffer };
        Ok(found?.map(data))
    }
}

/// A file that is written, and read from its beginning at the end.
struct Output(BufWriter<File>);

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.flush()?;
        self.0.get_mut().read(buffer)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}
