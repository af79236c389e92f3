//! What a target is among the refs of a server. (pure)

use std::collections::{BTreeMap, HashMap};

use gix::ObjectId;
use gix::protocol::handshake::Ref;

use super::GitError;
use super::check::{Target, highest, version};
use super::error::{VERSIONED, nearest, printable};

/// How many of the refs that there are a message names.
const MAX_SHOWN: usize = 3;
/// The folders of refs.
const BRANCHES: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";

/// What a ref is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub commit: ObjectId,
    /// The annotated tag that the ref names, if it is one.
    pub tag: Option<ObjectId>,
}

impl Found {
    /// What a line of a list of refs says.
    fn of(target: Option<&gix::oid>, peeled: Option<&gix::oid>) -> Option<Self> {
        let commit = peeled.or(target)?.to_owned();
        Some(Self { commit, tag: peeled.and(target).map(ToOwned::to_owned) })
    }
}

/// What a target is on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub found: Found,
    /// The name of the ref without its folder. Empty for a commit.
    pub name: String,
}

/// What the server says of each target.
pub(super) type Answers = HashMap<Target, Result<Listed, GitError>>;

/// Refs by their full names.
pub(super) type Refs = BTreeMap<String, Found>;

/// The refs that a target needs: the beginning of their names.
pub(super) fn prefix(target: &Target) -> String {
    match target {
        Target::Branch(name) => format!("{BRANCHES}{name}"),
        Target::Tag(name) => format!("{TAGS}{name}"),
        Target::Versions(..) => TAGS.to_owned(),
        Target::Ref(name) => name.clone(),
        // Nothing of it is needed. It shows that we may read the repository.
        Target::Commit(_) => "HEAD".to_owned(),
    }
}

/// A list of refs by their names. Those whose names are not UTF-8 are left out: no target can name them.
pub(super) fn by_name(refs: &[Ref]) -> Refs {
    let named = refs.iter().filter_map(|one| {
        let (full, target, peeled) = one.unpack();
        Some((String::from_utf8(full.to_vec()).ok()?, Found::of(target, peeled)?))
    });
    named.collect()
}

/// The names below a folder, without it.
fn below<'a>(refs: &'a Refs, folder: &'a str) -> impl Iterator<Item = &'a str> {
    refs.keys().filter_map(move |full| full.strip_prefix(folder))
}

/// Whether a target may be another commit once this ref has moved, given by its full name.
pub(super) fn is_moved_by(target: &Target, pushed: &str) -> bool {
    match target {
        Target::Versions(range, _) => {
            let tag = pushed.strip_prefix(TAGS).and_then(version);
            tag.is_some_and(|version| range.matches(&version))
        }
        Target::Branch(_) | Target::Tag(_) | Target::Ref(_) => prefix(target) == pushed,
        Target::Commit(_) => false,
    }
}

/// What a target is among these refs, if it is there.
pub(super) fn listed(target: &Target, refs: &Refs) -> Option<Listed> {
    let name = match target {
        Target::Commit(id) => {
            let found = Found { commit: *id, tag: None };
            return Some(Listed { found, name: String::new() });
        }
        Target::Branch(name) | Target::Tag(name) | Target::Ref(name) => name.as_str(),
        Target::Versions(range, _) => highest(range, below(refs, TAGS))?,
    };
    let full = match target {
        Target::Versions(..) => format!("{TAGS}{name}"),
        _ => prefix(target),
    };
    Some(Listed { found: *refs.get(&full)?, name: name.to_owned() })
}

/// The error for a target that is not there, with what is near among all refs, if these are known.
pub(super) fn missing(target: &Target, all: Option<&Refs>) -> GitError {
    if all.is_some_and(Refs::is_empty) {
        return GitError::EmptyRepository;
    }
    let none = Refs::new();
    let all = all.unwrap_or(&none);
    let (kind, name, folder) = match target {
        Target::Versions(_, text) => {
            // Also one that is a pre-release, which no plain range takes.
            let versions = below(all, TAGS).filter_map(|tag| Some((version(tag)?, tag)));
            let highest = versions.max_by(|(a, _), (b, _)| a.cmp_precedence(b));
            let there = highest.into_iter().map(|(_, tag)| printable(tag)).collect();
            let (name, nearest, other) = (text.clone(), Vec::new(), None);
            return GitError::RefNotFound { kind: VERSIONED, name, nearest, there, other };
        }
        Target::Branch(name) => ("branch", name.clone(), BRANCHES),
        Target::Tag(name) => ("tag", name.clone(), TAGS),
        Target::Ref(name) => ("ref", name.clone(), ""),
        Target::Commit(id) => ("commit", id.to_string(), ""),
    };
    let is_other = |folder: &str| all.contains_key(&format!("{folder}{name}"));
    let other = match target {
        Target::Branch(_) if is_other(TAGS) => Some("tag"),
        Target::Tag(_) if is_other(BRANCHES) => Some("branch"),
        _ => None,
    };
    let nearest = nearest(&name, below(all, folder));
    let there = below(all, folder).take(if nearest.is_empty() { MAX_SHOWN } else { 0 });
    let there = there.map(printable).collect();
    GitError::RefNotFound { kind, name, nearest, there, other }
}

#[cfg(test)]
mod tests {
    use semver::VersionReq;

    use super::*;

    #[test]
    fn g3_what_is_there_instead_is_told() {
        let id = gix::ObjectId::null(gix::hash::Kind::Sha1);
        let all = ["refs/heads/main", "refs/tags/v1.0.0", "refs/tags/v1.10.0", "refs/tags/x"];
        let found = || Found { commit: id, tag: None };
        let all: Refs = all.into_iter().map(|name| (name.to_owned(), found())).collect();
        let hint = |target: Target| missing(&target, Some(&all)).hint().unwrap_or_default();
        let range = VersionReq::parse(">=2").expect("a range");
        let versions = Target::Versions(range, ">=2".into());
        assert_eq!(hint(versions), "the highest version there is v1.10.0");
        let range = VersionReq::parse(">=2").expect("a range");
        let versions = Target::Versions(range, ">=2".into());
        assert_eq!(missing(&versions, None).hint(), None, "nothing is known");
        let before: Refs = [("refs/tags/v2.0.0-rc.1".to_owned(), found())].into_iter().collect();
        let hint_of = missing(&versions, Some(&before)).hint();
        assert_eq!(hint_of.as_deref(), Some("the highest version there is v2.0.0-rc.1"));
        let is = "v1.0.0 is a tag: name it in spec.ref.tag";
        assert_eq!(hint(Target::Branch("v1.0.0".into())), is);
        let is = "main is a branch: name it in spec.ref.branch";
        assert_eq!(hint(Target::Tag("main".into())), is);
        assert_eq!(hint(Target::Branch("mian".into())), "did you mean main?");
        assert_eq!(hint(Target::Branch("zz".into())), "there is main");
    }

    #[test]
    fn g3_a_repository_is_empty_only_if_its_refs_are_known() {
        let target = Target::Branch("mian".into());
        assert_eq!(missing(&target, Some(&Refs::new())), GitError::EmptyRepository);
        let unknown = missing(&target, None);
        assert!(matches!(&unknown, GitError::RefNotFound { nearest, .. } if nearest.is_empty()));
    }
}
