//! Reads single objects of an object database. A missing or unreadable object is an error.

use gix::ObjectId;
use gix::objs::{FindExt, FindHeader, Kind};
use gix::odb::HandleArc;

use super::GitError;
use super::protocol::cause;

/// Bytes of the largest tree object. 10,000 entries with long names take less than 3 MiB.
const MAX_TREE_BYTES: u64 = 8 << 20;

/// The error for an object that must be there and cannot be read.
pub(super) fn damage(error: &gix::Error) -> GitError {
    if error.is_resource_exhausted() {
        let detail = "an object that is read needs more memory than allowed".to_owned();
        return GitError::PackTooLarge { detail };
    }
    GitError::corrupt(cause(error))
}

/// The header of an object that must be there.
pub(super) fn header(objects: &HandleArc, id: &ObjectId) -> Result<gix::objs::Header, GitError> {
    FindHeader::try_header(objects, id)
        .map_err(|error| damage(&error))?
        .ok_or_else(|| GitError::corrupt(format!("object {id} is missing")))
}

/// The bytes of a tree; `None` when it is too large.
pub(super) fn tree_bytes(objects: &HandleArc, id: &ObjectId) -> Result<Option<Vec<u8>>, GitError> {
    if *id == ObjectId::empty_tree(id.kind()) {
        return Ok(Some(Vec::new()));
    }
    let header = header(objects, id)?;
    if header.kind != Kind::Tree {
        return Err(GitError::corrupt(format!("{id} is a {}, not a tree", header.kind)));
    }
    if header.size > MAX_TREE_BYTES {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    objects.find_tree_iter(id, &mut bytes).map_err(|error| damage(&error))?;
    Ok(Some(bytes))
}
