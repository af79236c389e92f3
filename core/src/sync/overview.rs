//! What plans know of the objects that there are, kept up to date from one plan to the next.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::board::{Board, Namespace};
use super::desired::{SyncRef, changes};
use super::engine::Engine;
use super::loaded::Loaded;
use super::references::References;
use super::space::Space;
use super::state::{State, View};
use crate::api::ObjectId;
use crate::cluster::store::Key;

impl Engine {
    /// Brings the view up to date: with what changed in the cluster, and with what changed between two commits.
    pub(super) fn look_around(
        &self,
        state: &mut State,
        sync: &SyncRef,
        loaded: &Arc<Loaded>,
        live: &Space<'_>,
    ) -> View {
        let key = Key::new(&*sync.namespace, &*sync.name);
        let exists = |id: &ObjectId| live.get(id).is_some();
        let Some(mut view) = state.plans.view.take() else {
            self.touched.follow(&key);
            let board = Board::new(sync, &loaded.measure, live, &state.plans.settled);
            let references = References::of(&loaded.catalog, &exists);
            return View { board, references, loaded: loaded.clone() };
        };
        let touched = self.touched.take(&key);
        let missed = touched.is_none();
        if missed {
            self.touched.follow(&key);
        }
        let touched = touched.unwrap_or_else(|| everything(&view.board, live));
        let before = std::mem::replace(&mut view.loaded, loaded.clone());
        let differing = changes(&before.measure, &loaded.measure);
        for (id, _) in differing.iter().filter(|(id, _)| loaded.measure.get(id).is_none()) {
            state.plans.settled.remove(id);
        }
        for id in touched.iter().chain(differing.iter().map(|(id, _)| id)) {
            view.board.look(id, sync, &loaded.measure, live, &state.plans.settled);
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
}

/// All that may have changed when changes were too many to be kept: what there is, and what the board knows of. The board
/// stays, so what it knows of earlier writes is not lost.
pub(super) fn everything(board: &Board, live: &dyn Namespace) -> BTreeSet<ObjectId> {
    live.ids().into_iter().chain(board.ids().cloned()).collect()
}
