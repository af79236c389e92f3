//! `dependsOn`: who waits for whom, and what wakes them. Polls and retries are an hour apart: nothing here heals by them.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use convoke::api::{GitSync, Kind};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::team::{AGENT, ARGS, SOON, Team, condition, model, model_at, ready, shared_operator};
use support::{AuditMark, Cluster, cluster, eventually};

const BROKEN: &str = "kind: [unclosed";

/// A namespace and a repository with the folders a (ModelAPI base) and b (ModelAPIs top and last); no GitSync yet.
async fn team(prefix: &str) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = [
        ("a/base.yaml", model("base")),
        ("b/top.yaml", model("top")),
        ("b/last.yaml", model("last")),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    Team::new(cluster, prefix, &files).await
}

async fn create(team: &Team<'_>, name: &str, path: &str, depends_on: Value) {
    let spec = json!({"path": path, "retryInterval": "1h", "dependsOn": depends_on, "prune": {"maxDeletions": "100%"}});
    team.create_sync_named(name, spec).await;
}

/// The GitSyncs one (folder a) and two (folder b, depends on one), both Ready.
async fn two(prefix: &str) -> Team<'static> {
    let team = team(prefix).await;
    create(&team, "one", "a", json!([])).await;
    create(&team, "two", "b", json!([{"name": "one"}])).await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    team
}

