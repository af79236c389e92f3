//! Writes check an object once more when they are sent, and name the version that was checked. A small API server answers with
//! prepared replies, and records the requests.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::api::Kind;
use crate::cluster::write::Deleted;
use crate::sync::apply::impersonation::Rejection;
use crate::sync::apply::{MAX_APPLY_TIME, Pruned};
use crate::sync::io::Coroutine;
use crate::sync::io::drive::{drive, io, start};
use crate::sync::io::effect::Replied;
use crate::sync::plan::Victim;
use crate::sync::properties::definition;

/// Answers with these, in their order; then with a failure.
pub(crate) struct Server {
    replies: Mutex<VecDeque<(u16, Value)>>,
    /// What it was asked: the method, and by what the request was judged (`uid/resourceVersion`; `-` where it says none).
    asked: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) fn new(replies: Vec<(u16, Value)>) -> Arc<Self> {
        Arc::new(Self { replies: Mutex::new(replies.into()), asked: Mutex::default() })
    }

    fn answer(&self, call: &Call) -> Replied {
        let judged = |uid: &str, version: Option<u64>| {
            format!("{uid}/{}", version.map_or("-".to_owned(), |version| version.to_string()))
        };
        let (asked, deletes) = match call {
            Call::Apply { mode: Mode::Create, .. } => ("PATCH -/1".to_owned(), false),
            Call::Apply { mode: Mode::Update { uid, version }, .. } => {
                (format!("PATCH {}", judged(uid, *version)), false)
            }
            Call::ReplaceSpec { version, .. } => {
                (format!("PATCH {}", judged("-", Some(*version))), false)
            }
            Call::Get { .. } => ("GET -/-".to_owned(), false),
            Call::Delete { uid, version, .. } => {
                (format!("DELETE {}", judged(uid, Some(*version))), true)
            }
            other => panic!("{other:?}"),
        };
        self.asked.lock().push(asked);
        let next = self.replies.lock().pop_front();
        let (code, reply) = next.unwrap_or_else(|| failure(500));
        match (code, deletes) {
            (200, true) => Ok(Reply::Deleted(Deleted::Gone)),
            (409, true) => Ok(Reply::Deleted(Deleted::Changed)),
            (200, false) => {
                let object = serde_json::from_value(reply).expect("an object");
                Ok(Reply::Object(Box::new(object)))
            }
            _ => {
                Err(CallError::Refused(Box::new(serde_json::from_value(reply).expect("a status"))))
            }
        }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

pub(crate) fn failure(code: u16) -> (u16, Value) {
    let reason = if code == 409 { "Conflict" } else { "InternalError" };
    let details = json!({"name": "a", "kind": "modelapis"});
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": reason, "message": "it has changed", "details": details}),
    )
}

pub(crate) fn gone() -> (u16, Value) {
    (200, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
}

fn sync() -> SyncRef {
    SyncRef { uid: "s".into(), namespace: "team".into(), name: "main".into(), generation: 1 }
}

pub(crate) fn id() -> ObjectId {
    ObjectId::new(Kind::ModelAPI, "a")
}

/// The object as the server has it at that version: as it was applied for `content`, with these changes to its metadata.
pub(crate) fn object(version: u64, content: usize, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = Desired::new(definition(&id(), content)).manifest(&sync(), "c");
    object["metadata"]["namespace"] = json!("team");
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    change(&mut object["metadata"]);
    object
}

pub(crate) fn same(_: &mut Value) {}

/// Changes by others between a plan and a write, after each of which the object must not be written any more.
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
pub(crate) fn with_writer<T>(
    server: &Arc<Server>,
    shown: Option<Value>,
    absent: &(dyn Fn() -> bool + Sync),
    work: impl for<'a> FnOnce(&'a Writer<'a>) -> BoxFuture<'a, T>,
) -> T {
    let start = start();
    let (stores, sync, io) = (Stores::new(), sync(), io(start));
    if let Some(shown) = shown {
        let shown = serde_json::from_value(shown).expect("an object");
        let _seen = stores.managed(Kind::ModelAPI).answered(shown);
    }
    let writer = Writer {
        io: &io,
        account: None,
        stores: &stores,
        sync: &sync,
        commit: "c",
        atomic: false,
        is_current: &|| true,
        is_absence_proven: absent,
        is_handed_over: &|mark, _| mark.sync_uid != "keeps",
        deadline: io.now() + MAX_APPLY_TIME,
    };
    let pass = Coroutine::new(io.clone(), work(&writer));
    drive(pass, start, |request| (Duration::ZERO, server.answer(&request.call))).0
}

fn updated(
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
            let permit = writer.io.permit().await;
            let updated = writer.update(permit, &job, "u").await;
            updated.map(|seen| seen.map(|(before, _)| before))
        }
        .boxed()
    })
}

