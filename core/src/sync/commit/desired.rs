//! What a commit wants: each definition with the hashes that decide whether it must be written.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{API_VERSION, Mark, ObjectId, keys};
use crate::cluster::live::{SpecHash, hash_json};
use crate::definition::variables::Variables;
use crate::definition::{Catalog, Definition};
use crate::shared_map::SharedMap;
use crate::sync::commit::last_good::LastGood;

/// The GitSync that a plan is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncRef {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`; also the namespace of everything that it writes.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
}

impl SyncRef {
    /// The mark that an object of this sync carries.
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

/// [`Desired::applied`] in bytes: short enough to be kept for each object.
pub type Fingerprint = [u8; 16];

/// One wanted object.
#[derive(Debug, Clone)]
pub struct Desired {
    /// What Git says.
    pub definition: Arc<Definition>,
    /// Hash of spec, labels and annotations as Git says them: the value of `convoke.dev/applied`.
    pub applied: String,
    /// Hash of the spec with the schema's defaults, comparable with a live object's.
    pub spec_hash: SpecHash,
    /// Set when the newest commit does not show it: it is the last good definition of what may be in a broken file.
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

    /// See [`Fingerprint`].
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        u128::from_str_radix(&self.applied, 16).ok().map(u128::to_be_bytes)
    }

    /// The manifest to apply: Git's content, the mark, and the provenance as of `commit`, or of the commit that showed it last.
    #[must_use]
    pub fn manifest(&self, sync: &SyncRef, commit: &str) -> Value {
        let Definition { id, labels, annotations, spec, path, line, .. } = self.definition.as_ref();
        let commit = self.kept.as_ref().map_or(commit, |kept| &kept.commit);
        let mut annotations = annotations.clone();
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

/// What a desired set was made from, as far as an approval depends on it.
#[must_use]
pub fn input_key(commit: &str, path: &str, variables: Option<&Variables>) -> String {
    match variables {
        Some(variables) => format!("{commit} {path} {}", variables.digest()),
        None => format!("{commit} {path}"),
    }
}

/// For what a held delete stays held: values of variables change what is wanted, but never which objects are.
#[must_use]
pub fn latch_key(commit: &str, path: &str, generation: i64) -> String {
    format!("{commit} {path} {generation}")
}

/// Whether that is of another spec than the one of this generation.
#[must_use]
pub fn is_of_other_spec(latch_key: &str, generation: i64) -> bool {
    let of = latch_key.rsplit_once(' ').map(|(_, of)| of);
    of.is_some_and(|of| of != generation.to_string())
}

/// Everything that a commit wants.
pub type DesiredSet = SharedMap<ObjectId, Desired>;

/// The desired set of a catalog.
#[must_use]
pub fn desired_set(catalog: &Catalog) -> DesiredSet {
    let fresh = |(id, one): (&ObjectId, &Arc<Definition>)| (id.clone(), Desired::new(one.clone()));
    catalog.definitions.iter().map(fresh).collect()
}

/// The same, made from the desired set of an older catalog: what did not change is not hashed again.
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

/// What differs between two commits.
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

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;
    use crate::sync::properties::definition;

    fn want(change: impl FnOnce(&mut Definition)) -> Desired {
        let mut one = (*definition(&ObjectId::new(Kind::ModelAPI, "a"), 2)).clone();
        change(&mut one);
        Desired::new(Arc::new(one))
    }

    #[test]
    fn g14_what_is_applied_is_spec_labels_and_annotations_wherever_they_stand() {
        let pair = || ("team".to_owned(), "red".to_owned());
        let plain = want(|_| {});
        let moved = want(|one| (one.path, one.line) = ("b.yaml".into(), 7));
        assert_eq!(moved.applied, plain.applied, "nothing is written for a file that moved");
        let labelled = want(|one| one.labels.extend([pair()]));
        let annotated = want(|one| one.annotations.extend([pair()]));
        let other = Desired::new(definition(&ObjectId::new(Kind::ModelAPI, "a"), 4));
        let hashes = [&plain, &labelled, &annotated, &other].map(|want| want.applied.clone());
        let different: std::collections::BTreeSet<_> = hashes.iter().collect();
        assert_eq!(different.len(), 4, "{hashes:?}");
        // The live spec is compared without them.
        assert_eq!((labelled.spec_hash, annotated.spec_hash), (plain.spec_hash, plain.spec_hash));
        assert_ne!(other.spec_hash, plain.spec_hash);
    }

    #[test]
    fn g10_a_definition_that_moved_differs_and_one_that_was_kept_does_not() {
        let ids = ["kept", "moved", "gone", "came"].map(|name| ObjectId::new(Kind::ModelAPI, name));
        let [kept, moved, gone, came] = &ids;
        let plain = want(|_| {});
        let old: DesiredSet =
            [kept, moved, gone].map(|id| (id.clone(), plain.clone())).into_iter().collect();
        let mut new = old.clone();
        // Its problems are told at their new place.
        new.insert(moved.clone(), want(|one| one.line = 9));
        new.remove(gone);
        new.insert(came.clone(), plain);
        let mut found = changes(&old, &new);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let differ = [(came, Change::Added), (gone, Change::Removed), (moved, Change::Changed)]
            .map(|(id, change)| (id.clone(), change));
        assert_eq!(found, differ);
    }
}