async fn wait_reason(team: &Team<'_>, name: &str, reason: &str) -> GitSync {
    eventually(SOON, &format!("{name} says {reason}"), || async {
        let sync = team.syncs.get(name).await.expect(name);
        if ready(&sync).reason == reason { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

async fn applied(team: &Team<'_>, name: &str, commit: &str) {
    eventually(SOON, &format!("{name} has applied {commit}"), || async {
        let sync = team.syncs.get(name).await.expect(name);
        let applied = sync.status.as_ref().and_then(|s| s.last_applied_revision.clone());
        let told = applied.is_some_and(|revision| revision.ends_with(commit));
        if told && ready(&sync).status == "True" { Ok(()) } else { Err(sync.status) }
    })
    .await;
}

/// Writes to objects from Git, in order.
fn writes(team: &Team<'_>, since: AuditMark) -> Vec<String> {
    let records = team.cluster.writes_by(AGENT, since).into_iter();
    records
        .filter(|r| r.namespace == team.namespace && r.subresource.is_empty() && r.code < 300)
        .filter(|r| r.resource == "modelapis")
        .map(|r| format!("{} {}", r.verb, r.name))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_missing_dependency_is_named_and_its_arrival_wakes_who_waits() {
    let team = team("missing").await;
    create(&team, "two", "b", json!([{"name": "one"}])).await;
    let sync = wait_reason(&team, "two", "DependencyNotReady").await;
    assert!(ready(&sync).message.contains("GitSync one does not exist"), "{:?}", ready(&sync));
    assert!(condition(&sync, "Reconciling").is_some());
    assert_eq!(team.models().await, Vec::<String>::new());
    create(&team, "one", "a", json!([])).await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    assert_eq!(team.models().await, ["base", "last", "top"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_push_that_concerns_both_is_applied_in_order() {
    let team = two("order").await;
    let since = team.cluster.audit_mark();
    let (base, top) = (
        model_at("base", "https://new.example.com/v1"),
        model_at("top", "https://new.example.com/v1"),
    );
    team.repo.change("both", &[("a/base.yaml", &base), ("b/top.yaml", &top)], &[]);
    // The one that waits hears of it first.
    team.request_of("two").await;
    for name in ["one", "two"] {
        applied(&team, name, &team.repo.head()).await;
    }
    assert_eq!(writes(&team, since), ["patch base", "patch top"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_while_it_waits_what_was_applied_stays_and_its_drift_is_undone() {
    let team = two("waits").await;
    let before = team.objects(Kind::ModelAPI).await;
    let new = "https://new.example.com/v1";
    team.repo.change(
        "break a, change b",
        &[("a/base.yaml", BROKEN), ("b/top.yaml", &model_at("top", new))],
        &["b/last.yaml"],
    );
    for name in ["one", "two"] {
        team.request_of(name).await;
    }
    let sync = wait_reason(&team, "two", "DependencyNotReady").await;
    assert!(ready(&sync).message.contains("GitSync one is not Ready"), "{:?}", ready(&sync));

    let api = team.api(Kind::ModelAPI);
    let url = async || {
        let top = api.get("top").await.expect("top");
        top.data["spec"]["external"]["url"].as_str().expect("a URL").to_owned()
    };
    let drift = json!({"spec": {"external": {"url": "https://drift.example.com"}}});
    api.patch("top", &PatchParams::default(), &Patch::Merge(&drift)).await.expect("drift");
    eventually(SOON, "drift is undone", || async {
        let url = url().await;
        if url == "https://models.example.com/v1" { Ok(()) } else { Err(url) }
    })
    .await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "nothing is deleted, nothing is made");
    assert_eq!(ready(&team.syncs.get("two").await.expect("two")).reason, "DependencyNotReady");

    team.repo.change("mend a", &[("a/base.yaml", &model("base"))], &[]);
    team.request_of("one").await;
    eventually(SOON, "the rest is applied", || async {
        let found = (url().await, team.models().await);
        if found == (new.to_owned(), vec!["base".to_owned(), "top".to_owned()]) {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;
    team.wait_ready_of("two", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_dependency_that_is_lost_later_changes_nothing_until_there_is_something_to_apply() {
    let team = two("later").await;
    let since = team.cluster.audit_mark();
    team.repo.change("break a", &[("a/base.yaml", BROKEN)], &[]);
    team.request_of("one").await;
    wait_reason(&team, "one", "ProblemsFound").await;
    // A new commit, but not for this folder.
    team.request_of("two").await;
    applied(&team, "two", &team.repo.head()).await;
    assert_eq!(writes(&team, since), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_circle_is_named_by_each_of_its_members_and_heals() {
    let team = team("circle").await;
    create(&team, "one", "a", json!([{"name": "two"}])).await;
    create(&team, "two", "b", json!([{"name": "one"}])).await;
    for (name, circle) in [("one", "one → two → one"), ("two", "two → one → two")] {
        let sync = wait_reason(&team, name, "DependencyCycle").await;
        assert!(ready(&sync).message.ends_with(circle), "{:?}", ready(&sync));
        assert!(condition(&sync, "Stalled").is_some());
    }
    assert_eq!(team.models().await, Vec::<String>::new());
    create(&team, "one", "a", json!([])).await;
    for name in ["one", "two"] {
        let sync = team.wait_ready_of(name, "True").await;
        assert!(condition(&sync, "Stalled").is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_g22_what_moves_between_the_two_is_handed_over_and_nobody_waits_for_ever() {
    let team = two("movers").await;
    let before = team.objects(Kind::ModelAPI).await;
    // From the one that is waited for to the one that waits, and back.
    let moves = [("a/base.yaml", "b/base.yaml", "two"), ("b/base.yaml", "a/base.yaml", "one")];
    for (from, to, first) in moves {
        // A folder without a definition is an error: another one keeps it company.
        let company = [("a/more.yaml", model("more"))];
        let mut files = vec![(to, model("base"))];
        files.extend(company);
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        team.repo.change("move base", &files, &[from]);
        team.request_of(first).await;
        team.request_of(if first == "one" { "two" } else { "one" }).await;
        for name in ["one", "two"] {
            applied(&team, name, &team.repo.head()).await;
        }
        let after = team.objects(Kind::ModelAPI).await;
        assert_eq!(after["base"], before["base"], "the same object");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_g22_what_moves_to_two_that_wait_is_taken_by_both() {
    let team = team("both").await;
    let files = [("a/x.yaml", model("x")), ("a/y.yaml", model("y")), ("c/c.yaml", model("c"))];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    team.repo.change("more", &files, &[]);
    create(&team, "one", "a", json!([])).await;
    create(&team, "two", "b", json!([{"name": "one"}])).await;
    create(&team, "three", "c", json!([{"name": "one"}])).await;
    for name in ["one", "two", "three"] {
        applied(&team, name, &team.repo.head()).await;
    }
    let before = team.objects(Kind::ModelAPI).await;
    let (x, y) = (model("x"), model("y"));
    let moved = [("b/x.yaml", x.as_str()), ("c/y.yaml", y.as_str())];
    team.repo.change("move x and y", &moved, &["a/x.yaml", "a/y.yaml"]);
    for name in ["two", "three", "one"] {
        team.request_of(name).await;
    }
    for name in ["one", "two", "three"] {
        applied(&team, name, &team.repo.head()).await;
    }
    let after = team.objects(Kind::ModelAPI).await;
    assert_eq!((&after["x"], &after["y"]), (&before["x"], &before["y"]), "the same objects");
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_after_a_restart_who_waits_undoes_changes_by_hand_and_shows_what_is_wrong() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let files = [
        ("a/base.yaml", model("base")),
        ("b/top.yaml", model("top")),
        ("b/last.yaml", model("last")),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(&cluster, "blind", &files).await;
    create(&team, "one", "a", json!([])).await;
    create(&team, "two", "b", json!([{"name": "one"}])).await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    let before = team.objects(Kind::ModelAPI).await;
    let new = "https://new.example.com/v1";
    let changed = [
        ("a/base.yaml", BROKEN.to_owned()),
        ("b/top.yaml", model_at("top", new)),
        ("b/bad.yaml", BROKEN.to_owned()),
        ("b/more.yaml", model("more")),
    ];
    let changed: Vec<_> = changed.iter().map(|(path, text)| (*path, text.as_str())).collect();
    team.repo.change("break both", &changed, &["b/last.yaml"]);
    for name in ["one", "two"] {
        team.request_of(name).await;
    }
    wait_reason(&team, "two", "DependencyNotReady").await;
    operator.restart();

    let api = team.api(Kind::ModelAPI);
    let drift = json!({"spec": {"external": {"url": "https://drift.example.com"}}});
    api.patch("top", &PatchParams::default(), &Patch::Merge(&drift)).await.expect("drift");
    eventually(SOON, "drift is undone", || async {
        let top = api.get("top").await.expect("top");
        let url = top.data["spec"]["external"]["url"].as_str().expect("a URL").to_owned();
        if url == "https://models.example.com/v1" { Ok(()) } else { Err(url) }
    })
    .await;
    let sync = team.syncs.get("two").await.expect("two");
    assert_eq!(ready(&sync).reason, "DependencyNotReady");
    assert!(condition(&sync, "DriftWatch").is_none());
    let problems = sync.status.expect("status").problems;
    assert!(problems.iter().any(|p| p.path.as_deref() == Some("b/bad.yaml")), "{problems:?}");
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "nothing is deleted, nothing is made");
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_a_first_commit_that_waits_shows_what_is_wrong_with_it() {
    let team = team("first").await;
    team.repo.change("break b", &[("b/bad.yaml", BROKEN)], &[]);
    create(&team, "two", "b", json!([{"name": "one"}])).await;
    let sync = wait_reason(&team, "two", "DependencyNotReady").await;
    assert!(condition(&sync, "DriftWatch").is_none(), "there is nothing to watch");
    let problems = sync.status.expect("status").problems;
    assert!(problems.iter().any(|p| p.path.as_deref() == Some("b/bad.yaml")), "{problems:?}");
}
