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
use crate::controllers::events::Teller;

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

/// Writes the status if it differs from what is live, and tells what of it is news. An object that went meanwhile needs none.
///
/// # Errors
/// The call's error.
pub async fn status(
    client: &Client,
    events: &Arc<Teller>,
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
            events.status::<AgentBuild, _>(key, uid, Some(old), new);
            Ok(())
        }
        // Nobody is left to tell. While the kind is not served nothing is known about the object: that is tried again.
        Err(error) if error.is_gone() => {
            store.deleted_uid(key, uid);
            Ok(())
        }
        // Made anew meanwhile: the watch brings the new one.
        Err(error) if error.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::{Request, Response, StatusCode};
    use k8s_openapi::jiff::Timestamp;
    use kube::client::Body;
    use kube::core::DeserializeGuard;
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::api::agent_build::BuildPhase;
    use crate::cluster::conditions;
    use crate::cluster::live::{Managed, Stores};

    /// Writes a status, and is refused with that code and the name of an object. Gives whether it is to be tried again, and whether
    /// the object is still known.
    async fn refused(code: u16, name: &str) -> (bool, bool) {
        let failure = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": "r", "message": "m", "details": {"name": name, "kind": "agentbuilds"}});
        let client = Client::new(
            tower::service_fn(move |_: Request<Body>| {
                let reply = failure.to_string();
                async move {
                    let mut response = Response::new(Body::from(reply.into_bytes()));
                    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                    Ok::<_, Infallible>(response)
                }
            }),
            "team",
        );
        let stores = Stores::new();
        let build = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
            "metadata": {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "1"},
            "spec": {"source": {"gitSync": {}}, "output": {"image": "team/a"}}});
        let build = serde_json::from_value::<DeserializeGuard<AgentBuild>>(build);
        let (key, entry) = reflector::entry::<Managed<AgentBuild>>(build.expect("an AgentBuild"));
        stores.agent_builds.wrote(key.clone(), entry);
        let old = AgentBuildStatus::default();
        let new = AgentBuildStatus { message: Some("new".into()), ..AgentBuildStatus::default() };
        let (events, builds) = (Teller::new(client.clone()), stores.agent_builds.as_ref());
        let written = status(&client, &events, builds, &key, "u", &old, &new).await;
        (written.is_err(), stores.agent_builds.get(&key).is_some())
    }

    #[tokio::test]
    async fn b8_a_status_of_a_kind_that_is_not_served_is_tried_again() {
        for (code, name, expected) in [
            (404, "", (true, true)),
            (500, "a", (true, true)),
            (404, "a", (false, false)),
            // Made anew.
            (409, "a", (false, true)),
        ] {
            assert_eq!(refused(code, name).await, expected, "{code} about {name:?}");
        }
    }

    /// A status with this phase and this condition `Ready`.
    fn says(phase: BuildPhase, state: &str, reason: &str) -> AgentBuildStatus {
        let mut status = AgentBuildStatus { phase: Some(phase), ..AgentBuildStatus::default() };
        let (list, now) = (&mut status.conditions, Timestamp::UNIX_EPOCH);
        conditions::set(list, "Ready", state, reason, "why", 1, now);
        status
    }

    #[tokio::test(start_paused = true)]
    async fn b6_a_build_that_fails_and_the_next_one_are_told_by_one_event_each() {
        let (sink, mut told) = unbounded_channel();
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let sink = sink.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect_bytes().await.expect("a body");
                    if path.ends_with("/events") {
                        let event: Value = serde_json::from_slice(&body).expect("an event");
                        let _ = sink.send(event);
                    }
                    // What is written is what is there.
                    Ok::<_, Infallible>(Response::new(Body::from(body)))
                }
            }),
            "team",
        );
        let (events, stores) = (Teller::new(client.clone()), Stores::new());
        let (builds, key) = (stores.agent_builds.as_ref(), Key::new("team", "a"));
        let mut again = says(BuildPhase::Failed, "False", "TaskRunFailed");
        again.message = Some("in other words".into());
        let all = [
            AgentBuildStatus::default(),
            says(BuildPhase::Building, "False", "Building"),
            says(BuildPhase::Failed, "False", "TaskRunFailed"),
            again,
            says(BuildPhase::Building, "False", "Building"),
            says(BuildPhase::Succeeded, "True", "Built"),
        ];
        for pair in all.windows(2) {
            let written = status(&client, &events, builds, &key, "u", &pair[0], &pair[1]).await;
            written.expect("it is written");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (type_, reason) in [("Warning", "TaskRunFailed"), ("Normal", "Built")] {
            let event = told.try_recv().expect("an event");
            let text = |place: &str| event.pointer(place).and_then(Value::as_str);
            assert_eq!((text("/type"), text("/reason")), (Some(type_), Some(reason)));
            assert_eq!(text("/note"), Some("why"));
            let about = (text("/regarding/kind"), text("/regarding/name"), text("/regarding/uid"));
            assert_eq!(about, (Some("AgentBuild"), Some("a"), Some("u")));
        }
        assert!(told.try_recv().is_err(), "and nothing else");
    }
}
