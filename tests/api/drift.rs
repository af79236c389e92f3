//! People who change objects by hand: what is undone, what is told, what is left alone.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::time::{Duration, Instant};

use convoke::api::{Kind, keys};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::engine::InterceptedEngine;
use support::team::{ARGS, SOON, Team, condition, model, model_at, places, ready, shared_operator};
use support::{Cluster, cluster, eventually};

/// A team with a running operator and a finished first sync of these models.
async fn team(prefix: &str, models: &[&str], extra: Value) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files: Vec<_> = models.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    team.create_sync(extra).await;
    team.wait_ready("True").await;
    team
}

/// A person edits the address of a model.
async fn edit(team: &Team<'_>, name: &str, url: &str) {
    edit_as(team, "kubectl-edit", name, url).await;
}

async fn edit_as(team: &Team<'_>, manager: &str, name: &str, url: &str) {
    let patch = json!({"spec": {"external": {"url": url}}});
    let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    let api = team.api(Kind::ModelAPI);
    api.patch(name, &params, &Patch::Merge(&patch)).await.expect("edit");
}

/// A person sets an annotation of a model.
async fn annotate(team: &Team<'_>, name: &str, key: &str, value: Option<&str>) {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    let api = team.api(Kind::ModelAPI);
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("annotate");
}

async fn url_of(team: &Team<'_>, name: &str) -> String {
    let object = team.api(Kind::ModelAPI).get(name).await.expect("the model");
    object.data["spec"]["external"]["url"].as_str().expect("url").to_owned()
}

async fn url_becomes(team: &Team<'_>, name: &str, want: &str) {
    eventually(SOON, "the model has the address", || async {
        let url = url_of(team, name).await;
        if url == want { Ok(()) } else { Err(url) }
    })
    .await;
}

const GOOD: &str = "https://models.example.com/v1";
const BAD: &str = "https://drift.example.com/v1";

