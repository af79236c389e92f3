//! The report after a plan was applied, and when the GitSync is reconciled next.

use std::sync::Arc;
use std::time::Duration;

use crate::api::keys;
use crate::next::{Next, delay};
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::effect::Effect;
use crate::sync::io::{Ended, EngineError, Io};
use crate::sync::peers::hand_over::POLL_ANSWER_DEADLINE;
use crate::sync::reasons::{EngineReason, Trigger, Verdict, unready};
use crate::sync::reconcile::approvals::announce_outdated;
use crate::sync::reconcile::engine::{Engine, RECHECK_INTERVAL};
use crate::sync::reconcile::remote::POLL_REPORT_DELAY;
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::events::announce_objects;
use crate::sync::status::history::{
    self, Synced, event, moved_tag, with_unreported, without_arrived,
};
use crate::sync::status::plan_result::PlanResult;
use crate::sync::status::report::{Report, SyncRecord, Verified};
use crate::sync::status::verdict::{unreadable_remote, unwatched, verdict};
use crate::sync::status::webhook::WebhookReport;
use crate::sync::subject::Subject;

impl Engine {
    /// Plans a commit, applies the plan and reports it. The commit is the newest one, or while that one `waits` the one
    /// before.
    pub(super) async fn apply_commit(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
        waits: Option<Verdict>,
    ) -> Ended {
        let io = subject.io;
        let began = io.now();
        let result = self.plan_and_apply(state, subject, loaded).await?;
        if let Some(wait) = too_early(state, io, &result) {
            return Ok(Next::After(wait));
        }
        let waiting = waits.is_some();
        let verdict = &self.judge(state, loaded, &result, waits);
        let synced = Synced { subject, loaded, result: &result, verdict, waiting, began };
        let record = synced.record(&state.reports);
        self.report(state, &synced, record).await?;
        if result.outcome.stopped {
            return Ok(Next::After(Duration::ZERO));
        }
        if !verdict.reason.is(EngineReason::Progressing) {
            state.reports.trigger = Trigger::Cluster;
            state.reports.started = None;
        }
        Ok(Next::After(next_reconcile(state, subject, &result, waiting)))
    }

    /// The verdict on a commit after its plan was applied, as far as it was.
    fn judge(
        &self,
        state: &SyncState,
        loaded: &Loaded,
        result: &PlanResult,
        waits: Option<Verdict>,
    ) -> Verdict {
        let PlanResult { plan, outcome, remaining, problems, .. } = result;
        let revision = loaded.revision.to_string();
        if outcome.stopped {
            let writes = result.writes();
            let message = format!(
                "{revision}: {writes} object(s) were written or deleted before the GitSync or its commit changed"
            );
            let mut verdict = unready(EngineReason::Progressing, &message);
            verdict.reconciling = true;
            return verdict;
        }
        if let Some(failure) = state.remote.source_error.as_ref().filter(|_| !remaining.unanswered)
        {
            return unreadable_remote(failure);
        }
        let verdict = waits.unwrap_or_else(|| verdict(&revision, problems, plan, remaining));
        match self.stores.silent().filter(|_| verdict.ready) {
            Some(silent) => unwatched(&revision, &silent),
            None => verdict,
        }
    }

    /// Writes the status, and sends the events about the GitSync and about single objects.
    async fn report(
        &self,
        state: &mut SyncState,
        synced: &Synced<'_>,
        record: Option<SyncRecord>,
    ) -> Result<(), EngineError> {
        let Synced { subject, result, verdict, .. } = synced;
        let is_news = record.is_some();
        let last = subject.status().and_then(|status| status.history.first());
        let unreported = std::mem::take(&mut state.reports.unreported);
        let done = with_unreported(without_arrived(unreported, last), record);
        let event = done.last().filter(|_| is_news).map(|done| event(subject, verdict, done));
        let newest = done.last().filter(|_| is_news);
        let moved = last.zip(newest).and_then(|(last, newest)| moved_tag(subject, last, newest));
        let report = report_of(state, synced, &done);
        // Kept until the status is written: this reconcile may be dropped while it waits for the reply.
        state.reports.unreported = history::newest(&done);
        if result.outdated.is_some() {
            state.reports.outdated_approval.clone_from(&result.outdated);
        }
        let written = self.status().report_sync(subject, report, event).await;
        // Writes that gave way to this commit may go on.
        subject.io.emit(Effect::Writing(false));
        announce_objects(&self.stores, &mut state.reports, subject, result);
        written?;
        if let Some(moved) = moved {
            subject.io.emit(Effect::Event(Box::new(moved)));
        }
        let outdated = state.reports.outdated_approval.take();
        if let Some(outdated) =
            outdated.filter(|it| subject.annotation(keys::APPROVE_PRUNE) == Some(it))
        {
            // After the status, which says that the approval was acted on.
            announce_outdated(subject, &outdated, result.plan.held.as_ref());
        }
        state.reports.unreported.clear();
        state.held_deletes = Some(result.pending.clone());
        Ok(())
    }
}

