//! Removes the fetched objects of GitSyncs that were deleted while no operator ran. When a GitSync is deleted while the operator
//! runs, the driver removes its objects.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::GitSync;
use crate::cluster::live::Managed;
use crate::cluster::store::Store;

/// Removes the folders of GitSyncs that are gone: once, as soon as the first list of GitSyncs is complete.
pub async fn remove(data_dir: PathBuf, syncs: Arc<Store<Managed<GitSync>>>) {
    syncs.wait_ready().await;
    let work = move || {
        // The folders are listed before the GitSyncs are: so a folder that a new GitSync makes meanwhile is not removed.
        let folders = folders(&data_dir);
        let all = syncs.all();
        let known: HashSet<_> = all.iter().map(|(_, entry)| entry.uid.as_str()).collect();
        for uid in folders.iter().filter(|uid| !known.contains(uid.as_str())) {
            let path = data_dir.join(uid);
            match std::fs::remove_dir_all(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "its GitSync is gone: removed"),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot remove fetched objects");
                }
            }
        }
    };
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::warn!(%error, "what was fetched for GitSyncs that are gone may stay");
    }
}

/// The folders that the driver may have made: the name of each is a UID. Links, files and other folders belong to somebody else.
fn folders(data_dir: &Path) -> Vec<String> {
    let entries = match std::fs::read_dir(data_dir) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(path = %data_dir.display(), %error, "cannot look at fetched objects");
            }
            return Vec::new();
        }
    };
    let folder = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| is_uid(name))?;
        entry.file_type().is_ok_and(|kind| kind.is_dir()).then_some(name)
    };
    entries.flatten().filter_map(folder).collect()
}

/// Whether a name has the form of the UIDs that the API server makes. (pure)
fn is_uid(name: &str) -> bool {
    let part = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let lengths: Vec<_> = name.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && name.split('-').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    #[test]
    fn g15_only_folders_with_the_name_of_a_uid_are_looked_at() {
        assert!(is_uid(UID));
        for other in
            ["", "tmp", "lost+found", "..", &UID.to_uppercase(), &UID[1..], &UID.replace('-', "")]
        {
            assert!(!is_uid(other), "{other}");
        }
        let dir = tempfile::tempdir().expect("a folder");
        assert!(folders(&dir.path().join("missing")).is_empty());
        let other = UID.replace("0a", "0b");
        std::fs::create_dir(dir.path().join(UID)).expect("a folder");
        std::fs::create_dir(dir.path().join("mine")).expect("a folder");
        std::fs::write(dir.path().join(UID.replace("0a", "0c")), "").expect("a file");
        std::os::unix::fs::symlink(dir.path().join("mine"), dir.path().join(other))
            .expect("a link");
        assert_eq!(folders(dir.path()), [UID]);
    }
}
