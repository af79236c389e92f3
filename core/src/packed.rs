//! Objects in few bytes: what is kept of the many that are rarely looked into.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lz4_flex::block::{compress_with_dict, decompress_with_dict};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::keys;

/// After so many values a sample may be replaced by one that is more like them: then samples themselves cost next to
/// nothing.
const SAMPLE_USES: u32 = 256;
/// A value that takes more than this part of its length is not like the sample.
const ALIKE: usize = 4;
/// What LZ4 can refer back to.
const SAMPLE_BYTES: usize = 64 << 10;

/// Values that look alike, as the Deployments of all agents do. One of them is the sample: of the others, only what it
/// does not have is kept.
#[derive(Default)]
pub struct Family {
    sample: RwLock<Option<Arc<[u8]>>>,
    /// How many values were packed with this sample.
    uses: AtomicU32,
}

impl Family {
    /// A family without a sample: the first value will be it.
    #[must_use]
    pub const fn new() -> Self {
        Self { sample: RwLock::new(None), uses: AtomicU32::new(0) }
    }

    /// Packs plain data: values with string keys, whose writing cannot fail.
    #[must_use]
    pub fn pack(&self, value: &impl Serialize) -> Packed {
        self.pack_text(&serde_json::to_vec(value).unwrap_or_default())
    }

    /// Packs a value that is JSON text already.
    #[must_use]
    pub fn pack_text(&self, text: &[u8]) -> Packed {
        let sample = self.sample.read().clone();
        if let Some(sample) = sample {
            let packed = Packed::like(sample, text);
            let worn = self.uses.fetch_add(1, Ordering::Relaxed) >= SAMPLE_USES;
            if !worn || packed.bytes.len() <= text.len() / ALIKE {
                return packed;
            }
        }
        let sample: Arc<[u8]> = text[..text.len().min(SAMPLE_BYTES)].into();
        *self.sample.write() = Some(sample.clone());
        self.uses.store(0, Ordering::Relaxed);
        Packed::like(sample, text)
    }
}

/// A value as JSON text, compressed. A typed object with its maps takes a hundred times as much memory.
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
    fn like(sample: Arc<[u8]>, text: &[u8]) -> Self {
        let bytes = compress_with_dict(text, &sample).into_boxed_slice();
        Self { sample, length: text.len(), bytes }
    }

    /// The JSON text.
    fn text(&self) -> Option<Vec<u8>> {
        decompress_with_dict(&self.bytes, self.length, &self.sample).ok()
    }

    /// Length of the JSON text in bytes. How many it takes depends on what was packed before.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// How many bytes it takes, without the sample.
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

/// Several strings in one piece of memory.
///
/// Each is its length and its bytes; a length of 255 or more is that byte and four more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts(Box<[u8]>);

impl Texts {
    /// Longest length that one byte says.
    const SHORT: u8 = 254;

    /// These strings. One beyond 4 GiB is cut off: Kubernetes has none.
    #[must_use]
    pub fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Vec::new();
        for text in texts {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            match u8::try_from(length) {
                Ok(short) if short <= Self::SHORT => all.push(short),
                _ => {
                    all.push(u8::MAX);
                    all.extend(length.to_le_bytes());
                }
            }
            all.extend(text.bytes().take(length as usize));
        }
        Self(all.into_boxed_slice())
    }

    /// All of them, in order.
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

    /// The one at this place, from 0.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&str> {
        self.iter().nth(place)
    }
}

/// Labels or annotations, sorted. Our own names cost one byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs(Texts);

impl Pairs {
    /// Characters that no label or annotation starts with, one for each of our own names.
    const CODES: &str = "\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}\u{8}\t\n\u{b}\u{c}\r\u{e}\u{f}\u{10}";

