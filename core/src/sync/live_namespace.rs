//! The live objects of one namespace, as the watch stores have them.

use std::collections::BTreeMap;

use crate::api::{Kind, Mark, ObjectId, keys};
use crate::cluster::live::{Live, Stores};
use crate::cluster::store::Key;
use crate::sync::commit::desired::SyncRef;

/// The live objects in the namespace of a GitSync, of all kinds that Convoke writes, whoever owns them.
pub trait Namespace {
    /// Returns one object.
    fn get(&self, id: &ObjectId) -> Option<Live>;
    /// Lists all objects.
    fn ids(&self) -> Vec<ObjectId>;
}

/// The live objects at one moment.
pub type LiveSet = BTreeMap<ObjectId, Live>;

impl Namespace for LiveSet {
    fn get(&self, id: &ObjectId) -> Option<Live> {
        self.get(id).cloned()
    }

    fn ids(&self) -> Vec<ObjectId> {
        self.keys().cloned().collect()
    }
}

/// The ownership mark of a live object. `None` if it names another object: the mark of a copied object does not count.
#[must_use]
pub fn mark(live: &Live, id: &ObjectId, sync: &SyncRef) -> Option<Mark> {
    let mark = live.facts().annotations.get(keys::OWNER).and_then(Mark::parse)?;
    mark.names(id.kind, &sync.namespace, &id.name).then_some(mark)
}

/// Whether the annotation `convoke.dev/reconcile: disabled` pauses a live object.
#[must_use]
pub fn is_paused(live: &Live) -> bool {
    live.facts().annotations.get(keys::RECONCILE) == Some(keys::DISABLED)
}

/// Whether a live object carries the mark of exactly this GitSync.
pub(crate) fn is_ours(live: &Live, id: &ObjectId, sync: &SyncRef) -> bool {
    mark(live, id, sync) == Some(sync.mark(id))
}

/// A namespace of the watch stores.
#[derive(Clone, Copy)]
pub struct LiveNamespace<'a> {
    /// The stores.
    pub stores: &'a Stores,
    /// The namespace.
    pub namespace: &'a str,
}

impl LiveNamespace<'_> {
    /// All live objects at this moment.
    #[must_use]
    pub fn all(&self) -> LiveSet {
        self.ids().into_iter().filter_map(|id| Some((id.clone(), self.get(&id)?))).collect()
    }
}

#[cfg(test)]
thread_local! {
    static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// (tests) How often this thread has read a live object.
#[cfg(test)]
#[must_use]
pub fn examined() -> usize {
    EXAMINED.get()
}

impl Namespace for LiveNamespace<'_> {
    fn get(&self, id: &ObjectId) -> Option<Live> {
        #[cfg(test)]
        EXAMINED.set(EXAMINED.get() + 1);
        self.stores.managed(id.kind).live(&Key::new(self.namespace, &*id.name))
    }

    fn ids(&self) -> Vec<ObjectId> {
        let of = |kind| self.stores.managed(kind).names(self.namespace).into_iter();
        Kind::ALL.into_iter().flat_map(|k| of(k).map(move |name| ObjectId::new(k, name))).collect()
    }
}
