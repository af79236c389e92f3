//! Everything that knows Git: finds the commit of a ref, fetches it, and reads its tree without a checkout.
//!
//! ```text
//! Remote::resolve ─► ls-refs: what the ref is now                (protocol, http, ssh)
//! Remote::fetch ───► that commit, depth 1, into a store         (fetching, protocol, http, ssh, store, generation; pack, weight)
//! Remote::snapshot ► the tree below a path, within budgets      (snapshot, listing, table); blobs are read on demand
//! Repositories ────► what remotes of one repository share       (repository, followers, looks, flights, disk)
//! Credentials ─────► what a Secret has for the server            (credentials, allowed; github_app: tokens that are asked for)
//! Keys ────────────► who may sign what is read                   (verify, trust)
//! open_local, Folder: the same view of a commit of a local repository, or of a folder on disk
//! ```
//! No `git` binary is run, no configuration of the machine is read, and nothing from a repository is executed. Links and submodules are
//! never followed. gix blocks, so it runs on blocking threads. Each attempt has a deadline, which ends its waits for the network and sets
//! gix's interrupt flag. At most one attempt runs for each GitSync (attempt).
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this module uses Git, the disk and the clock"
)]

mod allowed;
mod attempt;
mod check;
mod credentials;
mod disk;
mod error;
mod fetching;
mod file;
mod flights;
mod followers;
#[doc(hidden)]
pub(crate) mod fuzzing;
mod generation;
mod github_app;
mod heavy;
mod hints;
mod http;
mod listing;
mod local;
mod looks;
mod objects;
mod pack;
mod program;
mod protocol;
mod refs;
mod repository;
mod snapshot;
mod ssh;
mod store;
mod table;
mod trust;
mod verify;
mod weight;
mod wire;

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use gix::ObjectId;
use reqwest::header::HeaderValue;
use tokio::time::Instant;

pub use self::allowed::{are_for_repository, repository_place};
pub use self::check::path as check_path;
pub use self::credentials::{Credentials, NoCredentials, are_for, origin};
pub use self::error::GitError;
pub use self::followers::Wake;
pub use self::github_app::{AppToken, GitHubApp, NoToken};
pub use self::hints::is_of_authority;
pub use self::local::{Folder, open_local, repository_root};
pub use self::program::Files;
pub use self::repository::Repositories;
pub use self::snapshot::Snapshot;
pub use self::verify::{Keys, NoKeys, SignedPart, Unverified, Verification};
pub use convoke_core::git::{CommitInfo, Revision};

use self::attempt::{Control, Turn};
use self::check::{Location, Schemes, Target};
use self::fetching::Fetched;
use self::followers::Follower;
use self::generation::Generation;
use self::looks::{Look, Wish};
use self::protocol::Asked;
use self::refs::Listed;
use self::repository::{Followed, Repository};
use self::trust::Trust;
use crate::api::git_sync::GitRef;
use crate::net::{Client, ClientOptions, Dialler};
use crate::order::Seq;

/// How long the server's word that we may read a repository counts for a commit that was fetched for somebody else.
const MAX_AGE_OF_LEAVE: Duration = Duration::from_secs(10);

/// How large a repository may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one received pack.
    pub pack_bytes: u64,
    /// Files below the synced path. The same number is allowed of folders.
    pub files: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Levels of folders below the synced path.
    pub depth: usize,
}

impl Limits {
    /// Bytes of memory of one object of a received pack, at most, when the pack is indexed.
    fn object_bytes(&self) -> usize {
        usize::try_from(self.pack_bytes.saturating_mul(2)).unwrap_or(usize::MAX)
    }

    /// Bytes of memory of all objects that are needed at the same time when a received pack is indexed.
    const fn index_bytes(&self) -> u64 {
        self.pack_bytes.saturating_mul(3)
    }

    /// Bytes of memory of one object that is read from a store, and of those that it is a delta of. With the permit for heavy work it
    /// may take [`Self::pack_bytes`]. A tree has 8 MiB at most.
    fn read_bytes(&self) -> usize {
        usize::try_from(self.file_bytes.saturating_mul(4)).unwrap_or(usize::MAX).max(24 << 20)
    }

    /// Bytes of all packs of a store. With more, the next fetch starts anew.
    const fn store_bytes(&self) -> u64 {
        self.pack_bytes.saturating_mul(2)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { pack_bytes: 64 << 20, files: 10_000, file_bytes: 1 << 20, depth: 32 }
    }
}

