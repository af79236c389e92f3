//! What a GitSync offers to others while its newest commit waits for some of them (`dependsOn`): it may be just that for which one
//! of them is not Ready. Nothing is deleted by that.

use super::board::{Board, Namespace, is_paused};
use super::desired::{Change, changes};
use super::end::is_ours;
use super::engine::{Engine, Subject};
use super::loaded::Loaded;
use super::plan::Others;
use super::state::State;
use crate::api::ObjectId;
use crate::cluster::store::Key;

/// What may be ours and not be wanted by the newest commit, while an earlier one is brought about. Costs what is open, and what
/// differs between the two.
pub(super) fn candidates(state: &State, board: &Board, loaded: &Loaded) -> Vec<ObjectId> {
    let Some(newest) = newest(state) else { return Vec::new() };
    let gone = changes(&loaded.desired, &newest.desired).into_iter();
    let gone = gone.filter(|(_, change)| *change == Change::Gone).map(|(id, _)| id);
    board.open().cloned().chain(gone).collect()
}

/// The newest commit, if it waits and proves what it does not want.
fn newest(state: &State) -> Option<&Loaded> {
    let newest = state.remote.loaded.as_deref().filter(|_| state.waits.waiting)?;
    (state.remote.source_error.is_none() && !newest.catalog.has_errors()).then_some(newest)
}

/// Those of these live objects that are ours, that the newest commit does not want, and that another GitSync wants, with its name.
pub(super) fn offered(
    state: &State,
    subject: &Subject<'_>,
    candidates: &[ObjectId],
    live: &dyn Namespace,
    others: &dyn Others,
) -> Vec<(ObjectId, String)> {
    // What was found for another spec may be long out of date.
    let answered = state.remote.generation == subject.generation;
    let Some(newest) = newest(state).filter(|_| answered) else { return Vec::new() };
    let sync = subject.reference();
    let free = |id: &ObjectId| {
        let ours = live.get(id).filter(|live| is_ours(live, id, &sync));
        ours.is_some_and(|live| !live.facts().deleting && !is_paused(&live))
    };
    let unwanted = candidates.iter().filter(|id| !newest.desired.contains_key(id));
    let offer =
        |id: &ObjectId| others.wanted_by(id).filter(|_| free(id)).map(|to| (id.clone(), to));
    unwanted.filter_map(offer).collect()
}

impl Engine {
    /// The same of all that there is, while there is no commit to plan with: no earlier one answers this spec.
    pub(super) fn offer_all(&self, state: &State, subject: &Subject<'_>) {
        let Subject { io, key, .. } = subject;
        let live = self.space(&key.namespace);
        let all = newest(state).map(|_| live.ids()).unwrap_or_default();
        let since = state.remote.loaded.as_deref().map(|newest| state.bar.since(newest));
        let (since, syncs) = (since.unwrap_or_default(), &self.stores.git_syncs);
        let others = self.siblings.view(key, since, io.now(), syncs);
        self.leave_to(subject, state, &offered(state, subject, &all, &live, &others));
    }

    /// From now on these objects are left to these others, and nothing else is.
    pub(super) fn leave_to(
        &self,
        subject: &Subject<'_>,
        state: &State,
        gives: &[(ObjectId, String)],
    ) {
        let Subject { io, key, .. } = subject;
        for other in self.siblings.give(key, gives, state.remote.loaded.as_ref()) {
            self.wake(io, vec![Key::new(&key.namespace, other)]);
        }
    }
}
