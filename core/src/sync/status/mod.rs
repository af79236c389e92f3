//! From what happened to the status of a GitSync. Times move only when what they observe changed.

pub mod events;
pub mod history;
pub mod last_written;
pub mod plan_result;
pub mod verdict;
pub mod writer;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::git_sync::{
    ApprovedPrune, GitSyncStatus, HistoryEntry, KindCount, ObjectCounts, PendingPrune, Problem,
    Quarantined, Stages,
};
use crate::api::{Kind, ObjectId};
use crate::cluster::conditions;
use crate::sync::commit::desired::is_of_other_spec;
use crate::sync::plan::brake::{TAKEN_BACK, taken_back};
use crate::sync::plan::work_index::Count;
use crate::sync::plan::{Cause, Held, Plan};
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::Verdict;
use crate::sync::reasons::{EngineReason, SyncOutcome, Trigger};
use crate::sync::status::verdict::{approved_message, held_message, unwatched_message};
use crate::sync::subject::Subject;
use crate::text::printable;

/// Longest lists in a status: it must stay far below etcd's limit.
const MOST_PROBLEMS: usize = 100;
const MOST_NAMES: usize = 100;
const MOST_HISTORY: usize = 10;
const MOST_MESSAGE: usize = 600;
const MOST_PATH: usize = 512;
/// Bytes of a whole status as JSON: etcd takes 1.5 MiB for an object, and every watcher reads it whole.
const MOST_BYTES: usize = 256 * 1024;

/// What a sync did, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncRecord {
    /// `main@sha1:<hex>`.
    pub revision: String,
    /// Author of the commit.
    pub author: String,
    /// Subject of the commit.
    pub subject: String,
    /// What came of it.
    pub outcome: SyncOutcome,
    /// Objects created, changed, deleted.
    pub counts: (usize, usize, usize),
    /// Milliseconds.
    pub duration_ms: i64,
    /// What started it.
    pub trigger: Trigger,
}

/// Everything that a status is made of.
pub struct Report<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// The verdict.
    pub verdict: Verdict,
    /// Newest commit that was tried.
    pub attempted: Option<String>,
    /// The commit whose plan this is; `None` while nothing could be read.
    pub revision: Option<String>,
    /// Handled request.
    pub handled: Option<String>,
    /// All problems, sorted, when something could be read.
    pub problems: Option<&'a [Problem]>,
    /// The plan, when there is one.
    pub plan: Option<&'a Plan>,
    /// Live objects with our mark after the writes.
    pub counts: Option<&'a BTreeMap<Kind, Count>>,
    /// Whether no delete is due any more.
    pub no_delete_due: bool,
    /// How many objects could not be written.
    pub failed: usize,
    /// An approved prune that is not finished.
    pub approved: Option<Approved>,
    /// The approval that the GitSync carries, once it was acted on.
    pub handled_approval: Option<String>,
    /// The deletes that are held, and what was held for this commit before.
    pub pending: Option<PendingPrune>,
    /// Whether the plan says nothing about deletes: what is shown of them stays.
    pub recalled: bool,
    /// What was done, as far as it is worth an entry in the history, oldest first.
    pub done: Vec<SyncRecord>,
    /// Timings, when something was done.
    pub stages: Option<Stages>,
    /// Whether the sync is suspended.
    pub suspended: bool,
    /// Whether nothing is known of what is to be: changes by hand are not seen.
    pub blind: bool,
    /// What the cluster has not told for long, if anything: changes by hand of it are not seen.
    pub silent: Option<String>,
    /// Now.
    pub now: Timestamp,
}

impl Report<'_> {
    /// A report that knows nothing but a verdict.
    #[must_use]
    pub const fn of(generation: i64, verdict: Verdict, now: Timestamp) -> Self {
        Self {
            generation,
            verdict,
            attempted: None,
            revision: None,
            handled: None,
            problems: None,
            plan: None,
            counts: None,
            no_delete_due: false,
            failed: 0,
            approved: None,
            handled_approval: None,
            pending: None,
            recalled: false,
            done: Vec::new(),
            stages: None,
            suspended: false,
            blind: false,
            silent: None,
            now,
        }
    }
}

