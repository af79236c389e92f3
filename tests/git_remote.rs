//! Reading repositories: real Git over real smart HTTP, and servers that misbehave.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke::api::git_sync::GitRef;
use convoke::definition::tree::{EntryKind, RepositoryTree};
use convoke::git::local::Folder;
use convoke::git::{GitError, Limits, Remote, RemoteOptions, Revision, Snapshot};
use support::git_http::{GitServer, Repo};

struct Fixture {
    dir: tempfile::TempDir,
    repo: Repo,
    server: GitServer,
}

fn fixture(files: &[(&str, &str)]) -> Fixture {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dir = tempfile::tempdir().expect("folder");
    let repo = Repo::init(&dir.path().join("team.git"));
    if !files.is_empty() {
        repo.commit("first", files);
    }
    let server = GitServer::start(&dir.path().join("team.git"));
    Fixture { dir, repo, server }
}

fn branch(name: &str) -> GitRef {
    GitRef { branch: Some(name.into()), tag: None, commit: None }
}

impl Fixture {
    fn options(&self) -> RemoteOptions {
        RemoteOptions {
            url: self.server.url("team.git"),
            reference: branch("main"),
            timeout: Duration::from_secs(20),
            allow_insecure: true,
            store: self.store(),
            limits: Limits::default(),
        }
    }

    fn store(&self) -> std::path::PathBuf {
        self.dir.path().join("store")
    }

    fn remote(&self) -> Remote {
        Remote::new(self.options()).expect("remote")
    }

    async fn read(&self, path: &str) -> Result<(Revision, Arc<Snapshot>), GitError> {
        self.read_with(self.options(), path).await
    }

    async fn read_with(
        &self,
        options: RemoteOptions,
        path: &str,
    ) -> Result<(Revision, Arc<Snapshot>), GitError> {
        let remote = Remote::new(options)?;
        let revision = remote.resolve().await?;
        remote.fetch(&revision).await?;
        let snapshot = remote.snapshot(&revision.commit, path).await?;
        Ok((revision, snapshot))
    }
}

fn paths(tree: &dyn RepositoryTree) -> Vec<&str> {
    tree.entries().iter().map(|entry| entry.path.as_str()).collect()
}

