//! The desired set of a commit: each definition with the hashes that decide whether it must be written.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{API_VERSION, Mark, ObjectId, keys};
use crate::cluster::live::{SpecHash, hash_json};
use crate::definition::variables::Variables;
use crate::definition::{Catalog, Definition};
use crate::shared_map::SharedMap;
use crate::text::hex;

/// The GitSync that a plan is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncRef {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`, which is also the namespace of its objects.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
}

impl SyncRef {
    /// The ownership mark of an object of this GitSync.
    #[must_use]
    pub fn mark(&self, id: &ObjectId) -> Mark {
        Mark {
            sync_uid: self.uid.clone(),
            sync_namespace: self.namespace.clone(),
            sync_name: self.name.clone(),
            kind: id.kind,
            namespace: self.namespace.clone(),
            name: id.name.clone(),
        }
    }
}

/// The earlier commit that a last good definition comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGood {
    /// The last commit with the definition.
    pub commit: String,
    /// Whether all commits since then are known. Otherwise an unknown one may have changed the definition.
    pub certain: bool,
}

/// [`Desired::applied`] as bytes, to be kept for each object.
pub type Fingerprint = [u8; 16];

/// An object that a commit wants.
#[derive(Debug, Clone)]
pub struct Desired {
    /// The definition in Git.
    pub definition: Arc<Definition>,
    /// The hash of spec, labels and annotations as they are in Git: the value of `convoke.dev/applied`.
    pub applied: String,
    /// The hash of the spec with the defaults of the schema, to compare with live objects.
    pub spec_hash: SpecHash,
    /// Set for a definition of an earlier commit. The newest commit may have the object in a file that cannot be read.
    pub kept: Option<Arc<LastGood>>,
}

impl Desired {
    /// Hashes a definition.
    #[must_use]
    pub fn new(definition: Arc<Definition>) -> Self {
        let whole = json!({
            "spec": definition.spec.json(),
            "labels": definition.labels,
            "annotations": definition.annotations,
        });
        let applied = hex(&hash_json(&whole)[..16]);
        let spec_hash = hash_json(&definition.canonical_spec.json());
        Self { definition, applied, spec_hash, kept: None }
    }

    /// [`Self::applied`] as bytes.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        u128::from_str_radix(&self.applied, 16).ok().map(u128::to_be_bytes)
    }

    /// The manifest to apply: the content of Git, the ownership mark, and the commit. That is `commit`, or for a definition of an
    /// earlier commit that one.
    #[must_use]
    pub fn manifest(&self, sync: &SyncRef, commit: &str) -> Value {
        let Definition { id, labels, annotations, spec, path, line, .. } = self.definition.as_ref();
        let commit = self.kept.as_ref().map_or(commit, |kept| &kept.commit);
        let mut annotations = annotations.to_map();
        annotations.insert(keys::OWNER.into(), sync.mark(id).to_string());
        annotations.insert(keys::APPLIED.into(), self.applied.clone());
        annotations.insert(keys::COMMIT.into(), commit.into());
        annotations.insert(keys::SOURCE.into(), format!("{path}:{line}"));
        let mut metadata = json!({"name": id.name, "annotations": annotations});
        if !labels.is_empty() {
            metadata["labels"] = json!(labels);
        }
        json!({"apiVersion": API_VERSION, "kind": id.kind.as_str(), "metadata": metadata, "spec": spec.json()})
    }
}

/// Identifies what a desired set was made from: commit, path and values of variables.
#[must_use]
pub fn input_key(commit: &str, path: &str, variables: Option<&Variables>) -> String {
    match variables {
        Some(variables) => format!("{commit} {path} {}", variables.digest()),
        None => format!("{commit} {path}"),
    }
}

/// Identifies for what held deletes stay held: commit, path and spec. Values of variables are left out, because they change
/// the content of objects, but never which objects are wanted.
#[must_use]
pub fn latch_key(commit: &str, path: &str, generation: i64) -> String {
    format!("{commit} {path} {generation}")
}

/// Whether a latch key is of another generation of the spec.
#[must_use]
pub fn is_of_other_spec(latch_key: &str, generation: i64) -> bool {
    let of = latch_key.rsplit_once(' ').map(|(_, of)| of);
    of.is_some_and(|of| of != generation.to_string())
}

/// All objects that a commit wants.
pub type DesiredSet = SharedMap<ObjectId, Desired>;

/// The desired set of a catalog.
#[must_use]
pub fn desired_set(catalog: &Catalog) -> DesiredSet {
    let fresh = |(id, one): (&ObjectId, &Arc<Definition>)| (id.clone(), Desired::new(one.clone()));
    catalog.definitions.iter().map(fresh).collect()
}

/// The desired set of a catalog, made from an older catalog and its desired set. Only changed definitions are hashed.
#[must_use]
pub fn desired_after(old: (&Catalog, &DesiredSet), catalog: &Catalog) -> DesiredSet {
    let (old, mut desired) = (old.0, old.1.clone());
    old.definitions.differences(&catalog.definitions, |id, was, is| match (was, is) {
        (Some(was), Some(is)) if Arc::ptr_eq(was, is) => {}
        (_, Some(is)) => drop(desired.insert(id.clone(), Desired::new(is.clone()))),
        (_, None) => drop(desired.remove(id)),
    });
    desired
}

/// How an object differs between two commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Only the new commit wants the object.
    Added,
    /// Only the old commit wants the object.
    Removed,
    /// The commits define the object differently, or at another place.
    Changed,
}

/// The objects that differ between two commits.
#[must_use]
pub fn changes(old: &DesiredSet, new: &DesiredSet) -> Vec<(ObjectId, Change)> {
    let mut changes = Vec::new();
    old.differences(new, |id, was, is| {
        let change = match (was, is) {
            (Some(was), Some(is))
                if Arc::ptr_eq(&was.definition, &is.definition) && was.kept == is.kept =>
            {
                return;
            }
            (Some(_), Some(_)) => Change::Changed,
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
        };
        changes.push((id.clone(), change));
    });
    changes
}

#[cfg(test)]
#[path = "tests/desired.rs"]
mod tests;
