//! References to objects that are neither in the commit nor in the cluster. Updated only where something has changed.

use std::collections::{BTreeMap, HashMap};

use crate::api::git_sync::Problem;
use crate::api::{Kind, ObjectId};
use crate::definition::{Catalog, Definition, check_definition};
use crate::sync::commit::desired::Change;

/// The dangling references of a commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The problems, by the object that names another one.
    found: BTreeMap<ObjectId, Vec<Problem>>,
    /// Named objects that are not in the commit, and whether they were in the cluster.
    outside: BTreeMap<ObjectId, bool>,
    /// How many references name an object.
    named: HashMap<ObjectId, usize>,
    broken: BTreeMap<ObjectId, String>,
}

impl References {
    /// Checks all references of a catalog.
    pub fn of(catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) -> Self {
        let mut all = Self::default();
        for definition in catalog.definitions.values() {
            all.count(definition);
        }
        all.check_all(catalog, exists);
        all
    }

    fn check_all(&mut self, catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) {
        self.found.clear();
        self.outside.clear();
        self.broken.clone_from(&catalog.broken);
        for id in catalog.definitions.keys() {
            self.check(id, catalog, exists);
        }
    }

    /// Checks the objects that differ between two commits. Checks all if a named object was added, removed or changed, since
    /// that may change the problems of others. `dirty` are the live objects that have changed.
    pub fn update<'a>(
        &mut self,
        (old, catalog): (&Catalog, &Catalog),
        changes: &[(ObjectId, Change)],
        mut dirty: impl Iterator<Item = &'a ObjectId>,
        exists: &dyn Fn(&ObjectId) -> bool,
    ) {
        for (id, _) in changes {
            if let Some(definition) = old.definitions.get(id) {
                self.discount(definition);
            }
            if let Some(definition) = catalog.definitions.get(id) {
                self.count(definition);
            }
        }
        // Only objects outside of the commit: a wanted object counts as existing, whatever happens to the live one.
        let outside_changed =
            dirty.any(|id| self.outside.get(id).is_some_and(|known| *known != exists(id)));
        // An unchanged object named it before, too, so `named` is complete.
        let matters = |(id, change): &(ObjectId, Change)| match change {
            // Of an agent a reference needs only the existence.
            Change::Changed => id.kind != Kind::Agent && self.named.contains_key(id),
            // The name may be the suggestion in the problem of another object.
            Change::Added | Change::Removed => {
                !self.found.is_empty() || self.named.contains_key(id)
            }
        };
        if outside_changed || self.broken != catalog.broken || changes.iter().any(matters) {
            self.check_all(catalog, exists);
        } else {
            for (id, _) in changes {
                self.check(id, catalog, exists);
            }
        }
    }

    fn count(&mut self, definition: &Definition) {
        for reference in &definition.references {
            *self.named.entry(reference.to.clone()).or_default() += 1;
        }
    }

    fn discount(&mut self, definition: &Definition) {
        for reference in &definition.references {
            if let Some(count) = self.named.get_mut(&reference.to) {
                *count -= 1;
                if *count == 0 {
                    self.named.remove(&reference.to);
                }
            }
        }
    }

    fn check(&mut self, id: &ObjectId, catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) {
        let definition = catalog.definitions.get(id);
        for reference in definition.iter().flat_map(|definition| &definition.references) {
            if !catalog.definitions.contains_key(&reference.to) {
                self.outside.insert(reference.to.clone(), exists(&reference.to));
            }
        }
        let problems = definition.map(|definition| check_definition(definition, catalog, exists));
        match problems.filter(|problems| !problems.is_empty()) {
            Some(problems) => self.found.insert(id.clone(), problems),
            None => self.found.remove(id),
        };
    }

    /// All problems.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.found.values().flatten()
    }
}

#[cfg(test)]
#[path = "tests/references.rs"]
mod tests;
