//! Compact forms of values that are many and rarely read: compressed JSON, and strings in one allocation
//! (docs/decisions/0011).

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lz4_flex::block::{compress_with_dict, decompress_with_dict};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A sample is replaced after so many values at the earliest: then the samples themselves cost next to nothing.
const MIN_USES_OF_SAMPLE: u32 = 256;
/// A value that compresses to more than its length divided by this is not like the sample.
const MIN_COMPRESSION_RATIO: usize = 4;
/// Longest sample: LZ4 cannot refer back further.
const MAX_SAMPLE_BYTES: usize = 64 << 10;

/// Values that look alike, such as the Deployments of all agents. One of them is the sample, the dictionary that the
/// others are compressed with.
#[derive(Default)]
pub struct Family {
    sample: RwLock<Option<Arc<[u8]>>>,
    /// How many values were packed with this sample.
    uses: AtomicU32,
}

impl Family {
    /// A family without a sample. The first value that is packed becomes the sample.
    #[must_use]
    pub const fn new() -> Self {
        Self { sample: RwLock::new(None), uses: AtomicU32::new(0) }
    }

    /// Packs a value. Its maps must have string keys: then writing it as JSON cannot fail.
    #[must_use]
    pub fn pack(&self, value: &impl Serialize) -> Packed {
        self.pack_text(&serde_json::to_vec(value).unwrap_or_default())
    }

    /// Packs a value that is JSON text already.
    #[must_use]
    pub fn pack_text(&self, text: &[u8]) -> Packed {
        let sample = self.sample.read().clone();
        if let Some(sample) = sample {
            let packed = Packed::with_sample(sample, text);
            let replaceable = self.uses.fetch_add(1, Ordering::Relaxed) >= MIN_USES_OF_SAMPLE;
            if !replaceable || packed.bytes.len() <= text.len() / MIN_COMPRESSION_RATIO {
                return packed;
            }
        }
        let sample: Arc<[u8]> = text[..text.len().min(MAX_SAMPLE_BYTES)].into();
        *self.sample.write() = Some(sample.clone());
        self.uses.store(0, Ordering::Relaxed);
        Packed::with_sample(sample, text)
    }
}

/// A value as compressed JSON text. A typed object with its maps takes a hundred times as much memory.
#[derive(Clone)]
pub struct Packed {
    sample: Arc<[u8]>,
    /// Length of the text.
    length: usize,
    bytes: Box<[u8]>,
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.bytes.len())
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.text() == other.text()
    }
}

impl Eq for Packed {}

impl Packed {
    /// Compresses a text with a sample as the dictionary.
    fn with_sample(sample: Arc<[u8]>, text: &[u8]) -> Self {
        let bytes = compress_with_dict(text, &sample).into_boxed_slice();
        Self { sample, length: text.len(), bytes }
    }

    /// The JSON text.
    fn text(&self) -> Option<Vec<u8>> {
        decompress_with_dict(&self.bytes, self.length, &self.sample).ok()
    }

    /// Length of the JSON text in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// How many bytes the compressed text takes, without the sample. This depends on what was packed before.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The value, as the type that was packed.
    #[must_use]
    pub fn get<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.text()?).ok()
    }

    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        self.get().unwrap_or_default()
    }
}

/// Several strings in one allocation.
///
/// Each string is kept as its length and its bytes. A length of up to 254 takes one byte. A longer one takes the byte 255
/// and four bytes of length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts(Box<[u8]>);

impl Texts {
    /// Longest length that is kept in one byte.
    const MAX_ONE_BYTE_LENGTH: u8 = 254;

    /// Keeps these strings. A string of more than 4 GiB is cut: no field of an object is that long.
    #[must_use]
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Vec::new();
        for text in texts {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            match u8::try_from(length) {
                Ok(short) if short <= Self::MAX_ONE_BYTE_LENGTH => all.push(short),
                _ => {
                    all.push(u8::MAX);
                    all.extend(length.to_le_bytes());
                }
            }
            all.extend(text.bytes().take(length as usize));
        }
        Self(all.into_boxed_slice())
    }

    /// All strings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (first, mut after) = rest.split_first()?;
            let mut length = usize::from(*first);
            if *first == u8::MAX {
                let (long, text) = after.split_first_chunk::<4>()?;
                length = usize::try_from(u32::from_le_bytes(*long)).ok()?;
                after = text;
            }
            let (text, after) = after.split_at_checked(length)?;
            rest = after;
            std::str::from_utf8(text).ok()
        })
    }

    /// The string at this index, from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&str> {
        self.iter().nth(index)
    }
}

/// Labels or annotations, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs(Texts);

impl Pairs {
    /// The pairs of a map.
    #[must_use]
    pub fn of(map: Option<&BTreeMap<String, String>>) -> Self {
        let pairs = map.into_iter().flatten();
        Self(Texts::of(pairs.flat_map(|(name, value)| [name.as_str(), value.as_str()])))
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find_map(|(have, value)| (have == name).then_some(value))
    }

    /// All names with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.0.iter();
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// The same as a map.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether all pairs of `wanted` are among these, with the same values.
    #[must_use]
    pub fn cover(&self, wanted: &Self) -> bool {
        wanted.iter().all(|(name, value)| self.get(name) == Some(value))
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
#[path = "tests/packed.rs"]
mod tests;
