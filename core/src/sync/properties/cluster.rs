//! A small API server: objects with uid, version, mark and finalizers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::repository::{labels, spec};
use crate::api::{ObjectId, keys};
use crate::cluster::live::{Facts, Live, LiveObject, SpecHash, hash_json};
use crate::packed::Pairs;
use crate::sync::board::LiveSet;

/// What a webhook writes in place of the content 3 of the object `e`.
const REWRITTEN: usize = 33;

/// A live object.
#[derive(Debug, Clone)]
pub struct Object {
    pub uid: String,
    pub version: u64,
    pub spec: usize,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Somebody else's finalizer keeps it when it is deleted.
    pub held: bool,
    pub facts: Facts,
}

impl LiveObject for Object {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl Object {
    pub fn has(&self, key: &str, value: &str) -> bool {
        self.annotations.get(key).map(String::as_str) == Some(value)
    }

    pub fn mark(&self) -> Option<&str> {
        self.annotations.get(keys::OWNER).map(String::as_str)
    }

    pub fn is_paused(&self) -> bool {
        self.has(keys::RECONCILE, keys::DISABLED)
    }
}

/// What becomes of a content on its way through the server.
pub fn stored(id: &ObjectId, content: usize) -> usize {
    if id.name == "e" && content == 3 { REWRITTEN } else { content }
}

/// See the module.
#[derive(Default)]
pub struct Cluster {
    pub objects: BTreeMap<ObjectId, Object>,
    /// Grows with each write that changes something.
    pub clock: u64,
    /// What changed since each GitSync looked.
    pub touched: [BTreeSet<ObjectId>; 2],
}

impl Cluster {
    fn touch(&mut self, id: &ObjectId) {
        self.clock += 1;
        for touched in &mut self.touched {
            touched.insert(id.clone());
        }
    }

    /// Writes an object; what was there keeps its uid. Nothing is written when nothing changes.
    pub fn put(
        &mut self,
        id: &ObjectId,
        content: usize,
        (labels, annotations): (BTreeMap<String, String>, BTreeMap<String, String>),
    ) -> (u64, SpecHash) {
        let hash = hash_json(&spec(id, content));
        let old = self.objects.get(id);
        if let Some(old) = old
            && (old.spec, &old.labels, &old.annotations) == (content, &labels, &annotations)
        {
            return (old.version, hash);
        }
        let (held, deleting) = old.map_or((false, false), |old| (old.held, old.facts.deleting));
        let uid = if let Some(object) = old {
            object.uid.clone()
        } else {
            let number = (self.clock + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            format!("{:08x}-{:04x}-{:012x}", number >> 32, number >> 16 & 0xffff, self.clock)
        };
        self.touch(id);
        let facts = Facts {
            labels: Pairs::of(Some(&labels)),
            annotations: Pairs::of(Some(&annotations)),
            spec_hash: Some(hash),
            deleting,
            ..Facts::default()
        };
        let object =
            Object { uid, version: self.clock, spec: content, labels, annotations, held, facts };
        self.objects.insert(id.clone(), object);
        (self.clock, hash)
    }

    /// An object of the content that somebody makes, with annotations of all kinds.
    pub fn make(&mut self, id: &ObjectId, content: usize, annotations: BTreeMap<String, String>) {
        if !self.objects.contains_key(id) {
            self.put(id, content, (labels(content), annotations));
        }
    }

    pub fn annotate(&mut self, id: &ObjectId, key: &str, value: Option<&str>) {
        let Some(object) = self.objects.get(id) else { return };
        let (content, labels) = (object.spec, object.labels.clone());
        let mut annotations = object.annotations.clone();
        match value {
            Some(value) => annotations.insert(key.into(), value.into()),
            None => annotations.remove(key),
        };
        self.put(id, content, (labels, annotations));
    }

    /// Holds an object by a finalizer, or lets it go.
    pub fn hold(&mut self, id: &ObjectId, held: bool) {
        let Some(object) = self.objects.get_mut(id) else { return };
        object.held = held;
        if object.facts.deleting && !held {
            self.objects.remove(id);
            self.touch(id);
        }
    }

    /// Deletes an object: what a finalizer holds is on its way.
    pub fn delete(&mut self, id: &ObjectId) {
        let Some(object) = self.objects.get_mut(id) else { return };
        if object.held {
            object.facts.deleting = true;
            object.version = self.clock + 1;
        } else {
            self.objects.remove(id);
        }
        self.touch(id);
    }

    pub fn live(&self) -> LiveSet {
        self.objects.iter().map(|(id, o)| (id.clone(), Arc::new(o.clone()) as Live)).collect()
    }
}
