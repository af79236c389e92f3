//! (pure) OpenPGP certificates: a primary key, its subkeys, and what the primary key says of them.
//!
//! Only signatures of the primary key count. Those of other people say nothing here.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use pgp::composed::{Deserializable, SignedPublicKey};
use pgp::crypto::public_key::PublicKeyAlgorithm;
use pgp::packet::{
    Packet, PacketParser, PublicKey, PublicSubkey, Signature, SignatureConfig, SignatureType,
    SubpacketData, UserId,
};
use pgp::ser::Serialize;
use pgp::types::{Fingerprint, KeyDetails, KeyId, KeyVersion, Tag};

use super::Unverified;
use super::armor::{Style, decode};
use super::openpgp::{has_expired, hex, is_of_past, weakness};

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
/// Bytes of the parameters of the smallest RSA key: the modulus and the exponent, each with a length of two bytes.
const MIN_RSA_BYTES: usize = 2 + 256 + 2 + 1;

/// A certificate, with all that was found of it.
#[derive(Clone)]
pub(super) struct Certificate {
    primary: PublicKey,
    /// Signatures directly on the primary key.
    direct: Vec<Signature>,
    users: Vec<(UserId, Vec<Signature>)>,
    subkeys: Vec<Subkey>,
}

/// A subkey, with all signatures that follow it.
#[derive(Clone)]
struct Subkey {
    fingerprint: Fingerprint,
    key: PublicSubkey,
    signatures: Vec<Signature>,
}

/// What armored blocks have.
pub(super) struct Parsed {
    pub certificates: Vec<Certificate>,
    /// All revocations of keys and subkeys, wherever they are: `gpg --gen-revoke` makes a block that has no key.
    pub revocations: Vec<Signature>,
}

/// Reads one or more armored blocks, each with certificates or revocations of keys.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    if text.contains("PRIVATE KEY BLOCK") {
        return Err("it has a private key; take it out".into());
    }
    let mut found = Parsed { certificates: Vec::new(), revocations: Vec::new() };
    let mut blocks = text.split(BEGIN);
    if blocks.next().is_some_and(|before| !before.trim().is_empty()) {
        return Err(format!("it does not begin with {BEGIN}"));
    }
    for block in blocks {
        let bytes = decode(&format!("{BEGIN}{block}"), "PGP PUBLIC KEY BLOCK", Style::OpenPgp)?;
        found.revocations.extend(revocations(&bytes));
        let all = SignedPublicKey::from_bytes_many(&bytes[..])
            .map_err(|_| "it has no OpenPGP key".to_owned())?;
        for one in all {
            let one = one.map_err(|_| "an OpenPGP key of it cannot be parsed".to_owned())?;
            if !matches!(one.primary_key.version(), KeyVersion::V4 | KeyVersion::V6) {
                return Err("it has a key of a version that is not supported".into());
            }
            found.certificates.push(Certificate::from(one));
        }
    }
    if found.certificates.is_empty() && found.revocations.is_empty() {
        return Err("it has no OpenPGP key".into());
    }
    Ok(found)
}

/// All revocations among these packets. The library finds those only that follow their key at once.
fn revocations(bytes: &[u8]) -> impl Iterator<Item = Signature> {
    PacketParser::new(bytes).flatten().filter_map(|packet| match packet {
        Packet::Signature(one) => {
            let is = |kind| one.typ() == Some(kind);
            let revokes = is(SignatureType::KeyRevocation) || is(SignatureType::SubkeyRevocation);
            revokes.then_some(one)
        }
        _ => None,
    })
}

impl From<SignedPublicKey> for Certificate {
    fn from(key: SignedPublicKey) -> Self {
        let SignedPublicKey { primary_key, details, public_subkeys } = key;
        let mut new = Self {
            primary: primary_key,
            direct: details.direct_signatures,
            users: details.users.into_iter().map(|user| (user.id, user.signatures)).collect(),
            subkeys: Vec::new(),
        };
        new.add_subkeys(public_subkeys.into_iter().map(|sub| Subkey {
            fingerprint: sub.key.fingerprint(),
            key: sub.key,
            signatures: sub.signatures,
        }));
        new
    }
}

