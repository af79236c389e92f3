//! What stands between a plan and its writes: each request says what it was judged by, and what has changed meanwhile is judged
//! again. A small API server answers each request on its own terms, and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::super::driver;
use super::super::machine::io::Pass;
use super::super::properties::definition;
use super::*;
use crate::api::Kind;

/// A request: method, and the preconditions of its body (`uid/resourceVersion`; `-` where it says none).
type Asked = Vec<(Method, String)>;

/// Answers with these, in their order; then with a failure.
struct Server {
    replies: Mutex<VecDeque<(u16, Value)>>,
    asked: Mutex<Asked>,
}

impl Server {
    fn new(replies: Vec<(u16, Value)>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into()), asked: Mutex::default() })
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        Client::new(
            service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.expect("a body").to_bytes();
                    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let said = if parts.method == Method::DELETE {
                        &body["preconditions"]
                    } else {
                        &body["metadata"]
                    };
                    let text = |name: &str| said[name].as_str().unwrap_or("-").to_owned();
                    let asked = format!("{}/{}", text("uid"), text("resourceVersion"));
                    server.asked.lock().expect("lock").push((parts.method, asked));
                    let next = server.replies.lock().expect("lock").pop_front();
                    let (code, reply) = next.unwrap_or_else(|| failure(500));
                    let mut response = Response::new(Body::from(reply.to_string().into_bytes()));
                    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                    Ok::<_, std::convert::Infallible>(response)
                }
            }),
            "team",
        )
    }

    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().expect("lock");
        asked.iter().map(|(method, said)| format!("{method} {said}")).collect()
    }
}

fn failure(code: u16) -> (u16, Value) {
    let reason = if code == 409 { "Conflict" } else { "InternalError" };
    let details = json!({"name": "a", "kind": "modelapis"});
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": reason, "message": "it has changed", "details": details}),
    )
}

