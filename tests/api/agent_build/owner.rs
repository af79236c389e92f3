//! Two repositories that want the same AgentBuild: the image is made of the one that owns it.

use convoke::api::{Kind, keys};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use super::support::team::{ARGS, SOON, Team};
use super::support::{Cluster, eventually};
use super::{install_tekton, install_templates};

/// An AgentBuild of the folder `image`.
fn build(name: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: {name}\nspec:\n  source:\n    gitSync: {{}}\n    subfolder: image\n  output:\n    registry: registry.example.com\n    image: team/{name}\n"
    )
}

fn runs_api(team: &Team<'_>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
    Api::namespaced_with(team.client.clone(), &team.namespace, &resource)
}

/// The runs of a build.
async fn runs_of(team: &Team<'_>, build: &str) -> Vec<DynamicObject> {
    let selector = ListParams::default().labels(&format!("{}={build}", keys::OWNER_NAME));
    runs_api(team).list(&selector).await.expect("a list of runs").items
}

/// What Tekton's controller says at the end: one run of a build goes on at a time.
async fn end(team: &Team<'_>, build: &str) {
    let results = json!([{"name": "IMAGE_DIGEST", "value": format!("sha256:{}", "a".repeat(64))}]);
    let status = json!({"status": {"results": results, "conditions": [
        {"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": ""},
    ]}});
    for run in runs_of(team, build).await {
        let name = run.metadata.name.expect("a name");
        let patch = Patch::Merge(&status);
        runs_api(team).patch_status(&name, &PatchParams::default(), &patch).await.expect("its end");
    }
}

/// The repositories and commits that runs of a build were made of, in any order.
async fn made_of(team: &Team<'_>, build: &str) -> Vec<(String, String)> {
    let runs = runs_of(team, build).await;
    let source = |run: &DynamicObject| {
        let value = |name: &str| {
            let params = run.data["spec"]["params"].as_array().expect("parameters").iter();
            let mut named = params.filter(|param| param["name"] == name);
            let value = &named.next().expect(name)["value"];
            value.as_str().expect("a text").to_owned()
        };
        (value("repo-url"), value("revision"))
    };
    runs.iter().map(source).collect()
}

/// Waits until a run of a build was made of that.
async fn wait_made_of(team: &Team<'_>, build: &str, url: &str, commit: &str) {
    eventually(SOON, &format!("{build} is made of {commit} of {url}"), || async {
        let made = made_of(team, build).await;
        let found = made.iter().any(|made| made.0 == url && made.1 == commit);
        if found { Ok(()) } else { Err(made) }
    })
    .await;
    end(team, build).await;
}

/// A commit that changes the source.
fn change(repo: &Team<'_>, word: &str) -> String {
    repo.repo.commit("change the source", &[("image/Dockerfile", &format!("FROM {word}\n"))])
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_an_image_is_made_of_the_repository_that_owns_the_build_and_of_no_other() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let mut operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let reviewer = build("reviewer");
    let files = [("team/reviewer.yaml", &*reviewer), ("image/Dockerfile", "FROM owner\n")];
    let team = Team::new(&cluster, "owner", &files).await;
    // What only the other one wants shows how far it is: its builds are told in the order of their names.
    let zebra = build("zebra");
    let files = [("team/zebra.yaml", &*zebra), ("image/Dockerfile", "FROM other\n")];
    let files: Vec<_> = files.into_iter().chain([("team/reviewer.yaml", &*reviewer)]).collect();
    let other = Team::new(&cluster, "elsewhere", &files).await;
    let (ours, theirs) = (team.url(), other.url());

    team.sync_with(json!({"path": "team"})).await;
    wait_made_of(&team, "reviewer", &ours, &team.repo.head()).await;
    // The younger one is to be seen as younger: times of creation are in whole seconds.
    let created = team.get().await.metadata.creation_timestamp.expect("a time").0;
    eventually(SOON, "another second", || async {
        let now = jiff::Timestamp::now();
        if now.as_second() > created.as_second() { Ok(()) } else { Err(now) }
    })
    .await;
    team.create_sync_named("other", json!({"path": "team", "url": theirs})).await;
    wait_made_of(&team, "zebra", &theirs, &other.repo.head()).await;
    let only_ours = async |when: &str| {
        let made = made_of(&team, "reviewer").await;
        assert!(made.iter().all(|(url, _)| *url == ours), "{when}: {made:?}");
        made
    };
    assert_eq!(only_ours("another GitSync wants it").await.len(), 1);

    let commit = change(&other, "changed");
    team.request_of("other").await;
    wait_made_of(&team, "zebra", &theirs, &commit).await;
    assert_eq!(only_ours("its repository has changed").await.len(), 1);

    // What another operator reads first is of no importance.
    operator.restart();
    operator.ready(SOON).await;
    let commit = change(&other, "changed-again");
    team.request_of("other").await;
    wait_made_of(&team, "zebra", &theirs, &commit).await;
    let commit = change(&team, "mine-changed");
    team.request().await;
    wait_made_of(&team, "reviewer", &ours, &commit).await;
    assert_eq!(only_ours("after a restart").await.len(), 2);

    // A new owner: its commit counts as soon as the mark says so.
    let default = DeleteParams::default();
    team.syncs.delete("main", &default).await.expect("delete GitSync main");
    let patch = json!({"metadata": {"annotations": {keys::ADOPT_BY: "other"}}});
    let api = team.api(Kind::AgentBuild);
    api.patch("reviewer", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("hand over");
    wait_made_of(&team, "reviewer", &theirs, &other.repo.head()).await;

    // Deleted and made anew: it has the same name, and is another one.
    team.syncs.delete("other", &default).await.expect("delete GitSync other");
    let commit = change(&other, "after-all");
    team.create_sync_named("other", json!({"path": "team", "url": theirs})).await;
    wait_made_of(&team, "reviewer", &theirs, &commit).await;
}
