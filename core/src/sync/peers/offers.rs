//! What a GitSync offers to its peers while its newest commit waits for some of them (`dependsOn`): a peer may be not
//! Ready just because it needs one of these objects. An offer deletes nothing.

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

/// Objects that this GitSync may have and the `newest` commit may not want, while an `earlier` commit is applied. The
/// cost grows with the open objects of the work index and with the differences between the two commits.
pub(crate) fn candidates(newest: &Loaded, index: &WorkIndex, earlier: &Loaded) -> Vec<ObjectId> {
    let gone = changes(&earlier.desired, &newest.desired).into_iter();
    let gone = gone.filter(|(_, change)| *change == Change::Removed).map(|(id, _)| id);
    index.open().cloned().chain(gone).collect()
}

/// The candidates that this GitSync has, the newest commit does not want and a peer wants, each with the name of the peer.
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
    /// Replaces the offers of a GitSync: each of these objects may be taken over by the peer that is named with it.
    /// `of` is the commit that does not want them.
    pub(crate) fn leave_to(
        &self,
        io: &Io,
        key: &Key,
        gives: &[(ObjectId, String)],
        of: Option<&Arc<Loaded>>,
    ) {
        let concerned = self.give(key, gives, of);
        io.wake(concerned.into_iter().map(|other| Key::new(&key.namespace, other)).collect());
    }
}
