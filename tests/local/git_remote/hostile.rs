//! Repositories that try to make the operator run, dial, follow or believe something: G6, V15 to V24.

use super::*;

/// Writes an object as it is, of any type.
fn raw(repo: &Repo, kind: &str, bytes: &[u8]) -> String {
    repo.git_with(&["hash-object", "-t", kind, "-w", "--literally", "--stdin"], bytes)
}

/// A commit object with these lines after its tree.
fn raw_commit(repo: &Repo, tree: &str, lines: &str) -> String {
    raw(repo, "commit", format!("tree {tree}\n{lines}\n\nmessage\n").as_bytes())
}

/// Sets the branch to an object that Git itself would not set it to.
fn set_main(repo: &Repo, id: &str) {
    std::fs::write(repo.dir.join("refs/heads/main"), format!("{id}\n")).unwrap();
}

const PEOPLE: &str =
    "author A <a@example.com> 1700000000 +0000\ncommitter C <c@example.com> 1700000000 +0000";

#[tokio::test]
async fn v15_v16_v17_nothing_in_a_repository_is_run_dialled_or_followed() {
    let (world, other) = (World::new().await, World::new().await);
    let canary = world.dir.path().join("canary");
    let filter = format!("touch {}", canary.display());
    let elsewhere = other.server.url("team.git");
    let modules = format!(
        "[submodule \"../../x\"]\n\tpath = \"prod/module\\r\"\n\turl = {elsewhere}\n[submodule \"y\"]\n\tpath = y\n\turl = -oProxyCommand=\"{filter}\"\n"
    );
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:aaaa\nsize 3\n";
    world
        .repo
        .change("main")
        .file(".gitmodules", modules)
        .file(".lfsconfig", format!("[lfs]\n\turl = {elsewhere}\n"))
        .file(".gitattributes", "*.yaml filter=evil diff=evil\n*.txt filter=lfs\n")
        .file("hooks/post-checkout", format!("#!/bin/sh\n{filter}\n"))
        .file(
            "config",
            format!("[core]\n\tfsmonitor = {filter}\n[filter \"evil\"]\n\tsmudge = {filter}\n"),
        )
        .file("prod/large.txt", pointer)
        .file("prod/a.yaml", "a: 1")
        .submodule("prod/module", "0123456789abcdef0123456789abcdef01234567")
        .commit("hostile");
    // What a clone would take over, too.
    world.repo.git(&["config", "filter.evil.smudge", &filter]);
    world.repo.git(&["config", "core.fsmonitor", &filter]);
    let snapshot = sync(&world.remote(), "prod").await.unwrap();
    assert_eq!(content(&snapshot, "prod/a.yaml"), "a: 1");
    assert_eq!(content(&snapshot, "prod/large.txt"), pointer, "text stays text");
    let local = open_local(&world.repo.dir, "main", "prod", Limits::default()).unwrap();
    assert_eq!(paths(&local), paths(&snapshot));
    assert!(other.server.requests().is_empty(), "{:?}", other.server.requests());
    assert!(world.server.requests().iter().all(|asked| asked.path.starts_with("/team.git/")));
    assert!(!canary.exists());
}

