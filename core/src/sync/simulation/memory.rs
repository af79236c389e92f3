//! What may be kept, and what may be looked at: bounded by what is wanted and alive, and by what has changed.

use std::time::Duration;

use super::server::Name;
use super::{NAMESPACE, Sim};
use crate::api::ObjectId;
use crate::cluster::store::Key;
use crate::sync::commit::desired::SyncRef;
use crate::sync::live_namespace::Namespace;
use crate::sync::live_namespace::{LiveNamespace, examined};
use crate::sync::plan::references::References;
use crate::sync::plan::refresh::PlanView;
use crate::sync::plan::refresh::everything;
use crate::sync::plan::work_index::WorkIndex;
use crate::sync::properties::repository::spec;
use crate::sync::reconcile::engine::Engine;

impl Sim {
    /// What is kept up to date object by object is what would be found anew.
    pub(super) fn rebuilt(&mut self) {
        for (name, _, _) in self.syncs {
            let same = self.operator.machine.engine().is_as_rebuilt(name);
            assert!(same.is_none_or(|same| same), "{name} has lost a change");
            if same.is_some() {
                self.count("state is as rebuilt");
            }
        }
    }

    /// Everything is as Git says: nothing is kept but that.
    pub(super) fn memory(&mut self) {
        let all: Vec<_> = self.syncs.iter().map(|(name, _, _)| (*name).to_owned()).collect();
        let engine = self.operator.machine.engine();
        for (what, names) in engine.names_kept() {
            let strange = names.iter().find(|name| !all.contains(name));
            assert!(strange.is_none(), "{what} of {strange:?} is kept");
        }
        if all.iter().any(|name| engine.left_over(name) == ["fights"]) {
            // They end by themselves, half an hour after the last one at most.
            let until = self.now + Duration::from_secs(2400);
            while self.now < until && self.pass_time(Duration::from_secs(700)) {
                self.drain();
            }
        }
        let engine = self.operator.machine.engine();
        for name in &all {
            let left = engine.left_over(name);
            assert!(left.is_empty(), "{name} still keeps {left:?}");
        }
        let left = self.operator.machine.left_over();
        assert!(left.is_empty(), "the machine still keeps {left:?}");
        self.count("nothing needless is kept");
    }

    /// Some objects change, and few are looked at; none while nothing changes.
    pub(super) fn examines(&mut self) {
        let before = examined();
        for (name, _, _) in self.syncs {
            self.operator.wake(name, Duration::ZERO);
        }
        self.drain();
        let without = examined() - before;
        assert_eq!(without, 0, "objects were looked at, and nothing had changed");
        let live: Vec<_> = self.server.objects().map(|(id, _)| id.clone()).take(3).collect();
        for changed in [1, live.len()].into_iter().filter(|changed| *changed <= live.len()) {
            let before = examined();
            for one in &live[..changed] {
                self.edit(&Name::Object(one.clone()), |object| {
                    object["spec"] = spec(one, 96);
                });
            }
            self.rest();
            let looked = examined() - before;
            // By each GitSync when it changes and when it is written, by one before and after it writes.
            let most = (4 * self.syncs.len() + 4) * changed;
            assert!(looked <= most, "{changed} object(s) changed, and {looked} were looked at");
        }
        self.count("objects are only looked at when they change");
    }

    /// All GitSyncs go, and nothing of them stays.
    pub(super) fn all_end(&mut self) {
        for (name, _, _) in self.syncs {
            self.delete(&Name::Sync((*name).into()));
        }
        self.drain();
        for (name, _, _) in self.syncs {
            assert!(self.server.get(&Name::Sync((*name).into())).is_none(), "{name} stays");
        }
        assert!(self.operator.machine.is_empty(), "something of the GitSyncs is kept");
        for (what, names) in self.operator.machine.engine().names_kept() {
            assert!(names.is_empty(), "{what} of {names:?} is kept");
        }
        let stores = &self.operator.stores;
        for object in stores.git_syncs.names(NAMESPACE) {
            let there = stores.git_syncs.get(&Key::new(NAMESPACE, object.clone())).is_some();
            assert!(!there, "{object} is still shown");
        }
    }
}

