use super::*;

fn entry(uid: &str, version: u64) -> Entry<()> {
    Entry { uid: uid.into(), version, value: () }
}

fn key() -> Key {
    Key::new("ns", "a")
}

#[test]
fn own_write_is_seen_at_once_and_older_events_are_ignored() {
    let store = Store::new("Test");
    store.applied(key(), entry("u", 5));
    store.wrote(key(), entry("u", 9));
    store.applied(key(), entry("u", 7));
    assert_eq!(store.get(&key()).expect("kept").version, 9);
    store.applied(key(), entry("u", 11));
    assert_eq!(store.get(&key()).expect("kept").version, 11);
}

#[test]
fn own_delete_is_seen_at_once_and_a_late_event_does_not_revive_it() {
    let store = Store::new("Test");
    store.applied(key(), entry("u", 5));
    store.deleted(&key(), "u");
    store.applied(key(), entry("u", 6));
    assert!(store.get(&key()).is_none());
    store.applied(key(), entry("v", 8));
    assert_eq!(store.get(&key()).expect("recreated").uid, "v");
    store.removed(&key(), "u");
    assert!(store.get(&key()).is_some(), "the end of the old object does not touch the new one");
}

#[test]
fn a_late_reply_does_not_revive_an_object_whose_end_is_known() {
    let store = Store::new("Test");
    store.applied(key(), entry("u", 5));
    // The watch shows the end before our write is answered.
    store.removed(&key(), "u");
    store.wrote(key(), entry("u", 6));
    assert!(store.get(&key()).is_none(), "a ghost");
    // The same after a 404, even for an object that the watch never showed.
    store.deleted(&key(), "v");
    store.wrote(key(), entry("v", 7));
    assert!(store.get(&key()).is_none(), "a ghost");
    store.wrote(key(), entry("w", 9));
    assert_eq!(store.get(&key()).expect("made anew").uid, "w");
}

#[test]
fn the_memory_of_ended_objects_is_bounded() {
    let mut ended = Ended::default();
    for n in 0..20_000 {
        ended.insert(&n.to_string());
    }
    assert_eq!((ended.uids.len(), ended.order.len()), (Ended::MAX_UIDS, Ended::MAX_UIDS));
    assert!(ended.contains("19999") && !ended.contains("0"));
}

#[test]
fn what_is_not_to_be_kept_ends_once_and_may_come_back() {
    let store = Store::new("Test");
    let heard = Arc::new(RwLock::new(Vec::new()));
    let sink = heard.clone();
    store.on_change(move |c| sink.write().push((c.old.is_some(), c.new.is_some())));
    store.left(&key());
    store.applied(key(), entry("u", 5));
    store.left(&key());
    store.left(&key());
    assert!(store.is_empty());
    store.applied(key(), entry("u", 8));
    assert_eq!(store.len(), 1);
    assert_eq!(*heard.read(), [(false, true), (true, false), (false, true)]);
}

#[test]
fn w6_the_last_good_state_is_served_until_a_list_is_complete() {
    let store = Store::new("Test");
    store.applied(key(), entry("u", 5));
    store.list_begins();
    assert!(store.get(&key()).is_some());
    assert!(store.list_done());
    assert!(store.get(&key()).is_none());
}

#[test]
fn a_write_during_a_list_survives_it_and_asks_for_another_list() {
    let store = Store::new("Test");
    store.list_begins();
    store.wrote(key(), entry("u", 9));
    assert!(!store.list_done());
    assert!(store.get(&key()).is_some());
    store.list_begins();
    assert!(store.list_done());
    assert!(store.get(&key()).is_none(), "a certain list is the truth");
}

#[test]
fn listeners_hear_differences_of_a_list() {
    let store = Store::new("Test");
    store.applied(key(), entry("u", 5));
    let heard = Arc::new(RwLock::new(Vec::new()));
    let sink = heard.clone();
    store.on_change(move |c| sink.write().push((c.key.name.clone(), c.new.is_some())));
    store.list_begins();
    store.listed(Key::new("ns", "b"), entry("w", 6));
    store.list_done();
    let mut heard = heard.read().clone();
    heard.sort();
    assert_eq!(heard, [("a".to_owned(), false), ("b".to_owned(), true)]);
}