#[tokio::test]
async fn v18_names_that_come_twice_or_in_another_order_do_not_hide_each_other() {
    let world = World::new().await;
    let (one, two) = (world.repo.blob(b"a: 1"), world.repo.blob(b"a: 2"));
    let tree = world.repo.raw_tree(&[
        ("100644", b"z.yaml", &one),
        ("100644", b"twice.yaml", &one),
        ("100644", b"twice.yaml", &two),
        ("100644", b"a.yaml", &one),
        ("100644", b"", &one),
    ]);
    let top = world.repo.raw_tree(&[("40000", b"prod", &tree)]);
    world.repo.commit_tree("main", &top);
    let snapshot = match sync(&world.remote(), "prod").await {
        Ok(snapshot) => snapshot,
        // Not even a tree for those who look closely: refused whole.
        Err(error) => {
            assert_eq!(error.reason(), "CorruptData", "{error}");
            return;
        }
    };
    let of = |path: &str| {
        let all = snapshot.entries().iter().filter(|entry| entry.path == path);
        all.map(|entry| entry.kind).collect::<Vec<_>>()
    };
    assert!(
        of("prod/twice.yaml").iter().all(|kind| *kind == EntryKind::Odd),
        "{:?}",
        snapshot.entries()
    );
    assert!(!of("prod/twice.yaml").is_empty());
    for good in ["prod/a.yaml", "prod/z.yaml"] {
        assert_eq!(of(good), [EntryKind::File], "{good}: {:?}", snapshot.entries());
        assert_eq!(content(&snapshot, good), "a: 1");
    }
}

#[tokio::test]
async fn v20_odd_modes_are_no_files_and_hide_none() {
    let world = World::new().await;
    let blob = world.repo.blob(b"a: 1");
    let inner = world.repo.raw_tree(&[("100644", b"inner.yaml", &blob)]);
    for (mode, id) in [
        ("0", &blob),
        ("000000", &blob),
        ("100000", &blob),
        ("777", &blob),
        ("120777", &blob),
        ("140000", &blob),
        ("40755", &inner),
        ("60000", &inner),
        ("99999999999", &blob),
        ("-100644", &blob),
    ] {
        let tree = world.repo.raw_tree(&[("100644", b"good.yaml", &blob), (mode, b"odd.yaml", id)]);
        world.repo.commit_tree("main", &tree);
        // A server may look closely itself; a folder on disk shows what we make of it.
        let local = open_local(&world.repo.dir, "main", "", Limits::default());
        match sync(&world.remote(), "").await {
            Ok(snapshot) => {
                let odd = snapshot.lookup("odd.yaml").unwrap();
                assert!(odd.is_none_or(|entry| entry.kind != EntryKind::File), "{mode}");
                assert!(
                    !paths(&snapshot).iter().any(|path| path.contains("inner")) || mode == "40755",
                    "{mode}"
                );
                assert_eq!(content(&snapshot, "good.yaml"), "a: 1", "{mode}");
            }
            Err(error) => assert_eq!(error.reason(), "CorruptData", "{mode}: {error}"),
        }
        if let Err(error) = local {
            assert_eq!(error.reason(), "CorruptData", "{mode}: {error}");
        }
    }
}

#[tokio::test]
async fn v24_objects_that_are_not_what_others_say_are_refused() {
    let world = World::new().await;
    let blob = world.repo.blob(b"a: 1");
    let good = world.repo.raw_tree(&[("100644", b"a.yaml", &blob)]);
    let absent = "0123456789abcdef0123456789abcdef01234567";
    let as_tree = world.repo.raw_tree(&[("40000", b"prod", &blob), ("100644", b"a.yaml", &blob)]);
    let as_blob =
        world.repo.raw_tree(&[("100644", b"a.yaml", &blob), ("100644", b"b.yaml", &good)]);
    for (what, commit) in [
        ("its tree is a blob", raw_commit(&world.repo, &blob, PEOPLE)),
        ("its tree is absent", raw_commit(&world.repo, absent, PEOPLE)),
        ("no tree", raw(&world.repo, "commit", format!("{PEOPLE}\n\nmessage\n").as_bytes())),
        ("nothing", raw(&world.repo, "commit", b"")),
        ("a folder that is a blob", raw_commit(&world.repo, &as_tree, PEOPLE)),
        ("a file that is a tree", raw_commit(&world.repo, &as_blob, PEOPLE)),
    ] {
        set_main(&world.repo, &commit);
        match sync(&world.remote(), "").await {
            Err(error) => assert!(
                ["CorruptData", "NotAGitServer", "ConnectionFailed", "NotACommit", "CommitGone"]
                    .contains(&error.reason()),
                "{what}: {error:?}"
            ),
            // Read as far as it is true: the liar is a problem or no file.
            Ok(snapshot) => {
                let liar = if what.starts_with("a folder") { "prod" } else { "b.yaml" };
                let told = snapshot.problems().iter().any(|problem| problem.path == liar);
                let read =
                    snapshot.lookup(liar).unwrap().map(|entry| snapshot.read(&entry, 1 << 20));
                assert!(told || read.is_none_or(|read| read.is_err()), "{what}");
                assert_eq!(content(&snapshot, "a.yaml"), "a: 1", "{what}");
            }
        }
        // The same repository without it is read.
        set_main(&world.repo, &raw_commit(&world.repo, &good, PEOPLE));
        assert_eq!(paths(&sync(&world.remote(), "").await.unwrap()), ["a.yaml"], "after: {what}");
    }
}

