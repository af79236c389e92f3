//! What a person sees of what is not as Git says, and will be once somebody acts: an object that a finalizer keeps, an approval
//! that releases nothing, an object that is protected, a GitSync that is suspended.

use crate::support::eventually;
use crate::support::team::{AGENT, SOON, Team, condition, model, ready, shared_operator};
use crate::support::{AuditRecord, cluster};
use convoke::api::{GitSync, Kind, keys};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

/// A team whose GitSync `main` has these models and is Ready.
async fn team(prefix: &str, names: &[&str], spec: Value) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files: Vec<_> = names.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    team.create_sync(spec).await;
    team.wait_ready("True").await;
    team
}

async fn edit(team: &Team<'_>, name: &str, metadata: Value) {
    let patch = json!({"metadata": metadata});
    let api = team.api(Kind::ModelAPI);
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("edit");
}

/// How often the operator has written the status of the GitSync since.
fn statuses(team: &Team<'_>, since: crate::support::AuditMark) -> usize {
    let writes = team.cluster.writes_by(AGENT, since).into_iter();
    let of_sync = |r: &AuditRecord| r.resource == "gitsyncs" && r.subresource == "status";
    writes.filter(|r| r.namespace == team.namespace && of_sync(r)).count()
}

fn digest(sync: &GitSync) -> String {
    let pending = sync.status.as_ref().and_then(|status| status.pending_prune.as_ref());
    pending.expect("held deletes").digest.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_an_object_that_a_finalizer_keeps_is_named_until_it_is_gone() {
    let team = team("keeps", &["a", "b", "c", "d", "x"], json!({})).await;
    edit(&team, "x", json!({"finalizers": ["example.com/hold"]})).await;
    let sync = team.push(&[("x.yaml", None)]).await;
    let said = ready(&sync);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "Terminating"));
    assert!(said.message.contains("ModelAPI/x (example.com/hold)"), "{}", said.message);
    let going = condition(&sync, "Reconciling").expect("it goes on by itself");
    assert_eq!(going.reason, "Terminating");

    let since = team.cluster.audit_mark();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((statuses(&team, since), team.writes(since)), (0, vec![]), "it only waits");
    let since = team.cluster.audit_mark();
    edit(&team, "x", json!({"finalizers": null})).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(condition(&sync, "Reconciling"), None);
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);
    let history = sync.status.expect("a status").history;
    let newest = history.first().expect("history");
    assert_eq!((newest.outcome.as_str(), newest.pruned, history.len()), ("Applied", 1, 2));
    assert_eq!(statuses(&team, since), 1);
    // What nobody keeps is gone at once.
    let since = team.cluster.audit_mark();
    let sync = team.push(&[("d.yaml", None)]).await;
    assert_eq!((ready(&sync).status.as_str(), statuses(&team, since)), ("True", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_an_approval_of_other_deletes_is_told_with_the_digest_that_counts() {
    let spec = json!({"prune": {"maxDeletions": 0}});
    let team = team("outdated", &["a", "b", "c", "d", "x"], spec).await;
    let old = digest(&team.push(&[("x.yaml", None)]).await);
    let new = digest(&team.push(&[("notes.txt", Some("x"))]).await);
    assert_ne!(old, new, "another commit");
    team.annotate(&[(keys::APPROVE_PRUNE, &old)]).await;
    let events: Api<Event> = Api::namespaced(team.client.clone(), &team.namespace);
    let told = async || {
        let all = events.list(&ListParams::default()).await.expect("events");
        let all = all.items.into_iter();
        all.filter(|event| event.reason.as_deref() == Some("ApprovalOutdated")).collect::<Vec<_>>()
    };
    let event = eventually(SOON, "an event tells", || async { told().await.pop() }).await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let note = event.message.expect("a note");
    assert!(note.contains(&old), "{note}");
    let way = format!("--overwrite {}={new}", keys::APPROVE_PRUNE);
    assert!(note.contains(&way), "{note}");
    let sync = team.request().await;
    let held = condition(&sync, "PruneHeld").expect("held").message;
    assert!(held.contains(&old) && held.contains(&way), "{held}");
    assert_eq!(team.models().await, ["a", "b", "c", "d", "x"]);
    team.annotate(&[(keys::APPROVE_PRUNE, &new)]).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);
    let all = told().await;
    assert!(matches!(&*all, [one] if one.series.is_none()), "once: {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_what_is_protected_and_left_over_is_listed() {
    let spec = json!({"prune": {"maxDeletions": 0}});
    let team = team("protected", &["a", "b", "x"], spec).await;
    team.push(&[("x.yaml", None)]).await;
    edit(&team, "x", json!({"annotations": {keys::PRUNE: keys::DISABLED}})).await;
    let sync = team.wait_ready("True").await;
    let status = sync.status.expect("a status");
    assert_eq!(status.protected, ["ModelAPI/x"]);
    let pending = status.pending_prune.expect("it waits for an approval once it is let go");
    assert_eq!(pending.count, 0);
    assert!(pending.reason.starts_with("nothing is left to delete"), "{}", pending.reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_the_list_of_git_syncs_says_which_is_suspended() {
    let team = team("suspend", &["a"], json!({})).await;
    let column = || {
        let table = team.cluster.kubectl(&["-n", &team.namespace, "get", "gitsync", "main"]);
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let (names, values) = (lines.next().expect("a header"), lines.next().expect("a line"));
        let at = names.iter().position(|name| *name == "SUSPENDED");
        at.map(|at| values[at].to_owned())
    };
    assert_eq!(column().as_deref(), Some("false"));
    let patch = json!({"spec": {"suspend": true}});
    let params = PatchParams::default();
    team.syncs.patch("main", &params, &Patch::Merge(&patch)).await.expect("suspend");
    assert_eq!(column().as_deref(), Some("true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_what_is_protected_when_its_approval_is_taken_back_needs_another_one() {
    let spec = json!({"prune": {"maxDeletions": 2}});
    let team = team("frightened", &["a", "b", "c", "x", "y", "z"], spec).await;
    let going = ["x.yaml", "y.yaml", "z.yaml"].map(|path| (path, None));
    let held = digest(&team.push(&going).await);
    // The remote is away: nothing of what is approved goes yet.
    let bare = team.repo.work().with_extension("git");
    let away = bare.with_extension("away");
    std::fs::rename(&bare, &away).expect("move the repository");
    team.annotate(&[(keys::APPROVE_PRUNE, &held)]).await;
    eventually(SOON, "what was approved is shown", || async {
        condition(&team.get().await, "PruneHeld").filter(|held| held.reason == "Approved")
    })
    .await;
    for name in ["x", "y", "z"] {
        edit(&team, name, json!({"annotations": {keys::PRUNE: keys::DISABLED}})).await;
    }
    let patch = json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: null}}});
    let params = PatchParams::default();
    team.syncs.patch("main", &params, &Patch::Merge(&patch)).await.expect("take it back");
    eventually(SOON, "it is taken back", || async {
        let status = team.status().await;
        status.approved_prune.is_none().then_some(())
    })
    .await;
    std::fs::rename(&away, &bare).expect("move the repository");
    team.request().await;
    // Alone it would be few enough to go.
    edit(&team, "x", json!({"annotations": {keys::PRUNE: null}})).await;
    let pending = eventually(SOON, "it is held again", || async {
        team.status().await.pending_prune.filter(|pending| pending.count == 1)
    })
    .await;
    assert!(pending.requires_approval && pending.digest != held, "{pending:?}");
    assert_eq!(team.models().await, ["a", "b", "c", "x", "y", "z"]);
    team.annotate(&[(keys::APPROVE_PRUNE, &pending.digest)]).await;
    eventually(SOON, "it is approved, and goes", || async {
        (team.models().await == ["a", "b", "c", "y", "z"]).then_some(())
    })
    .await;
}
