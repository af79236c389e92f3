//! One poll of one build: its credentials, the newest commit of its ref, and the ids of its trees.

use std::time::Duration;

use tokio::time::Instant;

use super::{Parts, Place, Poll, Shares};
use crate::cluster::store::Key;
use crate::git::{Credentials, GitError, Remote, RemoteOptions, Repositories, Revision, Wake};
use crate::sync::commit::source_at::SourceAt;
use crate::sync::commit::source_error::SourceError;
use crate::sync::credentials::Cached;
use crate::sync::reasons::SourceReason;

/// How long a server may send nothing while a commit is fetched from it.
const MAX_SERVER_SILENCE: Duration = Duration::from_secs(30);
/// How often a commit that disappeared while it was fetched is looked for again at once.
const MAX_RETRIES_OF_MOVED: u32 = 3;

/// What a poll has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// The commit, and the name that led to it.
    pub revision: Revision,
    /// What is built of it.
    pub source: SourceAt,
}

/// What is kept of a build's repository between its polls.
pub(super) struct Reader {
    /// Of the AgentBuild.
    uid: String,
    known_credentials: Cached,
    /// What the remote asks with.
    credentials: Credentials,
    remote: Option<Remote>,
    /// The store that it used last.
    store: Option<String>,
    /// The last poll that has ended, and when the next one is due.
    last: Option<(Poll, Instant)>,
    /// Whether the last poll has failed.
    failed: bool,
    /// The value of `convoke.dev/requestedAt` that was answered last.
    request: Option<String>,
    /// The newest commit that was read.
    seen: Option<Seen>,
    /// How long before the last poll the remote gave the answer that the poll took.
    pub age: Duration,
}

impl Reader {
    /// Of the AgentBuild with this UID.
    pub fn new(uid: String, request: Option<String>) -> Self {
        Self {
            uid,
            known_credentials: Cached::default(),
            credentials: Credentials::default(),
            remote: None,
            store: None,
            last: None,
            failed: false,
            request,
            seen: None,
            age: Duration::ZERO,
        }
    }

    /// Whether it is of the AgentBuild with this UID.
    pub fn is_of(&self, uid: &str) -> bool {
        self.uid == uid
    }

    /// Gives up the repository. Returns the name of its store.
    pub fn close(self) -> Option<String> {
        drop(self.remote);
        self.store
    }

    /// Whether a poll is due, with how old an answer may be that the remote has given to somebody else. The error says how long to wait.
    pub fn due(
        &self,
        poll: &Poll,
        request: Option<&str>,
        moved: bool,
        now: Instant,
    ) -> Result<Option<Duration>, Duration> {
        let Some((last, next)) = self.last.as_ref().filter(|(last, _)| last.place == poll.place)
        else {
            return Ok(None);
        };
        if self.request.as_deref() != request {
            return Ok(None);
        }
        // Half of the time between two polls: then the remote is asked as often for many builds as for one.
        let max_age = Some(poll.pause(self.failed) / 2);
        // A shorter interval counts from now on.
        let shorter = last.interval.saturating_sub(poll.interval);
        let next = if self.failed { *next } else { next.checked_sub(shorter).unwrap_or(now) };
        let left = next.saturating_duration_since(now);
        if moved || left.is_zero() { Ok(max_age) } else { Err(left) }
    }

    /// A poll has ended.
    pub fn ended(&mut self, poll: &Poll, request: Option<String>, next: Instant) {
        self.request = request;
        self.last = Some((poll.clone(), next));
    }

    /// Polls. The credentials are read again when the server refuses them.
    ///
    /// # Errors
    /// Why the newest commit is not known.
    pub async fn poll(
        &mut self,
        (key, wake): (&Key, Wake),
        poll: &Poll,
        max_age: Option<Duration>,
        parts: &Parts,
    ) -> Result<Seen, SourceError> {
        self.age = Duration::ZERO;
        // Until it has ended well.
        self.failed = true;
        if self.last.as_ref().is_none_or(|(last, _)| last != poll) {
            self.remote = None;
        }
        self.seen.take_if(|_| self.last.as_ref().is_none_or(|(last, _)| last.place != poll.place));
        if max_age.is_none() {
            // Somebody has changed something, or asks for what is true now.
            self.known_credentials.doubt();
        }
        self.log_in(key, poll, parts).await?;
        let mut result = self.look(key, wake.clone(), poll, max_age, parts).await;
        if let Err(error) = &result
            && error.reason().is_of_credentials()
            && poll.place.access.has_secrets()
        {
            if error.reason() == SourceReason::AuthenticationFailed {
                self.known_credentials.distrust();
            } else {
                self.known_credentials.doubt();
            }
            let before = self.credentials.clone();
            self.log_in(key, poll, parts).await?;
            if self.credentials != before {
                result = self.look(key, wake, poll, None, parts).await;
            }
            if result.is_err() {
                // They may be changed: the next poll reads them first.
                self.known_credentials.doubt();
            }
        }
        let seen = result?;
        self.failed = false;
        self.seen = Some(seen.clone());
        Ok(seen)
    }

