//! The key of the digests. It is a Secret in the operator's namespace, which is created once and read at each start.
//!
//! Whoever has the key can test guesses of values against the digests. So it exists only in this Secret and in the operator's
//! memory. A new key replaces each pod that reads a watched object once.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::json;

use super::digest::{KEY_BYTES, MacKey};
use super::watched::WatchedSecret;
use crate::cluster::client::{CallError, call};
use crate::cluster::ssa;

/// Name of the Secret.
pub const SECRET: &str = "convoke-hmac";
/// Its only key.
const FIELD: &str = "key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The Secret could not be read.
    #[error("cannot read Secret {SECRET} in namespace {0}: {1}")]
    Read(String, #[source] CallError),
    /// The Secret could not be created.
    #[error("cannot make Secret {SECRET} in namespace {0}: {1}")]
    Create(String, #[source] CallError),
    /// The Secret does not hold a key.
    #[error(
        "Secret {SECRET} in namespace {0} has no {KEY_BYTES} bytes at {FIELD:?}: delete it, and it is made anew"
    )]
    Content(String),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

impl KeyError {
    /// Whether the error stays until somebody changes something.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Read(_, error) | Self::Create(_, error) => {
                error.is_forbidden() || error.is_not_found() || error.is_invalid()
            }
            Self::Content(_) | Self::Random => true,
        }
    }
}

/// Reads the key, and creates it if there is none.
///
/// # Errors
/// Why there is no key. Another try may succeed.
pub async fn obtain(client: &Client, namespace: &str) -> Result<MacKey, KeyError> {
    let in_namespace = || namespace.to_owned();
    if let Some(key) = read(client, namespace).await? {
        return Ok(key);
    }
    let mut bytes = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError::Random)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/name": "convoke"}},
        "data": {FIELD: ByteString(bytes.to_vec())},
    });
    match ssa::create(&ssa::api_of::<Secret>(client, namespace), secret).await {
        Ok(()) => Ok(MacKey::new(&bytes)),
        // Another replica has created it meanwhile.
        Err(error) if error.is_conflict() => {
            read(client, namespace).await?.ok_or_else(|| KeyError::Create(in_namespace(), error))
        }
        Err(error) => Err(KeyError::Create(in_namespace(), error)),
    }
}

async fn read(client: &Client, namespace: &str) -> Result<Option<MacKey>, KeyError> {
    let api: Api<WatchedSecret> = Api::namespaced(client.clone(), namespace);
    let secret = call(api.get_opt(SECRET)).await;
    let secret = secret.map_err(|error| KeyError::Read(namespace.to_owned(), error))?;
    let Some(secret) = secret else { return Ok(None) };
    let bytes = secret.value(FIELD).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or_else(
        || Err(KeyError::Content(namespace.to_owned())),
        |bytes| Ok(Some(MacKey::new(bytes))),
    )
}
