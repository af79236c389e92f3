//! A rollout of the image of an AgentBuild that does not become available goes back to the last good revision. Nothing is built here:
//! the tests write into the status of a build what it would say at its end.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PodTemplateSpec};
use kube::api::{Api, Patch, PatchParams};

use super::*;
use crate::support::stage::condition;

/// Longer than the deadline of the rollouts here, and than a moment after it.
const LATE: Duration = Duration::from_secs(100);

fn image(number: u8) -> String {
    format!("registry.test/team/one@sha256:{}", number.to_string().repeat(64))
}

fn template(deployment: &Deployment) -> PodTemplateSpec {
    deployment.spec.clone().expect("a spec").template
}

fn image_of(deployment: &Deployment) -> String {
    let pod = template(deployment).spec.expect("pods");
    pod.containers[0].image.clone().expect("an image")
}

/// The ConfigMap with the configuration.
fn mounted(deployment: &Deployment) -> String {
    let pod = template(deployment).spec.expect("pods");
    let mut volumes = pod.volumes.into_iter().flatten();
    volumes.find_map(|volume| volume.config_map).expect("a ConfigMap").name
}

impl Stage {
    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn deployment(&self, name: &str) -> Deployment {
        self.deployments().get(name).await.expect("a Deployment")
    }

    /// An AgentBuild.
    async fn build(&self, name: &str) {
        let spec = json!({"source": {"gitSync": {}}, "output": {"image": "team/one"}});
        self.apply(Kind::AgentBuild, name, spec).await;
    }

    /// What an AgentBuild says when it has an image.
    async fn built(&self, name: &str, image: &str) {
        let patch = Patch::Merge(json!({"status": {"builtImage": image}}));
        let is = |s: &Value| s["builtImage"] == image;
        eventually(SOON, "the build has its image", || async {
            let builds = self.api(Kind::AgentBuild);
            let now = builds.patch_status(name, &PatchParams::default(), &patch).await;
            // A status that is written at the same moment may not have it.
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = match now {
                Ok(_) => builds.get(name).await.expect("an AgentBuild").data["status"].clone(),
                Err(error) => json!(error.to_string()),
            };
            if is(&now) { Ok(()) } else { Err(now) }
        })
        .await;
    }

    /// An agent with this build and these instructions, whose rollouts have the shortest deadline.
    async fn of_build(&self, name: &str, build: &str, instructions: &str) {
        let config = json!({"instructions": instructions});
        let spec =
            json!({"buildRef": {"name": build}, "progressDeadline": "30s", "config": config});
        self.agent(name, spec).await;
    }

    /// The Deployment once it is as `is` wants it.
    async fn until(&self, name: &str, what: &str, is: impl Fn(&Deployment) -> bool) -> Deployment {
        eventually(LATE, &format!("{name}: {what}"), || async {
            let now = self.deployments().get_opt(name).await.expect("get").ok_or(None)?;
            if is(&now) { Ok(now) } else { Err(Some(now)) }
        })
        .await
    }

    /// Lets the pods of this image serve, or says of them that they end. Gives the Deployment.
    async fn plays(&self, kind: Kind, name: &str, image: &str, serves: bool) -> Deployment {
        let deployment = format!("{}-{name}", kind.as_str().to_lowercase());
        let now = self.until(&deployment, image, |now| image_of(now) == image).await;
        let pod = eventually(SOON, &format!("a pod of {image}"), || async {
            for pod in self.names(kind, name).await {
                let found = self.pods().get_opt(&pod).await.expect("get");
                let spec = found.and_then(|found| found.spec);
                let runs = spec.and_then(|spec| spec.containers[0].image.clone());
                if runs.as_deref() == Some(image) {
                    return Some(pod);
                }
            }
            None
        })
        .await;
        if serves {
            self.serves(&pod).await;
        } else {
            self.is(&pod, &ended(3), &json!({}), false, 1).await;
        }
        now
    }