fn gone() -> (u16, Value) {
    (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
}

fn sync() -> SyncRef {
    SyncRef { uid: "s".into(), namespace: "team".into(), name: "main".into(), generation: 1 }
}

fn id() -> ObjectId {
    ObjectId::new(Kind::ModelAPI, "a")
}

/// The object as the server has it at that version: as it was applied for `content`, with these changes to its metadata.
fn object(version: u64, content: usize, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = Desired::new(definition(&id(), content)).manifest(&sync(), "c");
    object["metadata"]["namespace"] = json!("team");
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    change(&mut object["metadata"]);
    object
}

fn same(_: &mut Value) {}

/// What others may do to an object between a plan and a write, each so that the object is not to be touched any more.
fn interference() -> [(&'static str, fn(&mut Value)); 6] {
    [
        ("paused", |meta| meta["annotations"][keys::RECONCILE] = json!(keys::DISABLED)),
        ("another one of that name", |meta| meta["uid"] = json!("v")),
        ("nobody's", |meta| {
            let _mark = meta["annotations"].as_object_mut().map(|all| all.remove(keys::OWNER));
        }),
        ("of another sync", |meta| {
            meta["annotations"][keys::OWNER] = json!("t/team/other/ModelAPI/team/a");
        }),
        ("of an earlier sync", |meta| {
            meta["annotations"][keys::OWNER] = json!("r/team/main/ModelAPI/team/a");
        }),
        ("copied", |meta| {
            meta["annotations"][keys::OWNER] = json!("s/team/main/ModelAPI/team/b");
        }),
    ]
}

/// A writer over a store that shows the object at version 7.
async fn with_writer<T>(
    server: &Arc<Server>,
    shown: Option<Value>,
    absent: &(dyn Fn() -> bool + Sync),
    work: impl for<'a> FnOnce(&'a Writer<'a>) -> BoxFuture<'a, T>,
) -> T {
    let (client, stores, sync, io) = (server.client(), Stores::new(), sync(), driver::io());
    if let Some(shown) = shown {
        let _seen = stores.managed(Kind::ModelAPI).wrote_json(shown);
    }
    let writer = Writer {
        io: &io,
        account: None,
        stores: &stores,
        sync: &sync,
        commit: "c",
        atomic: false,
        go_on: &|| true,
        absent,
        given: &|mark, _| mark.sync_uid != "keeps",
        until: io.now() + LONGEST,
    };
    driver::drive(&client, Pass::new(io.clone(), work(&writer))).await
}

async fn updated(
    server: &Arc<Server>,
    shown: Option<Value>,
    adopted: bool,
) -> Result<Option<u64>, Failure> {
    let mode = Mode::Update { uid: "u".into(), version: None };
    let want = Desired::new(definition(&id(), 2));
    // What the plan has seen: an object that another sync gives.
    let adopted = adopted.then(|| [Some("t/team/other/ModelAPI/team/a".to_owned()), None]);
    let job = Job { id: id(), want, mode, adopted, drifted: false };
    with_writer(server, shown, &|| true, |writer| {
        async move {
            let slot = writer.io.slot().await;
            let updated = writer.update(slot, &job, "u").await;
            updated.map(|seen| seen.map(|(before, _)| before))
        }
        .boxed()
    })
    .await
}

async fn pruned(server: &Arc<Server>, absent: bool) -> Result<Pruned, String> {
    let victim = Victim { id: id(), uid: "u".into(), version: 7 };
    with_writer(server, Some(object(7, 1, same)), &|| absent, |writer| {
        async move { writer.prune(&victim).await }.boxed()
    })
    .await
}

#[tokio::test]
async fn g14_an_update_says_the_version_that_it_was_judged_by_and_one_that_changed_is_judged_again()
{
    let server =
        Server::new(vec![failure(409), (200, object(8, 1, same)), (200, object(9, 2, same))]);
    assert_eq!(updated(&server, Some(object(7, 1, same)), false).await, Ok(Some(8)));
    assert_eq!(server.asked(), ["PATCH u/7", "GET -/-", "PATCH u/8"]);

    // It changes each time.
    let busy: Vec<_> = (0..20).flat_map(|_| [failure(409), (200, object(8, 1, same))]).collect();
    let server = Server::new(busy);
    let failed = updated(&server, Some(object(7, 1, same)), false).await;
    assert!(matches!(failed, Err(Failure::Transient(_))), "{failed:?}");
    assert_eq!(server.asked().iter().filter(|asked| asked.starts_with("PATCH")).count(), 5);
}

#[tokio::test]
async fn g14_an_object_that_was_paused_taken_or_replaced_after_the_plan_is_not_written() {
    for (what, change) in interference() {
        // The watch has shown it already.
        let server = Server::new(Vec::new());
        assert_eq!(updated(&server, Some(object(8, 1, change)), false).await, Ok(None), "{what}");
        assert_eq!(server.asked(), Vec::<String>::new(), "{what}");
        // The watch is late.
        let server = Server::new(vec![failure(409), (200, object(8, 1, change))]);
        assert_eq!(updated(&server, Some(object(7, 1, same)), false).await, Ok(None), "{what}");
        assert_eq!(server.asked(), ["PATCH u/7", "GET -/-"], "{what}");
    }
    let deleted = |meta: &mut Value| meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let server = Server::new(vec![failure(409), (200, object(8, 1, deleted))]);
    assert_eq!(updated(&server, Some(object(7, 1, same)), false).await, Ok(None));
    let server = Server::new(vec![failure(409), failure(404)]);
    assert_eq!(updated(&server, Some(object(7, 1, same)), false).await, Ok(None));
    assert_eq!(updated(&Server::new(Vec::new()), None, false).await, Ok(None), "it is gone");

    // What is adopted has no mark of ours: as long as nobody else has laid claim to it meanwhile.
    let given: fn(&mut Value) = |meta| {
        meta["annotations"][keys::OWNER] = json!("t/team/other/ModelAPI/team/a");
    };
    for (change, written) in [(given, Ok(Some(8))), (same, Ok(None))] {
        let replies = vec![failure(409), (200, object(8, 1, change)), (200, object(9, 2, same))];
        let server = Server::new(replies);
        assert_eq!(updated(&server, Some(object(7, 1, given)), true).await, written);
    }
    // Whatever its status says by now.
    let server = Server::new(vec![(200, object(9, 2, same))]);
    assert_eq!(updated(&server, Some(object(8, 1, given)), true).await, Ok(Some(8)));
    assert_eq!(server.asked(), ["PATCH u/8"], "one request, and no round of conflicts");
    let kept: fn(&mut Value) = |meta| {
        meta["annotations"][keys::OWNER] = json!("keeps/team/other/ModelAPI/team/a");
    };
    let elsewhere: fn(&mut Value) = |meta| {
        meta["annotations"][keys::OWNER] = json!("t/team/other/ModelAPI/team/a");
        meta["annotations"][keys::ADOPT_BY] = json!("third");
    };
    for claimed in [kept, elsewhere, same] {
        let server = Server::new(Vec::new());
        let taken = updated(&server, Some(object(8, 1, claimed)), true).await;
        assert_eq!(taken, Ok(None), "not as planned");
        assert_eq!(server.asked(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn g22_an_object_that_its_giver_keeps_after_all_is_not_taken() {
    // What the plan has seen is still there, but the other sync does not give it any more.
    let claim = [Some("keeps/team/other/ModelAPI/team/a".to_owned()), None];
    let server = Server::new(Vec::new());
    with_writer(&server, None, &|| true, |writer| {
        async move {
            assert!(!writer.may_adopt(&id(), &claim, &claim));
            let vanished = [Some("r/team/main/ModelAPI/team/a".to_owned()), None];
            assert!(writer.may_adopt(&id(), &vanished, &vanished), "of this name");
            let copied = [Some("keeps/team/other/ModelAPI/team/b".to_owned()), None];
            assert!(writer.may_adopt(&id(), &copied, &copied), "a copied mark counts for nothing");
        }
        .boxed()
    })
    .await;
}

#[tokio::test]
async fn g12_a_delete_says_uid_and_version_and_one_that_changed_is_judged_again() {
    let server = Server::new(vec![failure(409), (200, object(8, 1, same)), gone()]);
    assert_eq!(pruned(&server, true).await, Ok(Pruned::Gone));
    assert_eq!(server.asked(), ["DELETE u/7", "GET -/-", "DELETE u/8"]);
    let protected = |meta: &mut Value| meta["annotations"][keys::PRUNE] = json!(keys::DISABLED);
    let mut all = interference().to_vec();
    all.push(("protected", protected));
    for (what, change) in all {
        let server = Server::new(vec![failure(409), (200, object(8, 1, change))]);
        assert_eq!(pruned(&server, true).await, Ok(Pruned::Taken), "{what}");
        assert_eq!(server.asked(), ["DELETE u/7", "GET -/-"], "{what}");
    }
    let server = Server::new(vec![failure(409), failure(404)]);
    assert_eq!(pruned(&server, true).await, Ok(Pruned::Gone));
    let busy: Vec<_> = (0..20).flat_map(|_| [failure(409), (200, object(8, 1, same))]).collect();
    let server = Server::new(busy);
    assert!(pruned(&server, true).await.is_err());
    assert_eq!(server.asked().iter().filter(|asked| asked.starts_with("DELETE")).count(), 5);
}

#[tokio::test]
async fn g22_nothing_is_deleted_once_its_absence_is_in_doubt() {
    let server = Server::new(vec![gone()]);
    assert_eq!(pruned(&server, false).await, Ok(Pruned::Stopped));
    assert_eq!(server.asked(), Vec::<String>::new());
}
