//! What is remembered of earlier commits while the newest one has errors.
//!
//! An object that may be in a file which cannot be read is kept at its last good definition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::ObjectId;
use crate::definition::Catalog;
use crate::sync::commit::desired::{Desired, DesiredSet, LastGood};

/// An earlier commit, and what was remembered with it.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// The commit id.
    pub commit: &'a str,
    /// Whether no unknown commit lies between this one and the next one that is known.
    pub certain: bool,
    /// [`Memory::measure`] of the commit.
    pub measure: &'a DesiredSet,
    /// [`Memory::last_paths`] of the commit.
    pub last_paths: &'a BTreeMap<ObjectId, String>,
}

/// What is remembered with a commit, for plans and for the next commit.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// While the commit has errors: the objects that earlier commits wanted and this one does not, each with the file that
    /// defined it last.
    pub last_paths: BTreeMap<ObjectId, String>,
    /// What live objects are compared with: the desired set of the commit, and last good definitions of earlier commits. The
    /// latter have [`Desired::kept`].
    pub measure: DesiredSet,
}

impl Memory {
    /// What is remembered with a commit after the commits in `past`, whose newest is the last. Objects in `needless` are
    /// dropped.
    #[must_use]
    pub fn of(
        past: &[Past<'_>],
        needless: &BTreeSet<ObjectId>,
        desired: &DesiredSet,
        catalog: &Catalog,
    ) -> Self {
        let mut memory = Self { last_paths: BTreeMap::new(), measure: desired.clone() };
        if !catalog.has_errors() {
            // A commit without errors proves absence: nothing of earlier commits is needed.
            return memory;
        }
        let mut last: BTreeMap<&ObjectId, (&str, Option<Desired>)> = BTreeMap::new();
        for Past { commit, certain, measure, last_paths } in past {
            for (id, path) in last_paths.iter().filter(|(id, _)| !needless.contains(id)) {
                last.insert(id, (path, measure.get(id).cloned()));
            }
            let kept = Arc::new(LastGood { commit: (*commit).to_owned(), certain: *certain });
            let gone = |(id, want): &(&ObjectId, &Desired)| {
                want.kept.is_none() && !desired.contains_key(id)
            };
            for (id, want) in measure.iter().filter(gone) {
                let good = Desired { kept: Some(kept.clone()), ..want.clone() };
                last.insert(id, (&want.definition.path, Some(good)));
            }
        }
        last.retain(|id, _| !desired.contains_key(id));
        let known: BTreeSet<&str> = last.values().map(|(path, _)| *path).collect();
        let strangers = catalog.broken_paths.iter().any(|path| !known.contains(path.as_str()));
        for (id, (path, want)) in last {
            // A definition that is missing from a readable file was removed. It is not kept, whatever breaks later.
            let hidden = catalog.broken.contains_key(id)
                || catalog.broken_paths.contains(path)
                || (strangers && !catalog.paths.contains(path));
            if let Some(want) = want.filter(|_| hidden) {
                memory.measure.insert(id.clone(), want);
            }
            memory.last_paths.insert(id.clone(), path.to_owned());
        }
        memory
    }
}

/// The remembered objects that can be dropped: no live object has the name, and none was applied that would be created again.
///
/// So memory is bounded by the wanted and the live objects, however many commits with errors follow each other. `was_applied`
/// tells whether a definition of the object was ever applied.
#[must_use]
pub fn needless(
    last_paths: &BTreeMap<ObjectId, String>,
    measure: &DesiredSet,
    is_live: impl Fn(&ObjectId) -> bool,
    was_applied: impl Fn(&ObjectId, &Desired) -> bool,
) -> BTreeSet<ObjectId> {
    let was_there = |id: &ObjectId| measure.get(id).is_some_and(|kept| was_applied(id, kept));
    last_paths.keys().filter(|id| !is_live(id) && !was_there(id)).cloned().collect()
}
