//! One remote and its bare store: ask for the newest commit, fetch it shallow, open it.
//!
//! The store can be made anew at any time: a fetch that fails in any way throws it away, so that nothing a killed
//! or broken fetch left behind can matter. gix cannot repack, so a store with many packs is thrown away, too.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gix::bstr::ByteSlice;
use gix::remote::Direction;
use gix::remote::fetch::{Shallow, Tags};

use super::error::chain;
use super::snapshot::{Snapshot, options};
use super::url::{Wanted, check, wanted};
use super::{GitError, Limits};
use crate::api::git_sync::GitRef;

/// More packs than this make every look-up slow.
const MOST_PACKS: usize = 20;

/// What is needed to reach a remote.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// `https://…`, or `http://…` when allowed.
    pub url: String,
    /// What to follow.
    pub reference: GitRef,
    /// Longest time for one question and for one fetch.
    pub timeout: Duration,
    /// Allow plain http and loopback.
    pub allow_insecure: bool,
    /// Folder of the bare store.
    pub store: PathBuf,
    /// Budgets.
    pub limits: Limits,
}

/// A commit, and the name under which it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// 40 or 64 hex digits.
    pub commit: String,
    /// Short name of the branch or tag; empty for a commit.
    pub name: String,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}@", self.name)?;
        }
        write!(f, "{}:{}", if self.commit.len() == 64 { "sha256" } else { "sha1" }, self.commit)
    }
}

/// One remote.
pub struct Remote {
    options: Arc<RemoteOptions>,
    wanted: Arc<Wanted>,
    /// A blocking call that did not end in time is still running.
    busy: Arc<AtomicBool>,
}

impl Remote {
    /// A remote that keeps its objects below `options.store`.
    ///
    /// # Errors
    /// When URL or ref may not be used.
    pub fn new(options: RemoteOptions) -> Result<Self, GitError> {
        check(&options.url, options.allow_insecure)?;
        let wanted = wanted(&options.reference)?;
        Ok(Self { options: Arc::new(options), wanted: Arc::new(wanted), busy: Arc::default() })
    }

    /// Asks the remote which commit the ref names: one ls-refs, nothing is fetched.
    ///
    /// # Errors
    /// When the remote cannot be asked, or has no such ref.
    pub async fn resolve(&self) -> Result<Revision, GitError> {
        let (full, short) = match self.wanted.as_ref() {
            Wanted::Commit(commit) => {
                return Ok(Revision { commit: commit.clone(), name: String::new() });
            }
            Wanted::Name(full, short) => (full.clone(), short.clone()),
        };
        let options = self.options.clone();
        self.blocking(move |_| {
            let repo = open_or_init(&options.store)?;
            let found = ls_refs(&repo, &options.url, &full)?;
            if let Some((_, commit)) = found.iter().find(|(name, _)| *name == full) {
                return Ok(Revision { commit: commit.to_string(), name: short });
            }
            let kind = if full.starts_with("refs/tags/") { "tag" } else { "branch" };
            let all = ls_refs(
                &repo,
                &options.url,
                if kind == "tag" { "refs/tags/*" } else { "refs/heads/*" },
            )?;
            Err(GitError::RefNotFound {
                what: format!("{kind} {short:?}"),
                near: near(&short, &all),
            })
        })
        .await
    }

    /// Fetches the commit, shallow. Does nothing when the store has it.
    ///
    /// # Errors
    /// When it cannot be fetched whole within budgets; then the store is empty again.
    pub async fn fetch(&self, revision: &Revision) -> Result<(), GitError> {
        let options = self.options.clone();
        let commit = parse(&revision.commit)?;
        self.blocking(move |interrupt| {
            if has(&options.store, commit) {
                return Ok(());
            }
            if packs(&options.store) >= MOST_PACKS {
                discard(&options.store)?;
            }
            let again = options.store.exists();
            match fetch(&options, commit, interrupt) {
                Err(GitError::Corrupt(_) | GitError::Storage(_) | GitError::Connection(_))
                    if again =>
                {
                    // What an earlier fetch left behind may be the reason: once more, from nothing.
                    discard(&options.store)?;
                    fetch(&options, commit, interrupt)
                }
                other => other,
            }
            .inspect_err(|_| {
                let _ = discard(&options.store);
            })
        })
        .await
    }

