//! Agents and MCPServers that run the image of an AgentBuild. Nothing is built here: the tests write into the status of a build what
//! it would say at its end.

use std::time::Duration;

use convoke::api::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::team::{SOON, Team, model, shared_operator};
use crate::support::{cluster, eventually};

const ONE: &str = "registry.test/team/one@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str = "registry.test/team/two@sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn build(name: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: {name}\nspec:\n  source:\n    gitSync: {{}}\n    subfolder: images/{name}\n  output:\n    registry: registry.test\n    image: team/{name}\n"
    )
}

fn agent(build: &str, prompt: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: gpt\n  waitForDependencies: false\n  buildRef: {build}\n  config:\n    instructions: {prompt}\n"
    )
}

fn server(build: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: s\nspec:\n  buildRef: {build}\n"
    )
}

/// The image that pods are to run, and the build that made it.
fn runs(deployment: &Deployment) -> (Option<String>, Option<String>) {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod.containers.first()?.image.clone());
    let annotations = deployment.metadata.annotations.as_ref();
    (image, annotations.and_then(|all| all.get("convoke.dev/build").cloned()))
}

impl Team<'_> {
    /// What an AgentBuild says when it has an image.
    async fn built(&self, name: &str, image: &str) {
        let patch = json!({"status": {"builtImage": image}});
        // A status that is written at the same moment may not have it yet.
        eventually(SOON, &format!("{name} has its image"), || async {
            let builds = self.api(Kind::AgentBuild);
            let params = PatchParams::default();
            builds.patch_status(name, &params, &Patch::Merge(&patch)).await.expect("a status");
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = builds.get(name).await.expect("an AgentBuild").data;
            if now["status"]["builtImage"] == image { Ok(()) } else { Err(now) }
        })
        .await;
    }

    async fn runs_image(&self, deployment: &str, image: &str, build: &str) -> Deployment {
        let wanted = (Some(image.to_owned()), Some(build.to_owned()));
        eventually(SOON, &format!("{deployment} runs {build}"), || async {
            let now = self.deployment(deployment).await;
            if runs(&now) == wanted { Ok(now) } else { Err(runs(&now)) }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_what_another_build_made_is_not_run_in_place_of_a_build_without_an_image() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let (one, two) = (build("one"), build("two"));
    let files = [
        ("m.yaml", model("gpt")),
        ("one.yaml", one),
        ("two.yaml", two),
        ("images/one/Dockerfile", "FROM scratch\n".to_owned()),
        ("images/two/Dockerfile", "FROM scratch\n".to_owned()),
        ("a.yaml", agent("one", "Be brief.")),
        ("s.yaml", server("one")),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(cluster, "built", &files).await;
    team.sync_with(json!({})).await;
    let objects = [(Kind::Agent, "a", "agent-a"), (Kind::MCPServer, "s", "mcpserver-s")];
    for (kind, name, deployment) in objects {
        team.condition(kind, name, "Ready", |c| c["reason"] == "WaitingForBuild").await;
        let found = team.deployments().get_opt(deployment).await.expect("an answer");
        assert!(found.is_none(), "{deployment} has no image yet");
    }
    team.built("one", ONE).await;
    let mut before = Vec::new();
    for (_, _, deployment) in objects {
        before.push(team.runs_image(deployment, ONE, "one").await);
    }

    let (a, s) = (agent("two", "Be kind."), server("two"));
    team.push(&[("a.yaml", Some(&a)), ("s.yaml", Some(&s))]).await;
    for ((kind, name, deployment), before) in objects.into_iter().zip(&before) {
        let ready = team.condition(kind, name, "Ready", |c| c["reason"] == "WaitingForBuild").await;
        assert_eq!(ready["status"], "False");
        let text = ready["message"].as_str().unwrap_or_default();
        assert!(text.contains("two") && text.contains("earlier spec"), "{text}");
        let now = team.deployment(deployment).await;
        assert_eq!(now.spec, before.spec, "{deployment} stays as it is");
    }

    team.built("two", TWO).await;
    for (kind, name, deployment) in objects {
        team.runs_image(deployment, TWO, "two").await;
        team.condition(kind, name, "Ready", |c| c["reason"] != "WaitingForBuild").await;
    }
}