fn pruned(server: &Arc<Server>, absent: bool) -> Result<Pruned, Rejection> {
    let victim = Victim { id: id(), uid: "u".into(), version: 7 };
    with_writer(server, Some(object(7, 1, same)), &|| absent, |writer| {
        async move { writer.prune(&victim).await }.boxed()
    })
}

#[test]
fn g14_an_update_says_the_version_that_it_was_judged_by_and_one_that_changed_is_judged_again() {
    let server =
        Server::new(vec![failure(409), (200, object(8, 1, same)), (200, object(9, 2, same))]);
    assert_eq!(updated(&server, Some(object(7, 1, same)), false), Ok(Some(8)));
    assert_eq!(server.asked(), ["PATCH u/7", "GET -/-", "PATCH u/8"]);

    // It changes each time.
    let busy: Vec<_> = (0..20).flat_map(|_| [failure(409), (200, object(8, 1, same))]).collect();
    let server = Server::new(busy);
    let failed = updated(&server, Some(object(7, 1, same)), false);
    assert!(matches!(failed, Err(Failure::Transient(_))), "{failed:?}");
    assert_eq!(server.asked().iter().filter(|asked| asked.starts_with("PATCH")).count(), 5);
}

#[test]
fn g14_an_object_that_was_paused_taken_or_replaced_after_the_plan_is_not_written() {
    for (what, change) in interference() {
        // The watch has shown it already.
        let server = Server::new(Vec::new());
        assert_eq!(updated(&server, Some(object(8, 1, change)), false), Ok(None), "{what}");
        assert_eq!(server.asked(), Vec::<String>::new(), "{what}");
        // The watch is late.
        let server = Server::new(vec![failure(409), (200, object(8, 1, change))]);
        assert_eq!(updated(&server, Some(object(7, 1, same)), false), Ok(None), "{what}");
        assert_eq!(server.asked(), ["PATCH u/7", "GET -/-"], "{what}");
    }
    let deleted = |meta: &mut Value| meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let server = Server::new(vec![failure(409), (200, object(8, 1, deleted))]);
    assert_eq!(updated(&server, Some(object(7, 1, same)), false), Ok(None));
    let server = Server::new(vec![failure(409), failure(404)]);
    assert_eq!(updated(&server, Some(object(7, 1, same)), false), Ok(None));
    assert_eq!(updated(&Server::new(Vec::new()), None, false), Ok(None), "it is gone");

    // What is adopted has no mark of ours: as long as nobody else has laid claim to it meanwhile.
    let given: fn(&mut Value) = |meta| {
        meta["annotations"][keys::OWNER] = json!("t/team/other/ModelAPI/team/a");
    };
    for (change, written) in [(given, Ok(Some(8))), (same, Ok(None))] {
        let replies = vec![failure(409), (200, object(8, 1, change)), (200, object(9, 2, same))];
        let server = Server::new(replies);
        assert_eq!(updated(&server, Some(object(7, 1, given)), true), written);
    }
    // Whatever its status says by now.
    let server = Server::new(vec![(200, object(9, 2, same))]);
    assert_eq!(updated(&server, Some(object(8, 1, given)), true), Ok(Some(8)));
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
        let taken = updated(&server, Some(object(8, 1, claimed)), true);
        assert_eq!(taken, Ok(None), "not as planned");
        assert_eq!(server.asked(), Vec::<String>::new());
    }
}

#[test]
fn g22_an_object_that_its_giver_keeps_after_all_is_not_taken() {
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
    });
}

#[test]
fn g12_a_delete_says_uid_and_version_and_one_that_changed_is_judged_again() {
    let server = Server::new(vec![failure(409), (200, object(8, 1, same)), gone()]);
    assert_eq!(pruned(&server, true), Ok(Pruned::Gone));
    assert_eq!(server.asked(), ["DELETE u/7", "GET -/-", "DELETE u/8"]);
    let protected = |meta: &mut Value| meta["annotations"][keys::PRUNE] = json!(keys::DISABLED);
    let mut all = interference().to_vec();
    all.push(("protected", protected));
    for (what, change) in all {
        let server = Server::new(vec![failure(409), (200, object(8, 1, change))]);
        assert_eq!(pruned(&server, true), Ok(Pruned::Skipped), "{what}");
        assert_eq!(server.asked(), ["DELETE u/7", "GET -/-"], "{what}");
    }
    let server = Server::new(vec![failure(409), failure(404)]);
    assert_eq!(pruned(&server, true), Ok(Pruned::Gone));
    let busy: Vec<_> = (0..20).flat_map(|_| [failure(409), (200, object(8, 1, same))]).collect();
    let server = Server::new(busy);
    assert!(pruned(&server, true).is_err());
    assert_eq!(server.asked().iter().filter(|asked| asked.starts_with("DELETE")).count(), 5);
}

#[test]
fn g22_nothing_is_deleted_once_its_absence_is_in_doubt() {
    let server = Server::new(vec![gone()]);
    assert_eq!(pruned(&server, false), Ok(Pruned::Stopped));
    assert_eq!(server.asked(), Vec::<String>::new());
}
