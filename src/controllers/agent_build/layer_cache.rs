//! (pure) What `spec.layerCache` gives to the parameters of build steps (B13).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use sha2::{Digest, Sha256};

use super::template::ParameterValue;
use crate::api::agent_build::{AgentBuildSpec, AgentBuildStatus, BuildStrategy};

/// The parameter that says whether there is a cache: `true` or `false`.
pub const LAYER_CACHE: &str = "layer-cache";
/// The parameter with the tag of the cache. The registry keeps what has a tag.
pub const CACHE_TAG: &str = "cache-tag";
/// The parameter with the digest of the cache that this build takes. Empty: none.
pub const CACHE_DIGEST: &str = "cache-digest";

/// Whether an AgentBuild has a cache of layers.
#[must_use]
pub fn is_on(spec: &AgentBuildSpec) -> bool {
    spec.layer_cache && spec.strategy == BuildStrategy::Dockerfile
}

/// The value that conditions may ask for. It is part of the build key.
#[must_use]
pub fn key_value(spec: &AgentBuildSpec) -> (&'static str, ParameterValue) {
    let text = if is_on(spec) { "true" } else { "false" };
    (LAYER_CACHE, ParameterValue::Text(text.into()))
}

/// The other values, of an AgentBuild of this namespace and name. No part of the build key.
#[must_use]
pub fn other_values(
    spec: &AgentBuildSpec,
    namespace: &str,
    name: &str,
    digest: Option<&str>,
) -> [(&'static str, ParameterValue); 2] {
    let text = |text: String| ParameterValue::Text(if is_on(spec) { text } else { String::new() });
    [
        (CACHE_TAG, text(tag(namespace, name))),
        (CACHE_DIGEST, text(digest.unwrap_or_default().to_owned())),
    ]
}

/// The tag of the cache of an AgentBuild. Two of one image have two.
fn tag(namespace: &str, name: &str) -> String {
    // Neither name holds a slash.
    let hash = Sha256::digest(format!("{namespace}/{name}"));
    let digits = convoke_core::text::hex(&hash);
    format!("cvk-cache-{}", digits.get(..32).unwrap_or(&digits))
}

/// What the spec asks for, in words, and the parameter that a step must have for it.
pub fn asks(spec: &AgentBuildSpec) -> impl Iterator<Item = (&'static str, &'static str)> {
    is_on(spec).then_some(("spec.layerCache is true", CACHE_DIGEST)).into_iter()
}

/// The digest of the cache that a run may take. `rebuild` is the value of `convoke.dev/rebuild`: what was made before it was set is not used.
#[must_use]
pub fn usable<'a>(
    status: &'a AgentBuildStatus,
    rebuild: Option<&str>,
    attempt: u32,
) -> Option<&'a str> {
    let is_newer = status.last_handled_rebuild.as_deref() != rebuild;
    // The cache may be why the first try had no room on the disk.
    status.cache_digest.as_deref().filter(|_| !is_newer && attempt == 1)
}

/// Says in a status for which value of `convoke.dev/rebuild` a build was started. A new one forgets the cache: what a rebuild is to heal may be in there.
pub fn handle_rebuild(status: &mut AgentBuildStatus, rebuild: Option<&str>) {
    if status.last_handled_rebuild.as_deref() != rebuild {
        status.cache_digest = None;
    }
    status.last_handled_rebuild = rebuild.map(str::to_owned);
}

#[cfg(test)]
#[path = "tests/layer_cache.rs"]
mod tests;