#[tokio::test]
async fn v24_odd_people_and_dates_are_shown_harmlessly() {
    let world = World::new().await;
    let blob = world.repo.blob(b"a: 1");
    let tree = world.repo.raw_tree(&[("100644", b"a.yaml", &blob)]);
    let lines = [
        "author \u{1b}[31mEve\u{202e}\r <e@x> -99999999999999 +0000\ncommitter C <c@x> 1 +0000",
        "author Eve <e@x> 99999999999999999999999999 +9999\ncommitter C <c@x> 99999999999999999999 +0000",
        "author <> 0 +0000\ncommitter <> 0 -0000",
        "author Eve\ncommitter Eve",
        "author \u{0}Eve <e@x> 1 +0000\ncommitter C <c@x> 1 +0000",
    ];
    for line in lines {
        let commit = raw_commit(&world.repo, &tree, line);
        set_main(&world.repo, &commit);
        match sync(&world.remote(), "").await {
            Ok(snapshot) => {
                let info = snapshot.commit();
                assert_eq!(info.id, commit);
                let shown = format!("{}{}", info.author, info.subject);
                assert!(!shown.chars().any(|c| c.is_control() || c == '\u{202e}'), "{shown:?}");
                assert_eq!(content(&snapshot, "a.yaml"), "a: 1");
            }
            Err(error) => assert_eq!(error.reason(), "CorruptData", "{line:?}: {error}"),
        }
    }
}

#[tokio::test]
async fn v21_many_refs_and_long_chains_of_deltas_cost_what_is_asked_for() {
    let world = World::new().await;
    // Each version of a file is a delta of the one before.
    let mut text = String::new();
    let mut last = String::new();
    for number in 0..60 {
        text += &format!("line {number}: {}\n", "x".repeat(200));
        last = world.repo.commit("main", &[("a.yaml", &text)]);
    }
    world.repo.git(&["repack", "-q", "-a", "-d", "-f", "--depth=4095", "--window=60"]);
    let refs: String = (0..100_000).map(|n| format!("{last} refs/heads/b{n:06}\n")).collect();
    let head = format!("# pack-refs with: peeled fully-peeled sorted \n{refs}");
    let main = world.repo.id("main");
    std::fs::write(world.repo.dir.join("packed-refs"), head).unwrap();
    world.repo.branch("main", &main);
    let snapshot = sync(&world.remote(), "").await.unwrap();
    assert_eq!(content(&snapshot, "a.yaml"), text);
    let asked = world.server.requests();
    let listed =
        asked.iter().filter(|asked| asked.step == Step::LsRefs).map(|asked| asked.answered);
    assert!(listed.max().unwrap_or_default() < 10_000, "one ref is listed, not all of them");
    // A name that is missing costs a listing of all, within its budget.
    let missing = world.remote_with(|options| options.reference = branch("b0000001"));
    let error = missing.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RefNotFound", "{error}");
    assert!(error.hint().unwrap().contains("did you mean b"), "{error:?}");
}
