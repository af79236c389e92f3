//! (pure) Signatures of commits and tags: who signed an object, as far as given public keys tell.
//!
//! ```text
//! object  ─► what is signed, and its signature, as Git splits them
//! armor   ─► the bytes of an armored block
//! openpgp ─► OpenPGP signatures, with certificate: which keys of a certificate may sign
//! ssh     ─► signatures of ssh keys
//! ```
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod armor;
mod certificate;
mod object;
mod openpgp;
mod ssh;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gix::hash::Kind;
use pgp::packet::Signature;

use self::certificate::{Certificate, Parsed};
pub(super) use self::object::MAX_TAG_BYTES;
use self::object::Signed;
use super::error::printable;

/// Bytes that all keys of a Secret may have.
const MAX_KEYS_BYTES: usize = 256 << 10;
/// How many keys a Secret may have, with all subkeys. A commit may name each as its signer, and is hashed for each that it names.
const MAX_KEYS: usize = 500;
/// How the names of the Secret's values end: OpenPGP certificates, and public keys for ssh.
const OPENPGP: &str = ".asc";
const SSH: &str = ".sshpub";
/// How much the clocks of people who sign may be ahead of ours, in seconds.
const MAX_AHEAD: u64 = 10 * 60;

/// The public keys that may sign.
#[derive(Clone, Default)]
pub struct Keys {
    /// The values of the Secret that were read.
    data: BTreeMap<String, Vec<u8>>,
    certificates: Vec<Certificate>,
    /// Revocations of keys and subkeys.
    revocations: Vec<Signature>,
    ssh: Vec<ssh::Key>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.len())
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl Eq for Keys {}

/// Why the data of a Secret are no keys. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct NoKeys {
    /// What is wrong.
    pub problem: String,
    /// How to mend it.
    pub hint: &'static str,
}

impl Keys {
    /// Reads the data of a Secret: `*.asc` are armored OpenPGP certificates, `*.sshpub` lines with public ssh keys. Other values are
    /// ignored.
    ///
    /// # Errors
    /// When there is no key, when a value has none or cannot be read, and when there are more than 500 keys (with subkeys) or 256 KiB of them.
    pub fn of(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, NoKeys> {
        let mut keys = Self::default();
        let mut bytes = 0;
        for (name, value) in data {
            let is_ssh = name.ends_with(SSH);
            if !is_ssh && !name.ends_with(OPENPGP) {
                continue;
            }
            bytes += value.len();
            if bytes > MAX_KEYS_BYTES {
                return Err(NoKeys {
                    problem: format!("its keys have more than {MAX_KEYS_BYTES} bytes"),
                    hint: "export them without signatures of others: gpg --export --export-options export-minimal --armor",
                });
            }
            let read = std::str::from_utf8(value).map_err(|_| "it is no text".to_owned());
            if is_ssh {
                let found = read.and_then(ssh::parse).map_err(|why| unreadable(name, &why))?;
                keys.ssh.extend(found);
            } else {
                let Parsed { certificates, revocations } =
                    read.and_then(certificate::parse).map_err(|why| unreadable(name, &why))?;
                for one in certificates {
                    one.add_to(&mut keys.certificates);
                }
                keys.revocations.extend(revocations);
            }
            if keys.len() > MAX_KEYS {
                let problem = format!("it has more than {MAX_KEYS} keys");
                return Err(NoKeys { problem, hint: "leave out those that sign nothing here" });
            }
            keys.data.insert(name.clone(), value.clone());
        }
        if !keys.data.is_empty() && keys.len() == 0 {
            let problem = "it has revocations, and no key".to_owned();
            return Err(NoKeys { problem, hint: "add the public key of somebody who may sign" });
        }
        if keys.data.is_empty() {
            let problem = format!("it has no value whose name ends with {OPENPGP} or {SSH}");
            return Err(NoKeys {
                problem,
                hint: "put public keys there: gpg --export --armor ADDRESS > team.asc, or the .pub file of an ssh key as team.sshpub",
            });
        }
        Ok(keys)
    }

    /// How many keys there are, with all subkeys.
    fn len(&self) -> usize {
        self.certificates.iter().map(Certificate::len).sum::<usize>() + self.ssh.len()
    }
}

fn unreadable(name: &str, why: &str) -> NoKeys {
    let hint = if name.ends_with(SSH) {
        "each line is a public key as in a .pub file: ssh-ed25519 AAAA..."
    } else {
        "make it with gpg --export --armor ADDRESS"
    };
    NoKeys { problem: format!("{name}: {why}"), hint }
}

/// What must be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedPart {
    /// The commit.
    Commit,
    /// The annotated tag that names it.
    Tag,
}

