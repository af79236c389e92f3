//! Takes in the pack of a fetch: writes it into a file, completes it with objects that the server left out because we have them, and
//! writes its index.
//!
//! ```text
//! receive ─► the bytes of the server, into a file               a few KiB of memory
//! index   ─► its entries are read and completed, into another   one entry at a time, and 200 bytes for each
//!         ─► the deltas are put together, for the ids           what the ledger says (weight); more than allowed: PackTooLarge
//! ```
//! A large pack, and one whose objects need much memory, waits until no other one is indexed (heavy).

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::hash::Kind;
use gix::objs::{Data, Find, FindHeader};
use gix::odb::HandleArc;
use gix::odb::pack::data::entry::Header;
use gix::odb::pack::data::input::{
    BytesToEntriesIter, EntriesToBytesIter, Entry, EntryDataMode, LookupRefDeltaObjectsIter, Mode,
};
use gix::odb::pack::data::{EntryRange, File as Pack};
use gix::odb::pack::index;
use gix::progress::Discard;
use gix::zlib::{Compression, Inflate};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::heavy::{PACKS, Permit};
use super::protocol::{cause, of_io};
use super::weight::{Ledger, Made, size_of_result};
use super::wire::Bounds;
use super::{GitError, Limits};

/// A pack with more bytes is large.
const LARGE_PACK: u64 = 1 << 20;
/// Objects that need more bytes of memory at the same time are large.
const LARGE_OBJECTS: u64 = 8 << 20;
/// An object that we have is large with more bytes.
const LARGE_BASE: u64 = 2 << 20;
/// Bytes of the header of a pack: the offset of its first entry.
const HEADER: u64 = 12;
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
    /// Those that take little memory; or, with a permit, larger ones.
    fn open(&self, permit: Option<&Permit>) -> Result<HandleArc, GitError>;
}

/// What the parts of the work share.
struct Shared<'a> {
    bounds: &'a Bounds,
    stop: &'a AtomicBool,
    permit: Mutex<Option<Permit>>,
    /// The first error that is ours. gix's own errors keep less of it.
    fault: Mutex<Option<GitError>>,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        let is_late = self.bounds.deadline <= Instant::now();
        is_late || self.stop.load(Ordering::Relaxed) || *self.bounds.stop.borrow()
    }

    fn check_time(&self) -> Result<(), gix::Error> {
        if self.is_over() { Err(self.keep(self.bounds.timed_out())) } else { Ok(()) }
    }

    /// Gets the permit for work that needs much memory, if we do not have it.
    fn permit(&self) -> Result<(), gix::Error> {
        let mut permit = self.permit.lock();
        if permit.is_none() {
            *permit = PACKS.enter(|| self.is_over());
        }
        let got = permit.is_some();
        drop(permit);
        if got { Ok(()) } else { Err(self.keep(self.bounds.timed_out())) }
    }

    fn keep(&self, error: GitError) -> gix::Error {
        let told = error.to_string();
        self.fault.lock().get_or_insert(error);
        gix::Error::from_error(io::Error::other(told))
    }

    fn storage(&self, what: &'static str) -> impl Fn(io::Error) -> gix::Error {
        move |error| self.keep(GitError::storage(what, &error))
    }
}

