//! A sorted map whose copies share memory.
//!
//! The pairs are kept in chunks of some dozen, each behind an `Arc`. A copy of a map shares all chunks with it, and a
//! change of the copy replaces one chunk. Comparing two copies skips the chunks that they share. One list of chunks is
//! enough for the objects of one repository.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// Most pairs in one chunk.
const MAX_CHUNK_PAIRS: usize = 64;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// A sorted map that is cheap to copy and to compare with its copies.
pub struct SharedMap<K, V> {
    /// No chunk is empty. Keys ascend within a chunk, and from one chunk to the next.
    chunks: Vec<Chunk<K, V>>,
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
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        Some(&chunk[at].1)
    }

    /// Whether there is such a key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key. Returns the value before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let index = self.chunk_of(&key);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => Some(std::mem::replace(&mut chunk[at].1, value)),
            Err(at) => {
                chunk.insert(at, (key, value));
                self.len += 1;
                if chunk.len() > MAX_CHUNK_PAIRS {
                    let rest = chunk.split_off(MAX_CHUNK_PAIRS / 2);
                    self.chunks.insert(index + 1, Arc::new(rest));
                }
                None
            }
        }
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(index)?;
        let at = chunk.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        let chunk = Arc::make_mut(chunk);
        let (_, value) = chunk.remove(at);
        self.len -= 1;
        let left = chunk.len();
        if left == 0 {
            self.chunks.remove(index);
        } else if left < MAX_CHUNK_PAIRS / 4
            && self
                .chunks
                .get(index + 1)
                .is_some_and(|next| left + next.len() <= MAX_CHUNK_PAIRS / 2)
        {
            let next = self.chunks.remove(index + 1);
            Arc::make_mut(&mut self.chunks[index]).extend(next.iter().cloned());
        }
        Some(value)
    }

    /// The index of the chunk that a key is in, or would be inserted into.
    fn chunk_of(&self, key: &K) -> usize {
        let after = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first <= key));
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
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    /// The pairs whose keys are not `before` some bound. The keys before the bound must be the first ones of the map.
    pub fn iter_from(&self, before: impl Fn(&K) -> bool) -> impl Iterator<Item = (&K, &V)> {
        let first =
            self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| before(last)));
        let pairs = self.chunks[first..].iter().flat_map(|chunk| chunk.iter());
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
    /// Calls `differs` for each key whose value may differ in `new`, sorted: with the key, the value here, and the value in
    /// `new`. Keys in chunks that both maps share are skipped. The values of other keys are not compared and may be equal.
    pub fn differences<'a>(
        &'a self,
        new: &'a Self,
        mut differs: impl FnMut(&'a K, Option<&'a V>, Option<&'a V>),
    ) {
        let (mut olds, mut news) = (Cursor::of(self), Cursor::of(new));
        loop {
            while olds.shares(&news) {
                olds.chunk += 1;
                news.chunk += 1;
            }
            match (olds.peek(), news.peek()) {
                (Some((old, was)), Some((new, is))) => match old.cmp(new) {
                    std::cmp::Ordering::Less => {
                        differs(old, Some(was), None);
                        olds.step();
                    }
                    std::cmp::Ordering::Greater => {
                        differs(new, None, Some(is));
                        news.step();
                    }
                    std::cmp::Ordering::Equal => {
                        differs(new, Some(was), Some(is));
                        olds.step();
                        news.step();
                    }
                },
                (Some((old, was)), None) => {
                    differs(old, Some(was), None);
                    olds.step();
                }
                (None, Some((new, is))) => {
                    differs(new, None, Some(is));
                    news.step();
                }
                (None, None) => return,
            }
        }
    }
}

/// A position in a map.
struct Cursor<'a, K, V> {
    chunks: &'a [Chunk<K, V>],
    chunk: usize,
    at: usize,
}

impl<'a, K, V> Cursor<'a, K, V> {
    fn of(map: &'a SharedMap<K, V>) -> Self {
        Self { chunks: &map.chunks, chunk: 0, at: 0 }
    }

    fn peek(&self) -> Option<(&'a K, &'a V)> {
        self.chunks.get(self.chunk)?.get(self.at).map(|(key, value)| (key, value))
    }

    fn step(&mut self) {
        self.at += 1;
        if self.chunks.get(self.chunk).is_some_and(|chunk| self.at >= chunk.len()) {
            (self.chunk, self.at) = (self.chunk + 1, 0);
        }
    }

    /// Whether both are at the beginning of the same chunk.
    fn shares(&self, other: &Self) -> bool {
        let chunks = (self.chunks.get(self.chunk), other.chunks.get(other.chunk));
        self.at == 0
            && other.at == 0
            && matches!(chunks, (Some(one), Some(two)) if Arc::ptr_eq(one, two))
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
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

/// When a key has several values, the last one counts.
impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut sorted: Vec<_> = pairs.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        // Reversed, because `dedup_by` keeps the first of several values, and the last one counts.
        sorted.reverse();
        sorted.dedup_by(|(a, _), (b, _)| a == b);
        let len = sorted.len();
        let mut chunks = Vec::with_capacity(len.div_ceil(MAX_CHUNK_PAIRS));
        while !sorted.is_empty() {
            let rest = sorted.len().saturating_sub(MAX_CHUNK_PAIRS);
            let mut chunk = sorted.split_off(rest);
            chunk.reverse();
            chunks.push(Arc::new(chunk));
        }
        Self { chunks, len }
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

    /// Panics when the map does not have the key.
    #[allow(clippy::expect_used, reason = "indexing a map panics when the key is missing")]
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
#[path = "tests/shared_map.rs"]
mod tests;
