use serde_json::json;

use super::*;
use crate::api::agent_build::FailureClass::{
    Build, Cancelled, Infrastructure, Policy, Registry, Source,
};

fn run(reason: &str) -> Run {
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "r"},
        "status": {"completionTime": "2026-01-01T00:00:00Z", "conditions": [
            {"type": "Succeeded", "status": "False", "reason": reason, "message": "Tasks Completed: 1"},
        ]},
    });
    Run::read(&serde_json::from_value(object).expect("an object"))
}

/// A TaskRun that failed so, with these steps: (name, exit code, reason, Tekton's reason).
fn task(reason: &str, message: &str, steps: &[(&str, i32, &str, &str)]) -> TaskRun {
    let steps: Vec<_> = steps
        .iter()
        .map(|(name, code, reason, why)| {
            json!({"name": name, "terminated": {"exitCode": code, "reason": reason}, "terminationReason": why})
        })
        .collect();
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "r-build"},
        "status": {"podName": "r-build-pod", "steps": steps, "conditions": [
            {"type": "Succeeded", "status": "False", "reason": reason, "message": message},
        ]},
    });
    TaskRun::read(&serde_json::from_value(object).expect("an object"))
}

/// Class and reason of a run whose step ended with this exit code.
fn of_step(code: i32) -> (FailureClass, String) {
    let steps = [
        ("clone", 0, "Completed", "Completed"),
        ("x", code, "Error", "Error"),
        ("y", 1, "Error", "Skipped"),
    ];
    let why = failure(&run("Failed"), Some(&task("Failed", "\"step-x\" exited", &steps)))
        .expect("a failure");
    assert_eq!(
        (why.step.as_deref(), why.exit_code),
        (Some("x"), Some(code)),
        "not the one that was skipped"
    );
    assert!(
        why.message.starts_with(&format!("step x failed with exit code {code}")),
        "{}",
        why.message
    );
    (why.class, why.reason)
}

#[test]
fn b6_what_keeps_a_pod_from_running_is_told() {
    let quota =
        "TaskRun Pod exceeded available resources: pods \"r\" is forbidden: exceeded quota: full";
    assert_eq!(task("ExceededResourceQuota", quota, &[]).held_up().as_deref(), Some(quota));
    assert_eq!(task("Running", "Not all Steps have run", &[]).held_up(), None);
    assert_eq!(task("Pending", "", &[]).held_up(), None);
    let long = task("Pending", &"x".repeat(9000), &[]).held_up().expect("a reason");
    assert!(long.len() < 4096, "{}", long.len());
}

#[test]
fn b6_steps_that_ran_say_how_long_they_took() {
    let step = |name: &str, why: &str, from: &str, to: &str| {
        json!({"name": name, "terminationReason": why, "terminated": {
            "exitCode": 0, "startedAt": format!("2026-01-01T00:{from}Z"), "finishedAt": format!("2026-01-01T00:{to}Z"),
        }})
    };
    let steps = json!([
        step("clone", "Completed", "00:01", "00:03"),
        step("build", "Error", "00:03", "01:43"),
        step("push", "Skipped", "01:43", "01:43"),
        json!({"name": "broken", "terminated": {"startedAt": 7}}),
    ]);
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "r-build"}, "status": {"steps": steps},
    });
    let task = TaskRun::read(&serde_json::from_value(object).expect("an object"));
    let took: Vec<_> = task.steps.iter().map(|step| (step.name.as_str(), step.seconds)).collect();
    assert_eq!(took, [("clone", 2), ("build", 100)]);
}

