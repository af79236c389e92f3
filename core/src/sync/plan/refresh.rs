//! What plans know of the objects that there are, kept up to date from one plan to the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::ObjectId;
use crate::cluster::store::Key;
use crate::sync::commit::desired::{Desired, SyncRef, changes};
use crate::sync::commit::loaded::Loaded;
use crate::sync::live_namespace::{Namespace, mark};
use crate::sync::plan::Settled;
use crate::sync::plan::dirty::Dirty;
use crate::sync::plan::references::References;
use crate::sync::plan::work_index::WorkIndex;

/// What is kept up to date between plans, object by object.
pub struct PlanView {
    /// Which objects a plan has to look at.
    pub board: WorkIndex,
    /// References to nothing.
    pub references: References,
    /// The commit that both were made for.
    pub loaded: Arc<Loaded>,
}

/// Brings the view up to date: with what changed in the cluster, and with what changed between two commits.
pub(crate) fn refresh(
    view: Option<PlanView>,
    settled: &mut Settled,
    dirty: &Dirty,
    (sync, loaded): (&SyncRef, &Arc<Loaded>),
    live: &dyn Namespace,
) -> PlanView {
    let key = Key::new(&*sync.namespace, &*sync.name);
    let exists = |id: &ObjectId| live.get(id).is_some();
    let Some(mut view) = view else {
        dirty.follow(&key);
        let board = WorkIndex::new(sync, &loaded.measure, live, settled);
        let references = References::of(&loaded.catalog, &exists);
        return PlanView { board, references, loaded: loaded.clone() };
    };
    let touched = dirty.take(&key);
    let missed = touched.is_none();
    if missed {
        dirty.follow(&key);
    }
    let touched = touched.unwrap_or_else(|| everything(&view.index, live));
    let before = std::mem::replace(&mut view.loaded, loaded.clone());
    let differing = changes(&before.measure, &loaded.measure);
    for (id, _) in differing.iter().filter(|(id, _)| loaded.measure.get(id).is_none()) {
        settled.remove(id);
    }
    for id in touched.iter().chain(differing.iter().map(|(id, _)| id)) {
        view.index.look(id, sync, &loaded.measure, live, settled);
    }
    let differing = changes(&before.desired, &loaded.desired);
    let commits = (&before.catalog, &loaded.catalog);
    if missed {
        view.references = References::of(&loaded.catalog, &exists);
    } else {
        view.references.update(commits, &differing, touched.iter(), &exists);
    }
    view
}

/// Whether some object carries the mark of this GitSync.
pub(crate) fn has_objects(view: Option<&PlanView>, sync: &SyncRef, live: &dyn Namespace) -> bool {
    if let Some(view) = view {
        return view.index.ours().next().is_some();
    }
    let ours = |id: &ObjectId| {
        let mark = live.get(id).and_then(|live| mark(&live, id, sync));
        mark.is_some_and(|mark| mark.sync_uid == sync.uid)
    };
    live.ids().iter().any(ours)
}

/// What is remembered of earlier commits and is of no use any more.
pub(crate) fn needless(
    loaded: &Loaded,
    board: Option<&WorkIndex>,
    live: &dyn Namespace,
) -> BTreeSet<ObjectId> {
    let was_applied = |id: &ObjectId, kept: &Desired| {
        board.is_some_and(|board| board.was_applied(id, kept).is_some())
    };
    loaded.needless(|id| live.get(id).is_some(), was_applied)
}

/// All that may have changed when changes were too many to be kept: what there is, and what the board knows of. The board
/// stays, so what it knows of earlier writes is not lost.
pub(crate) fn everything(board: &WorkIndex, live: &dyn Namespace) -> BTreeSet<ObjectId> {
    live.ids().into_iter().chain(board.ids().cloned()).collect()
}
