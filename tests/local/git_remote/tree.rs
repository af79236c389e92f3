//! What is read from a commit, and what never is: G6, V17 to V22.

use super::*;

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
    assert_eq!(
        content(&snapshot, "./prod/../prod/b.yaml".trim_start_matches("./prod/../")),
        "b: 1"
    );
    for absent in ["prod", "nowhere", "prod/b.yaml/x", "../x", "/etc/passwd", ".git/config"] {
        assert_eq!(snapshot.lookup(absent).unwrap(), None, "{absent}");
    }
    assert_eq!(
        snapshot.tree_id("prod").unwrap(),
        Some(world.repo.git(&["rev-parse", "main:prod"]))
    );
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
async fn b2_the_ids_of_paths_are_found_without_a_list_of_what_is_there() {
    let world = World::new().await;
    let commit = || {
        let change = world.repo.change("main").file("app/Dockerfile", "FROM scratch");
        let many = (0..20).fold(change, |change, n| change.file(&format!("docs/{n}"), "x"));
        many.symlink("link", "app").file("lib", "1").commit("all")
    };
    let first = commit();
    // More files than a list may have.
    let limits = Limits { files: 5, ..Limits::default() };
    let remote = world.remote_with(|options| options.limits = limits);
    let revision = remote.resolve().await.unwrap();
    let paths = ["app", ".", "lib", "link", "link/Dockerfile", "lib/x", "nowhere", "../x", "docs/"];
    let paths: Vec<_> = paths.map(str::to_owned).into();
    let error = remote.tree_ids(&first, paths.clone()).await.unwrap_err();
    assert_eq!(error.reason(), "CommitGone", "it was not fetched");
    remote.fetch(&revision).await.unwrap();
    let found = remote.tree_ids(&first, paths.clone()).await.unwrap();
    let id = |what: &str| Some(world.repo.git(&["rev-parse", what]));
    let (app, lib, docs) = (id("main:app"), id("main:lib"), id("main:docs"));
    // A link on the way is what is found.
    let (root, link) = (id("main^{tree}"), id("main:link"));
    let want = [app.clone(), root, lib, link.clone(), link, None, None, None, docs];
    assert_eq!(found, want);
    let second = world.repo.change("main").file("docs/1", "y").commit("docs");
    remote.fetch(&remote.resolve().await.unwrap()).await.unwrap();
    let found = remote.tree_ids(&second, paths).await.unwrap();
    assert_eq!((&found[0], found[8] == want[8]), (&app, false));
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
    let top =
        world.repo.raw_tree(&[("40000", b"broken", &broken), ("100644", b"good.yaml", &blob)]);
    world.repo.commit_tree("main", &top);
    // A server that looks into it gives up; one that doesn't hands it out, as a local repository does.
    assert_eq!(sync(&world.remote(), "").await.unwrap_err().reason(), "CorruptData");
    let snapshot = open_local(&world.repo.dir, "main", "", Limits::default()).unwrap();
    assert_eq!(paths(&snapshot), ["good.yaml"]);
    assert_eq!(snapshot.problems()[0].path, "broken");
}

#[tokio::test]
async fn g6_v22_budgets_on_files_depth_and_bytes() {
    let world = World::new().await;
    let deep = format!("prod/{}x.yaml", "d/".repeat(40));
    let mut change =
        world.repo.change("main").file(&deep, "x").file("prod/large.yaml", "y".repeat(5000));
    for number in 0..50 {
        change = change.file(&format!("many/f{number}.yaml"), "x");
    }
    let id = change.commit("a lot");
    let remote = world.remote_with(|options| {
        options.limits = Limits { files: 20, file_bytes: 4000, ..Limits::default() };
    });
    let snapshot = sync(&remote, "prod").await.unwrap();
    let problem = &snapshot.problems()[0];
    assert!(
        problem.message.contains("deeper than 32")
            || problem.message.contains("more than 20 folders")
    );
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
    assert!(
        snapshot.problems()[0].message.contains("more than 10000"),
        "{:?}",
        snapshot.problems()
    );
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
    assert_eq!(paths(&sync(&remote, "").await.unwrap()), ["a.yaml"]);
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
    let short = format!("{}~1", &second[..10]);
    for rev in ["v1", "refs/tags/v1", &first, &first[..10], "HEAD~1", "main^", "v1~0", &short] {
        assert_eq!(read(rev).as_ref(), Ok(&old), "{rev}");
    }
    for rev in ["main", "HEAD", &second] {
        assert_eq!(read(rev).as_ref(), Ok(&new), "{rev}");
    }
    let error = read("mian").unwrap_err();
    assert_eq!(
        (error.reason(), error.hint().as_deref()),
        ("RefNotFound", Some("did you mean main?"))
    );
    // Nothing, several commits, none any more, and a folder instead of a commit.
    for rev in ["-x", "../x", "", "main..v1", "main...v1", "^main", "HEAD~2", "main:prod"] {
        assert_eq!(read(rev).unwrap_err().reason(), "RefNotFound", "{rev:?}");
    }
    let nowhere = open_local(world.dir.path(), "main", "", Limits::default()).unwrap_err();
    assert_eq!(nowhere.reason(), "StorageFailed");
}
