//! `trigger.baseImage`: a base image whose tag names another image starts a build, with both strategies. The registry is a real one.

use convoke::sync::commit::source_at::DockerfileAt;

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

/// A source with this Dockerfile.
fn with_dockerfile(commit: char, text: &str) -> SourceAt {
    let path = "images/reviewer/Dockerfile".to_owned();
    SourceAt {
        sync: "team".into(),
        url: URL.into(),
        commit: commit.to_string().repeat(40),
        subfolder_tree: Some("a".repeat(40)),
        paths: BTreeMap::new(),
        dockerfile: Some(DockerfileAt::new(path, Ok(text.as_bytes()))),
        base_images: BTreeMap::new(),
        applied: None,
    }
}

/// What the step that builds gets in place of base images.
async fn bases_of(team: &Team<'_>, run: &str) -> Vec<String> {
    let run = team.runs_api().get(run).await.expect("the run").data;
    let params = run["spec"]["params"].as_array().expect("params").clone();
    let bases = params.iter().find(|one| one["name"] == "base-images").expect("the base images");
    serde_json::from_value(bases["value"].clone()).expect("a list")
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_base_image_of_a_dockerfile_that_moves_starts_a_build() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    let team = &stage.team;
    let names = ["reviewer".to_owned()];
    let (first, second) = (stage.repository("first"), stage.repository("second"));
    let text = format!(
        "ARG HOST TAG=1\nFROM {first}:1 AS one\nFROM ${{HOST}}/second:$TAG\nCOPY --from=one /a /b\nCOPY --from=$NOBODY /a /b\n"
    );
    let spec = json!({
        "output": {"image": format!("{}/reviewer", team.namespace), "insecure": true}, "trigger": {"baseImage": true},
        "buildArgs": {"HOST": second.strip_suffix("/second").expect("a folder")},
    });
    let start = |commit: char| {
        let controller = stage.start();
        team.publish(&controller, &names, &with_dockerfile(commit, &text));
        controller
    };
    let stale = |status: &AgentBuildStatus| {
        let all = &status.conditions;
        all.iter().find(|one| one.type_ == "BaseImageStale").map(|one| one.message.clone())
    };
    let done = async |one: &str, two: &str, before: Option<&str>| {
        let is = |s: &AgentBuildStatus| {
            s.phase == Some(BuildPhase::Building) && s.build_key.as_deref() != before
        };
        let status = team.until("reviewer", "it builds", is).await;
        assert_eq!(status.base_images, [format!("{first}:1@{one}"), format!("{second}:1@{two}")]);
        let line = "images/reviewer/Dockerfile, line 5: $NOBODY: a variable cannot be read here";
        assert_eq!(stale(&status).as_deref(), Some(line), "what is not followed is told");
        let run = status.pipeline_run.clone().expect("a run");
        let want = [
            format!("${{HOST}}/second:$TAG=docker-image://{second}@{two}"),
            format!("{first}:1=docker-image://{first}@{one}"),
        ];
        assert_eq!(bases_of(team, &run).await, want, "exactly the images of the key");
        let image = format!("sha256:{}", "7".repeat(64));
        team.end_with(&run, Some((stage.repository("reviewer"), image))).await;
        stage.succeeded("reviewer", &status.build_key.expect("a key")).await
    };

    // Nothing is built on an image that nobody knows.
    let one = stage.push("first", "one", "1").await;
    team.apply_build("reviewer", &spec);
    let controller = start('1');
    let is_unknown =
        |s: &AgentBuildStatus| condition(s, "Ready") == Some(("False", "BaseImageUnknown"));
    let status = team.until("reviewer", "a base image is missing", is_unknown).await;
    let message = status.message.expect("a message");
    let why = format!("line 3 of the Dockerfile ({second}:1) names: its registry has no ");
    assert!(message.contains(&why), "{message}");
    assert!(team.runs().await.is_empty());
    drop(controller);

    let two = stage.push("second", "two", "1").await;
    let controller = start('1');
    let built = done(&one, &two, None).await;
    drop(controller);

    // Any of them starts a build, also of a stage that is not the last. The tag is looked at by the next operator, or in some minutes.
    let moved = stage.push("first", "another", "1").await;
    let controller = start('2');
    let built = done(&moved, &two, built.build_key.as_deref()).await;
    drop(controller);

    // A registry that is away takes nothing from what is known.
    let Stage { team, registry, .. } = stage;
    let host = registry.host();
    drop(registry);
    let controller = team.start_for(&host);
    team.publish(&controller, &names, &with_dockerfile('3', &text));
    let is_told =
        |s: &AgentBuildStatus| stale(s).is_some_and(|why| why.contains(&format!("{first}:1: ")));
    let status = team.until("reviewer", "the registry is away", is_told).await;
    assert_eq!(condition(&status, "Ready"), Some(("True", "Built")));
    assert_eq!((status.build_key, status.base_images), (built.build_key, built.base_images));
    drop(controller);
}
