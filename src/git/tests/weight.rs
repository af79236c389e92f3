use std::rc::Rc;

use super::*;

/// An object of a pack: its base, if it is a delta; whether that is named by its id; and its size. Offsets are places in the list.
#[derive(Debug, Clone, Copy)]
struct Object {
    base: Option<usize>,
    by_id: bool,
    bytes: u64,
}

fn whole(bytes: u64) -> Object {
    Object { base: None, by_id: false, bytes }
}

fn delta(base: usize, bytes: u64) -> Object {
    Object { base: Some(base), by_id: false, bytes }
}

fn id(at: usize) -> ObjectId {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&at.to_be_bytes());
    ObjectId::from_bytes_or_panic(&bytes)
}

fn ledger(objects: &[Object]) -> Ledger {
    let mut ledger = Ledger::default();
    for (at, object) in (0..).zip(objects) {
        let made = match object.base {
            None => Made::Whole,
            Some(base) if object.by_id => Made::OfId(id(base)),
            Some(base) => Made::Of(base as u64),
        };
        assert!(ledger.add(at, made, (0, object.bytes)));
    }
    ledger
}

/// Puts the objects together as gix-pack does, with buffers of these sizes. Calls with the place of each object, and the bytes of all buffers
/// that there are while it is made.
fn put_together(objects: &[Object], mut made: impl FnMut(usize, u64)) {
    struct Task {
        at: usize,
        base: Option<Rc<u64>>,
    }
    let wholes = (0..objects.len()).filter(|at| objects[*at].base.is_none());
    let (mut free, mut kept): (u64, Vec<std::rc::Weak<u64>>) = (0, Vec::new());
    for root in wholes {
        let mut todo = vec![Task { at: root, base: None }];
        while let Some(Task { at, base }) = todo.pop() {
            let bytes = objects[at].bytes;
            let mut buffer = bytes;
            if base.is_some() {
                buffer = bytes.max(std::mem::take(&mut free));
            }
            let held: u64 = kept.iter().filter_map(std::rc::Weak::upgrade).map(|one| *one).sum();
            made(at, held + free + buffer);
            // Those that name their base by its id are found when that is made, after the others.
            let of = |by_id| {
                let is = move |one: &usize| {
                    objects[*one].base == Some(at) && objects[*one].by_id == by_id
                };
                (0..objects.len()).filter(is)
            };
            let children: Vec<_> = of(false).chain(of(true)).collect();
            let mut back = None;
            if children.is_empty() {
                back = base.is_some().then_some(buffer);
            } else {
                let shared = Rc::new(buffer);
                kept.push(Rc::downgrade(&shared));
                todo.extend(children.into_iter().map(|at| Task { at, base: Some(shared.clone()) }));
            }
            if let Some(base) = base.and_then(|base| Rc::try_unwrap(base).ok())
                && back.is_none_or(|back| base > back)
            {
                back = Some(base);
            }
            free = back.unwrap_or(free);
        }
    }
}

/// The most that the ledger says.
fn most(objects: &[Object]) -> u64 {
    let (mut ledger, mut most) = (ledger(objects), 0);
    let fixed = BOOKKEEPING * objects.len() as u64;
    put_together(objects, |at, _| most = most.max(ledger.make(at as u64).unwrap() - fixed));
    most
}

/// xorshift: the same seed gives the same pack, everywhere.
fn objects(seed: u64) -> Vec<Object> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xff51_afd7_ed55_8ccd) | 1;
    let mut roll = |sides: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % sides as u64).unwrap()
    };
    let (count, by_id) = (1 + roll(24), roll(3));
    let mut drawn = Vec::new();
    for at in 0..count {
        let base = (at > 0 && roll(6) > 0).then(|| roll(at));
        drawn.push(Object { base, by_id: roll(3) < by_id, bytes: roll(100) as u64 });
    }
    drawn
}

#[test]
fn v21_the_ledger_says_what_there_is_while_each_object_is_made() {
    for seed in 0..5000 {
        let objects = objects(seed);
        let mut ledger = ledger(&objects);
        let fixed = BOOKKEEPING * objects.len() as u64;
        put_together(&objects, |at, bytes| {
            assert_eq!(
                ledger.make(at as u64),
                Some(bytes + fixed),
                "seed {seed}, {at}: {objects:?}"
            );
        });
    }
}

#[test]
fn v21_a_chain_needs_little_and_a_tree_much() {
    let chain: Vec<_> = (1..50).map(|at| delta(at - 1, 10)).collect();
    assert_eq!(most(&[&[whole(10)][..], &chain].concat()), 20, "an object and its base");
    // Two deltas of each object.
    let tree: Vec<_> = (1..63).map(|at: usize| delta((at - 1) / 2, 10)).collect();
    assert_eq!(most(&[&[whole(10)][..], &tree].concat()), 60, "one of each level");
    assert_eq!(most(&[whole(7), whole(9)]), 9);
    // Far too much is no small number.
    assert_eq!(most(&[whole(u64::MAX / 4), delta(0, u64::MAX / 4), delta(0, 1)]), u64::MAX / 4 * 2);
}

#[test]
fn v21_small_objects_that_keep_large_buffers_count_as_much_as_these() {
    // In each level a large one comes first; the small one after it gets its buffer, and keeps it for the next level.
    let mut objects = vec![whole(1)];
    for _ in 0..20 {
        let base = objects.len().saturating_sub(2);
        objects.extend([delta(base, 1), delta(base, 1), delta(base, 60)]);
    }
    assert!(most(&objects) > 1000, "{}", most(&objects));
}

#[test]
fn v21_what_does_not_fit_is_no_number() {
    let mut ledger = ledger(&[whole(1), delta(0, 1)]);
    assert!(!ledger.add(2, Made::Of(1000), (0, 1)), "no such base");
    assert_eq!(ledger.make(1000), None);
    let named = [Object { base: Some(7), by_id: true, bytes: 1 }];
    let mut ledger = super::tests::ledger(&named);
    assert_eq!(ledger.make(0), None, "nothing was made before it");
}

#[test]
fn v21_the_size_of_what_a_delta_makes_is_read_from_its_beginning() {
    for (bytes, size) in [
        (&[5, 7, 0x90][..], Some(7)),
        (&[0x80, 1, 0xff, 1], Some(255)),
        (&[5], None),
        (&[0x80; 30], None),
        (&[], None),
    ] {
        assert_eq!(size_of_result(bytes), size, "{bytes:?}");
    }
}
