//! Approvals that release nothing, because they are of other deletes than those that are held.

use std::sync::Arc;

use super::engine::{Engine, Subject};
use super::machine::effect::{Effect, Event};
use super::plan::Plan;
use super::state::State;
use crate::api::git_sync::ApprovedPrune;
use crate::api::keys;
use crate::definition::diagnostic::printable;

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
    format!("the approval that was given, {}, is of other deletes", printable(&given))
}

impl Engine {
    /// Says once of an approval that it releases nothing of what is held. One that has released something, and stays where it is
    /// while the next commit is held, is as it should be.
    #[allow(clippy::unused_self)] // as all that tells
    pub(super) fn tell_outdated(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        plan: &Plan,
        pruned: usize,
    ) {
        let approval = subject.annotation(keys::APPROVE_PRUNE);
        let spent = plan.released.as_ref().filter(|_| pruned > 0).map(|it| it.digest.as_str());
        if approval.is_some() && spent == approval {
            state.telling.approval = approval.map(str::to_owned);
        }
        let Some(held) = &plan.held else { return };
        let Some(given) = outdated(approval, &held.digest, plan.released.as_ref()) else { return };
        if state.telling.approval.as_deref() == Some(given) {
            return;
        }
        state.telling.approval = Some(given.to_owned());
        let words = words(given);
        let shown = subject.status().and_then(|status| status.pending_prune.as_ref());
        if shown.is_some_and(|shown| !shown.digest.is_empty() && shown.reason.contains(&words)) {
            // An operator before this one has said so.
            return;
        }
        let note = format!(
            "{words}; {} are held now, with the digest {}. Look at status.pendingPrune.objects; to release exactly these: \
             kubectl -n {} annotate gitsync {} --overwrite {}={}",
            held.victims.len(),
            held.digest,
            subject.key.namespace,
            subject.key.name,
            keys::APPROVE_PRUNE,
            held.digest
        );
        let (about, reason) = (Arc::clone(subject.sync), "ApprovalOutdated".to_owned());
        subject.io.tell(Effect::Event(Box::new(Event { about, good: false, reason, note })));
    }
}
