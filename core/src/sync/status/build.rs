//! From the status before and a report to the new status. Times move only when what they observe changed.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::git_sync::{GitSyncStatus, KindCount, ObjectCounts, Quarantined};
use crate::api::{Kind, ObjectId};
use crate::cluster::conditions;
use crate::sync::plan::Plan;
use crate::sync::plan::work_index::Count;
use crate::sync::reasons::{EngineReason, Verdict};
use crate::sync::status::held_deletes::{Deletes, PRUNE_HELD};
use crate::sync::status::history::{entry, remember};
use crate::sync::status::limits::{
    MOST_LISTED_OBJECTS, MOST_MESSAGE_CHARS, MOST_PATH_CHARS, MOST_PROBLEMS, fit, names, shorten,
    shorten_problem,
};
use crate::sync::status::report::{Report, Verified};
use crate::sync::status::verdict::unwatched_message;
use crate::sync::status::webhook::WEBHOOK_READY;

/// The condition, and its reason while it is true, of a commit whose signature was verified.
const VERIFIED: &str = "Verified";

/// The new status. What a report does not know, because no commit could be read, is kept from `previous`.
#[must_use]
pub fn status(previous: Option<&GitSyncStatus>, mut report: Report<'_>) -> GitSyncStatus {
    let mut status = previous.cloned().unwrap_or_default();
    set_revisions(&mut status, &mut report);
    set_conditions(&mut status, &report);
    set_webhook(&mut status, &report);
    drop_findings_of_other_spec(&mut status, previous, &report);
    set_problems(&mut status, &report);
    set_plan(&mut status, previous, &mut report);
    set_counts(&mut status, &report);
    set_history(&mut status, report);
    fit(&mut status);
    status
}

/// Writes which spec, commit, request and approval were handled.
fn set_revisions(status: &mut GitSyncStatus, report: &mut Report<'_>) {
    if !report.suspended {
        // A suspended GitSync does not act on its spec: its status stays about the spec that it acted on last.
        status.observed_generation = Some(report.generation);
    }
    if report.attempted.is_some() {
        status.last_attempted_revision = report.attempted.take();
    }
    if report.verdict.ready {
        status.last_applied_revision.clone_from(&report.revision);
    }
    if let Some(handled) = report.handled.take() {
        // The value of an annotation, which may be long.
        status.last_handled_reconcile_at = Some(shorten(&handled, MOST_MESSAGE_CHARS));
    }
    if report.handled_approval.is_some() {
        status.last_handled_approval = report.handled_approval.take();
    }
}

/// Sets conditions of one status for one generation at one time.
struct Conditions<'a> {
    status: &'a mut GitSyncStatus,
    generation: i64,
    now: Timestamp,
}

impl Conditions<'_> {
    fn set(&mut self, type_: &str, value: &str, reason: &str, message: &str) {
        let all = &mut self.status.conditions;
        conditions::Observed { generation: self.generation, now: self.now }
            .set(all, type_, value, reason, message);
    }

    fn remove(&mut self, type_: &str) {
        conditions::remove(&mut self.status.conditions, type_);
    }

    /// Sets the condition to `True` with this reason and message, or removes it.
    fn set_or_remove(&mut self, type_: &str, shown: Option<(&str, &str)>) {
        match shown {
            Some((reason, message)) => self.set(type_, "True", reason, message),
            None => self.remove(type_),
        }
    }
}