impl Report<'static> {
    /// A report that knows nothing but a verdict.
    pub(crate) fn blank(subject: &Subject<'_>, verdict: Verdict, remote: &Remote) -> Self {
        Self {
            attempted: remote.attempted.as_ref().map(ToString::to_string),
            handled: remote.request.clone(),
            ..Report::of(subject.generation, verdict, subject.io.time())
        }
    }
}

/// The new status. What a report does not know (nothing could be read) is kept from `previous`.
#[must_use]
pub fn status(previous: Option<&GitSyncStatus>, report: Report<'_>) -> GitSyncStatus {
    let mut status = previous.cloned().unwrap_or_default();
    let Report { generation, verdict, now, .. } = report;
    if !report.suspended {
        // A suspended sync does not act on its spec: what it says stays about the spec that it acted on.
        status.observed_generation = Some(generation);
    }
    if report.attempted.is_some() {
        status.last_attempted_revision = report.attempted;
    }
    if verdict.ready {
        status.last_applied_revision.clone_from(&report.revision);
    }
    if report.handled.is_some() {
        // Somebody's annotation, which may be long.
        status.last_handled_reconcile_at = report.handled.map(|value| cut(&value, MOST_MESSAGE));
    }
    if report.handled_approval.is_some() {
        status.last_handled_approval = report.handled_approval;
    }

    let message = cut(&verdict.message, MOST_MESSAGE);
    let mut flag = |name: &str, on: bool, reason: &str, message: &str| {
        if on {
            conditions::set(&mut status.conditions, name, "True", reason, message, generation, now);
        } else {
            conditions::remove(&mut status.conditions, name);
        }
    };
    flag("Stalled", verdict.stalled, verdict.reason.as_str(), &message);
    let progressing = verdict.reason.is(EngineReason::Progressing);
    let goes_on = progressing || verdict.reason.is(EngineReason::Terminating);
    let reason = if goes_on { verdict.reason.as_str() } else { "Retrying" };
    flag("Reconciling", verdict.reconciling, reason, &message);
    flag(
        "Suspended",
        report.suspended,
        "Suspended",
        "spec.suspend is true: nothing is fetched, applied or deleted",
    );
    let unseen = match &report.silent {
        _ if report.blind => Some((
            "NothingRead",
            "nothing could be read since the operator started or the spec changed: changes by hand are not undone"
                .to_owned(),
        )),
        Some(silent) if !report.suspended => Some((EngineReason::KindsNotWatched.as_str(), unwatched_message(silent))),
        _ => None,
    };
    if let Some((reason, message)) = unseen {
        let (conditions, message) = (&mut status.conditions, cut(&message, MOST_MESSAGE));
        conditions::set(conditions, "DriftWatch", "False", reason, &message, generation, now);
    } else {
        conditions::remove(&mut status.conditions, "DriftWatch");
    }
    let held_for = status.conditions.iter().find(|c| c.type_ == "PruneHeld");
    let outdated = held_for.is_some_and(|held| held.observed_generation != Some(generation));
    let other_spec = previous.is_some_and(|old| old.observed_generation != Some(generation));
    if other_spec && report.problems.is_none() && !report.suspended {
        // They were found with another spec, and nothing is known with this one.
        status.problems.clear();
        status.problem_count = None;
        status.quarantined.clear();
    }
    if outdated && report.plan.is_none() && !report.suspended {
        // The digest is of another spec: approving it would release nothing.
        conditions::remove(&mut status.conditions, "PruneHeld");
        status.pending_prune = None;
        status.approved_prune = None;
    }
    let mut flag = |name: &str, on: bool, reason: &str, message: &str| {
        if on {
            conditions::set(&mut status.conditions, name, "True", reason, message, generation, now);
        } else {
            conditions::remove(&mut status.conditions, name);
        }
    };
    if let Some(plan) = report.plan {
        let first = plan.drifted.first().map(ToString::to_string).unwrap_or_default();
        let drifted = format!(
            "{} object(s) differ from Git and are left so (drift: Report); first: {first}",
            plan.drifted.len()
        );
        flag("Drifted", !plan.drifted.is_empty(), "ChangedByHand", &drifted);
    }
    if !report.suspended {
        let state = match (verdict.ready, progressing) {
            (true, _) => "True",
            (false, true) => "Unknown",
            (false, false) => "False",
        };
        conditions::set(
            &mut status.conditions,
            "Ready",
            state,
            verdict.reason.as_str(),
            &message,
            generation,
            now,
        );
    }

    if let Some(problems) = report.problems {
        status.problem_count = i64::try_from(problems.len()).ok();
        status.problems = problems.iter().take(MOST_PROBLEMS).cloned().map(cap_problem).collect();
    }
    if let Some(plan) = report.plan {
        if report.recalled {
            // Of a commit that was applied before nothing is deleted.
            status.pending_prune = report.pending;
        } else {
            let (pending, approved) = (report.pending, report.approved);
            let deletes = Deletes { held: plan.held.as_ref(), pending, approved };
            deletes.tell(&mut status, generation, now);
        }
        status.orphans = names(&plan.orphans);
        status.paused = names(&plan.paused);
        status.protected = names(&plan.protected);
        status.drifted = names(&plan.drifted);
        let known: BTreeMap<&str, &str> = previous
            .map(|p| p.quarantined.iter().map(|q| (q.object.as_str(), q.since.as_str())).collect())
            .unwrap_or_default();
        let since = report.revision.clone().unwrap_or_default();
        status.quarantined = plan
            .quarantined
            .iter()
            .take(MOST_NAMES)
            .map(|(id, path)| {
                let object = id.to_string();
                let since =
                    known.get(object.as_str()).map_or_else(|| since.clone(), |s| (*s).to_owned());
                Quarantined { object, path: path.as_deref().map(|p| cut(p, MOST_PATH)), since }
            })
            .collect();
    }
    if let Some(by_kind) = report.counts {
        let counted = counts(by_kind, report.failed);
        if report.no_delete_due {
            status.prune_base = Some(counted.total);
        } else if status.prune_base.is_none() {
            status.prune_base = report.plan.and_then(|plan| i64::try_from(plan.marked).ok());
        }
        status.objects = Some(counted);
    }
    if !report.done.is_empty() {
        status.stages = report.stages;
    }
    for done in report.done {
        remember(&mut status.history, entry(done, now));
    }
    fit(&mut status);
    status
}

