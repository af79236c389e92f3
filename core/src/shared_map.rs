//! A sorted map whose copies share what they have in common: a copy with one change costs that change, and what
//! differs between two copies is found without looking at the rest.
//!
//! The pairs lie in pieces of some dozen, each behind an `Arc`: two levels of a B-tree are enough for what one
//! repository holds.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// Pairs in one piece.
const MOST: usize = 64;

type Piece<K, V> = Arc<Vec<(K, V)>>;

/// See the module.
pub struct SharedMap<K, V> {
    /// None is empty; keys ascend, also from one to the next.
    pieces: Vec<Piece<K, V>>,
    len: usize,
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let piece = self.pieces.get(self.piece(key))?;
        let at = piece.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        Some(&piece[at].1)
    }

    /// Whether there is such a key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key; gives the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let index = self.piece(&key);
        let Some(piece) = self.pieces.get_mut(index) else {
            self.pieces.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return None;
        };
        let piece = Arc::make_mut(piece);
        match piece.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => Some(std::mem::replace(&mut piece[at].1, value)),
            Err(at) => {
                piece.insert(at, (key, value));
                self.len += 1;
                if piece.len() > MOST {
                    let rest = piece.split_off(MOST / 2);
                    self.pieces.insert(index + 1, Arc::new(rest));
                }
                None
            }
        }
    }

    /// Takes a key out; gives its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.piece(key);
        let piece = self.pieces.get_mut(index)?;
        let at = piece.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        let piece = Arc::make_mut(piece);
        let (_, value) = piece.remove(at);
        self.len -= 1;
        let left = piece.len();
        if left == 0 {
            self.pieces.remove(index);
        } else if left < MOST / 4
            && self.pieces.get(index + 1).is_some_and(|next| left + next.len() <= MOST / 2)
        {
            let next = self.pieces.remove(index + 1);
            Arc::make_mut(&mut self.pieces[index]).extend(next.iter().cloned());
        }
        Some(value)
    }

    /// Where a key is, or would be put.
    fn piece(&self, key: &K) -> usize {
        let after = self
            .pieces
            .partition_point(|piece| piece.first().is_some_and(|(first, _)| first <= key));
        after.saturating_sub(1)
    }
}

impl<K, V> SharedMap<K, V> {
    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pairs, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pieces.iter().flat_map(|piece| piece.iter()).map(|(key, value)| (key, value))
    }

    /// The pairs from the first one on for which `before` is false; it must be true for those before it and only them.
    pub fn iter_from(&self, before: impl Fn(&K) -> bool) -> impl Iterator<Item = (&K, &V)> {
        let first =
            self.pieces.partition_point(|piece| piece.last().is_some_and(|(last, _)| before(last)));
        let pairs = self.pieces[first..].iter().flat_map(|piece| piece.iter());
        pairs.skip_while(move |(key, _)| before(key)).map(|(key, value)| (key, value))
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, by key.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// Tells of each key that is not certainly the same in `new`, sorted: the value here and the value there. Both may be
    /// equal all the same. What the two maps share is passed over.
    pub fn differences<'a>(
        &'a self,
        new: &'a Self,
        mut tell: impl FnMut(&'a K, Option<&'a V>, Option<&'a V>),
    ) {
        let (mut olds, mut news) = (Cursor::of(self), Cursor::of(new));
        loop {
            while olds.shares(&news) {
                olds.piece += 1;
                news.piece += 1;
            }
            match (olds.peek(), news.peek()) {
                (Some((old, was)), Some((new, is))) => match old.cmp(new) {
                    std::cmp::Ordering::Less => {
                        tell(old, Some(was), None);
                        olds.step();
                    }
                    std::cmp::Ordering::Greater => {
                        tell(new, None, Some(is));
                        news.step();
                    }
                    std::cmp::Ordering::Equal => {
                        tell(new, Some(was), Some(is));
                        olds.step();
                        news.step();
                    }
                },
                (Some((old, was)), None) => {
                    tell(old, Some(was), None);
                    olds.step();
                }
                (None, Some((new, is))) => {
                    tell(new, None, Some(is));
                    news.step();
                }
                (None, None) => return,
            }
        }
    }
}

/// A place in a map.
struct Cursor<'a, K, V> {
    pieces: &'a [Piece<K, V>],
    piece: usize,
    at: usize,
}

