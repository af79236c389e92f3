//! The key of attestations: a Secret in the operator's namespace, made when it is first needed, and read for each attestation. So another key
//! counts without a restart. The public key is in a ConfigMap beside it.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use serde_json::json;

use super::key::{NoKey, SigningKey};
use crate::cluster::client::{CallError, call};
use crate::cluster::ssa::{self, Mode};
use crate::controllers::inputs::watched::WatchedSecret;

/// Name of the Secret.
const SECRET: &str = "convoke-signing";
/// Its key: a private key in PEM.
const FIELD: &str = "key.pem";
/// Name of the ConfigMap.
const PUBLIC: &str = "convoke-signing-public";
/// Its key: the public key in PEM.
const PUBLIC_FIELD: &str = "cosign.pub";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The Secret could not be read.
    #[error("the Secret {SECRET} in namespace {0} cannot be read: {1}")]
    Read(String, #[source] CallError),
    /// The Secret could not be created.
    #[error("the Secret {SECRET} in namespace {0} cannot be made: {1}")]
    Create(String, #[source] CallError),
    /// The Secret does not hold a key.
    #[error("the Secret {SECRET} in namespace {0} has no {FIELD} that can be used: {1}")]
    Content(String, NoKey),
    /// The ConfigMap could not be written.
    #[error("the ConfigMap {PUBLIC} in namespace {0} cannot be written: {1}")]
    Publish(String, #[source] CallError),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// Reads the key, creates it if there is none, and publishes its public key.
///
/// # Errors
/// Why there is no key. Another try may succeed.
pub async fn obtain(client: &Client, namespace: &str) -> Result<SigningKey, SigningError> {
    let key = match read(client, namespace).await? {
        Some(key) => key,
        None => create(client, namespace).await?,
    };
    let published = publish(client, namespace, &key.public_pem()).await;
    published.map_err(|error| SigningError::Publish(namespace.to_owned(), error))?;
    Ok(key)
}

async fn create(client: &Client, namespace: &str) -> Result<SigningKey, SigningError> {
    let content = |why| SigningError::Content(namespace.to_owned(), why);
    let failed = |error| SigningError::Create(namespace.to_owned(), error);
    let pem = SigningKey::generate().ok_or(SigningError::Random)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {"name": SECRET, "labels": {"app.kubernetes.io/name": "convoke"}},
        "data": {FIELD: ByteString(pem.get().clone().into_bytes())},
    });
    match ssa::create(&ssa::api_of::<Secret>(client, namespace), secret).await {
        Ok(()) => SigningKey::from_pem(pem.get().as_bytes()).map_err(content),
        // Another replica has created it meanwhile.
        Err(error) if error.is_conflict() => {
            read(client, namespace).await?.ok_or_else(|| failed(error))
        }
        Err(error) => Err(failed(error)),
    }
}

async fn read(client: &Client, namespace: &str) -> Result<Option<SigningKey>, SigningError> {
    let api: Api<WatchedSecret> = Api::namespaced(client.clone(), namespace);
    let secret = call(api.get_opt(SECRET)).await;
    let secret = secret.map_err(|error| SigningError::Read(namespace.to_owned(), error))?;
    let Some(secret) = secret else { return Ok(None) };
    let key = SigningKey::from_pem(secret.value(FIELD).unwrap_or_default());
    key.map(Some).map_err(|why| SigningError::Content(namespace.to_owned(), why))
}

/// Writes the public key, unless it is there.
async fn publish(client: &Client, namespace: &str, pem: &str) -> Result<(), CallError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let there = call(api.get_opt(PUBLIC)).await?;
    let has = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get(PUBLIC_FIELD)).cloned();
    if there.as_ref().and_then(has).as_deref() == Some(pem) {
        return Ok(());
    }
    let mode = match there.and_then(|map| map.metadata.uid) {
        Some(uid) => Mode::Update { uid, version: None },
        None => Mode::Create,
    };
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": PUBLIC, "labels": {"app.kubernetes.io/name": "convoke"}},
        "data": {PUBLIC_FIELD: pem},
    });
    let api = ssa::api_of::<ConfigMap>(client, namespace);
    match ssa::apply(&api, ssa::CONTROLLER_MANAGER, object, &mode).await {
        Ok(_) => Ok(()),
        // Another reconcile was faster. The next attestation looks again.
        Err(error) if error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