/// What is to be said of the deletes of a plan.
pub struct Deletes<'a> {
    /// Those that wait.
    pub held: Option<&'a Held>,
    /// The same, to be remembered.
    pub pending: Option<PendingPrune>,
    /// Those that are approved, as long as some of their objects are there.
    pub approved: Option<Approved>,
}

/// Deletes that are approved.
#[derive(Debug, Clone)]
pub struct Approved {
    /// To be remembered.
    pub prune: ApprovedPrune,
    /// Whether some are still to be made. Else all that is left of them is protected or paused.
    pub is_due: bool,
}

impl Deletes<'_> {
    /// Says it.
    pub fn tell(self, status: &mut GitSyncStatus, generation: i64, now: Timestamp) {
        let due = self.approved.as_ref().filter(|approved| approved.is_due);
        let approved = due.map(|approved| approved_message(&approved.prune));
        let said = match self.held {
            Some(held) => {
                let brake = held.cause == Cause::Brake;
                let reason = if brake { "ApprovalNeeded" } else { "NotProven" };
                let all: Vec<_> = [held_message(held)].into_iter().chain(approved).collect();
                Some((reason, all.join("; also, ")))
            }
            None => approved.map(|message| ("Approved", message)),
        };
        show_held(status, said.as_ref().map(|(why, what)| (*why, &**what)), generation, now);
        let shown = self.pending.as_ref().filter(|pending| !pending.digest.is_empty());
        if let Some(shown) = shown {
            status.last_prune_digest = Some(shown.digest.clone());
        }
        status.pending_prune = self.pending;
        status.approved_prune = self.approved.map(|approved| approved.prune);
    }
}

fn show_held(
    status: &mut GitSyncStatus,
    said: Option<(&str, &str)>,
    generation: i64,
    now: Timestamp,
) {
    let conditions = &mut status.conditions;
    if let Some((reason, message)) = said {
        conditions::set(conditions, "PruneHeld", "True", reason, message, generation, now);
    } else {
        conditions::remove(conditions, "PruneHeld");
    }
}

