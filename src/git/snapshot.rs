//! One commit's tree, read from an object database: a listing below the synced path, blobs on demand.
//!
//! What no honest tree holds (`..`, `.git`, a name twice, a strange mode) is listed as [`EntryKind::Odd`] and not
//! followed. What exceeds a budget becomes a [`TreeProblem`]. A missing or unreadable object fails the
//! whole snapshot, so that nobody mistakes it for an absent file.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gix::ObjectId;
use gix::objs::tree::EntryMode;
use gix::objs::{FindExt, FindHeader, Kind, TreeRefIter};
use gix::odb::HandleArc;
use gix::odb::pack::cache::lru::MemoryCappedHashmap;

use super::error::{nearest, printable};
use super::protocol::cause;
use super::store::Generation;
use super::{GitError, Limits, check};
use crate::definition::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};

/// One tree object (10,000 entries with long names take less than 3 MiB).
const TREE_BYTES: u64 = 8 << 20;
/// One commit object: messages are not read beyond their first line.
const COMMIT_BYTES: u64 = 4 << 20;
/// Decoded delta bases kept while walking and reading.
const CACHE_BYTES: usize = 8 << 20;
const SUBJECT_CHARS: usize = 120;

/// What a status says about a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// 40 or 64 hex digits.
    pub id: String,
    /// Name of the author, without address.
    pub author: String,
    /// First line of the message, at most 120 characters.
    pub subject: String,
    /// When it was committed: seconds since 1970.
    pub time_seconds: i64,
}

/// The tree of one commit below a path. Holds on to its part of the store until it is dropped.
pub struct Snapshot {
    commit: CommitInfo,
    root: ObjectId,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
    file_bytes: u64,
    objects: Mutex<HandleArc>,
    /// Absent for local repositories.
    generation: Option<Arc<Generation>>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("commit", &self.commit.id).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(super) fn take(
        generation: Arc<Generation>,
        commit: ObjectId,
        path: &str,
        limits: Limits,
        interrupt: &AtomicBool,
    ) -> Result<Self, GitError> {
        let result = Self::read_from(generation.objects(), commit, path, limits, interrupt);
        match result {
            Ok(mut snapshot) => {
                snapshot.generation = Some(generation);
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

    pub(super) fn read_from(
        mut objects: HandleArc,
        commit: ObjectId,
        path: &str,
        limits: Limits,
        interrupt: &AtomicBool,
    ) -> Result<Self, GitError> {
        objects.set_pack_cache(|| Box::new(MemoryCappedHashmap::new(CACHE_BYTES)));
        let (info, root) = read_commit(&objects, &commit)?;
        let start = descend(&objects, root, path)?;
        let mut walk = Walk {
            objects: &objects,
            limits,
            interrupt,
            entries: Vec::new(),
            problems: Vec::new(),
            folders: 0,
        };
        walk.run(start, path)?;
        let Walk { mut entries, problems, .. } = walk;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            commit: info,
            root,
            entries,
            problems,
            file_bytes: limits.file_bytes,
            objects: Mutex::new(objects),
            generation: None,
        })
    }

    /// Whether it reads from this part of the store: what replaced a damaged one has to be read anew.
    pub(super) fn is_of(&self, generation: &Arc<Generation>) -> bool {
        self.generation.as_ref().is_some_and(|own| Arc::ptr_eq(own, generation))
    }

    /// Who committed what, and when.
    #[must_use]
    pub fn commit(&self) -> &CommitInfo {
        &self.commit
    }

    /// The id of whatever is at `path` in the commit (folder, file, link, submodule): the same id means the same content.
    /// `None` when there is nothing. The path is relative to the root of the repository, not to the synced path.
    ///
    /// # Errors
    /// [`GitError::InvalidPath`], [`GitError::CorruptData`].
    pub fn tree_id(&self, path: &str) -> Result<Option<String>, GitError> {
        let path = check::path(path)?;
        match self.guarded(|objects| find(objects, self.root, &path))? {
            Found::Folder(id) | Found::Entry(_, id) => Ok(Some(id.to_string())),
            Found::Missing { .. } => Ok(None),
        }
    }

    /// Uses the object database; damage is remembered, also when it shows as a panic inside of gix.
    fn guarded<T>(
        &self,
        work: impl FnOnce(&HandleArc) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
            work(&objects)
        }))
        .unwrap_or_else(|_| Err(GitError::corrupt("an object cannot be decoded")));
        if let (Err(GitError::CorruptData { .. }), Some(generation)) = (&result, &self.generation) {
            generation.mark_damaged();
        }
        result
    }
}

