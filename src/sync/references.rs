//! (pure) References to objects that are neither in the commit nor in the cluster, checked again only where something
//! changed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use super::desired::Change;
use crate::api::git_sync::Problem;
use crate::api::{Kind, ObjectId};
use crate::definition::{Catalog, check_definition};

/// The findings, by the object that names another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    found: BTreeMap<ObjectId, Vec<Problem>>,
    /// What is named and is not in the commit, and whether it was in the cluster.
    outside: BTreeMap<ObjectId, bool>,
    broken: BTreeMap<ObjectId, String>,
}

impl References {
    /// Checks every definition.
    pub fn check_all(&mut self, catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) {
        self.found.clear();
        self.outside.clear();
        self.broken.clone_from(&catalog.broken);
        for id in catalog.definitions.keys() {
            self.check(id, catalog, exists);
        }
    }

    /// Checks what differs between two commits, and all if something that others may name has come or gone or says
    /// more than its name. `touched` are the live objects that have changed.
    pub fn update<'a>(
        &mut self,
        catalog: &Catalog,
        changes: &[(ObjectId, Change)],
        mut touched: impl Iterator<Item = &'a ObjectId>,
        exists: &dyn Fn(&ObjectId) -> bool,
    ) {
        // What is wanted counts as there, whatever becomes of the live object.
        let stranger =
            touched.any(|id| self.outside.get(id).is_some_and(|known| *known != exists(id)));
        // An agent that is named is asked for no more than that it is there.
        let matters = |(id, change): &(ObjectId, Change)| {
            *change != Change::Differs || id.kind != Kind::Agent
        };
        if stranger || self.broken != catalog.broken || changes.iter().any(matters) {
            self.check_all(catalog, exists);
        } else {
            for (id, _) in changes {
                self.check(id, catalog, exists);
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
