//! What all GitSyncs of one repository share: the connections, the lists of refs, and the store of fetched objects.
//!
//! ```text
//! <folder>/key                  a random key
//! <folder>/<HMAC, 64 digits>/   the store of one repository
//! ```
//! Two GitSyncs share a repository if they have the same URL and the same credentials, authorities, host keys and proxy, whatever their
//! namespaces are: the name of the store is an HMAC of all that. Whoever changes one of these starts anew, so nobody reads what was fetched
//! with rights that they do not have.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::check::Target;
use super::disk::{Disk, bytes_in};
use super::fetching::Fetched;
use super::flights::Flights;
use super::followers::{Follower, Wake};
use super::looks::{Look, Looks};
use super::refs::is_moved_by;
use super::store::Store;
use super::{GitError, Limits};
use crate::net::Client;
use gix::ObjectId;

/// The file with the key of the HMAC.
const KEY: &str = "key";
/// Bytes of that key.
const KEY_BYTES: usize = 32;
/// How the folder of a store is named while it is deleted.
const DELETED: &str = "deleted-";
/// How long after a look the first of the others is woken, so that whoever looked comes first, and how much later each of them is.
const FIRST_WAKE: Duration = Duration::from_millis(100);
const NEXT_WAKE: Duration = Duration::from_millis(5);
/// How long everybody looks for the own target only.
const TIME_ALONE: Duration = Duration::from_secs(10 * 60);
/// How many targets one look asks for.
const MAX_TARGETS: usize = 1000;

/// The repositories that are in use. A clone is the same.
#[derive(Clone)]
pub struct Repositories(Arc<Registry>);

impl fmt::Debug for Repositories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Repositories").field(&self.0.folder).finish()
    }
}

struct Registry {
    folder: PathBuf,
    key: hmac::Key,
    open: Mutex<HashMap<String, Entry>>,
    /// The stores that were there at the start. For some time others may need them who have not asked for them yet.
    earlier: Mutex<HashSet<String>>,
    /// Which repository each owner of a remote uses.
    used_by: Mutex<HashMap<String, Weak<Repository>>>,
    disk: Disk,
    since: Instant,
}

#[derive(Default)]
struct Entry {
    repository: Weak<Repository>,
    used: Option<Instant>,
}

impl Repositories {
    /// Keeps the stores in this folder. Without a key in it, a new one is made. When they have more bytes together than `max_bytes`, the
    /// largest ones go that nobody reads at the moment; the commits are fetched anew when they are needed.
    ///
    /// # Errors
    /// When there are no random numbers, or the folder cannot be used.
    pub fn new(folder: PathBuf, max_bytes: u64) -> io::Result<Self> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key_in(&folder)?);
        let entries = fs::read_dir(&folder)?.flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
        let ids = names.filter(|name| is_id(name));
        let sizes: HashMap<_, _> = ids.map(|id| (id.clone(), bytes_in(&folder.join(id)))).collect();
        let earlier = Mutex::new(sizes.keys().cloned().collect());
        let (disk, open, since) = (Disk::new(max_bytes, sizes), Mutex::default(), Instant::now());
        let used_by = Mutex::default();
        Ok(Self(Arc::new(Registry { folder, key, open, earlier, used_by, disk, since })))
    }

    /// The repository of a URL and credentials, given by a digest. `client` makes the HTTP client of a new one, if it needs one.
    pub(super) fn open(
        &self,
        (url, credentials): (&str, &[u8]),
        limits: &Limits,
        client: impl FnOnce() -> Result<Option<Client>, GitError>,
    ) -> Result<Arc<Repository>, GitError> {
        let mut all = hmac::Context::with_key(&self.0.key);
        for part in [url.as_bytes(), credentials] {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        }
        let id = hex(all.sign().as_ref());
        let mut open = self.0.open.lock();
        let entry = open.entry(id.clone()).or_default();
        entry.used = Some(Instant::now());
        if let Some(repository) = entry.repository.upgrade() {
            return Ok(repository);
        }
        let repository = Arc::new(Repository {
            registry: Arc::downgrade(&self.0),
            client: client()?,
            store: Store::new(self.0.folder.join(&id), *limits),
            looks: Looks::default(),
            fetches: Flights::default(),
            followers: Mutex::default(),
            alone_until: Mutex::default(),
            id,
        });
        entry.repository = Arc::downgrade(&repository);
        Ok(repository)
    }

    /// The owner of a remote uses this repository from now on.
    pub(super) fn note_use(&self, owner: &str, repository: &Arc<Repository>) {
        self.0.used_by.lock().insert(owner.to_owned(), Arc::downgrade(repository));
    }

    /// Whether a push to this ref, by its full name, matters to others with whom the owner of a remote shares its repository: same URL, same
    /// credentials.
    #[must_use]
    pub fn others_follow(&self, owner: &str, pushed: &str) -> bool {
        let repository = self.0.used_by.lock().get(owner).and_then(Weak::upgrade);
        repository.is_some_and(|repository| {
            let mut all = repository.followers().into_iter();
            all.any(|one| one.owner != owner && is_moved_by(&one.target, pushed))
        })
    }

    /// Deletes the store of a repository, if nobody uses it. One that was there at the start is left to [`Self::sweep`].
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove_unused(&self, id: &str) -> io::Result<()> {
        if self.0.earlier.lock().contains(id) {
            return Ok(());
        }
        self.0.remove_after(id, Duration::ZERO)
    }

    /// Deletes the stores that nobody has used for so long, and what was left behind by earlier ones that were deleted.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sweep(&self, unused: Duration) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        let is_known = |entry: &mut Entry| {
            let is_used = entry.repository.strong_count() > 0;
            if is_used {
                entry.used = Some(Instant::now());
            }
            is_used || entry.used.is_some_and(|used| used.elapsed() < unused)
        };
        self.0.open.lock().retain(|_, entry| is_known(entry));
        self.0.used_by.lock().retain(|_, repository| repository.strong_count() > 0);
        for entry in entries {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            // Links, files and other folders belong to somebody else.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let removed = if is_id(&name) {
                self.0.remove_after(&name, unused)
            } else if name.strip_prefix(DELETED).is_some_and(is_id) {
                delete(&entry.path())
            } else {
                Ok(())
            };
            if let Err(error) = removed {
                tracing::warn!(path = %entry.path().display(), %error, "cannot remove fetched objects");
            }
        }
        if self.0.since.elapsed() >= unused {
            // Whoever needs one of them has asked for it.
            self.0.earlier.lock().clear();
        }
        self.0.make_room("");
        Ok(())
    }
}