/// The status of a GitSync whose approval was taken back.
#[must_use]
pub fn without_approval(
    mut status: GitSyncStatus,
    approved: &ApprovedPrune,
    generation: i64,
    now: Timestamp,
) -> GitSyncStatus {
    status.approved_prune = None;
    if is_of_other_spec(&approved.input_key, generation) {
        // It counted for nothing any more, and neither does what was held with it.
        let held = status.pending_prune.as_ref();
        if held.is_some_and(|held| held.input_key == approved.input_key) {
            status.pending_prune = None;
        }
        status.conditions.retain(|held| {
            held.type_ != "PruneHeld" || held.observed_generation == Some(generation)
        });
        return status;
    }
    let handled = status.last_handled_approval.as_deref();
    let pending = taken_back(status.pending_prune.as_ref(), approved, handled);
    if pending.input_key == approved.input_key {
        let PendingPrune { digest, count, reason, .. } = &pending;
        let others = format!(
            "an approval was taken back; {count} delete(s) are held with the digest {digest}: {reason}"
        );
        let message = if digest.is_empty() { TAKEN_BACK } else { &others };
        show_held(&mut status, Some(("ApprovalNeeded", message)), generation, now);
    }
    status.pending_prune = Some(pending);
    status
}

/// Shortens the longest lists until the status is small enough; its counts still say how many there are.
fn fit(status: &mut GitSyncStatus) {
    let bytes = |status: &GitSyncStatus| serde_json::to_vec(status).map_or(0, |json| json.len());
    let lists = [&status.orphans, &status.paused, &status.protected, &status.drifted];
    let lists: usize = lists.map(Vec::len).iter().sum();
    let listed = status.problems.len() + status.quarantined.len() + lists;
    // Nothing else gets so long, and most statuses need not be written out to know it.
    if listed < 20 && status.approved_prune.is_none() && status.pending_prune.is_none() {
        return;
    }
    while bytes(status) > MOST_BYTES {
        let GitSyncStatus { problems, quarantined, orphans, paused, protected, drifted, .. } =
            &mut *status;
        let names = [orphans, paused, protected, drifted];
        let longest =
            names.iter().map(|list| list.len()).chain([problems.len(), quarantined.len()]);
        let most = longest.max().unwrap_or_default() / 2;
        if most == 0 {
            return;
        }
        problems.truncate(most);
        quarantined.truncate(most);
        for list in names {
            list.truncate(most);
        }
    }
}

fn names(ids: &[ObjectId]) -> Vec<String> {
    ids.iter().take(MOST_NAMES).map(ToString::to_string).collect()
}

fn entry(done: SyncRecord, now: Timestamp) -> HistoryEntry {
    let SyncRecord {
        revision,
        author,
        subject,
        outcome,
        counts: (created, updated, pruned),
        duration_ms,
        trigger,
    } = done;
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    HistoryEntry {
        revision,
        author: (!author.is_empty()).then(|| cut(&author, 120)),
        subject: (!subject.is_empty()).then(|| cut(&subject, 120)),
        outcome: outcome.to_string(),
        created: count(created),
        updated: count(updated),
        pruned: count(pruned),
        duration_ms,
        trigger: trigger.to_string(),
        time: Time(now),
    }
}

/// Puts an entry into the history. One that goes on with what the last one began takes its place.
fn remember(history: &mut Vec<HistoryEntry>, mut new: HistoryEntry) {
    if let Some(last) =
        history.first_mut().filter(|last| last.outcome == SyncOutcome::Progressing.as_str())
    {
        if last.revision == new.revision {
            new.created += last.created;
            new.updated += last.updated;
            new.pruned += last.pruned;
            new.duration_ms = new.duration_ms.max(last.duration_ms);
            new.trigger = std::mem::take(&mut last.trigger);
            history.remove(0);
        } else {
            // Another commit came before it was finished.
            "Partial".clone_into(&mut last.outcome);
        }
    }
    history.insert(0, new);
    history.truncate(MOST_HISTORY);
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

fn cap_problem(mut problem: Problem) -> Problem {
    problem.path = problem.path.map(|path| cut(&path, MOST_PATH));
    problem.message = cut(&problem.message, MOST_MESSAGE);
    problem.hint = problem.hint.map(|hint| cut(&hint, MOST_MESSAGE));
    problem
}

/// At most `most` characters in one line. Servers quote what users wrote: nothing in it may change how the text looks.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most.saturating_sub(1)) {
        Some((end, last)) if end + last.len_utf8() < text.len() => printable(&text[..end]) + "…",
        _ => printable(text),
    }
}

#[cfg(test)]
#[path = "tests/status.rs"]
mod tests;