/// What is verified, and with which keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// What must be signed.
    pub part: SignedPart,
    /// Who may sign.
    pub keys: Arc<Keys>,
}

/// Why a commit or a tag does not count as signed. Texts are for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// It has no signature.
    #[error("it is not signed")]
    Unsigned,
    /// The key that signed it is not among those that may.
    #[error("its signature is of {needed}, which is not among the keys")]
    UnknownKey {
        /// The fingerprint, or the id, of the key.
        needed: String,
    },
    /// The key, or the signature, has expired.
    #[error("{what} has expired")]
    Expired {
        /// What has expired.
        what: String,
    },
    /// The key was revoked.
    #[error("{key} is revoked")]
    Revoked {
        /// The key.
        key: String,
    },
    /// The content is not what was signed, or somebody else signed it.
    #[error("its signature does not fit: it is not what {key} signed")]
    Wrong {
        /// The key that the signature names.
        key: String,
    },
    /// It may be signed, but not in a way that is understood or strong enough.
    #[error("{0}")]
    Unsupported(String),
    /// It does not parse.
    #[error("its signature cannot be read: {0}")]
    Malformed(String),
    /// The tag is signed, and is not the one that is wanted.
    #[error("{0}")]
    OtherTag(String),
}

impl Unverified {
    /// The same without control characters: libraries quote what somebody else wrote.
    fn printable(self) -> Self {
        match self {
            Self::Malformed(text) => Self::Malformed(printable(&text)),
            Self::Unsupported(text) => Self::Unsupported(printable(&text)),
            Self::OtherTag(text) => Self::OtherTag(printable(&text)),
            other => other,
        }
    }

    /// What to do about it.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Unsigned => {
                "sign it: git commit --amend -S --no-edit, or git tag -s; for a signed tag, spec.verify.mode must be Tag"
            }
            Self::UnknownKey { .. } => {
                "if this key may sign here, add its public key to the Secret of spec.verify"
            }
            Self::Expired { .. } => {
                "let the owner prolong the key, and put the new export into the Secret of spec.verify; or sign with another key"
            }
            Self::Revoked { .. } => {
                "sign it again with another key, and add that to the Secret of spec.verify"
            }
            Self::Wrong { .. } => {
                "somebody changed it after it was signed, or pasted the signature; find out who pushed it"
            }
            Self::Unsupported(_) => {
                "sign with an OpenPGP or ssh key: ed25519, ECDSA or RSA from 2048 bits, with SHA-256 or better"
            }
            Self::Malformed(_) => "sign it again with git",
            Self::OtherTag(_) => {
                "somebody may show an old tag under another name; tag the commit itself, under this name"
            }
        }
    }
}

/// What is checked, besides the object.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    /// Who may sign.
    pub keys: &'a Keys,
    /// The time, in seconds since 1970.
    pub now: u64,
    /// The hash of the repository's ids.
    pub hash: Kind,
}

/// Verifies a commit, given as the bytes of its object. Returns the fingerprint of the signer.
pub(super) fn commit(bytes: &[u8], rules: Rules<'_>) -> Result<String, Unverified> {
    let verify = || check(&object::commit(bytes, rules.hash)?, rules);
    verify().map_err(Unverified::printable)
}

/// Verifies an annotated tag, given as the bytes of its object: it must have this name and be of this commit. Returns the fingerprint
/// of the signer.
pub(super) fn tag(
    bytes: &[u8],
    (name, commit): (&str, &str),
    rules: Rules<'_>,
) -> Result<String, Unverified> {
    let verify = || {
        let signed = object::tag(bytes)?;
        let signer = check(&signed, rules)?;
        // After the signature: what the tag says counts only then.
        object::names(&signed.payload, name, commit)?;
        Ok(signer)
    };
    verify().map_err(Unverified::printable)
}

fn check(signed: &Signed, rules: Rules<'_>) -> Result<String, Unverified> {
    let signature = signed.signature.as_deref().ok_or(Unverified::Unsigned)?;
    let text = std::str::from_utf8(signature)
        .map_err(|_| Unverified::Malformed("it is no text".into()))?;
    let text = text.trim_end();
    if text.starts_with(object::PGP) {
        openpgp::verify(rules.keys, &signed.payload, text, rules.now)
    } else if text.starts_with(object::SSH) {
        ssh::verify(&rules.keys.ssh, &signed.payload, text)
    } else if text.starts_with(object::X509) {
        Err(Unverified::Unsupported("signatures with X.509 certificates are not supported".into()))
    } else {
        Err(Unverified::Malformed("it is of an unknown kind".into()))
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