#[test]
fn b7_each_failure_has_a_class() {
    for (code, class, reason) in [
        (10, Source, "CommitNotFetched"),
        (12, Infrastructure, "GitUnreachable"),
        (20, Source, "SubfolderMissing"),
        (22, Source, "DockerfileMissing"),
        (28, Infrastructure, "DiskFull"),
        (30, Build, "BuildFailed"),
        (31, Registry, "PushDenied"),
        (32, Infrastructure, "RegistryUnreachable"),
        (33, Build, "ImageInvalid"),
        (23, Source, "FolderRefused"),
        (34, Build, "BaseImageMissing"),
        (35, Build, "BaseImageInvalid"),
        (36, Build, "TestsFailed"),
        (24, Source, "LockFileRefused"),
        (37, Infrastructure, "IndexUnreachable"),
        (38, Build, "PipMissing"),
        (39, Registry, "RegistryWithoutTls"),
        (50, Build, "StepFailed"),
        (41, Policy, "PolicyFailed"),
        (1, Build, "StepFailed"),
    ] {
        assert_eq!(of_step(code), (class, reason.to_owned()), "{code}");
    }
    for (reason, message, class, want) in [
        ("PodEvicted", "the node was low on memory", Infrastructure, "PodEvicted"),
        ("TaskRunImagePullFailed", "back-off", Infrastructure, "TaskRunImagePullFailed"),
        ("ExceededNodeResources", "no room", Infrastructure, "ExceededNodeResources"),
        (
            "PodCreationFailed",
            "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"",
            Policy,
            "PodRefused",
        ),
        ("PodCreationFailed", "the API server is away", Infrastructure, "PodCreationFailed"),
        ("TaskRunTimeout", "failed to finish within 20m", Build, "TimedOut"),
        ("TaskRunValidationFailed", "no such parameter", Build, "TaskRunValidationFailed"),
    ] {
        let why = failure(&run("Failed"), Some(&task(reason, message, &[]))).expect("a failure");
        assert_eq!((why.class, why.reason.as_str()), (class, want), "{message}");
    }
    let killed = task("Failed", "", &[("build", 137, "OOMKilled", "Error")]);
    let why = failure(&run("Failed"), Some(&killed)).expect("a failure");
    assert_eq!((why.class, why.reason.as_str()), (Build, "OutOfMemory"));
    let late =
        [("build", 255, "Error", "TimeoutExceeded"), ("push", 2, "Error", "TimeoutExceeded")];
    for steps in [&late[..], &[]] {
        let task = task("TaskRunCancelled", "", steps);
        let why = failure(&run("PipelineRunTimeout"), Some(&task)).expect("a failure");
        assert_eq!((why.class, why.reason.as_str(), why.exit_code), (Build, "TimedOut", None));
        assert_eq!(why.message.ends_with(", in step build"), !steps.is_empty(), "{}", why.message);
    }
}

#[test]
fn b7_a_pod_that_is_deleted_or_evicted_is_tried_again() {
    let steps = [
        ("clone", 0, "Completed", "Completed"),
        ("build", 255, "Error", "Error"),
        ("push", 2, "Error", "Error"),
    ];
    let why = failure(&run("Failed"), Some(&task("Failed", "", &steps))).expect("a failure");
    assert_eq!(
        (why.class, why.reason.as_str(), why.exit_code),
        (Infrastructure, POD_DELETED, None)
    );
    assert_eq!(
        (why.step.as_deref(), why.message.as_str()),
        (Some("build"), "its pod was deleted or evicted in step build")
    );
    // Of the last step alone only the pod says so.
    let last = failure(&run("Failed"), Some(&task("Failed", "", &steps[..2]))).expect("a failure");
    assert_eq!((last.class, last.reason.as_str()), (Build, STEP_FAILED));
    assert_eq!(of_deleted_pod(last), why);
}

#[test]
fn b7_a_task_run_that_goes_on_says_nothing_of_a_run_that_has_failed() {
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "r-build"},
        "status": {"conditions": [{"type": "Succeeded", "status": "Unknown", "reason": "Pending", "message": "Pending"}]},
    });
    let task = TaskRun::read(&serde_json::from_value(object).expect("an object"));
    let why = failure(&run("CouldntGetTask"), Some(&task)).expect("a failure");
    assert_eq!((why.class, why.reason.as_str()), (Infrastructure, "CouldntGetTask"));
}

#[test]
fn b6_a_base_image_that_cannot_be_reached_is_told_apart_from_the_registry_of_the_image() {
    for (step, is_base) in [("build", true), ("append", true), ("push", false)] {
        let task = task("Failed", "", &[(step, 32, "Error", "Error")]);
        let why = failure(&run("Failed"), Some(&task)).expect("a failure");
        assert_eq!(why.message.contains("base image"), is_base, "{}", why.message);
    }
}

#[test]
fn b7_what_was_stopped_is_no_failure_of_a_step() {
    let killed = task("TaskRunCancelled", "", &[("build", 137, "Error", "Cancelled")]);
    let why = failure(&run("Cancelled"), Some(&killed)).expect("a failure");
    assert_eq!((why.class, why.reason.as_str(), why.step), (Cancelled, "Cancelled", None));
    let superseded = Run { superseded_by: Some(Run::newer()), ..run("Cancelled") };
    let why = failure(&superseded, Some(&killed)).expect("a failure");
    assert_eq!((why.class, why.reason.as_str()), (Cancelled, SUPERSEDED));
    assert_eq!(why.message, "it was stopped for the build of commit dddddddddddd");
    let unnamed = NewerBuild { commit: None, ..Run::newer() };
    let of_key = Run { superseded_by: Some(unnamed), ..superseded };
    let why = failure(&of_key, Some(&killed)).expect("a failure");
    assert_eq!(why.message, "it was stopped for the build key 222222222222");
    // It failed while it was being stopped: nobody knows why.
    let late = Run { superseded_by: Some(Run::newer()), stopping: true, ..run("Failed") };
    let why = failure(&late, Some(&task("Failed", "", &[("build", 30, "Error", "Error")])))
        .expect("a failure");
    assert_eq!((why.class, why.reason.as_str()), (Cancelled, SUPERSEDED));
}

