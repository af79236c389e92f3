//! Step "apply" of an AgentBuild: creates the PipelineRun of a build key, stops those that are not wanted, and removes old ones.

use std::sync::Arc;

use kube::api::{Api, DynamicObject};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::pipeline_run::{SUPERSEDED_BY, SUPERSEDED_BY_COMMIT};
use super::run::{HELD, Run};
use super::tekton::resource;
use crate::api::agent_build::NewerBuild;
use crate::api::keys;
use crate::cluster::client::{CallError, call};
use crate::cluster::reflector;
use crate::cluster::ssa::{self, Deleted, Mode};
use crate::cluster::store::{Entry, Key, Store};

/// The PipelineRuns of a namespace.
pub(super) fn runs_of(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

/// Creates a run, or finds the one that has its name: after a crash between create and status that is the same run. The caller
/// checks whose it is. Tells whether it was created.
///
/// # Errors
/// The call's error.
pub async fn create(
    client: &Client,
    store: &Store<Run>,
    namespace: &str,
    run: Value,
) -> Result<(Arc<Entry<Run>>, bool), CallError> {
    let api = runs_of(client, namespace);
    let name = run["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match ssa::apply(&api, ssa::CONTROLLER_MANAGER, run, &Mode::Create).await {
        Ok(object) => {
            tracing::info!(namespace, name, "PipelineRun created");
            let (key, entry) = reflector::entry::<Run>(object);
            Ok((store.wrote(key, entry), true))
        }
        Err(error) if error.is_conflict() && !error.is_denied() => {
            let (key, entry) = reflector::entry::<Run>(call(api.get(&name)).await?);
            // A stranger's run has no label of ours, so the watch would never say that it went: it stays out.
            let labelled = entry.value.key.is_some() && entry.value.owner_uid.is_some();
            Ok((if labelled { store.wrote(key, entry) } else { Arc::new(entry) }, false))
        }
        Err(error) => Err(error),
    }
}

/// Tells Tekton to stop a run, `newer` if it is for another build. A run that has ended or changed meanwhile is left alone: the watch
/// brings it.
///
/// # Errors
/// The call's error.
pub async fn stop(
    client: &Client,
    store: &Store<Run>,
    run: &Entry<Run>,
    newer: Option<&NewerBuild>,
) -> Result<(), CallError> {
    let Run { namespace, name, .. } = &run.value;
    let api = runs_of(client, namespace);
    let by_key = newer.map(|newer| (SUPERSEDED_BY, newer.key.as_str()));
    let commit = newer.and_then(|newer| newer.commit.as_deref());
    let by_commit = commit.map(|commit| (SUPERSEDED_BY_COMMIT, commit));
    let annotations: Vec<_> = by_key.into_iter().chain(by_commit).collect();
    let for_key = newer.map(|newer| newer.key.as_str());
    match ssa::cancel(&api, name, &run.uid, run.version, &annotations).await {
        Ok(object) => {
            tracing::info!(namespace, name, for_key, "PipelineRun is stopped");
            let (key, entry) = reflector::entry::<Run>(object);
            store.wrote(key, entry);
            Ok(())
        }
        Err(error) if error.is_gone() || error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Lets Tekton begin with a run that was left pending, with these annotations. A run that has changed meanwhile is left alone: the watch brings it.
///
/// # Errors
/// The call's error.
pub async fn begin(
    client: &Client,
    store: &Store<Run>,
    run: &Entry<Run>,
    annotations: &[(&str, &str)],
) -> Result<(), CallError> {
    let Run { namespace, name, .. } = &run.value;
    match ssa::begin(&runs_of(client, namespace), name, &run.uid, HELD, annotations).await {
        Ok(object) => {
            let (key, entry) = reflector::entry::<Run>(object);
            store.wrote(key, entry);
            Ok(())
        }
        Err(error) if error.is_gone() || error.is_invalid() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a run is there that a watch would show: then it is shown.
///
/// # Errors
/// The call's error.
pub async fn find(
    client: &Client,
    store: &Store<Run>,
    namespace: &str,
    name: &str,
) -> Result<bool, CallError> {
    let found = call(runs_of(client, namespace).get_opt(name)).await?;
    let is_ours = |run: &DynamicObject| run.labels().contains_key(keys::OWNER_KIND);
    let Some(object) = found.filter(is_ours) else { return Ok(false) };
    let (key, entry) = reflector::entry::<Run>(object);
    store.wrote(key, entry);
    Ok(true)
}

/// Removes a run, as it was when that was seen.
///
/// # Errors
/// The call's error.
pub async fn remove(
    client: &Client,
    store: &Store<Run>,
    run: &Entry<Run>,
) -> Result<(), CallError> {
    let Run { namespace, name, .. } = &run.value;
    match ssa::delete(&runs_of(client, namespace), name, &run.uid, run.version).await {
        Ok(Deleted::Gone) => {
            store.deleted(&Key::new(namespace.as_str(), name.as_str()), &run.uid);
            tracing::info!(namespace, name, "PipelineRun removed");
            Ok(())
        }
        // The watch brings it.
        Ok(Deleted::Changed | Deleted::Terminating(_)) => Ok(()),
        Err(error) if error.is_forbidden() => {
            tracing::warn!(namespace, name, %error, "an old PipelineRun cannot be removed");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "tests/apply.rs"]
mod tests;
