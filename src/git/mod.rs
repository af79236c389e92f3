//! Everything that knows Git: finds the commit of a ref, fetches it, and reads its tree without a checkout.
//!
//! ```text
//! Remote::resolve ─► ls-refs: lists one ref                     (protocol, http, ssh)
//! Remote::fetch ───► that commit, depth 1, into a store         (protocol, http, ssh, store)
//! Remote::snapshot ► the tree below a path, within budgets      (snapshot, listing, table); blobs are read on demand
//! Credentials ─────► what a Secret has for the server            (credentials; github_app: tokens that are asked for)
//! Keys ────────────► who may sign what is read                   (verify, trust)
//! open_local, Folder: the same view of a commit of a local repository, or of a folder on disk
//! ```
//! No `git` binary is run, no configuration of the machine is read, and nothing from a repository is executed. Links and submodules are
//! never followed. gix blocks, so it runs on blocking threads. Each attempt has a deadline, which ends its waits for the network and sets
//! gix's interrupt flag. At most one attempt runs for each store folder (attempt).
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this module uses Git, the disk and the clock"
)]

mod attempt;
mod check;
mod credentials;
mod error;
mod github_app;
mod http;
mod listing;
mod local;
mod objects;
mod protocol;
mod snapshot;
mod ssh;
mod store;
mod table;
mod trust;
mod verify;
mod wire;

use parking_lot::Mutex;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gix::ObjectId;
use reqwest::header::HeaderValue;
use semver::VersionReq;

pub use self::check::path as check_path;
pub use self::credentials::{Credentials, NoCredentials, are_for, origin};
pub use self::error::GitError;
pub use self::github_app::{AppToken, GitHubApp, NoToken};
pub use self::local::{Folder, open_local, repository_root};
pub use self::snapshot::Snapshot;
pub use self::verify::{Keys, NoKeys, SignedPart, Unverified, Verification};
pub use convoke_core::git::{CommitInfo, Revision};

use self::attempt::{Control, Turn};
use self::check::{Location, Schemes, Target};
use self::http::Session;
use self::protocol::{Link, RefKind};
use self::snapshot::TreeRequest;
use self::store::{Generation, Store};
use self::trust::Trust;
use self::wire::Wire;
use crate::api::git_sync::GitRef;
use crate::net::{Client, ClientOptions, Dialler};

/// Private parts that a fuzzer calls.
#[doc(hidden)]
pub(crate) mod fuzzing {
    use super::check::{self, Location, Schemes};
    use super::{Credentials, GitRef};
    use crate::net::Endpoint;

    /// The server and the path of a URL that is accepted.
    pub(crate) fn url(text: &str) -> Option<(Endpoint, String)> {
        match check::url(text, Schemes::HttpToo).ok()? {
            Location::Http(url) => {
                let port = url.port_or_known_default()?;
                let open = url.username().is_empty() && url.password().is_none();
                assert!(open && url.query().is_none() && url.fragment().is_none(), "{text:?}");
                Some((Endpoint::new(url.host_str()?, port), url.path().to_owned()))
            }
            Location::Ssh(url) => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
                assert!(url.user.chars().all(is_plain) && !url.user.starts_with('-'), "{text:?}");
                Some((url.server, url.path))
            }
        }
    }

    /// Whether a ref is accepted.
    pub(crate) fn reference(reference: &GitRef) -> bool {
        match check::target(reference) {
            Ok(check::Target::Versions(range, _)) => {
                let tags = ["v1.0.0", "2.0.0-rc.1", "x", "v", "1.2", "99999999999999999999.0.0"];
                let _ = check::highest(&range, tags.into_iter());
                true
            }
            other => other.is_ok(),
        }
    }

    /// Whether the name of an entry of a tree is accepted.
    pub(crate) fn is_plain_name(name: &[u8]) -> bool {
        check::name_problem(name).is_none()
    }

    /// Looks for the keys of a host.
    pub(crate) fn check_host_key(credentials: &Credentials, host: &str) {
        if let Some(ssh) = &credentials.ssh {
            let keys = ssh.known_hosts.of(&Endpoint::new(host, 22));
            assert!(keys.check(ssh.key.public_key()).is_err() || !keys.algorithms().is_empty());
        }
    }
}

/// Bytes that the sideband's framing and progress messages may add to a pack.
const MAX_FRAMING_BYTES: u64 = 1024 * 1024;

