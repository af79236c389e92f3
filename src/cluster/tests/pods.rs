//! Statuses of pods as kubelets, the scheduler and Kubernetes' controllers write them.

use serde_json::{Value, json};

use super::*;

const POD: &str = "agent-a-7c9f-x2v4k";

/// A pod of agent `a` with this status.
fn pod(status: &Value) -> Value {
    json!({
        "metadata": {
            "name": POD, "namespace": "team", "uid": "u", "resourceVersion": "7",
            "labels": {"convoke.dev/kind": "agent", "convoke.dev/name": "a", "pod-template-hash": "7c9f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "agent-a-7c9f", "controller": true, "uid": "r"}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "agent", "image": "agent:1"}]},
        "status": status,
    })
}

fn seen(pod: &Value) -> Option<FailingPod> {
    let (key, entry) = read(&pod.to_string()).expect("a pod");
    assert_eq!(key, Key::new("team", POD));
    entry?.value.failing().cloned()
}

/// What is told of a pod with this status: reason and words.
fn told(status: &Value) -> Option<(&'static str, String)> {
    seen(&pod(status)).map(|sick| (sick.problem.reason(), sick.about(MESSAGE).to_owned()))
}

/// The same of the one container of a pod.
fn container(state: &Value, last: &Value) -> Option<(&'static str, String)> {
    told(&status(state, last, "2026-01-01T10:00:00Z"))
}

fn status(state: &Value, last: &Value, unready_since: &str) -> Value {
    json!({
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": unready_since},
            {"type": "Ready", "status": "False", "lastTransitionTime": unready_since},
        ],
        "containerStatuses": [{"name": "agent", "image": "reg/agent:9", "ready": false, "restartCount": 3, "state": state, "lastState": last}],
    })
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn ended(code: i64, reason: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "message": "token=hunter2", "containerID": "containerd://1"}})
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-01-01T10:00:05Z"}})
}

fn none() -> Value {
    json!({})
}

