//! One GitSync as a reconcile looks at it.

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

/// The GitSync, its live object, and what its status says.
pub(crate) struct Subject<'a> {
    pub io: &'a Io,
    pub key: &'a Key,
    pub entry: &'a Entry<Managed<GitSync>>,
    pub sync: &'a Arc<GitSync>,
    pub generation: i64,
    /// What counts instead of its status, if somebody else has written over what this operator has said.
    pub own: Option<&'a GitSyncStatus>,
}

impl<'a> Subject<'a> {
    pub fn annotation(&self, name: &str) -> Option<&'a str> {
        self.sync.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub fn status(&self) -> Option<&'a GitSyncStatus> {
        self.own.or(self.sync.status.as_ref())
    }

    /// The commit that was applied whole for this very spec, as the status says.
    pub fn applied_before(&self) -> Option<Revision> {
        self.last_applied().filter(|_| self.entry.value.is_ready())
    }

    /// The commit that was applied whole last, for this spec or for another one.
    pub fn last_applied(&self) -> Option<Revision> {
        Revision::parse(self.status()?.last_applied_revision.as_deref()?)
    }

    /// Whether an operator before this one has applied the commit whole, for this spec. With variables the same commit may
    /// mean something else by now.
    pub fn was_applied_whole(&self, commit: &Revision) -> bool {
        self.sync.spec.variables.is_none() && self.applied_before().as_ref() == Some(commit)
    }

    pub fn reference(&self) -> SyncRef {
        SyncRef {
            uid: self.entry.uid.clone(),
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            generation: self.generation,
        }
    }

    /// Rights that are missing may be given at any time, and nothing says so: when to try again.
    pub fn retry_after(&self) -> Duration {
        parse_duration(&self.sync.spec.retry_interval).unwrap_or(Duration::from_secs(30))
    }

    /// The live objects of our kinds in its namespace.
    pub fn live(&self, stores: &'a Stores) -> LiveNamespace<'a> {
        LiveNamespace { stores, namespace: &self.key.namespace }
    }
}
