//! (pure) Keyed digests of what pods read: proof that something changed, and no help in guessing what it is.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::hmac;

use super::references::{Reference, Source, Use};

/// Bytes of the key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a digest that are shown: enough that no two values meet, and short in an annotation.
const SHOWN_BYTES: usize = 16;

type Digest = [u8; 32];

fn bytes(tag: &hmac::Tag) -> Digest {
    let mut digest = [0; 32];
    digest.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    digest
}

/// The operator's key. Not printable.
pub struct MacKey(hmac::Key);

impl MacKey {
    /// A key from its bytes.
    #[must_use]
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// What is kept of one object: the digest of each of its values.
    #[must_use]
    pub fn digests<'a>(&self, data: impl IntoIterator<Item = (String, &'a [u8])>) -> Digests {
        let digest = |value| {
            let mut all = hmac::Context::with_key(&self.0);
            all.update(b"value");
            all.update(value);
            bytes(&all.sign())
        };
        Digests(data.into_iter().map(|(key, value)| (key, digest(value))).collect())
    }

    /// The digest of what is read of one object, in hexadecimal digits. A key that the object lacks counts as that.
    #[must_use]
    pub fn component(
        &self,
        namespace: &str,
        reference: &Reference,
        used: &Use,
        object: &Digests,
    ) -> String {
        let mut all = hmac::Context::with_key(&self.0);
        all.update(b"component");
        // Each part with its length: no two lists of parts look the same.
        let mut add = |part: &[u8]| {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        };
        add(reference.source.as_str().as_bytes());
        add(namespace.as_bytes());
        add(reference.name.as_bytes());
        let mut read: BTreeMap<&str, Option<&Digest>> =
            used.keys.iter().map(|key| (key.as_str(), object.0.get(key))).collect();
        if used.all {
            read.extend(object.0.iter().map(|(key, digest)| (key.as_str(), Some(digest))));
        }
        for (key, digest) in read {
            add(key.as_bytes());
            add(digest.map_or(&[], |digest| &digest[..]));
        }
        let digest = bytes(&all.sign());
        digest[..SHOWN_BYTES].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(…)")
    }
}

/// What is kept of a ConfigMap or Secret: a digest of each value, by key.
#[derive(PartialEq, Eq)]
pub struct Digests(BTreeMap<String, Digest>);

impl Digests {
    /// What it counts in the [`Budget`](crate::cluster::budget::Budget) of its namespace: one, and one for each key.
    #[must_use]
    pub fn weight(&self) -> usize {
        1 + self.0.len()
    }
}

impl fmt::Debug for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The annotation: for each object that pods read its digest, as far as it was ever known.
///
/// `ConfigMap/<name>=<32 hexadecimal digits>,Secret/<name>=…`, sorted. Names hold neither `=` nor `,`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Components(pub BTreeMap<Reference, String>);

impl Components {
    /// Reads an annotation. What is not ours is left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let one = |part: &str| {
            let (object, digest) = part.split_once('=')?;
            let (kind, name) = object.split_once('/')?;
            let source =
                [Source::ConfigMap, Source::Secret].into_iter().find(|s| s.as_str() == kind)?;
            let hex =
                digest.len() == 2 * SHOWN_BYTES && digest.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| (Reference { source, name: name.to_owned() }, digest.to_owned()))
        };
        Self(text.split(',').filter_map(one).collect())
    }

    /// The annotation; `None` when there is nothing to say.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let one = |(r, digest): (&Reference, &String)| {
            format!("{}/{}={digest}", r.source.as_str(), r.name)
        };
        (!self.0.is_empty()).then(|| self.0.iter().map(one).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
#[path = "tests/digest.rs"]
mod tests;
