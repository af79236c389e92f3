//! What is said of a plan that was carried out, and when the GitSync is reconciled next.

use std::sync::Arc;
use std::time::Duration;

use crate::api::keys;
use crate::next::{Next, delay};
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::effect::Effect;
use crate::sync::io::poll::SourceFailure;
use crate::sync::io::{Ended, EngineError, Io};
use crate::sync::peers::hand_over::GIVE_UP;
use crate::sync::reasons::{EngineReason, Trigger, Verdict, unready};
use crate::sync::reconcile::FIRST_POLL;
use crate::sync::reconcile::approvals::tell_outdated;
use crate::sync::reconcile::engine::{Engine, LOOK_AGAIN};
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::events::tell_objects;
use crate::sync::status::history::{Synced, event, newest, not_arrived, told_with};
use crate::sync::status::plan_result::PlanResult;
use crate::sync::status::verdict::{unwatched, verdict};
use crate::sync::status::{Report, SyncRecord};
use crate::sync::subject::Subject;

impl Engine {
    /// Brings the namespace where a commit wants it, and tells: the newest that was read whole, or while that `waits`
    /// the one before.
    pub(crate) async fn bring_about(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
        waits: Option<Verdict>,
    ) -> Ended {
        let io = subject.io;
        let began = io.now();
        let carry = self.plan_and_apply(state, subject, loaded).await?;
        if let Some(wait) = too_early(state, io, &carry) {
            return Ok(Next::After(wait));
        }
        let waiting = waits.is_some();
        let said = self.judge(state, loaded, &carry, waits);
        let finished = !said.reason.is(EngineReason::Progressing);
        let result = &carry;
        let synced = Synced { subject, loaded, result, verdict: &said, waiting, began };
        let news = synced.news(&state.telling);
        self.report(state, subject, loaded, &carry, said, news).await?;
        if carry.outcome.stopped {
            return Ok(Next::After(Duration::ZERO));
        }
        if finished {
            state.telling.trigger = Trigger::Cluster;
            state.telling.started = None;
        }
        Ok(Next::After(come_back(state, subject, &carry, waiting)))
    }

    /// What is to be said of a commit after its plan was carried out, as far as it was.
    fn judge(
        &self,
        state: &SyncState,
        loaded: &Loaded,
        carry: &PlanResult,
        waits: Option<Verdict>,
    ) -> Verdict {
        let PlanResult { plan, outcome, carried, problems, .. } = carry;
        let revision = loaded.revision.to_string();
        if outcome.stopped {
            let writes = carry.writes();
            let message = format!(
                "{revision}: {writes} object(s) were written or deleted before the GitSync or its commit changed"
            );
            let mut said = unready(EngineReason::Progressing, &message);
            said.reconciling = true;
            return said;
        }
        if let Some(failure) = state.remote.source_error.as_ref().filter(|_| !carried.unanswered) {
            return unread(failure);
        }
        let said = waits.unwrap_or_else(|| verdict(&revision, problems, plan, carried));
        match self.stores.silent().filter(|_| said.ready) {
            Some(silent) => unwatched(&revision, &silent),
            None => said,
        }
    }

    /// Writes the status, and tells events of what it says and of what became of single objects.
    async fn report(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        loaded: &Loaded,
        carry: &PlanResult,
        said: Verdict,
        news: Option<SyncRecord>,
    ) -> Result<(), EngineError> {
        let PlanResult { plan, outcome, .. } = carry;
        let finished = !said.reason.is(EngineReason::Progressing)
            || (outcome.unstarted == 0 && !outcome.stopped);
        let is_news = news.is_some();
        let last = subject.status().and_then(|status| status.history.first());
        let untold = std::mem::take(&mut state.telling.untold);
        let done = told_with(not_arrived(untold, last), news);
        let event = done.last().filter(|_| is_news).map(|done| event(subject, &said, done));
        let report = Report {
            generation: subject.generation,
            verdict: said,
            attempted: state.remote.attempted.as_ref().map(ToString::to_string),
            revision: Some(loaded.revision.to_string()),
            handled: state.remote.request.clone().filter(|_| finished),
            problems: Some(&carry.problems),
            plan: Some(plan),
            counts: Some(&carry.counts),
            no_delete_due: plan.proves_its_size(outcome.pruned),
            failed: outcome.failures.len() + carry.blocked,
            approved: carry.approved.clone(),
            handled_approval: carry.handled.clone(),
            pending: carry.pending.clone(),
            recalled: carry.recalled,
            done: done.clone(),
            stages: Some(carry.stages.clone()),
            suspended: false,
            blind: false,
            silent: None,
            now: subject.io.time(),
        };
        // Until it is told: this pass may be given up just now. It is said with what is said next.
        state.telling.untold = newest(&done);
        if carry.outdated.is_some() {
            state.telling.outdated.clone_from(&carry.outdated);
        }
        let written = self.status().write_report(subject, report, event).await;
        // What waited for the commit to be applied may go on.
        subject.io.emit(Effect::Writing(false));
        tell_objects(&self.stores, &mut state.telling, subject, carry);
        written?;
        let given = state.telling.outdated.take();
        if let Some(given) = given.filter(|it| subject.annotation(keys::APPROVE_PRUNE) == Some(it))
        {
            // After that the status says that it was acted on.
            tell_outdated(subject, &given, plan.held.as_ref());
        }
        state.telling.untold.clear();
        state.latch = Some(carry.pending.clone());
        Ok(())
    }
}

/// Not Ready, because the newest commit cannot be read.
pub(crate) fn unread(failure: &SourceFailure) -> Verdict {
    let mut said = unready(failure.reason, &failure.message);
    said.stalled = failure.terminal;
    said.reconciling = !failure.terminal;
    said
}

/// When to come back, if nothing was done and there is nothing to tell yet.
fn too_early(state: &SyncState, io: &Io, carry: &PlanResult) -> Option<Duration> {
    if carry.outcome.stopped && carry.writes() == 0 {
        return Some(Duration::ZERO);
    }
    if !carry.plan.is_settled() {
        return None;
    }
    let question = state.remote.polling();
    if state.remote.owed && question.is_none() {
        // The next pass begins with a look.
        return Some(Duration::ZERO);
    }
    // Most remotes answer in a moment.
    let asked = question.filter(|_| carry.carried.unanswered)?;
    (io.now().saturating_duration_since(asked.began) < FIRST_POLL).then_some(FIRST_POLL)
}

/// When to come back after all was told.
fn come_back(
    state: &mut SyncState,
    subject: &Subject<'_>,
    carry: &PlanResult,
    waiting: bool,
) -> Duration {
    let PlanResult { outcome, carried, .. } = carry;
    // What is not any more what was planned with is planned anew, whether or not the change alone starts a plan.
    let retry = carried.transient > 0 || (carried.undeleted > 0 && !waiting) || outcome.skipped > 0;
    state.plans.attempts = if retry { state.plans.attempts.saturating_add(1) } else { 0 };
    let mut wait = state.remote.until_poll(subject.io.now());
    if let Some(fought) = carried.wait {
        wait = wait.min(fought);
    }
    if carried.unseen.is_some() {
        wait = wait.min(LOOK_AGAIN);
    }
    if !carried.asked.is_empty() {
        wait = wait.min(GIVE_UP);
    }
    if carried.refusal.is_some() || state.plans.denied_until.is_some() {
        wait = wait.min(subject.retry_after());
    }
    if retry {
        wait = wait.min(subject.io.jitter(delay(state.plans.attempts)));
    } else if outcome.unstarted > 0 {
        // The next piece.
        wait = Duration::ZERO;
    }
    wait
}
