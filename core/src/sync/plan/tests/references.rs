use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::definition::Place;
use crate::definition::references::{Reference, UsedModel};
use crate::definition::tests::tree;
use crate::definition::{Context, Limits, Loader, Offers};
use crate::packed::{Family, Pairs};
use crate::sync::commit::desired::{changes, desired_set};
use crate::test_rng::TestRng;

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

fn any_id(dice: &mut TestRng) -> ObjectId {
    let kind = if dice.roll(3) == 0 { Kind::ModelAPI } else { Kind::Agent };
    ObjectId::new(kind, ["alpha", "alphb", "beta", "gamma", "gammb"][dice.roll(5)])
}

fn definition(id: ObjectId, dice: &mut TestRng) -> Definition {
    let models: Vec<_> = ["one", "two"].into_iter().take(dice.roll(3)).collect();
    let reference = |dice: &mut TestRng| {
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
        labels: Pairs::default(),
        annotations: Pairs::default(),
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
        let mut dice = TestRng::new(seed);
        let (mut catalog, mut live) = (Catalog::default(), BTreeSet::new());
        let mut kept = References::of(&catalog, &|_| false);
        for step in 0..30 {
            let (old, mut dirty) = (catalog.clone(), Vec::new());
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
                dirty.push(id);
            }
            if dice.roll(15) == 0 {
                catalog.broken = [(any_id(&mut dice), "x.yaml".to_owned())].into();
            }
            let differ = changes(&desired_set(&old), &desired_set(&catalog));
            let exists = |id: &ObjectId| live.contains(id);
            kept.update((&old, &catalog), &differ, dirty.iter(), &exists);
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
