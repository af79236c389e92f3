use super::*;

/// An object of a pack: its base, if it is a delta, and its size.
type Object = (Option<usize>, u64);

fn weigh(objects: &[Object]) -> u64 {
    let mut weight = Weight::default();
    for (at, (base, bytes)) in (0..).zip(objects) {
        match base {
            None => weight.whole(at, *bytes),
            Some(base) => weight.delta(at, Some(*base as u64), (0, *bytes)),
        }
    }
    weight.bytes()
}

/// The most memory at the same time when the objects are made depth first, whichever delta of an object comes first. An object is there
/// until the last one that is made of it.
fn measured(objects: &[Object], order: &dyn Fn(&mut Vec<usize>)) -> u64 {
    let made_of = |of: usize| -> Vec<usize> {
        let mut all: Vec<_> =
            (0..objects.len()).filter(|one| objects[*one].0 == Some(of)).collect();
        order(&mut all);
        all
    };
    let mut most = 0;
    let wholes = (0..objects.len()).filter(|one| objects[*one].0.is_none());
    for whole in wholes {
        // What is to be made, and how many wait for each object that is there.
        let (mut todo, mut there) = (vec![whole], std::collections::BTreeMap::new());
        while let Some(one) = todo.pop() {
            let held: u64 = there.keys().map(|one: &usize| objects[*one].1).sum();
            most = most.max(held + objects[one].1);
            if let Some(base) = objects[one].0 {
                let waiting: &mut usize = there.get_mut(&base).unwrap();
                *waiting -= 1;
                if *waiting == 0 {
                    there.remove(&base);
                }
            }
            let next = made_of(one);
            if !next.is_empty() {
                there.insert(one, next.len());
            }
            todo.extend(next);
        }
    }
    most
}

/// xorshift: the same seed gives the same pack, everywhere.
fn objects(seed: u64) -> Vec<Object> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xff51_afd7_ed55_8ccd) | 1;
    let mut roll = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    let mut drawn = Vec::new();
    for at in 0..=roll(20) {
        let base = (at > 0 && roll(5) > 0).then(|| usize::try_from(roll(at)).unwrap());
        drawn.push((base, roll(100)));
    }
    drawn
}

#[test]
fn v21_no_order_of_the_deltas_needs_more_memory_than_is_reckoned() {
    for seed in 0..3000 {
        let objects = objects(seed);
        let reckoned = weigh(&objects);
        let largest = objects.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let orders: [&dyn Fn(&mut Vec<usize>); 4] = [
            &|_| (),
            &|all| all.reverse(),
            &|all| all.sort_by_key(|one| objects[*one].1),
            &|all| all.sort_by_key(|one| std::cmp::Reverse(objects[*one].1)),
        ];
        for order in orders {
            assert!(measured(&objects, order) + largest <= reckoned, "{objects:?}");
        }
        // Each delta names its base by an id, and any object may have it. That never makes it less.
        let mut weight = Weight::default();
        for (at, (base, bytes)) in (0..).zip(&objects) {
            match base {
                None => weight.whole(at, *bytes),
                Some(_) => weight.delta(at, None, (0, *bytes)),
            }
        }
        assert!(weight.bytes() >= reckoned, "{objects:?}");
    }
}

#[test]
fn v21_a_chain_needs_little_and_a_tree_much() {
    let chain: Vec<_> = (0..50).map(|at: usize| (at.checked_sub(1), 10)).collect();
    assert_eq!(weigh(&chain), 30, "two of it, and a buffer");
    // Two deltas of each object.
    let tree: Vec<_> = (0..50).map(|at: usize| (at.checked_sub(1).map(|at| at / 2), 10)).collect();
    assert_eq!(weigh(&tree), 70, "six levels, and a buffer");
    assert_eq!(weigh(&[(None, 7), (None, 9)]), 18);
    assert_eq!(weigh(&[]), 0);
    // Far too much is no small number.
    assert_eq!(weigh(&[(None, u64::MAX), (Some(0), u64::MAX), (Some(0), 1)]), u64::MAX);
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