/// A key for people: the fingerprint as gpg prints it.
pub(super) fn shown(fingerprint: &Fingerprint) -> String {
    format!("OpenPGP key {}", hex(fingerprint.as_bytes()))
}

/// One key of a certificate: the primary key, or a subkey.
pub(super) struct Key<'a> {
    of: &'a Certificate,
    subkey: Option<&'a Subkey>,
}

impl Certificate {
    /// Adds it to the others. What two copies of a certificate say counts together, so that no older copy hides a revocation.
    pub(super) fn add_to(self, all: &mut Vec<Self>) {
        let fingerprint = self.primary.fingerprint();
        match all.iter_mut().find(|one| one.primary.fingerprint() == fingerprint) {
            Some(known) => {
                known.direct.extend(self.direct);
                known.users.extend(self.users);
                known.add_subkeys(self.subkeys.into_iter());
            }
            None => all.push(self),
        }
    }

    /// Adds subkeys, each once: what copies of one say counts together.
    fn add_subkeys(&mut self, new: impl Iterator<Item = Subkey>) {
        for subkey in new {
            match self.subkeys.iter_mut().find(|one| one.fingerprint == subkey.fingerprint) {
                Some(known) => known.signatures.extend(subkey.signatures),
                None => self.subkeys.push(subkey),
            }
        }
    }

    /// How many keys it has.
    pub(super) fn len(&self) -> usize {
        1 + self.subkeys.len()
    }

    /// The certificate for people.
    pub(super) fn shown(&self) -> String {
        shown(&self.primary.fingerprint())
    }

    /// All its keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let subkeys = self.subkeys.iter().map(Some);
        std::iter::once(None).chain(subkeys).map(|subkey| Key { of: self, subkey })
    }

    /// The newest of the primary key's signatures on itself and its users that counts.
    fn self_signature(&self, now: u64) -> Option<&Signature> {
        let direct = self.direct.iter().filter(|one| {
            one.typ() == Some(SignatureType::Key)
                && counts(one, now)
                && one.verify_key(&self.primary).is_ok()
        });
        let users = self.users.iter().flat_map(|(id, all)| all.iter().map(move |one| (id, one)));
        let users = users.filter(|(id, one)| {
            one.typ() != Some(SignatureType::CertRevocation)
                && counts(one, now)
                && one.verify_certification(&self.primary, Tag::UserId, id).is_ok()
        });
        direct.chain(users.map(|(_, one)| one)).max_by_key(|one| one.created())
    }

    /// Checks that the primary key is valid now, and returns what it says of itself.
    fn valid(&self, revocations: &[Signature], now: u64) -> Result<&Signature, Unverified> {
        // One that does not verify is not of this key. A weak one counts: it takes a right away.
        let is = |one: &Signature| one.typ() == Some(SignatureType::KeyRevocation);
        if revocations.iter().any(|one| is(one) && one.verify_key(&self.primary).is_ok()) {
            return Err(Unverified::Revoked { key: self.shown() });
        }
        let Some(own) = self.self_signature(now) else {
            let why = "has no signature of its own that is valid and strong enough";
            return Err(Unverified::Unsupported(format!("{} {why}", self.shown())));
        };
        if is_over(&self.primary, own, now) {
            return Err(Unverified::Expired { what: self.shown() });
        }
        Ok(own)
    }

    /// Checks that a subkey is valid now, and returns what the primary key says of it.
    fn valid_subkey<'a>(
        &self,
        subkey: &'a Subkey,
        revocations: &[Signature],
        now: u64,
    ) -> Result<&'a Signature, Unverified> {
        let Subkey { fingerprint, key: subkey, signatures: all } = subkey;
        let is = |one: &Signature, kind| {
            one.typ() == Some(kind) && one.verify_subkey_binding(&self.primary, subkey).is_ok()
        };
        let key = shown(fingerprint);
        if all.iter().chain(revocations).any(|one| is(one, SignatureType::SubkeyRevocation)) {
            return Err(Unverified::Revoked { key });
        }
        let bindings =
            all.iter().filter(|one| counts(one, now) && is(one, SignatureType::SubkeyBinding));
        let Some(binding) = bindings.max_by_key(|one| one.created()) else {
            let why = format!("{key} is not bound to {}", self.shown());
            return Err(Unverified::Unsupported(why));
        };
        if is_over(subkey, binding, now) {
            return Err(Unverified::Expired { what: key });
        }
        // The subkey says itself whose it is. Otherwise somebody could adopt the subkey of somebody else.
        let back = binding.embedded_signature().filter(|one| counts(one, now));
        if back.is_none_or(|one| one.verify_primary_key_binding(subkey, &self.primary).is_err()) {
            let why = format!("{key} does not say that it belongs to {}", self.shown());
            return Err(Unverified::Unsupported(why));
        }
        Ok(binding)
    }
}

