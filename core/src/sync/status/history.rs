//! What is told of a pass: the entry of the history, and its event.

use std::time::Instant;

use crate::api::ObjectId;
use crate::api::git_sync::HistoryEntry;
use crate::sync::apply::Outcome;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::effect::{Event, EventType};
use crate::sync::plan::Plan;
use crate::sync::reasons::Verdict;
use crate::sync::reasons::{EngineReason, SyncOutcome, Trigger};
use crate::sync::status::SyncRecord;
use crate::sync::status::events::is_good;
use crate::sync::status::plan_result::PlanResult;
use crate::sync::subject::Subject;
use std::collections::BTreeSet;

/// How many syncs are remembered that could not be told: as many as a history has.
const MOST_UNTOLD: usize = 10;

/// What there is to tell.
pub struct ReportMemory {
    /// What was done and could not be told.
    pub untold: Vec<SyncRecord>,
    /// What started the work that is being done.
    pub trigger: Trigger,
    /// When the work that is being done began.
    pub started: Option<Instant>,
    /// An approval that releases nothing, until that is told.
    pub outdated: Option<String>,
    /// The objects that cannot be written and that events have told of, each with the event's reason; `None` before that is known
    /// from the status.
    pub told: Option<BTreeSet<(ObjectId, &'static str)>>,
}

impl Default for ReportMemory {
    fn default() -> Self {
        let trigger = Trigger::Start;
        Self { untold: Vec::new(), trigger, started: None, outdated: None, told: None }
    }
}

/// A commit that was brought about, as far as it was.
pub(crate) struct Synced<'a> {
    pub subject: &'a Subject<'a>,
    pub loaded: &'a Loaded,
    pub result: &'a PlanResult,
    /// What is said of it.
    pub verdict: &'a Verdict,
    /// Whether the newest commit waits for others.
    pub waiting: bool,
    /// When it began.
    pub began: Instant,
}

impl Synced<'_> {
    /// What was done, if it is worth an entry in the history.
    pub(crate) fn news(&self, telling: &ReportMemory) -> Option<SyncRecord> {
        let Self { subject, loaded, result, verdict, waiting, began } = self;
        let PlanResult { plan, outcome, carried, .. } = result;
        let revision = loaded.revision.to_string();
        let failed = carried.transient > 0 || carried.refusal.is_some();
        let word = outcome_word(verdict, plan, failed);
        // What was applied whole once is no news when it can only not be watched.
        let unwatched = verdict.reason.is(EngineReason::KindsNotWatched);
        let last = subject.status().and_then(|status| status.history.first());
        let other = last.is_none_or(|last| {
            last.revision != revision || (last.outcome != word.as_str() && !unwatched)
        });
        let is_news = result.writes() > 0
            || !telling.untold.is_empty()
            || (other && !waiting && !verdict.reason.is(EngineReason::Progressing));
        if !is_news {
            return None;
        }
        let Outcome { created, updated, pruned, .. } = outcome;
        tracing::info!(object = %subject.key, revision, outcome = word.as_str(), created, updated, pruned,
            reason = verdict.reason.as_str(), "synced");
        Some(SyncRecord {
            revision,
            author: loaded.info.author.clone(),
            subject: loaded.info.subject.clone(),
            outcome: word,
            counts: (*created, *updated, *pruned),
            duration_ms: subject.io.millis_since(telling.started.unwrap_or(*began)),
            trigger: telling.trigger,
        })
    }
}

