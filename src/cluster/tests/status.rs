use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use kube::core::DeserializeGuard;
use serde_json::json;

use super::*;
use crate::api::AgentBuild;
use crate::api::agent_build::AgentBuildStatus;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::reflector;

/// Writes a status, and is refused with that code and the name of an object. Gives what became of the status, `None` after
/// an error, and whether the object is still known.
async fn refused(code: u16, name: &str) -> (Option<Written>, bool) {
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
    let store = stores.agent_builds.as_ref();
    let target = Target { client: &client, store, key: &key, uid: "u" };
    let unchanged = write::<AgentBuild, _>(&target, Some(&old), &old).await;
    assert_eq!(unchanged.ok(), Some(Written::Unchanged), "nothing is sent");
    let written = write::<AgentBuild, _>(&target, Some(&old), &new).await;
    (written.ok(), stores.agent_builds.get(&key).is_some())
}

#[tokio::test]
async fn b8_a_status_of_a_kind_that_is_not_served_is_tried_again() {
    for (code, name, expected) in [
        (404, "", (None, true)),
        (500, "a", (None, true)),
        (404, "a", (Some(Written::Gone), false)),
        (409, "a", (Some(Written::Replaced), true)),
    ] {
        assert_eq!(refused(code, name).await, expected, "{code} about {name:?}");
    }
}
