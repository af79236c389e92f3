//! (pure) Objects in few bytes: what is kept of the many that are rarely looked into.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::keys;

/// A value as JSON text. A typed object with its maps takes ten times as much memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.0.len())
    }
}

impl Packed {
    /// Packs plain data: values with string keys, whose writing cannot fail.
    #[must_use]
    pub fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_vec(value).unwrap_or_default().into_boxed_slice())
    }

    /// How many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The value, as the type that was packed.
    #[must_use]
    pub fn get<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.0).ok()
    }

    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        self.get().unwrap_or_default()
    }
}

/// Labels or annotations, sorted. Our own names cost no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs(Box<[(Cow<'static, str>, Box<str>)]>);

impl Pairs {
    /// The pairs of a map.
    #[must_use]
    pub fn of(map: Option<BTreeMap<String, String>>) -> Self {
        let known = |name: String| match keys::ON_OBJECTS.iter().find(|known| **known == name) {
            Some(known) => Cow::Borrowed(*known),
            None => Cow::Owned(name.into_boxed_str().into_string()),
        };
        let pairs = map.into_iter().flatten();
        Self(pairs.map(|(name, value)| (known(name), value.into_boxed_str())).collect())
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(have, _)| have.as_ref().cmp(name)).ok()?;
        Some(&self.0[at].1)
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
        let value = json!({"a": [1, 2.5, null, "text"], "b": {"c": true}});
        assert_eq!(Packed::of(&value).json(), value);
        assert_eq!(Packed::of(&"x").get::<u8>(), None);
    }

    #[test]
    fn pairs_are_found_and_compared() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let pairs = Pairs::of(Some(map(&[(keys::OWNER, "me"), ("team", "a"), ("zone", "")])));
        assert_eq!(pairs.get(keys::OWNER), Some("me"));
        assert_eq!((pairs.get("zone"), pairs.get("z")), (Some(""), None));
        assert!(pairs.cover(&map(&[("team", "a")])) && pairs.cover(&BTreeMap::new()));
        assert!(!pairs.cover(&map(&[("team", "b")])) && !pairs.cover(&map(&[("other", "")])));
        assert_eq!(Pairs::of(None), Pairs::default());
    }
}
