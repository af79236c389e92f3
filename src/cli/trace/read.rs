//! Reads the stages of an object. What belongs to whom is decided by UIDs: everybody may give any name or label to what he creates.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DynamicObject, ListParams};

use super::facts::{
    BuildFacts, DeploymentFacts, ObjectFacts, PodFacts, Seen, SyncFacts, Trace, TroubleFacts, mark,
    run_state,
};
use crate::api::{AgentBuild, GROUP, GitSync, Kind};
use crate::cli::builds::tekton_of_name;
use crate::cli::connection::Connection;
use crate::cli::pods::{MAX_PODS, Pods, Workload, controller, refused};
use crate::cli::{CLUSTER, Failure, USAGE};
use crate::cluster::client::call;
use crate::cluster::meta::child_name;
use crate::cluster::pods::{read as read_pod, trouble_of};
use crate::cluster::ready_pods::SeenPod;
use crate::cluster::ssa::api_of_kind;
use crate::cluster::store::{Entry, Key};
use convoke_core::text::nearest;

/// The annotation with the number of a revision, on a Deployment and on its ReplicaSets. Kubernetes sets it.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Reads all stages. A stage that may not be read is told as such; every other failure ends the command.
pub(super) async fn trace(connection: &Connection, workload: &Workload) -> Result<Trace, Failure> {
    let live = object(connection, workload).await?;
    let mut object = ObjectFacts::of(workload.kind, &live);
    let git_sync = git_sync(connection, workload.kind, &live).await?;
    if workload.kind == Kind::AgentBuild {
        object.build = Some(workload.name.clone());
        let build = Some(build(connection, &workload.name).await?);
        let namespace = connection.namespace.clone();
        let missing = "an AgentBuild has no Deployment".to_owned();
        let (deployment, pods) = (Seen::Missing { missing }, Seen::Known(Vec::new()));
        return Ok(Trace { namespace, git_sync, object, build, deployment, pods, trouble: None });
    }
    let build = match &object.build {
        Some(name) => Some(build(connection, name).await?),
        None => None,
    };
    let deployment = deployment(connection, workload, &live).await?;
    let (pods, trouble) = match &deployment {
        Seen::Known(deployment) => pods(connection, workload, &live, deployment).await?,
        Seen::Missing { .. } => (Seen::Known(Vec::new()), None),
        Seen::Refused { missing_right } => {
            (Seen::Refused { missing_right: missing_right.clone() }, None)
        }
    };
    let deployment = match deployment {
        Seen::Known(deployment) => Seen::Known(DeploymentFacts::of(&deployment)),
        Seen::Missing { missing } => Seen::Missing { missing },
        Seen::Refused { missing_right } => Seen::Refused { missing_right },
    };
    let namespace = connection.namespace.clone();
    Ok(Trace { namespace, git_sync, object, build, deployment, pods, trouble })
}

/// The stage of a read that failed, if it failed for want of a right.
fn unreadable<T>(failure: Failure) -> Result<Seen<T>, Failure> {
    match failure.lacks {
        Some(missing_right) => Ok(Seen::Refused { missing_right }),
        None => Err(failure),
    }
}

