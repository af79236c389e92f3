//! What an upgrade of the shipped templates builds anew: what declares another version, and nothing else.

use super::team::*;
use super::*;

/// A shipped ConfigMap of a step, changed.
fn changed_step(cluster: &Cluster, namespace: &str, version: &str, comment: &str) {
    let file = format!("{ROOT}/deploy/pipelines/step-verify.yaml");
    let text = std::fs::read_to_string(file).expect("the step");
    let mut step: Value = serde_saphyr::from_str(&text).expect("a ConfigMap");
    let task = step["data"]["task-spec.yaml"].as_str().expect("a TaskSpec");
    let task = task.replace("set -eu", &format!("set -eu\n          # {comment}"));
    assert!(task.contains(comment), "{task}");
    step["data"] = json!({"version": version, "task-spec.yaml": task});
    step["metadata"]["namespace"] = namespace.into();
    cluster.apply(&step);
}

impl Team<'_> {
    async fn key_of(&self, controller: &Controller, name: &str, commit: char) -> String {
        self.apply_build(name, &json!({}));
        self.commit(controller, name, commit, Some('a'));
        let status = self.until(name, "it builds", |s| s.pipeline_run.is_some()).await;
        status.build_key.expect("a key")
    }

    /// The scripts of the runs of an AgentBuild, all in one.
    async fn scripts(&self, name: &str) -> String {
        let key = |run: &DynamicObject| run.labels().get(keys::OWNER_NAME).cloned();
        let runs = self.runs().await;
        let mine = runs.iter().filter(|run| key(run).as_deref() == Some(name));
        mine.map(|run| run.data["spec"].to_string()).collect()
    }
}

#[tokio::test]
async fn b1_an_upgrade_builds_nothing_anew_unless_a_declared_version_changes() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let mut controller = team.start();
    let first = team.key_of(&controller, "reviewer", '1').await;
    let image = "push_convoke-image";
    assert!(team.scripts("reviewer").await.contains(image));
    assert!(team.scripts("reviewer").await.contains("registry.test:5000/convoke:1"));

    // An upgrade with the same versions.
    changed_step(&cluster, "convoke-system", "1", "of the upgrade");
    drop(controller);
    controller = team.start();
    team.commit(&controller, "reviewer", '2', Some('a'));
    let witness = team.key_of(&controller, "witness", '2').await;
    assert!(team.scripts("witness").await.contains("of the upgrade"), "it is what runs");
    assert_eq!(team.runs().await.len(), 2, "one of each");
    assert_eq!(team.status("reviewer").await.build_key.as_ref(), Some(&first));
    assert_eq!(witness, first, "all that goes into the image is the same");

    // Another version.
    changed_step(&cluster, "convoke-system", "2", "of the upgrade");
    drop(controller);
    controller = team.start();
    team.commit(&controller, "reviewer", '3', Some('a'));
    let other = |s: &AgentBuildStatus| s.build_key.as_ref() != Some(&first);
    let second = team.until("reviewer", "it is another key", other).await.build_key;

    // A step of the namespace's own is what it says, whatever version it declares.
    changed_step(&cluster, &team.namespace, "2", "of the team");
    drop(controller);
    controller = team.start();
    team.commit(&controller, "reviewer", '4', Some('a'));
    let other = |s: &AgentBuildStatus| s.build_key != second;
    team.until("reviewer", "it is a third key", other).await;
}
