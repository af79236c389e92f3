//! Resolve, fetch and read against a real Git server.

#[path = "support/git_http.rs"]
mod git_http;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use convoke::api::git_sync::GitRef;
use convoke::definition::tree::{EntryKind, RepositoryTree, TreeError};
use convoke::git::{GitError, Limits, Remote, RemoteOptions, Revision, Snapshot, open_local};
use git_http::{Fault, GitServer, Repo, Step};

/// A server with one repository `team.git`, and a place for stores.
struct World {
    dir: tempfile::TempDir,
    repo: Repo,
    server: GitServer,
}

impl World {
    async fn new() -> Self {
        Self::with_hash("sha1").await
    }

    async fn with_hash(hash: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("server");
        std::fs::create_dir(&root).unwrap();
        let repo = Repo::init_with(&root, "team.git", hash);
        let server = GitServer::start(&root).await;
        Self { dir, repo, server }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn options(&self, reference: GitRef) -> RemoteOptions {
        RemoteOptions {
            url: self.server.url("team.git"),
            reference,
            timeout: Duration::from_secs(20),
            allow_insecure: true,
            store: self.store(),
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

fn branch(name: &str) -> GitRef {
    GitRef { branch: Some(name.into()), tag: None, commit: None }
}

fn tag(name: &str) -> GitRef {
    GitRef { branch: None, tag: Some(name.into()), commit: None }
}

fn commit(id: &str) -> GitRef {
    GitRef { branch: None, tag: None, commit: Some(id.into()) }
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

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    })
    .take(len)
    .collect()
}

#[tokio::test]
async fn g1_poll_is_one_ls_refs_of_one_ref() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.branch("mainline", &id);
    world.repo.branch("other", &id);
    let remote = world.remote();
    for _ in 0..2 {
        world.server.forget();
        let found = remote.resolve().await.unwrap();
        assert_eq!(found.to_string(), format!("main@sha1:{id}"));
        assert_eq!(world.server.steps(), [Step::Advertise, Step::LsRefs]);
        let asked = &world.server.requests()[1];
        assert!(asked.body.contains("ref-prefix refs/heads/main\n"), "{}", asked.body);
        assert_eq!(asked.body.matches("ref-prefix").count(), 1, "{}", asked.body);
        assert!(asked.answered < 300, "the answer holds refs that nobody asked for");
    }
    assert!(!world.store().exists(), "a poll writes nothing");
}

#[tokio::test]
async fn g1_fetch_is_shallow_and_of_this_ref_only() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1"), ("old.bin", "gone")]);
    let second = world.repo.change("main").delete("old.bin").file("a.yaml", "a: 2").commit("second");
    let other = world.repo.change("other").file("big.bin", noise(200_000)).commit("other");
    let remote = world.remote();
    let snapshot = sync(&remote, ".").await.unwrap();
    assert_eq!(snapshot.commit().id, second);
    assert_eq!(paths(&snapshot), ["a.yaml"]);
    assert_eq!(content(&snapshot, "a.yaml"), "a: 2");
    for absent in [first, other] {
        let error = remote.snapshot(&absent, ".").await.unwrap_err();
        assert_eq!(error, GitError::CommitGone { commit: absent });
    }
    let bytes: u64 = world.packs().iter().map(|pack| pack.metadata().unwrap().len()).sum();
    assert!(bytes < 10_000, "{bytes}");
}

#[tokio::test]
async fn g1_what_is_there_is_not_fetched_again_not_even_after_a_restart() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.remote().fetch(&revision(&id)).await.unwrap();
    world.server.forget();
    let restarted = world.remote();
    restarted.fetch(&revision(&id)).await.unwrap();
    let snapshot = restarted.snapshot(&id, "").await.unwrap();
    assert_eq!(content(&snapshot, "a.yaml"), "a: 1");
    assert!(world.server.steps().is_empty());
    let again = restarted.snapshot(&id, "./").await.unwrap();
    assert!(std::sync::Arc::ptr_eq(&snapshot, &again), "the same listing is kept");
}