impl Engine {
    /// Of which GitSyncs something is kept.
    fn names_kept(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut all = self.peers.names();
        all.push(("a state", self.states().keys().cloned().collect()));
        all.push(("what is looked for", self.polls.names()));
        all.push(("what has changed", self.dirty.names()));
        all.push(("what was said", self.last_written.names()));
        all
    }

    /// What is kept of a GitSync although all of it is as Git says.
    fn left_over(&self, name: &str) -> Vec<&'static str> {
        let state = self.states().get(name).cloned();
        let Some(state) = state else { return vec!["nothing at all"] };
        let Some(state) = state.try_lock() else { return vec!["a pass"] };
        let Some(loaded) = &state.remote.loaded else { return vec!["no commit"] };
        let space = LiveNamespace { stores: &self.stores, namespace: NAMESPACE };
        let lives = |id: &ObjectId| Namespace::get(&space, id).is_some();
        let known = |id: &ObjectId| loaded.desired.contains_key(id) || lives(id);
        let pending = state.held_deletes.as_ref().and_then(Option::as_ref);
        let index = state.plans.view.as_ref().map(|view| &view.index);
        let mut announced = state.reports.announced.iter().flatten().map(|(id, _)| id);
        [
            ("where objects were", !loaded.last_paths.is_empty()),
            ("earlier definitions", loaded.measure.len() != loaded.desired.len()),
            ("an earlier commit", state.dependencies.recalled.is_some()),
            ("writes that changed nothing", !state.plans.settled.keys().all(known)),
            ("what was refused", !state.plans.refused.is_empty()),
            ("fights", !state.plans.contention.ids().all(known)),
            ("parts of a plan", !state.plans.resume.is_empty()),
            ("what could not be told", !state.reports.unreported.is_empty()),
            ("objects that were told of", !announced.all(known)),
            ("what is held", pending.is_some_and(|pending| pending.count > 0)),
            ("objects that are no more", index.is_some_and(|index| !index.ids().all(known))),
        ]
        .into_iter()
        .filter_map(|(what, is)| is.then_some(what))
        .collect()
    }

    /// Whether what is kept up to date object by object is what would be made anew; `None` when nothing is.
    pub(in crate::sync) fn is_as_rebuilt(&self, name: &str) -> Option<bool> {
        let state = self.states().get(name).cloned()?;
        let state = state.try_lock()?;
        let (PlanView { index, references, loaded }, key) =
            (state.plans.view.as_ref()?, Key::new(NAMESPACE, name));
        let entry = self.stores.git_syncs.get(&key)?;
        let (uid, namespace, name) = (state.uid.clone(), key.namespace.clone(), key.name.clone());
        let generation = entry.value.facts.generation.unwrap_or_default();
        let (sync, live) = (
            SyncRef { uid, namespace, name, generation },
            LiveNamespace { stores: &self.stores, namespace: NAMESPACE },
        );
        let fresh = WorkIndex::new(&sync, &loaded.measure, &live, &state.plans.settled);
        let (mut index, touched) = (index.clone(), self.dirty.peek(&key));
        let missed = touched.is_none();
        let touched = touched.unwrap_or_else(|| everything(&index, &live));
        for id in &touched {
            index.update(id, &sync, &loaded.measure, &live, &state.plans.settled);
        }
        let exists = |id: &ObjectId| Namespace::get(&live, id).is_some();
        let naive = References::of(&loaded.catalog, &exists);
        // What has just changed is looked at by the next plan.
        let same = missed || !touched.is_empty() || naive.problems().eq(references.problems());
        Some(index.of_now() == fresh.of_now() && same)
    }
}
