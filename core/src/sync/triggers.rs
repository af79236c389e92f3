//! Which changes in the watch stores start a reconcile, and of which GitSyncs.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::api::{GitSync, Kind, ObjectId, keys};
use crate::cluster::live::{Managed, Ours, Stores};
use crate::cluster::store::{Change, Entry, Key, Store};
use crate::sync::io::Sink;
use crate::sync::plan::approvals::is_gone;
use crate::sync::plan::dirty::Dirty;
use crate::sync::status::last_written::LastWritten;

/// Changes of objects within this time start one reconcile.
const CHANGE_DELAY: Duration = Duration::from_millis(20);
/// The same for changes of readiness, which only the counts in the status show.
const READINESS_DELAY: Duration = Duration::from_millis(500);

/// Calls `sink` with each GitSync that is to be reconciled because of a change in the stores, and records the change in `dirty`.
///
/// `last_written` knows whether a changed status is the one that this operator has written.
pub fn listen(
    stores: &Stores,
    dirty: &Arc<Dirty>,
    last_written: &Arc<LastWritten>,
    clock: impl Fn() -> Instant + Send + Sync + 'static,
    sink: &Sink,
) {
    crate::sync::peers::dependencies::listen(stores, sink);
    let git_syncs =
        GitSyncs { dirty: dirty.clone(), last_written: last_written.clone(), sink: sink.clone() };
    stores.git_syncs.on_change(move |change| git_syncs.changed(change, &clock));
    // Weak: the stores own their listeners.
    let (all_sink, syncs) = (sink.clone(), Arc::downgrade(&stores.git_syncs));
    stores.on_silence_change(move || {
        for (key, _) in syncs.upgrade().iter().flat_map(|syncs| syncs.all()) {
            all_sink(key, Duration::ZERO);
        }
    });
    let syncs = Arc::downgrade(&stores.git_syncs);
    let objects = Objects { syncs, dirty: dirty.clone(), sink: sink.clone() };
    objects.clone().follow(&stores.model_apis, Kind::ModelAPI);
    objects.clone().follow(&stores.mcp_servers, Kind::MCPServer);
    objects.clone().follow(&stores.agent_builds, Kind::AgentBuild);
    objects.follow(&stores.agents, Kind::Agent);
}

/// What a change of a GitSync starts.
struct GitSyncs {
    dirty: Arc<Dirty>,
    last_written: Arc<LastWritten>,
    sink: Sink,
}

impl GitSyncs {
    fn changed(&self, change: &Change<'_, Managed<GitSync>>, clock: impl Fn() -> Instant) {
        match (change.old, change.new) {
            (Some(old), Some(new))
                if old.uid == new.uid && old.value.facts.same_input(&new.value.facts) =>
            {
                let wait = match new.value.object() {
                    Some(sync) => {
                        let status = sync.status.as_ref();
                        self.last_written.wait_before_rewrite(change.key, &new.uid, status, clock())
                    }
                    // The object does not parse, so its status is unknown here. The reconcile reads it.
                    None => Some(Duration::ZERO),
                };
                if let Some(wait) = wait {
                    (self.sink)(change.key.clone(), wait);
                }
            }
            (old, new) => self.input_changed(change.key, old, new),
        }
    }

    /// A GitSync was created or deleted, or its spec or its annotations have changed.
    fn input_changed(
        &self,
        key: &Key,
        old: Option<&Arc<Entry<Managed<GitSync>>>>,
        new: Option<&Arc<Entry<Managed<GitSync>>>>,
    ) {
        let generation = |entry: &Arc<Entry<Managed<GitSync>>>| {
            (entry.uid.clone(), entry.value.facts.generation, entry.value.facts.deleting)
        };
        if old.map(generation) != new.map(generation) {
            self.dirty.sync_changed(&key.namespace);
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.uid == new.uid
            && !is_gone(approval(old))
            && is_gone(approval(new))
        {
            self.dirty.unapproved(key);
        }
        (self.sink)(key.clone(), Duration::ZERO);
    }
}

fn approval(entry: &Entry<Managed<GitSync>>) -> Option<&str> {
    entry.value.facts.annotations.get(keys::APPROVE_PRUNE)
}

/// What a change of an object starts: a reconcile of each GitSync of its namespace.
#[derive(Clone)]
struct Objects {
    syncs: Weak<Store<Managed<GitSync>>>,
    dirty: Arc<Dirty>,
    sink: Sink,
}

impl Objects {
    fn follow<K: Ours>(self, store: &Store<Managed<K>>, kind: Kind) {
        store.on_change(move |change| self.changed(change, kind));
    }

    fn changed<K: Ours>(&self, change: &Change<'_, Managed<K>>, kind: Kind) {
        let (old, new) = (change.old, change.new);
        let same = matches!((old, new), (Some(old), Some(new)) if old.uid == new.uid
            && old.value.facts.same_plan(&new.value.facts));
        let ready =
            |entry: Option<&Arc<Entry<Managed<K>>>>| entry.is_some_and(|e| e.value.is_ready());
        let delay = match (same, ready(old) == ready(new)) {
            (true, true) => return,
            (true, false) => READINESS_DELAY,
            (false, _) => CHANGE_DELAY,
        };
        let id = ObjectId::new(kind, &*change.key.name);
        let Some(syncs) = self.syncs.upgrade() else { return };
        for name in syncs.names(&change.key.namespace) {
            let key = Key::new(&*change.key.namespace, name);
            self.dirty.mark(&key, &id);
            (self.sink)(key, delay);
        }
    }
}
