use serde_json::{Value, json};

use super::super::facts::ObjectFacts;
use super::*;
use crate::cli::pods::tests::{agent, connection, pod, workload};

const AGENT: &str = "/apis/convoke.dev/v1alpha1/namespaces/team/agents/a";
const SYNC: &str = "/apis/convoke.dev/v1alpha1/namespaces/team/gitsyncs/main";
const BUILD: &str = "/apis/convoke.dev/v1alpha1/namespaces/team/agentbuilds/b";
const RUN: &str = "/apis/tekton.dev/v1/namespaces/team/pipelineruns/b-1";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/team/deployments/agent-a";
const SET: &str = "/apis/apps/v1/namespaces/team/replicasets/set";
const PODS: &str = "/api/v1/namespaces/team/pods";
const COMMIT: &str = "1a2b3c4d5e6f1a2b3c4d5e6f1a2b3c4d5e6f1a2b";

/// The answers about Agent `a` of GitSync `main` with AgentBuild `b`.
fn answers() -> Vec<(&'static str, Value)> {
    let mut all = agent(&[pod("one", ("set", "set")), pod("strange", ("strange", "strange"))]);
    let mut change = |path: &str, with: &dyn Fn(&mut Value)| {
        all.iter_mut().filter(|(known, _)| *known == path).for_each(|(_, value)| with(value));
    };
    change(AGENT, &|agent| {
        agent["metadata"]["namespace"] = "team".into();
        agent["metadata"]["annotations"] = json!({
            "convoke.dev/owner": "sync/team/main/Agent/team/a", "convoke.dev/commit": COMMIT, "convoke.dev/source": "a.yaml:1"});
        agent["spec"] = json!({"buildRef": {"name": "b"}});
    });
    change(DEPLOYMENT, &|deployment| {
        deployment["metadata"]["annotations"] = json!({REVISION: "2"});
        deployment["spec"] = json!({"selector": {}, "template": {"spec": {"containers": [{"name": "agent", "image": "reg/a@sha256:1"}]}}});
    });
    change(SET, &|set| set["metadata"]["annotations"] = json!({REVISION: "2"}));
    let run = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "name": "b", "uid": "build", "controller": true});
    all.extend([
        (
            SYNC,
            json!({"metadata": {"name": "main", "uid": "sync"}, "spec": {"url": "https://x"},
                "status": {"lastAppliedRevision": format!("main@sha1:{COMMIT}")}}),
        ),
        (
            BUILD,
            json!({"metadata": {"name": "b", "uid": "build"}, "status": {"pipelineRun": "b-1"},
                "spec": {"source": {"gitSync": {}}, "output": {"image": "i"}}}),
        ),
        (
            RUN,
            json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "b-1", "ownerReferences": [run]},
                "status": {"conditions": [{"type": "Succeeded", "status": "False", "reason": "PipelineRunTimeout"}]}}),
        ),
    ]);
    all
}

