//! The verdict on a GitSync after its plan was applied: reason and message of the condition `Ready`.

use std::time::Duration;

use crate::api::git_sync::{ApprovedPrune, Problem, Severity};
use crate::api::{ObjectId, keys};
use crate::sync::apply::impersonation::Refusal;
use crate::sync::apply::problems::{FAILED, FORBIDDEN};
use crate::sync::apply::terminating::keepers;
use crate::sync::io::poll::SourceFailure;
use crate::sync::plan::{Cause, Held, Plan};
use crate::sync::reasons::{EngineReason, Reason, Verdict, unready};

/// The message while the remote is polled.
pub const READING_MESSAGE: &str = "reading the repository";

/// What is left of a plan after it was applied, as far as the verdict needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Writes that are tried again.
    pub transient: usize,
    /// Deletes that failed or were postponed, and are tried again.
    pub undeleted: usize,
    /// Objects that were deleted and are still there, each with its finalizers.
    pub ending: Vec<(ObjectId, String)>,
    /// Writes and deletes that were not begun, because the plan took too long.
    pub left: usize,
    /// Other GitSyncs of the namespace that have to poll before this one deletes or reports a conflict.
    pub asked: Vec<String>,
    /// The kinds that cannot be watched now, if deletes wait for that.
    pub unseen: Option<String>,
    /// Time until an object in contention is written again.
    pub wait: Option<Duration>,
    /// Why nothing at all could be written.
    pub refusal: Option<Refusal>,
    /// Whether the remote has to answer first: the spec was changed or deletes were approved since the last poll.
    pub unanswered: bool,
}

/// Why a GitSync is not Ready: the reason and the message of the condition.
type Finding = (Reason, String);

/// The verdict after a plan was applied: the first of these findings counts, in this order.
#[must_use]
pub fn verdict(
    revision: &str,
    problems: &[Problem],
    plan: &Plan,
    remaining: &Remaining,
) -> Verdict {
    let finding = nothing_written(remaining)
        .or_else(|| errors(revision, problems, plan, remaining))
        .or_else(|| writes_left(revision, plan, remaining))
        .or_else(|| deletes_left(revision, plan, remaining))
        .or_else(|| objects_left(revision, plan, remaining));
    let ready = finding.is_none();
    let (reason, message) = finding
        .unwrap_or_else(|| (EngineReason::Succeeded.into(), applied_message(revision, plan)));
    let reconciling = goes_on(plan, remaining);
    Verdict { reason, message, ready, stalled: false, reconciling }
}

/// Nothing could be written, or the remote has not answered yet.
fn nothing_written(remaining: &Remaining) -> Option<Finding> {
    if let Some(refusal) = &remaining.refusal {
        return Some((refusal.reason.into(), refusal.message.clone()));
    }
    remaining.unanswered.then(|| (EngineReason::Progressing.into(), READING_MESSAGE.to_owned()))
}

/// The commit has errors, or the API server refused some of its objects.
fn errors(
    revision: &str,
    problems: &[Problem],
    plan: &Plan,
    remaining: &Remaining,
) -> Option<Finding> {
    let errors = problems.iter().filter(|p| p.severity == Severity::Error).count();
    if errors == 0 {
        return None;
    }
    let rest = rest_message(plan, remaining);
    let first = problems.first().map(place_and_message).unwrap_or_default();
    let all = |code| problems.iter().all(|p| p.severity != Severity::Error || p.code == code);
    if all(FAILED) {
        let message = format!(
            "{errors} object(s) of {revision} could not be written{rest}; trying again; first: {first}"
        );
        return Some((EngineReason::ApplyFailed.into(), message));
    }
    let reason = if all(FORBIDDEN) { EngineReason::Forbidden } else { EngineReason::ProblemsFound };
    Some((reason.into(), format!("{errors} error(s) at {revision}{rest}; first: {first}")))
}

/// Other GitSyncs have to answer, or writes are tried again or were not begun.
fn writes_left(revision: &str, plan: &Plan, remaining: &Remaining) -> Option<Finding> {
    let Remaining { transient, left, asked, .. } = remaining;
    if !asked.is_empty() {
        let names = asked.join(", ");
        let message = format!("{revision}: waiting until GitSync {names} has looked at its remote");
        Some((EngineReason::Progressing.into(), message))
    } else if *transient > 0 {
        let rest = rest_message(plan, remaining);
        let message =
            format!("{transient} object(s) of {revision} could not be written{rest}; trying again");
        Some((EngineReason::ApplyFailed.into(), message))
    } else if *left > 0 {
        let message = format!("{revision}: {left} object(s) are still to be written or deleted");
        Some((EngineReason::Progressing.into(), message))
    } else {
        None
    }
}

