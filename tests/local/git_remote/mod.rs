//! Resolve, fetch and read against a real Git server.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests touch the disk")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::pedantic)]

#[path = "../../support/git_faults.rs"]
mod git_faults;
#[path = "../../support/github.rs"]
mod github;
#[path = "../../support/http_proxy.rs"]
mod http_proxy;
#[path = "../../support/packs.rs"]
#[allow(dead_code, reason = "unit tests use the rest")]
mod packs;
#[path = "../../support/signing.rs"]
mod signing;
#[path = "../../support/sshd.rs"]
mod sshd;
#[path = "../../support/tls.rs"]
pub(crate) mod tls;

mod after;
mod bombs;
mod clone_step;
mod credentials;
mod damage;
mod disk;
mod faults;
mod github_app;
mod hostile;
mod https;
mod init;
mod proxy;
mod refs;
mod sharing;
mod sizes;
mod source;
mod ssh;
mod tree;
mod verify;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use convoke::api::git_sync::GitRef;
use convoke::definition::tree::{EntryKind, RepositoryTree, TreeError};
use convoke::git::{
    Credentials, GitError, Limits, Remote, RemoteOptions, Repositories, Revision, Snapshot,
    open_local,
};
use convoke::net::{Dialler, Policy};
use git_faults::{Fault, GitServer, Repo, Step};

/// A server with one repository `team.git`, and a place for stores.
struct World {
    dir: tempfile::TempDir,
    repo: Repo,
    server: GitServer,
    repositories: Repositories,
}

impl World {
    async fn new() -> Self {
        Self::with_hash("sha1").await
    }

    /// Where its server listens.
    fn address(&self) -> std::net::SocketAddr {
        let url = self.server.url("");
        url.trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
    }

    async fn with_hash(hash: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("server");
        std::fs::create_dir(&root).unwrap();
        let repo = Repo::init_with(&root, "team.git", hash);
        let server = GitServer::start(&root).await;
        let repositories = Repositories::new(dir.path().join("stores"), u64::MAX).unwrap();
        Self { dir, repo, server, repositories }
    }

    /// The store of the repository. Without credentials there is one.
    fn store(&self) -> PathBuf {
        let stores = self.dir.path().join("stores");
        let mut all = std::fs::read_dir(&stores).unwrap().map(|entry| entry.unwrap().path());
        all.find(|path| path.is_dir()).unwrap_or_else(|| stores.join("none"))
    }

    fn options(&self, reference: GitRef) -> RemoteOptions {
        RemoteOptions {
            url: self.server.url("team.git"),
            reference,
            timeout: Duration::from_secs(20),
            silence: Duration::from_secs(20),
            dialler: loopback(),
            credentials: Credentials::default(),
            verification: None,
            owner: self.dir.path().display().to_string(),
            repositories: self.repositories.clone(),
            wake: None,
            limits: Limits::default(),
        }
    }

    fn remote(&self) -> Remote {
        Remote::new(self.options(branch("main"))).unwrap()
    }

    fn remote_with(&self, change: impl FnOnce(&mut RemoteOptions)) -> Remote {
        let mut options = self.options(branch("main"));
        change(&mut options);
        Remote::new(options).unwrap()
    }

    fn packs(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.store()).unwrap() {
            let dir = entry.unwrap().path();
            let listing = std::fs::read_dir(dir.join("pack")).into_iter().flatten();
            found.extend(listing.map(|pack| pack.unwrap().path()));
        }
        found.retain(|path| path.extension().is_some_and(|ext| ext == "pack"));
        found
    }
}

/// Allows what tests serve.
fn loopback() -> Dialler {
    Dialler::new(Policy { insecure: true, ..Policy::default() })
}

fn branch(name: &str) -> GitRef {
    GitRef { branch: Some(name.into()), ..GitRef::default() }
}

fn tag(name: &str) -> GitRef {
    GitRef { tag: Some(name.into()), ..GitRef::default() }
}

fn commit(id: &str) -> GitRef {
    GitRef { commit: Some(id.into()), ..GitRef::default() }
}

fn paths(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.entries().iter().map(|entry| entry.path.as_str()).collect()
}

fn content(snapshot: &Snapshot, path: &str) -> String {
    let entry = snapshot.lookup(path).unwrap().unwrap_or_else(|| panic!("no {path}"));
    String::from_utf8(snapshot.read(&entry, 1 << 20).unwrap().to_vec()).unwrap()
}

/// Resolve, fetch, read.
async fn sync(remote: &Remote, path: &str) -> Result<std::sync::Arc<Snapshot>, GitError> {
    let revision = remote.resolve().await?;
    remote.fetch(&revision).await?;
    remote.snapshot(&revision.commit, path).await
}

fn revision(id: &str) -> Revision {
    Revision { commit: id.into(), name: "main".into() }
}

/// xorshift: the same seed gives the same case, everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.next() % sides as u64).unwrap()
    }
}

/// Bytes that do not compress; other ones for every length.
fn noise(len: usize) -> Vec<u8> {
    let seed = 0x9e37_79b9_7f4a_7c15_u64 ^ (len as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mut dice = Dice(seed);
    std::iter::repeat_with(|| dice.next().to_le_bytes()[0]).take(len).collect()
}

#[tokio::test]
async fn v01_bad_options_are_refused_before_anything_happens() {
    let world = World::new().await;
    let refused = |change: &dyn Fn(&mut RemoteOptions)| {
        let mut options = world.options(branch("main"));
        change(&mut options);
        Remote::new(options).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(&|options| options.url = "ext::sh -c id".into()).reason(), "InvalidURL");
    assert_eq!(refused(&|options| options.reference = branch("-x")).reason(), "InvalidRef");
    assert_eq!(refused(&|options| options.reference = commit("abc")).reason(), "InvalidRef");
    let error = refused(&|options| options.dialler = Dialler::new(Policy::default()));
    assert_eq!(error.reason(), "InsecureConnectionsDisallowed");
    assert!(error.is_terminal());
    assert!(world.server.requests().is_empty());
}
