//! Stores that are damaged on disk while they are in use: C9.

use super::*;

/// Inverts bytes of one object in its pack, in place: a running process sees it.
fn spoil(world: &World, object: &str) {
    for pack in world.packs() {
        let output = std::process::Command::new("git")
            .args(["verify-pack", "-v"])
            .arg(pack.with_extension("idx"))
            .output()
            .unwrap();
        let listing = String::from_utf8(output.stdout).unwrap();
        let Some(line) = listing.lines().find(|line| line.starts_with(object)) else { continue };
        // id, kind, size, size in the pack, offset
        let field = |index| line.split_whitespace().nth(index).unwrap().parse::<u64>().unwrap();
        let (length, offset) = (field(3), field(4));
        let mut bytes = std::fs::read(&pack).unwrap();
        // The first two bytes say what it is.
        for at in offset + 2..offset + length {
            bytes[usize::try_from(at).unwrap()] ^= 0xff;
        }
        let mut file = std::fs::File::options().write(true).open(&pack).unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        return;
    }
    panic!("no pack holds {object}");
}

#[tokio::test]
async fn c9_a_damaged_folder_is_found_by_the_snapshot_and_fetched_anew() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("prod/a.yaml", "a: 1"), ("b.yaml", "b: 1")]);
    let remote = world.remote();
    remote.fetch(&revision(&id)).await.unwrap();
    spoil(&world, &world.repo.git(&["rev-parse", "main:prod"]));
    world.server.forget();
    remote.fetch(&revision(&id)).await.unwrap();
    assert!(world.server.steps().is_empty(), "commit and root are there");
    let error = remote.snapshot(&id, "").await.unwrap_err();
    assert_eq!(error.reason(), "CorruptData");
    remote.fetch(&revision(&id)).await.unwrap();
    assert!(world.server.steps().contains(&Step::Fetch));
    let snapshot = remote.snapshot(&id, "").await.unwrap();
    assert_eq!(content(&snapshot, "prod/a.yaml"), "a: 1");
}

#[tokio::test]
async fn c9_a_damaged_file_is_unreadable_and_fetched_anew() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1"), ("b.yaml", "b: 1")]);
    let remote = world.remote();
    let before = sync(&remote, "").await.unwrap();
    spoil(&world, &world.repo.git(&["rev-parse", "main:a.yaml"]));
    let entry = before.lookup("a.yaml").unwrap().unwrap();
    let error = before.read(&entry, 100).unwrap_err();
    assert!(matches!(error, TreeError::Unreadable { .. }), "{error}");
    assert_eq!(content(&before, "b.yaml"), "b: 1", "the others can be read");
    remote.fetch(&revision(&id)).await.unwrap();
    let after = remote.snapshot(&id, "").await.unwrap();
    assert_eq!(content(&after, "a.yaml"), "a: 1");
}

#[tokio::test]
async fn c9_a_store_that_was_damaged_while_nobody_looked_is_fetched_anew() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("prod/a.yaml", "a: 1"), ("b.yaml", "b: 1")]);
    world.remote().fetch(&revision(&id)).await.unwrap();
    spoil(&world, &world.repo.git(&["rev-parse", "main:prod/a.yaml"]));
    world.server.forget();
    let restarted = world.remote();
    restarted.fetch(&revision(&id)).await.unwrap();
    assert!(world.server.steps().contains(&Step::Fetch));
    assert_eq!(content(&restarted.snapshot(&id, "").await.unwrap(), "prod/a.yaml"), "a: 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_a_sync_makes_a_damaged_store_anew_at_once() {
    let world = World::new().await;
    let files = [("prod/a.yaml", &*source::model("a")), ("b.yaml", &*source::model("b"))];
    world.repo.commit("main", &files);
    let mut source = source::Reader::new(&world);
    assert_eq!(source.refresh().await, Ok(true));
    spoil(&world, &world.repo.git(&["rev-parse", "main:prod"]));
    // The next commit brings nothing of the damaged folder, but has it at another place: it is read again.
    let moved = world.repo.change("main").delete("prod").file("other/a.yaml", source::model("a"));
    moved.file("c.yaml", source::model("c")).commit("move");
    world.server.forget();
    assert_eq!(source.refresh().await, Ok(true));
    assert_eq!(source.objects(), ["a", "b", "c"]);
    let fetches = world.server.steps().into_iter().filter(|step| *step == Step::Fetch).count();
    assert_eq!(fetches, 2, "what is new, and then everything");
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_a_file_that_could_not_be_read_is_read_again_at_the_next_poll() {
    let world = World::new().await;
    let (a, b) = (source::model("a"), source::model("b"));
    world.repo.commit("main", &[("a.txt", &a), ("b.yaml", &b)]);
    let mut source = source::Reader::new(&world);
    assert_eq!(source.refresh().await, Ok(true));
    assert_eq!(source.objects(), ["b"]);
    spoil(&world, &world.repo.git(&["rev-parse", "main:a.txt"]));
    // A new name, but no new content: it comes from the store.
    world.repo.change("main").delete("a.txt").file("a.yaml", &a).commit("rename");
    assert_eq!(source.refresh().await, Ok(true));
    assert_eq!(source.objects(), ["b"]);
    assert!(source.has_errors(), "so that nothing is deleted");
    // The same commit, but not the same answer.
    assert_eq!(source.refresh().await, Ok(true));
    assert_eq!(source.objects(), ["a", "b"]);
    assert!(!source.has_errors());
    assert_eq!(source.refresh().await, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_a_folder_that_somebody_deletes_is_fetched_anew() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", &source::model("a"))]);
    let mut source = source::Reader::new(&world);
    assert_eq!(source.refresh().await, Ok(true));
    std::fs::remove_dir_all(world.store()).unwrap();
    world.repo.commit("main", &[("b.yaml", &source::model("b"))]);
    assert_eq!(source.refresh().await, Ok(true));
    assert_eq!(source.objects(), ["a", "b"]);
}
