//! Packs that no honest server sends, and some that one does.

use std::time::Duration;

use gix::objs::Exists;
use tokio::sync::watch;

use super::*;
use crate::git::generation::open_objects;

#[path = "../../../tests/support/packs.rs"]
mod packs;

use packs::{Pack as Draft, blob_id, delta, made_of};

const KIB: usize = 1 << 10;

/// A store of objects.
struct Objects(tempfile::TempDir);

impl Objects {
    fn new() -> Self {
        let objects = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(objects.folder()).unwrap();
        objects
    }

    fn folder(&self) -> std::path::PathBuf {
        self.0.path().join("pack")
    }

    /// Indexes a pack, on top of other objects.
    fn add(&self, pack: Draft, pack_bytes: u64, base: Option<&Self>) -> Result<(), GitError> {
        let folder = self.folder();
        std::fs::write(folder.join(RECEIVED), pack.finish()).unwrap();
        let timeout = Duration::from_secs(60);
        let (_sender, stop) = watch::channel(false);
        let deadline = Instant::now() + timeout;
        let bounds = Bounds { deadline, timeout, stop, what: "fetching" };
        let limits = Limits { pack_bytes, ..Limits::default() };
        let (kind, stop) = (Kind::Sha1, &AtomicBool::new(false));
        let base = base.map(|base| base as &dyn Bases);
        index(&Indexing { folder: &folder, kind, base, limits, bounds: &bounds, stop })
    }

    fn has(&self, content: &[u8]) -> bool {
        let id = blob_id(content);
        self.open(None).unwrap().exists(&id)
    }
}

impl Bases for Objects {
    fn open(&self, permit: Option<&Permit>) -> Result<HandleArc, GitError> {
        let limit = if permit.is_some() { 64 << 20 } else { 24 << 20 };
        let store = open_objects(self.0.path(), Kind::Sha1, Some(limit)).unwrap();
        Ok(store.to_cache_arc())
    }
}

fn told(result: Result<(), GitError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn v21_deltas_of_deltas_are_put_together_whether_their_base_is_named_by_its_place_or_its_id() {
    let mut pack = Draft::new();
    let first = vec![b'a'; 9 * KIB];
    let at = pack.blob(&first);
    let second = made_of(&first, 5 * KIB, 1);
    let third = made_of(&second, 7 * KIB, 2);
    // The base of the last one comes after it.
    pack.delta_of_id(&blob_id(&second), &delta(5 * KIB, 7 * KIB, 2));
    pack.delta(at, &delta(9 * KIB, 5 * KIB, 1));
    let objects = Objects::new();
    objects.add(pack, 1 << 20, None).unwrap();
    for content in [&first, &second, &third] {
        assert!(objects.has(content));
    }
    let files: Vec<_> = std::fs::read_dir(objects.folder()).unwrap().collect();
    assert_eq!(files.len(), 2, "a pack and its index: {files:?}");
}

#[test]
fn v21_an_entry_with_a_header_that_is_too_long_is_refused() {
    // Everything after it would be somewhere else in the pack that is kept: other deltas than those that were looked at.
    for later in [false, true] {
        let mut pack = Draft::new();
        pack.overlong_blob(b"x");
        if later {
            pack.blob(b"y");
        }
        let refused = Objects::new().add(pack, 1 << 20, None).unwrap_err();
        assert_eq!(refused.reason(), "CorruptData");
        assert!(refused.to_string().contains("a header that git does not write"), "{refused}");
    }
}

#[test]
fn v21_small_objects_that_keep_the_buffers_of_large_ones_are_refused() {
    let with_levels = |levels: u32| {
        let mut pack = Draft::new();
        let size = 4 * KIB;
        let mut base = pack.blob(&vec![b'a'; size]);
        for level in 0..levels {
            // The last one is made first, the second one gets its buffer, and the first one keeps their base in memory.
            pack.delta(base, &delta(size, size, level * 4 + 1));
            let next = pack.delta(base, &delta(size, size, level * 4 + 2));
            pack.delta(base, &delta(size, 200 * KIB, level * 4 + 3));
            base = next;
        }
        Objects::new().add(pack, 1 << 20, None)
    };
    with_levels(10).unwrap();
    let refused = with_levels(20).unwrap_err();
    assert_eq!(refused.reason(), "PackTooLarge");
    assert!(refused.to_string().contains("more memory at the same time"), "{refused}");
}

#[test]
fn v21_objects_that_we_have_are_put_into_a_pack_up_to_a_limit() {
    let old = Objects::new();
    let mut pack = Draft::new();
    let content = |one: u32| made_of(&vec![b'a'; 100 * KIB], 100 * KIB, one);
    for one in 0..20 {
        pack.blob(&content(one));
    }
    old.add(pack, 8 << 20, None).unwrap();
    let on_top = |count: u32, pack_bytes| {
        let mut pack = Draft::new();
        for one in 0..count {
            pack.delta_of_id(&blob_id(&content(one)), &delta(100 * KIB, 50 * KIB, 77));
        }
        let new = Objects::new();
        new.add(pack, pack_bytes, Some(&old)).map(|()| new)
    };
    let new = on_top(5, 256 << 10).unwrap();
    assert!(new.has(&made_of(&content(0), 50 * KIB, 77)) && new.has(&content(4)));
    let refused = on_top(20, 256 << 10).map(|_| ()).unwrap_err();
    assert_eq!(refused.reason(), "PackTooLarge");
    assert!(refused.to_string().contains("builds on are too large"), "{refused}");
    on_top(20, 8 << 20).unwrap();
    // One that we do not have.
    let mut pack = Draft::new();
    pack.delta_of_id(&blob_id(b"nothing"), &delta(7, 7, 1));
    assert!(told(Objects::new().add(pack, 1 << 20, Some(&old))).contains("could not be found"));
}

#[test]
fn v21_a_large_file_that_changes_a_little_is_no_bomb() {
    // A whole object and what is made of it, each nearly as large as the pack may be.
    let size = 1000 * KIB;
    let mut pack = Draft::new();
    let at = pack.blob(&vec![b'a'; size]);
    pack.delta(at, &delta(size, size, 1));
    Objects::new().add(pack, 1 << 20, None).unwrap();
}

#[test]
fn v21_what_is_no_pack_is_an_error() {
    let objects = Objects::new();
    let refused = objects.add(Draft::new(), 1 << 20, None).unwrap_err();
    assert!(refused.to_string().contains("empty pack"), "{refused}");
}
