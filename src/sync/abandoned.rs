//! What was fetched for GitSyncs that were deleted while no operator ran. What was fetched for the others goes with them.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::GitSync;
use crate::cluster::live::Managed;
use crate::cluster::store::Store;

/// Removes the folders of GitSyncs that are gone, once, as soon as it is known which are there.
pub async fn remove(data_dir: PathBuf, syncs: Arc<Store<Managed<GitSync>>>) {
    syncs.wait_ready().await;
    let work = move || {
        // Looked at first: a folder that is made from now on is of a GitSync that is known by then.
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

/// The folders that the engine may have made: each has the name of a uid. Links, files and all else are somebody's.
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

/// Whether a name is a uid as the API server makes them. (pure)
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
