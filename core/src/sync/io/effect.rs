//! What reconciles ask of their driver, and the replies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::api::git_sync::GitSyncStatus;
use crate::api::{GitSync, ObjectId};
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::write::{Deleted, Mode};
use crate::git::Revision;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::poll::Question;

/// What a reconcile asks of its driver. The driver carries out the effects in their order.
pub enum Effect {
    /// Send one request to the API server. The driver hands back the [`Reply`], or the error, with the same number.
    Request(u64, Request),
    /// Poll the remote. The driver gives the answer to [`crate::sync::machine::Machine::polled`].
    Poll(Box<PollRequest>),
    /// Cancel the poll.
    StopPolling,
    /// Reconcile this other GitSync of the namespace after this delay.
    Wake(String, Duration),
    /// Record a Kubernetes event.
    Event(Box<Event>),
    /// Publish to the controllers what a commit wants. From now on the reconcile applies it.
    Publish(Box<Published>),
    /// `true` before the first write of a plan, `false` once its result is in the status. In between the writes of GitSyncs have
    /// priority over those of controllers.
    Writing(bool),
    /// Supply the time: the reconcile goes on with the time of the next call.
    Tick,
    /// The GitSync does not exist any more: drop all that is kept for it.
    Forget,
}

/// One request to the API server, about an object in the namespace of the machine.
#[derive(Debug, Clone)]
pub struct Request {
    /// The account to impersonate; `None` for the operator itself.
    pub account: Option<Account>,
    /// The request.
    pub call: Call,
}

/// The kinds of requests.
#[derive(Debug, Clone)]
pub enum Call {
    /// Server-side apply as a dry run.
    Rehearse {
        /// The object.
        id: ObjectId,
        /// All fields that come from Git.
        manifest: Value,
        /// Whether the object is created or updated.
        mode: Mode,
    },
    /// Server-side apply. The reply is the object as stored.
    Apply {
        /// The object.
        id: ObjectId,
        /// All fields that come from Git.
        manifest: Value,
        /// Whether the object is created or updated.
        mode: Mode,
    },
    /// Replace the whole spec of an object.
    ReplaceSpec {
        /// The object.
        id: ObjectId,
        /// The `metadata.resourceVersion` that it must still have.
        version: u64,
        /// The new spec.
        spec: Value,
    },
    /// Read an object.
    Get {
        /// The object.
        id: ObjectId,
    },
    /// Delete an object, if its uid and version are still these.
    Delete {
        /// The object.
        id: ObjectId,
        /// Its uid.
        uid: String,
        /// The `metadata.resourceVersion` that it must still have.
        version: u64,
    },
    /// Read the GitSync.
    GetSync {
        /// Its name.
        name: String,
    },
    /// Replace the status of the GitSync.
    Status {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
        /// The new status.
        status: Box<GitSyncStatus>,
    },
    /// Remove fields from the status of the GitSync, whichever writer has set them.
    ClearStatus {
        /// Its name.
        name: String,
        /// The `metadata.resourceVersion` that it must still have.
        version: u64,
        /// The fields. All of them are set.
        fields: Vec<&'static str>,
    },
    /// Replace the finalizers of the GitSync.
    Finalizers {
        /// Its name.
        name: String,
        /// The `metadata.resourceVersion` that it must still have.
        version: u64,
        /// The new list.
        finalizers: Vec<String>,
    },
    /// Whether this ServiceAccount exists.
    FindAccount(Account),
    /// Whether the operator can impersonate the account of the request.
    TryAccount,
    /// Whether the namespace exists.
    FindNamespace,
}

impl Call {
    /// Whether the request counts toward the concurrency limit that all namespaces share.
    #[must_use]
    pub fn counts_toward_limit(&self) -> bool {
        match self {
            Self::Rehearse { .. }
            | Self::Apply { .. }
            | Self::ReplaceSpec { .. }
            | Self::Get { .. }
            | Self::Delete { .. } => true,
            Self::GetSync { .. }
            | Self::Status { .. }
            | Self::ClearStatus { .. }
            | Self::Finalizers { .. }
            | Self::FindAccount(_)
            | Self::TryAccount
            | Self::FindNamespace => false,
        }
    }
}

/// The reply of the API server to a request that succeeded.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An object as stored.
    Object(Box<DynamicObject>),
    /// The outcome of a delete.
    Deleted(Deleted),
    /// The ServiceAccount or namespace exists.
    Found {
        /// Whether it is being deleted.
        deleting: bool,
    },
    /// The request was carried out.
    Done,
}

/// A reply, or why there is none. After an error the write may have happened all the same, unless the API server refused it.
pub type Replied = Result<Reply, CallError>;

/// A poll of a remote.
pub struct PollRequest {
    /// The GitSync at the begin of the poll.
    pub sync: Arc<GitSync>,
    /// The question.
    pub question: Question,
    /// Whether the local copy of the repository may be damaged. Then the poll starts without it.
    pub anew: bool,
    /// Objects of earlier commits that need not be remembered any more.
    pub needless: BTreeSet<ObjectId>,
    /// The commit that was applied whole last, for any spec. If the newest commit has errors, it shows what was wanted before.
    pub before: Option<Revision>,
    /// Whether the GitSync has objects. If so, an earlier commit wanted some, even if that commit is not known.
    pub has_objects: bool,
    /// The commit that was applied whole last for this spec. It is read if the newest commit cannot be.
    pub applied: Option<Revision>,
    /// The commit that is read besides the newest one, if they differ: while dependencies are not ready, it is kept applied.
    pub last: Option<Revision>,
}

/// The type of a Kubernetes event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as intended.
    Normal,
    /// Something went wrong.
    Warning,
}

impl EventType {
    /// [`EventType::Normal`] for what is good, [`EventType::Warning`] for the rest.
    #[must_use]
    pub const fn normal_if(good: bool) -> Self {
        if good { Self::Normal } else { Self::Warning }
    }

    /// The type as Kubernetes writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A Kubernetes event.
pub struct Event {
    /// The object that the event is about.
    pub about: ObjectReference,
    /// Whether somebody has to look at it.
    pub type_: EventType,
    /// The reason, in one word.
    pub reason: String,
    /// The message.
    pub note: String,
}

/// The commit of a GitSync, as published to the controllers.
pub struct Published {
    /// UID of the GitSync.
    pub uid: String,
    /// The commit that was published before.
    pub before: Option<Arc<Loaded>>,
    /// The commit.
    pub loaded: Arc<Loaded>,
}
