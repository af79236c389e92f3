//! (pure) What the annotation that approves deletes says about a plan.

use crate::api::git_sync::{ApprovedPrune, GitSyncStatus};
use crate::api::keys;
use crate::sync::plan::Plan;
use crate::text::printable;

/// Characters of an approval that are repeated: a digest has 16, and anything may stand in an annotation.
const MOST: usize = 40;

/// The approval that a GitSync carries, if it is neither of what is held now, by its digest, nor of what is released. (pure)
#[must_use]
pub fn outdated<'a>(
    approval: Option<&'a str>,
    held: &str,
    released: Option<&ApprovedPrune>,
) -> Option<&'a str> {
    let given = approval.filter(|given| !given.is_empty() && *given != held)?;
    released.is_none_or(|released| released.digest != given).then_some(given)
}

/// What is said of it where the deletes are told that are held. (pure)
#[must_use]
pub fn words(given: &str) -> String {
    let given: String = given.chars().take(MOST).collect();
    format!(
        "the annotation {} says {}, which is not the digest of what is held now",
        keys::APPROVE_PRUNE,
        printable(&given)
    )
}

/// The approval that a GitSync carries, if this plan is the first to find that it releases nothing: it is `handled` now and was
/// not before, or a commit has come before all that it was given for was gone. `before` is the status until now. (pure)
#[must_use]
pub fn fits_nothing<'a>(
    approval: Option<&'a str>,
    handled: Option<&str>,
    plan: &Plan,
    latch_key: &str,
    before: Option<&GitSyncStatus>,
) -> Option<&'a str> {
    let given = approval.filter(|given| !given.is_empty())?;
    if plan.released.as_ref().is_some_and(|released| released.digest == given) {
        return None;
    }
    let known = before.and_then(|status| status.last_handled_approval.as_deref());
    let is_new = handled.is_some() && handled != known;
    let approved = before.and_then(|status| status.approved_prune.as_ref());
    let is_lost = approved.is_some_and(|old| old.digest == given && old.input_key != latch_key);
    (is_new || is_lost).then_some(given)
}

/// Whether an annotation approves nothing. (pure)
#[must_use]
pub fn is_gone(approval: Option<&str>) -> bool {
    approval.is_none_or(str::is_empty)
}
