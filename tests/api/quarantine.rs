//! Objects whose file is broken: they stay at their last good state, whoever changes or deletes them, over a restart too. And
//! changes by hand that say something else of themselves.

use std::path::Path;

use crate::support::engine::operate;
use crate::support::team::{SOON, Team, model, model_at, ready, shared_operator};
use crate::support::{Cluster, cluster, eventually};
use convoke::api::{GitSync, Kind, keys};
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const GOOD: &str = "https://models.example.com/v1";
const BAD: &str = "https://drift.example.com/v1";
const MARKER: &str = "<<<<<<< HEAD\n=======\n>>>>>>> other\n";

/// A control plane of its own with an operator in the process of the test, which can be started anew.
struct Process {
    client: Client,
    engine: JoinSet<()>,
}

impl Process {
    async fn start(cluster: &Cluster, data: &Path) -> Self {
        let namespace = cluster.namespace("operator").await;
        let kubeconfig = cluster.operator_kubeconfig(&namespace).await;
        cluster.bind_single_tenant(&namespace);
        let client = cluster.client_of(&kubeconfig).await;
        let engine = operate(&client, data);
        Self { client, engine }
    }

    /// The operator ends at once, and another one starts.
    async fn restart(&mut self, data: &Path) {
        self.engine.shutdown().await;
        self.engine = operate(&self.client, data);
    }

    async fn stop(&mut self) {
        self.engine.shutdown().await;
    }
}

/// A team with these files, whose GitSync is Ready.
async fn team<'a>(cluster: &'a Cluster, prefix: &str, names: &[&str], extra: Value) -> Team<'a> {
    let files: Vec<_> = names.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    team.create_sync(extra).await;
    team.wait_ready("True").await;
    team
}

/// A person edits the address of a model, and what the model says of itself.
async fn edit(team: &Team<'_>, name: &str, annotations: Value) {
    let patch =
        json!({"metadata": {"annotations": annotations}, "spec": {"external": {"url": BAD}}});
    let params =
        PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    team.api(Kind::ModelAPI).patch(name, &params, &Patch::Merge(&patch)).await.expect("edit");
}

async fn url_of(team: &Team<'_>, name: &str) -> String {
    let object = team.api(Kind::ModelAPI).get(name).await.expect("the model");
    object.data["spec"]["external"]["url"].as_str().expect("url").to_owned()
}

async fn url_becomes(team: &Team<'_>, name: &str, want: &str) {
    eventually(SOON, &format!("{name} has the address {want}"), || async {
        let url = url_of(team, name).await;
        if url == want { Ok(()) } else { Err(url) }
    })
    .await;
}

/// Where a model says that it comes from: commit and place.
async fn origin(team: &Team<'_>, name: &str) -> [String; 2] {
    let object = team.api(Kind::ModelAPI).get(name).await.expect("the model");
    let annotations = object.metadata.annotations.expect("annotations");
    [keys::COMMIT, keys::SOURCE].map(|key| annotations[key].clone())
}

/// Somebody deletes a model; waits until there is another one of that name.
async fn delete_and_wait(team: &Team<'_>, name: &str) {
    let before = team.objects(Kind::ModelAPI).await[name].clone();
    let api = team.api(Kind::ModelAPI);
    api.delete(name, &DeleteParams::default()).await.expect("delete");
    eventually(SOON, &format!("{name} is made again"), || async {
        let now = team.objects(Kind::ModelAPI).await.remove(name);
        if now.as_ref().is_some_and(|uid| *uid != before) { Ok(()) } else { Err(now) }
    })
    .await;
}

fn quarantined(sync: &GitSync) -> Vec<String> {
    let all = sync.status.iter().flat_map(|status| &status.quarantined);
    all.map(|one| one.object.clone()).collect()
}

