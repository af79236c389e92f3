use std::collections::BTreeMap;

use super::*;
use crate::test_rng::TestRng;

#[test]
fn it_is_a_map_and_tells_what_differs_between_copies() {
    for seed in 1..60_u64 {
        let mut rng = TestRng(seed);
        let mut plain: BTreeMap<usize, usize> =
            (0..rng.roll(600)).map(|n| (rng.roll(1000).min(n * 7), n)).collect();
        let mut shared: SharedMap<_, _> = plain.clone().into_iter().collect();
        for _ in 0..30 {
            let (old_plain, old_shared) = (plain.clone(), shared.clone());
            for _ in 0..rng.roll(80) {
                let (key, value) = (rng.roll(1000), rng.roll(3));
                if rng.roll(2) == 0 {
                    assert_eq!(shared.remove(&key), plain.remove(&key));
                } else {
                    assert_eq!(shared.insert(key, value), plain.insert(key, value));
                }
                assert_eq!(shared.get(&value), plain.get(&value));
            }
            assert_eq!(shared.len(), plain.len());
            assert!(shared.iter().eq(plain.iter()), "seed {seed}");
            assert!(shared.chunks.iter().all(|chunk| (1..=MAX_CHUNK_PAIRS).contains(&chunk.len())));
            let bound = rng.roll(1000);
            assert!(shared.iter_from(|key| *key < bound).eq(plain.range(bound..)));
            // The copy has not changed.
            assert!(old_shared.iter().eq(old_plain.iter()));
            let mut reported = BTreeMap::new();
            let mut last = None;
            old_shared.differences(&shared, |key, was, is| {
                assert!(last.replace(*key) < Some(*key), "sorted, each once");
                if was != is {
                    reported.insert(*key, (was.copied(), is.copied()));
                }
            });
            let keys = old_plain.keys().chain(plain.keys());
            let differ = keys
                .map(|key| (*key, (old_plain.get(key).copied(), plain.get(key).copied())))
                .filter(|(_, (was, is))| was != is);
            assert_eq!(reported, differ.collect(), "seed {seed}");
        }
    }
}

#[test]
fn what_is_shared_is_not_looked_at() {
    let old: SharedMap<i32, i32> = (0..10_000).map(|n| (n, n)).collect();
    let mut new = old.clone();
    new.insert(5000, 0);
    new.remove(&7000);
    new.insert(20_000, 1);
    let mut looked = 0;
    old.differences(&new, |_, _, _| looked += 1);
    assert!(looked < 4 * MAX_CHUNK_PAIRS, "{looked}");
}

#[test]
fn of_several_values_the_last_one_counts() {
    let map: SharedMap<i32, char> = [(1, 'a'), (0, 'b'), (1, 'c')].into_iter().collect();
    let pairs: Vec<(i32, char)> = map.iter().map(|(key, value)| (*key, *value)).collect();
    assert_eq!(pairs, [(0, 'b'), (1, 'c')]);
}
