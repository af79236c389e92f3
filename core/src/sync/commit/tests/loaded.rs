use std::sync::Arc;

use super::*;
use crate::api::Kind;
use crate::cluster::live::{Facts, Live, LiveObject};
use crate::definition::Definition;
use crate::sync::commit::desired::SyncRef;
use crate::sync::live_namespace::LiveSet;
use crate::sync::plan::Settled;
use crate::sync::plan::refresh::needless;
use crate::sync::plan::work_index::WorkIndex;
use crate::sync::properties::definition;
use crate::sync::properties::repository::wrong;

impl Loaded {
    /// What a source makes of a catalog, without a repository.
    pub(crate) fn of(
        spec: &GitSyncSpec,
        commit: &str,
        catalog: Catalog,
        previous: Option<&Self>,
    ) -> Self {
        Self::of_without(spec, commit, catalog, previous, &BTreeSet::new())
    }

    /// The same without what is needless.
    pub(crate) fn of_without(
        spec: &GitSyncSpec,
        commit: &str,
        catalog: Catalog,
        previous: Option<&Self>,
        needless: &BTreeSet<ObjectId>,
    ) -> Self {
        let desired = Loaded::desired(previous, &catalog);
        let info = CommitInfo {
            id: commit.to_owned(),
            author: String::new(),
            subject: String::new(),
            time_seconds: 0,
            signer: None,
        };
        let reading = Reading {
            revision: Revision { commit: commit.to_owned(), name: "main".into() },
            info,
            catalog,
            builds: Vec::new(),
            found: Seq::next(),
            recalled: false,
            coordinates: Coordinates::of(spec),
            variables: None,
            keys_since: None,
        };
        Self { lost: false, ..Self::new(previous, needless, desired, reading) }
    }
}

impl Loaded {
    /// The same of an operator that has just started and could read the commit that was applied before, or could not.
    pub(crate) fn started_after(self, before: Option<&Self>) -> Self {
        let lost = Self { lost: self.catalog.has_errors(), ..self };
        match before {
            Some(before) => lost.after(&Self { recalled: true, ..before.clone() }),
            None => lost,
        }
    }
}

/// A commit with these objects, each in this file.
pub fn commit(previous: Option<&Loaded>, objects: &[(&str, &str)], broken: bool) -> Loaded {
    commit_without(previous, objects, broken, &BTreeSet::new())
}

