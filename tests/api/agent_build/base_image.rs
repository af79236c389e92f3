//! `trigger.baseImage`: a base image whose tag names another image starts a build. The registry is a real one.

use super::reuse::Stage;
use super::*;

/// A spec that appends to a base image, whose tag it follows.
fn spec(namespace: &str, name: &str, base: &str) -> Value {
    json!({
        "strategy": "Append", "append": {"baseImage": base}, "buildArgs": {}, "trigger": {"baseImage": true},
        "output": {"image": format!("{namespace}/{name}"), "insecure": true},
    })
}

/// What the step that appends gets as its base image.
async fn base_of(team: &Team<'_>, run: &str) -> String {
    let run = team.runs_api().get(run).await.expect("the run").data;
    let params = run["spec"]["params"].as_array().expect("params").clone();
    let base = params.iter().find(|one| one["name"] == "base-image").expect("the base image");
    base["value"].as_str().expect("a text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b11_a_base_image_that_moves_starts_a_build() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    let team = &stage.team;
    let names = ["reviewer", "writer"].map(str::to_owned);
    let base = format!("{}:1", stage.repository("base"));
    let looked = |since: usize| {
        let is = |one: &&String| one.starts_with("HEAD") && one.contains("/base/manifests/1");
        stage.registry.requests().iter().filter(is).count() - since
    };
    let done = async |name: &str, digest: &str, before: Option<&str>| {
        let is = |s: &AgentBuildStatus| {
            s.phase == Some(BuildPhase::Building) && s.build_key.as_deref() != before
        };
        let status = team.until(name, "it builds", is).await;
        let run = status.pipeline_run.clone().expect("a run");
        let pinned = format!("{base}@{digest}");
        assert_eq!(status.base_image.as_deref(), Some(pinned.as_str()));
        assert_eq!(base_of(team, &run).await, pinned, "exactly the image of the key");
        let image = format!("sha256:{}", "7".repeat(64));
        team.end_with(&run, Some((stage.repository(name), image))).await;
        stage.succeeded(name, &status.build_key.expect("a key")).await
    };

    // Nothing is built on an image that nobody knows.
    let controller = stage.start();
    for name in &names {
        team.apply_build(name, &spec(&team.namespace, name, &base));
    }
    team.commit_all(&controller, &names, '1', Some('a'), None);
    let is_unknown =
        |s: &AgentBuildStatus| condition(s, "Ready") == Some(("False", "BaseImageUnknown"));
    for name in &names {
        let status = team.until(name, "the base image is missing", is_unknown).await;
        assert!(status.message.expect("a message").contains("its registry has no "));
    }
    assert!(team.runs().await.is_empty());

    // Once for all builds that name it. Who has asked in vain asks again after a minute, and another operator at once.
    let first = stage.push("base", "one", "1").await;
    drop(controller);
    let before = looked(0);
    let controller = stage.start();
    team.commit_all(&controller, &names, '1', Some('a'), None);
    let mut keys = Vec::new();
    for name in &names {
        keys.push(done(name, &first, None).await.build_key.expect("a key"));
    }
    assert_eq!(looked(before), 1);

    // The tag names another image. That is looked at again in some minutes, or by the next operator.
    let second = stage.push("base", "two", "1").await;
    drop(controller);
    let controller = stage.start();
    team.commit_all(&controller, &names, '2', Some('a'), None);
    let built = done("reviewer", &second, Some(&keys[0])).await;
    done("writer", &second, Some(&keys[1])).await;
    // Another image counts if the registry says so twice.
    assert_eq!(looked(before), 3);

    // A registry that is away takes nothing from what is known: only a build that knows nothing waits.
    drop(controller);
    let Stage { team, registry, .. } = stage;
    let host = registry.host();
    drop(registry);
    let controller = team.start_for(&host);
    team.apply_build("third", &spec(&team.namespace, "third", &base));
    let all = ["reviewer", "writer", "third"].map(str::to_owned);
    team.commit_all(&controller, &all, '3', Some('a'), None);
    team.until("third", "the registry is away", is_unknown).await;
    let status = team.status("reviewer").await;
    assert_eq!(condition(&status, "Ready"), Some(("True", "Built")));
    assert_eq!((status.build_key, status.built_image), (built.build_key, built.built_image));
    drop(controller);
}
