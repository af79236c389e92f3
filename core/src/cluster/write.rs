//! What a write may do, and what may come of it.

use kube::core::DynamicObject;

/// Field manager of everything that comes from Git.
pub const SYNC_MANAGER: &str = "convoke-sync";

/// What an apply may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Create. An object of that name is a 409.
    Create,
    /// Change exactly the object with this uid, taking over fields of other managers.
    Update {
        /// `metadata.uid` of the object.
        uid: String,
        /// `metadata.resourceVersion` that it must still have; `None`: any.
        version: Option<u64>,
    },
}

/// How a delete ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// It waits for finalizers of others: the object as the server holds it now.
    Terminating(Box<DynamicObject>),
    /// It changed since it was looked at: look again.
    Changed,
}
