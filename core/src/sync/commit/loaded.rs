//! A commit that was read whole, and what is remembered of those before it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::ObjectId;
use crate::api::git_sync::{GitRef, GitSyncSpec, VariablesSpec};
use crate::definition::Catalog;
use crate::definition::variables::Variables;
use crate::git::{CommitInfo, Revision};
use crate::sync::commit::desired::{Desired, DesiredSet, desired_after, desired_set, input_key};
use crate::sync::commit::last_good::{Memory, Past, needless};
use crate::sync::commit::source_at::SourceAt;
use crate::sync::order::Seq;
use crate::time::parse_duration;

/// The newest commit that was read whole.
#[derive(Clone)]
pub struct Loaded {
    /// Which commit.
    pub revision: Revision,
    /// Its author and subject.
    pub info: CommitInfo,
    /// Its definitions and problems.
    pub catalog: Catalog,
    /// What it wants.
    pub desired: DesiredSet,
    /// See [`Memory::measure`].
    pub measure: DesiredSet,
    /// Commit, path and hash of the variables: what the desired set was made from.
    pub input_key: String,
    /// Name of each AgentBuild with its source at that commit.
    pub builds: Vec<(String, SourceAt)>,
    /// When the commit was found, for the first time if it is read again: what others knew of their remotes before may be older.
    pub found: Seq,
    /// See [`Memory::last_paths`].
    pub last_paths: BTreeMap<ObjectId, String>,
    /// Whether it has errors, and what was wanted before it is not known: then no absence proves anything.
    pub lost: bool,
    /// Whether it was read again, because it had been applied: then other commits may lie between it and the next one.
    pub recalled: bool,
    /// What it was read for.
    pub coordinates: Coordinates,
    /// The values that it was read with.
    pub variables: Option<Variables>,
}

/// What was read of a commit, as it stands there.
pub struct Reading {
    /// Which commit.
    pub revision: Revision,
    /// Its author and subject.
    pub info: CommitInfo,
    /// Its definitions and problems.
    pub catalog: Catalog,
    /// Name of each AgentBuild with its source at that commit.
    pub builds: Vec<(String, SourceAt)>,
    /// See [`Loaded::found`].
    pub found: Seq,
    /// See [`Loaded::recalled`].
    pub recalled: bool,
    /// What it was read for.
    pub coordinates: Coordinates,
    /// The values that it was read with.
    pub variables: Option<Variables>,
}

impl Loaded {
    /// What a commit wants, after the one that was read before it.
    #[must_use]
    pub fn desired(before: Option<&Self>, catalog: &Catalog) -> DesiredSet {
        match before {
            Some(old) => desired_after((&old.catalog, &old.desired), catalog),
            None => desired_set(catalog),
        }
    }

    /// What a reading comes to, after the commit that was read before it and without the names of that which are of no
    /// use any more. What it wants is that of [`Self::desired`].
    #[must_use]
    pub fn new(
        before: Option<&Self>,
        needless: &BTreeSet<ObjectId>,
        desired: DesiredSet,
        reading: Reading,
    ) -> Self {
        let Reading { revision, info, catalog, builds, found, recalled, coordinates, variables } =
            reading;
        let past: Vec<_> = before.iter().map(|before| before.past()).collect();
        let Memory { last_paths, measure } = Memory::of(&past, needless, &desired, &catalog);
        let lost = catalog.has_errors() && before.is_none_or(|old| old.lost);
        let input_key = input_key(&revision.commit, &coordinates.path, variables.as_ref());
        // What is only read again asks nobody to look once more. When one that was applied was found nobody knows.
        let same =
            |old: &&Self| old.input_key == input_key && old.coordinates.same_place(&coordinates);
        let known = before.filter(same).filter(|old| !old.recalled);
        let found = known.map_or(found, |old| old.found);
        Self {
            revision,
            info,
            catalog,
            desired,
            measure,
            input_key,
            builds,
            found,
            last_paths,
            lost,
            recalled,
            coordinates,
            variables,
        }
    }

    /// Whether it was read for this spec.
    #[must_use]
    pub fn answers(&self, spec: &GitSyncSpec) -> bool {
        self.coordinates.same_place(&Coordinates::of(spec))
    }

    /// The repository that it was read from.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.coordinates.url
    }

    /// The same after a commit that was read later; what that had errors in itself stays unknown.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        let past = [before.past(), self.past()];
        let Memory { last_paths, measure } =
            Memory::of(&past, &BTreeSet::new(), &self.desired, &self.catalog);
        let lost = self.lost && before.catalog.has_errors();
        Self { measure, last_paths, lost, ..self.clone() }
    }

    /// What it remembers and nothing needs any more.
    #[must_use]
    pub fn needless(
        &self,
        is_live: impl Fn(&ObjectId) -> bool,
        was_applied: impl Fn(&ObjectId, &Desired) -> bool,
    ) -> BTreeSet<ObjectId> {
        needless(&self.last_paths, &self.measure, is_live, was_applied)
    }

    /// What the next commit has to know of this one.
    fn past(&self) -> Past<'_> {
        let Self { revision, measure, last_paths, recalled, .. } = self;
        Past { commit: &revision.commit, certain: !recalled, measure, last_paths }
    }
}

/// The part of a spec that decides what is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinates {
    /// `spec.url`.
    pub url: String,
    /// `spec.ref`, or branch `main`.
    pub reference: GitRef,
    /// `spec.path`.
    pub path: String,
    /// `spec.ignore`.
    pub ignore: Vec<String>,
    /// `spec.variables`.
    pub variables: Option<VariablesSpec>,
    /// How long one resolve, fetch or snapshot may take.
    pub timeout: Duration,
}

impl Coordinates {
    /// What a spec names.
    #[must_use]
    pub fn of(spec: &GitSyncSpec) -> Self {
        let main = GitRef { branch: Some("main".into()), tag: None, commit: None };
        let reference = spec.reference.clone().unwrap_or(main);
        let timeout = parse_duration(&spec.timeout).unwrap_or(Duration::from_secs(60));
        let timeout = timeout.min(MOST_TIMEOUT);
        let GitSyncSpec { url, path, ignore, variables, .. } = spec;
        let (url, path, ignore) = (url.clone(), path.clone(), ignore.clone());
        Self { url, reference, path, ignore, variables: variables.clone(), timeout }
    }

    /// Whether both name the same files; how long a fetch may take does not matter.
    #[must_use]
    pub fn same_place(&self, other: &Self) -> bool {
        let Self { url, reference, path, ignore, variables, timeout: _ } = self;
        (url, reference, path) == (&other.url, &other.reference, &other.path)
            && (ignore, variables) == (&other.ignore, &other.variables)
    }
}

/// Longest `spec.timeout`: the schema says so, but keeps what was stored before it did.
pub const MOST_TIMEOUT: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
#[path = "tests/loaded.rs"]
pub(crate) mod tests;