    /// The pairs of a map.
    #[must_use]
    pub fn of(map: Option<&BTreeMap<String, String>>) -> Self {
        let pairs = map.into_iter().flatten();
        Self(Texts::of(pairs.flat_map(|(name, value)| [Self::short(name), value.as_str()])))
    }

    /// How a name is kept.
    fn short(name: &str) -> &str {
        let known = keys::ON_OBJECTS.iter().position(|known| *known == name);
        known.and_then(|place| Self::CODES.get(place..=place)).unwrap_or(name)
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let (name, mut texts) = (Self::short(name), self.0.iter());
        while let (Some(have), Some(value)) = (texts.next(), texts.next()) {
            if have == name {
                return Some(value);
            }
        }
        None
    }

    /// Whether all of these are there with the same values.
    #[must_use]
    pub fn cover(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted.iter().all(|(name, value)| self.get(name) == Some(value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_packed_value_comes_out_as_it_went_in() {
        let family = Family::new();
        let value = json!({"a": [1, 2.5, null, "text"], "b": {"c": true}});
        assert_eq!(family.pack(&value).json(), value, "the sample itself");
        assert_eq!(family.pack(&value).json(), value, "and what is like it");
        let long = json!("0123456789".repeat(20_000));
        assert_eq!(family.pack(&long).json(), long);
        let other = Family::new();
        assert_eq!(other.pack(&long).json(), long, "longer than a sample");
        assert_eq!(other.pack(&"x").get::<u8>(), None);
    }

    #[test]
    fn what_looks_alike_takes_little_and_samples_follow() {
        let family = Family::new();
        let words = |seed: usize| -> String {
            let word = |n: usize| format!("{:x}", (n + seed).wrapping_mul(0x9e37_79b9));
            (0..200).map(word).collect::<Vec<_>>().join(" ")
        };
        let (old, new) = (words(1), words(1_000_000));
        let value = |text: &str, n: usize| json!({"name": n, "text": text});
        let first = family.pack(&value(&old, 0));
        assert!(family.pack(&value(&old, 1)).bytes.len() < old.len() / 20);
        let unlike = family.pack(&value(&new, 0));
        assert!(unlike.bytes.len() > new.len() / 4, "{unlike:?}");
        for n in 0..SAMPLE_USES as usize {
            assert_eq!(family.pack(&value(&new, n)).json(), value(&new, n));
        }
        assert!(family.pack(&value(&new, 1)).bytes.len() < new.len() / 20, "a sample of its own");
        assert_eq!(first.json(), value(&old, 0), "an earlier sample lives as long as it is used");
        // How it is packed is no part of a value.
        assert_eq!(family.pack(&value(&old, 0)), first);
        assert_ne!(family.pack(&value(&old, 1)), first);
    }

    #[test]
    fn texts_come_out_as_they_went_in() {
        let long = "ü".repeat(400);
        let all = ["", "a", &long[..254], &long[..256], &long, ""];
        assert_eq!(Texts::of(all).iter().collect::<Vec<_>>(), all);
        assert_eq!((Texts::of(all).get(1), Texts::of(all).get(6)), (Some("a"), None));
        assert_eq!(Texts::of([]).iter().count(), 0);
    }

    #[test]
    fn pairs_are_found_and_compared() {
        assert!(keys::ON_OBJECTS.len() <= Pairs::CODES.len());
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let pairs = Pairs::of(Some(&map(&[(keys::OWNER, "me"), ("team", "a"), ("zone", "")])));
        assert_eq!(pairs.get(keys::OWNER), Some("me"));
        assert_eq!((pairs.get("zone"), pairs.get("z")), (Some(""), None));
        assert_eq!(pairs.get("me"), None, "a value is no name");
        assert!(pairs.cover(&map(&[("team", "a")])) && pairs.cover(&BTreeMap::new()));
        assert!(!pairs.cover(&map(&[("team", "b")])) && !pairs.cover(&map(&[("other", "")])));
        assert_eq!(Pairs::of(None), Pairs::default());
    }
}
