//! Writes: creates the PipelineRun of a key, and patches the status when it changed.

use std::sync::Arc;

use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::Value;

use super::run::Run;
use super::tekton::resource;
use crate::api::AgentBuild;
use crate::api::agent_build::AgentBuildStatus;
use crate::cluster::client::{CallError, call};
use crate::cluster::live::ManagedStore;
use crate::cluster::reflector;
use crate::cluster::ssa::{self, Mode};
use crate::cluster::store::{Entry, Key, Store};

/// Creates a run, or finds the one that has its name: after a crash between create and status that is ours. Whose it
/// is, the caller checks.
///
/// # Errors
/// The call's error.
pub async fn create(
    client: &Client,
    store: &Store<Run>,
    namespace: &str,
    run: Value,
) -> Result<Arc<Entry<Run>>, CallError> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource());
    let name = run["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match ssa::apply(&api, ssa::CONTROLLER_MANAGER, run, &Mode::Create).await {
        Ok(object) => {
            tracing::info!(namespace, name, "PipelineRun created");
            let (key, entry) = reflector::entry::<Run>(object);
            Ok(store.wrote(key, entry))
        }
        Err(error) if error.is_conflict() => {
            let (key, entry) = reflector::entry::<Run>(call(api.get(&name)).await?);
            // A stranger's run has no label of ours, so the watch would never say that it went: it stays out.
            let labelled = entry.value.key.is_some() && entry.value.owner_uid.is_some();
            Ok(if labelled { store.wrote(key, entry) } else { Arc::new(entry) })
        }
        Err(error) => Err(error),
    }
}

/// Writes the status if it differs from what is live. An object that went meanwhile needs none.
///
/// # Errors
/// The call's error.
pub async fn status(
    client: &Client,
    store: &dyn ManagedStore,
    key: &Key,
    uid: &str,
    old: &AgentBuildStatus,
    new: &AgentBuildStatus,
) -> Result<(), CallError> {
    if old == new {
        return Ok(());
    }
    match ssa::apply_status::<AgentBuild>(client, &key.namespace, &key.name, uid, new).await {
        Ok(object) => {
            store.answered(object);
            Ok(())
        }
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
