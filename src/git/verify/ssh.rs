//! (pure) Signatures of ssh keys, as `ssh-keygen -Y sign` makes them.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use russh::keys::ssh_key::encoding::Decode;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::ssh_key::{Algorithm, Error, HashAlg, PublicKey, SshSig};

use super::Unverified;
use super::armor::{Style, decode};

/// What a signature of Git is for. One that was made for something else does not count.
const NAMESPACE: &str = "git";
/// Bytes of the smallest RSA modulus.
const MIN_RSA_BYTES: usize = 256;

/// A key that may sign.
#[derive(Clone)]
pub(super) struct Key(PublicKey);

/// Reads lines with public keys. Empty lines, and those that begin with `#`, are skipped.
pub(super) fn parse(text: &str) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), at + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.contains("PRIVATE KEY") {
            return Err("it is a private key; take it out, and make a new one".into());
        }
        let key = PublicKey::from_openssh(line)
            .map_err(|_| format!("line {number} is no public ssh key"))?;
        unsupported(key.key_data()).map_or(Ok(()), |why| Err(format!("line {number}: {why}")))?;
        keys.push(Key(key));
    }
    if keys.is_empty() { Err("it has no key".into()) } else { Ok(keys) }
}

/// Why signatures of a key do not count, if that is so.
fn unsupported(key: &KeyData) -> Option<String> {
    match key {
        KeyData::Ed25519(_) | KeyData::Ecdsa(_) => None,
        KeyData::Rsa(rsa) => {
            let bytes = rsa.n().as_positive_bytes().map_or(0, <[u8]>::len);
            (bytes < MIN_RSA_BYTES).then(|| "RSA keys need at least 2048 bits".to_owned())
        }
        other => Some(format!("keys of the kind {} are not supported", other.algorithm())),
    }
}

/// Verifies a signature, and returns the fingerprint of its key.
pub(super) fn verify(keys: &[Key], payload: &[u8], text: &str) -> Result<String, Unverified> {
    let bytes = decode(text, "SSH SIGNATURE", Style::Ssh).map_err(Unverified::Malformed)?;
    let mut rest = &bytes[..];
    let malformed = |error: &Error| Unverified::Malformed(error.to_string());
    let signature = SshSig::decode(&mut rest).map_err(|error| malformed(&error))?;
    if !rest.is_empty() {
        return Err(Unverified::Malformed("something follows it".into()));
    }
    let signer = format!("ssh key {}", signature.public_key().fingerprint(HashAlg::Sha256));
    let key = keys.iter().find(|key| key.0.key_data() == signature.public_key());
    let Some(Key(key)) = key else {
        return Err(Unverified::UnknownKey { needed: signer });
    };
    if signature.algorithm() == (Algorithm::Rsa { hash: None }) {
        return Err(Unverified::Unsupported("its signature is made with SHA-1".into()));
    }
    if signature.namespace() != NAMESPACE {
        let made_for = signature.namespace().chars().filter(|c| !c.is_control()).take(40);
        let made_for: String = made_for.collect();
        let why = format!("its signature was made for {made_for:?}, not for git");
        return Err(Unverified::Unsupported(why));
    }
    match key.verify(NAMESPACE, payload, &signature) {
        Ok(()) => Ok(signer),
        Err(_) => Err(Unverified::Wrong { key: signer }),
    }
}
