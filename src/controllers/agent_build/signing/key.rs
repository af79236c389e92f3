//! (pure) The keys of attestations: ECDSA on P-256 with SHA-256, as cosign has them by default.
//!
//! Nothing here prints a private key, and no error quotes one.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

use crate::cluster::hidden::Hidden;

/// How the DER of each public key on P-256 begins: the algorithm, and that 65 bytes of a point follow.
const PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Bytes of a point: 4, and both coordinates.
const POINT_BYTES: usize = 65;
/// Characters of a line of PEM.
const LINE: usize = 64;

/// The key that signs. Its debug output does not show it.
pub struct SigningKey(EcdsaKeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoKey {
    /// A private one.
    #[error(
        "it is no unencrypted PEM of a key on P-256 in PKCS#8, as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes one"
    )]
    Private,
    /// A public one.
    #[error(
        "it is no PEM of a public key on P-256, as `openssl pkey -pubout` prints one (BEGIN PUBLIC KEY)"
    )]
    Public,
}

impl SigningKey {
    /// A new key, in PEM. `None` when the system gives no random bytes.
    #[must_use]
    pub fn generate() -> Option<Hidden<String>> {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).ok()?;
        Some(Hidden::new(pem("PRIVATE KEY", made.as_ref())))
    }

    /// A key from its PEM.
    ///
    /// # Errors
    /// [`NoKey::Private`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, NoKey> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| NoKey::Private)?;
        let read =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_pkcs8_der());
        read.map(Self).map_err(|_| NoKey::Private)
    }

    /// The public key, in PEM.
    #[must_use]
    pub fn public_pem(&self) -> String {
        let mut der = PREFIX.to_vec();
        der.extend_from_slice(self.0.public_key().as_ref());
        pem("PUBLIC KEY", &der)
    }

    /// The key that verifies what this one signs.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref().to_vec())
    }

    /// A signature, in DER. `None` when the system gives no random bytes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let signature = self.0.sign(&SystemRandom::new(), message).ok()?;
        Some(signature.as_ref().to_vec())
    }
}

/// The key that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// A key from its PEM.
    ///
    /// # Errors
    /// [`NoKey::Public`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, NoKey> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| NoKey::Public)?;
        let point = der.as_ref().strip_prefix(&PREFIX[..]).ok_or(NoKey::Public)?;
        let is_point = point.len() == POINT_BYTES && point.first() == Some(&4);
        if is_point { Ok(Self(point.to_vec())) } else { Err(NoKey::Public) }
    }

    /// Whether this key has signed a message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0);
        key.verify(message, signature).is_ok()
    }
}

/// DER as PEM.
fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
#[path = "tests/key.rs"]
mod tests;
