//! The status writer of the controllers.
//!
//! When a status is written, its object may be gone, another object may have its name, or its kind may not be served at the
//! moment. [`write`] handles all three, and returns what became of the status. The caller publishes events.
//!
//! The status of a GitSync is not written here. The sync engine itself decides what each answer means, without I/O
//! (docs/decisions/0017), and its driver only sends the request. Both use [`ssa::apply_status`].

use kube::{Client, Resource};
use serde::Serialize;

use super::client::CallError;
use super::live::ManagedStore;
use super::ssa;
use super::store::Key;

/// The object whose status is written.
pub struct Target<'a> {
    /// The client with the operator's rights.
    pub client: &'a Client,
    /// The store of the object's kind. It takes over the API server's answer.
    pub store: &'a dyn ManagedStore,
    /// Namespace and name.
    pub key: &'a Key,
    /// Only the object with this UID gets the status.
    pub uid: &'a str,
}

/// What became of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The status is as it was: nothing was sent.
    Unchanged,
    /// The status was written.
    Written,
    /// The object is gone. The store knows that now.
    Gone,
    /// Another object has the name now. The watch brings it.
    Replaced,
}

/// Writes a status if it differs from the old one.
///
/// # Errors
/// The call's error. That includes the answer that the kind is not served: then nothing is known of the object, and the caller
/// tries again.
pub async fn write<K, S>(
    target: &Target<'_>,
    old: Option<&S>,
    new: &S,
) -> Result<Written, CallError>
where
    K: Resource<DynamicType = ()>,
    S: Serialize + PartialEq,
{
    if old == Some(new) {
        return Ok(Written::Unchanged);
    }
    let Target { client, store, key, uid } = target;
    match ssa::apply_status::<K>(client, &key.namespace, &key.name, uid, new).await {
        Ok(object) => {
            store.answered(object);
            Ok(Written::Written)
        }
        Err(error) if error.is_gone() => {
            store.deleted_uid(key, uid);
            Ok(Written::Gone)
        }
        Err(error) if error.is_conflict() => Ok(Written::Replaced),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
