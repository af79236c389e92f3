//! The history of a GitSync: one entry for each sync that changed something or ended otherwise than the one before, and
//! the event that goes with it.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::git_sync::HistoryEntry;
use crate::git::Revision;
use crate::sync::apply::Outcome;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::effect::{Event, EventType};
use crate::sync::plan::Plan;
use crate::sync::reasons::{EngineReason, EventReason, SyncOutcome, Verdict};
use crate::sync::status::events::is_good;
use crate::sync::status::limits::{MOST_HISTORY_ENTRIES, shorten};
use crate::sync::status::memory::ReportMemory;
use crate::sync::status::plan_result::PlanResult;
use crate::sync::status::report::SyncRecord;
use crate::sync::subject::Subject;

/// How many syncs are kept until a report of them can be written: as many as the history has entries.
const MOST_UNREPORTED: usize = MOST_HISTORY_ENTRIES;
/// Characters of a commit's author and of its subject.
const MOST_COMMIT_CHARS: usize = 120;

/// A commit whose plan was applied, as far as it was.
pub(crate) struct Synced<'a> {
    pub subject: &'a Subject<'a>,
    pub loaded: &'a Loaded,
    pub result: &'a PlanResult,
    pub verdict: &'a Verdict,
    /// Whether the newest commit waits for other GitSyncs (`dependsOn`).
    pub waiting: bool,
    /// When the reconcile began to plan.
    pub began: Instant,
}

impl Synced<'_> {
    /// The record of the sync, if it is worth an entry in the history.
    pub(crate) fn record(&self, reports: &ReportMemory) -> Option<SyncRecord> {
        let Self { subject, loaded, result, verdict, waiting, began } = self;
        let PlanResult { plan, outcome: written, remaining, .. } = result;
        let revision = loaded.revision.to_string();
        let failed = remaining.transient > 0 || remaining.refusal.is_some();
        let outcome = sync_outcome(verdict, plan, failed);
        // A commit that was applied whole before gets no second entry because some kinds cannot be watched.
        let unwatched = verdict.reason.is(EngineReason::KindsNotWatched);
        let last = subject.status().and_then(|status| status.history.first());
        let differs = last.is_none_or(|last| {
            last.revision != revision || (last.outcome != outcome.as_str() && !unwatched)
        });
        let is_news = result.writes() > 0
            || !reports.unreported.is_empty()
            || (differs && !waiting && !verdict.reason.is(EngineReason::Progressing));
        if !is_news {
            return None;
        }
        let Outcome { created, updated, pruned, .. } = written;
        tracing::info!(object = %subject.key, revision, outcome = outcome.as_str(), created, updated, pruned,
            reason = verdict.reason.as_str(), "synced");
        Some(SyncRecord {
            revision,
            author: loaded.info.author.clone(),
            subject: loaded.info.subject.clone(),
            outcome,
            counts: (*created, *updated, *pruned),
            duration_ms: subject.io.millis_since(reports.started.unwrap_or(*began)),
            trigger: reports.trigger,
        })
    }
}

/// The outcome of a sync, for the history.
fn sync_outcome(verdict: &Verdict, plan: &Plan, failed: bool) -> SyncOutcome {
    if verdict.ready {
        SyncOutcome::Applied
    } else if failed {
        SyncOutcome::Failed
    } else if plan.held.is_some()
        && (verdict.reason.is(EngineReason::PruneHeld)
            || verdict.reason.is(EngineReason::PruneWaiting))
    {
        SyncOutcome::Held
    } else if verdict.reason.is(EngineReason::Progressing)
        || verdict.reason.is(EngineReason::Terminating)
    {
        SyncOutcome::Progressing
    } else {
        SyncOutcome::Partial
    }
}

/// The event of a sync.
pub(crate) fn event(subject: &Subject<'_>, verdict: &Verdict, done: &SyncRecord) -> Event {
    let (created, updated, pruned) = done.counts;
    Event {
        about: subject.about(),
        type_: EventType::normal_if(is_good(verdict.ready, verdict.reason.engine())),
        reason: verdict.reason.to_string(),
        note: format!(
            "{} ({created} created, {updated} updated, {pruned} pruned)",
            verdict.message
        ),
    }
}