    /// Waits until the reason of Ready is this one, for as long as a rollout may take.
    async fn comes_to(&self, kind: Kind, name: &str, reason: &str) -> Value {
        eventually(LATE, &format!("{name}: {reason}"), || async {
            let object = self.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let status = object.data["status"].clone();
            if condition(&status, "Ready")["reason"] == reason { Ok(status) } else { Err(status) }
        })
        .await
    }

    /// Waits until the Deployment's controller says that the rollout is late.
    async fn is_late(&self, deployment: &str) -> Deployment {
        self.until(deployment, "it is late", |now| {
            let status = now.status.as_ref();
            let mut all = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
            all.any(|c| c.reason.as_deref() == Some("ProgressDeadlineExceeded"))
        })
        .await
    }

    /// Waits until the operator has written nothing in the namespace for three seconds.
    async fn rests(&self, cluster: &Cluster) {
        eventually(SOON, "it comes to rest", || async {
            let mark = cluster.audit_mark();
            tokio::time::sleep(Duration::from_secs(3)).await;
            let mut writes = cluster.writes_by(AGENT, mark);
            writes.retain(|w| w.namespace == self.namespace && w.resource != "agentbuilds");
            if writes.is_empty() { Ok(()) } else { Err(writes) }
        })
        .await;
    }

