//! What a machine wants to have done, and what came of it.

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
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::poll::{Answer, Question};

/// What is to be done for a GitSync. A driver does it in the order in which it is given.
pub enum Effect {
    /// Send one request to the API server. Its [`Reply`] is given back with the same number, also when there is none.
    Request(u64, Request),
    /// Poll the remote. The answer is given to [`crate::sync::machine::Machine::polled`].
    Poll(Box<PollRequest>),
    /// Nobody waits for the poll any more.
    StopPolling,
    /// Work on this GitSync of the namespace, too, after this time.
    Wake(String, Duration),
    /// Tell of something that happened.
    Event(Box<Event>),
    /// Tell the controllers what a commit wants, which is applied from now on.
    Publish(Box<Published>),
    /// Writes begin, or end with what there is to say of them.
    Writing(bool),
    /// Nothing but the time is asked for: a pass goes on with the `now` that it is given next.
    Tick,
    /// The GitSync is gone: what is kept for it is of no use any more.
    Forget,
}

/// One request to the API server, about an object in the namespace of the machine.
#[derive(Debug, Clone)]
pub struct Request {
    /// With whose rights; `None` for the operator's own.
    pub account: Option<Account>,
    /// What is asked.
    pub call: Call,
}

/// See [`Request`].
#[derive(Debug, Clone)]
pub enum Call {
    /// What the server would say to this apply.
    Rehearse {
        /// Which object.
        id: ObjectId,
        /// All of it that comes from Git.
        manifest: Value,
        /// Whether it may exist.
        mode: Mode,
    },
    /// Server-side apply; the reply is what the server holds then.
    Apply {
        /// Which object.
        id: ObjectId,
        /// All of it that comes from Git.
        manifest: Value,
        /// Whether it may exist.
        mode: Mode,
    },
    /// Replace the whole spec of the object at this version.
    ReplaceSpec {
        /// Which object.
        id: ObjectId,
        /// `metadata.resourceVersion` that it must still have.
        version: u64,
        /// The spec.
        spec: Value,
    },
    /// Read an object.
    Get {
        /// Which object.
        id: ObjectId,
    },
    /// Delete exactly this object at this version.
    Delete {
        /// Which object.
        id: ObjectId,
        /// Its uid.
        uid: String,
        /// `metadata.resourceVersion` that it must still have.
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
        /// The status.
        status: Box<GitSyncStatus>,
    },
    /// Remove fields from the status of the GitSync at this version, whoever has written them.
    ClearStatus {
        /// Its name.
        name: String,
        /// `metadata.resourceVersion` that it must still have.
        version: u64,
        /// All of them are there.
        fields: Vec<&'static str>,
    },
    /// Replace the finalizers of the GitSync at this version.
    Finalizers {
        /// Its name.
        name: String,
        /// `metadata.resourceVersion` that it must still have.
        version: u64,
        /// All of them.
        finalizers: Vec<String>,
    },
    /// Whether this ServiceAccount is there.
    FindAccount(Account),
    /// Whether the account of the request can be acted as.
    TryAccount,
    /// Whether the namespace is there.
    FindNamespace,
}

impl Call {
    /// Whether it takes one of the slots that the writes of all namespaces share.
    #[must_use]
    pub fn takes_slot(&self) -> bool {
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

/// What the API server has answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An object as the server holds it.
    Object(Box<DynamicObject>),
    /// What became of a delete.
    Deleted(Deleted),
    /// It is there; whether it is being deleted.
    Found {
        /// Whether it is being deleted.
        deleting: bool,
    },
    /// It is as asked for.
    Done,
}

/// A reply, or why there is none: then the write may have happened, unless the server itself refused it.
pub type Replied = Result<Reply, CallError>;

/// A poll of a remote.
pub struct PollRequest {
    /// The GitSync as it was when the poll began.
    pub sync: Arc<GitSync>,
    /// What is asked.
    pub question: Question,
    /// Whether what is kept of the repository may have been left half done.
    pub anew: bool,
    /// What was remembered of earlier commits and is of no use any more.
    pub needless: BTreeSet<ObjectId>,
    /// What was applied whole last: it says what was wanted before, when the newest commit has errors.
    pub before: Option<Revision>,
    /// Whether there are objects of the GitSync: then something was wanted before, whether or not it is known what.
    pub has_objects: bool,
    /// What was applied before, which is read when the newest commit cannot be.
    pub applied: Option<Revision>,
    /// What was applied before, which is read beside the newest commit if it is another one.
    pub last: Option<Revision>,
}

/// What a poll has found, or a panic.
pub type Found = Result<Answer, SourceError>;

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

/// Something that happened, for people.
pub struct Event {
    /// The object that it is about.
    pub about: ObjectReference,
    /// Whether somebody has to look at it.
    pub type_: EventType,
    /// One word.
    pub reason: String,
    /// The rest.
    pub note: String,
}

/// What controllers are told of a commit.
pub struct Published {
    /// UID of the GitSync.
    pub uid: String,
    /// The commit that they were told of before.
    pub before: Option<Arc<Loaded>>,
    /// The commit.
    pub loaded: Arc<Loaded>,
}
