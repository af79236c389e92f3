//! Commits that were applied before, by an operator that ran before this one: they are read by their ids.

use std::sync::Arc;

use super::{Coordinates, Loaded, Source};
use crate::api::git_sync::GitSyncSpec;
use crate::cluster::store::Key;
use crate::definition::Context;
use crate::definition::ignore::Patterns;
use crate::definition::variables::Variables;
use crate::git::{GitError, Revision};
use crate::sync::commit::source_error::SourceError;
use crate::sync::order::Seq;

impl Source {
    /// Reads a commit that was applied before, by its id: from the store if it is still there, else from the remote.
    /// For the time after a start in which the newest one cannot be read. Variables may have other values now, so a spec
    /// with variables recalls nothing.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
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

    /// Reads a commit that was applied before beside the newest one, which stays in `loaded`. With the variables of
    /// now: a definition that was applied with other values has another hash. `None` for a folder.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
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

    /// What was put aside counts again, also when whoever did so was given up in the middle.
    pub(super) fn put_back(&mut self) {
        if let Some(newest) = self.aside.take() {
            self.loaded = Some(newest);
        }
    }

    /// After a start: when the newest commit has errors, what was wanted before it is read from the commit that was applied
    /// last. Returns whether anything new is known.
    ///
    /// # Errors
    /// Whatever keeps that from being read. Until then the newest commit is [`Loaded::lost`].
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
                // It was never applied whole, and nobody knows any more what its objects come from.
                return Ok(false);
            }
            // Nothing was ever applied: there is nothing else to know.
            self.loaded = Some(Arc::new(Loaded { lost: false, ..(*loaded).clone() }));
            return Ok(true);
        };
        // Another look at the same says the same.
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
        wanted: Coordinates,
        key: &Key,
        applied: Revision,
        variables: Option<Variables>,
    ) -> Result<(), SourceError> {
        let ignore = Patterns::new(&wanted.ignore).map_err(SourceError::Ignore)?;
        let (namespace, path) = (Some(key.namespace.clone()), wanted.path.clone());
        let context = Context { namespace, path, ignore, variables };
        let (remote, found) = (self.remote(&wanted)?, Seq::next());
        let snapshot = match remote.snapshot(&applied.commit, &wanted.path).await {
            Err(GitError::CommitGone { .. } | GitError::CorruptData { .. }) => {
                // The remote may be the one that just did not answer.
                let _slot = self.slots.ask(&key.namespace).await;
                remote.fetch(&applied).await?;
                remote.snapshot(&applied.commit, &wanted.path).await?
            }
            other => other?,
        };
        let _slot = self.slots.read(&key.namespace).await;
        self.take_in((applied, true), found, &snapshot, wanted, &context, key)
    }
}
