//! A commit that was read completely, and what is remembered of earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::api::ObjectId;
use crate::api::git_sync::{GitRef, GitSyncSpec, VariablesSpec, VerifySpec};
use crate::definition::Catalog;
use crate::definition::variables::Variables;
use crate::git::{CommitInfo, Revision};
use crate::order::Seq;
use crate::sync::commit::desired::{Desired, DesiredSet, desired_after, desired_set, input_key};
use crate::sync::commit::last_good::{Memory, Past, needless};
use crate::sync::commit::source_at::SourceAt;
use crate::time::parse_duration;

/// A commit that was read completely.
#[derive(Clone)]
pub struct Loaded {
    /// The commit id.
    pub revision: Revision,
    /// Its author and subject.
    pub info: CommitInfo,
    /// Its definitions and problems.
    pub catalog: Catalog,
    /// Its desired set.
    pub desired: DesiredSet,
    /// [`Memory::measure`] of the commit.
    pub measure: DesiredSet,
    /// Identifies what the desired set was made from: commit, path and values of variables.
    pub input_key: String,
    /// The name of each AgentBuild, with its source at the commit.
    pub builds: Vec<(String, SourceAt)>,
    /// When the commit was found first. The other GitSyncs must have polled their remotes after this before it deletes.
    pub found: Seq,
    /// [`Memory::last_paths`] of the commit.
    pub last_paths: BTreeMap<ObjectId, String>,
    /// Whether the commit has errors, and the commit before it is not known. Then no absence from the commit proves anything.
    pub lost: bool,
    /// Whether the commit was read because it is the last applied one, and not by a poll of the remote. Then unknown commits
    /// may lie between it and the next one.
    pub recalled: bool,
    /// The part of the spec that it was read for.
    pub coordinates: Coordinates,
    /// The values of variables that it was read with.
    pub variables: Option<Variables>,
    /// Since when the keys were known that it was verified with, in the order of events. `None`: nothing was to be verified.
    pub keys_since: Option<Seq>,
}

/// The content of a commit, before it is combined with earlier ones.
pub struct Reading {
    /// The commit id.
    pub revision: Revision,
    /// Its author and subject.
    pub info: CommitInfo,
    /// Its definitions and problems.
    pub catalog: Catalog,
    /// The name of each AgentBuild, with its source at the commit.
    pub builds: Vec<(String, SourceAt)>,
    /// When the commit was found.
    pub found: Seq,
    /// Whether it was read because it is the last applied commit.
    pub recalled: bool,
    /// The part of the spec that it was read for.
    pub coordinates: Coordinates,
    /// The values of variables that it was read with.
    pub variables: Option<Variables>,
    /// Since when the keys were known that it was verified with, in the order of events. `None`: nothing was to be verified.
    pub keys_since: Option<Seq>,
}

impl Loaded {
    /// The desired set of a catalog, made from the commit that was read before if there is one.
    #[must_use]
    pub fn desired(before: Option<&Self>, catalog: &Catalog) -> DesiredSet {
        match before {
            Some(old) => desired_after((&old.catalog, &old.desired), catalog),
            None => desired_set(catalog),
        }
    }

    /// Combines a commit with the one that was read before. Of that, the objects in `needless` are not remembered any more.
    /// `desired` comes from [`Self::desired`].
    #[must_use]
    pub fn new(
        before: Option<&Self>,
        needless: &BTreeSet<ObjectId>,
        desired: DesiredSet,
        reading: Reading,
    ) -> Self {
        let Reading { revision, info, catalog, builds, found, recalled, .. } = reading;
        let Reading { coordinates, variables, keys_since, .. } = reading;
        let past: Vec<_> = before.iter().map(|before| before.past()).collect();
        let Memory { last_paths, measure } = Memory::of(&past, needless, &desired, &catalog);
        let lost = catalog.has_errors() && before.is_none_or(|old| old.lost);
        let input_key = input_key(&revision.commit, &coordinates.path, variables.as_ref());
        // The same commit again keeps the time at which it was found. For a recalled commit that time is not known.
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
            keys_since,
        }
    }

    /// Whether it was read for this spec.
    #[must_use]
    pub fn answers(&self, spec: &GitSyncSpec) -> bool {
        self.coordinates.same_place(&Coordinates::of(spec))
    }

    /// Whether it was verified with the same keys as this newer commit. Otherwise nothing of it counts any more: the keys of its
    /// signer may have been taken away.
    #[must_use]
    pub fn is_as_trusted_as(&self, newest: &Self) -> bool {
        self.keys_since == newest.keys_since
    }

    /// The URL of the repository.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.coordinates.url
    }

    /// This commit, combined with an earlier one that was read later. Where that one has errors, its wishes stay unknown.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        let past = [before.past(), self.past()];
        let Memory { last_paths, measure } =
            Memory::of(&past, &BTreeSet::new(), &self.desired, &self.catalog);
        let lost = self.lost && before.catalog.has_errors();
        Self { measure, last_paths, lost, ..self.clone() }
    }

    /// The remembered objects that can be dropped.
    #[must_use]
    pub fn needless(
        &self,
        is_live: impl Fn(&ObjectId) -> bool,
        was_applied: impl Fn(&ObjectId, &Desired) -> bool,
    ) -> BTreeSet<ObjectId> {
        needless(&self.last_paths, &self.measure, is_live, was_applied)
    }

    /// What the next commit needs of this one.
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
    /// The names of the Secrets of `spec.secretRef` and `spec.proxySecretRef`.
    pub secrets: [Option<String>; 2],
    /// `spec.verify`.
    pub verify: Option<VerifySpec>,
    /// How long one resolve, fetch or snapshot may take.
    pub timeout: Duration,
}

impl Coordinates {
    /// The coordinates of a spec.
    #[must_use]
    pub fn of(spec: &GitSyncSpec) -> Self {
        let main = GitRef { branch: Some("main".into()), ..GitRef::default() };
        let reference = spec.reference.clone().unwrap_or(main);
        let timeout = parse_duration(&spec.timeout).unwrap_or(Duration::from_secs(60));
        let timeout = timeout.min(MAX_SPEC_TIMEOUT);
        let GitSyncSpec { url, path, ignore, variables, .. } = spec;
        let (url, path, ignore) = (url.clone(), path.clone(), ignore.clone());
        let (variables, verify) = (variables.clone(), spec.verify.clone());
        let secrets = [&spec.secret_ref, &spec.proxy_secret_ref]
            .map(|secret| secret.as_ref().map(|secret| secret.name.clone()));
        Self { url, reference, path, ignore, variables, secrets, verify, timeout }
    }

    /// Whether both name the same files, and want the same signatures. The timeout and the credentials do not matter.
    #[must_use]
    pub fn same_place(&self, other: &Self) -> bool {
        let Self { url, reference, path, ignore, variables, verify, secrets: _, timeout: _ } = self;
        (url, reference, path) == (&other.url, &other.reference, &other.path)
            && (ignore, variables, verify) == (&other.ignore, &other.variables, &other.verify)
    }
}

/// The longest `spec.timeout`. The schema enforces it, but not for objects that are older than this rule.
pub const MAX_SPEC_TIMEOUT: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
#[path = "tests/loaded.rs"]
pub(crate) mod tests;
