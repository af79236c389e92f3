//! What a GitSync offers to others while its newest commit waits for some of them (`dependsOn`): it may be just that for which one
//! of them is not Ready. Nothing is deleted by that.

use std::sync::Arc;

use crate::api::ObjectId;
use crate::cluster::store::Key;
use crate::sync::commit::desired::{Change, SyncRef, changes};
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::Io;
use crate::sync::live_namespace::{Namespace, is_ours, is_paused};
use crate::sync::peers::hand_over::Peers;
use crate::sync::plan::Others;
use crate::sync::plan::work_index::WorkIndex;

/// What may be ours and not be wanted by the `newest` commit, while an `earlier` one is brought about. Costs what is open, and what
/// differs between the two.
pub(crate) fn candidates(newest: &Loaded, board: &WorkIndex, earlier: &Loaded) -> Vec<ObjectId> {
    let gone = changes(&earlier.desired, &newest.desired).into_iter();
    let gone = gone.filter(|(_, change)| *change == Change::Removed).map(|(id, _)| id);
    board.open().cloned().chain(gone).collect()
}

/// Those of these live objects that are ours, that the newest commit does not want, and that another GitSync wants, with its name.
pub(crate) fn offered(
    newest: &Loaded,
    sync: &SyncRef,
    candidates: &[ObjectId],
    live: &dyn Namespace,
    others: &dyn Others,
) -> Vec<(ObjectId, String)> {
    let free = |id: &ObjectId| {
        let ours = live.get(id).filter(|live| is_ours(live, id, sync));
        ours.is_some_and(|live| !live.facts().deleting && !is_paused(&live))
    };
    let unwanted = candidates.iter().filter(|id| !newest.desired.contains_key(id));
    let offer =
        |id: &ObjectId| others.wanted_by(id).filter(|_| free(id)).map(|to| (id.clone(), to));
    unwanted.filter_map(offer).collect()
}

impl Peers {
    /// From now on these objects are left to these others, and nothing else is. `of` is the commit that does not need them.
    pub(crate) fn leave_to(
        &self,
        io: &Io,
        key: &Key,
        gives: &[(ObjectId, String)],
        of: Option<&Arc<Loaded>>,
    ) {
        let hear = self.give(key, gives, of);
        io.wake(hear.into_iter().map(|other| Key::new(&key.namespace, other)).collect());
    }
}
