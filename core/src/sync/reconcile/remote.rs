//! When the remote of a GitSync is polled, and what is reported while no commit can be applied.

use std::time::Duration;

use crate::next::Next;
use crate::sync::io::Ended;
use crate::sync::live_namespace::Namespace;
use crate::sync::peers::offers::offered;
use crate::sync::plan::refresh::{has_objects, needless};
use crate::sync::poll::PollContext;
use crate::sync::reasons::{EngineReason, Verdict, unready};
use crate::sync::reconcile::engine::Engine;

use crate::sync::reconcile::state::SyncState;
use crate::sync::status::report::Report;
use crate::sync::status::verdict::{READING_MESSAGE, unreadable_remote};
use crate::sync::subject::Subject;

/// How long a poll may take before the status says that it is under way: most remotes answer sooner.
pub(super) const POLL_REPORT_DELAY: Duration = Duration::from_secs(1);

impl Engine {
    /// Takes in the result of a poll that has ended, and begins another poll if one is due.
    pub(super) fn poll(&self, state: &mut SyncState, subject: &Subject<'_>) {
        let poller = self.poller();
        if let Some(result) = poller.take_in(&mut state.remote, subject) {
            state.note_poll(result);
        }
        let Some(trigger) = poller.due(&state.remote, subject) else { return };
        let (view, live) = (state.plans.view.as_ref(), subject.live(&self.stores));
        let index = view.map(|view| &view.index);
        let loaded = state.remote.loaded.as_deref();
        // While a commit waits for dependencies, the commit that was applied before the operator started is kept applied.
        let waits = !subject.sync.spec.depends_on.is_empty();
        let context = PollContext {
            needless: loaded.map(|loaded| needless(loaded, index, &live)).unwrap_or_default(),
            has_objects: has_objects(view, &subject.reference(), &live),
            reads_last: waits && !state.dependencies.knows_before(loaded),
        };
        poller.begin(&mut state.remote, subject, trigger, context);
    }

    /// Reports what the newest commit waits for, when there is no earlier commit to keep applied.
    pub(super) async fn report_dependencies(
        &self,
        state: &SyncState,
        subject: &Subject<'_>,
        waits: Verdict,
    ) -> Ended {
        self.offer_unwanted(state, subject);
        let mut report = Report::blank(subject, waits, &state.remote);
        let newest = state.remote.loaded.as_ref();
        report.problems = newest.map(|newest| newest.catalog.problems.as_slice());
        // Before the first commit is applied there is no drift to undo.
        report.blind = subject.last_applied().is_some();
        self.status().report(subject, report).await?;
        Ok(Next::After(state.remote.until_poll(subject.io.now())))
    }

    /// Reports why no commit can be applied: the remote cannot be read, or it has not answered yet.
    pub(super) async fn report_remote(&self, state: &SyncState, subject: &Subject<'_>) -> Ended {
        let (io, remote) = (subject.io, &state.remote);
        let failure =
            remote.source_error.as_ref().filter(|_| remote.generation == subject.generation);
        let verdict = match (failure, remote.polling()) {
            (Some(failure), _) => unreadable_remote(failure),
            (None, Some(question))
                if io.now().saturating_duration_since(question.began) < POLL_REPORT_DELAY =>
            {
                return Ok(Next::After(POLL_REPORT_DELAY));
            }
            (None, _) => {
                let mut verdict = unready(EngineReason::Progressing, READING_MESSAGE);
                verdict.reconciling = true;
                verdict
            }
        };
        let seen = subject.status().and_then(|status| status.observed_generation);
        // After a restart of the operator the status of this spec stays until the first poll has ended.
        if !verdict.reason.is(EngineReason::Progressing) || seen != Some(subject.generation) {
            let mut report = Report::blank(subject, verdict, remote);
            // Without an object there is nothing whose changes could be undone.
            let (view, live) = (state.plans.view.as_ref(), subject.live(&self.stores));
            let has_some = has_objects(view, &subject.reference(), &live);
            report.blind = remote.source_error.is_some() && has_some;
            self.status().report(subject, report).await?;
        }
        let polling = remote.polling().is_some();
        Ok(Next::After(if polling { POLL_REPORT_DELAY } else { remote.until_poll(io.now()) }))
    }

    /// Offers to the peers what the newest commit does not want, while that commit waits for dependencies and no earlier one
    /// can be planned with.
    fn offer_unwanted(&self, state: &SyncState, subject: &Subject<'_>) {
        let Subject { io, key, .. } = subject;
        let live = subject.live(&self.stores);
        let since = state.remote.loaded.as_deref().map(|newest| state.freshness.since(newest));
        let (since, syncs) = (since.unwrap_or_default(), &self.stores.git_syncs);
        let others = self.peers.view(key, since, io.now(), syncs);
        let gives = state
            .waiting_commit(subject.generation)
            .map(|newest| offered(newest, &subject.reference(), &live.ids(), &live, &others));
        let gives = gives.unwrap_or_default();
        self.peers.leave_to(io, key, &gives, state.remote.loaded.as_ref());
    }
}
