//! What the repository format means in a cluster: ignored files, agent.md, variables.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod support;

use convoke::api::{Kind, keys};
use kube::ResourceExt;
use serde_json::json;
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
    let live = team.api(Kind::ModelAPI).get("a").await.expect("ModelAPI/a");
    assert_eq!(live.data["spec"]["external"]["url"], "https://models.example.com/v1");

    // A bad pattern in the spec stops the sync before it does anything.
    team.create_sync(json!({"ignore": ["[z-a]"]})).await;
    let sync = team.wait_ready("False").await;
    assert_eq!(ready(&sync).reason, "InvalidIgnore");
    assert_eq!(condition(&sync, "Stalled").expect("stalled").status, "True");
    assert_eq!(team.models().await, ["a", "b", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_an_agent_in_markdown_is_applied_and_held_when_it_breaks() {
    let text = "---\nmodelAPI: a\nmodel: small\n---\n\nBe kind.\n";
    let team = team("markdown", &[("a.yaml", &model("a")), ("writer/agent.md", text)]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let agents = team.api(Kind::Agent);
    let live = agents.get("writer").await.expect("Agent/writer");
    assert_eq!(live.data["spec"]["config"]["instructions"], "Be kind.\n");
    assert_eq!(live.annotations()[keys::SOURCE], "writer/agent.md:2");

    let sync = team.push(&[("writer/agent.md", Some("Be unkind.\n"))]).await;
    let status = sync.status.as_ref().expect("status");
    assert_eq!(places(&status.problems), ["writer/agent.md:1:1 CVK0010"]);
    assert_eq!(status.quarantined[0].object, "Agent/writer");
    let live = agents.get("writer").await.expect("Agent/writer");
    assert_eq!(live.data["spec"]["config"]["instructions"], "Be kind.\n");

    // The same agent as YAML is the same object.
    let uid = live.metadata.uid;
    let yaml = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata: {name: writer}\nspec: {modelAPI: a}\n";
    let sync = team.push(&[("writer/agent.md", None), ("w.yaml", Some(yaml))]).await;
    assert_eq!(ready(&sync).status, "True");
    assert_eq!(agents.get("writer").await.expect("Agent/writer").metadata.uid, uid);
}
