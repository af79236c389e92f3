//! The tree of one commit, read from an object database. The folders below the synced path are listed at once, and blobs are
//! read on demand.
//!
//! An entry that Git never writes (`..`, `.git`, a name twice, an unknown mode) is listed as [`EntryKind::Odd`] and not
//! followed. What exceeds a budget becomes a [`TreeProblem`]. A missing or unreadable object fails the whole snapshot, so that
//! it is never taken for a missing file.

use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use gix::ObjectId;
use gix::objs::{FindExt, Kind};
use gix::odb::HandleArc;
use gix::odb::pack::cache::lru::MemoryCappedHashmap;

use super::error::{nearest, printable};
use super::file::{FileAt, missing};
use super::generation::Generation;
use super::heavy::PACKS;
use super::listing::{Folder, Found, Listing, list};
use super::objects::{damage, header, tree_bytes};
use super::pack::Bases;
use super::table::Table;
use super::{CommitInfo, GitError, Limits, check};
use crate::definition::tree::{
    EntryKind, RepositoryTree, TreeChanges, TreeEntry, TreeError, TreeProblem,
};

/// Bytes of the largest commit object. Of its message only the first line is used.
pub(super) const MAX_COMMIT_BYTES: u64 = 4 << 20;
/// Bytes of decoded delta bases that are kept while objects are read.
const CACHE_BYTES: usize = 8 << 20;
/// How long a file waits that can be read only with much memory.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Characters of a subject or an author that are kept.
const MAX_SUBJECT_CHARS: usize = 120;

/// The tree of one commit below a path. The generation of the store that it reads from exists until the snapshot is closed.
pub struct Snapshot {
    /// Different for each snapshot of this process.
    number: u64,
    commit: CommitInfo,
    root: ObjectId,
    /// The synced path.
    path: String,
    /// The folders above the synced path.
    above: Vec<Above>,
    /// The folders below the synced path.
    listing: Arc<Folder>,
    /// All entries of the listing, made when they are first asked for.
    entries: OnceLock<Vec<TreeEntry>>,
    problems: Vec<TreeProblem>,
    changes: Option<TreeChanges>,
    file_bytes: u64,
    /// `None` after [`Self::close`], until something is read again.
    open: Mutex<Option<Open>>,
    /// `None` for a local repository.
    generation: Option<Weak<Generation>>,
}

/// What is read from.
struct Open {
    objects: HandleArc,
    /// Keeps the generation. `None` for a local repository.
    generation: Option<Arc<Generation>>,
}

impl Open {
    fn of(generation: Arc<Generation>) -> Result<Self, GitError> {
        let objects = caching(generation.objects()?);
        Ok(Self { objects, generation: Some(generation) })
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("commit", &self.commit.id).finish_non_exhaustive()
    }
}

/// Which tree is read, and how.
pub(super) struct TreeRequest<'a> {
    /// The commit.
    pub commit: ObjectId,
    /// The synced path, checked.
    pub path: &'a str,
    /// The budgets.
    pub limits: Limits,
    /// Ends the reading when it turns true.
    pub interrupt: &'a AtomicBool,
    /// An earlier snapshot with the same limits. Folders that have not changed since are not read again.
    pub before: Option<&'a Snapshot>,
}

impl Snapshot {
    /// Reads a commit from the store. Damage is noted, so that the next fetch starts anew.
    pub(super) fn take(
        generation: Arc<Generation>,
        request: TreeRequest<'_>,
    ) -> Result<Self, GitError> {
        let objects = generation.objects()?;
        match Self::read_from(objects, request) {
            Ok(mut snapshot) => {
                snapshot.generation = Some(Arc::downgrade(&generation));
                if let Some(open) = snapshot.open.get_mut() {
                    open.generation = Some(generation);
                }
                Ok(snapshot)
            }
            Err(error) => {
                if matches!(error, GitError::CorruptData { .. }) {
                    generation.mark_damaged();
                }
                Err(error)
            }
        }
    }

