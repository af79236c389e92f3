//! (pure) Keyed digests of what pods read. They show that a value has changed, but not what it is.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::hmac;
use convoke_core::text::hex;

use super::references::{Reference, Source, Use};
use crate::cluster::hidden::Hidden;

/// Bytes of the key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a digest in the annotation: enough to tell any two values apart, and short.
const ANNOTATION_BYTES: usize = 16;

type Digest = [u8; 32];

fn bytes(tag: &hmac::Tag) -> Digest {
    let mut digest = [0; 32];
    digest.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    digest
}

/// The operator's key. Its debug output does not show it.
pub struct MacKey(hmac::Key);

impl MacKey {
    /// A key from its bytes.
    #[must_use]
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The digest of each value of an object.
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

    /// The digest of what pods read of an object, in hexadecimal digits. A missing key counts as missing, not as empty.
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
        // Each part comes with its length, so that two different lists of parts have different digests.
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
        hex(&bytes(&all.sign())[..ANNOTATION_BYTES])
    }

    /// A key for another purpose, in 64 hexadecimal digits. The first part says for which.
    #[must_use]
    pub fn derive(&self, parts: &[&str]) -> Hidden<String> {
        let parts = parts.iter().map(|part| part.as_bytes());
        Hidden::new(hex(&bytes(&self.sign(b"derive", parts))))
    }

    /// A digest of these parts, in hexadecimal digits. It tells nothing of them to those without the key.
    #[must_use]
    pub fn seal<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> String {
        hex(&bytes(&self.sign(b"seal", parts))[..ANNOTATION_BYTES])
    }

    /// The MAC of parts. `domain` keeps apart what the same parts are used for.
    fn sign<'a>(&self, domain: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> hmac::Tag {
        let mut all = hmac::Context::with_key(&self.0);
        all.update(domain);
        for part in parts {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        }
        all.sign()
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(…)")
    }
}

/// All that is kept of a ConfigMap or Secret: the digest of each value, by key.
#[derive(PartialEq, Eq)]
pub struct Digests(BTreeMap<String, Digest>);

impl Digests {
    /// What an object counts in the [`Budget`](crate::cluster::budget::Budget) of its namespace: one, and one more for each key.
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

/// The annotation of pods: the digest of each object that they read, if it was ever known.
///
/// `ConfigMap/<name>=<32 hexadecimal digits>,Secret/<name>=…`, sorted. Names hold neither `=` nor `,`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Components(pub BTreeMap<Reference, String>);

impl Components {
    /// Parses an annotation. Parts in another format are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let one = |part: &str| {
            let (object, digest) = part.split_once('=')?;
            let (kind, name) = object.split_once('/')?;
            let source =
                [Source::ConfigMap, Source::Secret].into_iter().find(|s| s.as_str() == kind)?;
            let hex = digest.len() == 2 * ANNOTATION_BYTES
                && digest.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| (Reference { source, name: name.to_owned() }, digest.to_owned()))
        };
        Self(text.split(',').filter_map(one).collect())
    }

    /// The text of the annotation; `None` when there are no digests.
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