/// The GitSync, once these are quarantined.
async fn wait_quarantined(team: &Team<'_>, names: &[&str]) -> GitSync {
    let want: Vec<_> = names.iter().map(|name| format!("ModelAPI/{name}")).collect();
    eventually(SOON, &format!("{names:?} are quarantined"), || async {
        let sync = team.get().await;
        if quarantined(&sync) == want { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_what_is_quarantined_comes_back_when_somebody_changes_or_deletes_it() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = team(cluster, "keeps", &["a", "b", "c"], json!({})).await;
    let first = origin(&team, "b").await;
    team.push(&[("b.yaml", Some(MARKER))]).await;
    wait_quarantined(&team, &["b"]).await;
    edit(&team, "b", json!({})).await;
    url_becomes(&team, "b", GOOD).await;
    // The commit that it is from, not the one that is broken.
    assert_eq!(origin(&team, "b").await, first);
    delete_and_wait(&team, "b").await;
    assert_eq!(
        (url_of(&team, "b").await.as_str(), origin(&team, "b").await),
        (GOOD, first.clone())
    );
    let sync = team.request().await;
    assert_eq!(
        (quarantined(&sync), ready(&sync).reason.as_str()),
        (vec!["ModelAPI/b".into()], "ProblemsFound")
    );
    assert_eq!(sync.status.expect("a status").pending_prune, None);

    // More commits with errors change nothing of that.
    team.push(&[("c.yaml", Some(&model_at("c", "https://new.example.com/v1")))]).await;
    delete_and_wait(&team, "b").await;
    assert_eq!(origin(&team, "b").await, first);
    edit(&team, "b", json!({})).await;
    url_becomes(&team, "b", GOOD).await;
    // Once the file is mended and says nothing of it any more, it goes.
    team.push(&[("b.yaml", Some(&model("d")))]).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "c", "d"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_what_is_quarantined_comes_back_after_a_restart_too() {
    let cluster = Cluster::exclusive().await;
    let data = tempfile::tempdir().expect("temporary folder");
    let mut operator = Process::start(&cluster, data.path()).await;
    let team = team(&cluster, "again", &["a", "b", "c"], json!({})).await;
    let first = origin(&team, "b").await;
    team.push(&[("b.yaml", Some(MARKER))]).await;
    wait_quarantined(&team, &["b"]).await;
    operator.stop().await;
    edit(&team, "b", json!({})).await;
    operator.restart(data.path()).await;
    url_becomes(&team, "b", GOOD).await;
    delete_and_wait(&team, "b").await;
    assert_eq!((url_of(&team, "b").await.as_str(), origin(&team, "b").await), (GOOD, first));
    wait_quarantined(&team, &["b"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_what_moved_before_its_file_broke_is_quarantined_after_a_restart_too() {
    let cluster = Cluster::exclusive().await;
    let [data, other] = [0, 1].map(|_| tempfile::tempdir().expect("temporary folder"));
    let mut operator = Process::start(&cluster, data.path()).await;
    let team = team(&cluster, "moved", &["p", "q", "r"], json!({})).await;
    // Its own file stays, with something else; nothing is written for the move.
    let both = format!("{}---\n{}", model("q"), model("p"));
    let rest = model("s");
    team.push(&[("p.yaml", Some(&rest)), ("q.yaml", Some(&both))]).await;
    team.wait_ready("True").await;
    assert_eq!(origin(&team, "p").await[1], "p.yaml:1");
    let before = team.objects(Kind::ModelAPI).await;
    team.push(&[("q.yaml", Some(MARKER))]).await;
    wait_quarantined(&team, &["p", "q"]).await;
    for folder in [data.path(), other.path()] {
        operator.restart(folder).await;
        let sync = team.request().await;
        assert_eq!(quarantined(&sync), ["ModelAPI/p", "ModelAPI/q"]);
        assert_eq!(sync.status.expect("a status").pending_prune, None);
    }

    // A history without the commit that was applied: nothing is known, and nothing is offered for deletion.
    operator.stop().await;
    let text = |path: &str| std::fs::read_to_string(team.repo.work().join(path)).expect("a file");
    let (p, r) = (text("p.yaml"), text("r.yaml"));
    assert_eq!((p.as_str(), r.as_str()), (rest.as_str(), model("r").as_str()));
    team.repo.git(&["checkout", "-q", "--orphan", "anew"]);
    team.repo.git(&["rm", "-q", "--cached", "r.yaml"]);
    team.repo.git(&[
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.com",
        "commit",
        "-q",
        "-m",
        "anew",
    ]);
    team.repo.git(&["push", "-q", "--force", "origin", "anew:main"]);
    let bare = team.repo.bare().display().to_string();
    for args in
        [["reflog", "expire", "--expire=now", "--all"].as_slice(), &["gc", "-q", "--prune=now"]]
    {
        team.repo.git(&[["-C", bare.as_str()].as_slice(), args].concat());
    }
    let empty = tempfile::tempdir().expect("temporary folder");
    operator.restart(empty.path()).await;
    let sync = team.request().await;
    assert_eq!(quarantined(&sync), ["ModelAPI/p", "ModelAPI/q", "ModelAPI/r"]);
    assert_eq!(sync.status.expect("a status").pending_prune, None);
    assert_eq!(team.objects(Kind::ModelAPI).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_an_edit_that_says_it_is_of_another_definition_is_undone_and_told() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = team(cluster, "disguise", &["a", "b"], json!({})).await;
    edit(&team, "a", json!({keys::APPLIED: "0123456789abcdef0123456789abcdef"})).await;
    url_becomes(&team, "a", GOOD).await;
    let events: Api<Event> = Api::namespaced(team.client.clone(), &team.namespace);
    eventually(SOON, "an event tells", || async {
        let all = events.list(&ListParams::default()).await.expect("events");
        let notes = all.items.iter().filter(|e| e.reason.as_deref() == Some("DriftCorrected"));
        let notes: Vec<_> = notes.filter_map(|e| e.message.clone()).collect();
        if notes == ["ModelAPI/a: spec.external.url, changed by kubectl-edit; undone"] {
            Ok(())
        } else {
            Err(format!("{notes:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_an_edit_that_says_it_is_of_another_definition_is_left_where_drift_is_only_told() {
    let cluster = Cluster::exclusive().await;
    let data = tempfile::tempdir().expect("temporary folder");
    let mut operator = Process::start(&cluster, data.path()).await;
    let team = team(&cluster, "told", &["a", "b", "c"], json!({"drift": "Report"})).await;
    let disguise = || json!({keys::APPLIED: "0123456789abcdef0123456789abcdef"});
    let drifted = async |want: &[&str]| {
        eventually(SOON, &format!("{want:?} are told"), || async {
            let drifted = team.status().await.drifted;
            if drifted == want { Ok(()) } else { Err(format!("{drifted:?}")) }
        })
        .await;
    };
    edit(&team, "a", disguise()).await;
    drifted(&["ModelAPI/a"]).await;
    assert_eq!(url_of(&team, "a").await, BAD);

    // The status says that this commit was applied whole: another operator knows as much.
    operator.stop().await;
    edit(&team, "b", disguise()).await;
    operator.restart(data.path()).await;
    drifted(&["ModelAPI/a", "ModelAPI/b"]).await;
    // A commit about something else is none about these; one that changes one is written.
    team.push(&[("c.yaml", Some(&model_at("c", "https://new.example.com/v1")))]).await;
    assert_eq!([url_of(&team, "a").await, url_of(&team, "b").await], [BAD, BAD]);
    team.push(&[("a.yaml", Some(&model_at("a", "https://new.example.com/v1")))]).await;
    url_becomes(&team, "a", "https://new.example.com/v1").await;
    drifted(&["ModelAPI/b"]).await;
}