    /// Reads a commit from an object database.
    pub(super) fn read_from(
        objects: HandleArc,
        request: TreeRequest<'_>,
    ) -> Result<Self, GitError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let TreeRequest { commit, path, limits, interrupt, before } = request;
        let objects = caching(objects);
        let (info, root) = read_commit(&objects, &commit)?;
        let (start, above) = descend(&objects, root, path)?;
        let before = before.filter(|before| before.path == path);
        let folder = before.map(|before| &before.listing);
        let Listing { root: listing, problems } =
            list(&objects, (start, path), limits, interrupt, folder)?;
        let changes = before.and_then(|before| {
            let entries = before.listing.changes(&listing)?;
            let elsewhere = before.above != above;
            Some(TreeChanges { since: before.number, entries, elsewhere })
        });
        Ok(Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            commit: info,
            root,
            path: path.to_owned(),
            above,
            listing,
            entries: OnceLock::new(),
            problems,
            changes,
            file_bytes: limits.file_bytes,
            open: Mutex::new(Some(Open { objects, generation: None })),
            generation: None,
        })
    }

    /// Whether it reads from this generation. After a damaged one was replaced, the commit has to be read again.
    pub(super) fn is_of(&self, generation: &Arc<Generation>) -> bool {
        self.generation.as_ref().is_some_and(|own| own.as_ptr() == Arc::as_ptr(generation))
    }

    /// Author, subject and time of the commit.
    #[must_use]
    pub fn commit(&self) -> &CommitInfo {
        &self.commit
    }

    /// Notes the key that signed the commit.
    pub(super) fn signed_by(mut self, signer: Option<String>) -> Self {
        self.commit.signer = signer;
        self
    }

    /// Opens it again. The generation is its own.
    pub(super) fn open(&self, generation: &Arc<Generation>) -> Result<(), GitError> {
        let mut open = self.open.lock();
        if open.is_none() {
            *open = Some(Open::of(Arc::clone(generation))?);
        }
        Ok(())
    }

    /// Closes the files of the store, and drops its caches. A later read opens the files again, if they are still there.
    pub fn close(&self) {
        if self.generation.is_some() {
            *self.open.lock() = None;
        }
    }

    /// The id of the object at `path` in the commit: a folder, file, link or submodule. The same id means the same content.
    /// `None` when there is no object. The path is relative to the root of the repository, not to the synced path.
    ///
    /// # Errors
    /// [`GitError::InvalidPath`], [`GitError::CorruptData`].
    pub fn tree_id(&self, path: &str) -> Result<Option<String>, GitError> {
        let path = check::path(path)?;
        match self.find(&path)? {
            Found::Folder(id) | Found::Entry(_, id) => Ok(Some(id.to_string())),
            Found::Nothing => Ok(None),
        }
    }

    /// Finds what is at a checked path. Below the synced path, the listing in memory knows it.
    fn find(&self, path: &str) -> Result<Found, GitError> {
        let below = match path.strip_prefix(&self.path) {
            Some("") => Some(""),
            Some(rest) if self.path.is_empty() || rest.starts_with('/') => Some(rest),
            _ => None,
        };
        match below.and_then(|rest| self.listing.find(rest)) {
            Some(found) => Ok(found),
            None => self.guarded(|objects| find(objects, self.root, path)),
        }
    }

    /// Uses the object database. Damage is noted in the store, also when it makes gix panic.
    fn guarded<T>(
        &self,
        work: impl FnOnce(&HandleArc) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut open = self.open.lock();
            // A snapshot without a generation is never closed.
            let open = match open.take() {
                Some(known) => open.insert(known),
                None => open.insert(Open::of(self.generation()?)?),
            };
            work(&open.objects)
        }))
        .unwrap_or_else(|_| Err(GitError::corrupt("an object cannot be decoded")));
        if matches!(result, Err(GitError::CorruptData { .. }))
            && let Ok(generation) = self.generation()
        {
            generation.mark_damaged();
        }
        result
    }

    /// The generation that it reads from, while that exists.
    fn generation(&self) -> Result<Arc<Generation>, GitError> {
        let generation = self.generation.as_ref().and_then(Weak::upgrade);
        generation.ok_or_else(|| GitError::corrupt("the store is gone"))
    }
}

impl RepositoryTree for Snapshot {
    fn number(&self) -> Option<u64> {
        Some(self.number)
    }

    fn changes(&self) -> Option<&TreeChanges> {
        self.changes.as_ref()
    }

    fn entries(&self) -> &[TreeEntry] {
        self.entries.get_or_init(|| self.listing.entries())
    }