/// Indexes a received pack: `pack-*.pack` and `pack-*.idx` are in the folder then.
///
/// # Errors
/// [`GitError::PackTooLarge`], [`GitError::CorruptData`], [`GitError::StorageFailed`], [`GitError::Timeout`].
pub(super) fn index(indexing: &Indexing<'_>) -> Result<(), GitError> {
    let Indexing { bounds, stop, .. } = *indexing;
    let (permit, fault) = Default::default();
    let shared = Shared { bounds, stop, permit, fault };
    // gix trusts some of what it reads.
    let done = catch_unwind(AssertUnwindSafe(|| write(indexing, &shared)))
        .map_err(|_| GitError::corrupt("the pack that the server sent makes no sense"))?;
    let fault = shared.fault.lock().take();
    done.map_err(|error| fault.unwrap_or_else(|| explain(&error, indexing)))
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

fn write(indexing: &Indexing<'_>, shared: &Shared<'_>) -> gix::Result<()> {
    let Indexing { folder, kind, limits, stop, .. } = *indexing;
    let (received, draft) = (folder.join(RECEIVED), folder.join(DRAFT));
    let file = File::open(&received).map_err(shared.storage("read the pack"))?;
    let bytes = file.metadata().map_err(shared.storage("read the pack"))?.len();
    if bytes > LARGE_PACK {
        shared.permit()?;
    }
    let lookup =
        RefCell::new(Lookup { indexing, shared, open: [None, None], largest: 0, inserted: 0 });
    let (written, index_file) = {
        let reader = gix::utils::interrupt::Read { inner: file, should_interrupt: stop };
        let reader = BufReader::with_capacity(64 << 10, reader);
        let mode = EntryDataMode::KeepAndCrc32;
        let entries = BytesToEntriesIter::new_from_header(reader, Mode::Verify, mode, kind)?;
        let version = entries.version();
        let entries =
            LookupRefDeltaObjectsIter::new(entries, Found(&lookup), Compression::BEST_SPEED);
        let output = File::options().read(true).write(true).create_new(true).open(&draft);
        let output = output.map_err(shared.storage("write the pack"))?;
        let output = Output(BufWriter::with_capacity(64 << 10, output));
        let entries = EntriesToBytesIter::new(entries, output, version, kind);
        let ledger = Mutex::new(Account::new(limits.index_bytes()));
        let mut entries = entries.map(|entry| {
            shared.check_time()?;
            let entry = entry?;
            ledger.lock().add(&entry).map_err(|error| shared.keep(error))?;
            Ok(entry)
        });
        let resolver = || {
            ledger.lock().fixed = lookup.borrow().largest;
            let pack = Pack::at(&draft, kind);
            let pack = pack.map_err(|error| io::Error::other(cause(&error)))?;
            let bytes = bytes_of(|range: EntryRange, pack: &Pack| {
                let needed =
                    ledger.lock().make(range.start).map_err(|error| shared.keep(error)).ok()?;
                if needed > LARGE_OBJECTS {
                    shared.permit().ok()?;
                }
                pack.entry_slice(range)
            });
            Ok((bytes, pack))
        };
        let index_file = folder.join("draft.index");
        let out = File::create(&index_file).map_err(shared.storage("write the index"))?;
        let mut out = BufWriter::new(out);
        let written = index::write_data_iter_to_stream(
            index::Version::default(),
            resolver,
            &mut entries,
            // The ledger is that of one thread.
            Some(1),
            &mut Discard,
            &mut out,
            stop,
            kind,
            Some(limits.object_bytes()),
            version,
        )?;
        out.flush().map_err(shared.storage("write the index"))?;
        (written, index_file)
    };
    if written.num_objects == 0 {
        return Err(shared.keep(GitError::corrupt("the server sent an empty pack")));
    }
    let name = format!("pack-{}", written.data_hash);
    let finish = || {
        std::fs::remove_file(&received)?;
        std::fs::rename(&draft, folder.join(format!("{name}.pack")))?;
        std::fs::rename(&index_file, folder.join(format!("{name}.idx")))
    };
    finish().map_err(shared.storage("write the pack"))
}

/// A function for gix-pack: where its bytes come from.
fn bytes_of<F: for<'r> Fn(EntryRange, &'r Pack) -> Option<&'r [u8]>>(find: F) -> F {
    find
}

/// The ledger of a pack, and what is allowed.
struct Account {
    ledger: Ledger,
    /// Where the next entry is in the file.
    next: u64,
    inflate: Inflate,
    allowed: u64,
    /// Bytes that are kept besides.
    fixed: u64,
}

impl Account {
    fn new(allowed: u64) -> Self {
        let (ledger, inflate) = Default::default();
        Self { ledger, next: HEADER, inflate, allowed, fixed: 0 }
    }