/// Writes the conditions that follow from the verdict: `Stalled`, `Reconciling`, `Suspended`, `DriftWatch`, `Drifted`,
/// `Verified` and `Ready`.
fn set_conditions(status: &mut GitSyncStatus, report: &Report<'_>) {
    let Report { generation, verdict, now, .. } = report;
    let message = shorten(&verdict.message, MOST_MESSAGE_CHARS);
    let reason = verdict.reason.as_str();
    let progressing = verdict.reason.is(EngineReason::Progressing);
    let mut all = Conditions { status, generation: *generation, now: *now };
    all.set_or_remove("Stalled", verdict.stalled.then_some((reason, &*message)));
    let goes_on = progressing || verdict.reason.is(EngineReason::Terminating);
    let activity = if goes_on { reason } else { "Retrying" };
    all.set_or_remove("Reconciling", verdict.reconciling.then_some((activity, &*message)));
    let suspended = "spec.suspend is true: nothing is fetched, applied or deleted";
    all.set_or_remove("Suspended", report.suspended.then_some(("Suspended", suspended)));
    match unwatched(report) {
        Some((reason, message)) => {
            all.set("DriftWatch", "False", reason, &shorten(&message, MOST_MESSAGE_CHARS));
        }
        None => all.remove("DriftWatch"),
    }
    if let Some(plan) = report.plan {
        let drifted = drifted_message(plan);
        let shown = drifted.as_ref().map(|message| ("ChangedByHand", &**message));
        all.set_or_remove("Drifted", shown);
    }
    match &report.verified {
        Verified::NotWanted => all.remove(VERIFIED),
        Verified::Unknown => {}
        Verified::Yes(message) => {
            all.set(VERIFIED, "True", VERIFIED, &shorten(message, MOST_MESSAGE_CHARS));
        }
        Verified::No(reason, message) => {
            let message = shorten(message, MOST_MESSAGE_CHARS);
            all.set(VERIFIED, "False", reason.as_str(), &message);
        }
        Verified::Nothing(reason) => {
            let message = "no commit was verified with the keys that are known now";
            all.set(VERIFIED, "Unknown", reason.as_str(), message);
        }
    }
    if !report.suspended {
        all.set("Ready", ready_value(verdict), reason, &message);
    }
}

/// Writes the path of the webhook and the condition `WebhookReady`, or removes both.
fn set_webhook(status: &mut GitSyncStatus, report: &Report<'_>) {
    let Some(webhook) = &report.webhook else { return };
    status.webhook_path.clone_from(&webhook.path);
    let mut all = Conditions { status, generation: report.generation, now: report.now };
    if webhook.path.is_none() {
        all.remove(WEBHOOK_READY);
    } else if let Some((value, reason, message)) = webhook.condition() {
        all.set(WEBHOOK_READY, value, reason, &shorten(&message, MOST_MESSAGE_CHARS));
    }
}

/// The value of the condition `Ready`.
fn ready_value(verdict: &Verdict) -> &'static str {
    match (verdict.ready, verdict.reason.is(EngineReason::Progressing)) {
        (true, _) => "True",
        (false, true) => "Unknown",
        (false, false) => "False",
    }
}

/// Why changes by hand are not seen or not undone, if that is so: reason and message.
fn unwatched(report: &Report<'_>) -> Option<(&'static str, String)> {
    match &report.silent {
        _ if report.blind => Some((
            "NothingRead",
            "nothing could be read since the operator started or the spec changed: changes by hand are not undone"
                .to_owned(),
        )),
        Some(silent) if !report.suspended => {
            Some((EngineReason::KindsNotWatched.as_str(), unwatched_message(silent)))
        }
        _ => None,
    }
}

/// Which objects differ from Git and are left so, if there are any.
fn drifted_message(plan: &Plan) -> Option<String> {
    let first = plan.drifted.first()?;
    let count = plan.drifted.len();
    Some(format!(
        "{count} object(s) differ from Git and are left so (drift: Report); first: {first}"
    ))
}