async fn object(connection: &Connection, workload: &Workload) -> Result<DynamicObject, Failure> {
    let (namespace, Workload { kind, name }) = (&connection.namespace, workload);
    let api = api_of_kind(&connection.client, namespace, *kind);
    let error = match call(api.get(name)).await {
        Ok(object) if *kind == Kind::MCPServer && object.data["spec"]["remote"].is_object() => {
            let message = format!("MCPServer {name} is remote: it runs no pods");
            return Err(Failure::new(USAGE, message));
        }
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    if !error.is_gone() {
        return Err(refused(connection, "get", kind.plural(), &error));
    }
    let failure = Failure::new(CLUSTER, format!("there is no {kind} {name} in {namespace}"));
    // Whoever may not list them gets no names.
    let listed = call(api.list_metadata(&ListParams::default().limit(MAX_PODS))).await.ok();
    let names = listed.map(|list| list.items).unwrap_or_default();
    let names: Vec<_> = names.into_iter().filter_map(|one| one.metadata.name).collect();
    let near = nearest(name, names.iter().map(String::as_str));
    let kind = kind.as_str().to_lowercase();
    Err(match near {
        Some(near) => failure.hint(format!("did you mean {kind}/{near}?")),
        None => failure.hint("name its namespace with -n"),
    })
}

async fn git_sync(
    connection: &Connection,
    kind: Kind,
    object: &DynamicObject,
) -> Result<Option<Seen<SyncFacts>>, Failure> {
    let Some(mark) = mark(kind, object) else { return Ok(None) };
    let (namespace, name) = (&connection.namespace, &mark.sync_name);
    let api: Api<GitSync> = Api::namespaced(connection.client.clone(), namespace);
    let gone = || Seen::Missing { missing: format!("GitSync {name} in {namespace} is gone") };
    Ok(Some(match call(api.get(name)).await {
        Ok(sync) if sync.metadata.uid.as_deref() == Some(mark.sync_uid.as_str()) => {
            Seen::Known(SyncFacts::of(&sync))
        }
        Ok(_) => gone(),
        Err(error) if error.is_gone() => gone(),
        Err(error) => unreadable(connection.failure("get", "gitsyncs", &error))?,
    }))
}

async fn build(connection: &Connection, name: &str) -> Result<Seen<BuildFacts>, Failure> {
    let api: Api<AgentBuild> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let build = match call(api.get(name)).await {
        Ok(build) => build,
        Err(error) if error.is_gone() => {
            return Ok(Seen::Missing { missing: format!("there is no AgentBuild {name}") });
        }
        Err(error) => return unreadable(connection.failure("get", "agentbuilds", &error)),
    };
    let status = build.status.as_ref();
    let run = status.and_then(|status| status.pipeline_run.as_deref());
    let elsewhere = status.and_then(|status| status.build_namespace.as_deref());
    let connection = &connection.of_namespace(elsewhere);
    let state = match run {
        None => None,
        Some(run) => match tekton_of_name(connection, "PipelineRun", "pipelineruns", run).await {
            Ok(run) => Some(run_state(run.as_ref(), build.metadata.uid.as_deref())),
            Err(failure) if failure.lacks.is_some() => None,
            Err(failure) => return Err(failure),
        },
    };
    Ok(Seen::Known(BuildFacts::of(&build, state)))
}

async fn deployment(
    connection: &Connection,
    workload: &Workload,
    object: &DynamicObject,
) -> Result<Seen<Deployment>, Failure> {
    let Workload { kind, name } = workload;
    let child = child_name(&kind.as_str().to_lowercase(), name, 0);
    let api: Api<Deployment> = Api::namespaced(connection.client.clone(), &connection.namespace);
    match call(api.get(&child)).await {
        Ok(deployment) => {
            let owner = controller(&deployment.metadata, GROUP, kind.as_str());
            let is_own =
                owner.is_some_and(|owner| Some(&owner.uid) == object.metadata.uid.as_ref());
            let missing = format!("Deployment {child} does not belong to {kind} {name}");
            Ok(if is_own { Seen::Known(deployment) } else { Seen::Missing { missing } })
        }
        Err(error) if error.is_gone() => {
            Ok(Seen::Missing { missing: format!("there is no Deployment {child}") })
        }
        Err(error) => unreadable(refused(connection, "get", "deployments", &error)),
    }
}

/// The pods of a Deployment, and what is wrong with those of its newest revision.
async fn pods(
    connection: &Connection,
    workload: &Workload,
    object: &DynamicObject,
    deployment: &Deployment,
) -> Result<(Seen<Vec<PodFacts>>, Option<TroubleFacts>), Failure> {
    let mut pods = Pods::of_object(connection, workload, object);
    let listed = match pods.list().await {
        Ok(listed) => listed,
        Err(failure) => return Ok((unreadable(failure)?, None)),
    };
    let revision = |meta: &ObjectMeta| meta.annotations.as_ref()?.get(REVISION).cloned();
    let newest = revision(&deployment.metadata);
    let mut facts = Vec::new();
    let mut newest_pods = Vec::new();
    for pod in &listed {
        let is_newest = newest.is_some() && pods.replica_set(pod).and_then(revision) == newest;
        let seen = seen(pod);
        let failing = seen.as_ref().and_then(|(_, entry)| entry.value.failing());
        facts.push(PodFacts::of(pod, is_newest, failing.map(|pod| pod.problem.reason())));
        newest_pods.extend(seen.filter(|_| is_newest));
    }
    facts.sort_by(|one, other| other.is_newest.cmp(&one.is_newest).then(one.name.cmp(&other.name)));
    let trouble = trouble_of(deployment, &newest_pods);
    let trouble = trouble.map(|trouble| TroubleFacts::of(trouble.reason, &trouble.message));
    Ok((Seen::Known(facts), trouble))
}

/// A pod as the operator sees it.
fn seen(pod: &Pod) -> Option<(Key, Arc<Entry<SeenPod>>)> {
    let (key, entry) = read_pod(&serde_json::to_string(pod).ok()?).ok()?;
    Some((key, Arc::new(entry?)))
}

#[cfg(test)]
#[path = "tests/read.rs"]
mod tests;