#[test]
fn b7_a_step_that_is_killed_from_outside_is_tried_again() {
    for code in [137, 143] {
        let killed = task("Failed", "", &[("build", code, "Error", "Error")]);
        let why = failure(&run("Failed"), Some(&killed)).expect("a failure");
        assert_eq!((why.class, why.reason.as_str()), (Infrastructure, "StepKilled"));
    }
}

#[test]
fn b7_without_a_task_run_the_pipeline_run_says_why() {
    let why = failure(&run("PipelineValidationFailed"), None).expect("a failure");
    assert_eq!(
        (why.class, why.reason.as_str(), why.message.as_str()),
        (Build, "PipelineValidationFailed", "Tasks Completed: 1")
    );
    let why = failure(&run("CreateRunFailed"), None).expect("a failure");
    assert_eq!(why.class, Infrastructure);
}

#[test]
fn b7_only_the_cluster_is_tried_again_with_longer_and_longer_pauses() {
    let end: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let of = |class, reason: &str| BuildFailure {
        pipeline_run: "r".into(),
        class,
        reason: reason.into(),
        step: None,
        log: None,
        exit_code: None,
        message: String::new(),
        at: Some(end.to_string()),
    };
    for class in [Source, Build, Registry, Policy, Cancelled] {
        assert_eq!(retry(&of(class, "Why"), 1, 10), Retry::Never, "{class:?}");
    }
    let pauses: Vec<_> = (1..=8)
        .map(|attempt| match retry(&of(Infrastructure, "Why"), attempt, 7) {
            Retry::At(at) => Some(at.duration_since(end).as_secs()),
            Retry::Never => None,
        })
        .collect();
    let want = [15, 60, 240, 600, 600, 600, 600].map(Some);
    assert_eq!(pauses, [&want[..], &[None]].concat());
    assert_eq!(retry(&of(Infrastructure, "Why"), 1, 0), Retry::Never);
    assert_eq!(retry(&of(Cancelled, SUPERSEDED), 9, 0), Retry::At(end));
}

#[test]
fn b6_a_run_that_failed_although_its_steps_are_good_says_why() {
    // A result of the pipeline that no step has written.
    let good = task("Succeeded", "All Steps have completed executing", &[]);
    let why = failure(&run("Failed"), Some(&good)).expect("a failure");
    assert_eq!((why.reason.as_str(), why.message.as_str()), ("Failed", "Tasks Completed: 1"));
}

#[test]
fn b6_odd_objects_do_no_harm() {
    for status in [
        json!(null),
        json!("x"),
        json!({"conditions": 1, "steps": [1, {"terminated": "x"}, {"terminated": {"exitCode": 1e30}}]}),
    ] {
        let object = json!({"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "t"}, "status": status});
        let task = TaskRun::read(&serde_json::from_value(object).expect("an object"));
        assert_eq!(task, TaskRun::default());
    }
}

#[test]
fn b3_b6_a_failed_scan_says_what_it_found_as_one_line() {
    let failed = |code: i32, results: serde_json::Value| {
        let object = json!({
            "apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "r-build"},
            "status": {
                "steps": [{"name": "scan", "terminated": {"exitCode": code, "reason": "Error"}, "terminationReason": "Error"}],
                "results": results,
                "conditions": [{"type": "Succeeded", "status": "False", "reason": "Failed", "message": ""}],
            },
        });
        let task = TaskRun::read(&serde_json::from_value(object).expect("an object"));
        failure(&run("Failed"), Some(&task)).expect("a failure").message
    };
    let other = json!({"name": "commit", "value": "abc"});
    let finding = json!({"name": "FINDING", "value": "a.py line\n2:\u{1b}[31m github-pat "});
    let scanned = "step scan failed with exit code 40: the source folder has secrets";
    assert_eq!(
        failed(40, json!([other, finding])),
        format!("{scanned}: a.py line 2: [31m github-pat")
    );
    for nothing in [
        json!([other]),
        json!([{"name": "FINDING", "value": " "}]),
        json!(1),
        json!([{"name": "FINDING", "value": ["a"]}]),
    ] {
        assert_eq!(failed(40, nothing), scanned);
    }
    let refused =
        "step scan failed with exit code 24: the packages of the lock file are not installed";
    assert_eq!(failed(24, json!([])), refused);
    assert_eq!(failed(24, json!([finding])), format!("{refused}: a.py line 2: [31m github-pat"));
    // A rule was broken, or the finding is of another step.
    assert!(!failed(30, json!([finding])).contains("github-pat"));
    let long = json!([{"name": "FINDING", "value": "x".repeat(1 << 20)}]);
    assert!(failed(44, long).len() < 5000);
}