#[tokio::test]
async fn g1_the_second_fetch_transfers_only_what_changed() {
    let world = World::new().await;
    world.repo.change("main").file("big.bin", noise(300_000)).file("a.yaml", "a: 1").commit("one");
    let remote = world.remote();
    let first = sync(&remote, "").await.unwrap();
    let unchanged = first.tree_id("big.bin").unwrap();
    world.repo.commit("main", &[("a.yaml", "a: 2"), ("b.yaml", "b: 1")]);
    world.server.forget();
    let second = sync(&remote, "").await.unwrap();
    let fetch = world.server.requests().pop().unwrap();
    assert_eq!(fetch.step, Step::Fetch);
    assert!(fetch.body.contains(&format!("have {}", first.commit().id)), "{}", fetch.body);
    assert!(fetch.answered < 5_000, "{}", fetch.answered);
    assert_eq!(paths(&second), ["a.yaml", "b.yaml", "big.bin"]);
    assert_eq!(second.tree_id("big.bin").unwrap(), unchanged);
    assert_eq!(content(&second, "a.yaml"), "a: 2");
    assert_eq!(content(&first, "a.yaml"), "a: 1", "older snapshots stay readable");
    let big = second.lookup("big.bin").unwrap().unwrap();
    assert_eq!(second.read(&big, 1 << 20).unwrap().len(), 300_000);
}

#[tokio::test]
async fn g1_many_fetches_start_a_new_store_and_old_snapshots_stay_readable() {
    let world = World::new().await;
    let remote = world.remote();
    let mut snapshots = Vec::new();
    for round in 0..25 {
        world.repo.commit("main", &[("a.yaml", &format!("a: {round}")), (&format!("f{round}"), "x")]);
        snapshots.push(sync(&remote, "").await.unwrap());
        assert!(world.packs().len() <= 21 + 5, "packs pile up");
    }
    for (round, snapshot) in snapshots.iter().enumerate() {
        assert_eq!(content(snapshot, "a.yaml"), format!("a: {round}"));
    }
    drop(snapshots);
    // The listing that the remote keeps is of the newest store.
    assert!(world.packs().len() <= 5, "the old store is deleted with its last reader: {:?}", world.packs());
}

#[tokio::test]
async fn g3_tags_are_peeled_to_commits() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.tag("light", &first);
    let object = world.repo.annotated_tag("v1.0", &first);
    world.repo.git(&["tag", "-a", "-m", "nested", "v1.0-nested", "v1.0"]);
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    assert_ne!(object, first);
    for name in ["light", "v1.0", "v1.0-nested"] {
        let remote = Remote::new(world.options(tag(name))).unwrap();
        let found = remote.resolve().await.unwrap();
        assert_eq!(found, Revision { commit: first.clone(), name: name.into() });
        remote.fetch(&found).await.unwrap();
        assert_eq!(content(&*remote.snapshot(&first, ".").await.unwrap(), "a.yaml"), "a: 1");
    }
    let second = world.repo.id("main");
    world.repo.annotated_tag("v1.0", &second);
    let moved = Remote::new(world.options(tag("v1.0"))).unwrap().resolve().await.unwrap();
    assert_eq!(moved.commit, second, "g07: a moved tag is seen");
}

#[tokio::test]
async fn g3_a_tag_of_something_else_is_no_commit() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let blob = world.repo.blob(b"just text");
    world.repo.tag("blob", &blob);
    let error = sync(&Remote::new(world.options(tag("blob"))).unwrap(), "").await.unwrap_err();
    assert_eq!(error, GitError::NotACommit { id: blob, kind: "blob".into() });
}

#[tokio::test]
async fn g3_a_pinned_commit_asks_for_no_refs() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    let remote = Remote::new(world.options(commit(&first))).unwrap();
    let snapshot = sync(&remote, ".").await.unwrap();
    assert_eq!(content(&snapshot, "a.yaml"), "a: 1");
    assert_eq!(world.server.steps(), [Step::Advertise, Step::Fetch]);
    let unknown = "1234567890".repeat(4);
    let error = sync(&Remote::new(world.options(commit(&unknown))).unwrap(), ".").await.unwrap_err();
    assert_eq!(error, GitError::CommitRefused { commit: unknown });
    assert!(error.hint().is_some_and(|hint| hint.contains("allowAnySHA1InWant")));
}

