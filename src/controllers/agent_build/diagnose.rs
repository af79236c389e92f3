//! Asks Tekton how a PipelineRun ended: why it failed, and how long its steps took. And why one does not begin, which its PipelineRun does not say.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams};

use super::failure::{POD_REFUSED, STEP_FAILED, TaskRun, failure, of_deleted_pod};
use super::log_tail::tail;
use super::place::pod_refused;
use super::run::{Run, RunOutcome};
use crate::api::agent_build::{AgentBuildStatus, BuildFailure, BuildPhase, BuildStep};
use crate::cluster::client::{CallError, call};

/// The last lines of a log that are read.
const LOG_LINES: i64 = 60;
/// The most bytes of them.
const MAX_LOG_BYTES: i64 = 1 << 20;
/// How long a pod may take to start until Tekton is asked what it waits for.
const MAX_START: SignedDuration = SignedDuration::from_secs(30);

/// How long after the end of a run a pod that is gone was gone before it.
const MAX_END: SignedDuration = SignedDuration::from_secs(120);

/// How a run ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// Why it failed, if it did.
    pub failure: Option<BuildFailure>,
    /// How long its steps took, as far as Tekton says it.
    pub steps: Vec<BuildStep>,
    /// Why its pod does not run yet, if it has not ended and Tekton says why: a quota, for example.
    pub held_up: Option<String>,
}

/// How a run ended, or why it does not begin. What the status says of a run that ended is not asked again.
///
/// # Errors
/// The call's error. That the TaskRun is gone, or may not be read, is none: then the PipelineRun alone says why.
pub async fn diagnose(
    client: &Client,
    run: &Run,
    old: &AgentBuildStatus,
) -> Result<Ended, CallError> {
    let namespace = run.namespace.as_str();
    let told = |failure| Ended { failure, steps: old.steps.clone(), held_up: None };
    let shallow = match &run.outcome {
        RunOutcome::Running => {
            let held_up = held_up(client, namespace, run, Timestamp::now()).await;
            return Ok(Ended { held_up, ..Ended::default() });
        }
        RunOutcome::Built { .. } => {
            let is_this = old.pipeline_run.as_deref() == Some(run.name.as_str());
            if is_this && old.phase == Some(BuildPhase::Succeeded) {
                return Ok(told(None));
            }
            None
        }
        RunOutcome::Unattested { .. } => {
            let is_this = old.pipeline_run.as_deref() == Some(run.name.as_str());
            if is_this && !old.steps.is_empty() {
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
    let shallow = Ended { failure: shallow, ..Ended::default() };
    let Some(name) = &run.task_run else { return Ok(shallow) };
    let task = match task_run(client, namespace, name).await {
        Ok(task) => task,
        Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(shallow),
        // How long its steps took is nothing to wait for.
        Err(_) if shallow.failure.is_none() => return Ok(shallow),
        Err(error) => return Err(error),
    };
    let mut failure = failure(run, Some(&task));
    if let Some(failure) = failure.as_mut().filter(|failure| failure.reason == POD_REFUSED) {
        failure.message = pod_refused(run, &failure.message);
    }
    if let (Some(one), Some(pod)) = (&failure, &task.pod)
        && one.reason == STEP_FAILED
        && is_deleted(client, namespace, pod, run.ended).await
    {
        failure = failure.map(of_deleted_pod);
    }
    if let (Some(failure), Some(pod)) = (&mut failure, &task.pod)
        && let Some(step) = &failure.step
    {
        failure.log = log(client, namespace, pod, step).await;
    }
    Ok(Ended { failure, steps: task.steps, held_up: None })
}

async fn task_run(client: &Client, namespace: &str, name: &str) -> Result<TaskRun, CallError> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "taskruns");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    Ok(TaskRun::read(&call(api.get(name)).await?))
}

/// Why the pod of a run does not run, some time after Tekton began with it. When Tekton does not answer, nothing is said, and nothing waits.
async fn held_up(client: &Client, namespace: &str, run: &Run, now: Timestamp) -> Option<String> {
    let name = run.task_run.as_ref()?;
    run.began.filter(|began| now.duration_since(*began) >= MAX_START)?;
    task_run(client, namespace, name).await.ok()?.held_up()
}

/// Whether a pod of a run that ended then is about to go, or has gone with it. Later, somebody may have removed it for other reasons. Where the operator
/// may not read it, it is taken for one that is there.
async fn is_deleted(client: &Client, namespace: &str, pod: &str, ended: Option<Timestamp>) -> bool {
    let is_young = ended.is_some_and(|ended| Timestamp::now().duration_since(ended) < MAX_END);
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // The operator may list pods, and not get one.
    let params = ListParams::default().fields(&format!("metadata.name={pod}")).limit(1);
    match call(api.list_metadata(&params)).await {
        Ok(found) if found.items.is_empty() => is_young,
        Ok(found) => found.items.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()),
        Err(_) => false,
    }
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
