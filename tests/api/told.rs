//! What was done is told, also when it was stopped in the middle or could not be told at first; and nothing is called ready that
//! nobody can read.

use crate::support::engine::InterceptedEngine;
use crate::support::team::{SOON, Team, condition, model, ready, shared_operator};
use crate::support::{Cluster, cluster, eventually};
use convoke::api::Kind;
use convoke::cluster::events::{EventType, Events};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

async fn patch(team: &Team<'_>, spec: Value) {
    let patch = json!({"spec": spec});
    let (params, api) = (PatchParams::default(), team.git_syncs_raw());
    api.patch("main", &params, &Patch::Merge(&patch)).await.expect("patch");
}

const AGENT: &str = "apiVersion: convoke.dev/v1alpha1
kind: Agent
metadata:
  name: helper
spec:
  modelAPI: a
  waitForDependencies: false
";

#[tokio::test(flavor = "multi_thread")]
async fn g18_a_plan_that_is_stopped_tells_what_it_has_done_and_is_not_called_ready() {
    let cluster = Cluster::exclusive().await;
    let engine = InterceptedEngine::start(&cluster).await;
    let slow = &engine.requests;
    let team = Team::new(&cluster, "stopped", &[("k.yaml", &model("k"))]).await;
    team.create_sync(json!({"interval": "1s"})).await;
    team.wait_ready("True").await;

    // Agents come after models, and one of these takes its time.
    slow.hold("PATCH", "/modelapis/b?");
    let files = [("a.yaml", model("a")), ("b.yaml", model("b")), ("helper.yaml", AGENT.into())];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let commit = team.repo.change("more", &files, &[]);
    slow.holds(SOON).await;
    patch(&team, json!({"suspend": true})).await;
    // One that is made after it is seen after it.
    team.create_sync_named("fence", json!({"path": "nowhere"})).await;
    eventually(SOON, "the operator has seen it", || async {
        let fence = team.syncs.get("fence").await.expect("a GitSync");
        if fence.status.is_some() { Ok(()) } else { Err(()) }
    })
    .await;
    slow.release();
    let sync = eventually(SOON, "it says that it is suspended", || async {
        let sync = team.get().await;
        if condition(&sync, "Suspended").is_some() { Ok(sync) } else { Err(sync.status) }
    })
    .await;
    assert_eq!(team.models().await, ["a", "b", "k"]);
    assert!(team.api(Kind::Agent).get_opt("helper").await.expect("get").is_none());
    let status = sync.status.clone().expect("a status");
    let newest = status.history.first().expect("history");
    assert!(newest.revision.ends_with(&commit), "{newest:?}");
    assert_eq!((newest.created, newest.updated, newest.pruned), (2, 0, 0));
    assert_eq!(status.objects.expect("counts").total, 3);
    assert_ne!(ready(&sync).status, "True", "half of the commit is applied: {:?}", ready(&sync));

    patch(&team, json!({"suspend": false})).await;
    let sync = team.wait_ready("True").await;
    let history = sync.status.expect("a status").history;
    let created: i64 =
        history.iter().filter(|h| h.revision.ends_with(&commit)).map(|h| h.created).sum();
    assert_eq!(created, 3, "nothing is counted twice, and nothing is left out: {history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_what_was_done_is_told_also_when_the_status_cannot_be_written_at_first() {
    let cluster = Cluster::exclusive().await;
    let engine = InterceptedEngine::start(&cluster).await;
    let some = &engine.requests;
    let team = Team::new(&cluster, "untold", &[("k.yaml", &model("k"))]).await;
    team.create_sync(json!({"interval": "1s"})).await;
    team.wait_ready("True").await;
    some.refuse("PATCH", "/gitsyncs/main/status");
    let commit = team.repo.change("more", &[("a.yaml", &model("a"))], &[]);
    some.refused(SOON).await;
    some.release();
    let history = eventually(SOON, "the commit is in the history", || async {
        let history = team.status().await.history;
        let told = history.first().is_some_and(|h| h.revision.ends_with(&commit));
        if told { Ok(history) } else { Err(history) }
    })
    .await;
    let newest = history.first().expect("history");
    assert_eq!((newest.created, newest.outcome.as_str()), (1, "Applied"), "{newest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_a_git_sync_that_cannot_be_read_is_not_called_ready_and_says_why() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = Team::new(cluster, "unread", &[("a.yaml", &model("a"))]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    // The schema takes any whole number, and this one is too large for whoever reads it.
    patch(&team, json!({"prune": {"maxDeletions": 3_000_000_000_u64}})).await;
    let api = team.git_syncs_raw();
    let said = eventually(SOON, "it is not Ready", || async {
        let sync = api.get("main").await.expect("a GitSync");
        let conditions = sync.data["status"]["conditions"].clone();
        let said = conditions.as_array().and_then(|all| {
            all.iter().find(|c| c["type"] == "Ready" && c["status"] == "False").cloned()
        });
        said.ok_or(conditions)
    })
    .await;
    assert_eq!(said["reason"], "InvalidSpec");
    let message = said["message"].as_str().expect("a message");
    assert!(message.contains("nvalid value") && message.contains("3000000000"), "{message}");
    patch(&team, json!({"prune": {"maxDeletions": 2}})).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(condition(&sync, "Stalled"), None);
    assert!(!sync.status.expect("a status").history.is_empty(), "what was known before is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_problems_of_an_earlier_spec_are_not_shown_when_the_new_one_cannot_be_read() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = [("a/a.yaml", model("a")), ("a/bad.yaml", "kind: [".to_owned())];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let team = Team::new(cluster, "earlier", &files).await;
    team.create_sync(json!({"path": "a"})).await;
    team.wait_ready("False").await;
    assert_ne!(team.status().await.problem_count, None);
    patch(&team, json!({"path": "missing"})).await;
    let status = eventually(SOON, "the new path is not found", || async {
        let status = team.status().await;
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        if ready.is_some_and(|c| c.reason == "PathMissing") { Ok(status) } else { Err(status) }
    })
    .await;
    assert_eq!((status.problem_count, status.problems), (None, vec![]), "of another spec");
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_an_event_that_is_published_again_is_counted_and_one_that_was_deleted_is_made_anew() {
    let cluster = cluster().await;
    let (client, namespace) = (cluster.client().await, cluster.namespace("counted").await);
    let publisher = Events::new(client.clone());
    let about = ObjectReference {
        kind: Some("ConfigMap".into()),
        name: Some("one".into()),
        namespace: Some(namespace.clone()),
        uid: Some("0a1b2c3d-0000-4000-8000-0123456789ab".into()),
        ..ObjectReference::default()
    };
    let api: Api<Event> = Api::namespaced(client, &namespace);
    let counts = async || {
        let all = api.list(&ListParams::default()).await.expect("events").items.into_iter();
        let count = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
        let told = all.map(|event| (event.note.clone().unwrap_or_default(), count(&event)));
        told.collect::<std::collections::BTreeSet<_>>()
    };
    for note in ["a", "b", "a", "a"] {
        publisher.publish(&about, EventType::Warning, "Failed", note).await;
    }
    assert_eq!(counts().await, [("a".to_owned(), 3), ("b".to_owned(), 1)].into());
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("delete");
    publisher.publish(&about, EventType::Warning, "Failed", "a").await;
    assert_eq!(counts().await, [("a".to_owned(), 1)].into());
}
