use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::api::AgentBuild;
use crate::api::agent_build::{AgentBuildStatus, BuildPhase};
use crate::cluster::conditions;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;

/// A status with this phase and this condition `Ready`.
fn says(phase: BuildPhase, state: &str, reason: &str) -> AgentBuildStatus {
    let mut status = AgentBuildStatus { phase: Some(phase), ..AgentBuildStatus::default() };
    let (list, now) = (&mut status.conditions, Timestamp::UNIX_EPOCH);
    conditions::Observed { generation: 1, now }.set(list, "Ready", state, reason, "why");
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
    let (store, key) = (stores.agent_builds.as_ref(), Key::new("team", "a"));
    let target = Target { client: &client, store, key: &key, uid: "u" };
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
        let written = write::<AgentBuild, _>(&events, &target, Some(&pair[0]), &pair[1]).await;
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
