//! Reads commits again that an earlier run of the operator applied. They are read by their ids.

use std::sync::Arc;
use std::time::Duration;

use super::{Coordinates, Incoming, Loaded, Source};
use crate::api::git_sync::GitSyncSpec;
use crate::cluster::store::Key;
use crate::definition::Context;
use crate::definition::ignore::Patterns;
use crate::definition::variables::Variables;
use crate::git::{GitError, Revision};
use crate::order::Seq;
use crate::sync::commit::source_error::SourceError;

/// How old an answer of the server may be that shows that it can be reached.
const MAX_AGE_OF_ANSWER: Duration = Duration::from_secs(10);

impl Source {
    /// Reads a commit that was applied before into `loaded`, for the time after a start in which the newest commit cannot be
    /// read. It comes from the store if it is still there, otherwise from the remote. A spec with variables recalls nothing,
    /// because the variables may have other values now.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub async fn recall(
        &mut self,
        spec: &GitSyncSpec,
        key: &Key,
        applied: Revision,
    ) -> Result<(), SourceError> {
        self.put_back();
        let wanted = Coordinates::of(spec);
        if self.loaded.is_some() || self.local.is_some() || spec.variables.is_some() {
            return Ok(());
        }
        self.read_again(wanted, key, applied, None).await
    }

    /// Reads a commit that was applied before, and returns it. The newest commit stays in `loaded`. It is read with today's
    /// variables, so a definition that was applied with other values has another hash. `None` for a folder.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub async fn before(
        &mut self,
        spec: &GitSyncSpec,
        key: &Key,
        applied: Revision,
        variables: Option<Variables>,
    ) -> Result<Option<Arc<Loaded>>, SourceError> {
        if self.local.is_some() {
            return Ok(None);
        }
        self.put_back();
        self.aside = self.loaded.take();
        let read = self.read_again(Coordinates::of(spec), key, applied, variables).await;
        let before = self.loaded.take();
        self.put_back();
        read.map(|()| before)
    }

    /// Makes the commit that was put aside the newest one again. Every method begins with this, because the future that put it
    /// aside may have been dropped before its end.
    pub(super) fn put_back(&mut self) {
        if let Some(newest) = self.aside.take() {
            self.loaded = Some(newest);
        }
    }

    /// After a start, when the newest commit has errors: learns what was wanted before it from the commit that was applied last.
    /// `has_objects` says whether the GitSync owns objects. Returns whether anything new is known.
    ///
    /// # Errors
    /// The reason why the commit cannot be read. Until it is read, the newest commit is [`Loaded::lost`].
    pub async fn reach_back(
        &mut self,
        spec: &GitSyncSpec,
        key: &Key,
        (applied, has_objects): (Option<Revision>, bool),
        variables: Option<Variables>,
    ) -> Result<bool, SourceError> {
        self.put_back();
        let Some(loaded) = self.loaded.clone().filter(|loaded| loaded.lost) else {
            return Ok(false);
        };
        let Some(applied) = applied else {
            if has_objects {
                // No commit was ever applied completely, so it is not known which commits its objects come from.
                return Ok(false);
            }
            // Nothing was ever applied, so nothing is missing.
            self.loaded = Some(Arc::new(Loaded { lost: false, ..(*loaded).clone() }));
            return Ok(true);
        };
        // The same commit read again says the same.
        if applied.commit == loaded.revision.commit || self.reached.as_ref() == Some(&applied) {
            return Ok(false);
        }
        let before = self.before(spec, key, applied.clone(), variables).await?;
        self.reached = Some(applied);
        self.loaded = before.map(|before| Arc::new(loaded.after(&before))).or(Some(loaded));
        Ok(true)
    }

    /// Reads a commit by its id into `loaded`.
    async fn read_again(
        &mut self,
        coordinates: Coordinates,
        key: &Key,
        revision: Revision,
        variables: Option<Variables>,
    ) -> Result<(), SourceError> {
        let ignore = Patterns::new(&coordinates.ignore).map_err(SourceError::Ignore)?;
        let (namespace, path) = (Some(key.namespace.clone()), coordinates.path.clone());
        let context = Context { namespace, path, ignore, variables };
        let (remote, found) = (self.remote(&coordinates).await?, Seq::next());
        let mut permit = self.newest.shares().concurrency.read(&key.namespace).await;
        let snapshot = match remote.snapshot(&revision.commit, &coordinates.path).await {
            Err(GitError::CommitGone { .. } | GitError::CorruptData { .. }) => {
                drop(permit);
                {
                    // The server may be the one that just did not answer. It takes no place from those who read until it does.
                    let _permit = self.newest.shares().concurrency.poll(&key.namespace).await;
                    remote.reach(MAX_AGE_OF_ANSWER).await?;
                }
                let fetched;
                (permit, fetched) = self.newest.fetch(&remote, &revision, &key.namespace).await;
                fetched?;
                remote.snapshot(&revision.commit, &coordinates.path).await?
            }
            other => other?,
        };
        let incoming = Incoming { revision, found, recalled: true, coordinates, context };
        let taken = self.take_in(incoming, &snapshot, key);
        drop(permit);
        taken
    }
}
