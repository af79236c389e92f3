//! What the repository format means in a cluster: ignored files, agent.md, variables.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use convoke::api::{GitSync, Kind, keys};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
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

/// Writes a ConfigMap, labelled or not.
async fn config_map(team: &Team<'_>, labelled: bool, data: Value) {
    let labels = if labelled { json!({"convoke.dev/agents": "allow"}) } else { json!({}) };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "values", "labels": labels}, "data": data});
    let maps = Api::<ConfigMap>::namespaced(team.client.clone(), &team.namespace);
    let params = PatchParams::apply("tester").force();
    maps.patch("values", &params, &Patch::Apply(&map)).await.expect("ConfigMap");
}

/// Waits until Agent/w has this description and as many replicas.
async fn agent_is(team: &Team<'_>, description: &str, replicas: i64) {
    let agents = team.api(Kind::Agent);
    eventually(SOON, &format!("{description}, {replicas}"), || async {
        let spec = agents.get("w").await.map(|agent| agent.data["spec"].clone());
        match spec {
            Ok(spec) if spec["description"] == description && spec["replicas"] == replicas => {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Waits until Ready has this reason.
async fn reason_is(team: &Team<'_>, reason: &str) -> GitSync {
    eventually(SOON, reason, || async {
        let sync = team.get().await;
        if ready(&sync).reason == reason { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g21_values_come_from_the_spec_and_from_config_maps_and_a_change_starts_a_sync() {
    let text = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata: {name: w}\nspec:\n  modelAPI: a\n  description: in ${ENV}, ${WHO:-nobody}\n  replicas: ${N}\n";
    let files = [("a.yaml", model("a")), ("b.yaml", model("b")), ("w.yaml", text.to_owned())];
    let files: Vec<_> = files.iter().map(|(p, t)| (*p, t.as_str())).collect();
    let team = team("variables", &files).await;

    // Until its source is there, nothing is done.
    let from = json!([{"configMapRef": {"name": "values"}}]);
    team.create_sync(json!({"variables": {"inline": {"ENV": "prod"}, "from": from}})).await;
    reason_is(&team, "VariablesMissing").await;
    config_map(&team, false, json!({"N": "2"})).await;
    team.request().await;
    let sync = reason_is(&team, "VariablesNotAllowed").await;
    assert!(
        ready(&sync)
            .message
            .contains("label configmap values convoke.dev/agents=allow --overwrite"),
        "{sync:?}"
    );
    assert_eq!(team.models().await, Vec::<String>::new());

    // The label alone starts it: the next look at the remote is an hour away.
    config_map(&team, true, json!({"N": "2", "ENV": "the spec wins"})).await;
    agent_is(&team, "in prod, nobody", 2).await;
    let sync = team.wait_ready("True").await;
    let before = sync.status.expect("status");
    let mark = team.cluster.audit_mark();
    config_map(&team, true, json!({"N": "3", "WHO": "me"})).await;
    agent_is(&team, "in prod, me", 3).await;
    let after = team.wait_ready("True").await.status.expect("status");
    assert_eq!(after.last_applied_revision, before.last_applied_revision, "no new commit");
    assert_eq!(after.history[0].trigger, "Variables");
    assert_eq!(team.writes(mark), ["patch agents/w"]);

    // A value that does not fit quarantines what uses it, and nothing else.
    config_map(&team, true, json!({"N": "many"})).await;
    let sync = reason_is(&team, "ProblemsFound").await;
    let status = sync.status.expect("status");
    assert_eq!(places(&status.problems), ["w.yaml:7:13 CVK0203"]);
    assert_eq!(status.quarantined[0].object, "Agent/w");

    // A source that is gone deletes nothing, also when the commit would.
    let maps = Api::<ConfigMap>::namespaced(team.client.clone(), &team.namespace);
    maps.delete("values", &DeleteParams::default()).await.expect("delete");
    reason_is(&team, "VariablesMissing").await;
    let sync = team.push(&[("b.yaml", None)]).await;
    assert_eq!(ready(&sync).reason, "VariablesMissing");
    assert_eq!(team.models().await, ["a", "b"]);
    agent_is(&team, "in prod, me", 3).await;
    config_map(&team, true, json!({"N": "4"})).await;
    agent_is(&team, "in prod, nobody", 4).await;
    models_are(&team, &["a"]).await;
    team.wait_ready("True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g21_names_of_variables_are_checked_by_the_api_server() {
    let team = team("names", &[("a.yaml", &model("a"))]).await;
    for (variables, ok) in [
        (json!({"inline": {"A_1": "x"}, "from": [{"configMapRef": {"name": "a.b"}}]}), true),
        (json!({"inline": {"1A": "x"}}), false),
        (json!({"inline": {"A-B": "x"}}), false),
        (json!({"from": [{"secretRef": {"name": "a"}}]}), false),
    ] {
        let spec = json!({"url": team.url(), "suspend": true, "variables": variables});
        let sync = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "x"}, "spec": spec});
        let params = PatchParams::apply("tester").force();
        let made = team.syncs.patch("x", &params, &Patch::Apply(&sync)).await;
        assert_eq!(made.is_ok(), ok, "{variables}: {made:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_a_path_that_no_build_may_read_stops_nothing_else() {
    let build = |name: &str, folder: &str, path: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: {name}\nspec:\n  source:\n    gitSync: {{}}\n    subfolder: '{folder}'\n  output:\n    registry: registry.example.com\n    image: team/{name}\n  trigger:\n    paths:\n      - '{path}'\n"
        )
    };
    // The schema refuses what anybody sees is wrong; what is wrong in a way that no schema knows, is nowhere.
    let files = [
        ("a.yaml", model("a")),
        ("absolute.yaml", build("absolute", ".", "/shared")),
        ("odd.yaml", build("odd", "a\\b", "lib/git~1")),
    ];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let team = team("paths", &files).await;
    team.create_sync(json!({})).await;
    let sync = team.wait_ready("False").await;
    let problems = &sync.status.as_ref().expect("status").problems;
    assert_eq!(places(problems), ["absolute.yaml:13:5 CVK0205"]);
    assert!(problems[0].message.contains("paths must be relative"), "{problems:?}");
    models_are(&team, &["a"]).await;
    assert_eq!(team.objects(Kind::AgentBuild).await.len(), 1);
    let sync = team.push(&[("absolute.yaml", None)]).await;
    assert_eq!(ready(&sync).status, "True", "{:?}", sync.status);
}
