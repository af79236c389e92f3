//! What the engine tells the Agent controller: the agents that the newest commit of each GitSync wants.
//!
//! The address of a peer follows from its name. So an agent is wired to a peer of the same commit at its first write,
//! whichever of the two is applied first. Kept in memory only: the engine fills it again from the commit that it reads
//! first.

use parking_lot::RwLock;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use crate::api::Kind;
use crate::cluster::store::Key;
use crate::sync::commit::desired::{Desired, DesiredSet, changes};

type Listener = Box<dyn Fn(&Key) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub struct WantedAgents {
    /// GitSync → names of the agents that its newest commit wants, and that have a Service.
    syncs: RwLock<HashMap<Key, BTreeSet<String>>>,
    listener: OnceLock<Listener>,
}

impl WantedAgents {
    /// Nothing is known to be wanted.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Calls `listener` with each agent that begins or ends to be wanted. Only the first call counts.
    pub fn notify(&self, listener: impl Fn(&Key) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// The engine has read a commit: the name of each agent in it that can be called.
    pub fn set<'a>(&self, sync: &Key, agents: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<_> = agents.map(str::to_owned).collect();
        let old = self.write().insert(sync.clone(), names.clone()).unwrap_or_default();
        self.tell(sync, old.symmetric_difference(&names));
    }

    /// The same, by what differs from the commit before.
    pub fn change<'a>(&self, sync: &Key, changes: impl Iterator<Item = (&'a str, bool)>) {
        let mut told = Vec::new();
        let mut syncs = self.write();
        let names = syncs.entry(sync.clone()).or_default();
        for (name, wanted) in changes {
            let differs = if wanted { names.insert(name.to_owned()) } else { names.remove(name) };
            if differs {
                told.push(name.to_owned());
            }
        }
        drop(syncs);
        self.tell(sync, told.iter());
    }

    /// The GitSync is gone: it wants nothing.
    pub fn forget(&self, sync: &Key) {
        let old = self.write().remove(sync).unwrap_or_default();
        self.tell(sync, old.iter());
    }

    /// Whether some GitSync of the namespace wants an agent of that name that can be called.
    #[must_use]
    pub fn has(&self, namespace: &str, name: &str) -> bool {
        let syncs = self.syncs.read();
        syncs.iter().any(|(sync, names)| sync.namespace == namespace && names.contains(name))
    }

    /// Whether the engine has read any commit of that GitSync since it started.
    #[must_use]
    pub fn knows(&self, sync: &Key) -> bool {
        self.syncs.read().contains_key(sync)
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, HashMap<Key, BTreeSet<String>>> {
        self.syncs.write()
    }

    fn tell<'a>(&self, sync: &Key, names: impl Iterator<Item = &'a String>) {
        if let Some(listener) = self.listener.get() {
            names.for_each(|name| listener(&Key::new(&sync.namespace, name)));
        }
    }
}

/// Tells which agents a commit wants, after the one that was told before.
pub fn tell_agents(
    wanted: &WantedAgents,
    key: &Key,
    before: Option<&DesiredSet>,
    desired: &DesiredSet,
) {
    // What is no agent offers no such thing.
    let exposed = |want: &Desired| want.definition.offers.exposed;
    let Some(before) = before.filter(|_| wanted.knows(key)) else {
        let agents = desired.iter().filter(|(_, want)| exposed(want));
        return wanted.set(key, agents.map(|(id, _)| &*id.name));
    };
    let changes = changes(before, desired);
    let agents = changes.iter().filter(|(id, _)| id.kind == Kind::Agent);
    let agents = agents.map(|(id, _)| (&*id.name, desired.get(id).is_some_and(exposed)));
    wanted.change(key, agents);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::api::ObjectId;
    use crate::sync::properties::definition;
    use crate::test_rng::TestRng;

    #[test]
    fn a3_wanted_agents_are_known_by_namespace_and_changes_are_told() {
        let (wanted, heard) = (WantedAgents::new(), Arc::new(Mutex::new(Vec::new())));
        let sink = heard.clone();
        wanted.notify(move |key| sink.lock().expect("lock").push(key.name.clone()));
        let told = || std::mem::take(&mut *heard.lock().expect("lock"));
        let sync = Key::new("team", "main");
        assert!(!wanted.knows(&sync));
        wanted.set(&sync, ["a", "b"].into_iter());
        assert!(wanted.knows(&sync) && wanted.has("team", "a") && !wanted.has("other", "a"));
        assert_eq!(told(), ["a", "b"]);
        wanted.set(&sync, ["b", "c"].into_iter());
        assert_eq!(told(), ["a", "c"]);
        wanted.forget(&sync);
        assert_eq!(told(), ["b", "c"]);
        assert!(!wanted.knows(&sync) && !wanted.has("team", "b"));
    }

    #[test]
    fn a3_agents_that_are_told_by_what_differs_are_those_that_are_told_anew() {
        for seed in 0..300 {
            let (mut dice, wanted) = (TestRng::new(seed), WantedAgents::new());
            let heard = Arc::new(Mutex::new(BTreeSet::new()));
            let sink = heard.clone();
            wanted.notify(move |agent| {
                let _ = sink.lock().expect("lock").insert(agent.name.clone());
            });
            let syncs = ["main", "other"].map(|name| Key::new("team", name));
            let mut told: [Option<DesiredSet>; 2] = [None, None];
            for step in 0..30 {
                let at = dice.roll(2);
                let before = wanted_names(told[at].as_ref());
                if dice.one_in(8) {
                    // The GitSync goes, or its operator starts anew: nothing was told before.
                    wanted.forget(&syncs[at]);
                    told[at] = None;
                } else {
                    let mut desired = told[at].clone().unwrap_or_default();
                    for _ in 0..dice.roll(4) {
                        let kind = if dice.one_in(4) { Kind::ModelAPI } else { Kind::Agent };
                        let id = ObjectId::new(kind, dice.of(&["a", "b", "c", "d"]));
                        if dice.one_in(3) {
                            desired.remove(&id);
                        } else {
                            let mut one = (*definition(&id, dice.roll(3))).clone();
                            one.offers.exposed = kind == Kind::Agent && !dice.one_in(3);
                            desired.insert(id, Desired::new(Arc::new(one)));
                        }
                    }
                    tell_agents(&wanted, &syncs[at], told[at].as_ref(), &desired);
                    told[at] = Some(desired);
                }
                let anew = WantedAgents::new();
                for (sync, desired) in syncs.iter().zip(&told) {
                    assert_eq!(wanted.knows(sync), desired.is_some(), "seed {seed}, step {step}");
                    if let Some(desired) = desired {
                        tell_agents(&anew, sync, None, desired);
                    }
                }
                for name in ["a", "b", "c", "d"] {
                    let (is, should) = (wanted.has("team", name), anew.has("team", name));
                    assert_eq!(is, should, "seed {seed}, step {step}: {name}");
                }
                let changed = before
                    .symmetric_difference(&wanted_names(told[at].as_ref()))
                    .cloned()
                    .collect();
                let heard = std::mem::take(&mut *heard.lock().expect("lock"));
                assert_eq!(heard, changed, "seed {seed}, step {step}");
            }
        }
    }

    /// The agents of a commit that can be called.
    fn wanted_names(desired: Option<&DesiredSet>) -> BTreeSet<String> {
        let all = desired.into_iter().flat_map(DesiredSet::iter);
        let agents =
            all.filter(|(id, want)| id.kind == Kind::Agent && want.definition.offers.exposed);
        agents.map(|(id, _)| id.name.clone()).collect()
    }
}
