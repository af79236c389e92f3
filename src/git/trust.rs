//! Verifies the commit that is about to be read, with the objects of the store.

use std::time::{SystemTime, UNIX_EPOCH};

use gix::ObjectId;
use gix::objs::{Find, FindHeader, Kind};
use gix::odb::HandleArc;
use parking_lot::Mutex;

use super::GitError;
use super::check::{Target, version};
use super::generation::{Generation, NotedTag};
use super::objects::damage;
use super::refs::Found;
use super::snapshot::MAX_COMMIT_BYTES;
use super::verify::{self, MAX_TAG_BYTES, Rules, SignedPart, Unverified, Verification};

/// What the commits of a remote must be signed with.
pub(super) struct Trust {
    /// `None`: nothing is verified.
    verification: Option<Verification>,
    /// The tag that the server named last.
    named: Mutex<Option<Named>>,
}

/// A tag, as a server lists it.
struct Named {
    commit: ObjectId,
    /// `None` for a lightweight tag.
    tag: Option<ObjectId>,
    name: String,
}

impl Trust {
    /// Checks that the ref fits what is to be verified.
    pub fn new(verification: Option<Verification>, target: &Target) -> Result<Self, GitError> {
        let wants_tag = verification.as_ref().is_some_and(|one| one.part == SignedPart::Tag);
        if wants_tag && !matches!(target, Target::Tag(_) | Target::Versions(..)) {
            return Err(GitError::InvalidRef {
                name: String::new(),
                reason: "verify.mode Tag needs ref.tag or ref.semver".into(),
            });
        }
        Ok(Self { verification, named: Mutex::default() })
    }

    fn wants(&self, part: SignedPart) -> bool {
        self.verification.as_ref().is_some_and(|one| one.part == part)
    }

    /// Notes the tag that the server has named.
    pub fn note(&self, found: Found, name: &str) {
        if self.wants(SignedPart::Tag) {
            let Found { commit, tag } = found;
            *self.named.lock() = Some(Named { commit, tag, name: name.to_owned() });
        }
    }

    /// The annotated tag that has to be fetched with a commit.
    pub fn tag_of(&self, commit: &ObjectId) -> Option<NotedTag> {
        let named = self.named.lock();
        let named = named.as_ref().filter(|named| named.commit == *commit)?;
        Some(NotedTag { commit: named.commit, id: named.tag?, name: named.name.clone() })
    }

    /// Verifies a commit in the store. Returns the key that signed it; `None` if nothing is to be verified.
    ///
    /// # Errors
    /// [`GitError::NotVerified`], [`GitError::CommitGone`] (not fetched), [`GitError::CorruptData`].
    pub fn verify(
        &self,
        now: &Generation,
        target: &Target,
        commit: &ObjectId,
    ) -> Result<Option<String>, GitError> {
        let Some(Verification { part, keys }) = &self.verification else { return Ok(None) };
        let objects = now.objects()?;
        let Some(bytes) = object(&objects, commit, Kind::Commit, MAX_COMMIT_BYTES)? else {
            return Err(GitError::CommitGone { commit: commit.to_string() });
        };
        let rules = Rules { keys, now: seconds(), hash: commit.kind() };
        if *part == SignedPart::Commit {
            let refused = |why| GitError::NotVerified { what: format!("commit {commit}"), why };
            return verify::commit(&bytes, rules).map(Some).map_err(refused);
        }
        let fits = |name: &str| is_named(target, name);
        let listed = self.named.lock().as_ref().filter(|named| named.commit == *commit).map(
            |Named { commit, tag, name }| {
                let noted = |id| NotedTag { commit: *commit, id, name: name.clone() };
                (name.clone(), tag.map(noted))
            },
        );
        let listed = listed.filter(|(name, _)| fits(name));
        let stored = || {
            let mut noted = now.tags_of(commit).into_iter();
            noted.find(|tag| fits(&tag.name)).map(|tag| (tag.name.clone(), Some(tag)))
        };
        let Some((name, tag)) = listed.or_else(stored) else {
            let (what, why) = (format!("commit {commit}"), "no signed tag of it is known");
            return Err(GitError::NotVerified { what, why: Unverified::OtherTag(why.into()) });
        };
        let refused = |why| GitError::NotVerified { what: format!("tag {name}"), why };
        // A lightweight tag is only a name.
        let tag = tag.ok_or_else(|| refused(Unverified::Unsigned))?;
        let bytes = object(&objects, &tag.id, Kind::Tag, MAX_TAG_BYTES)?
            .ok_or_else(|| GitError::corrupt(format!("tag {} is missing", tag.id)))?;
        verify::tag(&bytes, (&name, &commit.to_string()), rules).map(Some).map_err(refused)
    }
}

/// Whether the ref of a spec may lead to a tag of this name.
fn is_named(target: &Target, name: &str) -> bool {
    match target {
        Target::Tag(wanted) => wanted == name,
        Target::Versions(range, _) => version(name).is_some_and(|found| range.matches(&found)),
        _ => false,
    }
}

/// The bytes of an object whose hash is its id; `None` when it is not there.
fn object(
    objects: &HandleArc,
    id: &ObjectId,
    kind: Kind,
    max_bytes: u64,
) -> Result<Option<Vec<u8>>, GitError> {
    let header = FindHeader::try_header(objects, id).map_err(|error| damage(&error))?;
    let Some(header) = header else { return Ok(None) };
    if header.kind != kind {
        let kind = header.kind.to_string();
        return Err(GitError::NotACommit { id: id.to_string(), kind });
    }
    if header.size > max_bytes {
        let detail = format!("the message of {id} is too long");
        return Err(GitError::PackTooLarge { detail });
    }
    let mut bytes = Vec::new();
    let found = objects.try_find(id, &mut bytes).map_err(|error| damage(&error))?;
    let Some(found) = found.filter(|found| found.kind == kind) else { return Ok(None) };
    // The store finds objects by an index. What is verified is what is named.
    found.verify_checksum(id).map_err(|error| damage(&error))?;
    Ok(Some(found.data.to_vec()))
}

/// Seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
