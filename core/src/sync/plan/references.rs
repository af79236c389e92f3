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
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::definition::document::Place;
    use crate::definition::references::{Reference, UsedModel};
    use crate::definition::tests::tree;
    use crate::definition::{Context, Limits, Loader, Offers};
    use crate::dice::Dice;
    use crate::packed::Family;
    use crate::sync::commit::desired::{changes, desired_set};

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

    fn any_id(dice: &mut Dice) -> ObjectId {
        let kind = if dice.roll(3) == 0 { Kind::ModelAPI } else { Kind::Agent };
        ObjectId::new(kind, ["alpha", "alphb", "beta", "gamma", "gammb"][dice.roll(5)])
    }

    fn definition(id: ObjectId, dice: &mut Dice) -> Definition {
        let models: Vec<_> = ["one", "two"].into_iter().take(dice.roll(3)).collect();
        let reference = |dice: &mut Dice| {
            let model = UsedModel { name: "two".into(), place: Place { line: 3, column: 1 } };
            let to = any_id(dice);
            // Agents are asked for no model.
            let model = (to.kind == Kind::ModelAPI && dice.roll(2) == 0).then_some(model);
            Reference { to, field: "any", line: 2, column: 1, model }
        };
        Definition {
            path: format!("{id}.yaml"),
            line: 1,
            column: 1,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec: Family::new().pack(&Value::Null),
            canonical_spec: Family::new().pack(&Value::Null),
            offers: Offers {
                models: models.into_iter().map(str::to_owned).collect(),
                exposed: id.kind == Kind::Agent,
            },
            references: (0..dice.roll(3)).map(|_| reference(dice)).collect(),
            id,
        }
    }

    #[test]
    fn g10_what_is_kept_up_to_date_is_what_a_check_of_all_gives() {
        for seed in 1..300_u64 {
            let mut dice = Dice::new(seed);
            let (mut catalog, mut live) = (Catalog::default(), BTreeSet::new());
            let mut kept = References::of(&catalog, &|_| false);
            for step in 0..30 {
                let (old, mut touched) = (catalog.clone(), Vec::new());
                for _ in 0..dice.roll(3) {
                    let id = any_id(&mut dice);
                    if dice.roll(3) == 0 {
                        catalog.definitions.remove(&id);
                    } else {
                        let one = Arc::new(definition(id.clone(), &mut dice));
                        catalog.definitions.insert(id, one);
                    }
                }
                if dice.roll(3) == 0 {
                    let id = any_id(&mut dice);
                    if !live.remove(&id) {
                        live.insert(id.clone());
                    }
                    touched.push(id);
                }
                if dice.roll(15) == 0 {
                    catalog.broken = [(any_id(&mut dice), "x.yaml".to_owned())].into();
                }
                let differ = changes(&desired_set(&old), &desired_set(&catalog));
                let exists = |id: &ObjectId| live.contains(id);
                kept.update((&old, &catalog), &differ, touched.iter(), &exists);
                let anew = References::of(&catalog, &exists);
                assert_eq!(kept.found, anew.found, "seed {seed}, step {step}");
                assert_eq!(kept.named, anew.named, "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn g10_what_comes_and_goes_on_either_side_is_noticed() {
        let model = ObjectId::new(Kind::ModelAPI, "m");
        let (with, without) = (catalog(&["m", "n"]), catalog(&["n"]));
        let set = |catalog: &Catalog| desired_set(catalog);
        let (wants, wants_not) = (set(&with), set(&without));
        let mut live = BTreeSet::new();
        let mut references = References::of(&with, &|id| live.contains(id));
        assert_eq!(references.problems().count(), 0);
        // It leaves Git, and is not in the cluster.
        let gone = changes(&wants, &wants_not);
        references.update((&with, &without), &gone, [].iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 1);
        // Somebody makes it, and deletes it again.
        live.insert(model.clone());
        references.update((&without, &without), &[], [&model].into_iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 0);
        live.clear();
        references.update((&without, &without), &[], [&model].into_iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 1);
        // It comes back to Git.
        let came = changes(&wants_not, &wants);
        references.update((&without, &with), &came, [].iter(), &|id| live.contains(id));
        assert_eq!(references.problems().count(), 0);
    }
}
