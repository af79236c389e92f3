//! (pure) OpenPGP signatures, as gpg makes them.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Packet, PacketParser, Signature, SignatureType, SubpacketData};
use pgp::types::{Fingerprint, KeyId};

use super::armor::{Style, decode};
use super::certificate::shown;
use super::{Keys, MAX_AHEAD, Unverified};

/// Verifies a signature at a time, and returns the fingerprint of the certificate.
pub(super) fn verify(
    keys: &Keys,
    payload: &[u8],
    text: &str,
    now: u64,
) -> Result<String, Unverified> {
    let bytes = decode(text, "PGP SIGNATURE", Style::OpenPgp).map_err(Unverified::Malformed)?;
    let signature = parse(&bytes).map_err(|why| Unverified::Malformed(why.into()))?;
    if !matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text)) {
        return Err(Unverified::Unsupported("its signature is of no kind that Git makes".into()));
    }
    if let Some(why) = weakness(&signature) {
        return Err(Unverified::Unsupported(format!("its signature {why}")));
    }
    let needed = needed(&signature);
    let is_signer = |fingerprint: &Fingerprint, id: &KeyId| {
        signature.issuer_fingerprint().contains(&fingerprint)
            || signature.issuer_key_id().contains(&id)
    };
    let mut found = false;
    for certificate in &keys.certificates {
        for key in certificate.keys().filter(|key| is_signer(&key.fingerprint(), &key.id())) {
            found = true;
            if key.verifies(&signature, payload) {
                key.may_sign(&keys.revocations, now)?;
                if has_expired(&signature, now) {
                    return Err(Unverified::Expired { what: "its signature".into() });
                }
                return Ok(certificate.shown());
            }
        }
    }
    Err(if found { Unverified::Wrong { key: needed } } else { Unverified::UnknownKey { needed } })
}

/// Reads exactly one packet, which is a signature.
fn parse(bytes: &[u8]) -> Result<Signature, &'static str> {
    if packet_bytes(bytes) != Some(bytes.len()) {
        return Err("it is not exactly one packet");
    }
    let mut packets = PacketParser::new(bytes);
    match (packets.next(), packets.next()) {
        (Some(Ok(Packet::Signature(signature))), None) => Ok(signature),
        (Some(Ok(_)), None) => Err("it is no signature packet"),
        _ => Err("its packet cannot be parsed"),
    }
}

/// How many bytes the first packet has, with its header (RFC 9580, 4.2). Parts of unknown length are not read.
fn packet_bytes(bytes: &[u8]) -> Option<usize> {
    let (first, rest) = bytes.split_first()?;
    let number =
        |bytes: &[u8]| bytes.iter().fold(0, |sum: usize, byte| (sum << 8) | usize::from(*byte));
    let (header, body) = match (first & 0xc0, first & 3) {
        // Before RFC 4880, which gpg still writes: the length has one, two or four bytes.
        (0x80, kind @ 0..=2) => {
            let size = 1 << kind;
            (size, number(rest.get(..size)?))
        }
        (0xc0, _) => match *rest.first()? {
            small @ ..192 => (1, usize::from(small)),
            middle @ 192..224 => {
                let low = usize::from(*rest.get(1)?);
                (2, ((usize::from(middle) - 192) << 8) + low + 192)
            }
            255 => (5, number(rest.get(1..5)?)),
            _ => return None,
        },
        _ => return None,
    };
    body.checked_add(header + 1)
}

/// The key that a signature names.
fn needed(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().into_iter().next().map(shown);
    let id = signature.issuer_key_id().into_iter().next();
    let id = id.map(|id| format!("OpenPGP key {}", hex(id.as_ref())));
    fingerprint.or(id).unwrap_or_else(|| "a key that it does not name".into())
}

/// Hex digits, as gpg prints them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"))
}

/// Why a signature does not count, whoever made it: what follows "its signature".
pub(super) fn weakness(signature: &Signature) -> Option<String> {
    use HashAlgorithm as Hash;
    let Some(config) = signature.config() else {
        return Some("is of a version that is not supported".into());
    };
    let strong = matches!(
        config.hash_alg,
        Hash::Sha256 | Hash::Sha384 | Hash::Sha512 | Hash::Sha3_256 | Hash::Sha3_512
    );
    if !strong {
        return Some(format!("is made with {}, which is too weak", config.hash_alg));
    }
    let unknown = config.hashed_subpackets().any(|part| {
        part.is_critical
            && matches!(
                part.data,
                SubpacketData::Experimental(..)
                    | SubpacketData::Other(..)
                    | SubpacketData::Notation(_)
            )
    });
    unknown.then(|| "has a critical part that is not understood".into())
}

/// Whether a signature has an end, and it is over.
pub(super) fn has_expired(signature: &Signature, now: u64) -> bool {
    let made = signature.created().map_or(0, |at| u64::from(at.as_secs()));
    let lasts = signature.signature_expiration_time().map_or(0, |time| u64::from(time.as_secs()));
    lasts > 0 && made + lasts <= now
}

/// Whether a signature was made before now, as far as clocks agree.
pub(super) fn is_of_past(signature: &Signature, now: u64) -> bool {
    signature.created().is_some_and(|at| u64::from(at.as_secs()) <= now + MAX_AHEAD)
}
