//! `convoke trace` with the rights of the shipped Role: an operator runs, and the test writes what a kubelet would write of pods,
//! and what a build would say of itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use convoke::api::Kind;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Run, convoke, person};
use crate::support::stage::Stage;
use crate::support::team::{SOON, Team, model, shared_operator};
use crate::support::{Operator, cluster, eventually};

pub(super) const IMAGE: &str = "registry.test/team/one@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(super) fn agent(image: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\nspec:\n  modelAPI: gpt\n  model: m\n  waitForDependencies: false\n  {image}\n"
    )
}

/// Somebody with the shipped Role.
pub(super) async fn on_call(team: &Team<'_>, operator: &Operator) -> PathBuf {
    let cluster = team.cluster;
    cluster.grant_sync(&team.namespace, operator);
    let kubeconfig = person(cluster, &team.namespace, "jane", json!([]), &[]).await;
    cluster.kubectl(&[
        "-n",
        &team.namespace,
        "create",
        "rolebinding",
        "convoke-ask",
        "--role=convoke-ask",
        &format!("--serviceaccount={}:jane", team.namespace),
    ]);
    kubeconfig
}

fn trace(team: &Team<'_>, kubeconfig: &Path) -> Run {
    convoke(kubeconfig, &["trace", "agent/helper", "-n", &team.namespace])
}

/// Waits until the sentence of a trace begins like this, behind the commit; gives the trace.
pub(super) async fn traced(team: &Team<'_>, kubeconfig: &Path, code: i32, begin: &str) -> Run {
    eventually(SOON, begin, || async {
        let run = trace(team, kubeconfig);
        let sentence = run.out.lines().last().unwrap_or_default();
        let rest = sentence.strip_prefix("commit ").and_then(|rest| rest.get(8..));
        let is = run.code == code && rest.is_some_and(|rest| rest.starts_with(begin));
        if is { Ok(run) } else { Err(run) }
    })
    .await
}

/// A trace without what differs from run to run.
pub(super) fn shown(team: &Team<'_>, pod: &str, run: &Run) -> String {
    let mut text = run.out.replace(&team.namespace, "NAMESPACE");
    if !pod.is_empty() {
        text = text.replace(pod, "POD");
    }
    let cells = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        cells.collect::<Vec<_>>().join(" | ")
    };
    let known = |word: &str| word.len() == 7 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = |line: String| {
        let mut words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        for at in 0..words.len() {
            if known(&words[at]) {
                "COMMIT".clone_into(&mut words[at]);
            }
            if words.get(at + 1).is_some_and(|next| next.trim_end_matches(';') == "ago") {
                "AGE".clone_into(&mut words[at]);
            }
        }
        words.join(" ")
    };
    text.lines().map(|line| words(cells(line)) + "\n").collect()
}

pub(super) fn stage(team: &Team<'_>) -> Stage {
    Stage { client: team.client.clone(), namespace: team.namespace.clone(), patience: SOON }
}

/// Writes what a kubelet would write of a pod.
async fn is(stage: &Stage, pod: &str, state: Value, ready: bool, restarts: i32) {
    let good = if ready { "True" } else { "False" };
    let condition = |type_: &str| json!({"type": type_, "status": good, "lastTransitionTime": "2026-01-01T09:00:00Z"});
    let status = json!({
        "phase": "Running", "conditions": [condition("ContainersReady"), condition("Ready")],
        "containerStatuses": [{"name": "agent", "image": "", "imageID": IMAGE, "ready": ready,
            "restartCount": restarts, "state": state, "lastState": {}}],
    });
    let patch = Patch::Merge(json!({"status": status}));
    stage.pods().patch_status(pod, &PatchParams::default(), &patch).await.expect("a status");
}

pub(super) async fn serves(stage: &Stage, pod: &str) {
    is(stage, pod, json!({"running": {"startedAt": "2026-01-01T10:00:00Z"}}), true, 0).await;
}

