//! References to objects that are neither in the commit nor in the cluster, checked again only where something
//! changed.

use std::collections::{BTreeMap, HashMap};

use crate::api::git_sync::Problem;
use crate::api::{Kind, ObjectId};
use crate::definition::{Catalog, Definition, check_definition};
use crate::sync::commit::desired::Change;

/// The findings, by the object that names another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    found: BTreeMap<ObjectId, Vec<Problem>>,
    /// What is named and is not in the commit, and whether it was in the cluster.
    outside: BTreeMap<ObjectId, bool>,
    /// How often an object is named.
    named: HashMap<ObjectId, usize>,
    broken: BTreeMap<ObjectId, String>,
}

impl References {
    /// Those of a whole catalog.
    pub fn of(catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) -> Self {
        let mut all = Self::default();
        for definition in catalog.definitions.values() {
            all.count(definition);
        }
        all.check_again(catalog, exists);
        all
    }

    fn check_again(&mut self, catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) {
        self.found.clear();
        self.outside.clear();
        self.broken.clone_from(&catalog.broken);
        for id in catalog.definitions.keys() {
            self.check(id, catalog, exists);
        }
    }

    /// Checks what differs between two commits, and all if something that others name has come or gone or says
    /// more than its name. `touched` are the live objects that have changed.
    pub fn update<'a>(
        &mut self,
        (old, catalog): (&Catalog, &Catalog),
        changes: &[(ObjectId, Change)],
        mut touched: impl Iterator<Item = &'a ObjectId>,
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
        // What is wanted counts as there, whatever becomes of the live object.
        let stranger =
            touched.any(|id| self.outside.get(id).is_some_and(|known| *known != exists(id)));
        // Whoever names it and is no change itself named it before, too.
        let matters = |(id, change): &(ObjectId, Change)| match change {
            // An agent that is named is asked for no more than that it is there.
            Change::Changed => id.kind != Kind::Agent && self.named.contains_key(id),
            // Its name may be, or may have been, what was meant by another one.
            Change::Added | Change::Removed => {
                !self.found.is_empty() || self.named.contains_key(id)
            }
        };
        if stranger || self.broken != catalog.broken || changes.iter().any(matters) {
            self.check_again(catalog, exists);
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

    /// All of them.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.found.values().flatten()
    }
}

#[cfg(test)]
#[path = "tests/references.rs"]
mod tests;
