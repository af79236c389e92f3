//! What the repository format means in a cluster: ignored files, agent.md, variables.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod support;

use serde_json::{Value, json};
use support::team::{SOON, Team, condition, model, places, ready, shared_operator};
use support::{cluster, eventually};

/// A team with a running operator and these files; no GitSync yet.
async fn team(prefix: &str, files: &[(&str, &str)]) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    Team::new(cluster, prefix, files).await
}

/// Waits until these are the ModelAPIs.
async fn models_are(team: &Team<'_>, wanted: &[&str]) {
    eventually(SOON, &format!("models {wanted:?}"), || async {
        let models = team.models().await;
        if models == wanted { Ok(()) } else { Err(models) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_what_is_ignored_goes_through_prune_and_brake() {
    let files = ["a", "b", "c", "d"].map(|name| (format!("{name}.yaml"), model(name)));
    let mut files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    files.push(("drafts/broken.yaml", "kind: [unclosed"));
    let team = team("ignore", &files).await;
    team.create_sync(json!({"ignore": ["drafts/"]})).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);

    // To ignore is to delete: the brake holds what is too much.
    let sync = team.push(&[(".convokeignore", Some("/b.yaml\n/c.yaml\n"))]).await;
    assert_eq!(ready(&sync).reason, "PruneHeld");
    assert_eq!(condition(&sync, "PruneHeld").expect("held").status, "True");
    let held = sync.status.and_then(|s| s.pending_prune).expect("pending");
    assert_eq!(held.objects, ["ModelAPI/c", "ModelAPI/b"]);
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);
    let sync = team.push(&[(".convokeignore", Some("/b.yaml\n"))]).await;
    assert_eq!(ready(&sync).status, "True");
    assert_eq!(team.models().await, ["a", "c", "d"]);

    // The spec alone changes: the same commit is read again, and the spec wins.
    team.create_sync(json!({"ignore": ["drafts/", "!/b.yaml"]})).await;
    models_are(&team, &["a", "b", "c", "d"]).await;
    team.wait_ready("True").await;

    // A bad pattern deletes nothing and changes nothing, and says where it is.
    let changed = model("a").replace("/v1\n", "/v2\n");
    let bad = [(".convokeignore", Some("/d.yaml\n[z-a]\n")), ("a.yaml", Some(changed.as_str()))];
    let sync = team.push(&bad).await;
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    let status = sync.status.expect("status");
    assert_eq!(places(&status.problems), [".convokeignore:2:1 CVK0009"]);
    // What the spec decides on its own is known: b is wanted.
    let held: Vec<_> = status.quarantined.iter().map(|q| q.object.as_str()).collect();
    assert_eq!(held, ["ModelAPI/a", "ModelAPI/c", "ModelAPI/d"]);
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);
    let live: Value =
        serde_json::to_value(team.api(convoke::api::Kind::ModelAPI).get("a").await.expect("a"))
            .expect("JSON");
    assert_eq!(live["spec"]["external"]["url"], "https://models.example.com/v1");

    // A bad pattern in the spec stops the sync before it does anything.
    team.create_sync(json!({"ignore": ["[z-a]"]})).await;
    let sync = team.wait_ready("False").await;
    assert_eq!(ready(&sync).reason, "InvalidIgnore");
    assert_eq!(condition(&sync, "Stalled").expect("stalled").status, "True");
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);
}
