//! (pure) DSSE: the envelope in which a statement is signed (<https://github.com/secure-systems-lab/dsse>).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde::Deserialize;
use serde_json::json;

use super::key::PublicKey;

/// The type of a payload that is an in-toto statement.
pub const IN_TOTO: &str = "application/vnd.in-toto+json";
/// Signatures of the largest envelope that is read.
const MAX_SIGNATURES: usize = 16;

/// Writers may use either alphabet, with or without padding: readers take all of them.
const PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDING);
const LENIENT_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDING);

/// What is signed: the type and the payload, each with its length.
#[must_use]
pub fn pre_authentication_encoding(type_: &str, payload: &[u8]) -> Vec<u8> {
    let mut all = format!("DSSEv1 {} {type_} {} ", type_.len(), payload.len()).into_bytes();
    all.extend_from_slice(payload);
    all
}

/// An envelope with one signature. Without a name of the key: readers compare that in ways of their own.
#[must_use]
pub fn envelope(payload: &[u8], signature: &[u8]) -> Vec<u8> {
    let signatures = [json!({"keyid": "", "sig": STANDARD.encode(signature)})];
    let envelope = json!({
        "payloadType": IN_TOTO, "payload": STANDARD.encode(payload), "signatures": signatures,
    });
    envelope.to_string().into_bytes()
}

/// An envelope that was read. Nothing in it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The statement.
    pub payload: Vec<u8>,
    /// The signatures.
    pub signatures: Vec<Vec<u8>>,
}

impl Opened {
    /// What each signature must be over.
    #[must_use]
    pub fn signed(&self) -> Vec<u8> {
        pre_authentication_encoding(IN_TOTO, &self.payload)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    payload_type: String,
    payload: String,
    signatures: Vec<WrittenSignature>,
}

#[derive(Deserialize)]
struct WrittenSignature {
    sig: String,
}

/// Whether this is an envelope with that payload, which this key has signed.
#[must_use]
pub fn is_of(envelope: &[u8], payload: &[u8], key: &PublicKey) -> bool {
    open(envelope).is_some_and(|opened| {
        let signed = opened.signed();
        opened.payload == payload && opened.signatures.iter().any(|one| key.verifies(&signed, one))
    })
}

/// Reads an envelope with an in-toto statement. `None` if it is something else.
#[must_use]
pub fn open(envelope: &[u8]) -> Option<Opened> {
    let Written { payload_type, payload, signatures } = serde_json::from_slice(envelope).ok()?;
    let few = signatures.len() <= MAX_SIGNATURES && payload_type == IN_TOTO;
    let decoded = |text: &str| LENIENT.decode(text).or_else(|_| LENIENT_URL.decode(text)).ok();
    let payload = decoded(&payload).filter(|_| few)?;
    let signatures = signatures.iter().map(|one| decoded(&one.sig)).collect::<Option<_>>()?;
    Some(Opened { payload, signatures })
}

#[cfg(test)]
#[path = "tests/dsse.rs"]
mod tests;