fn commit_without(
    previous: Option<&Loaded>,
    objects: &[(&str, &str)],
    broken: bool,
    needless: &BTreeSet<ObjectId>,
) -> Loaded {
    let mut catalog = Catalog::default();
    for (name, path) in objects {
        let id = ObjectId::new(Kind::ModelAPI, *name);
        let one = Definition { path: (*path).to_owned(), ..(*definition(&id, 1)).clone() };
        catalog.definitions.insert(id, Arc::new(one));
    }
    if broken {
        catalog.problems.push(wrong());
    }
    Loaded::of_without(&spec(), "c", catalog, previous, needless)
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

#[test]
fn g13_what_is_remembered_is_bounded_by_what_is_wanted_and_what_there_is() {
    let live = |names: &[&str]| -> LiveSet {
        let live = |name: &&str| {
            let object: Live = Arc::new(Nothing);
            (ObjectId::new(Kind::ModelAPI, *name), object)
        };
        names.iter().map(live).collect()
    };
    let there = live(&["n0"]);
    let mut last = commit(None, &[("n0", "a.yaml")], true);
    for number in 1..100 {
        let name = format!("n{number}");
        let old = needless(&last, None, &there);
        last = commit_without(Some(&last), &[(&name, "a.yaml")], true, &old);
        let most = number.min(2);
        assert_eq!(last.last_paths.len(), most, "{number}: {:?}", self::last(&last));
        assert!(last.last_paths.contains_key(&ObjectId::new(Kind::ModelAPI, "n0")), "it is there");
        assert_eq!(last.measure.len(), 1, "its file is good");
    }
}

#[test]
fn g13_what_was_there_and_may_be_in_a_broken_file_is_not_forgotten() {
    let (id, nothing) = (ObjectId::new(Kind::ModelAPI, "a"), LiveSet::new());
    let one = commit(None, &[("a", "a.yaml"), ("b", "b.yaml")], false);
    let mut catalog = Catalog::default();
    catalog.problems.push(wrong());
    catalog.broken.insert(id.clone(), "a.yaml".into());
    let two = Loaded::of(&spec(), "d", catalog.clone(), Some(&one));
    assert_eq!((two.measure.len(), last(&two)), (1, vec![("a", "a.yaml"), ("b", "b.yaml")]));
    let kept = two.measure[&id].kept.as_ref().expect("kept");
    assert_eq!((kept.commit.as_str(), kept.certain), ("c", true));
    let sync = SyncRef { uid: "u".into(), namespace: "n".into(), name: "s".into(), generation: 1 };
    let mut index = WorkIndex::new(&sync, &two.measure, &nothing, &Settled::new());
    assert_eq!(needless(&two, Some(&index), &nothing).len(), 2, "neither was ever there");
    index.wrote(&id, &two.measure[&id]);
    let old = needless(&two, Some(&index), &nothing);
    assert_eq!(old.iter().map(|id| &*id.name).collect::<Vec<_>>(), ["b"]);
    let three = Loaded::of_without(&spec(), "e", catalog, Some(&two), &old);
    assert_eq!((three.measure.len(), last(&three)), (1, vec![("a", "a.yaml")]));
    assert_eq!(three.measure[&id].kept.as_ref().expect("kept").commit, "c");
}

#[test]
fn g13_after_a_start_the_commit_that_was_applied_tells_what_was_wanted_before() {
    let id = ObjectId::new(Kind::ModelAPI, "a");
    let applied = commit(None, &[("a", "q.yaml"), ("b", "b.yaml")], false);
    let mut catalog = Catalog::default();
    catalog.problems.push(wrong());
    catalog.broken_paths.insert("q.yaml".into());
    catalog.paths.extend(["p.yaml", "q.yaml", "b.yaml"].map(str::to_owned));
    let newest = || Loaded::of(&spec(), "d", catalog.clone(), None);
    assert!(newest().started_after(None).lost, "nothing is proven");
    let known = newest().started_after(Some(&applied));
    assert_eq!((known.lost, last(&known)), (false, vec![("a", "q.yaml"), ("b", "b.yaml")]));
    assert_eq!(known.measure.len(), 1, "b is not in its file, which is good");
    let kept = known.measure[&id].kept.as_ref().expect("kept");
    assert_eq!((kept.commit.as_str(), kept.certain), ("c", false), "others may lie between");
    // A commit with errors does not show what was wanted before it.
    let faulty = commit(None, &[("a", "q.yaml")], true);
    assert!(newest().started_after(Some(&faulty)).lost);
    let good = commit(None, &[("a", "q.yaml")], false);
    assert!(
        !good.clone().started_after(None).lost,
        "a commit without errors proves what is absent"
    );
}

#[test]
fn g22_what_is_read_again_was_found_before_and_asks_nobody_to_look_once_more() {
    let one = commit(None, &[("a", "a.yaml")], true);
    assert_eq!(commit(Some(&one), &[("a", "a.yaml")], true).found, one.found);
    let other = Loaded::of(&spec(), "d", Catalog::default(), Some(&one));
    assert!(other.found > one.found, "another commit");
    assert!(commit(Some(&other), &[("a", "a.yaml")], true).found > other.found, "it is back");
    let elsewhere = GitSyncSpec { url: "https://elsewhere.example".into(), ..spec() };
    assert!(Loaded::of(&elsewhere, "c", Catalog::default(), Some(&one)).found > one.found);
    // Nobody has asked the remote for a commit that was read because it had been applied.
    let recalled = Loaded { recalled: true, ..one.clone() };
    assert!(commit(Some(&recalled), &[("a", "a.yaml")], true).found > one.found);
}

/// What a live object is like does not matter here.
#[derive(Debug)]
struct Nothing;

impl LiveObject for Nothing {
    fn uid(&self) -> &'static str {
        "u"
    }
    fn version(&self) -> u64 {
        1
    }
    fn facts(&self) -> &Facts {
        static FACTS: std::sync::LazyLock<Facts> = std::sync::LazyLock::new(Facts::default);
        &FACTS
    }
}

fn spec() -> GitSyncSpec {
    let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
    spec.expect("a spec")
}
