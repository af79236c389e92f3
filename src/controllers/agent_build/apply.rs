//! Step "apply" of an AgentBuild: creates the PipelineRun of a build key.

use std::sync::Arc;

use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::Value;

use super::run::Run;
use super::tekton::resource;
use crate::cluster::client::{CallError, call};
use crate::cluster::reflector;
use crate::cluster::ssa::{self, Mode};
use crate::cluster::store::{Entry, Store};

/// Creates a run, or finds the one that has its name: after a crash between create and status that is the same run. The caller
/// checks whose it is.
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
