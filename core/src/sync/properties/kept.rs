//! What must hold of what was applied: what is a change by hand, and what becomes of objects of broken files.

use super::cluster::{Object, stored};
use super::oracle::{Said, Whose, said};
use super::repository::{Tree, labels};
use super::world::World;
use crate::api::git_sync::{DriftPolicy, FailurePolicy};
use crate::api::{ObjectId, keys};
use crate::sync::plan::Plan;

/// Whether a commit that does not show an object hides it in this file, or shows no more than its name.
pub fn is_hidden(tree: &Tree, folder: &str, id: &ObjectId, path: &str) -> bool {
    match said(tree, folder, id) {
        Said::Legible => true,
        Said::Hidden => tree.file_of(folder, id).is_some_and(|(found, _)| found == path),
        Said::Wanted(_) | Said::Nothing => false,
    }
}

/// Whether an object is as a definition with this content and hash leaves it.
pub fn agrees(object: &Object, id: &ObjectId, content: usize, applied: &str) -> bool {
    let (label, note) = (labels(content), labels(content / 2));
    object.has(keys::APPLIED, applied)
        && (object.spec == stored(id, content) || object.spec == content)
        && label.iter().all(|(key, value)| object.labels.get(key) == Some(value))
        && note.iter().all(|(key, value)| object.annotations.get(key) == Some(value))
}

impl World {
    /// Remembers of each object of a GitSync whether it is as it is wanted at this moment.
    pub fn note_applied(&mut self, at: usize) {
        let Some(loaded) = self.syncs[at].loaded.clone() else { return };
        let mut known = self.syncs[at].applied.clone();
        known.retain(|id, _| match self.cluster.objects.get(id) {
            Some(object) => self.whose(at, id, object) == Whose::Mine,
            None => loaded.measure.contains_key(id),
        });
        for (id, object) in self.ours(at) {
            let Some(want) = loaded.measure.get(id) else { continue };
            let content = self.syncs[at].remembered[id].content;
            let settled = self.syncs[at].settled.get(id);
            let settled = settled.is_some_and(|settled| settled.applied == want.applied);
            let same = agrees(object, id, content, &want.applied);
            if same && (object.spec == content || settled) {
                known.insert(id.clone(), want.applied.clone());
            }
        }
        self.syncs[at].applied = known;
    }

    /// What is in a broken file is brought back to how it was wanted last, and nothing else that is not wanted is written.
    pub fn judge_kept(&self, at: usize, raw: &Plan, id: &ObjectId) {
        let sync = &self.syncs[at];
        let created = raw.create.contains(id);
        let update = raw.update.iter().find(|update| update.id == *id);
        let told = raw.drifted.contains(id);
        let atomic = sync.failure_policy == FailurePolicy::Atomic;
        let last = sync.remembered.get(id);
        assert!(last.is_some() || !(created || update.is_some()), "{id} was never wanted");
        let Some(last) = last else { return };
        let want = &self.definitions.wanted(id, &last.path, last.content);
        let known = sync.applied.get(id);
        let Some(object) = self.cluster.objects.get(id) else {
            let other = &self.syncs[1 - at];
            let theirs = other.loaded.is_some() && other.remembered.contains_key(id);
            let theirs = theirs
                || (other.loaded.is_some()
                    && said(&self.trees[other.head], other.folder, id) == Said::Legible);
            if last.hidden && known == Some(&want.applied) && !theirs {
                assert!(created, "{id} was there, and may be in a broken file");
            }
            assert!(!created || known.is_some(), "{id} was never there");
            assert!(!created || !theirs, "{id} is wanted by the other GitSync");
            return;
        };
        assert!(!created, "{id} exists");
        let mine = self.whose(at, id, object) == Whose::Mine;
        let free = mine && !object.facts.deleting && !object.is_paused();
        assert!(free || update.is_none(), "{id} is to be left alone");
        let same = agrees(object, id, last.content, &want.applied);
        let settled = sync.settled.get(id).is_some_and(|settled| settled.applied == want.applied);
        if !free || (same && object.spec != last.content && !settled) {
            // Or it is written once more before it is known that writing changes nothing.
            return;
        }
        assert!(!same || update.is_none(), "{id} is as it was wanted last");
        if same || !last.hidden {
            return;
        }
        let drifted = match known {
            Some(known) => *known == want.applied,
            None => object.has(keys::APPLIED, &want.applied),
        };
        match (drifted, sync.drift, update) {
            (true, DriftPolicy::Report, None) => assert!(told, "{id} is only reported"),
            (_, _, Some(update)) => {
                assert_eq!((&update.uid, update.version), (&object.uid, object.version));
                assert_eq!((update.adopted, update.drifted), (false, drifted), "{id}");
            }
            (false, _, None) => {
                assert!(atomic || !last.certain, "{id} differs from its last good definition");
            }
            (true, _, None) => panic!("{id} was changed by hand, and stays so"),
        }
    }
}