    /// Opens a fetched commit and lists what is below `path`.
    ///
    /// # Errors
    /// When the commit has no such folder, or cannot be read.
    pub async fn snapshot(&self, commit: &str, path: &str) -> Result<Arc<Snapshot>, GitError> {
        let options = self.options.clone();
        let (id, path) = (parse(commit)?, path.to_owned());
        self.blocking(move |_| {
            let repo = open(&options.store)?;
            Snapshot::read_commit(repo, id, &path, &options.limits).map(Arc::new)
        })
        .await
    }

    /// Runs blocking work with the deadline. Work that does not end in time is told to, and nothing new starts
    /// before it has.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        struct Done(Arc<AtomicBool>);
        impl Drop for Done {
            fn drop(&mut self) {
                self.0.store(false, Ordering::SeqCst);
            }
        }
        if self.busy.swap(true, Ordering::SeqCst) {
            return Err(GitError::Connection("the last attempt still hangs".into()));
        }
        let done = Done(self.busy.clone());
        let interrupt = Arc::new(AtomicBool::new(false));
        let flag = interrupt.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _done = done;
            work(&flag)
        });
        match tokio::time::timeout(self.options.timeout, task).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(GitError::Corrupt(format!("internal error: {error}"))),
            Err(_) => {
                interrupt.store(true, Ordering::SeqCst);
                Err(GitError::Timeout(self.options.timeout.as_secs()))
            }
        }
    }
}

fn parse(commit: &str) -> Result<gix::ObjectId, GitError> {
    gix::ObjectId::from_hex(commit.as_bytes())
        .map_err(|_| GitError::InvalidSource(format!("{commit:?} is no commit id")))
}

fn open(store: &Path) -> Result<gix::ThreadSafeRepository, GitError> {
    options().open(store.to_owned()).map_err(|error| GitError::Storage(chain(&error)))
}

/// Opens the store, or makes it, throwing away whatever is there and cannot be opened.
fn open_or_init(store: &Path) -> Result<gix::Repository, GitError> {
    if store.join("HEAD").exists()
        && let Ok(repo) = open(store)
    {
        return Ok(repo.to_thread_local());
    }
    discard(store)?;
    std::fs::create_dir_all(store).map_err(|error| GitError::Storage(error.to_string()))?;
    gix::ThreadSafeRepository::init(
        store,
        gix::create::Kind::Bare,
        gix::create::Options::default(),
    )
    .map_err(|error| GitError::Storage(chain(&error)))?;
    open(store).map(|repo| repo.to_thread_local())
}

