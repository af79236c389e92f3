//! What a target is among the refs of a server. (pure)

use std::collections::{BTreeMap, HashMap};

use gix::ObjectId;
use gix::protocol::handshake::Ref;
use semver::VersionReq;

use super::GitError;
use super::check::{Target, highest};
use super::error::{nearest, printable};

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
            let nearest = highest(&VersionReq::STAR, below(all, TAGS));
            let nearest = nearest.into_iter().map(str::to_owned).collect();
            let kind = "tag with a version in";
            let there = Vec::new();
            return GitError::RefNotFound { kind, name: text.clone(), nearest, there };
        }
        Target::Branch(name) => ("branch", name.clone(), BRANCHES),
        Target::Tag(name) => ("tag", name.clone(), TAGS),
        Target::Ref(name) => ("ref", name.clone(), ""),
        Target::Commit(id) => ("commit", id.to_string(), ""),
    };
    let nearest = nearest(&name, below(all, folder));
    let there = below(all, folder).take(if nearest.is_empty() { MAX_SHOWN } else { 0 });
    let there = there.map(printable).collect();
    GitError::RefNotFound { kind, name, nearest, there }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g3_a_repository_is_empty_only_if_its_refs_are_known() {
        let target = Target::Branch("mian".into());
        assert_eq!(missing(&target, Some(&Refs::new())), GitError::EmptyRepository);
        let unknown = missing(&target, None);
        assert!(matches!(&unknown, GitError::RefNotFound { nearest, .. } if nearest.is_empty()));
    }
}