impl RepositoryTree for Snapshot {
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    fn problems(&self) -> &[TreeProblem] {
        &self.problems
    }

    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        let Ok(clean) = check::path(path) else { return Ok(None) };
        match self.guarded(|objects| find(objects, self.root, &clean)) {
            Ok(Found::Entry(kind, id)) => {
                Ok(Some(TreeEntry { path: clean, id: id.to_string(), kind }))
            }
            Ok(Found::Folder(_) | Found::Missing { .. }) => Ok(None),
            Err(error) => Err(unreadable(path, &error)),
        }
    }

    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        if entry.kind != EntryKind::File {
            return Err(TreeError::NotAFile { path: entry.path.clone() });
        }
        let id = check::commit_id(&entry.id).map_err(|error| unreadable(&entry.path, &error))?;
        let limit = max_bytes.min(self.file_bytes);
        let content = self.guarded(|objects| {
            let header = header(objects, &id)?;
            if header.kind != Kind::Blob {
                return Err(GitError::corrupt(format!("{id} is not a blob")));
            }
            if header.size > limit {
                return Ok(None);
            }
            let mut buffer = Vec::new();
            let data = objects.find_blob(&id, &mut buffer).map_err(|error| damage(&error))?;
            Ok(Some(Arc::from(data.data)))
        });
        match content {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(TreeError::TooLarge { path: entry.path.clone(), limit }),
            Err(error) => Err(unreadable(&entry.path, &error)),
        }
    }
}

fn unreadable(path: &str, error: &GitError) -> TreeError {
    TreeError::Unreadable { path: printable(path), reason: error.to_string() }
}

/// An object that must be there.
fn damage(error: &gix::Error) -> GitError {
    GitError::corrupt(cause(error))
}

fn header(objects: &HandleArc, id: &ObjectId) -> Result<gix::objs::Header, GitError> {
    FindHeader::try_header(objects, id)
        .map_err(|error| damage(&error))?
        .ok_or_else(|| GitError::corrupt(format!("object {id} is missing")))
}

/// Refuses anything but a commit.
pub(super) fn expect_commit(objects: &HandleArc, id: &ObjectId) -> Result<(), GitError> {
    let header = header(objects, id)?;
    if header.kind != Kind::Commit {
        return Err(GitError::NotACommit { id: id.to_string(), kind: header.kind.to_string() });
    }
    if header.size > COMMIT_BYTES {
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
    };
    Ok((info, commit.tree()))
}

fn short(text: &str) -> String {
    printable(text.trim()).chars().take(SUBJECT_CHARS).collect()
}

/// The bytes of a tree, or `None` when it is too large to be one of ours.
fn tree_bytes(objects: &HandleArc, id: &ObjectId, buffer: &mut Vec<u8>) -> Result<bool, GitError> {
    if *id == ObjectId::empty_tree(id.kind()) {
        buffer.clear();
        return Ok(true);
    }
    let header = header(objects, id)?;
    if header.kind != Kind::Tree {
        return Err(GitError::corrupt(format!("{id} is a {}, not a tree", header.kind)));
    }
    if header.size > TREE_BYTES {
        return Ok(false);
    }
    objects.find_tree_iter(id, buffer).map_err(|error| damage(&error))?;
    Ok(true)
}

/// One entry of one tree, judged.
struct Item<'a> {
    name: &'a [u8],
    id: ObjectId,
    /// `None` for a folder.
    kind: Option<EntryKind>,
}

/// The entries of a tree. `None` when it does not parse: its id is right, so the author made it so.
fn items(bytes: &[u8], hash: gix::hash::Kind) -> Option<Vec<Item<'_>>> {
    let mut found = Vec::new();
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    for entry in TreeRefIter::from_bytes(bytes, hash) {
        let entry = entry.ok()?;
        let name: &[u8] = entry.filename;
        let mut kind = kind_of(entry.mode);
        if check::name_problem(name).is_some() {
            kind = Some(EntryKind::Odd);
        }
        if let Some(twin) = seen.insert(name, found.len()) {
            // Git would see one of them, another program the other.
            let earlier: &mut Item<'_> = &mut found[twin];
            earlier.kind = Some(EntryKind::Odd);
            kind = Some(EntryKind::Odd);
        }
        found.push(Item { name, id: entry.oid.to_owned(), kind });
    }
    Some(found)
}

/// The name itself when it is harmless, otherwise something that can be printed.
fn shown_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if check::name_problem(name).is_none() => text.to_owned(),
        _ => printable(&String::from_utf8_lossy(name)),
    }
}

/// `None` for a folder.
fn kind_of(mode: EntryMode) -> Option<EntryKind> {
    match mode.value() {
        0o40000 => None,
        // 100664 was written by early versions of Git.
        0o100_644 | 0o100_755 | 0o100_664 => Some(EntryKind::File),
        0o120_000 => Some(EntryKind::Symlink),
        0o160_000 => Some(EntryKind::Submodule),
        _ => Some(EntryKind::Odd),
    }
}

