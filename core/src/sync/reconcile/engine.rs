//! The engine of one namespace, and what it keeps.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::order::Seq;
use crate::sync::apply::impersonation::Rules;
use crate::sync::io::Io;
use crate::sync::io::effect::Effect;
use crate::sync::io::poll::Found;
use crate::sync::peers::hand_over::Peers;
use crate::sync::plan::dirty::Dirty;
use crate::sync::poll::{Moved, Poller, Polls};
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::last_written::LastWritten;
use crate::sync::status::writer::StatusWriter;

/// When to look again at what no event announces: kinds that are not listed or watched, and a status that still approves.
pub(crate) const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Decides for the GitSyncs of one namespace. All that it keeps can be made anew.
pub struct Engine {
    pub(crate) namespace: String,
    pub(crate) stores: Stores,
    pub(crate) rules: Rules,
    pub(crate) dirty: Arc<Dirty>,
    pub(crate) last_written: Arc<LastWritten>,
    pub(crate) peers: Peers,
    pub(crate) polls: Polls,
    states: Mutex<BTreeMap<String, Arc<futures::lock::Mutex<SyncState>>>>,
}

impl Engine {
    /// An engine for one namespace, over these stores. `dirty` collects the objects that change in them.
    #[must_use]
    pub fn new(
        namespace: &str,
        stores: Stores,
        rules: Rules,
        dirty: Arc<Dirty>,
        last_written: Arc<LastWritten>,
    ) -> Self {
        let (peers, polls, states) = (Peers::default(), Polls::default(), Mutex::default());
        Self {
            namespace: namespace.to_owned(),
            stores,
            rules,
            dirty,
            last_written,
            peers,
            polls,
            states,
        }
    }

    pub(crate) fn states(
        &self,
    ) -> MutexGuard<'_, BTreeMap<String, Arc<futures::lock::Mutex<SyncState>>>> {
        self.states.lock()
    }

    pub(crate) fn state(&self, key: &Key, uid: &str) -> Arc<futures::lock::Mutex<SyncState>> {
        let fresh = || Arc::new(futures::lock::Mutex::new(SyncState::new(uid)));
        self.states().entry(key.name.clone()).or_insert_with(fresh).clone()
    }

    /// Whether no GitSync has a state.
    pub(crate) fn is_empty(&self) -> bool {
        self.states().is_empty()
    }

    /// Something besides objects of the cluster has changed for a GitSync: its next reconcile polls the remote.
    pub(crate) fn changed(&self, name: &str, what: Moved) {
        self.polls.moved(name, what);
    }

    /// Forgets a GitSync that is gone.
    pub(crate) fn forget(&self, io: &Io, key: &Key) {
        // First, so that the answer of a poll that ends now is dropped.
        self.polls.forget(&key.name);
        io.wake(self.peers.forget(key));
        self.dirty.forget(key);
        self.last_written.forget(key);
        self.states().remove(&key.name);
        io.emit(Effect::Forget);
    }

    /// The one writer of the statuses of the namespace.
    pub(crate) fn status(&self) -> StatusWriter<'_> {
        StatusWriter { stores: &self.stores, last_written: &self.last_written }
    }

    /// The polls of the namespace.
    pub(crate) fn poller(&self) -> Poller<'_> {
        Poller { polls: &self.polls, peers: &self.peers }
    }

    /// A poll of a remote has ended.
    pub(crate) fn polled(&self, name: &str, at: Seq, found: Found) {
        self.poller().ended(&Key::new(&*self.namespace, name), at, found);
    }

    /// A number that grows when a GitSync of the namespace comes, goes or wants something else. Reconciles of one namespace
    /// run concurrently, so it is read before the view of the peers that it guards is made.
    pub(crate) fn peers_version(&self) -> u64 {
        self.peers.version(&self.namespace) + self.dirty.syncs_changed(&self.namespace)
    }
}