#[tokio::test(flavor = "multi_thread")]
async fn g14_an_edit_is_undone_and_an_event_names_the_field_and_who_it_was() {
    let team = team("culprit", &["a", "b"], json!({})).await;
    edit(&team, "a", BAD).await;
    url_becomes(&team, "a", GOOD).await;
    // Of another object, by somebody else: told as such, and not counted as the same.
    edit_as(&team, "kubectl-patch", "b", BAD).await;
    url_becomes(&team, "b", GOOD).await;
    // Each is told of the object itself: `kubectl describe` shows it there.
    let uids = team.objects(Kind::ModelAPI).await;
    let both = [("a", "kubectl-edit"), ("b", "kubectl-patch")].map(|(name, who)| {
        let note = format!("ModelAPI/{name}: spec.external.url, changed by {who}; undone");
        (note, Some(uids[name].clone()))
    });
    let events: Api<Event> = Api::namespaced(team.client.clone(), &team.namespace);
    eventually(SOON, "an event tells", || async {
        let all = events.list(&ListParams::default()).await.expect("events");
        let all = all.items.into_iter();
        let told = all.filter(|event| event.reason.as_deref() == Some("DriftCorrected"));
        let told = told.map(|event| (event.message.unwrap_or_default(), event.involved_object.uid));
        let mut told: Vec<_> = told.collect();
        told.sort();
        if told == both { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_pods_are_not_replaced_for_an_edit_that_is_undone() {
    let team = team("pods", &["gpt"], json!({})).await;
    let spec = "modelAPI: gpt\n  model: m\n  image: registry.example.com/good:1";
    let text = format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  {spec}\n"
    );
    team.push(&[("a.yaml", Some(&text))]).await;
    let deployments: Api<Deployment> = Api::namespaced(team.client.clone(), &team.namespace);
    let agents = team.api(Kind::Agent);
    // The controller has seen all that there is to see.
    let seen = async || {
        eventually(SOON, "the controller has looked", || async {
            let agent = agents.get("a").await.expect("the agent");
            let image = agent.data["spec"]["image"] == "registry.example.com/good:1";
            let looked = agent.data["status"]["observedGeneration"].as_i64();
            if image && looked == agent.metadata.generation && looked.is_some() {
                Ok(looked)
            } else {
                Err(format!("{:?}", agent.data))
            }
        })
        .await
    };
    seen().await;
    // What its Deployment says wakes the controller, too: here that has come to rest.
    eventually(SOON, "the Deployment waits for a node", || async {
        let status = deployments.get_opt("agent-a").await.expect("read")?.status?;
        (status.observed_generation == Some(1) && status.unavailable_replicas == Some(1))
            .then_some(())
    })
    .await;
    let template = async || {
        let deployment = deployments.get("agent-a").await.expect("a Deployment");
        deployment.spec.expect("spec").template
    };
    let params =
        PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let patch = json!({"spec": {"image": "registry.example.com/bad:1"}});
    // Controllers wait three seconds. On a very busy machine an edit may be there for longer: then there is another one.
    for _ in 0..5 {
        let (before, made) = (seen().await, template().await);
        let edited = Instant::now();
        agents.patch("a", &params, &Patch::Merge(&patch)).await.expect("edit");
        eventually(SOON, "the edit is undone", || async {
            let agent = agents.get("a").await.expect("the agent");
            (agent.data["spec"]["image"] == "registry.example.com/good:1").then_some(())
        })
        .await;
        let undone_after = edited.elapsed();
        assert_ne!(seen().await, before, "the edit and its undoing are generations of their own");
        if undone_after < Duration::from_secs(2) {
            assert_eq!(template().await, made);
            return;
        }
    }
    panic!("no edit was undone within two seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_paused_object_is_left_alone_until_the_pause_ends() {
    let team = team("paused", &["a", "b"], json!({})).await;
    annotate(&team, "a", keys::RECONCILE, Some("disabled")).await;
    eventually(SOON, "the pause is shown", || async {
        let sync = team.get().await;
        let paused = sync.status.clone().unwrap_or_default().paused;
        if paused == ["ModelAPI/a"] { Ok(()) } else { Err(format!("{paused:?}")) }
    })
    .await;
    edit(&team, "a", "https://hotfix.example.com/v1").await;
    edit(&team, "b", BAD).await;
    url_becomes(&team, "b", GOOD).await;
    // Neither a new commit nor its absence in Git touches it.
    let sync = team.push(&[("a.yaml", Some(&model_at("a", "https://new.example.com/v1")))]).await;
    assert_eq!(ready(&sync).status, "True");
    let message = ready(&sync).message;
    assert!(message.ends_with("1 object(s) paused, first: ModelAPI/a"), "{message}");
    assert_eq!(url_of(&team, "a").await, "https://hotfix.example.com/v1");
    let sync = team.push(&[("a.yaml", None)]).await;
    assert_eq!(ready(&sync).status, "True");
    assert_eq!(team.models().await, ["a", "b"]);
    team.push(&[("a.yaml", Some(&model_at("a", "https://new.example.com/v1")))]).await;

    annotate(&team, "a", keys::RECONCILE, None).await;
    url_becomes(&team, "a", "https://new.example.com/v1").await;
    eventually(SOON, "no pause is shown", || async {
        let paused = team.status().await.paused;
        if paused.is_empty() { Ok(()) } else { Err(format!("{paused:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_what_is_paused_while_its_change_is_on_its_way_is_not_written() {
    let cluster = Cluster::exclusive().await;
    let engine = InterceptedEngine::start(&cluster).await;
    let slow = &engine.requests;
    let files = [("a.yaml", model("a")), ("b.yaml", model("b"))];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let team = Team::new(&cluster, "paused-late", &files).await;
    team.create_sync(json!({"interval": "1s"})).await;
    team.wait_ready("True").await;
    let before = url_of(&team, "a").await;

    slow.hold("PATCH", "/modelapis/a?");
    let change = model_at("a", "https://changed.example");
    team.repo.change("change a", &[("a.yaml", &change)], &[]);
    slow.holds(SOON).await;
    annotate(&team, "a", keys::RECONCILE, Some(keys::DISABLED)).await;
    slow.release();
    eventually(SOON, "it is shown as paused", || async {
        let status = team.status().await;
        if status.paused == ["ModelAPI/a"] { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(url_of(&team, "a").await, before, "the on-call's pause counts");
    annotate(&team, "a", keys::RECONCILE, None).await;
    url_becomes(&team, "a", "https://changed.example").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_drift_may_be_told_instead_of_undone() {
    let team = team("report", &["a", "b"], json!({"drift": "Report"})).await;
    edit(&team, "a", BAD).await;
    eventually(SOON, "the drift is told", || async {
        let sync = team.get().await;
        match condition(&sync, "Drifted") {
            Some(drifted) if drifted.status == "True" && drifted.message.contains("ModelAPI/a") => {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let status = team.status().await;
    assert_eq!(status.drifted, ["ModelAPI/a"]);
    assert_eq!(url_of(&team, "a").await, BAD);
    // A commit that changes the object is written over it.
    let newer = "https://newer.example.com/v1";
    let sync = team.push(&[("a.yaml", Some(&model_at("a", newer)))]).await;
    assert_eq!(ready(&sync).status, "True");
    assert_eq!(url_of(&team, "a").await, newer);
    eventually(SOON, "no drift is told", || async {
        let sync = team.get().await;
        match condition(&sync, "Drifted") {
            None => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_fight_backs_off_and_says_so() {
    let team = team("fight", &["a", "b"], json!({})).await;
    for _ in 0..3 {
        edit(&team, "a", BAD).await;
        url_becomes(&team, "a", GOOD).await;
    }
    edit(&team, "a", BAD).await;
    let sync = team.wait_ready("False").await;
    let status = sync.status.expect("status");
    assert_eq!(places(&status.problems), ["a.yaml:1:1 CVK0907"]);
    let message = &status.problems[0].message;
    assert!(message.contains("spec.external.url, changed by kubectl-edit"), "{message}");
    assert_eq!(url_of(&team, "a").await, BAD);
    // The others go on, and whoever asks for a sync is obeyed.
    edit(&team, "b", BAD).await;
    url_becomes(&team, "b", GOOD).await;
    team.request().await;
    url_becomes(&team, "a", GOOD).await;
    team.wait_ready("True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_fight_over_whether_an_object_exists_backs_off_too() {
    let team = team("deletes", &["a", "b"], json!({})).await;
    let api = team.api(Kind::ModelAPI);
    let delete = async || {
        let uid = api.get("a").await.expect("a").metadata.uid;
        api.delete("a", &DeleteParams::default()).await.expect("delete");
        uid
    };
    let back = async |old: Option<String>| {
        eventually(SOON, "it is back", || async {
            let uid = api.get_opt("a").await.expect("get").and_then(|object| object.metadata.uid);
            if uid.is_some() && uid != old { Ok(()) } else { Err(uid) }
        })
        .await;
    };
    for round in 1..=3 {
        back(delete().await).await;
        // A delete that comes before the operator has counted this is not counted as another one.
        eventually(SOON, "the history tells of it", || async {
            let history = team.status().await.history;
            if history.len() > round { Ok(()) } else { Err(history) }
        })
        .await;
    }
    let last = delete().await;
    let sync = team.wait_ready("False").await;
    let status = sync.status.expect("status");
    assert_eq!(places(&status.problems), ["a.yaml:1:1 CVK0907"]);
    assert!(status.problems[0].message.contains("deleted by somebody"), "{:?}", status.problems);
    assert_eq!(team.models().await, ["b"]);
    team.request().await;
    back(last).await;
    team.wait_ready("True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_scale_is_no_drift_where_git_sets_no_replicas() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let agent = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\nspec:\n  modelAPI: a\n  model: m\n";
    let files = [("a.yaml", model("a")), ("agent.yaml", agent.to_owned())];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let team = Team::new(cluster, "scaled", &files).await;
    team.create_sync(json!({"drift": "Report"})).await;
    team.wait_ready("True").await;
    let api = team.api(Kind::Agent);
    let mark = team.cluster.audit_mark();
    // More often than a fight has rounds.
    for replicas in 2..7 {
        let scale = json!({"spec": {"replicas": replicas}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&scale));
        api.patch_scale("helper", &params, &patch).await.expect("scale");
        team.request().await;
    }
    let status = team.wait_ready("True").await.status.expect("status");
    assert_eq!((status.drifted, status.problems.len()), (Vec::<String>::new(), 0));
    assert_eq!(team.writes(mark), Vec::<String>::new());
    assert_eq!(api.get("helper").await.expect("helper").data["spec"]["replicas"], 6);
    let events = team.cluster.kubectl(&["-n", &team.namespace, "get", "events", "-o", "json"]);
    assert!(!events.contains("DriftCorrected"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_atomic_applies_all_of_a_commit_or_nothing() {
    let team = team("atomic", &["a", "b"], json!({"failurePolicy": "Atomic"})).await;
    // An error in one file keeps the other from being applied, and drift is still undone.
    let newer = "https://newer.example.com/v1";
    let broken =
        "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: b\nspec:\n  mod: x\n";
    let sync = team
        .push(&[
            ("a.yaml", Some(&model_at("a", newer))),
            ("b.yaml", Some(broken)),
            ("c.yaml", Some(&model("c"))),
        ])
        .await;
    assert_eq!(ready(&sync).status, "False");
    assert_eq!(
        (url_of(&team, "a").await.as_str(), team.models().await),
        (GOOD, vec!["a".into(), "b".into()])
    );
    let sync = team.push(&[("b.yaml", Some(&model("b")))]).await;
    assert_eq!(ready(&sync).status, "True");
    assert_eq!((url_of(&team, "a").await.as_str(), team.models().await.len()), (newer, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_after_a_start_the_applied_commit_is_kept_though_the_remote_is_away() {
    let cluster = Cluster::exclusive().await;
    let data = tempfile::tempdir().expect("temporary folder");
    let data = format!("--data-dir={}", data.path().display());
    let mut operator = cluster.operator(&[ARGS, &[data.as_str()]].concat()).await;
    let team = Team::new(&cluster, "recall", &[("a.yaml", &model("a"))]).await;
    let (gate, url) = team.gate();
    team.create_sync(json!({"url": url, "timeout": "1s"})).await;
    team.wait_ready("True").await;
    operator.kill9();
    gate.shut();
    edit(&team, "a", BAD).await;
    operator.restart();
    url_becomes(&team, "a", GOOD).await;
    let sync = team.wait_ready("False").await;
    assert_eq!((ready(&sync).reason.as_str(), condition(&sync, "DriftWatch")), ("Timeout", None));

    // Without the store nothing is known, and that is said. Nothing is deleted for it.
    operator.kill9();
    std::fs::remove_dir_all(data.trim_start_matches("--data-dir=")).expect("remove the store");
    operator.restart();
    eventually(SOON, "the blindness is told", || async {
        match condition(&team.get().await, "DriftWatch") {
            Some(watch) if watch.status == "False" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(team.models().await, ["a"]);
}
