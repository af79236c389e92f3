//! The GitSync that a reconcile works on.

use std::sync::Arc;
use std::time::Duration;

use crate::api::GitSync;
use crate::api::git_sync::GitSyncStatus;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::git::Revision;
use crate::sync::commit::desired::SyncRef;
use crate::sync::io::Io;
use crate::sync::live_namespace::LiveNamespace;
use crate::time::parse_duration;

/// The GitSync that a reconcile works on, as it was at the begin.
pub(crate) struct Subject<'a> {
    pub io: &'a Io,
    pub key: &'a Key,
    pub entry: &'a Entry<Managed<GitSync>>,
    pub sync: &'a Arc<GitSync>,
    pub generation: i64,
    /// The status that this operator has written last, if another writer has overwritten it since.
    pub own: Option<&'a GitSyncStatus>,
}

impl<'a> Subject<'a> {
    /// The value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        self.sync.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// The status that the reconcile starts from.
    pub fn status(&self) -> Option<&'a GitSyncStatus> {
        self.own.or(self.sync.status.as_ref())
    }

    /// The commit that was applied whole last, if that was for this spec. Read from the status.
    pub fn applied_before(&self) -> Option<Revision> {
        self.last_applied().filter(|_| self.entry.value.is_ready())
    }

    /// The commit that was applied whole last, for any spec. Read from the status.
    pub fn last_applied(&self) -> Option<Revision> {
        Revision::parse(self.status()?.last_applied_revision.as_deref()?)
    }

    /// Whether the status says that this commit is applied whole for this spec. Never true with variables: their values may
    /// have changed since.
    pub fn was_applied_whole(&self, commit: &Revision) -> bool {
        self.sync.spec.variables.is_none() && self.applied_before().as_ref() == Some(commit)
    }

    /// The identity of the GitSync, for plans.
    pub fn reference(&self) -> SyncRef {
        SyncRef {
            uid: self.entry.uid.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            generation: self.generation,
        }
    }

    /// When to retry after an error that no watch reports as fixed, such as missing rights: `spec.retryInterval`.
    pub fn retry_after(&self) -> Duration {
        parse_duration(&self.sync.spec.retry_interval).unwrap_or(Duration::from_secs(30))
    }

    /// The live objects of its namespace.
    pub fn live(&self, stores: &'a Stores) -> LiveNamespace<'a> {
        LiveNamespace { stores, namespace: &self.key.namespace }
    }
}