#[test]
fn a8_an_image_that_cannot_be_had_is_one_trouble_through_all_tries() {
    let pull = r#"failed to pull and unpack image "reg/agent:9": failed to resolve reference "reg/agent:9": reg/agent:9: not found"#;
    let back_off =
        format!("Back-off pulling image \"reg/agent:9\": ErrImagePull: rpc error: {pull}");
    let expected = (
        "ImagePullBackOff",
        "container agent cannot have its image reg/agent:9: the registry does not have it"
            .to_owned(),
    );
    for state in [waiting("ErrImagePull", pull), waiting("ImagePullBackOff", &back_off)] {
        assert_eq!(container(&state, &none()), Some(expected.clone()));
    }
    for (said, cause) in [
        ("pull access denied, repository does not exist or may require authorization", "asks for"),
        (
            "failed to authorize: failed to fetch anonymous token: 401 Unauthorized",
            "other credentials",
        ),
        ("dial tcp: lookup reg on 10.0.0.1:53: no such host", "cannot be reached"),
        (r#"Head "https://reg/v2": dial tcp 10.0.0.9:443: i/o timeout"#, "cannot be reached"),
        ("no match for platform in manifest: not found", "platform"),
    ] {
        let (reason, words) =
            container(&waiting("ErrImagePull", said), &none()).expect("in trouble");
        assert!(reason == "ImagePullBackOff" && words.contains(cause), "{words}");
    }
    let (reason, words) = container(&waiting("InvalidImageName", "x"), &none()).expect("trouble");
    assert_eq!(reason, "InvalidImageName");
    assert!(words.contains("reg/agent:9"), "{words}");
}

#[test]
fn a8_the_cause_of_a_failed_pull_stays_when_a_kubelet_names_it_only_at_times() {
    let sick = |message: &str, reason: &str| {
        let state = waiting(reason, message);
        seen(&pod(&status(&state, &none(), "2026-01-01T10:00:00Z"))).expect("in trouble")
    };
    let known = sick("reg/agent:9: not found", "ErrImagePull");
    let bare = sick("Back-off pulling image \"reg/agent:9\"", "ImagePullBackOff");
    assert_ne!(known, bare);
    assert_eq!(bare.clone().after(&known), known);
    assert_eq!(known.clone().after(&bare), known);
    let other = sick("connection refused", "ErrImagePull");
    assert_eq!(other.clone().after(&known), other, "a new cause is news");
}

#[test]
fn a8_another_exit_code_is_news_even_if_it_begins_like_the_one_before() {
    let with = |code: i64| {
        seen(&pod(&status(&ended(code, "Error"), &none(), "2026-01-01T10:00:00Z"))).expect("ended")
    };
    let (before, now) = (with(139), with(1));
    assert_ne!(before, now);
    assert_eq!(now.clone().after(&before), now);
}

#[test]
fn a8_how_a_container_ended_while_its_node_was_away_is_nobodys_trouble() {
    for (code, reason) in [(255, "Unknown"), (137, "ContainerStatusUnknown")] {
        let text = pod(&status(&running(), &ended(code, reason), "2026-01-01T10:00:00Z"));
        assert!(seen(&text).is_none(), "{reason}");
    }
}

#[test]
fn a8_a_crash_loop_is_one_trouble_while_the_container_keeps_dying() {
    let expected = ("CrashLoopBackOff", "container agent ends with exit code 3".to_owned());
    let back_off = "back-off 40s restarting failed container=agent pod=agent-a-7c9f-x2v4k_team(u)";
    for (state, last) in [
        (ended(3, "Error"), none()),
        (running(), ended(3, "Error")),
        (ended(3, "Error"), ended(3, "Error")),
        (waiting("CrashLoopBackOff", back_off), ended(3, "Error")),
        (waiting("ContainerCreating", ""), ended(3, "Error")),
    ] {
        assert_eq!(container(&state, &last), Some(expected.clone()), "{state} {last}");
    }
    let words = |code, reason| container(&ended(code, reason), &none()).expect("in trouble");
    assert!(
        words(0, "Completed").1.ends_with("ends by itself (exit code 0), and is to run for ever")
    );
    assert!(words(137, "Error").1.contains("perhaps because its startup or liveness probe fails"));
    let memory = words(137, "OOMKilled");
    assert_eq!(memory.0, "OOMKilled");
    assert_eq!(container(&running(), &ended(137, "OOMKilled")), Some(memory));
}

#[test]
fn a8_what_a_container_wrote_at_its_end_is_not_told() {
    for reason in ["Error", "Completed", "OOMKilled"] {
        let sick = seen(&pod(&status(&ended(1, reason), &none(), "2026-01-01T10:00:00Z")));
        assert!(!format!("{sick:?}").contains("hunter2"), "{sick:?}");
        assert!(sick.is_some());
    }
}

#[test]
fn a8_a_container_that_cannot_be_started_says_so_in_all_its_states() {
    let said = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"serve\": executable file not found in $PATH: unknown";
    let end = json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": said}});
    let expected = (
        "RunContainerError",
        "container agent cannot be started: exec: \"serve\": executable file not found in $PATH: unknown".to_owned(),
    );
    for (state, last) in [
        (waiting("RunContainerError", said), none()),
        (end.clone(), none()),
        (waiting("CrashLoopBackOff", "back-off 10s"), end),
    ] {
        assert_eq!(container(&state, &last), Some(expected.clone()));
    }
    let id = "0123456789abcdef0123456789abcdef";
    let (_, words) = container(
        &waiting("CreateContainerError", &format!("name is reserved for \"{id}\"")),
        &none(),
    )
    .expect("in trouble");
    assert_eq!(words, "container agent cannot be started: name is reserved for \"…\"");
}

#[test]
fn a8_a_missing_secret_or_key_is_named() {
    for said in ["secret \"keys\" not found", "couldn't find key token in Secret team/keys"] {
        let (reason, words) =
            container(&waiting("CreateContainerConfigError", said), &none()).expect("in trouble");
        assert_eq!(reason, "CreateContainerConfigError");
        assert_eq!(words, format!("container agent cannot be made: {said}"));
    }
}

#[test]
fn a8_an_init_container_is_named_and_may_end() {
    let with = |state: &Value, ready: bool| {
        told(&json!({
            "phase": "Pending",
            "initContainerStatuses": [{"name": "pull", "image": "i", "ready": ready, "state": state}],
            "containerStatuses": [{"name": "agent", "image": "a", "ready": false, "state": {"waiting": {"reason": "PodInitializing"}}}],
        }))
    };
    assert_eq!(with(&ended(0, "Completed"), true), None);
    assert_eq!(with(&ended(0, "Completed"), false), None);
    assert_eq!(with(&running(), false), None);
    let (reason, words) = with(&ended(2, "Error"), false).expect("in trouble");
    assert_eq!(
        (reason, &*words),
        ("CrashLoopBackOff", "init container pull ends with exit code 2")
    );
}

#[test]
fn a8_what_no_node_takes_is_told_without_counts() {
    let with = |message: &str| {
        told(&json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}))
    };
    let expected = |words: &str| Some(("Unschedulable", format!("no node takes it: {words}")));
    let one = "0/3 nodes are available: 1 Insufficient memory, 2 node(s) were unschedulable. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    let two = "0/12 nodes are available: 11 node(s) were unschedulable, 1 Insufficient memory.";
    let words = "Insufficient memory, node(s) were unschedulable";
    assert_eq!((with(one), with(two)), (expected(words), expected(words)));
    let claim = "0/1 nodes are available: persistentvolumeclaim \"w\" not found. preemption: 0/1";
    assert_eq!(with(claim), expected("persistentvolumeclaim \"w\" not found"));
    assert_eq!(
        with("no nodes available to schedule pods"),
        expected("no nodes available to schedule pods")
    );
    assert_eq!(with(""), expected("there is none that fits"));
}

