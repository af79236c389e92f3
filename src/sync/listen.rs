//! Which changes of the live stores start a plan.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::Entry;
use crate::controllers::queue::Queue;

/// Puts the GitSyncs that a change concerns on the queue.
pub fn listen(stores: &Stores, queue: &Arc<Queue>) {
    super::depends::listen(stores, queue);
    let sink = queue.clone();
    stores.git_syncs.on_change(move |change| {
        if !matches!((change.old, change.new), (Some(old), Some(new)) if old.value.same_input(&new.value)) {
            sink.add(change.key.clone());
        }
    });
    macro_rules! managed {
        ($store:expr) => {{
            let (sink, syncs) = (queue.clone(), stores.git_syncs.clone());
            $store.on_change(move |change| {
                let same = matches!((change.old, change.new), (Some(old), Some(new))
                    if old.uid == new.uid
                        && old.value.spec_hash == new.value.spec_hash
                        && old.value.meta.annotations == new.value.meta.annotations
                        && old.value.meta.labels == new.value.meta.labels
                        && old.value.meta.deletion_timestamp == new.value.meta.deletion_timestamp);
                let ready = |e: Option<&Arc<Entry<Managed<_>>>>| e.is_some_and(|e| e.value.is_ready());
                // A burst of changes becomes one plan; that something got ready is told a little later.
                let delay = match (same, ready(change.old) == ready(change.new)) {
                    (true, true) => return,
                    (true, false) => Duration::from_millis(500),
                    (false, _) => Duration::from_millis(20),
                };
                for (key, _) in syncs.list(&change.key.namespace) {
                    sink.add_after(key, delay);
                }
            });
        }};
    }
    managed!(stores.model_apis);
    managed!(stores.mcp_servers);
    managed!(stores.agent_builds);
    managed!(stores.agents);
}