/// What is at a path.
enum Found {
    Folder(ObjectId),
    Entry(EntryKind, ObjectId),
    Missing {
        /// Folders beside the first missing part.
        beside: Vec<String>,
    },
}

/// Looks a checked path up. Never passes through anything but folders; a link on the way is the answer itself.
fn find(objects: &HandleArc, root: ObjectId, path: &str) -> Result<Found, GitError> {
    let mut at = root;
    let mut buffer = Vec::new();
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    while let Some(part) = parts.next() {
        if !tree_bytes(objects, &at, &mut buffer)? {
            return Ok(Found::Missing { beside: Vec::new() });
        }
        let items = items(&buffer, root.kind()).unwrap_or_default();
        let Some(item) = items.iter().find(|item| item.name == part.as_bytes()) else {
            let folders = items.iter().filter(|item| item.kind.is_none());
            let beside =
                folders.map(|item| String::from_utf8_lossy(item.name).into_owned()).collect();
            return Ok(Found::Missing { beside });
        };
        match item.kind {
            None => at = item.id,
            Some(EntryKind::File) if parts.peek().is_some() => {
                return Ok(Found::Missing { beside: Vec::new() });
            }
            Some(kind) => return Ok(Found::Entry(kind, item.id)),
        }
    }
    Ok(Found::Folder(at))
}

/// The tree at the synced path.
fn descend(objects: &HandleArc, root: ObjectId, path: &str) -> Result<ObjectId, GitError> {
    match find(objects, root, path)? {
        Found::Folder(id) => Ok(id),
        Found::Entry(kind, _) => {
            let kind = match kind {
                EntryKind::File => "file",
                EntryKind::Symlink => "symbolic link",
                EntryKind::Submodule => "submodule",
                EntryKind::Odd => "entry of an unknown kind",
            };
            Err(GitError::PathNotAFolder { path: path.to_owned(), kind })
        }
        Found::Missing { beside } => {
            let name = path.rsplit('/').next().unwrap_or(path);
            let nearest = nearest(name, beside.iter().map(String::as_str));
            Err(GitError::PathMissing { path: path.to_owned(), nearest })
        }
    }
}

/// Lists a tree within budgets.
struct Walk<'a> {
    objects: &'a HandleArc,
    limits: Limits,
    interrupt: &'a AtomicBool,
    entries: Vec<TreeEntry>,
    problems: Vec<TreeProblem>,
    folders: usize,
}

impl Walk<'_> {
    fn run(&mut self, start: ObjectId, path: &str) -> Result<(), GitError> {
        // A stack of its own: depth is the author's choice.
        let mut open = vec![(start, path.to_owned(), 0)];
        let mut buffer = Vec::new();
        while let Some((id, at, depth)) = open.pop() {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(GitError::corrupt("reading was cut off"));
            }
            if !tree_bytes(self.objects, &id, &mut buffer)? {
                self.leave_out(&at, "the folder has too many entries".into(), "split it");
                continue;
            }
            let Some(items) = items(&buffer, id.kind()) else {
                self.leave_out(
                    &at,
                    "the folder cannot be decoded".into(),
                    "rewrite the commit that made it",
                );
                continue;
            };
            for item in items {
                let name = shown_name(item.name);
                let below = if at.is_empty() { name } else { format!("{at}/{name}") };
                match item.kind {
                    Some(_) if self.entries.len() >= self.limits.files => {
                        self.too_many(path, "files");
                        return Ok(());
                    }
                    Some(kind) => {
                        self.entries.push(TreeEntry { path: below, id: item.id.to_string(), kind });
                    }
                    None if depth >= self.limits.depth => {
                        let message = format!(
                            "folders are nested deeper than {} levels; it is not read",
                            self.limits.depth
                        );
                        self.leave_out(&below, message, "move it up");
                    }
                    None => {
                        // Counted apart: folders that hold only folders can be many with few objects.
                        self.folders += 1;
                        if self.folders > self.limits.files {
                            self.too_many(path, "folders");
                            return Ok(());
                        }
                        open.push((item.id, below, depth + 1));
                    }
                }
            }
        }
        Ok(())
    }

    fn too_many(&mut self, path: &str, what: &str) {
        let most = self.limits.files;
        let message = format!("there are more than {most} {what}; the rest is not read");
        let hint = "sync a smaller folder, or raise the operator's --git-max-files";
        self.leave_out(path, message, hint);
    }

    fn leave_out(&mut self, path: &str, message: String, hint: &str) {
        let path = if path.is_empty() { "." } else { path }.to_owned();
        self.problems.push(TreeProblem { path, message, hint: Some(hint.to_owned()) });
    }
}
