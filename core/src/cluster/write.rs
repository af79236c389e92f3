//! The modes of writes, and the outcomes of deletes.

use kube::core::DynamicObject;

/// Field manager of everything that comes from Git.
pub const SYNC_MANAGER: &str = "convoke-sync";

/// Whether an apply creates or changes an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Creates an object. When one of that name exists, the server answers 409.
    Create,
    /// Changes the object with this uid, and takes over fields of other managers.
    Update {
        /// `metadata.uid` of the object.
        uid: String,
        /// The `metadata.resourceVersion` that the object must still have. `None`: any.
        version: Option<u64>,
    },
}

/// The outcome of a delete.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The object is gone.
    Gone,
    /// The object waits for the finalizers of others. This is its present state.
    Terminating(Box<DynamicObject>),
    /// The object has changed since it was read: the plan must decide again.
    Changed,
}
