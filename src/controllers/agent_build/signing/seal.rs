//! (pure) The seal of a PipelineRun that is to be attested: whether the operator has made it, and nobody has changed what it does.
//!
//! Whoever may create PipelineRuns in a namespace may give them every label, owner and annotation, and the seal of another run, too. So it is
//! a MAC that only the operator can make, over the UID that the API server has given to this run, and over its spec as the API server has
//! stored it, with all that Tekton's webhook has added. The run is made pending, and begins with its seal.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use aws_lc_rs::hmac;
use convoke_core::text::{hex, unhex};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::controllers::agent_build::run::Run;
use crate::controllers::inputs::digest::MacKey;

/// The annotation with the seal: the MAC, in hexadecimal digits.
pub const SEAL: &str = "convoke.dev/seal";
/// What keeps this MAC apart from others.
const DOMAIN: &[u8] = b"convoke run seal 1";
/// The same for the digest of Secrets.
const DOMAIN_OF_CREDENTIALS: &[u8] = b"convoke run credentials 1";
/// Bytes of that digest: enough to tell two apart.
const DIGEST_BYTES: usize = 16;

/// The key of seals. Its debug output does not show it.
pub struct SealKey(hmac::Key);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(…)")
    }
}

impl SealKey {
    /// The key of an operator.
    #[must_use]
    pub fn of(operator: &MacKey) -> Self {
        let key = operator.derive(&["run-seal"]);
        Self(hmac::Key::new(hmac::HMAC_SHA256, key.get().as_bytes()))
    }

    /// The seal of the run with this UID. `None` if it is not to be attested.
    #[must_use]
    pub fn seal(&self, run: &Run, uid: &str) -> Option<String> {
        let signed = signed(run, uid)?;
        Some(hex(hmac::sign(&self.0, &signed).as_ref()))
    }

    /// A digest of Secrets, given in parts, in hexadecimal digits. It tells nothing of them to those without the key.
    #[must_use]
    pub fn of_credentials(&self, parts: &[Vec<u8>]) -> String {
        let mut all = hmac::Context::with_key(&self.0);
        all.update(DOMAIN_OF_CREDENTIALS);
        for part in parts {
            all.update(&(part.len() as u64).to_be_bytes());
            all.update(part);
        }
        hex(all.sign().as_ref().get(..DIGEST_BYTES).unwrap_or_default())
    }

    /// Whether the run with this UID has its seal.
    #[must_use]
    pub fn is_right(&self, run: &Run, uid: &str) -> bool {
        let (Some(signed), Some(seal)) = (signed(run, uid), run.seal.as_deref()) else {
            return false;
        };
        // It takes the same time whatever the seal is.
        unhex(seal.as_bytes()).is_some_and(|mac| hmac::verify(&self.0, &signed, &mac).is_ok())
    }
}

/// What the MAC is over. Each part comes with its length, so that no two different runs are the same text.
fn signed(run: &Run, uid: &str) -> Option<Vec<u8>> {
    let Run { name, namespace, home, owner_uid, owner_name, key, commit, image, spec, .. } = run;
    let mut all = DOMAIN.to_vec();
    let parts = [owner_uid, owner_name, key, commit, image];
    let parts = parts.map(|part| part.as_deref().unwrap_or_default());
    for part in [namespace, name, uid, home].into_iter().chain(parts).chain([spec.as_deref()?]) {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend(part.as_bytes());
    }
    Some(all)
}

/// The hash of the spec of a run, in hexadecimal digits. Its `status` does not count: that is how a run is told to begin and to stop.
#[must_use]
pub fn hash(spec: &Value) -> String {
    let mut spec = spec.clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("status");
    }
    hex(&Sha256::digest(spec.to_string().as_bytes()))
}

#[cfg(test)]
#[path = "tests/seal.rs"]
mod tests;
