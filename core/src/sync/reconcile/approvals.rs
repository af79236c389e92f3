//! Approvals that are withdrawn, and approvals that release nothing because other deletes are held now.

use std::time::Duration;

use crate::api::git_sync::{ApprovedPrune, GitSyncStatus};
use crate::api::keys;
use crate::next::Next;
use crate::sync::io::Ended;
use crate::sync::io::effect::{Effect, Event, EventType};
use crate::sync::plan::approvals::{is_gone, words};
use crate::sync::plan::dirty::Dirty;
use crate::sync::plan::{Held, brake};
use crate::sync::reasons::EventReason;
use crate::sync::reconcile::engine::{Engine, RECHECK_INTERVAL};
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::held_deletes::without_approval;
use crate::sync::subject::Subject;

/// The approval in the status, if its annotation is gone or was gone in between, whatever the annotation says by now.
pub(crate) fn withdrawn<'a>(
    state: &mut SyncState,
    dirty: &Dirty,
    subject: &Subject<'a>,
) -> Option<&'a ApprovedPrune> {
    // Taken in any case: it says nothing about a later approval.
    let was_gone = dirty.take_unapproved(subject.key);
    let approved = subject.status()?.approved_prune.as_ref()?;
    if was_gone || is_gone(subject.annotation(keys::APPROVE_PRUNE)) {
        state.withdrawn = Some(approved.digest.clone());
    }
    (state.withdrawn.as_ref() == Some(&approved.digest)).then_some(approved)
}

impl Engine {
    /// Removes a withdrawn approval from the status. Its deletes need a new approval.
    pub(crate) async fn withdraw_approval(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        approved: &ApprovedPrune,
    ) -> Ended {
        let handled = subject.status().and_then(|status| status.last_handled_approval.as_deref());
        if let Some(held) = &mut state.held_deletes {
            // Before the write, whose reply may be lost.
            *held = Some(brake::taken_back(held.as_ref(), approved, handled));
        }
        let (generation, now) = (subject.generation, subject.io.time());
        let make = |old: Option<&GitSyncStatus>| {
            without_approval(old.cloned().unwrap_or_default(), approved, generation, now)
        };
        self.status().write(subject, make).await?;
        let newest = self.stores.git_syncs.get(subject.key);
        let newest = newest.as_ref().and_then(|newest| newest.value.object());
        let status = newest.as_ref().and_then(|sync| sync.status.as_ref());
        if status.is_some_and(|status| status.approved_prune.as_ref() == Some(approved)) {
            tracing::warn!(object = %subject.key, "the status goes on saying that deletes are approved");
            return Ok(Next::After(RECHECK_INTERVAL));
        }
        Ok(Next::After(Duration::ZERO))
    }
}

/// Sends the event that an approval releases nothing.
pub(crate) fn announce_outdated(subject: &Subject<'_>, given: &str, held: Option<&Held>) {
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
    let (about, reason) = (subject.about(), EventReason::ApprovalOutdated.to_string());
    let type_ = EventType::Warning;
    subject.io.emit(Effect::Event(Box::new(Event { about, type_, reason, note })));
}
