//! From a commit and the live objects to the writes: one plan, and what applying it has led to.

use std::sync::Arc;

use crate::api::git_sync::{Problem, Stages};
use crate::definition::diagnostic;
use crate::sync::apply::Outcome;
use crate::sync::apply::problems::{Written, write_problems};
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::EngineError;
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::make_plan::{hold_deletes, leave_out};
use crate::sync::reconcile::state::SyncState;
use crate::sync::reconcile::work::Work;
use crate::sync::status::plan_result::PlanResult;
use crate::sync::subject::Subject;

impl Engine {
    /// Makes a plan for the commit and applies it.
    pub(super) async fn plan_and_apply(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
    ) -> Result<PlanResult, EngineError> {
        let io = subject.io;
        let plan_start = io.now();
        let mut work = self.make_plan(state, subject, loaded);
        leave_out(state, subject, &mut work);
        self.consult_peers(state, subject, &mut work);
        let held = hold_deletes(state, subject, &work);
        let postponed = self.postpone_deletes(state, subject, &mut work);
        io.tick().await;
        let mut stages =
            Stages { plan_ms: io.millis_since(plan_start), ..state.remote.stages.clone() };
        // Before the first delete: after a crash the other deletes are still approved.
        self.remember_approval(state, subject, &work, &held).await?;
        let apply_start = io.now();
        let outcome = self.write(state, subject, &mut work).await?;
        stages.apply_ms = io.millis_since(apply_start);
        let (counts, approved) = self.take_stock(state, subject, &mut work, &outcome)?;
        let problems = problems(state, subject, &work, &outcome);
        let Work { plan, recalled, blocked, mut remaining, contended, .. } = work;
        let reported = !remaining.asked.is_empty() || remaining.unseen.is_some();
        if !reported && !remaining.unanswered && contended.is_empty() {
            remaining.undeleted += postponed;
        }
        Ok(PlanResult {
            plan,
            recalled,
            pending: held.pending,
            outcome,
            blocked,
            remaining,
            approved,
            handled: held.handled,
            outdated: held.outdated,
            problems,
            stages,
            counts,
        })
    }
}

/// All problems: of the commit, and of the writes. While the newest commit waits for others, its problems are listed.
fn problems(
    state: &SyncState,
    subject: &Subject<'_>,
    work: &Work<'_>,
    outcome: &Outcome,
) -> Vec<Problem> {
    let Work { loaded, plan, contended, .. } = work;
    let read = state.remote.loaded.as_ref().filter(|_| state.dependencies.waiting);
    let mut problems = read.unwrap_or(loaded).catalog.problems.clone();
    let view = state.plans.view.as_ref();
    problems.extend(view.into_iter().flat_map(|view| view.references.problems()).cloned());
    let refused = &state.plans.refused;
    let written = Written { plan, outcome, refused, contended };
    problems.extend(write_problems(subject.key, &loaded.measure, &written));
    diagnostic::sort(&mut problems);
    problems
}