fn pack_bytes(store: &Path) -> u64 {
    let packs = std::fs::read_dir(store.join("objects/pack")).expect("packs");
    packs.flatten().filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_a_look_fetches_nothing_and_a_fetch_is_shallow() {
    let fixture = fixture(&[("a.yaml", "1")]);
    for n in 2..6 {
        fixture.repo.change("more", &[("a.yaml", &n.to_string())], &[]);
    }
    let remote = fixture.remote();
    let revision = remote.resolve().await.expect("resolve");
    assert_eq!(revision.to_string(), format!("main@sha1:{}", fixture.repo.head()));
    assert_eq!(pack_bytes(&fixture.store()), 0);
    remote.fetch(&revision).await.expect("fetch");
    let count = std::process::Command::new("git")
        .arg("-C")
        .arg(fixture.store())
        .args(["rev-list", "--count", &revision.commit])
        .output()
        .expect("git");
    assert_eq!(String::from_utf8_lossy(&count.stdout).trim(), "1");
    let snapshot = remote.snapshot(&revision.commit, ".").await.expect("snapshot");
    assert_eq!(
        (snapshot.commit().author.as_str(), snapshot.commit().subject.as_str()),
        ("Ada Tester", "more")
    );
    let data = snapshot.read(&snapshot.entries()[0], 100).expect("read");
    assert_eq!(data.as_ref(), b"5");
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_a_second_fetch_gets_only_what_changed() {
    let mut seed = 1_u64;
    let mut noise = || {
        let mut text = String::new();
        for _ in 0..128 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(&format!("{seed:016x}"));
        }
        text
    };
    let files: Vec<_> = (0..200).map(|n| (format!("f{n}.yaml"), noise())).collect();
    let files: Vec<_> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
    let fixture = fixture(&files);
    let remote = fixture.remote();
    remote.fetch(&remote.resolve().await.expect("resolve")).await.expect("fetch");
    let first = pack_bytes(&fixture.store());
    fixture.repo.change("one", &[("f7.yaml", &noise())], &[]);
    remote.fetch(&remote.resolve().await.expect("resolve")).await.expect("fetch");
    let second = pack_bytes(&fixture.store()) - first;
    assert!(second * 10 < first, "{second} bytes for one file, {first} for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_g3_tags_commits_force_pushes_and_what_is_missing() {
    let fixture = fixture(&[("a.yaml", "1")]);
    let first = fixture.repo.head();
    fixture.repo.git(&["tag", "-a", "v1", "-m", "one"]);
    fixture.repo.git(&["push", "-q", "origin", "v1", "HEAD:refs/heads/mian"]);
    fixture.repo.change("two", &[("a.yaml", "2")], &[]);
    let with = |reference: GitRef| RemoteOptions { reference, ..fixture.options() };

    let tag = GitRef { branch: None, tag: Some("v1".into()), commit: None };
    let (revision, _) = fixture.read_with(with(tag), ".").await.expect("tag");
    assert_eq!(
        revision,
        Revision { commit: first.clone(), name: "v1".into() },
        "peeled to the commit"
    );
    let commit = GitRef { branch: None, tag: None, commit: Some(first.clone()) };
    let (revision, _) = fixture.read_with(with(commit), ".").await.expect("commit");
    assert_eq!(revision.to_string(), format!("sha1:{first}"));

    fixture.repo.git(&["reset", "-q", "--hard", &first]);
    fixture.repo.change("other history", &[("b.yaml", "3")], &[]);
    let (revision, snapshot) = fixture.read(".").await.expect("force push");
    assert_eq!(revision.commit, fixture.repo.head());
    assert_eq!(paths(snapshot.as_ref()), ["a.yaml", "b.yaml"]);

    fixture.repo.delete_branch("main");
    let error = fixture.remote().resolve().await.expect_err("no branch");
    assert_eq!((error.reason(), error.hint().as_deref()), ("RefNotFound", Some("it has mian")));
    let gone = GitRef { branch: None, tag: None, commit: Some("0".repeat(39) + "1") };
    let error = fixture.read_with(with(gone), ".").await.err().expect("no commit");
    assert!(!error.is_terminal(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_links_and_submodules_are_reported_and_never_followed() {
    let fixture = fixture(&[("team/a.yaml", "1"), ("secret/b.yaml", "2")]);
    fixture.repo.symlink("link", "team/link.yaml", "../secret/b.yaml");
    fixture.repo.symlink("folder", "team/folder", "../secret");
    let head = fixture.repo.head();
    fixture.repo.git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("160000,{head},team/module"),
    ]);
    fixture.repo.git(&["commit", "-q", "-m", "module"]);
    fixture.repo.git(&["push", "-q", "origin", "HEAD:main"]);
    let (_, snapshot) = fixture.read("./team/").await.expect("snapshot");
    let kinds: Vec<_> = snapshot.entries().iter().map(|e| (e.path.as_str(), e.kind)).collect();
    let expected = [
        ("team/a.yaml", EntryKind::File),
        ("team/folder", EntryKind::Symlink),
        ("team/link.yaml", EntryKind::Symlink),
        ("team/module", EntryKind::Submodule),
    ];
    assert_eq!(kinds, expected);
    assert!(snapshot.read(&snapshot.entries()[2], 100).is_err());
    assert_eq!(snapshot.lookup("team/folder/b.yaml").expect("lookup"), None);
    assert_eq!(snapshot.lookup("../x").expect("lookup"), None);
    assert_eq!(snapshot.tree_id("team/folder").expect("id"), None);
    assert!(snapshot.tree_id("secret").expect("id").is_some());
    for missing in ["team/folder", "nowhere", "team/a.yaml"] {
        let error = fixture.read(missing).await.err().expect("missing");
        assert_eq!(error.reason(), "PathMissing", "{missing}");
    }

    // The same folder on disk reads the same.
    let folder = Folder::open(fixture.repo.work(), "team", &Limits::default()).expect("folder");
    assert_eq!(paths(&folder), ["team/a.yaml", "team/folder", "team/link.yaml"]);
    assert_eq!(folder.entries()[1].kind, EntryKind::Symlink);
    assert_eq!(folder.lookup("team/folder/b.yaml").expect("lookup"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_v21_v22_budgets() {
    let large = "x".repeat(3000);
    let fixture =
        fixture(&[("a.yaml", "1"), ("b.yaml", &large), ("c/d/e/f.yaml", "2"), ("g.yaml", "3")]);
    let with = |limits: Limits| RemoteOptions { limits, ..fixture.options() };
    let (_, snapshot) = fixture
        .read_with(with(Limits { files: 2, ..Limits::default() }), ".")
        .await
        .expect("files");
    assert_eq!((snapshot.entries().len(), snapshot.problems().len()), (2, 1));
    let (_, snapshot) = fixture
        .read_with(with(Limits { depth: 2, ..Limits::default() }), ".")
        .await
        .expect("depth");
    assert_eq!(paths(snapshot.as_ref()), ["a.yaml", "b.yaml", "g.yaml"]);
    assert_eq!(snapshot.problems()[0].path, "c/d/e");
    assert!(snapshot.read(&snapshot.entries()[1], 2999).is_err());

    let mut noise = String::new();
    for n in 0..40_000_u64 {
        noise.push_str(&format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    fixture.repo.change("big", &[("big.bin", &noise)], &[]);
    let error =
        fixture.read_with(with(Limits { pack_bytes: 1000, ..Limits::default() }), ".").await.err();
    // A small pack may be whole before it is measured; then it is not too large to use.
    if let Some(error) = error {
        assert_eq!(error.reason(), "PackTooLarge");
        assert!(!fixture.store().exists(), "nothing is left");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c09_a_store_full_of_garbage_heals() {
    let fixture = fixture(&[("a.yaml", "1")]);
    fixture.read(".").await.expect("first");
    for round in 0..4 {
        let store = fixture.store();
        match round {
            0 => std::fs::remove_file(store.join("HEAD")).expect("remove HEAD"),
            1 => {
                for entry in std::fs::read_dir(store.join("objects/pack")).expect("packs").flatten()
                {
                    let _ = std::fs::remove_file(entry.path());
                    std::fs::write(entry.path(), b"garbage").expect("write");
                }
            }
            2 => {
                std::fs::write(store.join("shallow.lock"), b"").expect("lock");
                std::fs::create_dir_all(store.join("refs/heads")).expect("folder");
                std::fs::write(store.join("refs/heads/fetched.lock"), b"").expect("lock");
                std::fs::write(store.join("objects/pack/tmp_pack_x"), b"PACK").expect("write");
            }
            _ => {
                std::fs::remove_dir_all(&store).expect("remove");
                std::fs::write(&store, b"a file").expect("write");
                std::fs::remove_file(&store).expect("remove");
            }
        }
        fixture.repo.change("next", &[("a.yaml", &format!("round {round}"))], &[]);
        // Like the engine: a failed look is followed by another.
        let mut last = None;
        for _ in 0..2 {
            match fixture.read(".").await {
                Ok((_, snapshot)) => {
                    last = Some(snapshot.read(&snapshot.entries()[0], 100).expect("read"));
                    break;
                }
                Err(error) => println!("round {round}: {error}"),
            }
        }
        assert_eq!(last.as_deref(), Some(format!("round {round}").as_bytes()), "round {round}");
    }
}

/// Answers every connection with the same bytes; counts them.
fn canned(reply: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || answer(stream, reply));
        }
    });
    (port, count)
}

fn answer(mut stream: TcpStream, reply: &str) {
    let mut buffer = [0; 4096];
    let _ = stream.read(&mut buffer);
    if reply.is_empty() {
        // Says nothing for longer than the look may take.
        std::thread::sleep(Duration::from_secs(3));
    }
    let _ = stream.write_all(reply.as_bytes());
}

async fn resolve_at(port: u16, timeout: Duration) -> GitError {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let dir = tempfile::tempdir().expect("folder");
    let options = RemoteOptions {
        url: format!("http://127.0.0.1:{port}/x.git"),
        reference: branch("main"),
        timeout,
        allow_insecure: true,
        store: dir.path().join("store"),
        limits: Limits::default(),
    };
    Remote::new(options).expect("remote").resolve().await.expect_err("no repository")
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_g02_servers_that_are_none() {
    for reply in [
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "nonsense",
    ] {
        let (port, _) = canned(reply);
        let error = resolve_at(port, Duration::from_secs(10)).await;
        assert!(!error.is_terminal(), "{reply:?}: {error:?}");
    }
    let (port, _) = canned(
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
    let error = resolve_at(port, Duration::from_secs(10)).await;
    assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
    let (port, _) = canned("");
    assert_eq!(resolve_at(port, Duration::from_secs(1)).await, GitError::Timeout(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn v11_a_redirect_is_not_followed() {
    let (target, count) =
        canned("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let reply = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{target}/x.git/info/refs?service=git-upload-pack\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (port, _) = canned(Box::leak(reply.into_boxed_str()));
    resolve_at(port, Duration::from_secs(10)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn g04_an_empty_repository_says_so() {
    let fixture = fixture(&[]);
    assert_eq!(fixture.remote().resolve().await.expect_err("empty").reason(), "RefNotFound");
}
