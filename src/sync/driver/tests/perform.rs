use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::api::git_sync::GitSyncStatus;
use crate::api::{Kind, ObjectId};
use crate::cluster::ssa::{Deleted, Mode};

/// What is sent for a request, which is answered with this: method, path with query, body.
async fn sent(call: Call, code: u16, reply: Value) -> ((Method, String, Value), Replied) {
    let seen = Arc::new(Mutex::new(None));
    let sink = seen.clone();
    let client = Client::new(
        tower::service_fn(move |request: Request<Body>| {
            let (sink, reply) = (sink.clone(), reply.to_string());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                *sink.lock().expect("lock") = Some((parts.method, parts.uri.to_string(), body));
                let mut response = Response::new(Body::from(reply.into_bytes()));
                *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                Ok::<_, std::convert::Infallible>(response)
            }
        }),
        "team",
    );
    let replied = perform(client, "team", call).await;
    let seen = seen.lock().expect("lock").take();
    (seen.expect("a request"), replied)
}

fn id() -> ObjectId {
    ObjectId::new(Kind::ModelAPI, "a")
}

fn live() -> Value {
    json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI",
        "metadata": {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "8"}})
}

#[tokio::test]
async fn g14_an_apply_says_which_object_it_means_and_in_which_version() {
    let manifest = || json!({"metadata": {"name": "a"}, "spec": {}});
    let update = |version| Mode::Update { uid: "u".into(), version };
    for (mode, uid, version) in [
        (Mode::Create, json!(null), json!("1")),
        (update(Some(7)), json!("u"), json!("7")),
        (update(None), json!("u"), json!(null)),
    ] {
        let call = Call::Apply { id: id(), manifest: manifest(), mode: mode.clone() };
        let ((method, path, body), replied) = sent(call, 200, live()).await;
        assert_eq!(method, Method::PATCH);
        assert!(path.contains("/namespaces/team/modelapis/a?"), "{path}");
        assert!(path.contains("fieldManager=convoke-sync") && path.contains("force=true"));
        let meta = &body["metadata"];
        assert_eq!((&meta["uid"], &meta["resourceVersion"]), (&uid, &version), "{mode:?}");
        assert!(matches!(replied, Ok(Reply::Object(_))));
        // The same is asked when nothing is to be written.
        let call = Call::Rehearse { id: id(), manifest: manifest(), mode: mode.clone() };
        let ((_, path, rehearsed), _) = sent(call, 200, live()).await;
        assert!(path.contains("dryRun=All"), "{path}");
        assert_eq!(rehearsed, body);
    }
}

#[tokio::test]
async fn g12_a_delete_says_uid_and_version_and_tells_what_became_of_it() {
    let call = || Call::Delete { id: id(), uid: "u".into(), version: 7 };
    let failure = |code: u16, name: &str| {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": "r", "message": "m", "details": {"name": name, "kind": "modelapis"}})
    };
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    let mut kept = live();
    kept["metadata"]["finalizers"] = json!(["somebody/else"]);
    let object = serde_json::from_value(kept.clone()).expect("an object");
    for (code, reply, became) in [
        (200, done, Some(Deleted::Gone)),
        (200, live(), Some(Deleted::Gone)),
        (200, kept.clone(), Some(Deleted::Terminating(Box::new(object)))),
        (409, failure(409, "a"), Some(Deleted::Changed)),
        (404, failure(404, "a"), Some(Deleted::Gone)),
        // The kind is not served: nothing is known about the object.
        (404, failure(404, ""), None),
        (500, failure(500, "a"), None),
    ] {
        let ((method, _, body), replied) = sent(call(), code, reply).await;
        assert_eq!(method, Method::DELETE);
        assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
        let replied = match replied {
            Ok(Reply::Deleted(deleted)) => Some(deleted),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        };
        assert_eq!(replied, became, "{code}");
    }
}

#[tokio::test]
async fn g14_what_is_replaced_is_compared_with_the_version_that_was_judged() {
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"});
    let call = Call::ReplaceSpec { id: id(), version: 7, spec: json!({"mode": "External"}) };
    let ((_, path, body), _) = sent(call, 200, live()).await;
    assert!(path.contains("fieldManager=convoke-sync"), "{path}");
    let spec = json!({"op": "replace", "path": "/spec", "value": {"mode": "External"}});
    assert_eq!(body, json!([version, spec]));
    let finalizers = vec!["f".to_owned()];
    let call = Call::Finalizers { name: "main".into(), version: 7, finalizers };
    let ((_, path, body), _) = sent(call, 200, live()).await;
    assert!(path.contains("/namespaces/team/gitsyncs/main"), "{path}");
    let all = json!({"op": "add", "path": "/metadata/finalizers", "value": ["f"]});
    assert_eq!(body, json!([version, all]));
}

#[tokio::test]
async fn g18_a_status_is_that_of_the_git_sync_with_this_uid_only() {
    let status = Box::new(GitSyncStatus::default());
    let call = Call::Status { name: "main".into(), uid: "u".into(), status };
    let ((method, path, body), _) = sent(call, 200, live()).await;
    assert_eq!(method, Method::PATCH);
    assert!(path.contains("/namespaces/team/gitsyncs/main/status?"), "{path}");
    assert_eq!(body["metadata"], json!({"name": "main", "uid": "u"}));
    // What somebody else has written into it stays, unless it is named.
    let call = Call::ClearStatus { name: "main".into(), version: 7, fields: vec!["approvedPrune"] };
    let ((_, path, body), _) = sent(call, 200, live()).await;
    assert!(path.contains("/namespaces/team/gitsyncs/main/status?"), "{path}");
    let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"});
    assert_eq!(body, json!([version, {"op": "remove", "path": "/status/approvedPrune"}]));
}
