//! GitSyncs of several namespaces, and builds, that read the same repository.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use convoke::api::AgentBuild;
use kube::api::Api;
use serde_json::json;

use crate::support::team::{SOON, Team, model, model_at, shared_operator};
use crate::support::{cluster, eventually};
use crate::webhook::git_faults::{Fault, GitServer, Repo, Step};

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_push_that_one_git_sync_is_told_of_reaches_all_with_one_fetch() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let root = tempfile::tempdir().expect("a folder");
    let repo = Repo::init(root.path(), "all.git");
    let folders = ["one", "two", "three"];
    let write = |url: &str| {
        let all = folders.iter().fold(repo.change("main"), |change, folder| {
            change.file(&format!("{folder}/m.yaml"), model_at("m", url))
        });
        all.commit("all")
    };
    write("https://one.example.com");
    let server = GitServer::start(root.path()).await;
    let mut teams = Vec::new();
    for folder in folders {
        let team = Team::new(cluster, folder, &[]).await;
        // Nothing but the push wakes them.
        let spec = json!({"url": server.url("all.git"), "path": folder, "interval": "1h"});
        team.create_sync(spec).await;
        team.wait_ready("True").await;
        teams.push(team);
    }
    let count = |step: Step| server.steps().iter().filter(|seen| **seen == step).count();
    assert_eq!(count(Step::Fetch), 1, "{:?}", server.steps());

    server.forget();
    let second = write("https://two.example.com");
    teams[0].request().await;
    for other in &teams[1..] {
        let status = eventually(SOON, "the other one has it, too", || async {
            let status = other.status().await;
            let applied = status.last_applied_revision.clone().unwrap_or_default();
            if applied.ends_with(&second) { Ok(status) } else { Err(applied) }
        })
        .await;
        assert_eq!(status.history[0].trigger, "SharedRef");
    }
    assert_eq!((count(Step::LsRefs), count(Step::Fetch)), (1, 1), "{:?}", server.steps());
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_a_fetch_that_hangs_and_that_many_namespaces_wait_for_delays_no_other_repository() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let root = tempfile::tempdir().expect("a folder");
    let repo = Repo::init(root.path(), "all.git");
    repo.commit("main", &[("m.yaml", &model("a"))]);
    let server = GitServer::start(root.path()).await;
    server.inject_always(Step::Fetch, Fault::Stall(100));
    // More than there are places for those that fetch and read.
    let mut hanging = Vec::new();
    for _ in 0..10 {
        let team = Team::new(cluster, "hangs", &[]).await;
        team.create_sync(json!({"url": server.url("all.git")})).await;
        hanging.push(team);
    }
    eventually(SOON, "the fetch hangs", || async {
        let steps = server.steps();
        if steps.contains(&Step::Fetch) { Ok(()) } else { Err(steps) }
    })
    .await;
    let calm = Team::new(cluster, "calm", &[("m.yaml", &model("a"))]).await;
    calm.create_sync(json!({})).await;
    calm.wait_ready("True").await;
    let fetches = server.steps().iter().filter(|step| **step == Step::Fetch).count();
    assert_eq!(fetches, 1, "the others wait for it");
    for team in &hanging {
        // It was told nothing yet.
        let status = team.get().await.status.unwrap_or_default();
        assert!(status.conditions.iter().all(|one| one.reason != "ServerSilent"), "{status:?}");
    }
    server.heal();
    for team in &hanging {
        team.wait_ready("True").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_g3_a_build_and_a_git_sync_of_one_repository_share_it() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let root = tempfile::tempdir().expect("a folder");
    let repo = Repo::init(root.path(), "all.git");
    let server = GitServer::start(root.path()).await;
    let url = server.url("all.git");
    let build = format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: b\nspec:\n  source:\n    git:\n      url: {url}\n      interval: 1h\n    subfolder: image\n  output:\n    registry: registry.example.com\n    image: b\n"
    );
    let write = |content: &str| {
        let change = repo.change("main").file("team/b.yaml", &*build);
        change.file("image/Dockerfile", content).commit("all")
    };
    let first = write("FROM scratch");
    let team = Team::new(cluster, "shares", &[]).await;
    // Nothing but the word of another one wakes either of them.
    team.create_sync(json!({"url": url, "path": "team", "interval": "1h"})).await;
    let builds: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    let seen = async |commit: &str| {
        eventually(SOON, "the build has seen the commit", || async {
            let build = builds.get_opt("b").await.expect("an answer");
            let status = build.and_then(|build| build.status).unwrap_or_default();
            let observed = status.observed_revision.clone().unwrap_or_default();
            if observed.ends_with(commit) { Ok(()) } else { Err(status) }
        })
        .await;
    };
    seen(&first).await;
    team.wait_ready("True").await;
    let count = |step: Step| server.steps().iter().filter(|seen| **seen == step).count();
    assert_eq!(count(Step::Fetch), 1, "{:?}", server.steps());

    server.forget();
    let second = write("FROM scratch\n");
    team.request().await;
    seen(&second).await;
    assert_eq!((count(Step::LsRefs), count(Step::Fetch)), (1, 1), "{:?}", server.steps());
}
