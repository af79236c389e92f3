//! Approvals that release nothing, because they are not of what is held now.

use std::time::Duration;

use super::engine::{Engine, LOOK_AGAIN, Subject};
use super::machine::Ended;
use super::machine::effect::{Effect, Event};
use super::plan::{Held, Plan, brake};
use super::state::State;
use super::status::without_approval;
use super::touched::Touched;
use crate::api::git_sync::{ApprovedPrune, GitSyncStatus};
use crate::api::keys;
use crate::definition::diagnostic::printable;
use crate::next::Next;

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

/// What was approved, when the annotation that said so is gone, or was seen to be gone: whatever it says by the time that this can be
/// written down.
pub(super) fn taken_back<'a>(
    state: &mut State,
    touched: &Touched,
    subject: &Subject<'a>,
) -> Option<&'a ApprovedPrune> {
    // Taken in any case: of what is approved later it says nothing.
    let was_gone = touched.take_unapproved(subject.key);
    let approved = subject.status()?.approved_prune.as_ref()?;
    if was_gone || is_gone(subject.annotation(keys::APPROVE_PRUNE)) {
        state.unapproved = Some(approved.digest.clone());
    }
    (state.unapproved.as_ref() == Some(&approved.digest)).then_some(approved)
}

impl Engine {
    /// Forgets an approval, and remembers that what it was given for needs another one.
    pub(super) async fn take_back(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        approved: &ApprovedPrune,
    ) -> Ended {
        let handled = subject.status().and_then(|status| status.last_handled_approval.as_deref());
        if let Some(latch) = &mut state.latch {
            // Also when the reply to the write is lost.
            *latch = Some(brake::taken_back(latch.as_ref(), approved, handled));
        }
        let (generation, now) = (subject.generation, subject.io.time());
        let make = |old: Option<&GitSyncStatus>| {
            without_approval(old.cloned().unwrap_or_default(), approved, generation, now)
        };
        self.write_status(subject, make).await?;
        let newest = self.stores.git_syncs.get(subject.key);
        let newest = newest.as_ref().and_then(|newest| newest.value.object());
        let status = newest.as_ref().and_then(|sync| sync.status.as_ref());
        if status.is_some_and(|status| status.approved_prune.as_ref() == Some(approved)) {
            tracing::warn!(object = %subject.key, "the status goes on saying that deletes are approved");
            return Ok(Next::After(LOOK_AGAIN));
        }
        Ok(Next::After(Duration::ZERO))
    }

    /// Says of an approval that it releases nothing.
    #[allow(clippy::unused_self)] // as all that tells
    pub(super) fn tell_outdated(&self, subject: &Subject<'_>, given: &str, held: Option<&Held>) {
        let words = words(given);
        let note = match held {
            Some(held) => format!(
                "{words}; {} are held now, with the digest {}. Look at status.pendingPrune.objects; to release exactly these: {}",
                held.victims.len(),
                held.digest,
                held.command
            ),
            None => format!(
                "{words}, and it releases nothing: an approval counts only for what status.pendingPrune shows with its digest"
            ),
        };
        let (about, reason) = (subject.about(), "ApprovalOutdated".to_owned());
        subject.io.tell(Effect::Event(Box::new(Event { about, good: false, reason, note })));
    }
}