    /// Adds an entry. A delta has the size of its object among its first instructions.
    fn add(&mut self, entry: &Entry) -> Result<(), GitError> {
        let Entry { header, pack_offset, decompressed_size, compressed, .. } = entry;
        let compressed = compressed.as_deref().unwrap_or_default();
        // Offsets are those of the entries that were read. An entry whose header is longer than it has to be is written shorter, and everything
        // after it would be read from another place.
        if *pack_offset != self.next
            || usize::from(entry.header_size) != header.size(*decompressed_size)
        {
            return Err(GitError::corrupt(
                "an entry of the pack has a header that git does not write",
            ));
        }
        self.next += entry.bytes_in_pack();
        let made = match header {
            Header::Tree | Header::Blob | Header::Commit | Header::Tag => Made::Whole,
            Header::OfsDelta { base_distance } => {
                Made::Of(pack_offset.saturating_sub(*base_distance))
            }
            Header::RefDelta { base_id } => Made::OfId(*base_id),
        };
        let bytes = if made == Made::Whole {
            (0, *decompressed_size)
        } else {
            // Two numbers of at most ten bytes. What cannot be read here cannot be read later either.
            let mut start = [0; 20];
            self.inflate.reset();
            let read = self.inflate.prefix(compressed, &mut start);
            let count = read.map_or(0, |(_, _, count)| count);
            let size = start.get(..count).and_then(size_of_result);
            let size = size.ok_or_else(|| GitError::corrupt("a delta of the pack has no size"))?;
            (*decompressed_size, size)
        };
        let known = self.ledger.add(*pack_offset, made, bytes);
        if known { Ok(()) } else { Err(GitError::corrupt("a delta of the pack has no base")) }
    }

    /// Checks the memory before an object is made. Returns what is needed.
    fn make(&mut self, offset: u64) -> Result<u64, GitError> {
        let needed = self.ledger.make(offset);
        let needed = needed.ok_or_else(|| GitError::corrupt("a delta of the pack has no base"))?;
        let (needed, allowed) = (needed.saturating_add(self.fixed), self.allowed);
        if needed > allowed {
            let detail = format!(
                "its objects need more memory at the same time than the {allowed} bytes that are allowed"
            );
            return Err(GitError::PackTooLarge { detail });
        }
        Ok(needed)
    }
}

/// Finds objects that we have, and that deltas of the pack are made of.
struct Lookup<'a> {
    indexing: &'a Indexing<'a>,
    shared: &'a Shared<'a>,
    /// The handles, once they were needed: for small ones, and for large ones.
    open: [Option<HandleArc>; 2],
    /// Bytes of the largest one. gix-pack keeps its buffer.
    largest: u64,
    /// Bytes of all of them.
    inserted: u64,
}

impl Lookup<'_> {
    fn handle(&mut self, base: &dyn Bases, is_large: bool) -> Result<&HandleArc, gix::Error> {
        let slot = &mut self.open[usize::from(is_large)];
        if slot.is_none() {
            let permit = self.shared.permit.lock();
            let open = base.open(permit.as_ref().filter(|_| is_large));
            *slot = Some(open.map_err(|error| self.shared.keep(error))?);
        }
        slot.as_ref().ok_or_else(|| self.shared.keep(GitError::Busy))
    }

    /// Puts an object into the buffer.
    fn copy(
        &mut self,
        id: &gix::oid,
        buffer: &mut Vec<u8>,
    ) -> gix::Result<Option<(gix::objs::Kind, Kind)>> {
        let Some(base) = self.indexing.base else { return Ok(None) };
        self.shared.check_time()?;
        let Some(header) = self.handle(base, false)?.try_header(id)? else { return Ok(None) };
        self.largest = self.largest.max(header.size);
        self.inserted = self.inserted.saturating_add(header.size);
        let Limits { pack_bytes, .. } = self.indexing.limits;
        if header.size > pack_bytes || self.inserted > self.indexing.limits.store_bytes() {
            let detail = "the objects that it builds on are too large".to_owned();
            return Err(self.shared.keep(GitError::PackTooLarge { detail }));
        }
        let mut own = Vec::new();
        if header.size > LARGE_BASE {
            self.shared.permit()?;
        }
        let found = match self.handle(base, false)?.try_find(id, &mut own) {
            Err(error) if error.is_resource_exhausted() => {
                self.shared.permit()?;
                self.handle(base, true)?.try_find(id, &mut own)?
            }
            other => other?,
        };
        buffer.clear();
        Ok(found.map(|found| {
            buffer.extend_from_slice(found.data);
            (found.kind, found.object_hash)
        }))
    }
}

/// The same for gix-pack.
struct Found<'a, 'b>(&'a RefCell<Lookup<'b>>);

impl Find for Found<'_, '_> {
    fn try_find<'a>(
        &self,
        id: &gix::oid,
        buffer: &'a mut Vec<u8>,
    ) -> gix::Result<Option<Data<'a>>> {
        let found = self.0.borrow_mut().copy(id, buffer)?;
        Ok(found.map(|(kind, object_hash)| Data { kind, object_hash, data: buffer }))
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "tests/pack.rs"]
mod tests;
