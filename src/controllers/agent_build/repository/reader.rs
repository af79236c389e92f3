//! One poll of one build: its credentials, the newest commit of its ref, and the ids of its trees.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Parts, Place, Poll};
use crate::cluster::store::Key;
use crate::git::{GitError, Remote, Revision};
use crate::sync::commit::source_at::{DockerfileAt, SourceAt};
use crate::sync::commit::source_error::SourceError;
use crate::sync::credentials::Cached;
use crate::sync::newest::{Fetched, Newest, Trace, Wanted};
use convoke_core::dockerfile::MAX_BYTES;

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
    newest: Newest,
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
    pub fn new(uid: String, newest: Newest, request: Option<String>) -> Self {
        Self {
            uid,
            known_credentials: Cached::default(),
            newest,
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
    pub fn close(mut self) -> Option<String> {
        self.newest.close()
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
        key: &Key,
        poll: &Poll,
        max_age: Option<Duration>,
        parts: &Parts,
    ) -> Result<Seen, SourceError> {
        self.age = Duration::ZERO;
        // Until it has ended well.
        self.failed = true;
        if self.last.as_ref().is_none_or(|(last, _)| last != poll) {
            self.newest.start_anew();
        }
        self.seen.take_if(|_| self.last.as_ref().is_none_or(|(last, _)| last.place != poll.place));
        if max_age.is_none() {
            // Somebody has changed something, or asks for what is true now.
            self.known_credentials.doubt();
        }
        self.log_in(key, poll, parts).await?;
        let mut result = self.look(key, poll, max_age).await;
        if let Err(error) = &result
            && error.reason().is_of_credentials()
            && poll.place.access.has_secrets()
        {
            self.known_credentials.refused(error.reason());
            if self.log_in(key, poll, parts).await? {
                result = self.look(key, poll, None).await;
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

    /// Reads the credentials, unless they were read a moment ago. Returns whether they are others than before.
    async fn log_in(&mut self, key: &Key, poll: &Poll, parts: &Parts) -> Result<bool, SourceError> {
        let Parts { client, operator, dialler, shares, .. } = parts;
        let permit = shares.concurrency.poll(&key.namespace).await;
        let (known, access) = (&mut self.known_credentials, &poll.place.access);
        let read = known.refresh(client, &key.namespace, access, operator, dialler).await;
        drop(permit);
        // Also without any: nothing is asked with those of before.
        let are_other = self.newest.ask_with(known.credentials());
        read.map(|()| are_other)
    }

    /// Asks for the newest commit. One that was not read before is fetched and read.
    async fn look(
        &mut self,
        key: &Key,
        poll: &Poll,
        max_age: Option<Duration>,
    ) -> Result<Seen, SourceError> {
        let Place { url, reference, .. } = &poll.place;
        let wanted = Wanted { url, reference, timeout: poll.timeout, verification: None };
        let remote = self.newest.remote(wanted).await?;
        let (seen, mut trace) = (self.seen.as_ref(), Trace::default());
        let is_known = |revision: &_| seen.is_some_and(|seen| seen.revision == *revision);
        let newest = &self.newest;
        let fetched = newest.fetch_newest(&remote, &key.namespace, max_age, is_known, &mut trace);
        let fetched = fetched.await;
        self.age = trace.asked.map_or(Duration::ZERO, |(_, age)| age);
        let Some(Fetched { revision, permit: _permit, .. }) = fetched? else {
            // Only a commit that was seen is known.
            return self.seen.clone().ok_or_else(|| GitError::Busy.into());
        };
        let source = read(&remote, &revision, &poll.place).await?;
        Ok(Seen { revision, source })
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
    let dockerfile = match &place.dockerfile {
        Some(path) => {
            let content = remote.file(&revision.commit, path.clone(), MAX_BYTES).await?;
            Some(DockerfileAt::new(path.clone(), content.as_deref().map_err(Clone::clone)))
        }
        None => None,
    };
    Ok(SourceAt {
        sync: String::new(),
        url: place.url.clone(),
        commit: revision.commit.clone(),
        subfolder_tree,
        paths: place.paths.iter().cloned().zip(ids).collect(),
        dockerfile,
        base_images: BTreeMap::new(),
        applied: None,
    })
}

#[cfg(test)]
#[path = "tests/reader.rs"]
mod tests;
