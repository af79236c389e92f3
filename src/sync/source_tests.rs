use super::*;
use crate::api::Kind;
use crate::definition::Definition;
use crate::sync::properties::definition;
use crate::sync::properties::repository::wrong;

impl Loaded {
    /// What a source makes of a catalog, without a repository.
    pub fn of(spec: &GitSyncSpec, commit: &str, catalog: Catalog, previous: Option<&Self>) -> Self {
        let desired = match previous {
            Some(old) => desired_after((&old.catalog, &old.desired), &catalog),
            None => desired_set(&catalog),
        };
        let past: Vec<_> = previous.iter().map(|previous| previous.past()).collect();
        let Memory { last_paths, measure } = Memory::of(&past, &desired, &catalog);
        Self {
            input_key: input_key(commit, &spec.path, None),
            revision: Revision { commit: commit.to_owned(), name: "main".into() },
            info: CommitInfo {
                id: commit.to_owned(),
                author: String::new(),
                subject: String::new(),
                time_seconds: 0,
            },
            catalog,
            desired,
            measure,
            builds: Vec::new(),
            found: Seq::next(),
            last_paths,
            recalled: false,
            coordinates: Coordinates::of(spec),
            variables: None,
        }
    }
}

/// A commit with these objects, each in this file.
pub fn commit(previous: Option<&Loaded>, objects: &[(&str, &str)], broken: bool) -> Loaded {
    let mut catalog = Catalog::default();
    for (name, path) in objects {
        let id = ObjectId::new(Kind::ModelAPI, *name);
        let one = Definition { path: (*path).to_owned(), ..(*definition(&id, 1)).clone() };
        catalog.definitions.insert(id, Arc::new(one));
    }
    if broken {
        catalog.problems.push(wrong());
    }
    let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
    Loaded::of(&spec.expect("a spec"), "c", catalog, previous)
}

fn last(loaded: &Loaded) -> Vec<(&str, &str)> {
    loaded.last_paths.iter().map(|(id, path)| (&*id.name, path.as_str())).collect()
}

#[test]
fn g13_while_commits_have_errors_it_is_known_where_each_object_was_wanted_last() {
    let one = commit(None, &[("a", "a.yaml"), ("b", "b.yaml"), ("c", "c.yaml")], false);
    assert_eq!(last(&one), []);
    let two = commit(Some(&one), &[("b", "moved.yaml"), ("c", "c.yaml")], true);
    assert_eq!(last(&two), [("a", "a.yaml")]);
    // Over several commits, each where the newest one had it.
    let three = commit(Some(&two), &[("c", "c.yaml")], true);
    assert_eq!(last(&three), [("a", "a.yaml"), ("b", "moved.yaml")]);
    // What is wanted again is where it is wanted, and lost from there.
    let four = commit(Some(&three), &[("a", "new.yaml"), ("c", "c.yaml")], true);
    assert_eq!(last(&four), [("b", "moved.yaml")]);
    let five = commit(Some(&four), &[("c", "c.yaml")], true);
    assert_eq!(last(&five), [("a", "new.yaml"), ("b", "moved.yaml")]);
    // A commit without errors proves what is absent: it is forgotten.
    let six = commit(Some(&five), &[("c", "c.yaml")], false);
    assert_eq!(last(&six), []);
    assert_eq!(last(&commit(Some(&six), &[], true)), [("c", "c.yaml")]);
}
