//! A run that was stopped, and whose pod could still push the tag of the next one (B7).

use k8s_openapi::api::core::v1::Pod;

use super::team::*;
use super::*;

impl Team<'_> {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The pod that Tekton would have made for a run. It runs.
    async fn pod_of(&self, run: &str) -> String {
        let name = format!("{run}-pod");
        let pod = json!({
            "metadata": {"name": name, "labels": {"tekton.dev/pipelineRun": run, "tekton.dev/taskRun": run}},
            // Somebody has put a sidecar of a service mesh into it.
            "spec": {
                "automountServiceAccountToken": false, "restartPolicy": "Never",
                "containers": [{"name": "step-push", "image": "x"}, {"name": "istio-proxy", "image": "x"}],
            },
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        eventually(SOON, "the namespace takes pods", || async {
            self.pods()
                .create(&PostParams::default(), &pod)
                .await
                .map_err(|error| error.to_string())
        })
        .await;
        self.phase(&name, "Running").await;
        name
    }

    async fn phase(&self, pod: &str, phase: &str) {
        self.say(pod, json!({"phase": phase})).await;
    }

    /// What the node says of a pod.
    async fn say(&self, pod: &str, status: Value) {
        let patch = json!({ "status": status });
        let params = PatchParams::default();
        self.pods().patch_status(pod, &params, &Patch::Merge(&patch)).await.expect("a status");
    }

    /// What Tekton says of a run that was cancelled so many seconds ago.
    async fn cancelled(&self, run: &str, seconds: i64) {
        let ended = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        let status = json!({"status": {"completionTime": ended.to_string(), "conditions": [
            {"type": "Succeeded", "status": "False", "reason": "Cancelled", "message": "it was cancelled"},
        ]}});
        let (api, params) = (self.runs_api(), PatchParams::default());
        api.patch_status(run, &params, &Patch::Merge(&status)).await.expect("its end");
    }

    async fn run_of(&self, build: &str) -> String {
        let status =
            self.until(build, "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
        status.pipeline_run.expect("a run")
    }
}

#[tokio::test]
async fn b7_the_next_run_waits_for_the_pod_of_a_stopped_one_that_could_push_its_tag() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();
    let builds = ["fixed".to_owned(), "own".to_owned()];
    team.apply_build("fixed", &json!({"output": {"image": team.image(), "tag": "latest"}}));
    // Each commit has a tag of its own.
    team.apply_build("own", &json!({"output": {"image": team.image(), "tag": "{short}"}}));
    team.commit_all(&controller, &builds, '1', Some('a'), None);
    let (fixed, own) = (team.run_of("fixed").await, team.run_of("own").await);
    let (pod, _) = (team.pod_of(&fixed).await, team.pod_of(&own).await);
    team.commit_all(&controller, &builds, '2', Some('b'), None);
    for (build, run) in [("fixed", &fixed), ("own", &own)] {
        let stops =
            |s: &AgentBuildStatus| s.message.as_deref().is_some_and(|m| m.contains("stops"));
        team.until(build, "the run is stopped", stops).await;
        team.cancelled(run, 1).await;
    }
    let second = |s: &AgentBuildStatus| s.last_attempted_commit == Some("2".repeat(40));
    team.until("own", "nothing keeps the other one", second).await;
    let waits = |text: &'static str| {
        let pod = pod.clone();
        move |s: &AgentBuildStatus| {
            condition(s, "Ready") == Some(("False", "Queued"))
                && s.message.as_deref().is_some_and(|m| m.contains(&pod) && m.contains(text))
        }
    };
    team.until("fixed", "it waits for the pod", waits("it could still push the tag latest")).await;

    // A node that is cut off: what helps is told, and the pod is still waited for.
    team.cancelled(&fixed, 180).await;
    let help = waits("--force lets this build begin");
    team.until("fixed", "what helps is told", help).await;
    // A restart forgets nothing.
    drop(controller);
    let controller = team.start();
    let all = [&builds[..], &["barrier".to_owned()]].concat();
    team.commit_all(&controller, &all, '2', Some('b'), None);
    team.apply_build("barrier", &json!({}));
    team.run_of("barrier").await;
    let runs = team.runs().await;
    let of = |run: &&DynamicObject| run.labels()["convoke.dev/name"] == "fixed";
    assert_eq!(runs.iter().filter(of).count(), 1, "its run is the one that was stopped");

    // Its step has ended after all, and the sidecar goes on.
    let of = |name: &str, state: Value| json!({"name": name, "state": state, "image": "x", "imageID": "", "ready": false, "restartCount": 0});
    let states = json!([
        of("step-push", json!({"terminated": {"exitCode": 1}})),
        of("istio-proxy", json!({"running": {}})),
    ]);
    team.say(&pod, json!({ "containerStatuses": states })).await;
    team.touch("fixed");
    let run = team.until("fixed", "the next run begins", second).await.pipeline_run;

    // A pod that has ended is not asked for.
    let run = run.expect("a run");
    let pod = team.pod_of(&run).await;
    team.cancelled(&run, 1).await;
    team.commit_all(&controller, &all, '3', Some('c'), None);
    let waits = move |s: &AgentBuildStatus| s.message.as_deref().is_some_and(|m| m.contains(&pod));
    team.until("fixed", "it waits for the pod", waits).await;
    team.phase(&format!("{run}-pod"), "Failed").await;
    team.touch("fixed");
    let third = |s: &AgentBuildStatus| s.last_attempted_commit == Some("3".repeat(40));
    team.until("fixed", "the next run begins", third).await;
    drop(controller);
}