/// How large a repository may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one received pack. One object may take twice as much in memory.
    pub pack_bytes: u64,
    /// Files below the synced path. The same number is allowed of folders.
    pub files: usize,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Levels of folders below the synced path.
    pub depth: usize,
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
    /// A folder for fetched objects that belongs to this remote only. It is created when needed, and survives restarts.
    pub store: PathBuf,
    /// Budgets.
    pub limits: Limits,
}

/// One repository and ref, with its connection and its store. It is kept between polls. A clone shares everything.
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
    target: Target,
    timeout: Duration,
    silence: Duration,
    limits: Limits,
    server: Server,
    trust: Trust,
    store: Store,
    /// Shared with every remote of the same store folder.
    turn: Arc<Turn>,
    /// The last snapshot, so that it need not be read again.
    last: Mutex<Option<Cached>>,
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

impl Remote {
    /// Checks the URL and the ref. It opens no connection, and does not use the disk.
    ///
    /// # Errors
    /// [`GitError::InvalidUrl`], [`GitError::InsecureConnection`], [`GitError::AddressRefused`], [`GitError::InvalidRef`],
    /// [`GitError::InvalidRoots`], [`GitError::InvalidIdentity`], [`GitError::CredentialsNeeded`]: all terminal. [`GitError::ConnectionFailed`] when the machine has no certificate authorities at all.
    pub fn new(options: RemoteOptions) -> Result<Self, GitError> {
        let RemoteOptions {
            url,
            reference,
            timeout,
            silence,
            dialler,
            credentials,
            verification,
            store,
            limits,
        } = options;
        let schemes =
            if dialler.allows_plain_http() { Schemes::HttpToo } else { Schemes::HttpsOnly };
        let target = check::target(&reference)?;
        let trust = Trust::new(verification, &target)?;
        let server = match check::url(&url, schemes)? {
            Location::Http(url) => {
                let user_agent = concat!("git/convoke-", env!("CARGO_PKG_VERSION"));
                let Credentials { authorization, roots, identity, proxy, .. } = credentials;
                let (roots, identity) = (roots.as_deref(), identity.as_deref());
                let options = ClientOptions { user_agent, roots, identity, proxy: proxy.as_ref() };
                let client = dialler.client(&url, options)?;
                Server::Http { client, authorization }
            }
            Location::Ssh(url) => {
                let credentials = credentials.ssh.ok_or(GitError::CredentialsNeeded)?;
                dialler.check_host(&url.server)?;
                Server::Ssh(ssh::Server { url, credentials, dialler })
            }
        };
        Ok(Self {
            inner: Arc::new(Inner {
                url,
                target,
                timeout,
                silence,
                limits,
                server,
                trust,
                turn: Turn::of(&store),
                store: Store::new(store, object_bytes(&limits)),
                last: Mutex::new(None),
            }),
        })
    }

    /// Asks the server for the current commit of the ref, by one `ls-refs` for this ref. A pinned commit needs no request.
    ///
    /// # Errors
    /// [`GitError::RefNotFound`], [`GitError::EmptyRepository`], [`GitError::Timeout`] and what a connection can meet.
    pub async fn resolve(&self) -> Result<Revision, GitError> {
        let (kind, name) = match &self.inner.target {
            Target::Commit(id) => {
                return Ok(Revision { commit: id.to_string(), name: String::new() });
            }
            Target::Branch(name) => (RefKind::Branch, name.clone()),
            Target::Tag(name) => (RefKind::Tag, name.clone()),
            Target::Ref(name) => (RefKind::Full, name.clone()),
            Target::Versions(range, text) => {
                return self.resolve_versions(range.clone(), text.clone()).await;
            }
        };
        self.attempt("asking the server for the ref", move |inner, control| {
            let (link, wire) = inner.listing(control);
            let found = protocol::resolve(link, wire, kind, &name)?;
            inner.trust.note(found, &name);
            Ok(Revision { commit: found.commit.to_string(), name })
        })
        .await
    }

    async fn resolve_versions(
        &self,
        range: VersionReq,
        text: String,
    ) -> Result<Revision, GitError> {
        self.attempt("asking the server for its tags", move |inner, control| {
            let (link, wire) = inner.listing(control);
            let (found, name) = protocol::resolve_versions(link, wire, &range, &text)?;
            inner.trust.note(found, &name);
            Ok(Revision { commit: found.commit.to_string(), name })
        })
        .await
    }