/// What [`Remote::new`] needs.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// `https://…` or `ssh://…` (or `http://…` where the dialler allows it).
    pub url: String,
    /// What to follow. Nothing means branch `main`.
    pub reference: GitRef,
    /// How long one resolve, fetch or snapshot may take.
    pub timeout: Duration,
    /// How long the server may send nothing while a commit is fetched.
    pub silence: Duration,
    /// Makes the connections, and checks that they are allowed.
    pub dialler: Dialler,
    /// What the server gets to know who asks, and which authorities are trusted.
    pub credentials: Credentials,
    /// What must be signed, and by whom, before anything of a commit is read. Nothing, if there is none.
    pub verification: Option<Verification>,
    /// Whose remote it is: the UID of a GitSync or an AgentBuild. At most one attempt of each owner runs.
    pub owner: String,
    /// Where fetched objects are kept, and what remotes of the same repository share.
    pub repositories: Repositories,
    /// Is called when a look for another remote shows that the ref has moved.
    pub wake: Option<Wake>,
    /// Budgets.
    pub limits: Limits,
}

/// One repository and ref. It is kept between polls. A clone shares everything; remotes of the same repository share its lists of refs, its
/// fetches and its store.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("url", &self.inner.url).finish_non_exhaustive()
    }
}

struct Inner {
    url: String,
    follower: Arc<Follower>,
    timeout: Duration,
    silence: Duration,
    limits: Limits,
    server: Server,
    trust: Trust,
    /// Shared with every remote of the same owner.
    turn: Arc<Turn>,
    /// The commit that was fetched last, and the generation of the store that has it, until it is read.
    fetched: Mutex<Option<(ObjectId, Arc<Generation>)>>,
    /// The last snapshot, so that it need not be read again.
    last: Mutex<Option<Cached>>,
    /// Goes after what was fetched into it.
    repository: Arc<Repository>,
}

/// How the server is asked.
enum Server {
    Http {
        client: Client,
        /// The value of the header `Authorization`.
        authorization: Option<HeaderValue>,
    },
    Ssh(ssh::Server),
}

struct Cached {
    commit: ObjectId,
    path: String,
    snapshot: Arc<Snapshot>,
}

/// What the server said of the ref, and when, in the order of events.
#[derive(Debug)]
pub struct Answered {
    /// When it was asked: what was pushed before is in the answer.
    pub asked: Seq,
    /// How long before the question that was: zero if it was asked for this.
    pub age: Duration,
    /// When the answer was there.
    pub told: Seq,
    /// The commit of the ref.
    pub revision: Result<Revision, GitError>,
}