async fn traced(change: impl FnOnce(&mut Vec<(&'static str, Value)>)) -> Trace {
    let mut answers = answers();
    change(&mut answers);
    trace(&connection(&answers), &workload()).await.expect("a trace")
}

fn answer(answers: &mut [(&'static str, Value)], path: &str, with: &Value) {
    let found = answers.iter_mut().find(|(known, _)| *known == path);
    found.expect(path).1 = with.clone();
}

fn state(trace: &Trace) -> Option<&str> {
    trace.build.as_ref()?.known()?.pipeline_run.as_ref()?.state.as_deref()
}

#[tokio::test]
async fn d8_each_stage_is_read_and_belongs_to_the_one_before_by_its_uid() {
    let trace = traced(|_| ()).await;
    let ObjectFacts { commit, source, build, .. } = &trace.object;
    assert_eq!(
        (commit.as_deref(), source.as_deref(), build.as_deref()),
        (Some(COMMIT), Some("a.yaml:1"), Some("b"))
    );
    let sync = trace.git_sync.as_ref().and_then(Seen::known).expect("a GitSync");
    assert_eq!(sync.applied.as_deref(), Some(COMMIT));
    assert_eq!(state(&trace), Some("failed (PipelineRunTimeout)"));
    let deployment = trace.deployment.known().expect("a Deployment");
    assert_eq!(deployment.image.as_deref(), Some("reg/a@sha256:1"));
    let pods: Vec<_> = trace.pods.known().expect("pods").iter().map(|pod| &pod.name).collect();
    assert_eq!(pods, ["one"]);
    assert!(trace.pods.known().expect("pods")[0].is_newest);

    // The same names, and others' objects.
    let trace = traced(|answers| {
        answer(answers, SYNC, &json!({"metadata": {"name": "main", "uid": "another"}, "spec": {"url": "https://x"}}));
        answer(answers, RUN, &json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "b-1"}}));
        let found = answers.iter_mut().find(|(known, _)| *known == DEPLOYMENT).expect("one");
        found.1["metadata"]["ownerReferences"][0]["uid"] = "another".into();
    })
    .await;
    let Some(Seen::Missing { missing }) = &trace.git_sync else { panic!("{:?}", trace.git_sync) };
    assert_eq!(missing, "GitSync main in team is gone");
    assert_eq!(state(&trace), Some("is gone"));
    let Seen::Missing { missing } = &trace.deployment else { panic!("{:?}", trace.deployment) };
    assert_eq!(missing, "Deployment agent-a does not belong to Agent a");
    assert_eq!(trace.pods, Seen::Known(Vec::new()));
}

#[tokio::test]
async fn d8_a_mark_of_another_object_and_an_old_revision_do_not_count() {
    let trace = traced(|answers| {
        let found = answers.iter_mut().find(|(known, _)| *known == AGENT).expect("one");
        found.1["metadata"]["annotations"]["convoke.dev/owner"] =
            "sync/team/main/Agent/team/other".into();
        let found = answers.iter_mut().find(|(known, _)| *known == SET).expect("one");
        found.1["metadata"]["annotations"] = json!({REVISION: "1"});
    })
    .await;
    assert_eq!((&trace.git_sync, &trace.object.commit), (&None, &None));
    assert!(!trace.pods.known().expect("pods")[0].is_newest);
}

#[tokio::test]
async fn d8_a_stage_that_may_not_be_read_is_told_and_the_others_are_read() {
    for (path, right) in [
        (SYNC, "get gitsyncs.convoke.dev"),
        (BUILD, "get agentbuilds.convoke.dev"),
        (RUN, ""),
        (DEPLOYMENT, "get deployments"),
        (SET, "get replicasets"),
        (PODS, "list pods"),
    ] {
        let trace = traced(|answers| answer(answers, path, &json!(403))).await;
        let refused = [
            trace.git_sync.as_ref().and_then(Seen::refused),
            trace.build.as_ref().and_then(Seen::refused),
            trace.deployment.refused(),
            trace.pods.refused(),
        ];
        let refused: Vec<_> = refused.into_iter().flatten().collect();
        if right.is_empty() {
            assert_eq!((refused.as_slice(), state(&trace)), (&[][..], None));
        } else {
            assert!(refused.iter().all(|one| *one == right) && !refused.is_empty(), "{refused:?}");
        }
        assert!(super::super::lacks_rights(&trace), "{path}");
    }
    // Any other failure ends the command: what it would show is not known.
    let mut answers = answers();
    answer(&mut answers, PODS, &json!(500));
    let failure = trace(&connection(&answers), &workload()).await.expect_err("a failure");
    assert_eq!(failure.code, CLUSTER);
}

#[tokio::test]
async fn d8_an_object_that_is_not_there_is_told_with_the_nearest_name() {
    const LIST: &str = "/apis/convoke.dev/v1alpha1/namespaces/team/agents";
    let near = json!({"metadata": {}, "items": [{"metadata": {"name": "aa"}}, {"metadata": {"name": "zzz"}}]});
    for (answers, hint) in [
        (vec![(LIST, near)], "did you mean agent/aa?"),
        (vec![(LIST, json!(403))], "name its namespace with -n"),
        (vec![], "name its namespace with -n"),
    ] {
        let failure = trace(&connection(&answers), &workload()).await.expect_err("no agent");
        assert_eq!(failure.message, "there is no Agent a in team");
        assert_eq!((failure.code, failure.hint.as_deref()), (CLUSTER, Some(hint)));
    }
}

#[tokio::test]
async fn d8_a_build_alone_is_traced_to_its_run() {
    let workload = Workload { kind: Kind::AgentBuild, name: "b".to_owned() };
    let mut answers = answers();
    let owner = json!({"convoke.dev/owner": "sync/team/main/AgentBuild/team/b"});
    let found = answers.iter_mut().find(|(known, _)| *known == BUILD).expect("one");
    found.1["metadata"]["namespace"] = "team".into();
    found.1["metadata"]["annotations"] = owner;
    let trace = trace(&connection(&answers), &workload).await.expect("a trace");
    assert!(trace.is_of_build());
    let sync = trace.git_sync.as_ref().and_then(Seen::known).expect("a GitSync");
    assert_eq!(sync.applied.as_deref(), Some(COMMIT));
    assert_eq!(state(&trace), Some("failed (PipelineRunTimeout)"));
    assert_eq!(trace.pods.known().map(Vec::len), Some(0));
}
