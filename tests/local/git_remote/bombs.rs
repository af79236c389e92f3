//! Packs that are small and need much memory: V21.

use super::packs::{Pack, delta, made_of};
use super::*;

/// Bytes of each file.
const BYTES: usize = 100 << 10;

/// Commits the files of levels that are made of each other, with so many files in each. Returns their number.
fn commit_levels(world: &World, (levels, width): (u32, u32), first: u8) -> usize {
    let mut pack = Pack::new();
    let mut base = pack.blob(&vec![first; BYTES]);
    let mut files = vec![u32::from_be_bytes([first; 4])];
    for level in 1..=levels {
        for one in 0..width {
            let beginning = level << 8 | one;
            let at = pack.delta(base, &delta(BYTES, BYTES, beginning));
            files.push(beginning);
            if one + 1 == width {
                base = at;
            }
        }
    }
    let count = pack.count as usize;
    world.repo.git_with(&["index-pack", "--stdin", "--fix-thin"], &pack.finish());
    let entries: Vec<_> = files
        .iter()
        .map(|beginning| {
            let content = made_of(&vec![first; BYTES], BYTES, *beginning);
            (format!("f{beginning}.txt"), world.repo.blob(&content))
        })
        .collect();
    let entries: Vec<_> =
        entries.iter().map(|(name, id)| ("100644", name.as_bytes(), &**id)).collect();
    let tree = world.repo.raw_tree(&entries);
    world.repo.commit_tree("main", &tree);
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn v21_deltas_that_need_much_memory_at_the_same_time_are_refused() {
    let world = World::new().await;
    // 3 MiB are allowed for the objects that are needed at the same time.
    let remote = world.remote_with(|options| options.limits.pack_bytes = 1 << 20);
    // One after the other: two are needed at the same time.
    let files = commit_levels(&world, (40, 1), b'a');
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!(snapshot.entries().len(), files);
    assert!(content(&snapshot, "f256.txt").ends_with("aaa"));
    // A level is needed until the last file of the next one is made: all levels at the same time.
    commit_levels(&world, (40, 2), b'b');
    let error = sync(&remote, "").await.unwrap_err();
    assert_eq!(error.reason(), "PackTooLarge", "{error}");
    let told = error.to_string();
    assert!(told.contains("more memory at the same time"), "{told}");
    // What was there is as good as before, and nothing is left behind.
    assert!(content(&snapshot, "f512.txt").ends_with("aaa"));
    let left = std::fs::read_dir(world.store()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("incoming")).collect();
    assert!(left.is_empty(), "{left:?}");
    // With fewer levels it is read.
    commit_levels(&world, (20, 2), b'c');
    let snapshot = sync(&remote, "").await.unwrap();
    assert!(content(&snapshot, "f256.txt").ends_with("ccc"));
}