impl Remote {
    /// Checks the URL and the ref. It opens no connection, and does not use the disk.
    ///
    /// # Errors
    /// [`GitError::InvalidUrl`], [`GitError::InsecureConnection`], [`GitError::AddressRefused`], [`GitError::InvalidRef`],
    /// [`GitError::CredentialsNeeded`]: all terminal. [`GitError::InvalidRoots`], [`GitError::InvalidIdentity`], [`GitError::ProxyFailed`] when the
    /// proxy may not be dialled, and [`GitError::ConnectionFailed`] when the machine has no certificate authorities at all.
    pub fn new(options: RemoteOptions) -> Result<Self, GitError> {
        let RemoteOptions { url, reference, timeout, silence, dialler, credentials, .. } = options;
        let RemoteOptions { verification, owner, repositories, wake, limits, .. } = options;
        let schemes =
            if dialler.allows_plain_http() { Schemes::HttpToo } else { Schemes::HttpsOnly };
        let target = check::target(&reference)?;
        let trust = Trust::new(verification, &target)?;
        let location = check::url(&url, schemes)?;
        let Credentials { authorization, roots, identity, ssh, app: _, proxy, digest } =
            credentials;
        let repository = repositories.open((&url, &digest), &limits, || {
            let Location::Http(url) = &location else { return Ok(None) };
            let user_agent = concat!("git/convoke-", env!("CARGO_PKG_VERSION"));
            let (roots, identity) = (roots.as_deref(), identity.as_deref());
            let options = ClientOptions { user_agent, roots, identity, proxy: proxy.as_ref() };
            dialler.client(url, options).map(Some).map_err(GitError::from)
        })?;
        let server = match (location, repository.client.clone()) {
            (Location::Http(_), Some(client)) => Server::Http { client, authorization },
            (Location::Http(_), None) => return Err(GitError::Busy),
            (Location::Ssh(url), _) => {
                let credentials = ssh.ok_or(GitError::CredentialsNeeded)?;
                dialler.check_host(&url.server)?;
                Server::Ssh(ssh::Server { url, credentials, dialler })
            }
        };
        repositories.note_use(&owner, &repository);
        let turn = Turn::of(&owner);
        let follower = Arc::new(Follower::new(owner, target, wake));
        repository.follow(&follower);
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                follower,
                timeout,
                silence,
                limits,
                server,
                trust,
                turn,
                fetched: Mutex::new(None),
                last: Mutex::new(None),
                repository,
            }),
        })
    }

    /// The name of the store among the [`Repositories`].
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.inner.repository.id
    }

    /// Asks the server for the current commit of the ref, by one `ls-refs`. A pinned commit needs no request.
    ///
    /// # Errors
    /// [`GitError::RefNotFound`], [`GitError::EmptyRepository`], [`GitError::Timeout`] and what a connection can meet.
    pub async fn resolve(&self) -> Result<Revision, GitError> {
        self.resolve_within(None).await.revision
    }

    /// The same. With a `max_age`, an answer counts that the server has given to anybody else at most so long ago.
    pub async fn resolve_within(&self, max_age: Option<Duration>) -> Answered {
        let (inner, now, age) = (&self.inner, Seq::next(), Duration::ZERO);
        let began = Instant::now();
        if let Target::Commit(id) = &inner.follower.target {
            let revision = Revision { commit: id.to_string(), name: String::new() };
            return Answered { asked: now, age, told: now, revision: Ok(revision) };
        }
        let asking = inner.follower.asks();
        let look = match self.look(max_age).await {
            Ok(look) => look,
            Err(error) => {
                return Answered { asked: now, age, told: Seq::next(), revision: Err(error) };
            }
        };
        let target = &inner.follower.target;
        let listed = look.of(target).unwrap_or(Err(GitError::Busy));
        inner.follower.tell(&listed, look.ended);
        drop(asking);
        // Whoever looked meanwhile has not woken us, because we were asking.
        inner.repository.wake_if_behind(&inner.follower, &look);
        let revision = listed.map(|Listed { found, name }| {
            inner.trust.note(found, &name);
            Revision { commit: found.commit.to_string(), name }
        });
        let age = began.saturating_duration_since(look.at);
        Answered { asked: look.began, age, told: look.ended, revision }
    }

    /// Learns whether the server answers at all: from a list of refs, whatever is in it, or from what became of one that is at most so old.
    ///
    /// # Errors
    /// [`GitError::Timeout`] and what a connection can meet.
    pub async fn reach(&self, max_age: Duration) -> Result<(), GitError> {
        match self.look(Some(max_age)).await?.failure() {
            None | Some(GitError::AnswerTooLarge { .. }) => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// A list of refs that has the target: one that somebody has made, or a new one.
    async fn look(&self, max_age: Option<Duration>) -> Result<Arc<Look>, GitError> {
        let inner = &self.inner;
        let Inner { repository, follower, timeout, .. } = &**inner;
        let told = follower.told_at();
        let wish = Wish { target: &follower.target, max_age, told, timeout: *timeout };
        let ask_for = &|time, followed: Followed| {
            self.attempt("asking the server for the ref", time, move |inner, control| {
                let (link, wire) = inner.listing(control);
                let (target, Followed { there, absent }) = (&inner.follower.target, &followed);
                protocol::look(link, wire, &Asked { target, others: there, absent })
            })
        };
        // In a box: a poll keeps room for all that it may wait for.
        let ask = |time: Duration| -> BoxFuture<'_, _> {
            let (followed, start) = (repository.targets(), Instant::now());
            let alone = followed.there.iter().all(|other| *other == follower.target);
            Box::pin(async move {
                match ask_for(time, followed).await {
                    // What somebody else follows may be the beginning of the names of very many refs.
                    Err(GitError::AnswerTooLarge { .. }) if !alone => {
                        repository.look_alone();
                        ask_for(time.saturating_sub(start.elapsed()), Followed::default()).await
                    }
                    answers => answers,
                }
            })
        };
        let (look, is_mine) = repository.looks.get(wish, ask).await?;
        if is_mine {
            repository.wake_others(&look);
        }
        Ok(look)
    }

    /// Fetches the commit into the store, with its tree and without history. Does nothing if it is there already.
    ///
    /// # Errors
    /// [`GitError::CommitGone`] when the ref has moved meanwhile: the caller resolves again at once. [`GitError::CommitRefused`] for a pinned
    /// commit that the server does not hand out. [`GitError::PackTooLarge`], [`GitError::CorruptData`],
    /// [`GitError::StorageFailed`], [`GitError::Timeout`], [`GitError::Silent`] and what a connection can meet.
    pub async fn fetch(&self, revision: &Revision) -> Result<(), GitError> {
        let inner = &self.inner;
        let (key, deadline) = (inner.fetch_key(revision)?, Instant::now() + inner.timeout);
        let fetched = inner.repository.fetches.join(&key, deadline, || async {
            let time = deadline.saturating_duration_since(Instant::now());
            let work = move |inner: &Inner, control: &Control| inner.fetch(key, control);
            self.attempt("fetching the commit", time, work).await
        });
        self.take(key.0, fetched.await).await
    }

    /// The same if somebody else is fetching the commit: waits for that, which takes no memory. `None` if nobody does.
    ///
    /// # Errors
    /// As [`Self::fetch`]. `None` when they have given up.
    #[must_use]
    pub fn fetch_of_another(
        &self,
        revision: &Revision,
    ) -> Option<BoxFuture<'_, Option<Result<(), GitError>>>> {
        let inner = &self.inner;
        let key = inner.fetch_key(revision).ok()?;
        let running = inner.repository.fetches.running(&key)?;
        let deadline = Instant::now() + inner.timeout;
        Some(Box::pin(async move {
            match running.result(deadline).await {
                Some(fetched) => Some(self.take(key.0, fetched).await),
                None => None,
            }
        }))
    }

    /// Keeps what was fetched until it is read.
    async fn take(
        &self,
        want: ObjectId,
        fetched: Result<Fetched, GitError>,
    ) -> Result<(), GitError> {
        let inner = &self.inner;
        let is_pinned = matches!(inner.follower.target, Target::Commit(_));
        let Fetched { generation, is_new } = fetched.map_err(|error| match error {
            GitError::CommitGone { commit } if is_pinned => GitError::CommitRefused { commit },
            error => error,
        })?;
        if is_pinned && !is_new {
            // Somebody else has fetched it. The server has to say first that we may still read the repository.
            self.look(Some(MAX_AGE_OF_LEAVE)).await?.of(&inner.follower.target).transpose()?;
        }
        if let Some(tag) = inner.trust.tag_of(&want) {
            generation.note_tag(&tag)?;
        }
        *inner.fetched.lock() = Some((want, generation));
        Ok(())
    }

    /// Verifies a fetched commit, and lists its tree below `path`.
    ///
    /// # Errors
    /// [`GitError::NotVerified`]: then nothing of its tree was read.
    /// [`GitError::InvalidPath`], [`GitError::PathMissing`], [`GitError::PathNotAFolder`], [`GitError::CommitGone`]
    /// (not fetched), [`GitError::CorruptData`] (fetch again: the store heals), [`GitError::Timeout`].
    pub async fn snapshot(&self, commit: &str, path: &str) -> Result<Arc<Snapshot>, GitError> {
        let commit = check::commit_id(commit)?;
        let path = check::path(path)?;
        let time = self.inner.timeout;
        self.attempt("reading the tree", time, move |inner, control| {
            inner.snapshot(commit, path, control)
        })
        .await
    }

    /// Verifies a fetched commit, and finds the ids of what is at some paths of it, in their order, as [`Snapshot::tree_id`] does. Nothing is
    /// listed. A path that no tree may have counts as missing.
    ///
    /// # Errors
    /// As [`Self::snapshot`], but for those of the path.
    pub async fn tree_ids(
        &self,
        commit: &str,
        paths: Vec<String>,
    ) -> Result<Vec<Option<String>>, GitError> {
        let commit = check::commit_id(commit)?;
        let time = self.inner.timeout;
        self.attempt("reading the tree", time, move |inner, control| {
            inner.tree_ids(commit, &paths, control)
        })
        .await
    }

    /// Runs blocking work for at most a time. One attempt at a time runs for the owner.
    async fn attempt<T: Send + 'static>(
        &self,
        what: &'static str,
        time: Duration,
        work: impl FnOnce(&Inner, &Control) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let inner = Arc::clone(&self.inner);
        let work = move |control: &Control| work(&inner, control);
        // gix trusts offsets in files on disk, so a damaged file can make it panic.
        let panicked = || self.inner.distrust_store();
        self.inner.turn.run(what, (time, self.inner.timeout), work, panicked).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn everything_crosses_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Remote>();
        crosses::<Snapshot>();
        crosses::<Folder>();
        crosses::<GitError>();
    }
}