    /// Fetches the commit into the store, with its tree and without history. Does nothing if it is there already.
    ///
    /// # Errors
    /// [`GitError::CommitGone`] when the ref has moved meanwhile: the caller resolves again at once. [`GitError::CommitRefused`] for a pinned
    /// commit that the server does not hand out. [`GitError::PackTooLarge`], [`GitError::CorruptData`],
    /// [`GitError::StorageFailed`], [`GitError::Timeout`], [`GitError::Silent`] and what a connection can meet.
    pub async fn fetch(&self, revision: &Revision) -> Result<(), GitError> {
        let want = check::commit_id(&revision.commit)?;
        self.attempt("fetching the commit", move |inner, control| inner.fetch(want, control))
            .await
            .map_err(|error| match (error, &self.inner.target) {
                (GitError::CommitGone { commit }, Target::Commit(_)) => {
                    GitError::CommitRefused { commit }
                }
                (error, _) => error,
            })
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
        self.attempt("reading the tree", move |inner, control| {
            inner.snapshot(commit, path, control)
        })
        .await
    }

    /// Verifies a fetched commit. Returns the key that signed it; `None` if nothing is to be verified.
    ///
    /// # Errors
    /// [`GitError::NotVerified`], [`GitError::CommitGone`] (not fetched), [`GitError::CorruptData`], [`GitError::Timeout`].
    pub async fn verify(&self, commit: &str) -> Result<Option<String>, GitError> {
        let commit = check::commit_id(commit)?;
        self.attempt("verifying the commit", move |inner, control| {
            let now = inner.store_of(&commit, control)?;
            inner.verify(&now, &commit)
        })
        .await
    }

    /// Runs blocking work with a deadline. One attempt at a time runs for the store folder.
    async fn attempt<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Inner, &Control) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let inner = Arc::clone(&self.inner);
        let work = move |control: &Control| work(&inner, control);
        // gix trusts offsets in files on disk, so a damaged file can make it panic.
        let panicked = || self.inner.distrust_store();
        self.inner.turn.run(what, self.inner.timeout, work, panicked).await
    }
}

/// Bytes of memory that one decoded object may take.
fn object_bytes(limits: &Limits) -> usize {
    usize::try_from(limits.pack_bytes.saturating_mul(2)).unwrap_or(usize::MAX)
}

impl Inner {
    /// The way to the server, for a list of refs.
    fn listing(&self, control: &Control) -> (Link, Wire) {
        let limit = protocol::MAX_LISTING_BYTES;
        let too_large = GitError::AnswerTooLarge { limit };
        self.link(Wire::new(control.bounds.clone(), None, limit, too_large))
    }

    fn link(&self, wire: Wire) -> (Link, Wire) {
        let link = match &self.server {
            Server::Http { client, authorization } => {
                let session = Session::new(client.clone(), authorization.clone(), wire.clone());
                Link::Http(self.url.clone(), Box::new(session))
            }
            Server::Ssh(server) => Link::Ssh(server.clone()),
        };
        (link, wire)
    }