#[test]
fn a8_a_probe_that_fails_after_it_passed_is_told_apart_from_a_start() {
    let at = |since: &str, last: &Value| told(&status(&running(), last, since));
    // It started at 10:00:05.
    assert_eq!(at("2026-01-01T10:00:04Z", &none()), None, "it is starting");
    let (reason, words) = at("2026-01-01T11:00:00Z", &none()).expect("in trouble");
    assert_eq!(reason, "ProbeFailing");
    assert!(words.starts_with("container agent runs, and fails the readiness probe"), "{words}");
    // It died once, long ago.
    let (reason, _) = at("2026-01-01T11:00:00Z", &ended(1, "Error")).expect("in trouble");
    assert_eq!(reason, "ProbeFailing");
}

#[test]
fn a8_a_silent_node_is_told_and_a_readiness_gate_is_none() {
    let with = |reason: Option<&str>| {
        told(&json!({"phase": "Running",
            "conditions": [
                {"type": "ContainersReady", "status": "True"},
                {"type": "Ready", "status": "False", "reason": reason},
            ],
            "containerStatuses": [{"name": "agent", "image": "a", "ready": true, "state": running()}]}))
    };
    assert_eq!(with(None), Some(("NodeLost", "its node n1 does not answer".to_owned())));
    assert_eq!(with(Some("ReadinessGatesNotReady")), None);
}

