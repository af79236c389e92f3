//! The view that plans have of the objects, updated from one plan to the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::ObjectId;
use crate::cluster::store::Key;
use crate::sync::commit::desired::{Desired, SyncRef, changes};
use crate::sync::commit::loaded::Loaded;
use crate::sync::live_namespace::{Namespace, mark};
use crate::sync::plan::compare::Settled;
use crate::sync::plan::dirty::Dirty;
use crate::sync::plan::references::References;
use crate::sync::plan::work_index::WorkIndex;

/// What is updated between plans, object by object.
pub struct PlanView {
    /// The objects that a plan has to check.
    pub index: WorkIndex,
    /// References to objects that do not exist.
    pub references: References,
    /// The commit that both are for.
    pub loaded: Arc<Loaded>,
}

/// Updates the view with the dirty objects, and with the differences between the last commit and this one.
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
        let index = WorkIndex::new(sync, &loaded.measure, live, settled);
        let references = References::of(&loaded.catalog, &exists);
        return PlanView { index, references, loaded: loaded.clone() };
    };
    let changed = dirty.take(&key);
    let missed = changed.is_none();
    if missed {
        dirty.follow(&key);
    }
    let changed = changed.unwrap_or_else(|| everything(&view.index, live));
    let before = std::mem::replace(&mut view.loaded, loaded.clone());
    let differing = changes(&before.measure, &loaded.measure);
    for (id, _) in differing.iter().filter(|(id, _)| loaded.measure.get(id).is_none()) {
        settled.remove(id);
    }
    for id in changed.iter().chain(differing.iter().map(|(id, _)| id)) {
        view.index.update(id, sync, &loaded.measure, live, settled);
    }
    let differing = changes(&before.desired, &loaded.desired);
    let commits = (&before.catalog, &loaded.catalog);
    if missed {
        view.references = References::of(&loaded.catalog, &exists);
    } else {
        view.references.update(commits, &differing, changed.iter(), &exists);
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

/// The remembered objects of earlier commits that can be dropped.
pub(crate) fn needless(
    loaded: &Loaded,
    index: Option<&WorkIndex>,
    live: &dyn Namespace,
) -> BTreeSet<ObjectId> {
    let was_applied = |id: &ObjectId, kept: &Desired| {
        index.is_some_and(|index| index.was_applied(id, kept).is_some())
    };
    loaded.needless(|id| live.get(id).is_some(), was_applied)
}

/// All objects that may have changed, if there were too many changes to keep: the live ones, and those of the index. The index
/// itself is kept, so its knowledge of earlier writes is not lost.
pub(crate) fn everything(index: &WorkIndex, live: &dyn Namespace) -> BTreeSet<ObjectId> {
    live.ids().into_iter().chain(index.ids().cloned()).collect()
}