#[tokio::test]
async fn g3_a_forced_push_is_followed_and_back_again() {
    let world = World::new().await;
    let a = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    sync(&remote, "").await.unwrap();
    let b = world.repo.change("main").orphan().file("b.yaml", "b: 1").commit("unrelated");
    world.repo.collect_garbage();
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!((snapshot.commit().id.as_str(), paths(&snapshot)), (b.as_str(), vec!["b.yaml"]));
    // G09: back to exactly the first state.
    let again = world.repo.change("main").orphan().file("a.yaml", "a: 1").commit("change");
    assert_eq!(again, a);
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!((snapshot.commit().id.as_str(), paths(&snapshot)), (a.as_str(), vec!["a.yaml"]));
}

#[tokio::test]
async fn g04_missing_refs_name_what_is_near() {
    let world = World::new().await;
    let error = world.remote().resolve().await.unwrap_err();
    assert_eq!(error, GitError::EmptyRepository);
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.branch("release", &id);
    world.repo.tag("v1.0", &id);
    let error = Remote::new(world.options(branch("mian"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RefNotFound");
    assert_eq!(error.hint().as_deref(), Some("did you mean main?"));
    let error = Remote::new(world.options(tag("v1.O"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean v1.0?"));
    // A prefix of another name is not that name.
    let error = Remote::new(world.options(branch("mai"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RefNotFound");
    assert!(!error.is_terminal());
    // A deleted branch.
    let remote = world.remote();
    sync(&remote, "").await.unwrap();
    world.repo.delete_branch("main");
    assert_eq!(remote.resolve().await.unwrap_err().reason(), "RefNotFound");
}

#[tokio::test]
async fn g08_a_ref_that_moves_between_resolve_and_fetch_mixes_nothing() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    let resolved = remote.resolve().await.unwrap();
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    remote.fetch(&resolved).await.unwrap();
    assert_eq!(content(&*remote.snapshot(&first, "").await.unwrap(), "a.yaml"), "a: 1");
    // And when the commit is really gone, it says so.
    let resolved = remote.resolve().await.unwrap();
    world.repo.change("main").orphan().file("b.yaml", "b: 1").commit("unrelated");
    world.repo.collect_garbage();
    let error = remote.fetch(&resolved).await.unwrap_err();
    assert_eq!(error, GitError::CommitGone { commit: resolved.commit });
    assert_eq!(paths(&*sync(&remote, "").await.unwrap()), ["b.yaml"]);
}

#[tokio::test]
async fn g3_servers_of_protocol_version_0_work() {
    let world = World::new().await;
    world.server.only_version_0();
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.annotated_tag("v1", &first);
    let remote = world.remote();
    assert_eq!(content(&*sync(&remote, "").await.unwrap(), "a.yaml"), "a: 1");
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    assert_eq!(content(&*sync(&remote, "").await.unwrap(), "a.yaml"), "a: 2");
    let tagged = Remote::new(world.options(tag("v1"))).unwrap().resolve().await.unwrap();
    assert_eq!(tagged.commit, first);
    let missing = Remote::new(world.options(branch("mian"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(missing.hint().as_deref(), Some("did you mean main?"));
}

#[tokio::test]
async fn g3_sha256_repositories_work() {
    let world = World::with_hash("sha256").await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    let found = remote.resolve().await.unwrap();
    assert_eq!(found.to_string(), format!("main@sha256:{id}"));
    assert_eq!(content(&*sync(&remote, "").await.unwrap(), "a.yaml"), "a: 1");
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    assert_eq!(content(&*sync(&remote, "").await.unwrap(), "a.yaml"), "a: 2");
}

#[tokio::test]
async fn g6_the_tree_below_a_path_is_listed_sorted_and_read() {
    let world = World::new().await;
    let message = format!("add things\n\nbody {}", "x".repeat(500));
    let id = world
        .repo
        .change("main")
        .file("prod/b.yaml", "b: 1")
        .file("prod/a-b.yaml", "x")
        .file("prod/a/z.yaml", "z: 1")
        .file("prod/.hidden", "h")
        .file("shared/text.md", "hello")
        .file(".gitattributes", "* filter=evil text eol=crlf\n")
        .commit(&message);
    let remote = world.remote();
    let snapshot = sync(&remote, "./prod/").await.unwrap();
    assert_eq!(paths(&snapshot), ["prod/.hidden", "prod/a-b.yaml", "prod/a/z.yaml", "prod/b.yaml"]);
    assert!(snapshot.problems().is_empty());
    let info = snapshot.commit();
    assert_eq!((info.id.as_str(), info.author.as_str()), (id.as_str(), "Ada Author"));
    assert_eq!((info.subject.as_str(), info.time_seconds), ("add things", 1_700_000_000));
    assert_eq!(content(&snapshot, "shared/text.md"), "hello", "v17: no filter runs");
    assert_eq!(content(&snapshot, "./prod/../prod/b.yaml".trim_start_matches("./prod/../")), "b: 1");
    for absent in ["prod", "nowhere", "prod/b.yaml/x", "../x", "/etc/passwd", ".git/config"] {
        assert_eq!(snapshot.lookup(absent).unwrap(), None, "{absent}");
    }
    assert_eq!(snapshot.tree_id("prod").unwrap(), Some(world.repo.git(&["rev-parse", "main:prod"])));
    assert_eq!(snapshot.tree_id("").unwrap(), Some(world.repo.git(&["rev-parse", "main^{tree}"])));
    assert_eq!(snapshot.tree_id("nowhere").unwrap(), None);
    assert_eq!(snapshot.tree_id("../x").unwrap_err().reason(), "InvalidPath");
    let error = remote.snapshot(&id, "prd").await.unwrap_err();
    assert_eq!(error, GitError::PathMissing { path: "prd".into(), nearest: vec!["prod".into()] });
    let error = remote.snapshot(&id, "prod/b.yaml").await.unwrap_err();
    assert_eq!(error.reason(), "PathNotAFolder");
    assert_eq!(remote.snapshot(&id, "prod/b.yaml/x").await.unwrap_err().reason(), "PathMissing");
    assert_eq!(remote.snapshot(&id, "../x").await.unwrap_err().reason(), "InvalidPath");
    assert_eq!(remote.snapshot("main", "").await.unwrap_err().reason(), "InvalidRef");
}

#[tokio::test]
async fn v19_v20_links_and_submodules_are_listed_but_never_followed() {
    let world = World::new().await;
    let elsewhere = "0123456789abcdef0123456789abcdef01234567";
    world
        .repo
        .change("main")
        .file("prod/a.yaml", "a: 1")
        .symlink("prod/token.yaml", "/var/run/secrets/kubernetes.io/serviceaccount/token")
        .symlink("prod/up", "..")
        .symlink("link", "prod")
        .submodule("prod/module", elsewhere)
        .file(".gitmodules", "[submodule \"x\"]\n\tpath = prod/module\n\turl = -oProxyCommand=x\n")
        .commit("links");
    let remote = world.remote();
    let snapshot = sync(&remote, "prod").await.unwrap();
    let kinds: Vec<_> =
        snapshot.entries().iter().map(|entry| (entry.path.as_str(), entry.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("prod/a.yaml", EntryKind::File),
            ("prod/module", EntryKind::Submodule),
            ("prod/token.yaml", EntryKind::Symlink),
            ("prod/up", EntryKind::Symlink),
        ]
    );
    for entry in &snapshot.entries()[1..] {
        let error = snapshot.read(entry, 1 << 20).unwrap_err();
        assert!(matches!(error, TreeError::NotAFile { .. }), "{error}");
    }
    let through = snapshot.lookup("prod/up/prod/a.yaml").unwrap().unwrap();
    assert_eq!(through.kind, EntryKind::Symlink, "the link is the answer");
    let id = snapshot.commit().id.clone();
    for path in ["link", "link/sub", "prod/module"] {
        assert_eq!(remote.snapshot(&id, path).await.unwrap_err().reason(), "PathNotAFolder");
    }
}

#[tokio::test]
async fn v18_hostile_trees_are_odd_and_never_followed() {
    let world = World::new().await;
    let blob = world.repo.blob(b"evil: 1");
    let honest = world.repo.raw_tree(&[("100644", b"inner.yaml", &blob)]);
    let hostile: &[(&str, &[u8], &str)] = &[
        ("100644", b".", &blob),
        ("40000", b"..", &honest),
        ("40000", b".GIT", &honest),
        ("100644", b"a/b", &blob),
        ("100644", b"back\\slash", &blob),
        ("100644", b"bad\xff", &blob),
        ("40000", b"git~1", &honest),
        ("100644", b"good.yaml", &blob),
        ("100644", b"line\nfeed", &blob),
        ("100777", b"mode", &blob),
        ("120000", b"twin", &blob),
        ("40000", b"twin", &honest),
        ("100664", b"old-mode.yaml", &blob),
    ];
    let tree = world.repo.raw_tree(hostile);
    world.repo.commit_tree("main", &tree);
    let snapshot = sync(&world.remote(), "").await.unwrap();
    let (files, odd): (Vec<_>, Vec<_>) =
        snapshot.entries().iter().partition(|entry| entry.kind == EntryKind::File);
    let files: Vec<&str> = files.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(files, ["good.yaml", "old-mode.yaml"]);
    assert!(odd.iter().all(|entry| entry.kind == EntryKind::Odd), "{odd:?}");
    assert_eq!(odd.len(), hostile.len() - 2);
    assert!(odd.iter().all(|entry| !entry.path.chars().any(char::is_control)));
    assert!(!paths(&snapshot).iter().any(|path| path.contains("inner")), "nothing is followed");
    for path in ["..", ".GIT/inner.yaml", "git~1/inner.yaml"] {
        assert_eq!(snapshot.lookup(path).unwrap(), None);
    }
    assert_eq!(snapshot.lookup("twin/inner.yaml").unwrap().unwrap().kind, EntryKind::Odd);
    // Not even a tree.
    let broken = world.repo.raw_tree(&[("banana", b"x", &blob)]);
    let top = world.repo.raw_tree(&[("40000", b"broken", &broken), ("100644", b"good.yaml", &blob)]);
    world.repo.commit_tree("main", &top);
    let snapshot = sync(&world.remote(), "").await.unwrap();
    assert_eq!(paths(&snapshot), ["good.yaml"]);
    assert_eq!(snapshot.problems()[0].path, "broken");
}

#[tokio::test]
async fn g6_v22_budgets_on_files_depth_and_bytes() {
    let world = World::new().await;
    let deep = format!("prod/{}x.yaml", "d/".repeat(40));
    let mut change = world.repo.change("main").file(&deep, "x").file("prod/large.yaml", "y".repeat(5000));
    for number in 0..50 {
        change = change.file(&format!("many/f{number}.yaml"), "x");
    }
    let id = change.commit("a lot");
    let remote = world.remote_with(|options| {
        options.limits = Limits { files: 20, file_bytes: 4000, ..Limits::default() };
    });
    let snapshot = sync(&remote, "prod").await.unwrap();
    let problem = &snapshot.problems()[0];
    assert!(problem.message.contains("deeper than 32") || problem.message.contains("more than 20 folders"));
    let large = snapshot.lookup("prod/large.yaml").unwrap().unwrap();
    let error = snapshot.read(&large, 1 << 20).unwrap_err();
    assert_eq!(error, TreeError::TooLarge { path: "prod/large.yaml".into(), limit: 4000 });
    let many = remote.snapshot(&id, "many").await.unwrap();
    assert_eq!((many.entries().len(), many.problems().len()), (20, 1));
    assert_eq!(many.problems()[0].path, "many");
    let deep = world.remote().snapshot(&id, "prod").await.unwrap();
    assert_eq!(deep.problems().len(), 1);
    assert_eq!(deep.problems()[0].path, format!("prod/{}", ["d"; 33].join("/")));
}

#[tokio::test]
async fn v21_a_tree_bomb_ends_at_the_folder_budget() {
    let world = World::new().await;
    // 10 folders of 10 folders of … : 10^20 paths from 20 objects.
    let blob = world.repo.blob(b"x");
    let mut tree = world.repo.raw_tree(&[("100644", b"x", &blob)]);
    for _ in 0..20 {
        let names: Vec<String> = (0..10).map(|n| format!("d{n}")).collect();
        let entries: Vec<(&str, &[u8], &str)> =
            names.iter().map(|name| ("40000", name.as_bytes(), tree.as_str())).collect();
        tree = world.repo.raw_tree(&entries);
    }
    world.repo.commit_tree("main", &tree);
    let snapshot = sync(&world.remote(), "").await.unwrap();
    assert!(snapshot.problems()[0].message.contains("more than 10000"), "{:?}", snapshot.problems());
}

#[tokio::test]
async fn v21_packs_beyond_the_budget_are_refused() {
    let world = World::new().await;
    world.repo.change("main").file("big.bin", noise(3_000_000)).commit("big");
    let tight = |options: &mut RemoteOptions| options.limits.pack_bytes = 500_000;
    let remote = world.remote_with(tight);
    let error = sync(&remote, "").await.unwrap_err();
    assert_eq!(error.reason(), "PackTooLarge");
    assert_eq!(world.packs(), Vec::<PathBuf>::new());
    // Small on the wire, large in memory.
    world.repo.change("main").orphan().file("bomb.txt", vec![b'0'; 20_000_000]).commit("bomb");
    let error = sync(&remote, "").await.unwrap_err();
    assert_eq!(error.reason(), "PackTooLarge", "{error}");
    world.repo.change("main").orphan().file("a.yaml", "a: 1").commit("small again");
    assert_eq!(paths(&*sync(&remote, "").await.unwrap()), ["a.yaml"]);
}

#[tokio::test]
async fn v21_endless_listings_are_refused() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let line = format!("{id} refs/heads/main{}\n", "x".repeat(900));
    let line = format!("{:04x}{line}", line.len() + 4);
    world.server.inject(Step::LsRefs, Fault::Replace(line.repeat(20_000).into_bytes()));
    let error = world.remote().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "AnswerTooLarge");
}

#[tokio::test]
async fn g01_answers_that_are_no_git_have_their_own_reasons() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    sync(&remote, "").await.unwrap();
    for (fault, reason) in [
        (Fault::Status(401), "AuthenticationFailed"),
        (Fault::Status(403), "AuthenticationFailed"),
        (Fault::Status(404), "RepositoryNotFound"),
        (Fault::Status(429), "ServerFailed"),
        (Fault::Status(500), "ServerFailed"),
        (Fault::Html, "NotAGitServer"),
        (Fault::Replace(b"nonsense".to_vec()), "NotAGitServer"),
        (Fault::Replace(Vec::new()), "NotAGitServer"),
        (Fault::Break(10), "ConnectionFailed"),
    ] {
        world.server.inject(Step::Advertise, fault.clone());
        let error = remote.resolve().await.unwrap_err();
        assert_eq!(error.reason(), reason, "{fault:?}: {error}");
        assert!(!error.is_terminal());
    }
    let unknown = world.remote_with(|options| options.url = world.server.url("nowhere.git"));
    assert_eq!(unknown.resolve().await.unwrap_err().reason(), "RepositoryNotFound");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed = world.remote_with(|options| options.url = format!("http://127.0.0.1:{port}/x"));
    assert_eq!(closed.resolve().await.unwrap_err().reason(), "ConnectionFailed");
    // TLS with something that speaks no TLS.
    let plain = world.server.url("team.git").replace("http://", "https://");
    let tls = world.remote_with(|options| options.url = plain);
    assert_eq!(tls.resolve().await.unwrap_err().reason(), "ConnectionFailed");
    // Through all of it, the last good commit can be read.
    assert_eq!(content(&*remote.snapshot(&id, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn v11_redirects_are_not_followed() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let other = GitServer::start(&world.dir.path().join("server")).await;
    let to = format!("{}/info/refs?service=git-upload-pack&token=s3cret", other.url("team.git"));
    world.server.inject(Step::Advertise, Fault::Redirect(to));
    let error = world.remote().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RedirectRefused");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn g02_silent_and_slow_servers_end_at_the_deadline() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let timeout = Duration::from_millis(600);
    let remote = world.remote_with(|options| options.timeout = timeout);
    let second = Duration::from_secs(1);
    for (step, fault) in [
        (Step::Advertise, Fault::Silence),
        (Step::Advertise, Fault::Stall(20)),
        (Step::LsRefs, Fault::Silence),
        (Step::Fetch, Fault::Stall(40)),
        (Step::Fetch, Fault::Trickle(second)),
    ] {
        world.server.inject(step, fault.clone());
        let start = Instant::now();
        let error = if step == Step::Fetch {
            remote.fetch(&revision(&id)).await.unwrap_err()
        } else {
            remote.resolve().await.unwrap_err()
        };
        assert_eq!(error.reason(), "Timeout", "{fault:?}: {error}");
        assert!(start.elapsed() < timeout + second, "{fault:?}: {:?}", start.elapsed());
    }
    let patient = world.remote();
    assert_eq!(content(&*sync(&patient, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn c09_a_fetch_that_is_given_up_stops_and_the_next_one_works() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    world.server.inject(Step::Fetch, Fault::Stall(40));
    let wanted = revision(&id);
    let given_up = tokio::time::timeout(Duration::from_millis(300), remote.fetch(&wanted)).await;
    assert!(given_up.is_err());
    let start = Instant::now();
    remote.fetch(&wanted).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "it waited for the stalled one");
    assert_eq!(content(&*remote.snapshot(&id, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn g03_damaged_packs_are_refused_whole() {
    let world = World::new().await;
    let first = world.repo.change("main").file("big.bin", noise(50_000)).file("a.yaml", "a: 1").commit("x");
    let faults = || {
        [
            (Fault::Truncate(20_000), "CorruptData"),
            (Fault::Break(20_000), "ConnectionFailed"),
            (Fault::Flip(20_000), "CorruptData"),
            (Fault::Replace(b"0000".to_vec()), "CorruptData"),
        ]
    };
    let remote = world.remote();
    for (fault, reason) in faults() {
        world.server.inject(Step::Fetch, fault.clone());
        let error = remote.fetch(&revision(&first)).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{fault:?}: {error}");
        assert!(world.packs().is_empty());
    }
    sync(&remote, "").await.unwrap();
    // The same on top of a store: the old commit stays readable, the new one comes with the next attempt.
    for (round, (fault, _)) in faults().into_iter().enumerate() {
        let content_now = format!("a: {}", round + 2);
        let next = world.repo.change("main").file("big.bin", noise(60_000 + round)).file("a.yaml", &content_now).commit("y");
        world.server.inject_always(Step::Fetch, fault.clone());
        remote.fetch(&revision(&next)).await.unwrap_err();
        assert_eq!(content(&*remote.snapshot(&first, "").await.unwrap(), "a.yaml"), "a: 1");
        world.server.heal();
        assert_eq!(content(&*sync(&remote, "").await.unwrap(), "a.yaml"), content_now);
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn c09_leftovers_and_garbage_in_the_store_heal() {
    let world = World::new().await;
    let id = world.repo.change("main").file("a.yaml", "a: 1").file("big.bin", noise(50_000)).commit("x");
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 9] = [
        ("nothing", |_| {}),
        ("a killed fetch", |store| {
            let pack = store.join("incoming/pack");
            std::fs::create_dir_all(&pack).unwrap();
            std::fs::write(pack.join("tmp_pack_x"), "half").unwrap();
            std::fs::write(pack.join("shallow.lock"), "").unwrap();
            std::fs::write(store.join("sha1-1/pack/pack-zzz.pack"), "half").unwrap();
            std::fs::write(store.join("sha1-1/shallow.lock"), "").unwrap();
        }),
        ("truncated files", |store| {
            for file in files_below(store) {
                let len = file.metadata().unwrap().len();
                std::fs::File::options().write(true).open(file).unwrap().set_len(len / 2).unwrap();
            }
        }),
        ("empty files", |store| {
            for file in files_below(store) {
                std::fs::write(file, "").unwrap();
            }
        }),
        ("flipped bits", |store| {
            for file in files_below(store) {
                let mut bytes = std::fs::read(&file).unwrap();
                let at = bytes.len() / 2;
                bytes[at] ^= 0x10;
                std::fs::write(file, bytes).unwrap();
            }
        }),
        ("deleted files", |store| {
            for file in files_below(store) {
                std::fs::remove_file(file).unwrap();
            }
        }),
        ("a pack without its index", |store| {
            for file in files_below(store).iter().filter(|file| file.extension().is_some_and(|e| e == "idx")) {
                std::fs::remove_file(file).unwrap();
            }
        }),
        ("a file where a folder should be", |store| {
            std::fs::write(store.join("sha1-9"), "x").unwrap();
            std::fs::write(store.join("incoming"), "x").unwrap();
        }),
        ("a tip that is nowhere", |store| {
            for file in files_below(store).iter().filter(|file| file.ends_with("tip")) {
                std::fs::write(file, "ab".repeat(20)).unwrap();
            }
        }),
    ];
    world.remote().fetch(&revision(&id)).await.unwrap();
    for (name, harm) in harms {
        harm(&world.store());
        let restarted = world.remote();
        restarted.fetch(&revision(&id)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let snapshot = restarted.snapshot(&id, "").await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(content(&snapshot, "a.yaml"), "a: 1", "{name}");
        let left = files_below(&world.store());
        let known = |file: &PathBuf| {
            file.file_name().is_some_and(|name| name == "tip")
                || file.extension().is_some_and(|ext| ext == "pack" || ext == "idx")
        };
        assert!(left.iter().all(|file| known(file) || file.ends_with("pack/shallow")), "{name}: {left:?}");
    }
}

#[tokio::test]
async fn g03_a_store_that_is_damaged_while_in_use_heals_with_the_next_fetch() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1"), ("b.yaml", "b: 1")]);
    world.remote().fetch(&revision(&id)).await.unwrap();
    let remote = world.remote();
    remote.fetch(&revision(&id)).await.unwrap();
    // The folder vanishes below a running process, before anything was read from it.
    for pack in world.packs() {
        std::fs::remove_file(&pack).unwrap();
        std::fs::remove_file(pack.with_extension("idx")).unwrap();
    }
    let mut healed = None;
    for _ in 0..3 {
        let fetched = remote.fetch(&revision(&id)).await;
        match (fetched, remote.snapshot(&id, "").await) {
            (Ok(()), Ok(snapshot)) => {
                healed = Some(snapshot);
                break;
            }
            (_, Err(error)) => assert!(!error.is_terminal(), "{error}"),
            _ => {}
        }
    }
    assert_eq!(content(&healed.expect("healed"), "b.yaml"), "b: 1");
}

#[tokio::test]
async fn g6_a_local_repository_is_read_at_a_branch_tag_or_commit() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("prod/a.yaml", "a: 1")]);
    world.repo.annotated_tag("v1", &first);
    let second = world.repo.commit("main", &[("prod/a.yaml", "a: 2")]);
    let read = |rev: &str| {
        open_local(&world.repo.dir, rev, "./prod", Limits::default())
            .map(|snapshot| (snapshot.commit().id.clone(), content(&snapshot, "prod/a.yaml")))
    };
    let (old, new) = ((first.clone(), "a: 1".to_owned()), (second.clone(), "a: 2".to_owned()));
    for rev in ["v1", "refs/tags/v1", &first, &first[..10]] {
        assert_eq!(read(rev).as_ref(), Ok(&old), "{rev}");
    }
    for rev in ["main", "HEAD", &second] {
        assert_eq!(read(rev).as_ref(), Ok(&new), "{rev}");
    }
    let error = read("mian").unwrap_err();
    assert_eq!((error.reason(), error.hint().as_deref()), ("RefNotFound", Some("did you mean main?")));
    for rev in ["-x", "../x", "main..v1", ""] {
        assert_eq!(read(rev).unwrap_err().reason(), "RefNotFound", "{rev:?}");
    }
    let nowhere = open_local(world.dir.path(), "main", "", Limits::default()).unwrap_err();
    assert_eq!(nowhere.reason(), "StorageFailed");
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
    let error = refused(&|options| options.allow_insecure = false);
    assert_eq!(error.reason(), "InsecureConnectionsDisallowed");
    assert!(error.is_terminal());
    assert!(world.server.requests().is_empty());
}
