//! (pure) Names of what Convoke makes for agents and their model proxies.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::cluster::meta;

/// The variable with the key by which an agent asks its model.
pub const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// The volume with the keys of a model proxy. No definition can name a volume.
pub const KEYS_VOLUME: &str = "keys";
/// The volume with the list of agents of a model proxy.
pub const AGENTS_VOLUME: &str = "agents";

/// The name of the Deployment and the Service of an agent.
#[must_use]
pub fn agent_child(agent: &str) -> String {
    meta::child_name("agent", agent, 0)
}

/// The name of the ConfigMap with the list of agents of a model proxy.
#[must_use]
pub fn agents_map(model_api: &str) -> String {
    format!("modelapi-{model_api}-agents")
}

/// The name of the Secret with the keys of a model proxy.
#[must_use]
pub fn proxy_secret(model_api: &str) -> String {
    format!("modelapi-{model_api}-keys")
}

/// The name of the Secret with the key of an agent.
#[must_use]
pub fn agent_secret(agent: &str) -> String {
    format!("agent-{agent}-model-key")
}

/// Whether a Secret of this name may be one of those.
#[must_use]
pub fn is_key_secret(name: &str) -> bool {
    (name.starts_with("agent-") && name.ends_with("-model-key"))
        || (name.starts_with("modelapi-") && name.ends_with("-keys"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_the_secrets_that_convoke_makes_are_known_by_their_names() {
        assert!(is_key_secret(&proxy_secret("m")) && is_key_secret(&agent_secret("a")));
        assert!(!is_key_secret("openai-keys") && !is_key_secret(&agents_map("m")));
    }
}