/// All is written, but deletes wait, are held or failed.
fn deletes_left(revision: &str, plan: &Plan, remaining: &Remaining) -> Option<Finding> {
    let undeleted = remaining.undeleted;
    if let Some(kinds) = &remaining.unseen {
        let message = format!("{revision}: deletes wait until the API server shows {kinds} again");
        Some((EngineReason::Progressing.into(), message))
    } else if let Some(held) = &plan.held {
        let unproven = held.cause == Cause::Unproven;
        let reason = if unproven { EngineReason::PruneWaiting } else { EngineReason::PruneHeld };
        Some((reason.into(), held_message(held)))
    } else if undeleted > 0 {
        let message = format!("{undeleted} object(s) could not be deleted; trying again");
        Some((EngineReason::PruneFailed.into(), message))
    } else {
        None
    }
}

/// All is written and deleted, but some objects are not gone yet, or other GitSyncs have not taken them over yet.
fn objects_left(revision: &str, plan: &Plan, remaining: &Remaining) -> Option<Finding> {
    let Plan { terminating, given, .. } = plan;
    let ending = &remaining.ending;
    if !terminating.is_empty() {
        let count = terminating.len();
        let message = format!("waiting for the end of {count} object(s) that are being deleted");
        Some((EngineReason::Terminating.into(), message))
    } else if !ending.is_empty() {
        let message = format!(
            "{revision} is applied, but not all that was deleted is gone: {}",
            keepers(ending)
        );
        Some((EngineReason::Terminating.into(), message))
    } else if let Some((id, to)) = given.first() {
        let count = given.len();
        let message =
            format!("{count} object(s) are left to other GitSyncs; first: {id} to GitSync {to}");
        Some((EngineReason::HandingOver.into(), message))
    } else {
        None
    }
}

/// The message of a GitSync that is Ready.
fn applied_message(revision: &str, plan: &Plan) -> String {
    let message = format!("Applied revision: {revision}");
    match plan.paused.first() {
        Some(first) => {
            format!("{message}; {} object(s) paused, first: {first}", plan.paused.len())
        }
        None => message,
    }
}

/// What was not tried yet and what is held, as the end of a sentence about errors.
fn rest_message(plan: &Plan, remaining: &Remaining) -> String {
    let held = plan.held.as_ref().map(|held| format!(", {} delete(s) held", held.victims.len()));
    let held = held.unwrap_or_default();
    match remaining.left {
        0 => held,
        left => format!(", {left} more not tried yet{held}"),
    }
}

/// Whether something is left that goes on without a new commit and without an approval.
fn goes_on(plan: &Plan, remaining: &Remaining) -> bool {
    let Remaining { transient, undeleted, ending, left, asked, unseen, wait, refusal, unanswered } =
        remaining;
    let unproven = plan.held.as_ref().is_some_and(|held| held.cause == Cause::Unproven);
    transient + undeleted + left > 0
        || wait.is_some()
        || !plan.terminating.is_empty()
        || !ending.is_empty()
        || !plan.given.is_empty()
        || !asked.is_empty()
        || unseen.is_some()
        || unproven
        || refusal.is_some()
        || *unanswered
}

/// The verdict while the newest commit cannot be read.
pub(crate) fn unreadable_remote(failure: &SourceFailure) -> Verdict {
    let mut verdict = unready(failure.reason, &failure.message);
    verdict.stalled = failure.terminal;
    verdict.reconciling = !failure.terminal;
    verdict
}

/// The verdict on a commit that is applied, as far as the API server shows it.
#[must_use]
pub fn unwatched(revision: &str, silent: &str) -> Verdict {
    let message =
        format!("{revision} is applied as far as is known; {}", unwatched_message(silent));
    let reason = EngineReason::KindsNotWatched.into();
    Verdict { reason, message, ready: false, stalled: false, reconciling: true }
}

/// The message about kinds that the API server does not show: what follows from it, and what to do.
#[must_use]
pub fn unwatched_message(silent: &str) -> String {
    format!(
        "what others change is not seen, because the API server does not show {silent}; \
         hint: is all of deploy/crds.yaml and deploy/rbac.yaml applied? If so, look for the cause in the API server's log"
    )
}

/// The message about held deletes: how many, why, and how to release them.
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

/// The message about approved deletes that are still to be made.
#[must_use]
pub fn approved_message(approved: &ApprovedPrune) -> String {
    format!(
        "deletes that were approved with {} are still to be made, once every write of the commit has succeeded. To take the approval back, remove the annotation {}",
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
