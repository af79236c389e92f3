//! The annotation that approves deletes.

use crate::api::git_sync::{ApprovedPrune, GitSyncStatus};
use crate::api::keys;
use crate::sync::plan::actions::Plan;
use crate::text::printable;

/// How many characters of an approval a message repeats. A digest has 16, but an annotation may have any value.
const MAX_REPEATED_CHARS: usize = 40;

/// The approval of a GitSync, if it approves neither the deletes that are held now, with the digest `held`, nor the released ones.
#[must_use]
pub fn outdated<'a>(
    approval: Option<&'a str>,
    held: &str,
    released: Option<&ApprovedPrune>,
) -> Option<&'a str> {
    let given = approval.filter(|given| !given.is_empty() && *given != held)?;
    released.is_none_or(|released| released.digest != given).then_some(given)
}

/// The message about an outdated approval, for the report of held deletes.
#[must_use]
pub fn words(given: &str) -> String {
    let given: String = given.chars().take(MAX_REPEATED_CHARS).collect();
    format!(
        "the annotation {} says {}, which is not the digest of what is held now",
        keys::APPROVE_PRUNE,
        printable(&given)
    )
}

/// The approval of a GitSync, if this plan is the first one to find that it releases nothing.
///
/// That is: it is `handled` now and was not before, or there is another commit before all approved objects are gone. `before` is
/// the status before this plan.
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

/// Whether an annotation is missing or empty, and so approves nothing.
#[must_use]
pub fn is_gone(approval: Option<&str>) -> bool {
    approval.is_none_or(str::is_empty)
}