    /// Reads the credentials, unless they were read a moment ago.
    async fn log_in(&mut self, key: &Key, poll: &Poll, parts: &Parts) -> Result<(), SourceError> {
        let Parts { client, operator, dialler, shares, .. } = parts;
        let permit = shares.concurrency.poll(&key.namespace).await;
        let (known, access) = (&mut self.known_credentials, &poll.place.access);
        let read = known.refresh(client, &key.namespace, access, operator, dialler).await;
        drop(permit);
        // Also without any: nothing is asked with those of before.
        if self.credentials != *known.credentials() {
            self.credentials = known.credentials().clone();
            self.remote = None;
        }
        read
    }

    async fn remote(
        &mut self,
        wake: Wake,
        poll: &Poll,
        parts: &Parts,
    ) -> Result<Remote, SourceError> {
        if let Some(remote) = &self.remote {
            return Ok(remote.clone());
        }
        let Shares { repositories, limits, .. } = &parts.shares;
        let remote = Remote::new(RemoteOptions {
            url: poll.place.url.clone(),
            reference: poll.place.reference.clone(),
            timeout: poll.timeout,
            silence: MAX_SERVER_SILENCE,
            dialler: parts.dialler.clone(),
            credentials: self.credentials.clone(),
            verification: None,
            owner: self.uid.clone(),
            repositories: repositories.clone(),
            wake: Some(wake),
            limits: *limits,
        })?;
        let store = remote.repository().to_owned();
        if let Some(old) = self.store.replace(store.clone()).filter(|old| *old != store) {
            // With another URL or other credentials nothing of it is used any more.
            remove_unused(repositories.clone(), old).await;
        }
        Ok(self.remote.insert(remote).clone())
    }

    /// Asks for the newest commit. One that was not read before is fetched and read.
    async fn look(
        &mut self,
        key: &Key,
        wake: Wake,
        poll: &Poll,
        mut max_age: Option<Duration>,
        parts: &Parts,
    ) -> Result<Seen, SourceError> {
        let remote = self.remote(wake, poll, parts).await?;
        let limits = &parts.shares.concurrency;
        let mut retries = 0;
        loop {
            let permit = limits.poll(&key.namespace).await;
            let answered = remote.resolve_within(max_age).await;
            drop(permit);
            self.age = answered.age;
            let revision = answered.revision?;
            if let Some(seen) = self.seen.as_ref().filter(|seen| seen.revision == revision) {
                return Ok(seen.clone());
            }
            let mut permit = limits.read(&key.namespace).await;
            let mut fetched = None;
            if let Some(other) = remote.fetch_of_another(&revision) {
                // Whoever waits for it takes no place from those who read another repository.
                drop(permit);
                fetched = other.await;
                permit = limits.read(&key.namespace).await;
            }
            let fetched = match fetched {
                Some(fetched) => fetched,
                None => remote.fetch(&revision).await,
            };
            match fetched {
                Ok(()) => {}
                // A forced push moved the ref between the two requests.
                Err(GitError::CommitGone { .. }) if retries < MAX_RETRIES_OF_MOVED => {
                    (retries, max_age) = (retries + 1, None);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let source = read(&remote, &revision, &poll.place).await?;
            drop(permit);
            return Ok(Seen { revision, source });
        }
    }
}

/// The ids of the trees that a build is made of, at a fetched commit.
async fn read(remote: &Remote, revision: &Revision, place: &Place) -> Result<SourceAt, GitError> {
    let paths: Vec<_> = std::iter::once(&place.subfolder).chain(&place.paths).cloned().collect();
    let ids = match remote.tree_ids(&revision.commit, paths.clone()).await {
        // The store was damaged, which shows only now. A fetch makes the store anew.
        Err(GitError::CorruptData { .. }) => {
            remote.fetch(revision).await?;
            remote.tree_ids(&revision.commit, paths).await?
        }
        ids => ids?,
    };
    let mut ids = ids.into_iter();
    let subfolder_tree = ids.next().flatten();
    Ok(SourceAt {
        sync: String::new(),
        url: place.url.clone(),
        commit: revision.commit.clone(),
        subfolder_tree,
        paths: place.paths.iter().cloned().zip(ids).collect(),
        applied: None,
    })
}

/// Removes the store of a repository, if nobody uses it.
pub(super) async fn remove_unused(repositories: Repositories, store: String) {
    let remove = move || {
        if let Err(error) = repositories.remove_unused(&store) {
            tracing::warn!(%error, "cannot remove fetched objects");
        }
    };
    let _ = tokio::task::spawn_blocking(remove).await;
}

#[cfg(test)]
#[path = "tests/reader.rs"]
mod tests;
