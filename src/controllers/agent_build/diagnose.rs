//! Asks Tekton how a PipelineRun ended: why it failed, and how long its steps took.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, LogParams};

use super::failure::{TaskRun, failure};
use super::log_tail::tail;
use super::run::{Run, RunOutcome};
use crate::api::agent_build::{AgentBuildStatus, BuildFailure, BuildPhase, BuildStep};
use crate::cluster::client::{CallError, call};

/// The last lines of a log that are read.
const LOG_LINES: i64 = 60;
/// The most bytes of them.
const MAX_LOG_BYTES: i64 = 1 << 20;

/// How a run ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Why it failed, if it did.
    pub failure: Option<BuildFailure>,
    /// How long its steps took, as far as Tekton says it.
    pub steps: Vec<BuildStep>,
}

/// How a run ended; nothing of one that did not. What the status says of this run is not asked again.
///
/// # Errors
/// The call's error. That the TaskRun is gone, or may not be read, is none: then the PipelineRun alone says why.
pub async fn diagnose(
    client: &Client,
    namespace: &str,
    run: &Run,
    old: &AgentBuildStatus,
) -> Result<Ended, CallError> {
    let told = |failure| Ended { failure, steps: old.steps.clone() };
    let shallow = match &run.outcome {
        RunOutcome::Running => return Ok(Ended::default()),
        RunOutcome::Built { .. } => {
            let is_this = old.pipeline_run.as_deref() == Some(run.name.as_str());
            if is_this && old.phase == Some(BuildPhase::Succeeded) {
                return Ok(told(None));
            }
            None
        }
        RunOutcome::Failed { .. } => {
            let known = old.failure.as_ref().filter(|known| known.pipeline_run == run.name);
            if known.is_some() {
                return Ok(told(known.cloned()));
            }
            failure(run, None)
        }
    };
    let shallow = Ended { failure: shallow, steps: Vec::new() };
    let Some(name) = &run.task_run else { return Ok(shallow) };
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "taskruns");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let task = match call(api.get(name)).await {
        Ok(object) => TaskRun::read(&object),
        Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(shallow),
        // How long its steps took is nothing to wait for.
        Err(_) if shallow.failure.is_none() => return Ok(shallow),
        Err(error) => return Err(error),
    };
    let mut failure = failure(run, Some(&task));
    if let (Some(failure), Some(pod)) = (&mut failure, &task.pod)
        && let Some(step) = &failure.step
    {
        failure.log = log(client, namespace, pod, step).await;
    }
    Ok(Ended { failure, steps: task.steps })
}

/// The end of the log of a step; nothing where the operator may not read it, or where it is gone.
async fn log(client: &Client, namespace: &str, pod: &str, step: &str) -> Option<String> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = LogParams {
        container: Some(format!("step-{step}")),
        tail_lines: Some(LOG_LINES),
        limit_bytes: Some(MAX_LOG_BYTES),
        ..LogParams::default()
    };
    let log = call(api.logs(pod, &params)).await.ok()?;
    Some(tail(&log)).filter(|tail| !tail.is_empty())
}