impl Key<'_> {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.subkey.map_or_else(|| self.of.primary.fingerprint(), |one| one.fingerprint.clone())
    }

    pub(super) fn id(&self) -> KeyId {
        let of_primary = || self.of.primary.legacy_key_id();
        self.subkey.map_or_else(of_primary, |one| one.key.legacy_key_id())
    }

    /// Whether it made this signature.
    pub(super) fn verifies(&self, signature: &Signature, payload: &[u8]) -> bool {
        match self.subkey {
            Some(subkey) => signature.verify(&subkey.key, payload).is_ok(),
            None => signature.verify(&self.of.primary, payload).is_ok(),
        }
    }

    /// Checks that it may sign at this time. One of the revocations may be of it, or of its primary key.
    pub(super) fn may_sign(&self, revocations: &[Signature], now: u64) -> Result<(), Unverified> {
        let own = self.of.valid(revocations, now)?;
        let (says, weakness) = match self.subkey {
            Some(subkey) => {
                (self.of.valid_subkey(subkey, revocations, now)?, weak_key(&subkey.key))
            }
            None => (own, weak_key(&self.of.primary)),
        };
        let key = shown(&self.fingerprint());
        if let Some(why) = weakness {
            return Err(Unverified::Unsupported(format!("{key} {why}")));
        }
        // Old primary keys do not say what they are for.
        let is_old = self.subkey.is_none() && !has_flags(says);
        if is_old || says.key_flags().sign() {
            return Ok(());
        }
        Err(Unverified::Unsupported(format!("{key} is not for signing")))
    }
}

/// Whether a signature of a key on itself may count at this time. It is not verified here.
fn counts(signature: &Signature, now: u64) -> bool {
    weakness(signature).is_none() && is_of_past(signature, now) && !has_expired(signature, now)
}

fn has_flags(signature: &Signature) -> bool {
    let mut parts = signature.config().into_iter().flat_map(SignatureConfig::hashed_subpackets);
    parts.any(|part| matches!(part.data, SubpacketData::KeyFlags(_)))
}

/// Whether the time of a key is over, as this signature says.
fn is_over(key: &impl KeyDetails, says: &Signature, now: u64) -> bool {
    let lasts = says.key_expiration_time().map_or(0, |time| u64::from(time.as_secs()));
    lasts > 0 && u64::from(key.created_at().as_secs()) + lasts <= now
}

/// Why the signatures of a key do not count, if that is so: what follows the key.
fn weak_key(key: &impl KeyDetails) -> Option<&'static str> {
    use PublicKeyAlgorithm as Kind;
    match key.algorithm() {
        Kind::RSA | Kind::RSASign => (key.public_params().write_len() < MIN_RSA_BYTES)
            .then_some("is an RSA key with less than 2048 bits"),
        Kind::ECDSA | Kind::EdDSALegacy | Kind::Ed25519 | Kind::Ed448 => None,
        _ => Some("is of a kind that is not supported"),
    }
}
