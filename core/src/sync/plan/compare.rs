//! Whether a live object is as Git wants it.

use std::collections::HashMap;

use crate::api::{ObjectId, keys};
use crate::cluster::live::{Live, SpecHash};
use crate::sync::commit::desired::Desired;

/// Objects that an apply did not make as wanted, and how it left them.
pub type Settled = HashMap<ObjectId, Settling>;

/// How an apply left an object that still differs from Git, for instance because an autoscaler or a webhook changed it. Another
/// apply would change nothing, until the definition or the live object changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settling {
    /// The applied hash of the definition.
    pub applied: String,
    /// The hash of the live spec.
    pub spec_hash: Option<SpecHash>,
    /// The live version. It counts only if the spec has no hash.
    pub version: u64,
}

/// Whether a live object is as Git wants it.
pub(crate) fn is_equal(desired: &Desired, live: &Live, settled: &Settled, id: &ObjectId) -> bool {
    let settled = settled.get(id).filter(|settled| settled.applied == desired.applied);
    let facts = live.facts();
    if facts.spec_hash.is_none() {
        return settled.is_some_and(|settled| settled.version == live.version());
    }
    facts.annotations.get(keys::APPLIED) == Some(desired.applied.as_str())
        && facts.labels.cover(&desired.definition.labels)
        && facts.annotations.cover(&desired.definition.annotations)
        && (facts.spec_hash == Some(desired.spec_hash)
            // The hash without replicas equals only where Git sets none.
            || facts.unscaled_hash.as_deref() == Some(&desired.spec_hash)
            || settled.is_some_and(|settled| settled.spec_hash == facts.spec_hash))
}

/// The values of the two annotations of an object that name its owner: the ownership mark and `convoke.dev/adopt-by`.
pub type Claim = [Option<String>; 2];

/// The claim of a live object.
#[must_use]
pub fn claim(live: &Live) -> Claim {
    [keys::OWNER, keys::ADOPT_BY].map(|key| annotation(live, key).map(str::to_owned))
}

pub(super) fn annotation<'a>(live: &'a Live, name: &str) -> Option<&'a str> {
    live.facts().annotations.get(name)
}
