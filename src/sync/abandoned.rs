//! Removes fetched objects that no GitSync uses any more. When a GitSync is deleted while the operator runs, the driver removes them at once,
//! if no other GitSync has the same repository.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::git::Repositories;

/// How long what was fetched is kept without a GitSync that reads it: one may be about to change its spec, or be suspended, and after a start
/// thousands are read one after the other.
const KEPT: Duration = Duration::from_secs(30 * 60);
/// How often this is looked at.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// Removes what is unused, for ever. First it removes the folders that earlier versions made for each GitSync.
pub async fn remove(data_dir: PathBuf, repositories: Repositories) {
    run(move || of_earlier_versions(&data_dir)).await;
    loop {
        let repositories = repositories.clone();
        let sweep = move || {
            if let Err(error) = repositories.sweep(KEPT) {
                tracing::warn!(%error, "cannot remove fetched objects");
            }
        };
        run(sweep).await;
        tokio::time::sleep(PERIOD).await;
    }
}

async fn run(work: impl FnOnce() + Send + 'static) {
    if let Err(error) = tokio::task::spawn_blocking(work).await {
        tracing::warn!(%error, "what was fetched may stay");
    }
}

fn of_earlier_versions(data_dir: &Path) {
    for uid in folders(data_dir) {
        let path = data_dir.join(uid);
        match std::fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "of an earlier version: removed"),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot remove fetched objects");
            }
        }
    }
}

/// The folders that earlier versions may have made: the name of each is a UID. Links, files and other folders belong to somebody else.
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