    fn problems(&self) -> &[TreeProblem] {
        &self.problems
    }

    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        let Ok(clean) = check::path(path) else { return Ok(None) };
        match self.find(&clean) {
            Ok(Found::Entry(kind, id)) => {
                Ok(Some(TreeEntry { path: clean, id: id.to_string(), kind }))
            }
            Ok(Found::Folder(_) | Found::Nothing) => Ok(None),
            Err(error) => Err(unreadable(path, &error)),
        }
    }

    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        if entry.kind != EntryKind::File {
            return Err(TreeError::NotAFile { path: entry.path.clone() });
        }
        let id = check::commit_id(&entry.id).map_err(|error| unreadable(&entry.path, &error))?;
        let limit = max_bytes.min(self.file_bytes);
        let mut content = self.guarded(|objects| blob(objects, &id, limit));
        if matches!(content, Err(GitError::PackTooLarge { .. }))
            && let Ok(generation) = self.generation()
        {
            // It is small, and a delta of something large.
            let start = Instant::now();
            let permit = PACKS.enter(|| start.elapsed() > MAX_WAIT);
            content = self.guarded(|_| blob(&generation.open(permit.as_ref())?, &id, limit));
        }
        match content {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(TreeError::TooLarge { path: entry.path.clone(), limit }),
            Err(error) => Err(unreadable(&entry.path, &error)),
        }
    }
}

/// The content of a file; `None` when it has more bytes than the limit.
fn blob(objects: &HandleArc, id: &ObjectId, limit: u64) -> Result<Option<Arc<[u8]>>, GitError> {
    let header = header(objects, id)?;
    if header.kind != Kind::Blob {
        return Err(GitError::corrupt(format!("{id} is not a blob")));
    }
    if header.size > limit {
        return Ok(None);
    }
    let mut buffer = Vec::new();
    let data = objects.find_blob(id, &mut buffer).map_err(|error| damage(&error))?;
    Ok(Some(Arc::from(data.data)))
}

/// Keeps decoded objects that others are deltas of.
fn caching(mut objects: HandleArc) -> HandleArc {
    objects.set_pack_cache(|| Box::new(MemoryCappedHashmap::new(CACHE_BYTES)));
    objects
}

fn unreadable(path: &str, error: &GitError) -> TreeError {
    TreeError::Unreadable { path: printable(path), reason: error.to_string() }
}

/// Refuses anything but a commit.
pub(super) fn expect_commit(objects: &HandleArc, id: &ObjectId) -> Result<(), GitError> {
    let header = header(objects, id)?;
    if header.kind != Kind::Commit {
        return Err(GitError::NotACommit { id: id.to_string(), kind: header.kind.to_string() });
    }
    if header.size > MAX_COMMIT_BYTES {
        return Err(GitError::PackTooLarge { detail: "the commit's message is too long".into() });
    }
    Ok(())
}

fn read_commit(objects: &HandleArc, id: &ObjectId) -> Result<(CommitInfo, ObjectId), GitError> {
    if !gix::objs::Exists::exists(objects, id) {
        return Err(GitError::CommitGone { commit: id.to_string() });
    }
    expect_commit(objects, id)?;
    let mut buffer = Vec::new();
    let commit = objects.find_commit(id, &mut buffer).map_err(|error| damage(&error))?;
    let author = commit.author().map(|author| author.name.to_string()).unwrap_or_default();
    let time_seconds =
        commit.committer().ok().and_then(|who| who.time().ok()).map_or(0, |t| t.seconds);
    let message = String::from_utf8_lossy(commit.message);
    let subject = message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let info = CommitInfo {
        id: id.to_string(),
        author: short(&author),
        subject: short(subject),
        time_seconds,
        signer: None,
    };
    Ok((info, commit.tree()))
}

fn short(text: &str) -> String {
    printable(text.trim()).chars().take(MAX_SUBJECT_CHARS).collect()
}