impl Registry {
    /// Deletes the largest stores until all of them fit. The one that is kept was just fetched.
    fn make_room(&self, kept: &str) {
        let disk = &self.disk;
        if !disk.is_too_much(disk.bytes()) {
            return;
        }
        let is_open = |id: &str| {
            let open = self.open.lock();
            open.get(id).is_some_and(|entry| entry.repository.strong_count() > 0)
        };
        let earlier = self.earlier.lock().clone();
        // Those who need what an earlier run fetched may not have asked for it yet, and their server may not answer now.
        let all = disk.largest_first(|id| earlier.contains(id) && !is_open(id));
        let mut stay = 0;
        for (id, bytes) in all {
            if !disk.is_too_much(disk.bytes()) {
                return;
            }
            if id == kept || !self.clear(&id) {
                stay += bytes;
            }
            if disk.is_too_much(stay) {
                // All others together are not enough.
                break;
            }
        }
        let bytes = disk.bytes();
        if disk.is_too_much(bytes) {
            tracing::warn!(bytes, "what is being read takes more room than --git-max-disk allows");
        }
    }

    /// Deletes what a store has. `false` when that failed, or somebody reads it at the moment.
    fn clear(&self, id: &str) -> bool {
        let repository = self.open.lock().get(id).and_then(|entry| entry.repository.upgrade());
        let cleared = match repository {
            Some(repository) => repository.store.clear().inspect(|_| {
                // Also if it stays: it may have become smaller.
                self.disk.note(id, repository.store.bytes());
            }),
            None => self.remove(id, Duration::ZERO),
        };
        match &cleared {
            Ok(true) => {
                self.earlier.lock().remove(id);
                tracing::info!(
                    id,
                    "what was fetched takes too much room: removed, see --git-max-disk"
                );
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(id, %error, "cannot remove fetched objects"),
        }
        cleared.unwrap_or(false)
    }

    /// Deletes a store that nobody has used for so long.
    fn remove_after(&self, id: &str, unused: Duration) -> io::Result<()> {
        if self.remove(id, unused)? {
            tracing::info!(id, "no GitSync uses what was fetched: removed");
        }
        Ok(())
    }

    /// The same. Returns whether there was one, and it is gone.
    fn remove(&self, id: &str, unused: Duration) -> io::Result<bool> {
        let folder = self.folder.join(id);
        let deleted = self.folder.join(format!("{DELETED}{id}"));
        {
            // While this is locked, nobody begins to use it.
            let mut open = self.open.lock();
            let entry = open.get(id);
            let used = entry.and_then(|entry| entry.used).unwrap_or(self.since);
            let is_used = entry.is_some_and(|entry| entry.repository.strong_count() > 0);
            if is_used || used.elapsed() < unused {
                return Ok(false);
            }
            open.remove(id);
            delete(&deleted)?;
            match fs::rename(&folder, &deleted) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.disk.note(id, 0);
                    return Ok(false);
                }
                renamed => renamed?,
            }
            self.disk.note(id, 0);
        }
        delete(&deleted)?;
        Ok(true)
    }
}