#[test]
fn a8_healthy_going_ended_and_foreign_pods_are_not_kept() {
    let crash = status(&ended(1, "Error"), &none(), "2026-01-01T10:00:00Z");
    assert!(seen(&pod(&crash)).is_some());
    let mut going = pod(&crash);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
    assert_eq!(seen(&going), None);
    let mut orphan = pod(&crash);
    orphan["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(seen(&orphan), None);
    let mut build = pod(&crash);
    build["metadata"]["ownerReferences"][0]["kind"] = json!("TaskRun");
    assert_eq!(seen(&build), None);
    let mut evicted = crash;
    evicted["phase"] = json!("Failed");
    assert_eq!(seen(&pod(&evicted)), None);
    assert_eq!(told(&json!({})), None);
    assert_eq!(container(&waiting("ContainerCreating", ""), &none()), None);
}

#[test]
fn a8_words_of_the_world_are_one_line_of_some_length() {
    let said = format!("secret \"\u{1b}[31m\n{}\" not found", "x".repeat(5000));
    let (_, words) =
        container(&waiting("CreateContainerConfigError", &said), &none()).expect("in trouble");
    assert!(words.chars().count() <= MAX_MESSAGE_CHARS + 1 && words.ends_with('…'), "{words}");
    assert!(!words.chars().any(char::is_control), "{words}");
}

fn deployment(generation: i64, observed: i64, message: &str) -> Deployment {
    let value = json!({
        "metadata": {"name": "agent-a", "namespace": "team", "generation": generation},
        "status": {"observedGeneration": observed, "conditions": [
            {"type": "Available", "status": "False", "message": "none of \"agent-a-other\""},
            {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": message}]},
    });
    serde_json::from_value(value).expect("deployment")
}

/// A pod in trouble: its name, its ReplicaSet and its trouble.
fn sick(name: &str, set: &str, problem: PodProblem) -> (Key, Arc<Entry<SeenPod>>) {
    let about = Texts::of(["agent", "a", set, "agent", "container agent is ill"]);
    let value = SeenPod::Failing(FailingPod { problem, about });
    (Key::new("team", name), Arc::new(Entry { uid: name.into(), version: 1, value }))
}

#[test]
fn a8_only_the_newest_revision_has_a_trouble_to_tell() {
    let newest = "ReplicaSet \"agent-a-new\" is progressing.";
    let old = sick("agent-a-old-1", "agent-a-old", PodProblem::CrashLoopBackOff);
    let new = sick("agent-a-new-1", "agent-a-new", PodProblem::Unschedulable);
    let told = |deployment: &Deployment, sick: &[_]| trouble_of(deployment, sick).map(|t| t.reason);
    let both = [old.clone(), new];
    assert_eq!(told(&deployment(2, 2, newest), &both), Some("Unschedulable"));
    assert_eq!(told(&deployment(2, 2, newest), std::slice::from_ref(&old)), None);
    assert_eq!(told(&deployment(3, 2, newest), &both), None, "nobody knows the newest yet");
    // A message without a name: all of the Deployment count, and no one else's.
    assert_eq!(told(&deployment(2, 2, "moving"), &both), Some("CrashLoopBackOff"));
    let other = sick("agent-a-b-new-1", "agent-a-b-new", PodProblem::CrashLoopBackOff);
    assert_eq!(told(&deployment(2, 2, "moving"), &[other]), None);
}

#[test]
fn a8_of_many_troubles_always_the_same_is_told() {
    let deployment = deployment(1, 1, "Created new replica set \"agent-a-r\"");
    let mut pods = vec![
        sick("agent-a-r-2", "agent-a-r", PodProblem::CrashLoopBackOff),
        sick("agent-a-r-3", "agent-a-r", PodProblem::Unschedulable),
        sick("agent-a-r-1", "agent-a-r", PodProblem::CrashLoopBackOff),
    ];
    for _ in 0..pods.len() {
        let trouble = trouble_of(&deployment, &pods).expect("trouble");
        let text = "pod agent-a-r-1: container agent is ill; its log: kubectl -n team logs agent-a-r-1 -c agent --previous";
        assert_eq!((trouble.reason, &*trouble.message), ("CrashLoopBackOff", text));
        assert!(trouble.lasting);
        pods.rotate_left(1);
    }
    pods.retain(|(_, entry)| {
        entry.value.failing().is_some_and(|pod| pod.problem == PodProblem::Unschedulable)
    });
    assert!(trouble_of(&deployment, &pods).is_some_and(|trouble| !trouble.lasting));
}
