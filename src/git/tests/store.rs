use super::super::generation::{MOST_PACKS, PACK_SLOTS};
use super::*;

fn tip() -> ObjectId {
    ObjectId::from_hex(&[b'1'; 40]).unwrap()
}

/// What a fetch leaves, as far as files count.
fn fetched(store: &Store, name: &str) -> Incoming {
    let incoming = store.incoming().unwrap();
    for extension in ["pack", "idx"] {
        fs::write(incoming.packs().join(format!("pack-{name}.{extension}")), "").unwrap();
    }
    incoming
}

#[test]
fn g3_a_generation_takes_no_more_packs_than_gix_can_open() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("store"), Limits::default());
    assert!(store.current(&AtomicBool::new(false)).unwrap().is_none());
    let first = store.replace(None, &fetched(&store, "first"), &tip()).unwrap();
    let mut added = 1;
    while store.add(&first, &fetched(&store, &format!("{added}")), &tip()).unwrap() {
        added += 1;
    }
    assert_eq!(added, MOST_PACKS);
    assert!(added < usize::from(PACK_SLOTS));
    // Whoever saw none before starts anew, too.
    let next = store.replace(None, &fetched(&store, "next"), &tip()).unwrap();
    assert!(!Arc::ptr_eq(&first, &next));
    assert_eq!(packs(&next.dir).unwrap().len(), 1);
}

#[test]
fn g3_what_is_cleared_comes_back_in_a_folder_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("store"), Limits::default());
    let none = &AtomicBool::new(false);
    store.current(none).unwrap();
    let first = store.replace(None, &fetched(&store, "first"), &tip()).unwrap();
    let old = store.replace(Some(&first), &fetched(&store, "old"), &tip()).unwrap();
    assert!(!store.clear().unwrap(), "it is in use");
    drop(old);
    assert!(store.clear().unwrap() && store.clear().unwrap());
    assert!(store.current(none).unwrap().is_none());
    let new = store.replace(None, &fetched(&store, "new"), &tip()).unwrap();
    // The first one was in use all the time. Its end removes its own folder.
    drop(first);
    assert!(new.dir.join("pack").join("pack-new.idx").is_file());
    drop(new);
    // After a start, before anything was asked for.
    let again = Store::new(dir.path().join("store"), Limits::default());
    assert!(again.clear().unwrap());
    assert_eq!(again.bytes(), 0);
    assert!(again.current(none).unwrap().is_none());
}
