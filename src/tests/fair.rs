#![allow(clippy::disallowed_methods)] // times to count from

use super::*;

fn put(fair: &mut Fair, namespace: &str, names: &[&str]) {
    let now = Instant::now();
    for name in names {
        fair.insert(Key::new(namespace, *name), now);
    }
}

/// Whatever can be taken now, as `namespace/name`.
fn taken(fair: &mut Fair, limit: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while let Some(namespace) = fair.next(limit) {
        taken.push(fair.take(&namespace).expect("a key").to_string());
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn c15_namespaces_have_their_turns_and_leave_slots_free() {
    let mut fair = Fair::default();
    put(&mut fair, "a", &["1", "2", "3", "4", "5", "6"]);
    assert_eq!(taken(&mut fair, 8), ["a/1", "a/2", "a/3", "a/4"], "half of all");
    put(&mut fair, "b", &["1", "2", "3"]);
    assert_eq!(taken(&mut fair, 8), ["b/1", "b/2"], "half of what is left");
    put(&mut fair, "c", &["1", "2", "3"]);
    assert_eq!(taken(&mut fair, 8), ["c/1"]);
    assert_eq!(taken(&mut fair, 8), [""; 0]);
    fair.done("a");
    assert_eq!(taken(&mut fair, 8), ["c/2"], "who has fewest comes first");
    fair.done("b");
    assert_eq!(taken(&mut fair, 8), ["b/3"]);
    fair.done("a");
    assert_eq!(taken(&mut fair, 8), [""; 0], "nobody has fewer than are free");
}

#[tokio::test(start_paused = true)]
async fn c15_one_key_again_and_again_is_not_always_first() {
    let mut fair = Fair::default();
    put(&mut fair, "b", &["1", "2"]);
    put(&mut fair, "c", &["1", "2"]);
    let mut order = Vec::new();
    for _ in 0..6 {
        put(&mut fair, "a", &["1"]);
        let taken = taken(&mut fair, 1);
        fair.done(&taken[0][..1]);
        order.extend(taken);
    }
    assert_eq!(order, ["b/1", "c/1", "a/1", "b/2", "c/2", "a/1"]);
    assert_eq!((fair.spaces.len(), fair.running), (0, 0), "who has nothing to do is forgotten");
}

#[tokio::test(start_paused = true)]
async fn c15_who_is_held_keeps_nobody_from_a_turn() {
    let mut fair = Fair::default();
    put(&mut fair, "a", &["1"]);
    fair.hold("a");
    put(&mut fair, "a", &["2"]);
    put(&mut fair, "b", &["1"]);
    assert_eq!(taken(&mut fair, 8), ["b/1"]);
    fair.release("a");
    assert_eq!(taken(&mut fair, 8), ["a/1", "a/2"]);
}