/// The ids of what is at some paths of a commit, as [`Snapshot::tree_id`]. A path that no tree may have counts as missing.
pub(super) fn tree_ids(
    objects: HandleArc,
    commit: &ObjectId,
    paths: &[String],
    interrupt: &AtomicBool,
) -> Result<Vec<Option<String>>, GitError> {
    let objects = caching(objects);
    let (_, root) = read_commit(&objects, commit)?;
    let one = |path: &String| {
        if interrupt.load(Ordering::Relaxed) {
            return Err(GitError::Busy);
        }
        let Ok(path) = check::path(path) else { return Ok(None) };
        Ok(match find(&objects, root, &path)? {
            Found::Folder(id) | Found::Entry(_, id) => Some(id.to_string()),
            Found::Nothing => None,
        })
    };
    paths.iter().map(one).collect()
}

/// A file of a commit, as [`Snapshot::file`].
pub(super) fn file(
    objects: HandleArc,
    commit: &ObjectId,
    path: &str,
    max_bytes: u64,
) -> Result<FileAt, GitError> {
    let objects = caching(objects);
    let (_, root) = read_commit(&objects, commit)?;
    let Ok(path) = check::path(path) else { return Ok(Err(missing(path))) };
    Ok(match find(&objects, root, &path)? {
        Found::Entry(EntryKind::File, id) => blob(&objects, &id, max_bytes)?
            .ok_or_else(|| TreeError::TooLarge { path, limit: max_bytes }.to_string()),
        Found::Entry(..) | Found::Folder(_) => Err(TreeError::NotAFile { path }.to_string()),
        Found::Nothing => Err(missing(&path)),
    })
}

/// Finds what is at a checked path. Links are not followed: a link on the way is the result.
fn find(objects: &HandleArc, root: ObjectId, path: &str) -> Result<Found, GitError> {
    let mut at = root;
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let table = table(objects, &at)?;
        let item = table.as_ref().and_then(|table| table.find(part.as_bytes()));
        match item.map(|item| (item.kind(), item.object())) {
            Some((None, id)) => at = id,
            None => return Ok(Found::Nothing),
            Some((Some(EntryKind::File), _)) if parts.peek().is_some() => {
                return Ok(Found::Nothing);
            }
            Some((Some(kind), id)) => return Ok(Found::Entry(kind, id)),
        }
    }
    Ok(Found::Folder(at))
}

/// The entries of a tree; `None` when it is too large or does not parse.
fn table(objects: &HandleArc, id: &ObjectId) -> Result<Option<Table>, GitError> {
    let bytes = tree_bytes(objects, id)?;
    Ok(bytes.and_then(|bytes| Table::parse(bytes, id.kind())))
}

/// A folder above the synced path.
#[derive(PartialEq, Eq)]
struct Above {
    /// The name of the next folder on the way down.
    next: String,
    /// A digest of its other entries. There may be thousands, and each GitSync would keep its own copy of them.
    beside: [u8; 32],
}

/// Walks down to the synced path. Returns the tree there, and the folders above it.
fn descend(
    objects: &HandleArc,
    root: ObjectId,
    path: &str,
) -> Result<(ObjectId, Vec<Above>), GitError> {
    let (mut at, mut above) = (root, Vec::new());
    let missing = |beside: &Option<Table>| {
        let folders = beside.iter().flat_map(Table::items).filter(|item| item.kind().is_none());
        let beside: Vec<_> =
            folders.map(|item| String::from_utf8_lossy(item.name).into_owned()).collect();
        let name = path.rsplit('/').next().unwrap_or(path);
        let nearest = nearest(name, beside.iter().map(String::as_str));
        Err(GitError::PathMissing { path: path.to_owned(), nearest })
    };
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        let table = table(objects, &at)?;
        let item = table.as_ref().and_then(|table| table.find(part.as_bytes()));
        let kind = match item.map(|item| (item.kind(), item.object())) {
            None => return missing(&table),
            Some((None, id)) => {
                at = id;
                let beside = |table: Table| table.digest_beside(part.as_bytes());
                let next = part.to_owned();
                above.extend(table.map(beside).map(|beside| Above { next, beside }));
                continue;
            }
            Some((Some(EntryKind::File), _)) if parts.peek().is_some() => return missing(&None),
            Some((Some(kind), _)) => kind,
        };
        let kind = match kind {
            EntryKind::File => "file",
            EntryKind::Symlink => "symbolic link",
            EntryKind::Submodule => "submodule",
            EntryKind::Odd => "entry of an unknown kind",
        };
        return Err(GitError::PathNotAFolder { path: path.to_owned(), kind });
    }
    Ok((at, above))
}
