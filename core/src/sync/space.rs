//! The live objects of one namespace, as the stores show them.

use super::board::{LiveSet, Namespace};
use crate::api::{Kind, ObjectId};
use crate::cluster::live::{Live, Stores};
use crate::cluster::store::Key;

/// See the module.
#[derive(Clone, Copy)]
pub struct Space<'a> {
    /// The stores.
    pub stores: &'a Stores,
    /// The namespace.
    pub namespace: &'a str,
}

impl Space<'_> {
    /// All of them at one moment.
    pub fn all(&self) -> LiveSet {
        self.ids().into_iter().filter_map(|id| Some((id.clone(), self.get(&id)?))).collect()
    }
}

#[cfg(test)]
thread_local! {
    static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many objects were looked at in this thread, for tests.
#[cfg(test)]
pub fn examined() -> usize {
    EXAMINED.get()
}

impl Namespace for Space<'_> {
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
