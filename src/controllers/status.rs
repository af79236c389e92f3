//! Step "status" of every reconcile: writes the status, and tells an event of what is news.

use std::sync::Arc;

use serde::Serialize;

use super::events::{Standing, Teller};
use crate::cluster::client::CallError;
use crate::cluster::live::Ours;
use crate::cluster::status::{self, Target, Written};

/// Writes a status if it differs from the old one. A status that was written is told by an event if it is news.
///
/// # Errors
/// The call's error. An object that is gone or was made anew is none.
pub async fn write<K: Ours, S: Serialize + PartialEq + Standing>(
    events: &Arc<Teller>,
    target: &Target<'_>,
    old: Option<&S>,
    new: &S,
) -> Result<(), CallError> {
    match status::write::<K, S>(target, old, new).await? {
        Written::Written => events.status::<K, S>(target.key, target.uid, old, new),
        // Nobody is left to tell, or there is no news.
        Written::Unchanged | Written::Gone | Written::Replaced => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
