//! Which changes of the live stores start a plan, and what they touch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::{GitSync, Kind, ObjectId, keys};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::sync::io::Sink;
use crate::sync::plan::approvals::is_gone;
use crate::sync::plan::dirty::Dirty;
use crate::sync::status::last_written::LastWritten;

fn approval(entry: &Entry<Managed<GitSync>>) -> Option<&str> {
    entry.value.facts.annotations.get(keys::APPROVE_PRUNE)
}

/// Calls `sink` with the GitSyncs that a change concerns.
pub fn listen(
    stores: &Stores,
    touched: &Arc<Dirty>,
    spoken: &Arc<LastWritten>,
    clock: impl Fn() -> Instant + Send + Sync + 'static,
    sink: &Sink,
) {
    crate::sync::peers::dependencies::listen(stores, sink);
    let queue = sink;
    let (sink, spoken, turned) = (queue.clone(), spoken.clone(), touched.clone());
    stores.git_syncs.on_change(move |change| match (change.old, change.new) {
        (Some(old), Some(new))
            if old.uid == new.uid && old.value.facts.same_input(&new.value.facts) =>
        {
            let wait = match new.value.object() {
                Some(sync) => {
                    spoken.wait_before_rewrite(change.key, &new.uid, sync.status.as_ref(), clock())
                }
                // What stands there is not seen, so it is looked up.
                None => Some(Duration::ZERO),
            };
            if let Some(wait) = wait {
                sink(change.key.clone(), wait);
            }
        }
        (old, new) => {
            let generation = |entry: &Entry<Managed<_>>| {
                (entry.uid.clone(), entry.value.facts.generation, entry.value.facts.deleting)
            };
            if old.map(|old| generation(old)) != new.map(|new| generation(new)) {
                turned.sync_changed(&change.key.namespace);
            }
            if let (Some(old), Some(new)) = (old, new)
                && old.uid == new.uid
                && !is_gone(approval(old))
                && is_gone(approval(new))
            {
                turned.unapproved(change.key);
            }
            sink(change.key.clone(), Duration::ZERO);
        }
    });
    // The stores keep what listens to them.
    let (sink, syncs) = (queue.clone(), Arc::downgrade(&stores.git_syncs));
    stores.on_turn(move || {
        for (key, _) in syncs.upgrade().iter().flat_map(|syncs| syncs.all()) {
            sink(key, Duration::ZERO);
        }
    });
    macro_rules! managed {
        ($store:expr, $kind:expr) => {{
            let (sink, syncs) = (queue.clone(), Arc::downgrade(&stores.git_syncs));
            let touched = touched.clone();
            $store.on_change(move |change| {
                let (old, new) = (change.old, change.new);
                let same = matches!((old, new), (Some(old), Some(new)) if old.uid == new.uid
                    && old.value.facts.same_plan(&new.value.facts));
                let ready =
                    |e: Option<&Arc<Entry<Managed<_>>>>| e.is_some_and(|e| e.value.is_ready());
                // A burst of changes becomes one plan; that something got ready is told a little later.
                let delay = match (same, ready(old) == ready(new)) {
                    (true, true) => return,
                    (true, false) => Duration::from_millis(500),
                    (false, _) => Duration::from_millis(20),
                };
                let id = ObjectId::new($kind, &*change.key.name);
                let Some(syncs) = syncs.upgrade() else { return };
                for name in syncs.names(&change.key.namespace) {
                    let key = Key::new(&*change.key.namespace, name);
                    touched.touch(&key, &id);
                    sink(key, delay);
                }
            });
        }};
    }
    managed!(stores.model_apis, Kind::ModelAPI);
    managed!(stores.mcp_servers, Kind::MCPServer);
    managed!(stores.agent_builds, Kind::AgentBuild);
    managed!(stores.agents, Kind::Agent);
}
