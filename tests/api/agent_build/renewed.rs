//! A build that was refused access is tried again when its Secrets change. B7.

use super::credentials::texts;
use super::*;

const TASK_RUNS: &str = "taskruns.tekton.dev";

impl Team<'_> {
    /// The Secret with the credentials of the registry.
    fn push_secret(&self, name: &str, password: &str, annotations: &Value) {
        self.cluster.apply(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations},
            "stringData": {"username": "u", "password": password},
        }));
    }

    /// The build with this Secret.
    fn pushes_with(&self, secret: &str) {
        let output = json!({"image": self.image(), "secretRef": {"name": secret}});
        self.apply_build("reviewer", &json!({ "output": output }));
    }

    /// Waits until so many runs are there and the newest has begun. Gives its name, and the password that it pushes with.
    async fn tries(&self, count: usize) -> (String, String) {
        let attempt = count.to_string();
        let run = eventually(3 * SOON, "the next try", || async {
            self.touch("reviewer");
            let all = self.runs().await;
            let newest = all.iter().find(|run| {
                run.annotations().get("convoke.dev/attempt") == Some(&attempt)
                    && run.data["spec"]["status"].is_null()
            });
            match newest {
                Some(run) if all.len() == count => Ok(run.clone()),
                _ => Err(all),
            }
        })
        .await;
        let files = texts(&self.mounted(&run, "push-auth").await);
        let config: Value = serde_json::from_str(&files["config.json"]).expect("JSON");
        let auth = config["auths"]["registry.test:5000"]["auth"].as_str().expect("auth");
        (run.name_any(), auth.to_owned())
    }

    fn task_runs(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("tekton.dev", "v1", "TaskRun");
        let resource = ApiResource::from_gvk_with_plural(&kind, "taskruns");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// A run fails, because its step `push` ended with an exit code.
    async fn fails(&self, run: &str, exit_code: i32, reason: &str) {
        let api = self.task_runs();
        let name = format!("{run}-build");
        self.cluster.apply(&json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"taskSpec": {"steps": [{"name": "push", "image": "i"}]}},
        }));
        let now = jiff::Timestamp::now().to_string();
        let step = json!({
            "name": "push", "container": "step-push", "terminationReason": "Error",
            "terminated": {"exitCode": exit_code, "reason": "Error", "startedAt": now, "finishedAt": now},
        });
        let failed =
            json!({"type": "Succeeded", "status": "False", "reason": "Failed", "message": "no"});
        let status = json!({"status": {"podName": "p", "steps": [step], "conditions": [failed]}});
        let params = PatchParams::default();
        api.patch_status(&name, &params, &Patch::Merge(&status)).await.expect("the TaskRun's end");
        let status = json!({"status": {
            "startTime": now, "completionTime": now, "conditions": [failed],
            "childReferences": [{"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "name": name, "pipelineTaskName": "build"}],
        }});
        self.runs_api()
            .patch_status(run, &params, &Patch::Merge(&status))
            .await
            .expect("the run's end");
        let failed = |s: &AgentBuildStatus| {
            s.phase == Some(BuildPhase::Failed)
                && s.failure
                    .as_ref()
                    .is_some_and(|why| why.reason == reason && why.pipeline_run == run)
        };
        self.until("reviewer", reason, failed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_a_build_that_was_refused_is_tried_once_for_each_change_of_its_secret() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let definition = tekton_definition().replace("pipelinerun", "taskrun");
    cluster.kubectl(&["apply", "--server-side", "-f", &definition]);
    let team = Team::new(&cluster).await;
    for api in [team.task_runs(), team.runs_api()] {
        eventually(SOON, "Tekton's kinds are served", || async {
            api.list(&ListParams::default()).await.map(drop)
        })
        .await;
    }
    let role = ["create", "role", "push", "--verb=get", "--resource=secrets"];
    let names = ["--resource-name=team-push", "--resource-name=other"];
    team.kubectl(&[&role[..], &names].concat());
    team.bind("push", "--role=push");
    team.bind("builds", "--clusterrole=convoke-builds");
    let ours = json!({"convoke.dev/registries": format!("registry.test:5000/{}", team.namespace)});
    team.push_secret("team-push", "wrong-password", &ours);
    team.push_secret("other", "wrong-password", &ours);
    team.pushes_with("team-push");
    let mut controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let (first, before) = team.tries(1).await;
    team.fails(&first, 31, "PushDenied").await;

    // What does not count: something else of the Secret. Each change below is one try: were this one, too, there would be more tries.
    team.kubectl(&["label", "secret", "team-push", "some=label"]);
    team.kubectl(&["annotate", "secret", "team-push", "some=annotation"]);
    team.touch("reviewer");
    team.push_secret("team-push", "next-password", &ours);
    let (second, after) = team.tries(2).await;
    assert_ne!(before, after, "it has the new password");
    team.fails(&second, 31, "PushDenied").await;

    // Also after a restart, and of another Secret, with the password of the first one.
    drop(controller);
    controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    team.pushes_with("other");
    let (third, again) = team.tries(3).await;
    assert_eq!(again, before);
    let shown = team.all_that_is_shown("reviewer").await;
    assert!(!shown.contains("-password"), "no value is told");
    let seen = team.runs_api().get(&third).await.expect("the run");
    let digest = &seen.annotations()["convoke.dev/credentials-digest"];
    assert!(digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");

    // What is not about access is no matter of Secrets.
    team.fails(&third, 30, "BuildFailed").await;
    team.push_secret("other", "good-password", &ours);
    team.touch("reviewer");
    team.commit(&controller, "reviewer", '2', Some('b'));
    let building = |s: &AgentBuildStatus| s.phase == Some(BuildPhase::Building);
    let newer = team.until("reviewer", "the next commit", building).await;
    assert_eq!((newer.attempt, team.runs().await.len()), (Some(1), 4));
    drop(controller);
    cluster.kubectl(&["delete", "crd", TASK_RUNS]);
}