impl<'a, K, V> Cursor<'a, K, V> {
    fn of(map: &'a SharedMap<K, V>) -> Self {
        Self { pieces: &map.pieces, piece: 0, at: 0 }
    }

    fn peek(&self) -> Option<(&'a K, &'a V)> {
        self.pieces.get(self.piece)?.get(self.at).map(|(key, value)| (key, value))
    }

    fn step(&mut self) {
        self.at += 1;
        if self.pieces.get(self.piece).is_some_and(|piece| self.at >= piece.len()) {
            (self.piece, self.at) = (self.piece + 1, 0);
        }
    }

    /// Whether both stand at the beginning of the same piece.
    fn shares(&self, other: &Self) -> bool {
        let pieces = (self.pieces.get(self.piece), other.pieces.get(other.piece));
        self.at == 0
            && other.at == 0
            && matches!(pieces, (Some(one), Some(two)) if Arc::ptr_eq(one, two))
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self { pieces: self.pieces.clone(), len: self.len }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { pieces: Vec::new(), len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

/// Of several values of one key the last one counts.
impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut sorted: Vec<_> = pairs.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Keeps the last of its kind, where `dedup` would keep the first.
        sorted.reverse();
        sorted.dedup_by(|(a, _), (b, _)| a == b);
        let len = sorted.len();
        let mut pieces = Vec::with_capacity(len.div_ceil(MOST));
        while !sorted.is_empty() {
            let rest = sorted.len().saturating_sub(MOST);
            let mut piece = sorted.split_off(rest);
            piece.reverse();
            pieces.push(Arc::new(piece));
        }
        Self { pieces, len }
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, pairs: T) {
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

impl<K: Ord + Clone, V: Clone> Index<&K> for SharedMap<K, V> {
    type Output = V;

    /// For keys that are known to be there.
    #[allow(clippy::expect_used, reason = "what an index means")]
    fn index(&self, key: &K) -> &V {
        self.get(key).expect("a key of the map")
    }
}

impl<'a, K, V> IntoIterator for &'a SharedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Box<dyn Iterator<Item = (&'a K, &'a V)> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dice::Dice;

    #[test]
    fn it_is_a_map_and_tells_what_differs_between_copies() {
        for seed in 1..60_u64 {
            let mut dice = Dice(seed);
            let mut plain: BTreeMap<usize, usize> =
                (0..dice.roll(600)).map(|n| (dice.roll(1000).min(n * 7), n)).collect();
            let mut shared: SharedMap<_, _> = plain.clone().into_iter().collect();
            for _ in 0..30 {
                let (old_plain, old_shared) = (plain.clone(), shared.clone());
                for _ in 0..dice.roll(80) {
                    let (key, value) = (dice.roll(1000), dice.roll(3));
                    if dice.roll(2) == 0 {
                        assert_eq!(shared.remove(&key), plain.remove(&key));
                    } else {
                        assert_eq!(shared.insert(key, value), plain.insert(key, value));
                    }
                    assert_eq!(shared.get(&value), plain.get(&value));
                }
                assert_eq!(shared.len(), plain.len());
                assert!(shared.iter().eq(plain.iter()), "seed {seed}");
                assert!(shared.pieces.iter().all(|piece| (1..=MOST).contains(&piece.len())));
                let bound = dice.roll(1000);
                assert!(shared.iter_from(|key| *key < bound).eq(plain.range(bound..)));
                // The copy is what it was.
                assert!(old_shared.iter().eq(old_plain.iter()));
                let mut told = BTreeMap::new();
                let mut last = None;
                old_shared.differences(&shared, |key, was, is| {
                    assert!(last.replace(*key) < Some(*key), "sorted, each once");
                    if was != is {
                        told.insert(*key, (was.copied(), is.copied()));
                    }
                });
                let keys = old_plain.keys().chain(plain.keys());
                let differ = keys
                    .map(|key| (*key, (old_plain.get(key).copied(), plain.get(key).copied())))
                    .filter(|(_, (was, is))| was != is);
                assert_eq!(told, differ.collect(), "seed {seed}");
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
        assert!(looked < 4 * MOST, "{looked}");
    }

    #[test]
    fn of_several_values_the_last_one_counts() {
        let map: SharedMap<i32, char> = [(1, 'a'), (0, 'b'), (1, 'c')].into_iter().collect();
        let pairs: Vec<(i32, char)> = map.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(pairs, [(0, 'b'), (1, 'c')]);
    }
}
