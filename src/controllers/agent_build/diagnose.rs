//! Asks Tekton why a PipelineRun failed.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};

use super::failure::{TaskRun, failure};
use super::run::Run;
use crate::api::agent_build::{AgentBuildStatus, BuildFailure};
use crate::cluster::client::{CallError, call};

/// Why a run failed; `None` for one that did not. What the status says of this run is not asked again.
///
/// # Errors
/// The call's error. That the TaskRun is gone, or may not be read, is none: then the PipelineRun alone says why.
pub async fn diagnose(
    client: &Client,
    namespace: &str,
    run: &Run,
    old: &AgentBuildStatus,
) -> Result<Option<BuildFailure>, CallError> {
    let Some(shallow) = failure(run, None) else { return Ok(None) };
    if let Some(known) = old.failure.as_ref().filter(|known| known.pipeline_run == run.name) {
        return Ok(Some(known.clone()));
    }
    let Some(name) = &run.task_run else { return Ok(Some(shallow)) };
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "taskruns");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match call(api.get(name)).await {
        Ok(object) => Ok(failure(run, Some(&TaskRun::read(&object)))),
        Err(error) if error.is_not_found() || error.is_forbidden() => Ok(Some(shallow)),
        Err(error) => Err(error),
    }
}