/// What a sync did, in a word for the history.
pub(crate) fn outcome_word(verdict: &Verdict, plan: &Plan, failed: bool) -> SyncOutcome {
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

/// The event that tells of it.
pub(crate) fn event(subject: &Subject<'_>, said: &Verdict, done: &SyncRecord) -> Event {
    let (created, updated, pruned) = done.counts;
    Event {
        about: subject.about(),
        type_: EventType::normal_if(is_good(said.ready, said.reason.as_str())),
        reason: said.reason.to_string(),
        note: format!("{} ({created} created, {updated} updated, {pruned} pruned)", said.message),
    }
}

/// The newest of these, as many as are remembered until they can be told.
pub(crate) fn newest(done: &[SyncRecord]) -> Vec<SyncRecord> {
    done[done.len().saturating_sub(MOST_UNTOLD)..].to_vec()
}

/// What was done, after what was done before and could not be told. What belongs to one commit is one entry.
pub(crate) fn told_with(mut untold: Vec<SyncRecord>, new: Option<SyncRecord>) -> Vec<SyncRecord> {
    let Some(mut new) = new else { return untold };
    let wrote_nothing = new.counts == (0, 0, 0);
    if let Some(last) = untold.pop_if(|last| last.revision == new.revision) {
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
            // What became of it then is what its counts are of.
            new.outcome = last.outcome;
        }
    }
    untold.push(new);
    untold
}

/// Without what has arrived although there was no reply: it is the newest entry of the history.
pub(crate) fn not_arrived(
    mut untold: Vec<SyncRecord>,
    newest: Option<&HistoryEntry>,
) -> Vec<SyncRecord> {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let same = |done: &SyncRecord, entry: &HistoryEntry| {
        let (created, updated, pruned) = done.counts;
        (&*done.revision, done.outcome.as_str(), done.duration_ms)
            == (&*entry.revision, &*entry.outcome, entry.duration_ms)
            && [created, updated, pruned].map(count) == [entry.created, entry.updated, entry.pruned]
    };
    if untold.last().zip(newest).is_some_and(|(done, entry)| same(done, entry)) {
        untold.clear();
    }
    untold
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::sync::reasons::Trigger;

    fn done(revision: &str, outcome: SyncOutcome, created: usize) -> SyncRecord {
        SyncRecord {
            revision: revision.into(),
            author: String::new(),
            subject: String::new(),
            outcome,
            counts: (created, 0, 0),
            duration_ms: 5,
            trigger: Trigger::Interval,
        }
    }

    #[test]
    fn g18_what_could_not_be_told_is_told_with_what_is_done_next_for_its_commit() {
        let told = told_with(
            vec![done("a", SyncOutcome::Applied, 2)],
            Some(done("a", SyncOutcome::Partial, 1)),
        );
        assert_eq!(told, [done("a", SyncOutcome::Partial, 3)]);
        // What comes after it and writes nothing does not change what became of it.
        let told = told_with(
            vec![done("a", SyncOutcome::Applied, 2)],
            Some(done("a", SyncOutcome::Failed, 0)),
        );
        assert_eq!(told, [done("a", SyncOutcome::Applied, 2)]);
        // Unless all is well then, because somebody else has written it for example.
        for before in [SyncOutcome::Progressing, SyncOutcome::Failed, SyncOutcome::Partial] {
            let told =
                told_with(vec![done("a", before, 2)], Some(done("a", SyncOutcome::Applied, 0)));
            assert_eq!(told, [done("a", SyncOutcome::Applied, 2)]);
        }
        let told = told_with(
            vec![done("a", SyncOutcome::Applied, 2)],
            Some(done("b", SyncOutcome::Applied, 1)),
        );
        assert_eq!(told, [done("a", SyncOutcome::Applied, 2), done("b", SyncOutcome::Applied, 1)]);
        assert_eq!(
            told_with(vec![done("a", SyncOutcome::Applied, 2)], None),
            [done("a", SyncOutcome::Applied, 2)]
        );
    }

    #[test]
    fn g18_what_has_arrived_without_a_reply_is_not_told_twice() {
        let entry = |created| HistoryEntry {
            revision: "a".into(),
            author: None,
            subject: None,
            outcome: "Applied".into(),
            created,
            updated: 0,
            pruned: 0,
            duration_ms: 5,
            trigger: "Interval".into(),
            time: Time(Timestamp::UNIX_EPOCH),
        };
        let untold = || vec![done("a", SyncOutcome::Applied, 2)];
        assert_eq!(not_arrived(untold(), Some(&entry(2))), []);
        assert_eq!(not_arrived(untold(), Some(&entry(1))), untold());
        assert_eq!(not_arrived(untold(), None), untold());
    }
}