/// The event of a tag that names another commit than at the last sync. Tags are not meant to move. (pure)
pub(crate) fn moved_tag(
    subject: &Subject<'_>,
    last: &HistoryEntry,
    done: &SyncRecord,
) -> Option<Event> {
    let follows = subject.sync.spec.reference.as_ref()?;
    let is_tag = follows.tag.is_some() || follows.semver.is_some();
    let (before, now) = (Revision::parse(&last.revision)?, Revision::parse(&done.revision)?);
    let moved = is_tag && before.name == now.name && before.commit != now.commit;
    moved.then(|| Event {
        about: subject.about(),
        type_: EventType::Warning,
        reason: EventReason::TagMoved.to_string(),
        note: format!("the tag {} has moved from {} to {}", now.name, before.commit, now.commit),
    })
}

/// The newest of these syncs: as many as are kept until they can be reported.
pub(crate) fn newest(done: &[SyncRecord]) -> Vec<SyncRecord> {
    done[done.len().saturating_sub(MOST_UNREPORTED)..].to_vec()
}

/// The unreported syncs followed by the `new` one. Two syncs of one commit in a row become one.
pub(crate) fn with_unreported(
    mut unreported: Vec<SyncRecord>,
    new: Option<SyncRecord>,
) -> Vec<SyncRecord> {
    let Some(mut new) = new else { return unreported };
    let wrote_nothing = new.counts == (0, 0, 0);
    if let Some(last) = unreported.pop_if(|last| last.revision == new.revision) {
        let (created, updated, pruned) = last.counts;
        new.counts.0 += created;
        new.counts.1 += updated;
        new.counts.2 += pruned;
        new.duration_ms = new.duration_ms.max(last.duration_ms);
        new.trigger = last.trigger;
        if wrote_nothing
            && last.outcome != SyncOutcome::Progressing
            && new.outcome != SyncOutcome::Applied
        {
            // All counts are of the earlier sync, so its outcome stays.
            new.outcome = last.outcome;
        }
    }
    unreported.push(new);
    unreported
}

/// The unreported syncs; none of them if the newest entry of the history shows that their report was written, although its
/// reply was lost.
pub(crate) fn without_arrived(
    mut unreported: Vec<SyncRecord>,
    newest: Option<&HistoryEntry>,
) -> Vec<SyncRecord> {
    let same = |done: &SyncRecord, entry: &HistoryEntry| {
        let (created, updated, pruned) = done.counts;
        (&*done.revision, done.outcome.as_str(), done.duration_ms)
            == (&*entry.revision, &*entry.outcome, entry.duration_ms)
            && [created, updated, pruned].map(count) == [entry.created, entry.updated, entry.pruned]
    };
    if unreported.last().zip(newest).is_some_and(|(done, entry)| same(done, entry)) {
        unreported.clear();
    }
    unreported
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The entry of the history for a sync.
pub(super) fn entry(done: SyncRecord, now: Timestamp) -> HistoryEntry {
    let SyncRecord {
        revision,
        author,
        subject,
        outcome,
        counts: (created, updated, pruned),
        duration_ms,
        trigger,
    } = done;
    HistoryEntry {
        revision,
        author: (!author.is_empty()).then(|| shorten(&author, MOST_COMMIT_CHARS)),
        subject: (!subject.is_empty()).then(|| shorten(&subject, MOST_COMMIT_CHARS)),
        outcome: outcome.to_string(),
        created: count(created),
        updated: count(updated),
        pruned: count(pruned),
        duration_ms,
        trigger: trigger.to_string(),
        time: Time(now),
    }
}

/// Puts an entry into the history. It replaces the entry of a sync of the same commit that was still in progress, and takes
/// over its counts.
pub(super) fn remember(history: &mut Vec<HistoryEntry>, mut new: HistoryEntry) {
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
            // Another commit came before that sync was finished.
            "Partial".clone_into(&mut last.outcome);
        }
    }
    history.insert(0, new);
    history.truncate(MOST_HISTORY_ENTRIES);
}

#[cfg(test)]
#[path = "tests/history.rs"]
mod tests;