/// The report of a plan that was applied. `done` are the syncs for the history.
fn report_of<'a>(state: &SyncState, synced: &Synced<'a>, done: &[SyncRecord]) -> Report<'a> {
    let Synced { subject, loaded, result, verdict, .. } = synced;
    let PlanResult { plan, outcome, .. } = result;
    let finished = !verdict.reason.is(EngineReason::Progressing)
        || (outcome.unstarted == 0 && !outcome.stopped);
    Report {
        generation: subject.generation,
        verdict: (*verdict).clone(),
        attempted: state.remote.attempted.as_ref().map(ToString::to_string),
        revision: Some(loaded.revision.to_string()),
        handled: state.remote.request.clone().filter(|_| finished),
        problems: Some(&result.problems),
        plan: Some(plan),
        counts: Some(&result.counts),
        no_delete_due: plan.proves_its_size(outcome.pruned),
        failed: outcome.failures.len() + result.blocked,
        approved: result.approved.clone(),
        handled_approval: result.handled.clone(),
        pending: result.pending.clone(),
        recalled: result.recalled,
        done: done.to_vec(),
        stages: Some(result.stages.clone()),
        suspended: false,
        blind: false,
        silent: None,
        verified: Verified::of(subject, &state.remote),
        webhook: Some(WebhookReport::of(subject, &state.remote)),
        now: subject.io.time(),
    }
}

/// When to reconcile again, if nothing was done and there is nothing to report yet.
fn too_early(state: &SyncState, io: &Io, result: &PlanResult) -> Option<Duration> {
    if result.outcome.stopped && result.writes() == 0 {
        return Some(Duration::ZERO);
    }
    if !result.plan.is_settled() {
        return None;
    }
    let question = state.remote.polling();
    if state.remote.owes_approval_poll && question.is_none() {
        // The next reconcile begins with a poll.
        return Some(Duration::ZERO);
    }
    // Most remotes answer in a moment.
    let question = question.filter(|_| result.remaining.unanswered)?;
    let polling_for = io.now().saturating_duration_since(question.began);
    (polling_for < POLL_REPORT_DELAY).then_some(POLL_REPORT_DELAY)
}

/// When to reconcile again after the report.
fn next_reconcile(
    state: &mut SyncState,
    subject: &Subject<'_>,
    result: &PlanResult,
    waiting: bool,
) -> Duration {
    let PlanResult { outcome, remaining, .. } = result;
    // An object that was not the planned one any more is planned again, also if its change alone starts no plan.
    let retry =
        remaining.transient > 0 || (remaining.undeleted > 0 && !waiting) || outcome.skipped > 0;
    state.plans.attempts = if retry { state.plans.attempts.saturating_add(1) } else { 0 };
    let mut wait = state.remote.until_poll(subject.io.now());
    if let Some(contended) = remaining.wait {
        wait = wait.min(contended);
    }
    if remaining.unseen.is_some() {
        wait = wait.min(RECHECK_INTERVAL);
    }
    if !remaining.asked.is_empty() {
        wait = wait.min(POLL_ANSWER_DEADLINE);
    }
    if remaining.refusal.is_some() || state.plans.denied_until.is_some() {
        wait = wait.min(subject.retry_after());
    }
    if retry {
        wait = wait.min(subject.io.jitter(delay(state.plans.attempts)));
    } else if outcome.unstarted > 0 {
        // The plan is resumed.
        wait = Duration::ZERO;
    }
    wait
}