    /// Fetches a commit: on top of the one before if that works, otherwise into a fresh store.
    fn fetch(&self, want: ObjectId, control: &Control) -> Result<(), GitError> {
        let current = self.store.current(&control.interrupt)?;
        let current = current.filter(|now| now.kind() == want.kind() && !now.is_damaged());
        let open = match current.as_ref().map(|now| now.objects()).transpose() {
            Err(GitError::CorruptData { .. }) => None,
            open => open?,
        };
        if let (Some(now), Some(_open)) = (&current, &open) {
            let tag = self.trust.tag_of(&want);
            if now.holds(&want) && tag.as_ref().is_none_or(|tag| now.has(&tag.id)) {
                return tag.map_or(Ok(()), |tag| now.note_tag(&tag));
            }
            if let Some(have) = now.usable_tip() {
                match self.fetch_into(now, want, have, control) {
                    Ok(()) => return Ok(()),
                    // A fresh store does not have the damage.
                    Err(GitError::CorruptData { detail }) => {
                        tracing::warn!(
                            url = self.url,
                            detail,
                            "incremental fetch failed, starting anew"
                        );
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.fetch_anew(want, control)
    }

    /// Fetches the objects of the commit that `have` lacks.
    fn fetch_into(
        &self,
        now: &Generation,
        want: ObjectId,
        have: ObjectId,
        control: &Control,
    ) -> Result<(), GitError> {
        let staging = self.store.incoming()?.join("pack");
        let pack = self.receive(want, Some(have), now.objects()?, &staging, control)?;
        now.add(&pack, &want)?;
        if self.is_complete(now, &want)? {
            return Ok(());
        }
        Err(GitError::corrupt("the server left out objects of the commit"))
    }

    /// Fetches the commit into a fresh store.
    fn fetch_anew(&self, want: ObjectId, control: &Control) -> Result<(), GitError> {
        let incoming = self.store.incoming()?;
        let nothing = gix::objs::find::Never;
        self.receive(want, None, nothing, &incoming.join("pack"), control)?;
        let new = self.store.replace(&incoming, &want)?;
        snapshot::expect_commit(&new.objects()?, &want)?;
        if self.is_complete(&new, &want)? {
            return Ok(());
        }
        new.mark_damaged();
        Err(GitError::corrupt("the server left out objects of the commit"))
    }

    /// Whether all was fetched. Notes the tag that was fetched with the commit.
    fn is_complete(&self, now: &Generation, want: &ObjectId) -> Result<bool, GitError> {
        let tag = self.trust.tag_of(want);
        if !now.holds(want) || tag.as_ref().is_some_and(|tag| !now.has(&tag.id)) {
            return Ok(false);
        }
        tag.map_or(Ok(()), |tag| now.note_tag(&tag)).map(|()| true)
    }

    fn receive(
        &self,
        want: ObjectId,
        have: Option<ObjectId>,
        base: impl gix::objs::Find,
        staging: &std::path::Path,
        control: &Control,
    ) -> Result<protocol::Pack, GitError> {
        let pack_bytes = self.limits.pack_bytes;
        let too_large = GitError::PackTooLarge {
            detail: format!("its pack is larger than {pack_bytes} bytes"),
        };
        let answer_bytes = pack_bytes.saturating_add(MAX_FRAMING_BYTES);
        let silence = Some(self.silence);
        let wire = Wire::new(control.bounds.clone(), silence, answer_bytes, too_large);
        let (link, wire) = self.link(wire);
        let order = protocol::Fetch {
            want,
            tag: self.trust.tag_of(&want).map(|tag| tag.id),
            have,
            base,
            staging,
            object_bytes: object_bytes(&self.limits),
            pack_bytes,
            bounds: &control.bounds,
            interrupt: &control.interrupt,
        };
        protocol::fetch(link, wire, order)
    }

    fn snapshot(
        &self,
        commit: ObjectId,
        path: String,
        control: &Control,
    ) -> Result<Arc<Snapshot>, GitError> {
        let now = self.store_of(&commit, control)?;
        if let Some(cached) = self.last().as_ref()
            && cached.commit == commit
            && cached.path == path
            && cached.snapshot.is_of(&now)
            && !now.is_damaged()
        {
            return Ok(Arc::clone(&cached.snapshot));
        }
        let signer = self.verify(&now, &commit)?;
        let before = self.last().as_ref().map(|cached| Arc::clone(&cached.snapshot));
        let request = TreeRequest {
            commit,
            path: &path,
            limits: self.limits,
            interrupt: &control.interrupt,
            before: before.as_deref(),
        };
        let snapshot = Snapshot::take(now, request).map_err(|error| {
            if *control.bounds.stop.borrow() { control.bounds.timed_out() } else { error }
        })?;
        let snapshot = Arc::new(snapshot.signed_by(signer));
        *self.last() = Some(Cached { commit, path, snapshot: Arc::clone(&snapshot) });
        Ok(snapshot)
    }

    /// The generation of the store that may have this commit.
    fn store_of(&self, commit: &ObjectId, control: &Control) -> Result<Arc<Generation>, GitError> {
        let current = self.store.current(&control.interrupt)?;
        let current = current.filter(|now| now.kind() == commit.kind());
        current.ok_or_else(|| GitError::CommitGone { commit: commit.to_string() })
    }

    /// Verifies a commit of the store. Damage is noted, so that the next fetch starts anew.
    fn verify(&self, now: &Generation, commit: &ObjectId) -> Result<Option<String>, GitError> {
        self.trust.verify(now, &self.target, commit).inspect_err(|error| {
            if matches!(error, GitError::CorruptData { .. }) {
                now.mark_damaged();
            }
        })
    }

    fn last(&self) -> parking_lot::MutexGuard<'_, Option<Cached>> {
        self.last.lock()
    }

    fn distrust_store(&self) {
        if let Ok(Some(now)) = self.store.current(&AtomicBool::new(true)) {
            now.mark_damaged();
        }
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