    /// Annotates an object of ours.
    async fn annotate(&self, kind: Kind, name: &str, annotation: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: value}}}));
        self.api(kind).patch(name, &PatchParams::default(), &patch).await.expect("annotate");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_new_image_that_does_not_become_available_goes_back_with_its_configuration_and_the_next_one_rolls()
 {
    let stage = stage("rollback").await;
    let (one, two, three) = (image(1), image(2), image(3));
    stage.build("b").await;
    stage.built("b", &one).await;
    stage.of_build("helper", "b", "Be brief.").await;
    let good = stage.plays(Kind::Agent, "helper", &one, true).await;
    let status = stage.comes_to(Kind::Agent, "helper", "Available").await;
    assert_eq!(status["rollout"]["lastGood"]["image"], one);
    assert_eq!(status["rollout"]["lastGood"]["configMap"], mounted(&good));
    assert_eq!(status["rollout"]["failed"], json!(null));
    let pod = stage.pods_of("helper", 1).await.remove(0);

    // More configurations than are kept for pods that may still run, and another image, which ends at once.
    let mut last = mounted(&good);
    for number in 0..10 {
        stage.of_build("helper", "b", &format!("Be kind {number} times.")).await;
        let is = |now: &Deployment| mounted(now) != last;
        last = mounted(&stage.until("agent-helper", "another configuration", is).await);
    }
    stage.built("b", &two).await;
    stage.plays(Kind::Agent, "helper", &two, false).await;
    let status = stage.comes_to(Kind::Agent, "helper", "CrashLoopBackOff").await;
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");

    let back = stage.until("agent-helper", "it goes back", |now| image_of(now) == one).await;
    assert_eq!(template(&back), template(&good), "image and configuration");
    let maps = Api::<ConfigMap>::namespaced(stage.client.clone(), &stage.namespace);
    let map = maps.get(&mounted(&good)).await.expect("its ConfigMap is there");
    assert_eq!(map.data.expect("data")["instructions.md"], "Be brief.");
    assert_eq!(stage.pods_of("helper", 1).await, [pod], "the pod that served goes on");
    let runs = "runs again: 1 of 1 replicas available";
    let is = |s: &Value| s["message"].as_str().is_some_and(|text| text.ends_with(runs));
    let status = stage.status(Kind::Agent, "helper", "it says what runs", is).await;
    let text = format!(
        "the newest image {two} was not available within 30s (CrashLoopBackOff: pod agent-helper-"
    );
    let message = condition(&status, "Ready")["message"].as_str().expect("a message");
    assert!(message.starts_with(&text), "{message}");
    let text = format!(": container agent ends with exit code 3); {one} {runs}");
    assert!(message.ends_with(&text), "{message}");
    assert_eq!(shown(&status, "Ready"), "False(RolledBack)");
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    assert_eq!(shown(&status, "Progressing"), "False(RolledBack)");
    assert_eq!((&status["phase"], &status["image"]), (&json!("Failed"), &json!(one)));
    assert_eq!(status["rollout"]["failed"]["image"], two);

    // It stays so, and nothing is written.
    let cluster = cluster().await;
    stage.rests(cluster).await;
    let mark = cluster.audit_mark();
    stage.annotate(Kind::Agent, "helper", "example.com/touched", "yes").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(stage.writes("helper", mark).await + stage.writes("agent-helper", mark).await, 0);

    // How many pods there are is followed all the same.
    let replicas = |n: i32| Patch::Merge(json!({"spec": {"replicas": n}}));
    let api = stage.api(Kind::Agent);
    api.patch("helper", &PatchParams::default(), &replicas(2)).await.expect("scale");
    let two_pods = |now: &Deployment| now.spec.as_ref().is_some_and(|s| s.replicas == Some(2));
    let scaled = stage.until("agent-helper", "two pods", two_pods).await;
    assert_eq!(template(&scaled), template(&good));
    api.patch("helper", &PatchParams::default(), &replicas(1)).await.expect("scale");
    stage.until("agent-helper", "one pod", |now| !two_pods(now)).await;

    // Whoever stops it means that, and it starts as it was.
    let suspend = |is: bool| Patch::Merge(json!({"spec": {"suspend": is}}));
    api.patch("helper", &PatchParams::default(), &suspend(true)).await.expect("suspend");
    stage.told("helper", "Stopped", "Suspended").await;
    let stopped = stage.deployment("agent-helper").await;
    assert_eq!(stopped.spec.as_ref().and_then(|spec| spec.replicas), Some(0));
    assert_eq!(template(&stopped), template(&good));
    api.patch("helper", &PatchParams::default(), &suspend(false)).await.expect("resume");
    stage.comes_to(Kind::Agent, "helper", "RolledBack").await;
    stage.plays(Kind::Agent, "helper", &one, true).await;

    // The next image rolls, with the newest configuration.
    stage.built("b", &three).await;
    let newest = stage.plays(Kind::Agent, "helper", &three, true).await;
    assert_ne!(mounted(&newest), mounted(&good));
    let status = stage.comes_to(Kind::Agent, "helper", "Available").await;
    assert_eq!(status["rollout"]["lastGood"]["image"], three);
    assert_eq!(status["rollout"]["failed"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_an_operator_that_starts_again_knows_the_last_good_revision_and_the_failed_one() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let stage = stage_on(&cluster, "backagain").await;
    let (one, two) = (image(1), image(2));
    stage.build("b").await;
    stage.built("b", &one).await;
    stage.of_build("helper", "b", "Be brief.").await;
    let good = stage.plays(Kind::Agent, "helper", &one, true).await;
    stage.comes_to(Kind::Agent, "helper", "Available").await;
    stage.built("b", &two).await;
    stage.plays(Kind::Agent, "helper", &two, false).await;
    operator.kill9();
    stage.is_late("agent-helper").await;
    operator.restart();
    stage.comes_to(Kind::Agent, "helper", "RolledBack").await;
    let back = stage.until("agent-helper", "it goes back", |now| image_of(now) == one).await;
    assert_eq!(template(&back), template(&good));
    let is = |s: &Value| s["message"].as_str().is_some_and(|m| m.ends_with("replicas available"));
    stage.status(Kind::Agent, "helper", "it says what runs", is).await;
    stage.rests(&cluster).await;

    operator.kill9();
    let mark = cluster.audit_mark();
    operator.restart();
    operator.ready(SOON).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut writes = cluster.writes_by(AGENT, mark);
    writes.retain(|w| w.namespace == stage.namespace && w.resource != "agentbuilds");
    assert!(writes.is_empty(), "{writes:#?}");
    let after = stage.deployment("agent-helper").await;
    assert_eq!(after.metadata.generation, back.metadata.generation);

    // The Deployment still says that of a rollout before, and an earlier ReplicaSet is used again.
    let (three, four) = (image(3), image(4));
    stage.built("b", &three).await;
    stage.plays(Kind::Agent, "helper", &three, true).await;
    stage.comes_to(Kind::Agent, "helper", "Available").await;
    stage.built("b", &four).await;
    stage.plays(Kind::Agent, "helper", &four, false).await;
    operator.kill9();
    stage.is_late("agent-helper").await;
    stage.built("b", &one).await;
    operator.restart();
    let again = stage.plays(Kind::Agent, "helper", &one, true).await;
    assert_eq!(template(&again), template(&good));
    let status = stage.comes_to(Kind::Agent, "helper", "Available").await;
    assert_eq!(status["rollout"]["lastGood"]["image"], one);
    assert_eq!(status["rollout"]["failed"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_without_a_last_good_revision_and_with_an_image_of_the_spec_a_late_rollout_stays() {
    let stage = stage("stays").await;
    let one = image(1);
    stage.build("b").await;
    stage.built("b", &one).await;
    stage.of_build("first", "b", "Be brief.").await;
    let plain = |image: &str| json!({"image": image, "progressDeadline": "30s"});
    stage.agent("plain", plain("reg/agent:1")).await;
    stage.plays(Kind::Agent, "plain", "reg/agent:1", true).await;
    let status = stage.comes_to(Kind::Agent, "plain", "Available").await;
    assert_eq!(status["rollout"], json!(null));
    stage.agent("plain", plain("reg/agent:2")).await;
    stage.plays(Kind::Agent, "plain", "reg/agent:2", false).await;
    stage.plays(Kind::Agent, "first", &one, false).await;
    for (name, image) in [("first", one.as_str()), ("plain", "reg/agent:2")] {
        let deployment = format!("agent-{name}");
        stage.is_late(&deployment).await;
        stage.rests(cluster().await).await;
        let status = stage.comes_to(Kind::Agent, name, "CrashLoopBackOff").await;
        assert_eq!(status["rollout"], json!(null));
        assert_eq!(image_of(&stage.deployment(&deployment).await), image);
    }
    // One that becomes available late is good.
    stage.plays(Kind::Agent, "first", &one, true).await;
    let status = stage.comes_to(Kind::Agent, "first", "Available").await;
    assert_eq!(status["rollout"]["lastGood"]["image"], one);
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_tool_server_goes_back_and_is_tried_again_when_somebody_asks_for_it() {
    let stage = stage("backtools").await;
    let (one, two) = (image(1), image(2));
    stage.build("b").await;
    stage.built("b", &one).await;
    let spec = json!({"buildRef": {"name": "b"}, "progressDeadline": "30s"});
    stage.apply(Kind::MCPServer, "tools", spec).await;
    let good = stage.plays(Kind::MCPServer, "tools", &one, true).await;
    stage.comes_to(Kind::MCPServer, "tools", "Available").await;
    stage.built("b", &two).await;
    stage.plays(Kind::MCPServer, "tools", &two, false).await;
    let status = stage.comes_to(Kind::MCPServer, "tools", "RolledBack").await;
    assert_eq!(shown(&status, "Available"), "True(MinimumReplicasAvailable)");
    let name = "mcpserver-tools";
    let back = stage.until(name, "it goes back", |now| image_of(now) == one).await;
    assert_eq!(template(&back), template(&good));

    stage.annotate(Kind::MCPServer, "tools", "convoke.dev/retry", "now").await;
    stage.plays(Kind::MCPServer, "tools", &two, true).await;
    let status = stage.comes_to(Kind::MCPServer, "tools", "Available").await;
    assert_eq!(status["rollout"]["lastGood"]["image"], two);
    assert_eq!(status["rollout"]["failed"], json!(null));
}
