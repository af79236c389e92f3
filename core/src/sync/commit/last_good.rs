//! What is remembered of earlier commits while the newest one has errors: where each object was wanted last, and the last
//! good definition of each that may be in a file that cannot be read. Such a definition stays the measure of what there is to be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::ObjectId;
use crate::definition::Catalog;
use crate::sync::commit::desired::{Desired, DesiredSet};

/// Where a definition comes from that the newest commit does not show, though it may still mean it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastGood {
    /// The last commit that showed it.
    pub commit: String,
    /// Whether each commit since then is known: else a later one may have changed it.
    pub certain: bool,
}

/// An earlier commit, and what was remembered at it.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// Which commit.
    pub commit: &'a str,
    /// Whether no other commit lies between it and the next one that is known.
    pub certain: bool,
    /// See [`Memory::measure`].
    pub measure: &'a DesiredSet,
    /// See [`Memory::last_paths`].
    pub last_paths: &'a BTreeMap<ObjectId, String>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// While the commit has errors: objects that earlier commits wanted and this one does not, with the file that wanted
    /// them last.
    pub last_paths: BTreeMap<ObjectId, String>,
    /// What the commit wants, and what is kept of earlier ones: those definitions have [`Desired::kept`].
    pub measure: DesiredSet,
}

impl Memory {
    /// What is to be remembered at a commit, after these, the newest last; of what they remember themselves not the `needless`.
    #[must_use]
    pub fn of(
        past: &[Past<'_>],
        needless: &BTreeSet<ObjectId>,
        desired: &DesiredSet,
        catalog: &Catalog,
    ) -> Self {
        let mut memory = Self { last_paths: BTreeMap::new(), measure: desired.clone() };
        if !catalog.has_errors() {
            // Absence is proven.
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
            // What a good commit, or a file that can be read, does not show any more is not kept, whatever breaks later.
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

/// The names that nothing needs any more: no commit wants them, no object has them, and none is to be made again. So what is
/// remembered is bounded by what is wanted and what there is, however many commits with errors follow each other. `was_applied` says
/// whether a definition of the object was ever applied.
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