fn discard(store: &Path) -> Result<(), GitError> {
    match std::fs::remove_dir_all(store) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(GitError::Storage(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Whether the store has the commit, and with it (fetches are whole or thrown away) all that it needs.
fn has(store: &Path, commit: gix::ObjectId) -> bool {
    open(store).is_ok_and(|repo| repo.to_thread_local().find_commit(commit).is_ok())
}

fn packs(store: &Path) -> usize {
    let entries = std::fs::read_dir(store.join("objects/pack"));
    entries.map_or(0, |entries| {
        entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "pack"))
            .count()
    })
}

/// Refs of the remote that match, with the commit that each names (annotated tags are peeled).
fn ls_refs(
    repo: &gix::Repository,
    url: &str,
    name: &str,
) -> Result<Vec<(String, gix::ObjectId)>, GitError> {
    let gix_error = |error: gix::Error| GitError::from_gix(&error);
    let spec = if name.ends_with('*') { format!("{name}:{name}") } else { name.to_owned() };
    let remote = repo
        .remote_at(url)
        .map_err(gix_error)?
        .with_fetch_tags(Tags::None)
        .with_refspecs([spec.as_str()], Direction::Fetch)
        .map_err(gix_error)?;
    // No credentials, and no question on a terminal either.
    let connection =
        remote.connect(Direction::Fetch).map_err(gix_error)?.with_credentials(|_| Ok(None));
    let (map, _) = connection
        .ref_map(gix::progress::Discard, gix::remote::ref_map::Options::default())
        .map_err(gix_error)?;
    Ok(map
        .remote_refs
        .iter()
        .filter_map(|reference| {
            let (name, target, peeled) = reference.unpack();
            Some((name.to_str().ok()?.to_owned(), peeled.or(target)?.to_owned()))
        })
        .collect())
}

/// The names nearest to a missing one, for a hint.
fn near(missing: &str, all: &[(String, gix::ObjectId)]) -> Option<String> {
    let mut names: Vec<_> = all.iter().filter_map(|(name, _)| name.splitn(3, '/').nth(2)).collect();
    names.sort_by_key(|name| strsim::damerau_levenshtein(name, missing));
    let listed: Vec<_> = names.into_iter().take(3).collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}

fn fetch(
    options: &RemoteOptions,
    commit: gix::ObjectId,
    interrupt: &AtomicBool,
) -> Result<(), GitError> {
    let repo = open_or_init(&options.store)?;
    let gix_error = |error: gix::Error| GitError::from_gix(&error);
    let spec = commit.to_string();
    let remote = repo
        .remote_at(options.url.as_str())
        .map_err(gix_error)?
        .with_fetch_tags(Tags::None)
        .with_refspecs([spec.as_str()], Direction::Fetch)
        .map_err(gix_error)?;
    let finished = AtomicBool::new(false);
    let too_large = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        // gix has no limit on the size of a pack: watch the folder, and stop the fetch when it grows too large.
        scope.spawn(|| {
            let before = bytes_below(&options.store);
            while !finished.load(Ordering::SeqCst) {
                if bytes_below(&options.store).saturating_sub(before) > options.limits.pack_bytes {
                    too_large.store(true, Ordering::SeqCst);
                    interrupt.store(true, Ordering::SeqCst);
                    return;
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        let depth = std::num::NonZeroU32::MIN;
        let result = remote.connect(Direction::Fetch).and_then(|connection| {
            connection
                .with_credentials(|_| Ok(None))
                .prepare_fetch(gix::progress::Discard, gix::remote::ref_map::Options::default())?
                .with_shallow(Shallow::DepthAtRemote(depth))
                .receive(gix::progress::Discard, interrupt)
        });
        finished.store(true, Ordering::SeqCst);
        result
    });
    if too_large.load(Ordering::SeqCst) {
        return Err(GitError::TooLarge(options.limits.pack_bytes));
    }
    result.map_err(|error| {
        let text = chain(&error);
        if text.contains("not our ref") {
            GitError::CommitGone(commit.to_string())
        } else {
            GitError::from_gix(&error)
        }
    })?;
    // The fetched commit becomes a ref, so that the next fetch can say what we have and gets only what changed.
    let changed = repo.reference(
        "refs/heads/fetched",
        commit,
        gix::refs::transaction::PreviousValue::Any,
        "fetched",
    );
    changed.map_err(|error| GitError::Storage(chain(&error)))?;
    if repo.find_commit(commit).is_err() {
        return Err(GitError::CommitGone(commit.to_string()));
    }
    Ok(())
}

/// Bytes of the files that a fetch writes.
fn bytes_below(store: &Path) -> u64 {
    let pack = std::fs::read_dir(store.join("objects/pack"));
    pack.map_or(0, |entries| {
        entries.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
    })
}
