//! A folder on disk in place of a repository: what is saved is synced.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::time::Instant;

use convoke::api::Kind;
use serde_json::json;
use support::team::{ARGS, SOON, Team, model, model_at, places};
use support::{Cluster, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn g20_what_is_saved_in_a_folder_is_synced_through_the_same_pipeline() {
    let cluster = Cluster::exclusive().await;
    let files =
        [("team/a.yaml", model("a")), ("team/b.yaml", model("b")), ("team/c.yaml", model("c"))];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(&cluster, "local", &files).await;
    let root = team.repo.work().to_owned();
    let local = format!("--local={}/main={}", team.namespace, root.display());
    let operator = cluster.operator(&[ARGS, &[&local]].concat()).await;
    operator.ready(SOON).await;
    // Nobody dials that.
    let spec =
        json!({"url": "https://nowhere.invalid/x.git", "path": "team", "retryInterval": "1h"});
    team.create_sync(spec).await;
    let sync = team.wait_ready("True").await;
    let revision = sync.status.expect("status").last_applied_revision.expect("a revision");
    assert!(revision.starts_with("local@sha256:"), "{revision}");
    assert_eq!(team.models().await, ["a", "b", "c"]);

    // Saved, not committed.
    let save = |name: &str, text: &str| {
        std::fs::write(root.join("team").join(name), text).expect("save a file");
    };
    let url = async || {
        let live = team.api(Kind::ModelAPI).get("a").await.expect("a");
        live.data["spec"]["external"]["url"].as_str().expect("a URL").to_owned()
    };
    let new = "https://new.example.com/v1";
    let saved = Instant::now();
    save("a.yaml", &model_at("a", new));
    eventually(SOON, "the change arrives", || async {
        let url = url().await;
        if url == new { Ok(()) } else { Err(url) }
    })
    .await;
    println!("applied {} ms after it was saved", saved.elapsed().as_millis());

    // A mistake has a place, and deletes nothing.
    save("b.yaml", "kind: [unclosed");
    let sync = team.wait_ready("False").await;
    let status = sync.status.expect("status");
    assert_eq!(status.quarantined[0].object, "ModelAPI/b");
    assert!(places(&status.problems)[0].starts_with("team/b.yaml:"), "{:?}", status.problems);
    assert_eq!(team.models().await, ["a", "b", "c"]);

    // Mended, in a new folder: that is watched, too.
    std::fs::remove_file(root.join("team/b.yaml")).expect("remove a file");
    std::fs::create_dir(root.join("team/deep")).expect("make a folder");
    save("deep/b.yaml", &model("b"));
    team.wait_ready("True").await;
    save("deep/b.yaml", &model_at("b", new));
    std::fs::remove_file(root.join("team/c.yaml")).expect("remove a file");
    eventually(SOON, "c is pruned", || async {
        let models = team.models().await;
        if models == ["a", "b"] { Ok(()) } else { Err(models) }
    })
    .await;
    let mark = cluster.audit_mark();
    team.request().await;
    assert_eq!(team.writes(mark), Vec::<String>::new(), "a settled folder causes no write");
}
