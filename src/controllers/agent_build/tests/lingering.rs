use serde_json::{Value, json};

use super::*;

fn key(digit: char) -> BuildKey {
    BuildKey::parse(&digit.to_string().repeat(64)).expect("a key")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// A run of a key that was stopped, and pushes the tag `latest`.
fn stopped(digit: char) -> Run {
    Run {
        key: Some(key(digit).to_string()),
        stopping: true,
        ended: Some(at(100)),
        tag: Some("latest".into()),
        ..Run::sample(RunOutcome::Failed { reason: "Cancelled".into(), message: "why".into() })
    }
}

#[test]
fn b7_only_a_run_that_could_put_an_older_image_under_the_same_tag_is_waited_for() {
    let one = key('1');
    let pushed = Pushed { uid: "uid", key: &one, image: "r/i", tag: "latest" };
    let is_rival = |run: &Run| !rivals(&[run], &pushed).is_empty();
    assert!(is_rival(&stopped('2')));
    // It took too long, and nobody has stopped it.
    assert!(is_rival(&Run { stopping: false, ..stopped('2') }));
    // What it pushes is not known.
    assert!(is_rival(&Run { tag: None, ..stopped('2') }));
    for (what, run) in [
        ("another tag", Run { tag: Some("1234567".into()), ..stopped('2') }),
        ("another image", Run { image: Some("r/other".into()), ..stopped('2') }),
        ("the same key", stopped('1')),
        ("of another AgentBuild", Run { owner_uid: Some("other".into()), ..stopped('2') }),
        (
            "it goes on, and is waited for anyway",
            Run { outcome: RunOutcome::Running, ..stopped('2') },
        ),
        (
            "it has pushed",
            Run { outcome: RunOutcome::Built { digest: String::new() }, ..stopped('2') },
        ),
    ] {
        assert!(!is_rival(&run), "{what}");
    }
    let many: Vec<_> =
        (0..50).map(|second| Run { ended: Some(at(second)), ..stopped('2') }).collect();
    let found = rivals(&many.iter().collect::<Vec<_>>(), &pushed);
    assert_eq!((found.len(), found[0].ended), (MAX_RUNS, Some(at(49))), "the newest ones");
}

#[test]
fn b7_a_pod_that_does_not_end_is_told_with_what_helps() {
    let (one, run) = (key('1'), stopped('2'));
    let pushed = Pushed { uid: "uid", key: &one, image: "r/i", tag: "latest" };
    let soon = lingering(&run, "pod-1", &pushed, "team", at(219));
    assert!(!soon.is_late && !soon.message().contains("delete pod"), "{}", soon.message());
    let late = lingering(&run, "pod-1", &pushed, "team", at(220));
    assert!(
        late.message().contains("kubectl -n team delete pod pod-1 --force"),
        "{}",
        late.message()
    );
    assert!(late.again() > soon.again());
    // In the namespace of --build-namespace.
    let elsewhere = Run { namespace: "builds".into(), ..run };
    let said = lingering(&elsewhere, "pod-1", &pushed, "team", at(220)).message();
    assert!(said.contains("PipelineRun builds/reviewer-1") && said.contains("-n builds"), "{said}");
}

/// A pod with these containers, of which these have ended.
fn pod(restart: &str, containers: &[&str], ended: &[&str]) -> Value {
    let container = |name: &&str| json!({"name": name, "image": "x"});
    let status = |name: &&str| {
        let state = if ended.contains(name) {
            json!({"terminated": {"exitCode": 1}})
        } else {
            json!({"running": {}})
        };
        json!({"name": name, "state": state, "image": "x", "imageID": "x", "ready": false, "restartCount": 0})
    };
    json!({
        "metadata": {"name": "pod-1"},
        "spec": {"restartPolicy": restart, "containers": containers.iter().map(container).collect::<Vec<_>>()},
        "status": {"phase": "Running", "containerStatuses": containers.iter().map(status).collect::<Vec<_>>()},
    })
}

#[test]
fn b7_a_pod_whose_steps_have_ended_is_not_waited_for_whatever_its_sidecars_do() {
    let ended = |pod: Value| has_ended(&serde_json::from_value(pod).expect("a pod"));
    let all = ["step-build", "step-push", "istio-proxy"];
    assert!(ended(pod("Never", &all, &["step-build", "step-push"])));
    assert!(!ended(pod("Never", &all, &["step-build"])), "it pushes");
    assert!(!ended(pod("Never", &all, &["step-build", "istio-proxy"])));
    assert!(!ended(pod("OnFailure", &all, &all)), "it begins once more");
    let mut again = pod("Never", &all, &all);
    again["spec"]["containers"][1]["restartPolicy"] = "Always".into();
    assert!(!ended(again), "a step begins once more");
    // A sidecar among the init containers, as Kubernetes has them.
    let mut native = pod("Never", &all[..2], &all[..2]);
    native["spec"]["initContainers"] =
        json!([{"name": "istio-proxy", "image": "x", "restartPolicy": "Always"}]);
    native["status"]["initContainerStatuses"] = json!([
        {"name": "istio-proxy", "state": {"running": {}}, "image": "x", "imageID": "x", "ready": true, "restartCount": 0},
    ]);
    assert!(ended(native));
    // Its steps are not known: not yet in the status, or called something else.
    let mut unknown = pod("Never", &all, &all);
    unknown["status"]["containerStatuses"].as_array_mut().expect("statuses").truncate(1);
    assert!(!ended(unknown));
    assert!(!ended(pod("Never", &["other"], &["other"])));
    assert!(!ended(json!({"metadata": {"name": "pod-1"}})));
}
