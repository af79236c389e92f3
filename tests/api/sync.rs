//! A commit becomes objects, and only proven absence deletes one. Real API server, real Git over HTTP, the real
//! operator with the shipped Role.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::time::Duration;

use convoke::api::{Kind, keys};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use support::team::{
    AGENT, SOON, Team, condition, model, model_at, places, ready, shared_operator,
};
use support::{cluster, eventually};

/// A team with a running operator and a finished first sync of these models.
async fn team(prefix: &str, models: &[&str]) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files: Vec<_> = models.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    team.sync_with(json!({})).await;
    team.wait_ready("True").await;
    team
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_first_sync_applies_everything_and_says_so() {
    let team = team("first", &["a", "b", "c"]).await;
    assert_eq!(team.models().await, ["a", "b", "c"]);
    let sync = team.get().await;
    let revision = format!("main@sha1:{}", team.repo.head());
    let status = sync.status.clone().expect("status");
    assert_eq!(ready(&sync).message, format!("Applied revision: {revision}"));
    assert_eq!(status.last_applied_revision.as_deref(), Some(revision.as_str()));
    assert_eq!(status.objects.expect("objects").total, 3);
    assert_eq!(status.problem_count, Some(0));
    let done = &status.history[0];
    assert_eq!((done.outcome.as_str(), done.created, done.pruned), ("Applied", 3, 0));

    let live = team.api(Kind::ModelAPI).get("a").await.expect("a");
    let annotations = live.metadata.annotations.expect("annotations");
    let uid = sync.metadata.uid.expect("uid");
    assert_eq!(annotations[keys::OWNER], format!("{uid}/{0}/main/ModelAPI/{0}/a", team.namespace));
    assert_eq!(annotations[keys::SOURCE], "a.yaml:1");
    assert_eq!(annotations[keys::COMMIT], team.repo.head());
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_one_file_change_touches_one_object() {
    let team = team("onefile", &["a", "b", "c"]).await;
    let mark = team.cluster.audit_mark();
    team.push(&[("b.yaml", Some(&model_at("b", "https://other.example.com/v1")))]).await;
    team.wait_ready("True").await;
    assert_eq!(team.writes(mark), ["patch modelapis/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_deleted_file_is_pruned() {
    let team = team("prune", &["a", "b", "c", "d"]).await;
    let mark = team.cluster.audit_mark();
    let sync = team.push(&[("d.yaml", None)]).await;
    assert_eq!(team.models().await, ["a", "b", "c"]);
    assert_eq!(team.writes(mark), ["delete modelapis/d"]);
    assert_eq!(ready(&sync).status, "True");
    assert_eq!(sync.status.expect("status").history[0].pruned, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_brake_holds_mass_prune_until_exactly_it_is_approved() {
    let team = team("brake", &["a", "b", "c", "d"]).await;
    let sync = team.push(&[("c.yaml", None), ("d.yaml", None)]).await;
    assert_eq!(ready(&sync).reason, "PruneHeld");
    let pending = sync.status.clone().expect("status").pending_prune.expect("pending");
    assert_eq!(pending.objects, ["ModelAPI/d", "ModelAPI/c"]);
    assert_eq!(team.models().await.len(), 4);

    team.annotate(&[(keys::APPROVE_PRUNE, "0123456789abcdef")]).await;
    let sync = team.request().await;
    assert_eq!(ready(&sync).reason, "PruneHeld", "another digest releases nothing");
    assert_eq!(team.models().await.len(), 4);

    team.annotate(&[(keys::APPROVE_PRUNE, &pending.digest)]).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b"]);
    let status = sync.status.expect("status");
    assert_eq!(status.pending_prune, None);
    assert_eq!(status.approved_prune, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_nothing_is_deleted_when_the_tree_proves_nothing() {
    let team = team("absence", &["a", "b", "c", "d"]).await;
    let everything = ["a", "b", "c", "d"];

    // Unreadable YAML beside a deletion.
    let sync = team.push(&[("c.yaml", Some("kind: [unclosed")), ("d.yaml", None)]).await;
    assert_eq!(team.models().await, everything);
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    assert!(condition(&sync, "PruneHeld").is_some());

    // All files gone, the folder stays.
    let gone = [("a.yaml", None), ("b.yaml", None), ("c.yaml", None), ("README.md", Some("hi"))];
    let sync = team.push(&gone).await;
    assert_eq!(team.models().await, everything);
    assert_eq!(ready(&sync).status, "False");
    assert!(sync.status.expect("status").pending_prune.is_some());

    // An empty tree.
    let sync = team.push(&[("README.md", None)]).await;
    assert_eq!(team.models().await, everything);
    assert_eq!(ready(&sync).status, "False", "{:?}", ready(&sync));

    // It heals by itself.
    let files = everything.map(|name| (format!("{name}.yaml"), model(name)));
    let files: Vec<_> =
        files.iter().map(|(path, text)| (path.as_str(), Some(text.as_str()))).collect();
    let mark = team.cluster.audit_mark();
    team.push(&files).await;
    team.wait_ready("True").await;
    assert_eq!(team.writes(mark), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_missing_path_deletes_nothing_and_says_so() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files =
        [("prod/a.yaml", model("a")), ("prod/b.yaml", model("b")), ("other/c.yaml", model("c"))];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(cluster, "path", &files).await;
    team.sync_with(json!({"path": "./prod"})).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b"]);

    let sync = team.push(&[("prod/a.yaml", None), ("prod/b.yaml", None)]).await;
    assert_eq!(ready(&sync).reason, "PathMissing");
    assert_eq!(team.models().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_broken_file_is_quarantined_and_heals() {
    let team = team("quarantine", &["a", "b", "c"]).await;
    let before = team.objects(Kind::ModelAPI).await;
    let typo = model_at("b", "https://new.example.com/v1").replace("external:", "externl:");
    let sync = team
        .push(&[
            ("b.yaml", Some(&typo)),
            ("a.yaml", Some(&model_at("a", "https://new.example.com/v1"))),
        ])
        .await;
    let status = sync.status.clone().expect("status");
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    assert!(places(&status.problems)[0].starts_with("b.yaml:7:3 "), "{:?}", status.problems);
    assert!(
        status.problems[0].hint.as_ref().expect("hint").contains("external"),
        "{:?}",
        status.problems[0]
    );
    assert_eq!(status.quarantined[0].object, "ModelAPI/b");
    let url =
        |o: kube::api::DynamicObject| o.data["spec"]["external"]["url"].as_str().map(str::to_owned);
    assert_eq!(
        url(team.api(Kind::ModelAPI).get("a").await.expect("a")).as_deref(),
        Some("https://new.example.com/v1")
    );
    assert_eq!(
        url(team.api(Kind::ModelAPI).get("b").await.expect("b")).as_deref(),
        Some("https://models.example.com/v1")
    );

    team.push(&[("b.yaml", Some(&model_at("b", "https://new.example.com/v1")))]).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(sync.status.expect("status").quarantined, []);
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "same objects, same uids");
}

#[tokio::test(flavor = "multi_thread")]
async fn s01_a_moved_or_renamed_file_causes_no_write() {
    let team = team("moved", &["a", "b"]).await;
    let mark = team.cluster.audit_mark();
    team.push(&[("a.yaml", None), ("deep/er/renamed.yaml", Some(&model("a")))]).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(team.writes(mark), Vec::<String>::new());
    let revision = format!("main@sha1:{}", team.repo.head());
    assert_eq!(sync.status.expect("status").last_applied_revision, Some(revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_move_with_a_mistake_deletes_nothing() {
    let team = team("badmove", &["a", "b", "c", "d", "e"]).await;
    let all = team.objects(Kind::ModelAPI).await;

    // Moved, with a typo in the new copy.
    let typo = model("a").replace("mode: External", "mode: Externl");
    team.push(&[("a.yaml", None), ("moved/a.yaml", Some(&typo))]).await;
    assert_eq!(team.objects(Kind::ModelAPI).await, all);

    // Our group misspelt.
    let misspelt = model("b").replace("convoke.dev", "convoke.dv");
    let sync = team
        .push(&[("moved/a.yaml", None), ("a.yaml", Some(&model("a"))), ("b.yaml", Some(&misspelt))])
        .await;
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    assert_eq!(team.objects(Kind::ModelAPI).await, all);

    // A file turned into a link.
    team.push(&[("b.yaml", Some(&model("b")))]).await;
    team.repo.symlink("turn into a link", "c.yaml", "elsewhere/c.yaml");
    let sync = team.request().await;
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    assert_eq!(team.objects(Kind::ModelAPI).await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_copied_object_is_never_pruned() {
    let team = team("copied", &["a", "b", "c", "d"]).await;
    let api = team.api(Kind::ModelAPI);
    let mut copy = api.get("a").await.expect("a");
    copy.metadata = kube::core::ObjectMeta {
        name: Some("copy".into()),
        annotations: copy.metadata.annotations,
        ..Default::default()
    };
    api.create(&PostParams::default(), &copy).await.expect("copy");
    let sync = team.push(&[("d.yaml", None)]).await;
    assert_eq!(ready(&sync).status, "True");
    assert_eq!(team.models().await, ["a", "b", "c", "copy"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_delete_and_revert_in_two_quick_commits_ends_with_the_object() {
    let team = team("revert", &["a", "b", "c", "d"]).await;
    for round in 0..3 {
        team.repo.change("delete", &[], &["d.yaml"]);
        team.annotate(&[(keys::REQUESTED_AT, &format!("delete-{round}"))]).await;
        team.repo.change("revert", &[("d.yaml", &model("d"))], &[]);
        team.request().await;
        team.wait_ready("True").await;
        assert_eq!(team.models().await, ["a", "b", "c", "d"], "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_object_is_a_conflict_until_it_is_handed_over() {
    let team = team("foreign", &["a"]).await;
    let api = team.api(Kind::ModelAPI);
    let foreign: serde_json::Value = serde_json::to_value(
        json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": "x"},
            "spec": {"mode": "External", "external": {"url": "https://hand.example.com"}}}),
    )
    .expect("json");
    let foreign = serde_json::from_value(foreign).expect("object");
    let before = api.create(&PostParams::default(), &foreign).await.expect("foreign");
    let sync = team.push(&[("x.yaml", Some(&model("x")))]).await;
    let status = sync.status.expect("status");
    assert_eq!(places(&status.problems), ["x.yaml:1:1 CVK0901"]);
    // Its controller may tell its status; nobody touches what it says.
    let untouched = api.get("x").await.expect("x");
    assert_eq!(untouched.metadata.generation, before.metadata.generation);
    assert_eq!(untouched.metadata.annotations, before.metadata.annotations);

    let patch = json!({"metadata": {"annotations": {keys::ADOPT_BY: "main"}}});
    api.patch("x", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("hand over");
    team.wait_ready("True").await;
    let after = api.get("x").await.expect("x");
    assert_eq!(after.metadata.uid, before.metadata.uid);
    assert_eq!(after.data["spec"]["external"]["url"], "https://models.example.com/v1");
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_deleted_gitsync_leaves_its_objects_and_its_successor_adopts_them() {
    let team = team("deleted", &["a", "b"]).await;
    let before = team.objects(Kind::ModelAPI).await;
    team.syncs.delete("main", &DeleteParams::default()).await.expect("delete");
    eventually(SOON, "the GitSync is gone", || async {
        team.syncs.get_opt("main").await.expect("get").is_none().then_some(())
    })
    .await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before);

    team.repo.change("one less", &[], &["b.yaml"]);
    team.sync_with(json!({})).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(
        team.objects(Kind::ModelAPI).await,
        before,
        "adopted, not made anew; the orphan stays"
    );
    assert_eq!(sync.status.expect("status").orphans, ["ModelAPI/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_manual_edit_and_a_manual_delete_are_undone() {
    let team = team("drift", &["a", "b"]).await;
    let api = team.api(Kind::ModelAPI);
    let patch = json!({"spec": {"external": {"url": "https://drift.example.com"}}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("edit");
    api.delete("b", &DeleteParams::default()).await.expect("delete");
    eventually(SOON, "drift is undone", || async {
        let url = api.get("a").await.expect("a").data["spec"]["external"]["url"].clone();
        let back =
            url == "https://models.example.com/v1" && api.get_opt("b").await.expect("b").is_some();
        if back { Ok(()) } else { Err(url) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_suspend_stops_everything_and_resume_catches_up() {
    let team = team("suspend", &["a"]).await;
    let set = |on: bool| async move { json!({"spec": {"suspend": on}}) };
    let patch = set(true).await;
    team.syncs
        .patch("main", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("suspend");
    eventually(SOON, "suspended", || async {
        condition(&team.get().await, "Suspended").map(|_| ())
    })
    .await;
    // What it says is still about the spec that it acted on.
    let sync = team.get().await;
    let seen = sync.status.as_ref().and_then(|status| status.observed_generation);
    assert_eq!(seen.map(|seen| seen + 1), sync.metadata.generation);
    assert_eq!((ready(&sync).status.as_str(), ready(&sync).observed_generation), ("True", seen));
    team.repo.change("two", &[("b.yaml", &model("b"))], &[]);
    team.annotate(&[(keys::REQUESTED_AT, "while-suspended")]).await;
    let mark = team.cluster.audit_mark();
    team.api(Kind::ModelAPI).delete("a", &DeleteParams::default()).await.expect("delete");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(team.writes(mark), Vec::<String>::new());
    let patch = set(false).await;
    team.syncs.patch("main", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("resume");
    eventually(SOON, "caught up", || async { (team.models().await == ["a", "b"]).then_some(()) })
        .await;
    let sync = team.wait_ready("True").await;
    assert!(condition(&sync, "Suspended").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_a_remote_that_is_gone_keeps_everything_and_says_why() {
    let team = team("gone", &["a"]).await;
    team.repo.git(&["push", "-q", "origin", "HEAD:refs/heads/other"]);
    team.repo.delete_branch("main");
    let sync = team.request().await;
    assert_eq!(ready(&sync).reason, "RefNotFound", "{:?}", ready(&sync));
    assert_eq!(team.models().await, ["a"]);
    // Not even a repository that lost everything deletes anything.
    team.repo.delete_branch("other");
    let sync = team.request().await;
    assert_eq!(ready(&sync).reason, "EmptyRepository", "{:?}", ready(&sync));
    assert_eq!(team.models().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_a_fetch_that_fails_from_the_first_look_on_is_told_by_an_event() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = Team::new(cluster, "neverread", &[("a.yaml", &model("a"))]).await;
    let sync = team.sync_with(json!({"path": "./nowhere"})).await;
    assert_eq!(ready(&sync).reason, "PathMissing");
    let events: Api<Event> = Api::namespaced(team.client.clone(), &team.namespace);
    let told = async || {
        let all = events.list(&ListParams::default()).await.expect("events").items.into_iter();
        let is_of_one = |event: &Event| event.involved_object.kind.as_deref() == Some("GitSync");
        all.filter(is_of_one).collect::<Vec<_>>()
    };
    let event = eventually(SOON, "an event tells", || async { told().await.pop() }).await;
    let said = (event.type_.as_deref(), event.reason.as_deref());
    assert_eq!(said, (Some("Warning"), Some("PathMissing")));
    assert_eq!(event.involved_object.uid, sync.metadata.uid);
    // To look again and to find the same is no news.
    for _ in 0..2 {
        team.request().await;
    }
    let all = told().await;
    assert!(matches!(&*all, [one] if one.series.is_none()), "once: {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p11_a_settled_system_makes_no_write() {
    let team = team("settled", &["a", "b", "c"]).await;
    let others = |mark| {
        let mut writes = team.cluster.writes_by(AGENT, mark);
        writes.retain(|r| r.namespace == team.namespace);
        writes.retain(|r| !(r.resource == "gitsyncs" && r.subresource == "status"));
        writes
    };
    // What is asked outside of the cluster is told when there is an answer, or none for the second time.
    let models = team.api(Kind::ModelAPI);
    for name in ["a", "b", "c"] {
        eventually(Duration::from_secs(150), &format!("Reachable of {name}"), || async {
            let status = models.get(name).await.expect(name).data["status"].clone();
            let conditions = status["conditions"].as_array();
            let told = conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Reachable"));
            if told { Ok(()) } else { Err(status) }
        })
        .await;
    }
    // The controllers' first statuses and the first event come when the sync is done.
    eventually(SOON, "a look that writes nothing else", || async {
        let mark = team.cluster.audit_mark();
        team.request().await;
        let writes = others(mark);
        if writes.is_empty() { Ok(()) } else { Err(writes) }
    })
    .await;
    let mark = team.cluster.audit_mark();
    // Three looks at an unchanged remote: each is acknowledged, nothing else is written.
    for _ in 0..3 {
        team.request().await;
    }
    assert_eq!(others(mark), [], "only the acknowledgements");
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_a_status_that_somebody_else_writes_is_written_again_once() {
    let team = team("overwritten", &["a"]).await;
    let before = eventually(SOON, "everything is told", || async {
        let status = team.status().await;
        let told = status.objects.as_ref().is_some_and(|objects| objects.ready == 1);
        if told { Ok(status) } else { Err(status) }
    })
    .await;
    let mark = team.cluster.audit_mark();
    let statuses = || {
        let writes = team.cluster.writes_by(AGENT, mark).into_iter();
        let ours = writes.filter(|r| r.namespace == team.namespace && r.resource == "gitsyncs");
        ours.filter(|r| r.subresource == "status").count()
    };
    // As a request of an operator that was killed, which arrives when another one has written its own. Or of somebody with another
    // field manager, whose fields a server-side apply leaves.
    let approved = json!({"digest": "0123456789abcdef", "inputKey": "k", "uids": ["0123456789ab"]});
    let late = json!({"status": {"lastAppliedRevision": "main@sha1:0", "history": [], "conditions": [],
        "approvedPrune": approved}});
    let params = PatchParams::default();
    team.syncs.patch_status("main", &params, &Patch::Merge(&late)).await.expect("a late status");
    eventually(SOON, "the status is as before", || async {
        let status = team.status().await;
        if status == before { Ok(()) } else { Err(status) }
    })
    .await;
    // What is no status of ours wakes nobody.
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    team.syncs.patch("main", &params, &Patch::Merge(&label)).await.expect("a label");
    team.request().await;
    let three = "the answer, the removal of what it leaves, and that the request was handled";
    assert_eq!(statuses(), 3, "{three}");
    let live = team.git_syncs_raw().get("main").await.expect("main");
    assert_eq!(live.data["status"].get("approvedPrune"), None, "the next one leaves nothing of it");
}
