//! The agents that the newest commit of each GitSync wants, for the Agent controller.
//!
//! The address of an agent follows from its name. So the controller can wire an agent to another one of the same commit
//! before that one is applied. The list is kept in memory: after a restart the engine fills it from the first commit that
//! it reads.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use parking_lot::{RwLock, RwLockWriteGuard};

use crate::api::Kind;
use crate::cluster::store::Key;
use crate::sync::commit::desired::{Desired, DesiredSet, changes};

type Listener = Box<dyn Fn(&Key) + Send + Sync>;

/// The agents that the newest commit of each GitSync wants.
#[derive(Default)]
pub struct WantedAgents {
    /// For each GitSync the names of the wanted agents that have a Service.
    syncs: RwLock<HashMap<Key, BTreeSet<String>>>,
    listener: OnceLock<Listener>,
}

impl WantedAgents {
    /// Without GitSyncs.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Sets the listener, which is called with each agent that is wanted from now on or not any more. Only the first call counts.
    pub fn notify(&self, listener: impl Fn(&Key) + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Sets the agents that a GitSync wants and that have a Service.
    pub fn set<'a>(&self, sync: &Key, agents: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<_> = agents.map(str::to_owned).collect();
        let old = self.write().insert(sync.clone(), names.clone()).unwrap_or_default();
        self.notify_listener(sync, old.symmetric_difference(&names));
    }

    /// Changes the agents that a GitSync wants: each name with whether it is wanted now.
    pub fn change<'a>(&self, sync: &Key, changes: impl Iterator<Item = (&'a str, bool)>) {
        let mut changed = Vec::new();
        let mut syncs = self.write();
        let names = syncs.entry(sync.clone()).or_default();
        for (name, wanted) in changes {
            let differs = if wanted { names.insert(name.to_owned()) } else { names.remove(name) };
            if differs {
                changed.push(name.to_owned());
            }
        }
        drop(syncs);
        self.notify_listener(sync, changed.iter());
    }

    /// Removes a GitSync.
    pub fn forget(&self, sync: &Key) {
        let old = self.write().remove(sync).unwrap_or_default();
        self.notify_listener(sync, old.iter());
    }

    /// Whether a GitSync of the namespace wants an agent of this name that has a Service.
    #[must_use]
    pub fn has(&self, namespace: &str, name: &str) -> bool {
        let syncs = self.syncs.read();
        syncs.iter().any(|(sync, names)| sync.namespace == namespace && names.contains(name))
    }

    /// Whether the agents of the GitSync are known: a commit was read since the start.
    #[must_use]
    pub fn knows(&self, sync: &Key) -> bool {
        self.syncs.read().contains_key(sync)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Key, BTreeSet<String>>> {
        self.syncs.write()
    }

    fn notify_listener<'a>(&self, sync: &Key, names: impl Iterator<Item = &'a String>) {
        if let Some(listener) = self.listener.get() {
            names.for_each(|name| listener(&Key::new(&sync.namespace, name)));
        }
    }
}

/// Publishes the agents of a commit. `before` is the desired set that was published last.
pub fn publish_agents(
    wanted: &WantedAgents,
    key: &Key,
    before: Option<&DesiredSet>,
    desired: &DesiredSet,
) {
    // Other kinds never have it set.
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
#[path = "tests/wanted_agents.rs"]
mod tests;
