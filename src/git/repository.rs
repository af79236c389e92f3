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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::check::Target;
use super::fetching::Fetched;
use super::flights::Flights;
use super::looks::{Look, Looks};
use super::protocol::Listed;
use super::store::Store;
use super::{GitError, Limits};
use crate::net::Client;
use crate::order::Seq;
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
/// How much time is between two wakes of the same one, so that a busy repository does not keep thousands busy.
const MIN_TIME_BETWEEN_WAKES: Duration = Duration::from_secs(10);
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
    since: Instant,
}

#[derive(Default)]
struct Entry {
    repository: Weak<Repository>,
    used: Option<Instant>,
}

impl Repositories {
    /// Keeps the stores in this folder. Without a key in it, a new one is made.
    ///
    /// # Errors
    /// When there are no random numbers, or the folder cannot be used.
    pub fn new(folder: PathBuf) -> io::Result<Self> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key_in(&folder)?);
        let (open, since) = (Mutex::default(), Instant::now());
        Ok(Self(Arc::new(Registry { folder, key, open, since })))
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

    /// Deletes the store of a repository, if nobody uses it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove_unused(&self, id: &str) -> io::Result<()> {
        self.remove(id, None)
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
        for entry in entries {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            // Links, files and other folders belong to somebody else.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let removed = if is_id(&name) {
                self.remove(&name, Some(unused))
            } else if name.strip_prefix(DELETED).is_some_and(is_id) {
                delete(&entry.path())
            } else {
                Ok(())
            };
            if let Err(error) = removed {
                tracing::warn!(path = %entry.path().display(), %error, "cannot remove fetched objects");
            }
        }
        Ok(())
    }

    fn remove(&self, id: &str, unused: Option<Duration>) -> io::Result<()> {
        let folder = self.0.folder.join(id);
        let deleted = self.0.folder.join(format!("{DELETED}{id}"));
        {
            // While this is locked, nobody begins to use it.
            let mut open = self.0.open.lock();
            let entry = open.get(id);
            let used = entry.and_then(|entry| entry.used).unwrap_or(self.0.since);
            let is_used = entry.is_some_and(|entry| entry.repository.strong_count() > 0);
            if is_used || unused.is_some_and(|unused| used.elapsed() < unused) {
                return Ok(());
            }
            open.remove(id);
            delete(&deleted)?;
            match fs::rename(&folder, &deleted) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                renamed => renamed?,
            }
        }
        tracing::info!(path = %folder.display(), "no GitSync uses what was fetched: removed");
        delete(&deleted)
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

/// Tells that a ref has moved, and when to look at it.
#[derive(Clone)]
pub struct Wake(pub Arc<dyn Fn(Duration) + Send + Sync>);

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// The commit and the name of a ref.
type Known = (ObjectId, String);

/// What somebody was told of a ref.
#[derive(Default, PartialEq, Eq)]
enum Told {
    /// Nothing yet.
    #[default]
    Nothing,
    /// An error.
    Error,
    /// That it does not exist.
    Missing,
    Commit(Known),
}

/// Somebody who follows a target in a repository.
pub(super) struct Follower {
    pub target: Target,
    /// What it was told last, and when that look ended.
    told: Mutex<(Told, Seq)>,
    /// When it was woken last, or will be, and for which commit, unless it was told something since.
    woken: Mutex<Option<(Instant, Option<Known>)>>,
    /// How many questions of it are open.
    asking: AtomicUsize,
    wake: Option<Wake>,
}

impl Follower {
    pub fn new(target: Target, wake: Option<Wake>) -> Self {
        let (told, woken) = (Mutex::new((Told::Nothing, Seq::next())), Mutex::default());
        Self { target, told, woken, asking: AtomicUsize::new(0), wake }
    }

    /// Notes what it is told by a look that ended then.
    pub fn tell(&self, listed: &Result<Listed, GitError>, ended: Seq) {
        let told = match listed {
            Ok(Listed { found, name }) => Told::Commit((found.commit, name.clone())),
            Err(GitError::RefNotFound { .. } | GitError::EmptyRepository) => Told::Missing,
            Err(_) => Told::Error,
        };
        *self.told.lock() = (told, ended);
        if let Some((_, of)) = &mut *self.woken.lock() {
            *of = None;
        }
    }

    /// When the look ended that told it something, or else when it began to follow.
    pub fn told_at(&self) -> Seq {
        self.told.lock().1
    }

    /// It has a question until the guard is dropped.
    pub fn asks(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Ordering::SeqCst);
        Asking(self)
    }

    /// When it has to be woken because a look shows something else than it was told: after this time at the earliest.
    fn is_behind(&self, look: &Look, after: Duration) -> Option<Duration> {
        if self.asking.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let listed = look.of(&self.target)?.ok()?;
        let known = (listed.found.commit, listed.name);
        match &self.told.lock().0 {
            // It asks by itself.
            Told::Nothing => return None,
            Told::Commit(told) if *told == known => return None,
            Told::Commit(_) | Told::Error | Told::Missing => {}
        }
        let (now, mut woken) = (Instant::now(), self.woken.lock());
        let mut at = now + after;
        if let Some((last, of)) = &*woken {
            if of.as_ref() == Some(&known) {
                return None;
            }
            let lies_ahead = *last > now;
            at = if lies_ahead { *last } else { at.max(*last + MIN_TIME_BETWEEN_WAKES) };
        }
        *woken = Some((at, Some(known)));
        Some(at.saturating_duration_since(now))
    }
}

pub(super) struct Asking<'a>(&'a Follower);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One repository, as it is asked with some credentials.
pub(super) struct Repository {
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
    /// From now on looks ask for the target of this one, too.
    pub fn follow(&self, follower: &Arc<Follower>) {
        let mut all = self.followers.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(follower));
    }

    fn followers(&self) -> Vec<Arc<Follower>> {
        self.followers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What a look asks for besides the target of whoever looks. What does not exist is left out: its name may be the beginning of the names of
    /// many other refs, which the server would list.
    pub fn targets(&self) -> Vec<Target> {
        if self.alone_until.lock().is_some_and(|until| Instant::now() < until) {
            return Vec::new();
        }
        let mut known = HashSet::new();
        let there = |one: &Arc<Follower>| one.told.lock().0 != Told::Missing;
        for one in self.followers().into_iter().filter(there) {
            if known.len() >= MAX_TARGETS {
                break;
            }
            known.insert(one.target.clone());
        }
        known.into_iter().collect()
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
