//! What is said of a plan that was carried out, and of what keeps one from it: reason, message, and whether all is well.

use std::time::Duration;

use crate::api::git_sync::{ApprovedPrune, Problem, Severity};
use crate::api::{ObjectId, keys};
use crate::sync::apply::impersonation::Refusal;
use crate::sync::apply::problems::{FAILED, FORBIDDEN};
use crate::sync::apply::terminating::keepers;
use crate::sync::plan::{Cause, Held, Plan};
use crate::sync::reasons::{EngineReason, Reason, Verdict};

/// The message while the remote is looked at.
pub const READING: &str = "reading the repository";

/// What became of a plan, as far as the verdict needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Writes that are tried again.
    pub transient: usize,
    /// Deletes that did not happen and are tried again.
    pub undeleted: usize,
    /// Objects that were deleted because they are not wanted any more, and that are still there, each with its finalizers.
    pub ending: Vec<(ObjectId, String)>,
    /// Writes and deletes that were not begun, because the plan took too long.
    pub left: usize,
    /// GitSyncs of the namespace that are asked what they want before something is decided.
    pub asked: Vec<String>,
    /// The kinds that cannot be watched at this moment, if deletes wait for that.
    pub unseen: Option<String>,
    /// When an object that somebody changes again and again is brought back next.
    pub wait: Option<Duration>,
    /// Why nothing at all could be written.
    pub refusal: Option<Refusal>,
    /// Whether the remote has not answered since the spec was changed, or since deletes were approved.
    pub unanswered: bool,
}

/// The verdict on a plan that was carried out, from its problems.
#[must_use]
pub fn verdict(revision: &str, problems: &[Problem], plan: &Plan, carried: &Remaining) -> Verdict {
    let errors = problems.iter().filter(|p| p.severity == Severity::Error).count();
    let Remaining { transient, undeleted, ending, left, asked, unseen, wait, refusal, unanswered } =
        carried;
    let (transient, undeleted, asks) = (*transient, *undeleted, !asked.is_empty());
    let waits = plan.held.as_ref().is_some_and(|held| held.cause == Cause::Unproven);
    let held = plan.held.as_ref().map(|held| format!(", {} delete(s) held", held.victims.len()));
    let held = held.unwrap_or_default();
    let rest = match left {
        0 => held,
        left => format!(", {left} more not tried yet{held}"),
    };
    let busy = transient + undeleted + left > 0
        || wait.is_some()
        || !plan.terminating.is_empty()
        || !ending.is_empty()
        || !plan.given.is_empty()
        || asks
        || unseen.is_some()
        || waits
        || refusal.is_some()
        || *unanswered;
    let (reason, message, ready): (Reason, _, _) = if let Some(refusal) = refusal {
        (refusal.reason.into(), refusal.message.clone(), false)
    } else if *unanswered {
        (EngineReason::Progressing.into(), READING.to_owned(), false)
    } else if errors > 0 {
        let first = problems.first().map(place_and_message).unwrap_or_default();
        let all = |code| problems.iter().all(|p| p.severity != Severity::Error || p.code == code);
        if all(FAILED) {
            let message = format!(
                "{errors} object(s) of {revision} could not be written{rest}; trying again; first: {first}"
            );
            (EngineReason::ApplyFailed.into(), message, false)
        } else {
            let reason =
                if all(FORBIDDEN) { EngineReason::Forbidden } else { EngineReason::ProblemsFound };
            (reason.into(), format!("{errors} error(s) at {revision}{rest}; first: {first}"), false)
        }
    } else if asks {
        let names = asked.join(", ");
        let message = format!("{revision}: waiting until GitSync {names} has looked at its remote");
        (EngineReason::Progressing.into(), message, false)
    } else if transient > 0 {
        (
            EngineReason::ApplyFailed.into(),
            format!("{transient} object(s) of {revision} could not be written{rest}; trying again"),
            false,
        )
    } else if *left > 0 {
        let message = format!("{revision}: {left} object(s) are still to be written or deleted");
        (EngineReason::Progressing.into(), message, false)
    } else if let Some(kinds) = unseen {
        let message = format!("{revision}: deletes wait until the API server shows {kinds} again");
        (EngineReason::Progressing.into(), message, false)
    } else if let Some(held) = &plan.held {
        let reason = if waits { EngineReason::PruneWaiting } else { EngineReason::PruneHeld };
        (reason.into(), held_message(held), false)
    } else if undeleted > 0 {
        let message = format!("{undeleted} object(s) could not be deleted; trying again");
        (EngineReason::PruneFailed.into(), message, false)
    } else if !plan.terminating.is_empty() {
        (
            EngineReason::Terminating.into(),
            format!(
                "waiting for the end of {} object(s) that are being deleted",
                plan.terminating.len()
            ),
            false,
        )
    } else if !ending.is_empty() {
        let message = format!(
            "{revision} is applied, but not all that was deleted is gone: {}",
            keepers(ending)
        );
        (EngineReason::Terminating.into(), message, false)
    } else if let Some((id, to)) = plan.given.first() {
        let count = plan.given.len();
        let message =
            format!("{count} object(s) are left to other GitSyncs; first: {id} to GitSync {to}");
        (EngineReason::HandingOver.into(), message, false)
    } else {
        let mut message = format!("Applied revision: {revision}");
        if let Some(first) = plan.paused.first() {
            let count = plan.paused.len();
            message = format!("{message}; {count} object(s) paused, first: {first}");
        }
        (EngineReason::Succeeded.into(), message, true)
    };
    Verdict { reason, message, ready, stalled: false, reconciling: busy }
}

/// The verdict on a commit that would be applied whole, if it were known what there is.
#[must_use]
pub fn unwatched(revision: &str, silent: &str) -> Verdict {
    let message =
        format!("{revision} is applied as far as is known; {}", unwatched_message(silent));
    let reason = EngineReason::KindsNotWatched.into();
    Verdict { reason, message, ready: false, stalled: false, reconciling: true }
}

/// What the API server does not show, what follows from it, and what to do.
#[must_use]
pub fn unwatched_message(silent: &str) -> String {
    format!(
        "what others change is not seen, because the API server does not show {silent}; \
         hint: is all of deploy/crds.yaml and deploy/rbac.yaml applied? If so, look for the cause in the API server's log"
    )
}

/// What is held and how to release it.
#[must_use]
pub fn held_message(held: &Held) -> String {
    let then = match held.cause {
        Cause::Brake => "To release exactly these",
        Cause::Errors | Cause::Unproven => {
            "They go by themselves when that is mended. To release exactly these before"
        }
    };
    format!("{} delete(s) held: {}. {then}: {}", held.victims.len(), held.reason, held.command)
}

/// What was approved and is still there.
#[must_use]
pub fn approved_message(approved: &ApprovedPrune) -> String {
    format!(
        "deletes that were approved with {} are still to be made. To take the approval back, remove the annotation {}",
        approved.digest,
        keys::APPROVE_PRUNE
    )
}

/// `path:line:column: message`.
#[must_use]
pub fn place_and_message(problem: &Problem) -> String {
    let mut text = String::new();
    if let Some(path) = &problem.path {
        text.push_str(path);
        for number in [problem.line, problem.column].into_iter().flatten() {
            text.push_str(&format!(":{number}"));
        }
        text.push_str(": ");
    }
    text.push_str(&problem.message);
    text
}

#[cfg(test)]
#[path = "tests/verdict.rs"]
mod tests;