/// Writes what a build would say of itself. The operator leaves it, because it knows of no source of this build.
async fn says(team: &Team<'_>, phase: &str, reason: &str, message: &str, more: Value) {
    let ready = if phase == "Succeeded" { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": ready, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T09:00:00Z"});
    let mut status = json!({"observedGeneration": 1, "phase": phase, "buildKey": KEY, "conditions": [condition], "message": message,
        "pipelineRun": "one-0123456789-1", "lastAttemptedCommit": team.repo.head()});
    let fields = status.as_object_mut().expect("a map");
    fields.extend(more.as_object().cloned().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": status}));
    eventually(SOON, "the build says so", || async {
        let builds = team.api(Kind::AgentBuild);
        builds.patch_status("one", &PatchParams::default(), &patch).await.expect("a status");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = builds.get("one").await.expect("an AgentBuild").data;
        if now["status"]["message"] == message { Ok(()) } else { Err(now) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_a_commit_is_followed_to_the_pods_of_an_agent_without_a_build() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let (gpt, helper) = (model("gpt"), agent("image: registry.test/team/helper:1"));
    let team = Team::new(cluster, "trace", &[("gpt.yaml", &gpt), ("a.yaml", &helper)]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let jane = on_call(&team, operator).await;
    let stage = stage(&team);
    let pod = stage.pods_of("helper", 1).await.remove(0);

    let run = traced(&team, &jane, 1, "does not run yet: 0 of 1 replicas available; pod").await;
    insta::assert_snapshot!(shown(&team, &pod, &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | not Ready (RollingOut) | a.yaml:1; 0 of 1 replicas available
    Deployment | agent-helper | - | 0/1 available | registry.test/team/helper:1; generation 1 observed
    pod | POD | - | not ready (Pending) | no image yet; 0 restarts

    commit COMMIT does not run yet: 0 of 1 replicas available; pod POD is not ready (Pending); next: kubectl -n NAMESPACE describe pod POD
    ");
    serves(&stage, &pod).await;
    let run = traced(&team, &jane, 0, "runs").await;
    insta::assert_snapshot!(shown(&team, &pod, &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | Ready (Available) | a.yaml:1
    Deployment | agent-helper | - | 1/1 available | registry.test/team/helper:1; generation 1 observed
    pod | POD | - | ready | sha256:111111111111; 0 restarts

    commit COMMIT runs: 1 of 1 pods ready with registry.test/team/helper:1
    ");
    assert_eq!(run.err, "");
    let json = convoke(&jane, &["trace", "helper", "-n", &team.namespace, "-o", "json"]);
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["verdict"]["runs"], true);
    assert_eq!(json["verdict"]["commit"], team.repo.head());
    assert_eq!(json["object"]["source"], "a.yaml:1");
    assert_eq!(
        (&json["pods"][0]["name"], &json["pods"][0]["isNewest"]),
        (&json!(pod), &json!(true))
    );

    // It crashes.
    let ended = json!({"terminated": {"exitCode": 7, "reason": "Error", "startedAt": "2026-01-01T10:00:00Z",
        "finishedAt": "2026-01-01T10:00:00Z", "containerID": "containerd://1"}});
    is(&stage, &pod, ended, false, 3).await;
    let begin = "does not run yet: 0 of 1 pods ready (CrashLoopBackOff)";
    let run = traced(&team, &jane, 1, begin).await;
    insta::assert_snapshot!(shown(&team, &pod, &run).lines().last().unwrap_or_default(), @"commit COMMIT does not run yet: 0 of 1 pods ready (CrashLoopBackOff): pod POD: container agent ends with exit code 7; next: convoke logs agent/helper -n NAMESPACE --previous");
    serves(&stage, &pod).await;
    traced(&team, &jane, 0, "runs").await;

    // The newest commit has an error.
    team.push(&[("a.yaml", Some(&helper.replace("model:", "modle:")))]).await;
    let run = traced(&team, &jane, 1, "does not run yet: GitSync main has not applied it").await;
    let next = format!("; next: kubectl -n {} describe gitsync main\n", team.namespace);
    assert!(run.out.ends_with(&next), "{run:?}");
    team.push(&[("a.yaml", Some(&helper))]).await;
    traced(&team, &jane, 0, "runs").await;

    // Who may not read pods sees the rest. Nobody needs more than that to know whether it runs.
    let rules = json!([
        {"apiGroups": ["convoke.dev"], "resources": ["gitsyncs", "agents"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    ]);
    let joe = person(cluster, &team.namespace, "joe", rules, &[]).await;
    let run = traced(&team, &joe, 0, "runs").await;
    insta::assert_snapshot!(shown(&team, &pod, &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | Ready (Available) | a.yaml:1
    Deployment | agent-helper | - | 1/1 available | registry.test/team/helper:1; generation 1 observed
    pods | - | - | not readable | no right to list pods

    commit COMMIT runs: 1 of 1 pods available with registry.test/team/helper:1
    ");
    assert!(run.err.starts_with("hint: the Role convoke-ask of deploy/team.yaml"), "{run:?}");
    // Who may not read the GitSync does not know which commit is the newest.
    let rules =
        json!([{"apiGroups": ["convoke.dev"], "resources": ["agents"], "verbs": ["get", "list"]}]);
    let jack = person(cluster, &team.namespace, "jack", rules, &[]).await;
    eventually(SOON, "it is not known", || async {
        let run = trace(&team, &jack);
        let end = "it is not known whether with the newest commit: you have no right to get gitsyncs.convoke.dev\n";
        if run.code == 3 && run.out.ends_with(end) { Ok(()) } else { Err(run) }
    })
    .await;

    // A wrong name.
    let wrong = |who: &Path| convoke(who, &["trace", "agent/helpr", "-n", &team.namespace]);
    let (run, blind) = (wrong(&jack), wrong(&joe));
    let there_is_none = format!("error: there is no Agent helpr in {}\n", team.namespace);
    assert_eq!(run.err, format!("{there_is_none}hint: did you mean agent/helper?\n"));
    assert_eq!(blind.err, format!("{there_is_none}hint: name its namespace with -n\n"));
    assert_eq!((run.code, blind.code), (3, 3));
    for what in ["modelapi/gpt", "build/", "agent/"] {
        assert_eq!(convoke(&jane, &["trace", what, "-n", &team.namespace]).code, 2, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_d8_a_commit_is_followed_through_a_build_to_the_pods() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let (gpt, helper) = (model("gpt"), agent("buildRef: one"));
    let team = Team::new(cluster, "tracebuild", &[("gpt.yaml", &gpt), ("a.yaml", &helper)]).await;
    cluster.apply(&json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
        "metadata": {"name": "one", "namespace": team.namespace},
        "spec": {"source": {"gitSync": {}, "subfolder": "images/one"}, "output": {"image": "team/one"}}}));
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let jane = on_call(&team, operator).await;
    let short = &team.repo.head()[..7];

    let message = format!("building commit {short} in PipelineRun one-0123456789-1");
    says(&team, "Building", "Building", &message, json!({})).await;
    let run = traced(&team, &jane, 1, "does not run yet: AgentBuild one is under way").await;
    insta::assert_snapshot!(shown(&team, "", &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | not Ready (WaitingForBuild) | a.yaml:1; Waiting for AgentBuild one
    AgentBuild | one | COMMIT | Building | key 0123456789; PipelineRun one-0123456789-1 is gone; building commit COMMIT in PipelineRun one-0123456789-1
    image | - | - | missing | nothing was built yet
    Deployment | - | - | missing | there is no Deployment agent-helper

    commit COMMIT does not run yet: AgentBuild one is under way (Building): building commit COMMIT in PipelineRun one-0123456789-1; next: convoke logs build/one -n NAMESPACE -f
    ");

    let failure = json!({"failure": {"pipelineRun": "one-0123456789-1", "class": "Source", "reason": "DockerfileMissing",
        "message": "the folder has no such Dockerfile"}});
    let message = format!(
        "PipelineRun one-0123456789-1 of commit {short} failed: the folder has no such Dockerfile"
    );
    says(&team, "Failed", "DockerfileMissing", &message, failure).await;
    let run = traced(&team, &jane, 1, "does not run yet: AgentBuild one failed").await;
    insta::assert_snapshot!(shown(&team, "", &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | not Ready (WaitingForBuild) | a.yaml:1; Waiting for AgentBuild one
    AgentBuild | one | COMMIT | Failed (DockerfileMissing) | key 0123456789; PipelineRun one-0123456789-1 is gone; the folder has no such Dockerfile
    image | - | - | missing | nothing was built yet
    Deployment | - | - | missing | there is no Deployment agent-helper

    commit COMMIT does not run yet: AgentBuild one failed (DockerfileMissing): the folder has no such Dockerfile; next: convoke logs build/one -n NAMESPACE
    ");

    let built = json!({"failure": null, "builtImage": IMAGE, "builtKey": KEY, "lastBuiltCommit": team.repo.head()});
    says(&team, "Succeeded", "Built", &format!("built {IMAGE}"), built).await;
    let stage = stage(&team);
    let pod = stage.pods_of("helper", 1).await.remove(0);
    serves(&stage, &pod).await;
    let run = traced(&team, &jane, 0, "runs").await;
    insta::assert_snapshot!(shown(&team, &pod, &run), @r"
    STAGE | NAME | COMMIT | STATE | DETAILS
    GitSync | main | COMMIT | Ready (Succeeded) | branch main; applied AGE ago
    Agent | helper | COMMIT | Ready (Available) | a.yaml:1
    AgentBuild | one | COMMIT | Succeeded (Built) | key 0123456789; PipelineRun one-0123456789-1 is gone
    image | registry.test/team/one | COMMIT | built | sha256:111111111111
    Deployment | agent-helper | - | 1/1 available | sha256:111111111111; generation 1 observed
    pod | POD | - | ready | sha256:111111111111; 0 restarts

    commit COMMIT runs: 1 of 1 pods ready with sha256:111111111111
    ");

    // The build alone.
    let run = convoke(&jane, &["trace", "build/one", "-n", &team.namespace]);
    let last = run.out.lines().last();
    let is_built = "AgentBuild one is built: sha256:111111111111; it does not come from Git";
    assert_eq!((run.code, last), (0, Some(is_built)), "{run:?}");
    assert!(!run.out.contains("Deployment") && run.out.contains("registry.test/team/one"));
}