/// Deletes a folder. It is no error if it is not there.
fn delete(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether a name has the form of the ids of repositories. (pure)
fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Reads the key of the folder, or makes one.
fn key_in(folder: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let path = folder.join(KEY);
    match fs::read(&path) {
        Ok(bytes) => {
            if let Ok(key) = bytes.try_into() {
                return Ok(key);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut key = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| io::Error::other("no random numbers"))?;
    // Nobody else has to know what is fetched.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let draft = folder.join("key.new");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&draft)?.write_all(&key)?;
    fs::rename(draft, path)?;
    Ok(key)
}

/// What is followed in a repository.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub there: Vec<Target>,
    /// What did not exist when somebody was told of it last. A look asks for it only when it needs all refs: the name may be the beginning of
    /// the names of many others, which the server would list.
    pub absent: Vec<Target>,
}

/// One repository, as it is asked with some credentials.
pub(super) struct Repository {
    registry: Weak<Registry>,
    /// The name of its store.
    pub id: String,
    /// For http.
    pub client: Option<Client>,
    pub store: Store,
    pub looks: Looks,
    /// The fetches that run, by the commit and the annotated tag.
    pub fetches: Flights<(ObjectId, Option<ObjectId>), Fetched>,
    followers: Mutex<Vec<Weak<Follower>>>,
    /// Until when everybody looks for the own target only, because the list of all was too long.
    alone_until: Mutex<Option<Instant>>,
}

impl Repository {
    /// Something was fetched. Removes other stores if all together take too much room.
    pub fn has_grown(&self) {
        if let Some(registry) = self.registry.upgrade()
            && registry.disk.note(&self.id, self.store.bytes())
        {
            registry.make_room(&self.id);
        }
    }

    /// From now on looks ask for the target of this one, too.
    pub fn follow(&self, follower: &Arc<Follower>) {
        let mut all = self.followers.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(follower));
    }

    fn followers(&self) -> Vec<Arc<Follower>> {
        self.followers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What the followers of this one follow. Looks ask for it besides the target of whoever looks.
    pub fn targets(&self) -> Followed {
        if self.alone_until.lock().is_some_and(|until| Instant::now() < until) {
            return Followed::default();
        }
        let (absent, there): (Vec<_>, Vec<_>) =
            self.followers().into_iter().partition(|one| one.is_missing());
        let mut known = HashSet::new();
        let mut few = |all: Vec<Arc<Follower>>| -> Vec<_> {
            let new = all.iter().map(|one| &one.target).filter(|one| known.insert((*one).clone()));
            new.take(MAX_TARGETS).cloned().collect()
        };
        let there = few(there);
        // Whoever waits for an answer comes first.
        let (mut waiting, others): (Vec<_>, Vec<_>) =
            absent.into_iter().partition(|one| one.is_asking());
        waiting.extend(others);
        Followed { there, absent: few(waiting) }
    }

    /// The list of refs with the targets of others was too long: for a while everybody asks for the own one only.
    pub fn look_alone(&self) {
        *self.alone_until.lock() = Some(Instant::now() + TIME_ALONE);
    }

    /// Wakes somebody who was told of a look, if there is a newer one that shows something else.
    pub fn wake_if_behind(&self, follower: &Follower, told: &Look) {
        let newest = self.looks.newest().filter(|newest| newest.began > told.began);
        if let (Some(newest), Some(Wake(wake))) = (newest, &follower.wake)
            && let Some(at) = follower.is_behind(&newest, FIRST_WAKE)
        {
            wake(at);
        }
    }

    /// Wakes those whose ref has moved since they were told of it.
    pub fn wake_others(&self, look: &Look) {
        let mut after = FIRST_WAKE;
        for follower in self.followers() {
            if let Some(Wake(wake)) = &follower.wake
                && let Some(at) = follower.is_behind(look, after)
            {
                wake(at);
                after += NEXT_WAKE;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "tests/repository.rs"]
mod tests;