/// Removes what was found for an earlier spec, as far as this report does not replace it.
fn drop_findings_of_other_spec(
    status: &mut GitSyncStatus,
    previous: Option<&GitSyncStatus>,
    report: &Report<'_>,
) {
    if report.suspended {
        return;
    }
    let generation = Some(report.generation);
    let other_spec = previous.is_some_and(|old| old.observed_generation != generation);
    if other_spec && report.problems.is_none() {
        status.problems.clear();
        status.problem_count = None;
        status.quarantined.clear();
    }
    let held = status.conditions.iter().find(|condition| condition.type_ == PRUNE_HELD);
    if held.is_some_and(|held| held.observed_generation != generation) && report.plan.is_none() {
        // The digest is of an earlier spec: approving it would release nothing.
        conditions::remove(&mut status.conditions, PRUNE_HELD);
        status.pending_prune = None;
        status.approved_prune = None;
    }
}

fn set_problems(status: &mut GitSyncStatus, report: &Report<'_>) {
    let Some(problems) = report.problems else { return };
    status.problem_count = i64::try_from(problems.len()).ok();
    status.problems = problems.iter().take(MOST_PROBLEMS).cloned().map(shorten_problem).collect();
}

/// Writes what the plan holds, leaves alone and quarantines.
fn set_plan(status: &mut GitSyncStatus, previous: Option<&GitSyncStatus>, report: &mut Report<'_>) {
    let Some(plan) = report.plan else { return };
    let pending = report.pending.take();
    if report.recalled {
        // The plan of a commit that was applied before deletes nothing.
        status.pending_prune = pending;
    } else {
        let deletes =
            Deletes { held: plan.held.as_ref(), pending, approved: report.approved.take() };
        deletes.write_into(status, report.generation, report.now);
    }
    status.orphans = names(&plan.orphans);
    status.paused = names(&plan.paused);
    status.protected = names(&plan.protected);
    status.drifted = names(&plan.drifted);
    status.quarantined = quarantined(previous, plan, report.revision.as_deref());
}

/// The objects in quarantine. Each keeps the commit since which it is in quarantine.
fn quarantined(
    previous: Option<&GitSyncStatus>,
    plan: &Plan,
    revision: Option<&str>,
) -> Vec<Quarantined> {
    let known: BTreeMap<&str, &str> = previous
        .map(|p| p.quarantined.iter().map(|q| (q.object.as_str(), q.since.as_str())).collect())
        .unwrap_or_default();
    let now = revision.unwrap_or_default();
    let entry = |(id, path): &(ObjectId, Option<String>)| {
        let object = id.to_string();
        let since = known.get(object.as_str()).copied().unwrap_or(now).to_owned();
        let path = path.as_deref().map(|path| shorten(path, MOST_PATH_CHARS));
        Quarantined { object, path, since }
    };
    plan.quarantined.iter().take(MOST_LISTED_OBJECTS).map(entry).collect()
}

/// Writes how many objects there are, and the number that the prune brake counts from.
fn set_counts(status: &mut GitSyncStatus, report: &Report<'_>) {
    let Some(by_kind) = report.counts else { return };
    let counted = counts(by_kind, report.failed);
    if report.no_delete_due {
        status.prune_base = Some(counted.total);
    } else if status.prune_base.is_none() {
        status.prune_base = report.plan.and_then(|plan| i64::try_from(plan.marked).ok());
    }
    status.objects = Some(counted);
}

fn counts(by_kind: &BTreeMap<Kind, Count>, failed: usize) -> ObjectCounts {
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    ObjectCounts {
        total: by_kind.values().map(|count| number(count.total)).sum(),
        ready: by_kind.values().map(|count| number(count.ready)).sum(),
        failed: number(failed),
        by_kind: by_kind
            .iter()
            .map(|(kind, Count { total, ready })| KindCount {
                kind: kind.to_string(),
                total: number(*total),
                ready: number(*ready),
            })
            .collect(),
    }
}

fn set_history(status: &mut GitSyncStatus, report: Report<'_>) {
    if !report.done.is_empty() {
        status.stages = report.stages;
    }
    for done in report.done {
        remember(&mut status.history, entry(done, report.now));
    }
}

#[cfg(test)]
#[path = "tests/verified.rs"]
mod tests;
