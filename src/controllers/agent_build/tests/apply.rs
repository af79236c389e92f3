use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;

/// An API server that has this one PipelineRun.
fn server(name: &'static str, labels: Value) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_it = request.uri().path().ends_with(&format!("/pipelineruns/{name}"));
        let found = json!({
            "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
            "metadata": {"name": name, "namespace": "team", "uid": "u", "resourceVersion": "7", "labels": labels},
        });
        let missing =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        let (code, body) = if is_it { (200, found) } else { (404, missing) };
        let response =
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(response.expect("a response")) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn b7_a_run_that_the_watch_does_not_show_yet_is_found() {
    let store = Store::<Run>::new("PipelineRun");
    let client = server("x-1", json!({keys::OWNER_KIND: "AgentBuild"}));
    assert!(!find(&client, &store, "team", "x-2").await.expect("an answer"), "it is gone");
    assert!(store.all().is_empty());
    assert!(find(&client, &store, "team", "x-1").await.expect("an answer"));
    assert!(store.get(&Key::new("team", "x-1")).is_some(), "the next reconcile sees it");
    // No watch would ever show the end of one without the label.
    let (store, client) = (Store::<Run>::new("PipelineRun"), server("x-1", json!({})));
    assert!(!find(&client, &store, "team", "x-1").await.expect("an answer"));
    assert!(store.all().is_empty());
}
