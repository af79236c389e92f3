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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::desired::{DesiredSet, changes, desired_set};
    use super::*;
    use crate::definition::tests::tree;
    use crate::definition::{Context, Limits, Loader};

    fn catalog(models: &[&str]) -> Catalog {
        let head = "apiVersion: convoke.dev/v1alpha1\n";
        let agent = format!("{head}kind: Agent\nmetadata: {{name: x}}\nspec: {{modelAPI: m}}\n");
        let mut files = vec![("x.yaml".to_owned(), agent)];
        for name in models {
            let text = format!(
                "{head}kind: ModelAPI\nmetadata: {{name: {name}}}\nspec:\n  mode: External\n  external: {{url: 'https://m.example'}}\n"
            );
            files.push((format!("{name}.yaml"), text));
        }
        let files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let catalog = Loader::new(Limits::default()).load(&tree(&files), &Context::default());
        assert!(!catalog.has_errors(), "{:?}", catalog.problems);
        catalog
    }

    #[test]
    fn g10_what_comes_and_goes_on_either_side_is_noticed() {
        let model = ObjectId::new(Kind::ModelAPI, "m");
        let (with, without) = (catalog(&["m", "n"]), catalog(&["n"]));
        let set = |catalog: &Catalog| desired_set(catalog, &DesiredSet::new());
        let (wants, wants_not) = (set(&with), set(&without));
        let mut live = BTreeSet::new();
        let mut references = References::default();
        references.check_all(&with, &|id| live.contains(id));
        assert_eq!(references.problems().count(), 0);
        // It leaves Git, and is not in the cluster.
        let gone = changes(&wants, &wants_not);
        references.update(&without, &gone, [].iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 1);
        // Somebody makes it, and deletes it again.
        live.insert(model.clone());
        references.update(&without, &[], [&model].into_iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 0);
        live.clear();
        references.update(&without, &[], [&model].into_iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 1);
        // It comes back to Git.
        let came = changes(&wants_not, &wants);
        references.update(&with, &came, [].iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 0);
    }
}
