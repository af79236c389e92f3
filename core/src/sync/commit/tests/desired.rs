use std::collections::BTreeMap;

use super::*;
use crate::api::Kind;
use crate::packed::Pairs;
use crate::sync::properties::definition;

fn want(change: impl FnOnce(&mut Definition)) -> Desired {
    let mut one = (*definition(&ObjectId::new(Kind::ModelAPI, "a"), 2)).clone();
    change(&mut one);
    Desired::new(Arc::new(one))
}

#[test]
fn g14_what_is_applied_is_spec_labels_and_annotations_wherever_they_stand() {
    let pairs = || Pairs::of(Some(&BTreeMap::from([("team".to_owned(), "red".to_owned())])));
    let plain = want(|_| {});
    let moved = want(|one| (one.path, one.line) = ("b.yaml".into(), 7));
    assert_eq!(moved.applied, plain.applied, "nothing is written for a file that moved");
    let labelled = want(|one| one.labels = pairs());
    let annotated = want(|one| one.annotations = pairs());
    let other = Desired::new(definition(&ObjectId::new(Kind::ModelAPI, "a"), 4));
    let hashes = [&plain, &labelled, &annotated, &other].map(|want| want.applied.clone());
    let different: std::collections::BTreeSet<_> = hashes.iter().collect();
    assert_eq!(different.len(), 4, "{hashes:?}");
    // The live spec is compared without them.
    assert_eq!((labelled.spec_hash, annotated.spec_hash), (plain.spec_hash, plain.spec_hash));
    assert_ne!(other.spec_hash, plain.spec_hash);
}

#[test]
fn g10_a_definition_that_moved_differs_and_one_that_was_kept_does_not() {
    let ids = ["kept", "moved", "gone", "came"].map(|name| ObjectId::new(Kind::ModelAPI, name));
    let [kept, moved, gone, came] = &ids;
    let plain = want(|_| {});
    let old: DesiredSet =
        [kept, moved, gone].map(|id| (id.clone(), plain.clone())).into_iter().collect();
    let mut new = old.clone();
    // Its problems are reported at the new place.
    new.insert(moved.clone(), want(|one| one.line = 9));
    new.remove(gone);
    new.insert(came.clone(), plain);
    let mut found = changes(&old, &new);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let differ = [(came, Change::Added), (gone, Change::Removed), (moved, Change::Changed)]
        .map(|(id, change)| (id.clone(), change));
    assert_eq!(found, differ);
}
