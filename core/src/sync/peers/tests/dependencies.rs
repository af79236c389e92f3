use super::*;
use crate::api::{Kind, ObjectId};
use crate::cluster::live::{Facts, Live, LiveObject};
use crate::definition::Catalog;
use crate::packed::Pairs;
use crate::sync::live_namespace::LiveSet;
use crate::sync::properties::definition;
use crate::sync::properties::repository::wrong;

fn loaded(contents: &[(&str, usize)]) -> Loaded {
    let mut catalog = Catalog::default();
    for (name, content) in contents {
        let id = ObjectId::new(Kind::ModelAPI, *name);
        catalog.definitions.insert(id.clone(), definition(&id, *content));
    }
    let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
    Loaded::of(&spec.expect("a spec"), "c", catalog, None)
}

fn source(commit: &str, tree: &str, path: &str) -> (String, SourceAt) {
    let paths = [("shared".to_owned(), Some(path.to_owned()))];
    let source = SourceAt {
        sync: "main".into(),
        url: "https://git.example".into(),
        commit: commit.into(),
        subfolder_tree: Some(tree.into()),
        paths: paths.into_iter().collect(),
        dockerfile: None,
        base_images: std::collections::BTreeMap::new(),
        applied: None,
    };
    ("image".into(), source)
}

#[test]
fn g11_a_commit_that_changes_what_an_image_is_made_of_is_another_one() {
    let of = |contents: &[(&str, usize)], builds| {
        let mut loaded = loaded(contents);
        loaded.builds = builds;
        loaded
    };
    let with = |builds| of(&[("a", 1)], builds);
    let old = with(vec![source("1", "t", "p")]);
    assert!(wants_the_same(&old, &with(vec![source("2", "t", "p")])), "another folder");
    for other in [vec![source("2", "u", "p")], vec![source("2", "t", "q")], Vec::new()] {
        assert!(!wants_the_same(&old, &with(other)));
    }
    for contents in [vec![("a", 2)], vec![("b", 1)], vec![("a", 1), ("b", 1)], vec![]] {
        let builds = vec![source("1", "t", "p")];
        assert!(!wants_the_same(&old, &of(&contents, builds)));
    }
}

#[test]
fn g11_g13_what_a_broken_file_said_while_its_commit_waited_waits_too() {
    let of = |contents: &[(&str, usize)], broken: &[&str], before: Option<&Loaded>| {
        let Loaded { catalog, coordinates, .. } = loaded(contents);
        let mut catalog = catalog;
        for name in broken {
            catalog.broken.insert(ObjectId::new(Kind::ModelAPI, *name), "a.yaml".into());
            catalog.problems.push(wrong());
        }
        let spec = serde_json::json!({"url": coordinates.url});
        Loaded::of(&serde_json::from_value(spec).expect("a spec"), "c", catalog, before)
    };
    let let_through = of(&[("a", 1), ("b", 1)], &[], None);
    let broken = of(&[("b", 1)], &["a"], Some(&let_through));
    let waits = of(&[("a", 2), ("b", 1)], &[], Some(&broken));
    let again = of(&[("b", 1)], &["a"], Some(&waits));
    assert!(!wants_the_same(&broken, &again), "a is what the commit said that waits");
    let waits = of(&[("a", 1), ("b", 1)], &[], Some(&broken));
    let again = of(&[("b", 1)], &["a"], Some(&waits));
    assert!(wants_the_same(&broken, &again));
    assert!(!wants_the_same(&broken, &of(&[("b", 1)], &[], Some(&broken))), "a is gone");
    // The branch goes back to the commit that was let through.
    let waits = of(&[("a", 2), ("b", 1)], &[], Some(&broken));
    let back = of(&[("b", 1)], &["a"], Some(&waits));
    assert_eq!(back.input_key, broken.input_key);
    let memory =
        DependencyState { released: Some(Arc::new(broken.clone())), ..DependencyState::default() };
    assert!(is_released(&memory, 0, &broken) && !is_released(&memory, 0, &back));
    // What was read of a commit of before this operator started says nothing new.
    let recalled = Loaded { recalled: true, ..waits };
    assert!(is_released(&memory, 0, &of(&[("b", 1)], &["a"], Some(&recalled))));
}

struct Object(Facts);

impl LiveObject for Object {
    fn uid(&self) -> &'static str {
        "uid"
    }
    fn version(&self) -> u64 {
        1
    }
    fn facts(&self) -> &Facts {
        &self.0
    }
}

#[test]
fn g11_g21_a_commit_that_was_applied_with_other_values_is_not_applied() {
    let applied = loaded(&[("a", 1), ("b", 1)]);
    let live: LiveSet = applied
        .desired
        .iter()
        .map(|(id, want)| {
            let said = (keys::APPLIED.to_owned(), want.applied.clone());
            let annotations = Pairs::of(Some(&[said].into()));
            let facts = Facts { annotations, ..Facts::default() };
            (id.clone(), Arc::new(Object(facts)) as Live)
        })
        .collect();
    assert!(is_there(&applied.desired, &live));
    for contents in [vec![("a", 1), ("b", 2)], vec![("a", 1), ("c", 1)]] {
        assert!(!is_there(&loaded(&contents).desired, &live));
    }
}

#[test]
fn g11_g22_whoever_takes_something_waits_for_the_giver_or_does_not() {
    use std::cell::RefCell;

    let looked = RefCell::new(Vec::new());
    let edges = |name: &str| {
        looked.borrow_mut().push(name.to_owned());
        let next: &[&str] = match name {
            "a" | "b" => &["giver"],
            "c" => &["x", "b"],
            "x" => &["y"],
            "y" => &["x"],
            "giver" => panic!("that one is enough"),
            _ => &[],
        };
        next.iter().map(|&name| name.to_owned()).collect()
    };
    let lead = |starts: &[&str]| {
        let starts = starts.iter().map(|&name| name.to_owned()).collect();
        all_lead_to(&starts, "giver", edges)
    };
    for starts in [&["a"] as &[_], &["a", "b"], &["c"], &["a", "b", "c", "giver"]] {
        assert!(lead(starts), "{starts:?}");
    }
    for starts in [&["x"] as &[_], &["a", "free"], &["c", "y"]] {
        assert!(!lead(starts), "{starts:?}");
    }
    looked.take();
    lead(&["a", "b", "c", "x", "y"]);
    looked.borrow_mut().sort();
    assert_eq!(looked.take(), ["a", "b", "c", "x", "y"]);
}

#[test]
fn g11_a_circle_is_found_by_its_members_only() {
    let edges = |name: &str| {
        let next: &[&str] = match name {
            "a" => &["x", "b"],
            "b" => &["c"],
            "c" => &["a"],
            "outside" => &["a"],
            "self" => &["self"],
            "diamond" => &["x", "y"],
            "x" | "y" => &["z"],
            _ => &[],
        };
        next.iter().map(|&name| name.to_owned()).collect()
    };
    assert_eq!(circle("a", edges).expect("a circle"), ["a", "b", "c", "a"]);
    assert_eq!(circle("c", edges).expect("a circle"), ["c", "a", "b", "c"]);
    assert_eq!(circle("self", edges).expect("a circle"), ["self", "self"]);
    for name in ["outside", "diamond", "z", "missing"] {
        assert_eq!(circle(name, edges), None, "{name}");
    }
}
