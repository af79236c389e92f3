//! `spec.webhook` of a GitSync, and the path at which its deliveries arrive.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::git_sync::SecretRef;

/// How a push is told to the operator, besides the polls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookSpec {
    /// Who sends the deliveries, and so how they are signed.
    pub provider: Provider,
    /// Secret of this namespace whose key `token` is the secret of the webhook at the forge.
    pub secret_ref: SecretRef,
}

/// Who sends the deliveries of a webhook.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Provider {
    /// `X-Hub-Signature-256`.
    GitHub,
    /// `X-Gitlab-Token`.
    GitLab,
    /// `X-Gitea-Signature` or `X-Hub-Signature-256`; Forgejo, too.
    Gitea,
    /// `X-Signature: sha256=<hex>`: the HMAC-SHA256 of the body.
    GenericHMAC,
}

impl Provider {
    /// The word as specs and metrics have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GitHub => "GitHub",
            Self::GitLab => "GitLab",
            Self::Gitea => "Gitea",
            Self::GenericHMAC => "GenericHMAC",
        }
    }
}

/// What is hashed before the UID. Another value would move all webhooks.
const PREFIX: &str = "convoke.dev webhook of GitSync ";
/// Bytes of the hash in a path.
const BYTES: usize = 16;

/// The path of the webhook of the GitSync with this UID: `/hook/` and 32 hex digits.
#[must_use]
pub fn path(uid: &str) -> String {
    let hash = Sha256::new().chain_update(PREFIX).chain_update(uid).finalize();
    let mut path = String::from("/hook/");
    for byte in &hash[..BYTES] {
        // Writing into a string cannot fail.
        let _ = write!(path, "{byte:02x}");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g5_the_path_of_a_webhook_is_made_of_the_uid_and_never_moves() {
        let uid = "3f1c0c0e-1b1f-4d5e-9a53-0d5f5b2f7c11";
        assert_eq!(path(uid), path(uid));
        assert_ne!(path(uid), path("3f1c0c0e-1b1f-4d5e-9a53-0d5f5b2f7c12"));
        // sha256sum of "convoke.dev webhook of GitSync a"
        assert_eq!(path("a"), "/hook/f2f215e8f05f9e27d1cba227dd62ed4d");
    }
}
