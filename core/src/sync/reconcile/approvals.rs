//! Approvals that are taken back, and approvals that release nothing because they are not of what is held now.

use std::time::Duration;

use crate::api::git_sync::{ApprovedPrune, GitSyncStatus};
use crate::api::keys;
use crate::next::Next;
use crate::sync::io::Ended;
use crate::sync::io::effect::{Effect, Event, EventType};
use crate::sync::plan::approvals::{is_gone, words};
use crate::sync::plan::dirty::Dirty;
use crate::sync::plan::{Held, brake};
use crate::sync::reconcile::engine::{Engine, LOOK_AGAIN};
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::without_approval;
use crate::sync::subject::Subject;

/// What was approved, when the annotation that said so is gone, or was seen to be gone: whatever it says by the time that this can be
/// written down.
pub(crate) fn taken_back<'a>(
    state: &mut SyncState,
    dirty: &Dirty,
    subject: &Subject<'a>,
) -> Option<&'a ApprovedPrune> {
    // Taken in any case: of what is approved later it says nothing.
    let was_gone = dirty.take_unapproved(subject.key);
    let approved = subject.status()?.approved_prune.as_ref()?;
    if was_gone || is_gone(subject.annotation(keys::APPROVE_PRUNE)) {
        state.unapproved = Some(approved.digest.clone());
    }
    (state.unapproved.as_ref() == Some(&approved.digest)).then_some(approved)
}

impl Engine {
    /// Forgets an approval, and remembers that what it was given for needs another one.
    pub(crate) async fn take_back(
        &self,
        state: &mut SyncState,
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
        self.status().write(subject, make).await?;
        let newest = self.stores.git_syncs.get(subject.key);
        let newest = newest.as_ref().and_then(|newest| newest.value.object());
        let status = newest.as_ref().and_then(|sync| sync.status.as_ref());
        if status.is_some_and(|status| status.approved_prune.as_ref() == Some(approved)) {
            tracing::warn!(object = %subject.key, "the status goes on saying that deletes are approved");
            return Ok(Next::After(LOOK_AGAIN));
        }
        Ok(Next::After(Duration::ZERO))
    }
}

/// Says of an approval that it releases nothing.
pub(crate) fn tell_outdated(subject: &Subject<'_>, given: &str, held: Option<&Held>) {
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
    let type_ = EventType::Warning;
    subject.io.tell(Effect::Event(Box::new(Event { about, type_, reason, note })));
}
